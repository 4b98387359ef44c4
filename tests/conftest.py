"""Clusters of real processes for tests, and their nodes' output when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

CLUSTERS = pytest.StashKey[list[Any]]()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three brokers for all tests that leave them whole."""
    from support.cluster import ProcessCluster

    with ProcessCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def _topic_numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def new_topic(cluster: Any, _topic_numbers: Iterator[int]) -> Callable[..., str]:
    """Makes a topic of its own in the shared cluster: led, in sync, and empty."""

    def create(**options: Any) -> str:
        return str(cluster.create_topic(f"topic-{next(_topic_numbers)}", **options))

    return create


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a cluster for this test alone, which may do to it what it likes."""
    from support.cluster import ProcessCluster

    started = request.node.stash.setdefault(CLUSTERS, [])
    with ExitStack() as stack:

        def start(brokers: int = 3, **overrides: str) -> Any:
            """Settings are given with `_` for `.`: `broker_session_timeout_ms="3000"`."""
            settings = {name.replace("_", "."): value for name, value in overrides.items()}
            fresh = ProcessCluster(tmp_path / f"cluster-{len(started)}", brokers, settings)
            started.append(fresh)
            return stack.enter_context(fresh)

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        involved = list(item.stash.get(CLUSTERS, []))
        shared = getattr(item, "funcargs", {}).get("cluster")
        if shared is not None and shared not in involved:
            involved.append(shared)
        for each in involved:
            report.sections.append(("nodes", each.report()))
    return report
