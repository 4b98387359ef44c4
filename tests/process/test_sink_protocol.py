"""The steps of the exactly-once sink against real brokers, without Spark: tasks, drivers and what becomes of a batch when
they die. The procedure itself is tried step by step in tests/unit/spark, so that most of these are in the slow tier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client import Client
from ottla.client.model import FetchedRecords
from ottla.client.transaction_admin import TransactionAdmin
from ottla.spark.errors import SparkSourceError
from ottla.spark.write.decisions import (
    CommitRefused,
    CommitTransactions,
    TransactionOutcome,
    committing,
    driver_id,
    withdrawing,
)
from ottla.spark.write.sink import DECISION_TOPIC, SinkDriver
from ottla.wire.errors import KafkaError
from support.cluster import ProcessCluster, wait_until
from support.sink import Died, Sink, now_ms

STEPS = (
    "ListOpen",
    "Propose",
    "CheckOpen",
    "Confirm",
    "CommitTransactions",
    "RecordDecision",
    "Abort",
)


@pytest.fixture
def sink(cluster: ProcessCluster, new_topic: Callable[..., str]) -> Iterator[Sink]:
    yield Sink(cluster, new_topic())


def test_batches_of_a_query_become_visible_one_after_the_other(sink: Sink) -> None:
    for batch in range(3):
        sink.commit("run", sink.write("run", batch), batch)
    sink.becomes_visible(sink.all_rows(0, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_the_driver_dies_before_a_step(sink: Sink, step: str) -> None:
    sink.commit("one", sink.write("one", 0), 0)
    written = sink.write("one", 1)
    with pytest.raises(Died):
        sink.commit("one", written, 1, dies_before=step)
    sink.commit("two", sink.write("two", 1), 1)
    sink.commit("two", sink.write("two", 2), 2)
    sink.becomes_visible(sink.all_rows(0, 1, 2))


@pytest.mark.parametrize("committed", [1, 2])
def test_the_driver_dies_while_it_commits_the_tasks(sink: Sink, committed: int) -> None:
    with pytest.raises(Died):
        sink.commit("one", sink.write("one"), dies_in=(1, committed))
    sink.commit("two", sink.write("two"))
    sink.becomes_visible(sink.all_rows(0))


@pytest.mark.slow
def test_a_decision_is_kept_after_the_transaction_timeout(
    new_cluster: Callable[..., ProcessCluster],
) -> None:
    """Some were committed, the others aborted by their coordinator: these are taken from the next run."""
    three = new_cluster(3, transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
    sink = Sink(three, three.create_topic("t"))
    with pytest.raises(Died):
        sink.commit("one", sink.write("one", timeout_ms=15_000), dies_in=(1, 1))

    wait_until(lambda: not sink.is_open(), 60, "the timeout has aborted the others")
    with pytest.raises(CommitRefused, match="task 1"):
        sink.commit("other", sink.write("other", seed=" is different"))
    with pytest.raises(Died):
        sink.commit("two", sink.write("two"), dies_in=(2, 2))
    sink.commit("three", sink.write("three"))
    sink.becomes_visible(sink.all_rows(0))


def test_a_batch_that_is_given_up_after_its_decision_stays_decided(sink: Sink) -> None:
    with pytest.raises(Died):
        sink.commit("one", sink.write("one"), dies_in=(1, 1))
    sink.drive(withdrawing(sink.query, "one", 0))
    sink.commit("two", sink.write("two"))
    sink.becomes_visible(sink.all_rows(0))


@pytest.mark.slow
def test_a_batch_that_is_given_up_before_its_decision_leaves_nothing_open(sink: Sink) -> None:
    sink.write("one")
    sink.drive(withdrawing(sink.query, "one", 0))
    sink.becomes_visible([])
    sink.commit("one", sink.write("one"))
    sink.becomes_visible(sink.all_rows(0))


def test_of_two_drivers_the_later_one_fences_the_earlier(sink: Sink) -> None:
    """The earlier one has proposed, and is not quick enough to confirm."""
    written = sink.write("one")

    async def work(client: Client) -> None:
        earlier = SinkDriver(client, sink.query, now_ms)
        procedure = committing(sink.query, "one", 0, written)
        is_open = await earlier.do(next(procedure))
        last = await earlier.do(procedure.send(is_open))
        confirm = procedure.send(await earlier.do(procedure.send(last)))
        await asyncio.to_thread(lambda: sink.commit("two", sink.write("two")))
        with pytest.raises(KafkaError, match=r"FENCED|EPOCH"):
            await earlier.do(confirm)
        await earlier.do(CommitTransactions(()))

    sink.ask(work)
    sink.becomes_visible(sink.all_rows(0))


def test_an_attempt_that_another_has_fenced_under_the_same_id_is_not_decided(sink: Sink) -> None:
    """Both have a transaction open, and the same producer id: the epoch tells them apart."""
    written = sink.write("run")
    sink.write("run")
    with pytest.raises(SparkSourceError, match=r"task 0 .* is not open any more"):
        sink.commit("run", written)
    sink.drive(withdrawing(sink.query, "run", 0))
    sink.becomes_visible([])
    assert sink.is_open() == set()


def test_the_log_tells_how_a_transaction_ended_when_its_coordinator_does_not(sink: Sink) -> None:
    """Another transaction that is open in front of the markers does not matter."""
    first = sink.write("run")

    async def end(client: Client) -> None:
        transactions = TransactionAdmin(client)
        await transactions.end(first[0].identity, commit=True)
        await transactions.abort(first[1].identity.transactional_id)
        driver = SinkDriver(client, sink.query, now_ms)
        for written, outcome in zip(
            first, (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED), strict=False
        ):
            assert await driver._outcome_in_log(written) is outcome

    sink.ask(end)


def test_the_proposal_of_another_querys_dead_driver_is_waited_for_before_ones_own(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a partition. Our own transaction is as long as theirs: begun before, it would be over first."""
    written = sink.write("run")
    dead = Sink(sink.cluster, sink.topic)
    monkeypatch.setattr("ottla.spark.write.sink.DECISION_PARTITIONS", 1)
    monkeypatch.setattr("ottla.spark.write.sink.LOOK_EVERY_S", 0.2)
    with pytest.raises(Died):
        dead.commit("run", dead.write("run"), dies_before="Confirm")

    async def work(client: Client) -> None:
        looked = asyncio.Event()

        async def looking(*what: Any, **how: Any) -> FetchedRecords:
            looked.set()
            return await Client.fetch(client, *what, **how)

        client.fetch = looking  # type: ignore[method-assign]
        driver = SinkDriver(client, sink.query, now_ms)
        committed = asyncio.create_task(driver.carry_out(committing(sink.query, "run", 0, written)))
        transactions = TransactionAdmin(client)
        own, theirs = driver_id(sink.query), driver_id(dead.query)
        await looked.wait()
        assert not committed.done()
        assert (await transactions.describe(own)).state == "Empty", "nothing of ours is open yet"
        await transactions.abort(theirs)  # as its timeout would
        await committed

    sink.ask(work)
    dead.drive(withdrawing(dead.query, "run", 0))
    sink.becomes_visible(sink.all_rows(0))


