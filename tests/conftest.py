"""Clusters of real processes for tests; the plugin of `ottla.testing` shows their logs when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.plugin import OWN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="accept what golden texts tell now")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden texts are written anew."""
    return bool(request.config.getoption("--rewrite"))


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

    started = request.node.stash.setdefault(OWN, [])
    with ExitStack() as stack:

        def start(brokers: int = 3, **overrides: str) -> Any:
            """Settings are given with `_` for `.`: `broker_session_timeout_ms="3000"`."""
            settings = {name.replace("_", "."): value for name, value in overrides.items()}
            fresh = ProcessCluster(tmp_path / f"cluster-{len(started)}", brokers, settings)
            started.append(fresh)
            return stack.enter_context(fresh)

        yield start
