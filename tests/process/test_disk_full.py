"""Real processes on real disks that fill up, and a log that rots while its node is down."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.cli import errors
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import OTTLA, ProcessCluster, byte_identical, wait_until
from support.disks import (
    file_size_limit,
    give_second_disks,
    may_mount,
    mounted,
    second_disk,
    tiny_file_system,
)
from support.messages import value_of

VALUE = bytes(10_000)
REALLY_FULL = {"ottla.disk.watermark.percent": "100"}
"""Nothing is refused before the disk is full."""


LIMITS: list[Any] = [file_size_limit] + ([tiny_file_system] if may_mount() else [])


def produce(cluster: ProcessCluster, topic: str, partition: int, count: int) -> list[bytes]:
    """Values that were acknowledged by all: all of them, whatever fails meanwhile."""
    acknowledged: list[bytes] = []
    failed: list[Any] = []

    def done(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value()[:12])
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 60_000,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for number in range(count):
        value = b"%012d" % number + VALUE
        producer.produce(topic, value, partition=partition, on_delivery=done)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failed, failed
    return acknowledged


def consume(cluster: ProcessCluster, topic: str, partition: int, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            messages = consumer.consume(500, timeout=20)
            assert messages, f"{len(values)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(value_of(message)[:12])
    finally:
        consumer.close()
    return values


def log_dirs(cluster: ProcessCluster, node_id: int) -> dict[str, ErrorCode]:
    answer = cluster.ask(cluster.nodes[node_id], ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return {row.log_dir: ErrorCode(int(row.error_code)) for row in answer.results}


@pytest.mark.parametrize("small", LIMITS, ids=lambda small: small.__name__)
def test_a_full_disk_goes_offline_its_leaders_move_and_nothing_acknowledged_is_lost(
    tmp_path: Path, small: Callable[..., Any]
) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 3, REALLY_FULL)
    give_second_disks(cluster)
    with small(cluster, 1) as limit, cluster:
        limit()
        topic = cluster.create_topic("t", assignment=[[1, 2, 3], [1, 2, 3]])
        full = second_disk(cluster, 1)
        assert (full / f"{topic}-1").is_dir(), "the second partition lies on the second disk"
        acknowledged = produce(cluster, topic, 1, 500)
        assert len(acknowledged) == 500
        wait_until(
            lambda: cluster.partitions(topic)[1].leader in (2, 3), 20, "the leader moves away"
        )
        assert 1 not in cluster.partitions(topic)[1].isr
        assert cluster.nodes[1].running, cluster.nodes[1].last_lines()
        first = cluster.nodes[1].data
        assert log_dirs(cluster, 1) == {
            str(first): ErrorCode.NONE,
            str(full): ErrorCode.KAFKA_STORAGE_ERROR,
        }
        assert f"log directory is offline path={full}" in cluster.nodes[1].last_lines()
        assert cluster.partitions(topic)[0].leader == 1, "its other disk works"
        assert len(produce(cluster, topic, 0, 20)) == 20
        assert consume(cluster, topic, 1, 500) == sorted(acknowledged)
        assert "Traceback" not in cluster.nodes[1].last_lines(10_000)
        # With room again the replica catches up.
        assert cluster.stop(1) == [0]
        subprocess.run(["mount", "-o", "remount,size=50m", str(full)], check=False)
        cluster.start(1)
        cluster.wait_whole(topic, 60)


def ottla(cluster: ProcessCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(OTTLA), *words, "--dir", str(cluster.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)


def fill(place: Path) -> Path:
    """Take all the room that is left; the file that has it."""
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    return ballast


@pytest.mark.skipif(not may_mount(), reason="file systems cannot be mounted here")
def test_a_node_on_a_full_disk_ends_and_is_back_when_there_is_room(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 3, REALLY_FULL)
    node, disk = cluster.nodes[3], second_disk(cluster, 3)
    text = node.config.read_text()
    node.config.write_text(text.replace(f"log.dirs={node.data}", f"log.dirs={disk}"))
    with tiny_file_system(cluster, 3, 20 << 20), cluster:
        topic = cluster.create_topic("t", assignment=[[3, 1, 2]])
        acknowledged = produce(cluster, topic, 0, 20)
        ballast = fill(disk)
        acknowledged += produce(cluster, topic, 0, 200)
        wait_until(lambda: not node.running, 30, "the process ends")
        log = node.last_lines(10_000)
        (critical,) = [line for line in log.splitlines() if " CRITICAL " in line]
        assert f"directory failed, the node ends path={disk} " in critical
        assert "No space left on device" in critical and "free some space there" in critical
        assert "Traceback" not in log
        status = ottla(cluster, "status")
        assert f"node 3 died; {disk}: its disk is full" in status.stdout, status.stdout
        refused = ottla(cluster, "nodes", "start", "3")
        assert refused.returncode == errors.FAILED, refused
        assert str(disk) in refused.stderr and "free some space there" in refused.stderr
        ballast.unlink()
        started = ottla(cluster, "nodes", "start", "3")
        assert started.returncode == errors.OK, started.stderr
        cluster.wait_whole(topic, 60)
        assert len(consume(cluster, topic, 0, 220)) == len(acknowledged) == 220
        assert ottla(cluster, "down").returncode == errors.OK


@pytest.mark.slow
@pytest.mark.skipif(not may_mount(), reason="file systems cannot be mounted here")
def test_a_cluster_on_one_full_disk_says_so_and_up_brings_it_back(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 40 << 20) as disk:
        cluster = ProcessCluster(disk / "cluster", 3, REALLY_FULL)
        try:
            with cluster:
                topic = cluster.create_topic("t", assignment=[[1, 2, 3]])
                acknowledged = produce(cluster, topic, 0, 50)
                ballast = fill(disk)
                more = (f"more-{number}" for number in count())

                def refuses() -> bool:
                    """The first creation may find a page that somebody has given back."""
                    answer = ottla(cluster, "topics", "create", next(more), "--timeout", "3")
                    return answer.returncode != errors.OK

                wait_until(refuses, 60, "the disk is full")
                wait_until(lambda: not cluster.up, 60, "all end")
                status = ottla(cluster, "status").stdout
                for node in cluster.nodes.values():
                    assert f"node {node.id} died; {node.directory}: its disk is full" in status
                refused = ottla(cluster, "up", "--detach")
                assert refused.returncode == errors.FAILED, refused
                assert "nodes 1, 2, 3 cannot start" in refused.stderr
                assert f"{cluster.nodes[1].directory}: its disk is full" in refused.stderr
                ballast.unlink()
                again = ottla(cluster, "up", "--detach")
                assert again.returncode == errors.OK, again.stderr
                assert consume(cluster, topic, 0, 50) == sorted(acknowledged)
                assert "active" in ottla(cluster, "status").stdout
        finally:
            ottla(cluster, "purge")


@pytest.mark.skipif(not may_mount(), reason="file systems cannot be mounted here")
def test_status_names_the_one_directory_of_several_that_is_offline(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 1, REALLY_FULL)
    give_second_disks(cluster)
    with tiny_file_system(cluster, 1), cluster:
        full = second_disk(cluster, 1)
        ballast = fill(full)
        answer = ottla(cluster, "topics", "create", "c", "-p", "4")
        assert answer.returncode == errors.OK, answer.stderr
        wait_until(lambda: "offline" in ottla(cluster, "status").stdout, 20, "status says so")
        said = f"log directory {full} is offline; {full}: its disk is full"
        assert f"node 1: {said}" in ottla(cluster, "status").stdout
        told = ottla(cluster, "nodes", "start", "1")
        assert told.returncode == errors.CONFLICT and f"but {said}" in told.stderr
        ballast.unlink()
        assert ottla(cluster, "nodes", "stop", "1").returncode == errors.OK
        assert ottla(cluster, "nodes", "start", "1").returncode == errors.OK
        assert "offline" not in ottla(cluster, "status").stdout
        assert ottla(cluster, "down").returncode == errors.OK


def test_a_log_that_rotted_is_copied_anew_and_its_node_says_so(tmp_path: Path) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": "200"}
    with ProcessCluster(tmp_path / "cluster", 3, settings) as cluster:
        topic = cluster.create_topic("t", assignment=[[1, 2, 3]], config={"flush.messages": "1"})
        acknowledged = produce(cluster, topic, 0, 50)
        checkpoint = cluster.nodes[1].data / "recovery-point-offset-checkpoint"
        wait_until(lambda: f"{topic} 0 50" in checkpoint.read_text(), 20, "all is flushed")
        cluster.kill(1)
        (segment,) = (cluster.nodes[1].data / f"{topic}-0").glob("*.log")
        rotten = bytearray(segment.read_bytes())
        rotten[len(rotten) // 2] ^= 4
        segment.write_bytes(rotten)
        cluster.start(1)
        byte_identical(cluster, topic)
        log = cluster.nodes[1].last_lines(10_000)
        assert f"rebuilding replica partition={topic}-0 from_broker=" in log and str(segment) in log
        wait_until(
            lambda: f"rebuilt and in sync partition={topic}-0" in cluster.nodes[1].last_lines(),
            20,
            "it is in sync again",
        )
        (kept,) = cluster.nodes[1].data.glob(f"{topic}-0.*-stray")
        assert (kept / segment.name).read_bytes() == bytes(rotten), "for a human to look at"
        assert consume(cluster, topic, 0, 50) == sorted(acknowledged)


def test_the_only_copy_that_rotted_stays_offline_and_its_node_says_so(tmp_path: Path) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": "200"}
    with ProcessCluster(tmp_path / "cluster", 1, settings) as cluster:
        topic = cluster.create_topic("t", config={"flush.messages": "1"})
        other = cluster.create_topic("other")
        produce(cluster, topic, 0, 20)
        assert cluster.stop(1) == [0]
        (segment,) = (cluster.nodes[1].data / f"{topic}-0").glob("*.log")
        left = segment.read_bytes()[:-5000]
        segment.write_bytes(left)
        cluster.start(1)
        cluster.wait_ready()
        cluster.leader(other)
        assert cluster.partitions(topic)[0].leader == -1
        assert (
            f"offline until another broker leads it partition={topic}-0"
            in cluster.nodes[1].last_lines()
        )
        assert segment.read_bytes() == left, "nothing is cut"
