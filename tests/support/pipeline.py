"""Consume, transform, produce, exactly once: workers with librdkafka's transactions, and what to check of them.

A feeder writes numbers to one topic; workers of one group copy them to another, each batch with its offsets in one
transaction; a watcher asks again and again what the group has committed. Every call of a worker is timed, so that a
stall names its cause.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from ottla.client import BlockingClient, Unreachable
from ottla.client.group_admin import GroupAdmin
from ottla.wire.errors import KafkaError as KafkaRefusal
from support.cluster import ProcessCluster, wait_until
from support.transactions import read

CALL_TIMEOUT_S = 60
LATE_S = 5
"""So long after its timeout a call that has not ended hangs."""
BATCH_MAX = 100
TRANSACTION_TIMEOUT_MS = 60_000
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
"""librdkafka 2.16 begins anew from its bootstrap addresses when the brokers that it is connected to are gone (often
one), and throws its brokers away; a group's coordinator that it remembers is then one of those, which never connects
again, and send_offsets_to_transaction waits for it up to its timeout (25 s were seen, and 54)."""
PARTITIONS = 6
WORKERS = 3
STABLE_S_MAX = 5


@dataclass
class Feeder:
    """Numbers 0, 1, 2, … into the partitions of a topic in turn, each of them acknowledged in the end, and there once: with
    several requests in flight librdkafka itself may write some twice (see `ledger.replaced`)."""

    bootstrap: str
    topic: str
    partitions: int
    rate: float
    sent: int = 0

    def __enter__(self) -> Feeder:
        self._stop = threading.Event()
        self._errors: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "max.in.flight": 1,
                "log_level": 0,
            }
        )
        while not self._stop.wait(1 / self.rate):
            producer.produce(
                self.topic,
                b"%d" % self.sent,
                partition=self.sent % self.partitions,
                on_delivery=lambda error, _: self._errors.append(error) if error else None,
            )
            self.sent += 1
            producer.poll(0)
        assert producer.flush(CALL_TIMEOUT_S) == 0, "the feeder's records were not taken"

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(CALL_TIMEOUT_S + 5)
        assert not self._thread.is_alive() and not self._errors, self._errors[:3]


class Hangs(Exception):
    """A call of librdkafka did not end at its own timeout."""


@dataclass
class Worker:
    """One member of the group, in a thread of its own. A transaction that fails is aborted, and its records are read
    again from where the group is."""

    bootstrap: str
    group: str
    source: str
    target: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slowest: dict[str, float] = {}
        self.failures: Counter[str] = Counter()
        self.commits = 0
        self.error: BaseException | None = None
        self.assigned: frozenset[int] = frozenset()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * CALL_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.error is not None:
            raise AssertionError(f"{self.name} failed") from self.error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._live()
        except BaseException as error:
            self.error = error

    def _timed(self, call: Any, *arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return call(*arguments)
        finally:
            took = time.monotonic() - began
            self.slowest[call.__name__] = max(took, self.slowest.get(call.__name__, 0))

    @property
    def hangs(self) -> int:
        return self.failures[Hangs.__name__]

    def _live(self) -> None:
        """Until stopped, or until this producer is beyond repair."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
                "log_level": 0,
                **NO_REBOOTSTRAP,
            }
        )
        self._timed(producer.init_transactions, CALL_TIMEOUT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **({} if "group.protocol" in self.config else {"session.timeout.ms": 6000}),
                **self.config,
            }
        )
        consumer.subscribe([self.source])
        try:
            while not self._stop.is_set():
                found = consumer.consume(BATCH_MAX, 0.1)
                self.assigned = frozenset(each.partition for each in consumer.assignment())
                messages = [each for each in found if each.error() is None]
                if messages and not self._copy(producer, consumer, messages):
                    return
        finally:
            self.assigned = frozenset()
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Any]) -> bool:
        """False when the producer can do no more."""
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self.target, message.value(), partition=message.partition())
            self._timed(send_offsets, producer, consumer)
            self._timed(producer.commit_transaction, CALL_TIMEOUT_S)
            self.commits += 1
        except KafkaException as raised:
            error = raised.args[0]
            self.failures[error.name()] += 1
            if error.fatal():
                return False
            self._timed(producer.abort_transaction, CALL_TIMEOUT_S)
            self._rewind(consumer)
        except Hangs:
            self.failures[Hangs.__name__] += 1
            return False
        return True

    def _rewind(self, consumer: Consumer) -> None:
        """To what the group has committed, or the beginning."""
        assigned = consumer.assignment()
        if not assigned:
            return
        for place in self._timed(consumer.committed, assigned, CALL_TIMEOUT_S):
            offset = place.offset if place.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            try:
                consumer.seek(TopicPartition(place.topic, place.partition, offset))
            except KafkaException as raised:  # it was taken away meanwhile
                assert raised.args[0].code() == KafkaError._STATE, raised


def send_offsets(producer: Producer, consumer: Consumer) -> None:
    """In a thread of its own, for librdkafka waits for ever if the group's coordinator leaves the metadata meanwhile: its
    issues 5456 and 5511. Who runs such an application must start it anew, and so does the worker."""
    places, group = consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    outcome = Future[None]()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(places, group, CALL_TIMEOUT_S)
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=send, daemon=True).start()
    try:
        outcome.result(CALL_TIMEOUT_S + LATE_S)
    except TimeoutError:
        raise Hangs from None


