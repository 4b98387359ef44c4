"""Kafka Streams, the most demanding user of transactions: each word is counted once, also under kills."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from support.cluster import ProcessCluster, wait_until
from support.kafka_jars import STREAMS, java_command
from support.messages import key_of, value_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first run installs the jars

PROGRAMMES = Path(__file__).parent / "java"
PARTITIONS = 3
WORDS = ("log", "leader", "epoch", "offset", "replica", "quorum", "batch")
LINES = 3000
KILLS = 3


def test_kafka_streams_counts_each_word_once_while_brokers_are_killed(
    new_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster: ProcessCluster = new_cluster(3, group_initial_rebalance_delay_ms="0")
    lines = cluster.create_topic("lines", PARTITIONS)
    counts = cluster.create_topic("counts", PARTITIONS)
    command = java_command(
        PROGRAMMES / "WordCount.java", cluster.bootstrap, tmp_path / "state", jars=STREAMS
    )
    printed = tmp_path / "streams.log"
    expected: Counter[str] = Counter()
    chance = random.Random(7)
    with printed.open("wb") as output:
        streams = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "STATE RUNNING" in printed.read_text(), 120, "Kafka Streams runs")
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for number in range(LINES):
            words = chance.choices(WORDS, k=chance.randrange(1, 8))
            expected.update(words)
            producer.produce(lines, " ".join(words), partition=number % PARTITIONS)
            if number % (LINES // KILLS) == LINES // KILLS // 2:
                assert producer.flush(60) == 0
                victim = cluster.leader(counts, chance.randrange(PARTITIONS))
                cluster.kill(victim)
                cluster.start(victim)
                cluster.wait_ready()
        assert producer.flush(60) == 0
        wait_until(
            lambda: latest_counts(cluster.bootstrap, counts) == expected,
            120,
            f"the words are counted: {dict(expected)}",
            every=1,
        )
        values = all_counts(cluster.bootstrap, counts)
        for word, number in expected.items():
            # Each word once, and none again: no count is skipped, and none comes twice.
            assert values[word] == list(range(1, number + 1)), word
        print("words:", sum(expected.values()), "kills:", KILLS)
    except AssertionError as error:
        error.add_note(printed.read_text(errors="replace")[-4000:])
        raise
    finally:
        streams.send_signal(signal.SIGTERM)
        try:
            streams.wait(30)
        except subprocess.TimeoutExpired:
            streams.kill()
            streams.wait()


def latest_counts(bootstrap: str, topic: str) -> Counter[str]:
    return Counter({word: counts[-1] for word, counts in all_counts(bootstrap, topic).items()})


def all_counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """Each word's committed counts, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: dict[str, list[int]] = {}
    ends = 0
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    try:
        consumer.assign(places)
        while ends < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "no end of the partitions"
            error = message.error()
            if error is None:
                found.setdefault(key_of(message).decode(), []).append(int(value_of(message)))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    finally:
        consumer.close()
    return found
