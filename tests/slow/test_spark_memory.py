"""A task of `format("ottla")` takes as much memory for a large partition as for a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer

from support.cluster import ProcessCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMME = Path(__file__).parents[1] / "support" / "spark_task.py"
MB = 1_000_000
RECORD_BYTES = 10_000
RECORDS = 2000 * MB // RECORD_BYTES
GROWN_MB_MAX = 32
"""Of 1,500 MB that are read in addition."""
PEAK_MB_MAX = 300


def write(cluster: ProcessCluster, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "batch.size": 900_000,
            "linger.ms": 20,
            "log_level": 0,
            "queue.buffering.max.kbytes": 64 * 1024,
        }
    )
    value = bytes(RECORD_BYTES)
    for _ in range(RECORDS):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(300) == 0


def task(cluster: ProcessCluster, topic: str, end: int) -> dict[str, Any]:
    words = [sys.executable, str(PROGRAMME), cluster.bootstrap, topic, str(end)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_memory_does_not_grow_with_the_partition(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("large", 1, replicas=1)
    write(cluster, topic)
    small, large = (task(cluster, topic, end) for end in (RECORDS // 4, RECORDS))
    assert (small["rows"], large["rows"]) == (RECORDS // 4, RECORDS)
    assert large["bytes"] >= 2000 * MB
    print(f"500 MB: {small['peak_mb']:.0f} MB at most; 2,000 MB: {large['peak_mb']:.0f} MB at most")
    assert large["peak_mb"] < small["peak_mb"] + GROWN_MB_MAX
    assert large["peak_mb"] < PEAK_MB_MAX
