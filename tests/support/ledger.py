"""The oracle outside the cluster: what was acknowledged, and whether it can still be read.

A `LedgerProducer` sends values that occur only once, with acks=all, and writes down the partition and
offset each was acknowledged with. `verify` reads everything back and compares.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from ottla.records.batch import Batch, batches
from support.cluster import ClusterNotReady, wait_until
from support.messages import place_of, value_of

PATIENT: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 1,
    # A cluster in trouble answers late: the producer should ask again soon, and not give up.
    "message.timeout.ms": 120_000,
    "request.timeout.ms": 2_000,
    "socket.timeout.ms": 4_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


@dataclass
class Report:
    """What `verify` found. `assert_clean` is the contract."""

    acknowledged: int
    read: int
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    sent_again: int = 0
    """Copies that librdkafka has made (see `replaced`)."""

    def assert_clean(self) -> None:
        problems = {
            name: found
            for name in ("lost", "doubled", "reordered", "moved")
            if (found := getattr(self, name))
        }
        shown = {name: (len(found), found[:5]) for name, found in problems.items()}
        assert not problems, f"{self.acknowledged} acknowledged, {self.read} read: {shown}"


Acknowledged = Mapping[int, tuple[int, int | None]]
"""Number of the value → (partition, offset). librdkafka knows no offset where an answer was lost and a later
one implied that the value had been written."""


LogOf = Callable[[int], bytes]
"""The log of the leader of a partition."""


def replaced(records: Sequence[tuple[int, bytes]], log: bytes) -> set[int]:
    """Offsets of records that librdkafka itself wrote again later, in a higher epoch of the same producer: its issue 4953.
    Where one batch is refused and the one behind it is judged (OUT_OF_ORDER_SEQUENCE_NUMBER), it raises its epoch for all
    partitions, and sends what it has no answer for anew. No broker can know that such a batch was there before."""
    headers = list(batches(log, allow_partial=True))
    bases = [each.base_offset for each in headers]
    found: set[int] = set()
    before: dict[bytes, tuple[int, Batch]] = {}
    for offset, value in records:
        batch = headers[bisect_right(bases, offset) - 1]
        if value in before:
            old_offset, old = before[value]
            if old.producer_id == batch.producer_id and old.producer_epoch < batch.producer_epoch:
                found.add(old_offset)
        before[value] = offset, batch
    return found


def compare(
    acknowledged: Acknowledged,
    read: Mapping[int, list[tuple[int, bytes]]],
    log_of: LogOf | None = None,
) -> Report:
    """Hold what was read, (offset, value) per partition, against what was acknowledged. With `log_of`, what the producer
    itself replaced is counted, and else as if it were not there."""
    again = {
        partition: replaced(records, log_of(partition))
        for partition, records in read.items()
        if log_of is not None and len({value for _, value in records}) < len(records)
    }
    read = {
        partition: [each for each in records if each[0] not in again.get(partition, ())]
        for partition, records in read.items()
    }
    report = Report(len(acknowledged), sum(len(each) for each in read.values()))
    report.sent_again = sum(len(each) for each in again.values())
    places: dict[int, list[tuple[int, int]]] = {}
    for partition, records in read.items():
        last = -1
        for offset, value in records:
            number = int(value)
            places.setdefault(number, []).append((partition, offset))
            if number < last:
                report.reordered.append(f"{number} after {last} at {partition}:{offset}")
            last = max(last, number)
    for number, found in places.items():
        if len(found) > 1:
            report.doubled.append(f"{number} at {found}")
    for number, place in acknowledged.items():
        if number not in places:
            report.lost.append(f"{number} acknowledged at {place}")
        elif place[1] is not None and place not in places[number]:
            report.moved.append(f"{number} acknowledged at {place}, is at {places[number]}")
    return report


class LedgerProducer:
    """Sends `rate` unique values a second, round the partitions, in a thread of its own, until stopped."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int = 1,
        rate: int = 400,
        config: Mapping[str, Any] = PATIENT,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: dict[int, tuple[int, int | None]] = {}
        self.failed: dict[int, str] = {}
        self.sent = 0
        self.ack_times: list[float] = []
        self._interval = 1 / rate
        self._config = {**config, "bootstrap.servers": bootstrap}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger producer", daemon=True)
        self._crashed: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, timeout: float = 60) -> None:
        """Send no more, and wait for the outcome of all that was sent."""
        self._stop.set()
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the producer did not come to an end"
        if self._crashed is not None:
            raise AssertionError("the producer failed") from self._crashed

    def wait_for_more(self, count: int, timeout: float = 30) -> None:
        """Until `count` further values are acknowledged."""
        goal = len(self.acknowledged) + count

        def reached() -> bool:
            if self._crashed is None and len(self.acknowledged) < goal:
                failed = list(self.failed.items())[:3]
                raise ClusterNotReady(f"{len(self.acknowledged)} are, failed: {failed}")
            return True

        wait_until(reached, timeout, f"{goal} values acknowledged", every=0.01)

    def longest_silence(self, since: float) -> float:
        """Seconds between two acknowledgements, at most, of those after `since` (monotonic) and the last
        one before it."""
        before = [t for t in self.ack_times if t < since][-1:]
        times = [t for t in self.ack_times if t >= since]
        return max((b - a for a, b in pairwise(before + times)), default=0.0)

    def _run(self) -> None:
        try:
            producer = Producer(self._config)
            due = time.monotonic()
            while not self._stop.is_set():
                self._send(producer)
                due += self._interval
                # Serve acknowledgements while waiting, and never try to make up for lost time.
                producer.poll(max(0.0, due - time.monotonic()))
                due = max(due, time.monotonic() - 10 * self._interval)
            producer.flush()
        except BaseException as error:
            self._crashed = error

    def _send(self, producer: Producer) -> None:
        number = self.sent
        try:
            producer.produce(
                self.topic,
                partition=number % self.partitions,
                value=b"%d" % number,
                on_delivery=self._delivered(number),
            )
        except BufferError:
            producer.poll(0.05)
        else:
            self.sent += 1

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed[number] = str(error)
                return
            self.ack_times.append(time.monotonic())
            partition = message.partition()
            assert partition is not None, message
            self.acknowledged[number] = (partition, message.offset())

        return delivered

    def verify(self, timeout: float = 60, log_of: LogOf | None = None) -> Report:
        """Read the topic from its beginning and compare. A value that was not acknowledged may be there,
        but once only and in its place."""
        read = consume_all(self.bootstrap, self.topic, self._ends(), timeout)
        return compare(self.acknowledged, read, log_of)

    def _ends(self) -> dict[int, int]:
        """Up to where each partition must be readable: past the last acknowledged offset."""
        ends = dict.fromkeys(range(self.partitions), 0)
        for partition, offset in self.acknowledged.values():
            if offset is not None:
                ends[partition] = max(ends[partition], offset + 1)
        return ends


def consume_all(
    bootstrap: str, topic: str, ends: dict[int, int], timeout: float
) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) of every record, per partition, from the beginning to the end that each partition
    has once it is at least `ends`; what is missing after `timeout` is left out."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )
    read: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in ends}
    open_partitions = set(ends)
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in sorted(ends)])
        while open_partitions and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    partition, offset = place_of(message)
                    read[partition].append((offset, value_of(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = place_of(message)
                    # Its offset is the one that would come next.
                    if offset >= ends[partition]:
                        open_partitions.discard(partition)
                    else:
                        open_partitions.add(partition)
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise AssertionError(f"consuming {topic}-{message.partition()}: {error}")
    finally:
        consumer.close()
    return read