@pytest.mark.slow
def test_twins_and_zombies_leave_nothing(sink: Sink) -> None:
    written = sink.write("run")
    sink.write("run", attempt=1)
    sink.commit("run", written)
    sink.write("run", attempt=2)
    sink.commit("run", sink.write("run", 1), 1)
    sink.becomes_visible(sink.all_rows(0, 1))


@pytest.mark.slow
def test_without_its_decisions_the_query_refuses_to_go_on(
    new_cluster: Callable[..., ProcessCluster],
) -> None:
    one = new_cluster(1)
    sink = Sink(one, one.create_topic("t"))
    sink.commit("run", sink.write("run"))

    async def delete(client: Client) -> None:
        await client.delete_topic(DECISION_TOPIC)

    sink.ask(delete)
    with pytest.raises(CommitRefused, match="Was the topic deleted"):
        sink.commit("run", sink.write("run", 1), 1)
    sink.drive(withdrawing(sink.query, "run", 1))
    sink.becomes_visible(sink.all_rows(0))


@pytest.mark.slow
def test_the_coordinators_die_while_a_batch_is_committed(
    new_cluster: Callable[..., ProcessCluster],
) -> None:
    three = new_cluster(3, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
    sink = Sink(three, three.create_topic("t"))
    sink.commit("run", sink.write("run", 0), 0)
    for victim in (1, 2):
        written = sink.write("run", victim)
        three.kill(victim)
        sink.commit("run", written, victim)
        three.start(victim)
    sink.becomes_visible(sink.all_rows(0, 1, 2))


@pytest.mark.slow
def test_a_transaction_that_was_aborted_before_the_decision_stops_the_batch(sink: Sink) -> None:
    written = sink.write("run")

    async def abort(client: Client) -> None:
        await SinkDriver(client, sink.query, now_ms).abort(written[1])

    sink.ask(abort)
    with pytest.raises(SparkSourceError, match="task 1"):
        sink.commit("run", written)
    sink.drive(withdrawing(sink.query, "run", 0))
    sink.becomes_visible([])
