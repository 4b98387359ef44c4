"""Real disks that fill up: records are refused before they are full, and all goes on when there is room."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from test_disk_full import VALUE, consume

from support.cluster import OTTLA, ProcessCluster, byte_identical, wait_until
from support.disks import may_mount, mounted, second_disk, tiny_file_system

pytestmark = pytest.mark.skipif(not may_mount(), reason="file systems cannot be mounted here")

NEARLY_FULL = "is nearly full, and takes no records until space is freed there"


def ottla(cluster: ProcessCluster, *words: str) -> str:
    command = [str(OTTLA), *words, "--dir", str(cluster.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


class Writing:
    """A producer that goes on for as long as it takes."""

    def __init__(self, cluster: ProcessCluster, topic: str, count: int) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[Any] = []
        self.count = count
        self._stop = Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 600_000,
            "queue.buffering.max.messages": 200,
            "linger.ms": 5,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._thread = Thread(target=self._write, args=(topic,))

    def _write(self, topic: str) -> None:
        for number in range(self.count):
            while not self._stop.is_set():
                try:
                    value = b"%012d" % number + VALUE
                    self._producer.produce(topic, value, partition=0, on_delivery=self._done)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        while len(self._producer) and not self._stop.is_set():
            self._producer.flush(0.5)

    def _done(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value()[:12])
        else:
            self.failed.append(error)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def wait_until_done(self) -> None:
        wait_until(lambda: len(self.acknowledged) == self.count, 120, "all are acknowledged")
        assert not self.failed


def test_a_disk_of_all_three_nodes_fills_up_nothing_is_lost_and_they_go_on_with_room(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "disk", 64 << 20) as disk:
        settings = {"ottla.disk.watermark.percent": "80"}
        cluster = ProcessCluster(disk / "cluster", 3, settings)
        with cluster:
            topic = cluster.create_topic("t", assignment=[[1, 2, 3]])
            pids = {id: node.pid for id, node in cluster.nodes.items()}
            writing = Writing(cluster, topic, 2_500)
            with writing.under_way():
                wait_until(
                    lambda: ottla(cluster, "status").count(NEARLY_FULL) == 3, 120, "status says so"
                )
                free = int(subprocess.check_output(["stat", "-f", "-c", "%a", disk]))
                assert free > 0, "and some room is left for the metadata"
                cluster.create_topic("made-meanwhile")
                so_far = sorted(writing.acknowledged)
                assert len(so_far) < writing.count
                assert consume(cluster, topic, 0, len(so_far))[: len(so_far)] == so_far
                assert cluster.partitions(topic)[0].whole, "nobody falls behind"
                assert "it takes no records" in ottla(cluster, "doctor")
                subprocess.run(["mount", "-o", "remount,size=300m", str(disk)], check=True)
                writing.wait_until_done()
            assert {id: node.pid for id, node in cluster.nodes.items()} == pids, "no node ended"
            assert consume(cluster, topic, 0, 2_500) == sorted(writing.acknowledged)
            byte_identical(cluster, topic)
            assert NEARLY_FULL not in ottla(cluster, "status")
            log = cluster.nodes[1].last_lines(10_000)
            assert "disk is nearly full, records are refused until space is freed there" in log
            assert "disk has room again, records are taken" in log and "Traceback" not in log


def test_leaders_leave_the_one_full_disk_and_its_replica_is_back_with_room(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 3)
    node, disk = cluster.nodes[1], second_disk(cluster, 1)
    text = node.config.read_text()
    node.config.write_text(text.replace(f"log.dirs={node.data}", f"log.dirs={disk}"))
    with tiny_file_system(cluster, 1, 20 << 20), cluster:
        topic = cluster.create_topic("t", assignment=[[1, 2, 3]])
        pid = node.pid
        writing = Writing(cluster, topic, 3_000)
        with writing.under_way():
            writing.wait_until_done()
        states = cluster.partitions(topic)[0]
        assert states.leader in (2, 3)
        wait_until(lambda: 1 not in cluster.partitions(topic)[0].isr, 60, "1 leaves the ISR")
        assert node.running and node.pid == pid, node.last_lines()
        assert NEARLY_FULL in ottla(cluster, "status")
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        cluster.wait_whole(topic, 60)
        assert consume(cluster, topic, 0, 3_000) == sorted(writing.acknowledged)
        assert node.pid == pid


@pytest.mark.slow
def test_a_move_to_a_disk_without_room_says_so_before_meanwhile_and_when_it_is_cancelled(
    tmp_path: Path,
) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 3, {"ottla.disk.watermark.percent": "70"})
    node, disk = cluster.nodes[1], second_disk(cluster, 1)
    text = node.config.read_text()
    node.config.write_text(text.replace(f"log.dirs={node.data}", f"log.dirs={disk}"))
    with tiny_file_system(cluster, 1, 24 << 20), cluster:
        topic = cluster.create_topic("t", assignment=[[2, 3]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(300):
            producer.produce(topic, bytes(100_000), partition=0)
        assert producer.flush(60) == 0
        file = tmp_path / "file.json"
        wish = {"topic": topic, "partition": 0, "replicas": [2, 3, 1]}
        file.write_text(json.dumps({"version": 1, "partitions": [wish]}))
        command = [str(OTTLA), "reassign", "execute", str(file), "-b", cluster.bootstrap]
        command += ["--format", "json", "--throttle", "20M"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
            try:
                assert running.stdout is not None
                held_by = (json.loads(line)["held_by"] or "" for line in running.stdout)
                full = next(why for why in held_by if "is full: free space there" in why)
                assert full.startswith(f"the disk of {disk} on broker 1")
                explained = ottla(cluster, "explain", f"{topic}-0")
                assert "it waits for broker 1, whose disk is full" in explained
                cluster.kill(1)
                assert any(why == "broker 1 does not answer" for why in held_by)
                cancelled = ottla(cluster, "reassign", "cancel")
                assert "cancelled 1 move; the disks have the space of what was copied" in cancelled
                _, errors = running.communicate(timeout=60)
            finally:
                running.kill()
        assert "broker 1 has no room for all of it: 28." in errors
