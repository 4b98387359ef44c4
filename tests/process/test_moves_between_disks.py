"""Replicas that move between the directories of real processes: asked for by API and by command, and killed meanwhile."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.configs import BROKER, alter
from support.disks import give_second_disks, second_disk

BATCH = 100_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("moves"), 2, {"log.segment.bytes": "1048576"})
    give_second_disks(cluster)
    with cluster:
        yield cluster


def limit(cluster: ProcessCluster, node: int, rate: int) -> None:
    alter(cluster, BROKER, str(node), replica_alter_log_dirs_io_max_bytes_per_second=str(rate))


def filled(cluster: ProcessCluster, name: str, count: int, replicas: list[int]) -> list[bytes]:
    cluster.create_topic(name, assignment=[replicas])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    values = [b"%08d" % number + random.randbytes(BATCH) for number in range(count)]
    for value in values:
        producer.produce(name, value, partition=0)
    assert producer.flush(60) == 0
    return [value[:8] for value in values]


def read(cluster: ProcessCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            (message,) = consumer.consume(1, timeout=20)
            values.append((message.value() or b"")[:8])
    finally:
        consumer.close()
    return values


def place(cluster: ProcessCluster, node: int, topic: str) -> dict[str, bool]:
    """Directory -> whether a future replica lies there."""
    fields = {"topics": [{"topic": topic, "partitions": [0]}]}
    answer = cluster.ask(cluster.nodes[node], ApiKey.DESCRIBE_LOG_DIRS, 5, fields)
    return {
        row.log_dir: each.is_future_key
        for row in answer.results
        for of_topic in row.topics
        for each in of_topic.partitions
    }


def move(cluster: ProcessCluster, node: int, topic: str, path: Path, version: int = 2) -> ErrorCode:
    topics = [{"name": topic, "partitions": [0]}]
    fields = {"dirs": [{"path": str(path), "topics": topics}]}
    answer = cluster.ask(cluster.nodes[node], ApiKey.ALTER_REPLICA_LOG_DIRS, version, fields)
    return ErrorCode(int(answer.results[0].partitions[0].error_code))


def other_directory(cluster: ProcessCluster, node: int, topic: str) -> tuple[Path, Path]:
    """Where its replica lies, and where it does not."""
    both = [cluster.nodes[node].data, second_disk(cluster, node)]
    (lies_in,) = place(cluster, node, topic)
    (other,) = [each for each in both if str(each) != lies_in]
    return Path(lies_in), other


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_by_every_version(cluster: ProcessCluster, version: int) -> None:
    topic = f"moved-{version}"
    values = filled(cluster, topic, 20, [1])
    before, other = other_directory(cluster, 1, topic)
    assert move(cluster, 1, topic, other / "x", version) is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(cluster, 2, topic, second_disk(cluster, 2)) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert move(cluster, 1, topic, other, version) is ErrorCode.NONE
    wait_until(lambda: place(cluster, 1, topic) == {str(other): False}, 30, "moved")
    assert (other / f"{topic}-0").is_dir() and not (before / f"{topic}-0").exists()
    assert read(cluster, topic, len(values)) == values


def test_a_broker_that_is_killed_while_it_copies_goes_on(cluster: ProcessCluster) -> None:
    values = filled(cluster, "killed", 60, [1])
    before, other = other_directory(cluster, 1, "killed")
    limit(cluster, 1, 1000000)
    assert move(cluster, 1, "killed", other) is ErrorCode.NONE

    def copied() -> int:
        return sum(each.stat().st_size for each in other.glob("killed-0.*-future/*.log"))

    wait_until(lambda: copied() > 15 * BATCH, 30, "a quarter is copied")
    assert place(cluster, 1, "killed") == {str(before): False, str(other): True}
    cluster.kill(1)
    assert (before / "killed-0").is_dir() and copied() > 15 * BATCH
    cluster.start(1)
    cluster.wait_ready()
    assert copied() > 10 * BATCH, "it does not begin anew"
    assert read(cluster, "killed", len(values)) == values
    limit(cluster, 1, 100000000)
    wait_until(lambda: place(cluster, 1, "killed") == {str(other): False}, 60, "moved")
    assert read(cluster, "killed", len(values)) == values


def test_a_move_is_listed_and_cancelled_without_a_file(cluster: ProcessCluster) -> None:
    values = filled(cluster, "unnamed", 20, [1])
    before, other = other_directory(cluster, 1, "unnamed")

    def ottla(*words: str) -> Any:
        command = [str(OTTLA), "reassign", *words, "-b", cluster.bootstrap, "--format", "json"]
        return json.loads(subprocess.check_output(command, timeout=60))

    limit(cluster, 1, 100000)
    assert move(cluster, 1, "unnamed", other) is ErrorCode.NONE
    row = {"topic": "unnamed", "partition": 0, "broker": 1}
    row |= {"log_dir": str(before), "wanted": str(other)}
    assert ottla("list") == {"partitions": [], "log_dirs": [row]}
    assert ottla("cancel")["log_dirs"] == 1
    wait_until(lambda: place(cluster, 1, "unnamed") == {str(before): False}, 30, "it stays")
    assert ottla("list") == {"partitions": [], "log_dirs": []}
    limit(cluster, 1, 100000000)
    assert read(cluster, "unnamed", len(values)) == values


def test_the_command_moves_replicas_to_the_directories_of_the_file(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    values = filled(cluster, "planned", 5, [1])
    _, other = other_directory(cluster, 1, "planned")
    wanted = second_disk(cluster, 2)
    row = {"topic": "planned", "partition": 0, "replicas": [1, 2]}
    row["log_dirs"] = [str(other), str(wanted)]
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def ottla(*words: object) -> tuple[int, str]:
        command = [str(OTTLA), "reassign", *map(str, words), "-b", cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr

    code, told = ottla("verify", plan)
    assert code == 1, told
    code, told = ottla("execute", plan, "--throttle", "none", "--rollback", back)
    assert code == 0, told
    assert place(cluster, 1, "planned") == {str(other): False}
    assert place(cluster, 2, "planned") == {str(wanted): False}
    code, told = ottla("verify", plan)
    assert code == 0 and told.count("done") == 3, told
    code, told = ottla("execute", back, "--throttle", "none")
    assert code == 0 and str(other) not in place(cluster, 1, "planned"), told
    assert read(cluster, "planned", len(values)) == values
    row["log_dirs"] = ["/nowhere", "any"]
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    code, told = ottla("execute", plan)
    assert code != 0 and "LOG_DIR_NOT_FOUND" in told


@contextmanager
def watching(cluster: ProcessCluster, topic: str, plan: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command that moves the replica of `topic` on broker 1 to its other directory, slowly; it watches the move already."""
    _, other = other_directory(cluster, 1, topic)
    limit(cluster, 1, 100000)
    row = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(other)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    command = [str(OTTLA), "reassign", "execute", str(plan), "-b", cluster.bootstrap]
    command += ["--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            assert any(json.loads(line).get("event") == "log_dirs" for line in running.stdout)
            yield running
        finally:
            running.kill()
            limit(cluster, 1, 100000000)


def test_the_command_ends_when_its_replica_will_never_come(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """The topic is deleted while its replica moves."""
    filled(cluster, "deleted", 20, [1])
    with watching(cluster, "deleted", tmp_path / "plan.json") as running:
        cluster.admin.delete_topics(["deleted"])["deleted"].result(20)
        _, told = running.communicate(timeout=60)
    assert running.returncode != 0 and b"the topic deleted" in told, told


def test_a_move_that_somebody_cancels_is_not_begun_again_by_the_command_that_watches_it(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    filled(cluster, "cancelled", 30, [1])
    current, _ = other_directory(cluster, 1, "cancelled")
    with watching(cluster, "cancelled", tmp_path / "plan.json") as running:
        assert move(cluster, 1, "cancelled", current) is ErrorCode.NONE
        _, told = running.communicate(timeout=60)
    assert running.returncode != 0 and b"the move was cancelled" in told, told
    assert place(cluster, 1, "cancelled") == {str(current): False}


def test_the_command_ends_when_its_broker_gives_the_move_up_again_and_again(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    filled(cluster, "damaged", 30, [1])
    current, other = other_directory(cluster, 1, "damaged")
    first = min((current / "damaged-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(BATCH // 2)
        file.write(b"not what its producer wrote")
    row = {"topic": "damaged", "partition": 0, "replicas": [1], "log_dirs": [str(other)]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    command = [str(OTTLA), "reassign", "execute", str(plan), "-b", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "gave it up each time" in done.stderr, done.stderr
    log = cluster.nodes[1].log.read_text()
    assert log.count("moving replica partition=damaged-0") == 4, "once before it watches"
    assert place(cluster, 1, "damaged") == {str(current): False}


def test_the_doctor_is_not_confused_by_a_future_log(cluster: ProcessCluster) -> None:
    filled(cluster, "looked-at", 20, [2])
    _, other = other_directory(cluster, 2, "looked-at")
    limit(cluster, 2, 100000)
    move(cluster, 2, "looked-at", other)
    wait_until(lambda: len(place(cluster, 2, "looked-at")) == 2, 20, "it moves")
    for words in (["doctor"], ["checkpoints", "2"]):
        command = [str(OTTLA), *words, "--dir", str(cluster.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert "Traceback" not in done.stderr and "future" not in done.stdout + done.stderr
    limit(cluster, 2, 100000000)
    wait_until(lambda: place(cluster, 2, "looked-at") == {str(other): False}, 30, "moved")
