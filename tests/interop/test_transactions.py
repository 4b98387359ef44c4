"""Transactions with three clients: commit, abort, isolation, fencing, offsets, and what tools show of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.transactions import (
    CLIENTS,
    ConfluentTransactions,
    Transactional,
    read,
    read_with_aiokafka,
    read_with_kafka_python,
)

NewTopic = Callable[..., str]
Client = Callable[..., Transactional]
EACH_CLIENT = pytest.mark.parametrize("client", CLIENTS, ids=[each.name for each in CLIENTS])
NUMBERS = count()


@contextmanager
def producer(
    client: Client, cluster: ProcessCluster, id: str | None = None, **options: Any
) -> Iterator[Transactional]:
    made = client(cluster.bootstrap, id or f"id-{next(NUMBERS)}", **options)
    try:
        yield made
    finally:
        made.close()


@EACH_CLIENT
def test_C3_committed_transactions_are_read_and_aborted_ones_are_not(
    client: Client, cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    with producer(client, cluster) as one:
        for number in range(6):
            one.begin()
            for partition in (0, 1):
                one.send(topic, f"{number} on {partition}", partition)
            (one.abort if number % 3 == 1 else one.commit)()
    for partition in (0, 1):
        kept = [f"{number} on {partition}" for number in (0, 2, 3, 5)]
        everything = [f"{number} on {partition}" for number in range(6)]
        assert read(cluster.bootstrap, topic, partition) == kept
        assert read(cluster.bootstrap, topic, partition, committed=False) == everything


def test_C3_every_client_leaves_out_what_was_aborted(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with producer(ConfluentTransactions, cluster) as one:
        for number in range(8):
            one.begin()
            one.send(topic, f"{number}")
            one.send(topic, f"{number} again")
            (one.abort if number in (0, 3, 4, 7) else one.commit)()
    kept = [f"{number}{more}" for number in (1, 2, 5, 6) for more in ("", " again")]
    assert read(cluster.bootstrap, topic) == kept
    assert read_with_kafka_python(cluster.bootstrap, topic, 8) == kept
    assert read_with_aiokafka(cluster.bootstrap, topic, 8) == kept


def test_C3_nothing_is_read_beyond_an_open_transaction(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with (
        producer(ConfluentTransactions, cluster) as slow,
        producer(ConfluentTransactions, cluster) as fast,
    ):
        slow.begin()
        slow.send(topic, "slow")
        fast.begin()
        fast.send(topic, "fast")
        fast.commit()
        assert read(cluster.bootstrap, topic) == []
        assert latest(cluster, topic, isolation=1) == 0
        assert latest(cluster, topic, isolation=0) == 3
        slow.commit()
        wait_until(
            lambda: read(cluster.bootstrap, topic) == ["slow", "fast"], 10, "both are committed"
        )
        assert latest(cluster, topic, isolation=1) == 4


def latest(cluster: ProcessCluster, topic: str, *, isolation: int) -> int:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    answer = cluster.ask(
        cluster.nodes[cluster.leader(topic)],
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": [asked]}],
        },
    )
    return int(answer.topics[0].partitions[0].offset)


@EACH_CLIENT
def test_a_zombie_is_fenced_and_its_transaction_aborted(
    client: Client, cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, id = new_topic(), f"zombie-{next(NUMBERS)}"
    with producer(client, cluster, id) as zombie:
        zombie.begin()
        zombie.send(topic, "of the zombie")
        with producer(client, cluster, id) as heir:
            heir.begin()
            heir.send(topic, "of the heir")
            with pytest.raises(Exception, match=r"(?i)fence|epoch|newer"):
                zombie.send(topic, "too late")
                zombie.commit()
            heir.commit()
    assert read(cluster.bootstrap, topic) == ["of the heir"]


@EACH_CLIENT
def test_offsets_are_committed_with_their_transaction(
    client: Client, cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    source, target = new_topic(), new_topic()
    group = f"group-{next(NUMBERS)}"
    with producer(client, cluster) as one:
        one.begin()
        one.send(target, "first")
        one.offsets({(source, 0): 5}, group)
        one.abort()
        assert committed(cluster, group, source) == -1
        one.begin()
        one.send(target, "second")
        one.offsets({(source, 0): 7}, group)
        one.commit()
        wait_until(lambda: committed(cluster, group, source) == 7, 10, "the offset is committed")
    assert read(cluster.bootstrap, target) == ["second"]


def committed(cluster: ProcessCluster, group: str, topic: str) -> int:
    return int(offsets(cluster, group, topic).topics[0].partitions[0].committed_offset)


def offsets(cluster: ProcessCluster, group: str, topic: str) -> Any:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = cluster.ask(
        cluster.nodes[coordinator(cluster, 0, group)],
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [asked], "require_stable": False},
    )
    return answer.groups[0]


def coordinator(cluster: ProcessCluster, kind: int, key: str) -> int:
    def found() -> int:
        answer = cluster.ask(
            cluster.up[0], ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [key]}
        )
        (one,) = answer.coordinators
        return int(one.node_id) if one.error_code == 0 else 0

    return wait_until(found, 10, f"a coordinator of {key}")


def test_pending_offsets_are_told_from_stable_ones(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), f"group-{next(NUMBERS)}"
    with producer(ConfluentTransactions, cluster) as one:
        one.begin()
        one.offsets({(topic, 0): 3}, group)
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
        answer = cluster.ask(
            cluster.nodes[coordinator(cluster, 0, group)],
            ApiKey.OFFSET_FETCH,
            8,
            {"groups": [asked], "require_stable": True},
        )
        unstable = answer.groups[0].topics[0].partitions[0]
        assert unstable.error_code.name in ("UNSTABLE_OFFSET_COMMIT", "unstable_offset_commit")
        one.commit()
        wait_until(lambda: committed(cluster, group, topic) == 3, 10, "the offset is committed")


def test_tools_see_transactions_and_their_producers(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, id = new_topic(), f"seen-{next(NUMBERS)}"
    with producer(ConfluentTransactions, cluster, id) as one:
        one.begin()
        one.send(topic, "open")
        at = cluster.nodes[coordinator(cluster, 1, id)]
        described = cluster.ask(
            at, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [id, ""]}
        )
        found, nameless = described.transaction_states
        assert found.transaction_state == "Ongoing" and found.topics[0].topic == topic
        assert int(nameless.error_code) == 42
        listed = cluster.ask(
            at,
            ApiKey.LIST_TRANSACTIONS,
            2,
            {
                "state_filters": ["Ongoing", "Nonsense"],
                "duration_filter": -1,
                "transactional_id_pattern": "seen-.*",
            },
        )
        assert [state.transactional_id for state in listed.transaction_states] == [id]
        assert listed.unknown_state_filters == ("Nonsense",)
        bad = cluster.ask(at, ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("})
        assert int(bad.error_code) == 128
        producers = cluster.ask(
            cluster.nodes[cluster.leader(topic)],
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            {"topics": [{"name": topic, "partition_indexes": [0]}]},
        )
        (active,) = producers.topics[0].partitions[0].active_producers
        assert active.producer_id == found.producer_id and active.current_txn_start_offset == 0
        one.commit()
