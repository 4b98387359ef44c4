"""Transactions while brokers die, producers vanish and requests come late."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.wire.errors import ErrorCode
from support.cluster import ProcessCluster, wait_until
from support.pipeline import endure
from support.transactions import ConfluentTransactions, read
from support.txn_wire import Producer

NewCluster = Callable[..., ProcessCluster]


@pytest.fixture
def three(new_cluster: NewCluster) -> Iterator[ProcessCluster]:
    yield new_cluster(
        3,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="200",
        broker_session_timeout_ms="3000",
        broker_heartbeat_interval_ms="500",
    )


def committed(cluster: ProcessCluster, topic: str, values: list[str], timeout: float = 20) -> None:
    wait_until(
        lambda: read(cluster.bootstrap, topic) == values, timeout, f"{values} are read", every=0.2
    )


def test_C3_the_coordinator_dies_between_produce_and_commit(three: ProcessCluster) -> None:
    topic = three.create_topic("t")
    old = ConfluentTransactions(three.bootstrap, "old client")
    new = Producer(three, "new client")
    new.init()
    old.begin()
    old.send(topic, "old")
    assert new.send(topic, "new") is ErrorCode.NONE
    victim = new.coordinator.id
    three.kill(victim)
    assert new.end(True) is ErrorCode.NONE
    old.commit()
    committed(three, topic, ["old", "new"])
    three.start(victim)
    three.wait_ready()
    three.kill(Producer(three, "old client").coordinator.id)
    old.begin()
    old.send(topic, "next")
    old.abort()
    assert new.send(topic, "last") is ErrorCode.NONE
    assert new.end(True) is ErrorCode.NONE
    committed(three, topic, ["old", "new", "last"])


def test_C3_the_leader_dies_between_produce_and_commit(three: ProcessCluster) -> None:
    topic = three.create_topic("t", assignment=[[1, 2, 3]])
    producer = Producer(three, "id")
    producer.init()
    assert producer.send(topic, "kept") is ErrorCode.NONE
    three.kill(1)
    assert producer.end(True) is ErrorCode.NONE
    committed(three, topic, ["kept"])
    assert producer.send(topic, "dropped") is ErrorCode.NONE
    three.start(1)
    three.wait_ready()
    three.kill(three.leader(topic))
    assert producer.end(False) is ErrorCode.NONE
    assert producer.send(topic, "last") is ErrorCode.NONE
    assert producer.end(True) is ErrorCode.NONE
    committed(three, topic, ["kept", "last"])


def test_C3_all_brokers_die_with_transactions_open_decided_and_done(three: ProcessCluster) -> None:
    topic = three.create_topic("t")
    done, open_ = Producer(three, "done"), Producer(three, "open")
    for producer, value in ((done, "done"), (open_, "open")):
        producer.init()
        assert producer.send(topic, value) is ErrorCode.NONE
    assert done.end(True) is ErrorCode.NONE
    three.kill(1, 2, 3)
    three.start()
    three.wait_ready()
    assert open_.send(topic, "more") is ErrorCode.NONE
    assert open_.end(True) is ErrorCode.NONE
    committed(three, topic, ["done", "open", "more"])


def test_a_vanished_producers_transaction_is_aborted_after_its_timeout(
    three: ProcessCluster,
) -> None:
    topic = three.create_topic("t")
    vanished = Producer(three, "vanished", timeout_ms=1000)
    vanished.init()
    assert vanished.send(topic, "of the vanished") is ErrorCode.NONE
    other = ConfluentTransactions(three.bootstrap, "other")
    other.begin()
    other.send(topic, "of the other")
    other.commit()
    committed(three, topic, ["of the other"])
    assert vanished.end(True) is ErrorCode.PRODUCER_FENCED
    assert vanished.send(topic, "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read(three.bootstrap, topic) == ["of the other"]


def test_S6_a_request_held_up_does_not_touch_the_next_transaction(three: ProcessCluster) -> None:
    """KIP-890 on the wire: an EndTxn and a batch of the first transaction come when the second is open."""
    topic = three.create_topic("t")
    producer = Producer(three, "id")
    producer.init()
    assert producer.send(topic, "first") is ErrorCode.NONE
    held = producer.end_fields(True)
    late = Producer(three, "id", id=producer.id, epoch=producer.epoch, sequence=producer.sequence)
    assert producer.end(True) is ErrorCode.NONE
    assert producer.send(topic, "second") is ErrorCode.NONE
    for commit in (True, False):
        fields = {**held, "committed": commit}
        assert producer.end(commit, fields) in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
    assert late.send(topic, "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read(three.bootstrap, topic) == ["first"]
    assert producer.end(False) is ErrorCode.NONE
    wait_until(
        lambda: read(three.bootstrap, topic, committed=False) == ["first", "second"],
        10,
        "both were written",
    )
    assert read(three.bootstrap, topic) == ["first"]


def test_a_batch_of_no_transaction_is_refused(three: ProcessCluster) -> None:
    topic = three.create_topic("t")
    producer = Producer(three, "id")
    producer.init()
    stranger = Producer(three, "id", id=producer.id + 77, epoch=0)
    assert stranger.send(topic, "x") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = Producer(three, "unknown", id=producer.id, epoch=producer.epoch)
    assert unknown.send(topic, "x") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert read(three.bootstrap, topic, committed=False) == []


def test_C3_each_input_has_one_output_while_brokers_are_killed(new_cluster: NewCluster) -> None:
    """Two minutes of it, in both protocols: tests/slow/test_endurance_transactions.py."""
    endure(new_cluster(3), "consumer", seconds=12, every=(2.0, 4.0), seed=1)
