"""`ottla transactions …` on a cluster of real processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from ottla.cli import errors
from ottla.wire.errors import ErrorCode
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.transactions import read
from support.txn_wire import Producer

NewTopic = Callable[..., str]


def ottla(
    cluster: ProcessCluster, *words: str, under: str = "transactions"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), under, *words, "--bootstrap", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(cluster: ProcessCluster, *words: str) -> str:
    done = ottla(cluster, *words)
    assert done.returncode == errors.OK, done.stderr
    return done.stdout


def opened(cluster: ProcessCluster, id: str, topic: str) -> Producer:
    producer = Producer(cluster, id)
    producer.init()
    assert producer.send(topic, f"of {id}") is ErrorCode.NONE
    return producer


def test_an_open_transaction_is_listed_described_and_aborted(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = opened(cluster, "cli-open", topic)
    listed = json.loads(told(cluster, "list", "--state", "ongoing", "--format", "json"))
    assert "cli-open" in [each["id"] for each in listed]
    assert "cli-open" in told(cluster, "list", "--pattern", "cli-.*")
    assert "cli-open" not in told(cluster, "list", "--open-for", "3600")
    shown = json.loads(told(cluster, "describe", "cli-open", "--format", "json"))
    assert shown["state"] == "Ongoing" and shown["partitions"] == [[topic, 0]]
    assert shown["open_for_s"] >= 0 and shown["producer_id"] == producer.id
    assert "open for" in told(cluster, "describe", "cli-open")
    aborted = json.loads(told(cluster, "abort", "cli-open", "--format", "json"))
    assert aborted == {"id": "cli-open", "aborted": True}
    assert producer.end(True) is ErrorCode.PRODUCER_FENCED
    assert read(cluster.bootstrap, topic) == []
    again = ottla(cluster, "abort", "cli-open")
    assert again.returncode == errors.CONFLICT and "no open transaction" in again.stderr


def test_a_transaction_is_aborted_in_the_partition_where_it_hangs(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    opened(cluster, "cli-one", topic)
    second = opened(cluster, "cli-two", topic)
    several = ottla(cluster, "abort", "--topic", topic)
    assert several.returncode == errors.CONFLICT and "0, 1" in several.stderr
    first = ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    refused = ottla(cluster, *first)
    assert refused.returncode == errors.CONFLICT
    assert "ottla transactions abort cli-one" in refused.stderr
    done = json.loads(told(cluster, *first, "--force", "--format", "json"))
    assert done == {"topic": topic, "partition": 0, "start_offset": 0, "aborted": True}
    assert second.end(True) is ErrorCode.NONE
    wait_until(lambda: read(cluster.bootstrap, topic) == ["of cli-two"], 10, "it is read")
    none_left = ottla(cluster, "abort", "--topic", topic)
    assert none_left.returncode == errors.NOT_FOUND


def test_read_committed_shows_nothing_of_open_and_aborted_transactions_and_ends_before_the_open_one(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic()
    assert opened(cluster, "cli-done", topic).end(True) is ErrorCode.NONE
    assert opened(cluster, "cli-undone", topic).end(False) is ErrorCode.NONE
    opened(cluster, "cli-still-open", topic)

    def consumed(*words: str) -> list[str]:
        done = ottla(cluster, topic, "--exit", *words, under="consume")
        assert done.returncode == errors.OK, done.stderr
        return done.stdout.splitlines()

    committed = ("--isolation-level", "read_committed")
    assert consumed() == ["of cli-done", "of cli-undone", "of cli-still-open"]
    assert consumed(*committed) == ["of cli-done"]
    assert consumed(*committed, "--offset", "end") == []
    told = ottla(cluster, topic, "--exit", *committed, under="consume").stderr
    assert f"{topic}-0: an open transaction hides 1 offset from 4 on" in told


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("describe", "nobody"), errors.NOT_FOUND),
        (("abort", "nobody"), errors.NOT_FOUND),
        (("abort",), errors.USAGE),
        (("abort", "id", "--topic", "t"), errors.USAGE),
        (("list", "--state", "Nonsense"), errors.USAGE),
        (("list", "--pattern", "["), errors.USAGE),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_said(
    cluster: ProcessCluster, words: tuple[str, ...], code: int
) -> None:
    done = ottla(cluster, *words)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("ottla: ")


def test_transactions_are_listed_while_a_broker_that_just_died_is_still_named(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    producer = opened(cluster, "cli-survivor", new_topic())
    (dead, *_) = [id for id in cluster.nodes if id != producer.coordinator.id]
    cluster.kill(dead)
    try:
        began = time.monotonic()
        done = ottla(cluster, "list")
        assert done.returncode == errors.OK, done.stderr
        assert time.monotonic() - began < 15  # thirty seconds of trying, otherwise
        assert f"broker {dead} does not answer; what it coordinates is missing" in done.stderr
        assert "cli-survivor" in done.stdout
    finally:
        cluster.start(dead)
        cluster.wait_ready()


def test_the_fault_of_a_pattern_and_the_names_of_states_are_told(cluster: ProcessCluster) -> None:
    assert (
        "--pattern [: the pattern ends too early" in ottla(cluster, "list", "--pattern", "[").stderr
    )
    assert "PrepareCommit" in ottla(cluster, "list", "--state", "Nonsense").stderr
