"""Producers at a given rate of bytes and consumers at the tail, with what each acknowledgement took.

What is acknowledged is held against what the consumers read: every value once, at its offset.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from support.cluster import wait_until
from support.ledger import PATIENT, LogOf, Report, compare
from support.messages import place_of, value_of

VALUE_BYTES = 10_000
LINGER_MS = 5
BURST_S = 0.02
"""The producer sends so often what is due."""


class Ack(NamedTuple):
    at: float
    """Monotonic seconds."""
    took_s: float
    partition: int


def percentile(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Load:
    """One producer with acks=all and idempotence, and one consumer of all partitions, each in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, bytes_per_s: int) -> None:
        self.topic = topic
        self.acks: list[Ack] = []
        self.acknowledged: dict[int, tuple[int, int | None]] = {}
        self.failed: dict[int, str] = {}
        self.read: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(partitions)}
        self.sent = 0
        self._partitions = partitions
        self._per_s = bytes_per_s / VALUE_BYTES
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._enough = threading.Event()
        self._crashed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Self:
        # Looking through hundreds of thousands of acknowledgements takes 0.15 s, in which nothing is sent.
        gc.disable()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more, and read all that was acknowledged."""
        gc.enable()
        producing, consuming = self._threads
        self._stop.set()
        producing.join(120)
        try:
            if not self._crashed:
                wait_until(
                    lambda: self.behind() <= 0 or self._crashed, 120, "the consumers have read all"
                )
        finally:
            self._enough.set()
            consuming.join(30)
        assert not self._crashed, self._crashed

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self._crashed.append(error)
            raise

    def _produce(self) -> None:
        config: dict[str, Any] = {
            **PATIENT,
            "bootstrap.servers": self._bootstrap,
            "linger.ms": LINGER_MS,
            "compression.type": "none",
            "queue.buffering.max.kbytes": 400_000,
        }
        producer = Producer(config)
        filling = os.urandom(VALUE_BYTES)
        began = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._per_s)
            while self.sent < due:
                number = self.sent
                value = b"%020d" % number + filling[20:]
                partition = number % self._partitions
                producer.produce(
                    self.topic,
                    value,
                    partition=partition,
                    on_delivery=partial(self._acknowledge, number),
                )
                self.sent += 1
                producer.poll(0)
            producer.poll(BURST_S)
        assert producer.flush(120) == 0

    def _acknowledge(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed[number] = str(error)
            return
        took_s = message.latency()
        assert took_s is not None
        place = place_of(message)
        self.acks.append(Ack(time.monotonic(), took_s, place[0]))
        self.acknowledged[number] = place

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "tail",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in range(self._partitions)]
        )
        while not self._enough.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    partition, offset = place_of(message)
                    assert offset is not None
                    self.read[partition].append((offset, value_of(message)[:20]))
        consumer.close()

    def behind(self) -> int:
        """How many acknowledged values the consumers have not read."""
        return len(self.acknowledged) - sum(len(each) for each in self.read.values())

    def wait_for_s(self, seconds: float) -> None:
        """Until so much more time has passed under load."""
        end = time.monotonic() + seconds
        wait_until(
            lambda: self._crashed or (bool(self.acks) and self.acks[-1].at >= end),
            seconds + 60,
            f"{seconds} s of load",
            every=0.1,
        )
        assert not self._crashed, self._crashed

    def between(self, begin: float, end: float) -> list[float]:
        return [ack.took_s for ack in self.acks[:] if begin <= ack.at < end]

    def report(self, log_of: LogOf | None = None) -> Report:
        assert not self.failed, list(self.failed.items())[:3]
        return compare(self.acknowledged, self.read, log_of)
