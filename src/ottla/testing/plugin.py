"""The pytest plugin: fixtures for real clusters, and their brokers' logs in the report of a test that fails.

Under pytest-xdist every worker has its own cluster, so a test that kills a broker disturbs only its worker. To share one
among all workers, start it before (`ottla up`), and set OTTLA_TEST_BOOTSTRAP to its address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, ExistingCluster

EXISTING = "OTTLA_TEST_BOOTSTRAP"
NAME_CHARACTERS_MAX = 80

SHARED = pytest.StashKey["Cluster"]()
OWN = pytest.StashKey["list[Cluster]"]()


@pytest.fixture(scope="session")
def kafka_cluster_options() -> dict[str, Any]:
    """Arguments of the session's `Cluster`; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: dict[str, Any]
) -> Iterator[Cluster | ExistingCluster]:
    """Three brokers for all tests that do not break them; or the cluster at OTTLA_TEST_BOOTSTRAP."""
    from ottla.testing.cluster import Cluster, ExistingCluster

    if address := os.environ.get(EXISTING):
        yield ExistingCluster(address)
        return
    cluster = Cluster(**kafka_cluster_options)
    request.config.stash[SHARED] = cluster
    with cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters for this test alone, which may break them. Takes the arguments of `Cluster`."""
    from ottla.testing.cluster import Cluster

    own = request.node.stash.setdefault(OWN, [])
    with ExitStack() as stack:

        def start(brokers: int = 3, **options: Any) -> Cluster:
            cluster = Cluster(brokers, **options)
            own.append(cluster)
            return stack.enter_context(cluster)

        yield start


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_cluster: Cluster | ExistingCluster) -> str:
    """`bootstrap.servers` of `kafka_cluster`."""
    return kafka_cluster.get_bootstrap_server()


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run has. The topic is created when a client first uses it."""
    return _unique(request)


@pytest.fixture
def unique_group(request: pytest.FixtureRequest) -> str:
    return _unique(request)


def _unique(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:NAME_CHARACTERS_MAX]
    return f"{name}-{os.urandom(4).hex()}"


def _involved(item: pytest.Item) -> list[Cluster]:
    """Every cluster that the test used."""
    from ottla.testing.cluster import Cluster

    nothing: list[Cluster] = []
    found = [*item.stash.get(OWN, nothing)]
    shared = item.config.stash.get(SHARED, None)
    if shared is not None and "kafka_cluster" in getattr(item, "fixturenames", ()):
        found.append(shared)
    given = getattr(item, "funcargs", {}).values()
    found.extend(each for each in given if isinstance(each, Cluster) and each not in found)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for cluster in _involved(item):
            report.sections.append(("Kafka brokers", cluster.report()))
    return report
