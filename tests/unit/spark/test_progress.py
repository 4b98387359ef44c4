"""A stream's progress in its group: the first commit of all waits until there is a coordinator, and none waits for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.connect import cluster
from ottla.spark.connect.cluster import Found, KafkaCluster
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.options import Options
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


class Coordinator:
    """It is there after so many questions; what it was asked to commit."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[dict[str, Any]] = []

    def find(self, group: str) -> Coordinator:
        self.refusals -= 1
        if self.refusals >= 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self

    def request(self, key: ApiKey, fields: dict[str, Any], *, most: int) -> Any:
        assert key is ApiKey.OFFSET_COMMIT
        self.asked.append(fields)
        return SimpleNamespace(topics=[])


@pytest.fixture
def asked() -> KafkaCluster:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.retry.backoff.ms": "1"}
    return KafkaCluster(ConnectionOptions.of(Options(options)))


def commit(to: KafkaCluster, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to, "_coordinator", coordinator.find)
    to.commit("watched", {("orders", 0): Found(7, 2)})


def test_the_first_group_of_all_waits_for_its_coordinator(
    asked: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(refusals=20)
    commit(asked, coordinator, monkeypatch)
    (fields,) = coordinator.asked
    assert fields["topics"][0]["partitions"][0]["committed_offset"] == 7


def test_it_does_not_wait_for_long(asked: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "COMMIT_PATIENCE_S", 0.05)
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        commit(asked, Coordinator(refusals=1_000_000), monkeypatch)
