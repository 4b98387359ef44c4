"""`ottla groups …` on a cluster of real processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from ottla.cli import errors
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.groups import ConfluentMember, ConfluentNew, produce, read_until, settle

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cli-groups"), 3, SETTINGS) as running:
        yield running


def ottla(cluster: ProcessCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), "groups", *words, "--bootstrap", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(cluster: ProcessCluster, *words: str) -> str:
    done = ottla(cluster, *words)
    assert done.returncode == errors.OK, done.stderr
    return done.stdout


def test_a_groups_members_and_its_lag_in_records_and_seconds(groups: ProcessCluster) -> None:
    topic = groups.create_topic("lagging", 2)
    produce(groups.bootstrap, topic, 10, 2)
    for make, group in ((ConfluentMember, "slow"), (ConfluentNew, "slow-new")):
        member = make(groups.bootstrap, group, [topic])
        try:
            read_until([member], 10)
            settle([member], [2], "it has both")
            place = confluent_kafka.TopicPartition(topic, 0, 2)
            member.consumer.commit(offsets=[place], asynchronous=False)
            shown = json.loads(told(groups, "describe", group, "--format", "json"))
            (only,) = shown["members"]
            first, second = shown["partitions"]
            assert shown["state"] == "Stable"
            assert only["assigned"] == [[topic, 0], [topic, 1]]
            assert (first["committed"], first["lag"], first["member"]) == (2, 3, only["id"])
            assert (second["committed"], second["lag"]) == (None, 5)
            assert 0 < first["lag_seconds"] < 120
            assert f"group {group}: Stable" in told(groups, "describe", group)
            explained = told(groups, "explain", group)
            assert f"group {group} is healthy: Stable with 1 member, 8 records behind." in explained
        finally:
            member.close()
    listed = {each["id"]: each for each in json.loads(told(groups, "list", "--format", "json"))}
    assert {listed[name]["type"] for name in ("slow", "slow-new")} == {"classic", "consumer"}
    assert "slow" in told(groups, "list")


def test_the_seconds_are_the_age_of_the_next_record_to_read(groups: ProcessCluster) -> None:
    topic = groups.create_topic("aging")
    producer = confluent_kafka.Producer({"bootstrap.servers": groups.bootstrap, "log_level": 0})
    now_ms = int(time.time() * 1000)
    for age_s in (3000, 2000, 1000):
        producer.produce(topic, b"x", timestamp=now_ms - age_s * 1000)
        producer.flush(10)
    told(groups, "reset-offsets", "ager", "--topic", topic, "--to", "1")
    (lag,) = json.loads(told(groups, "describe", "ager", "--format", "json"))["partitions"]
    assert lag["lag"] == 2
    assert 1999 < lag["lag_seconds"] < 2060
    told(groups, "reset-offsets", "ager", "--to", "latest")
    (lag,) = json.loads(told(groups, "describe", "ager", "--format", "json"))["partitions"]
    assert (lag["lag"], lag["lag_seconds"]) == (0, 0)
    assert "group ager has no members; it has read everything." in told(groups, "explain", "ager")


def test_explain_names_who_holds_a_rebalance_up(groups: ProcessCluster) -> None:
    topic = groups.create_topic("stuck", 2)
    first = ConfluentMember(groups.bootstrap, "stuck", [topic], **{"client.id": "sleeper"})
    second = None
    try:
        settle([first], [2], "it has both")
        second = ConfluentMember(groups.bootstrap, "stuck", [topic], **{"client.id": "newcomer"})

        def held_up() -> str:
            second.poll()  # the first one does not poll, and so does not rejoin
            shown = told(groups, "explain", "stuck")
            return shown if "PreparingRebalance" in shown else ""

        explained = wait_until(held_up, 20, "the rebalance")
        assert "it waits for client sleeper (127.0.0.1), which has not sent its JoinGroup yet" in (
            explained
        )
        assert "newcomer" in explained  # why it began
        assert "Whoever is late is removed" in explained
    finally:
        first.close()
        if second is not None:
            second.close()


def test_offsets_are_set_where_they_are_wanted(groups: ProcessCluster) -> None:
    topic = groups.create_topic("resets", 2)
    produce(groups.bootstrap, topic, 20, 2)

    def reset(to: str, *more: str) -> list[int]:
        words = ("reset-offsets", "resetter", "--to", to, *more, "--format", "json")
        return [each["after"] for each in json.loads(told(groups, *words))["partitions"]]

    assert reset("latest", "--topic", topic) == [10, 10]
    assert reset("earliest", "--dry-run") == [0, 0]
    assert reset("-3") == [7, 7]
    assert reset("+1", "--topic", f"{topic}:1") == [8]
    assert reset("99") == [10, 10]
    assert reset("4", "-t", f"{topic}:0") == [4]
    assert reset("2001-01-01T00:00:00") == [0, 0]
    clamped = ottla(groups, "reset-offsets", "resetter", "--to", "99999", "-t", f"{topic}:1")
    assert f"{topic}-1 holds offsets 0 to 10: 10 instead of 99999" in clamped.stderr
    for words, code in (
        (("reset-offsets", "resetter", "--to", "nonsense"), errors.USAGE),
        (("reset-offsets", "resetter", "--to", "0", "-t", f"{topic}:9"), errors.NOT_FOUND),
        (("reset-offsets", "nobody", "--to", "0"), errors.NOT_FOUND),
        (("describe", "nobody"), errors.NOT_FOUND),
        (("delete", "nobody"), errors.NOT_FOUND),
    ):
        assert ottla(groups, *words).returncode == code, words
    member = ConfluentMember(groups.bootstrap, "resetter", [topic])
    try:
        settle([member], [2], "it has both")
        for words in (("reset-offsets", "resetter", "--to", "0"), ("delete", "resetter")):
            refused = ottla(groups, *words)
            assert refused.returncode == errors.CONFLICT
            assert "stop them first" in refused.stderr
    finally:
        member.close()
    assert told(groups, "delete", "resetter") == "deleted group resetter\n"
    assert "resetter" not in told(groups, "list")


def test_groups_are_listed_while_a_broker_that_just_died_is_still_named(
    groups: ProcessCluster,
) -> None:
    topic = groups.create_topic("listed")
    names = [f"listed-{number}" for number in range(6)]
    for name in names:
        told(groups, "reset-offsets", name, "--topic", topic, "--to", "latest")
    groups.kill(1)
    try:
        began = time.monotonic()
        done = ottla(groups, "list", "--format", "json")
        assert done.returncode == errors.OK, done.stderr
        assert time.monotonic() - began < 15  # thirty seconds of trying, otherwise
        assert "broker 1 does not answer; what it coordinates is missing" in done.stderr
        on_others = {each["id"] for each in json.loads(done.stdout) if each["coordinator"] != 1}
        assert on_others.intersection(names)
    finally:
        groups.start(1)
        groups.wait_ready()