class Watcher:
    """What a group has committed, asked all the time: it never goes back. Asked with the client of this project:
    librdkafka's admin calls may crash the process while coordinators move."""

    def __init__(self, bootstrap: str, group: str) -> None:
        hosts = [address.rpartition(":") for address in bootstrap.split(",")]
        self._blocking = BlockingClient([(host, int(port)) for host, _, port in hosts], timeout_s=5)
        self._groups = GroupAdmin(self._blocking.client)
        self._group = group
        self.committed: dict[tuple[str, int], int] = {}
        self.went_back: list[str] = []
        self.looks = 0

    def look(self) -> None:
        try:
            found = self._blocking.run(self._groups.offsets(self._group))
        except (KafkaRefusal, Unreachable, OSError):
            return  # the coordinator is moving
        self.looks += 1
        for place, offset in found.items():
            before = self.committed.get(place, -1)
            if offset < before:
                self.went_back.append(f"{place}: {before} to {offset}")
            self.committed[place] = offset

    def is_stable(self, members: int) -> bool:
        try:
            found = self._blocking.run(self._groups.describe(self._group))
        except (KafkaRefusal, Unreachable, OSError):
            return False
        return found.state.lower() == "stable" and len(found.members) == members


def wait_stable(workers: list[Worker], watcher: Watcher, partitions: int, timeout: float) -> float:
    """Until each partition has one owner and the coordinator calls the group stable; the seconds that it took."""
    began = time.monotonic()

    def stable() -> bool:
        owned = [number for worker in workers for number in sorted(worker.assigned)]
        return sorted(owned) == list(range(partitions)) and watcher.is_stable(len(workers))

    wait_until(stable, timeout, f"a stable group ({[w.assigned for w in workers]})")
    return time.monotonic() - began


def assert_each_once(bootstrap: str, topic: str, partitions: int, sent: int) -> None:
    """Under read_committed each number from 0 on is there once, and in order within its partition."""
    for partition in range(partitions):
        values = [int(value) for value in read(bootstrap, topic, partition)]
        expected = list(range(partition, sent, partitions))
        lost = sorted(set(expected) - set(values))
        twice = [value for value, count in Counter(values).items() if count > 1]
        assert not lost and not twice, f"partition {partition}: lost {lost[:5]}, twice {twice[:5]}"
        assert values == expected, f"partition {partition}: not in order"


def endure(
    cluster: ProcessCluster, protocol: str, seconds: float, every: tuple[float, float], seed: int
) -> None:
    """Brokers are killed for so many seconds, one after the other, while a group copies a topic in transactions: each
    input has one output, committed offsets never go back, and the group is stable soon after the last kill."""
    source = cluster.create_topic("source", PARTITIONS)
    target = cluster.create_topic("target", PARTITIONS)
    chance = random.Random(seed)
    watcher = Watcher(cluster.bootstrap, "pipe")
    kills = 0
    with ExitStack() as stack:
        workers = []
        for number in range(WORKERS):
            worker = Worker(
                cluster.bootstrap,
                "pipe",
                source,
                target,
                f"worker-{number}",
                {"group.protocol": protocol},
            )
            stack.callback(worker.stop)
            workers.append(worker)
        wait_stable(workers, watcher, PARTITIONS, 60)
        with Feeder(cluster.bootstrap, source, PARTITIONS, rate=300) as feeder:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                victim = chance.choice(sorted(cluster.nodes))
                cluster.kill(victim)
                kills += 1
                killed_at = time.monotonic()
                cluster.start(victim)
                cluster.wait_ready()
                cluster.wait_whole(source)
                next_at = killed_at + chance.uniform(*every)
                while time.monotonic() < next_at:
                    watcher.look()
                    time.sleep(0.05)
            cluster.kill(victim := chance.choice(sorted(cluster.nodes)))
            stable_s = wait_stable(workers, watcher, PARTITIONS, 60)
        cluster.start(victim)
        cluster.wait_ready()

        def all_copied() -> bool:
            watcher.look()
            # The source has no transactions: as many offsets as records.
            return sum(watcher.committed.values()) == feeder.sent

        began = time.monotonic()
        wait_until(all_copied, 90, "every record is copied")
        copied_s = time.monotonic() - began
    slowest = {
        call: round(max(worker.slowest.get(call, 0) for worker in workers), 2)
        for call in sorted({call for worker in workers for call in worker.slowest})
    }
    failures = {worker.name: dict(worker.failures) for worker in workers}
    print(
        f"{kills} kills, {feeder.sent} records, {sum(w.commits for w in workers)} transactions;"
        f" stable {stable_s:.1f} s after the last kill, all copied {copied_s:.1f} s after the last record;"
        f" slowest calls, s: {slowest}; failures: {failures}; {watcher.looks} looks at offsets"
    )
    assert not watcher.went_back, watcher.went_back[:5]
    assert_each_once(cluster.bootstrap, target, PARTITIONS, feeder.sent)
    assert stable_s < STABLE_S_MAX, stable_s
