"""Members of consumer groups in four clients behind one small face: poll, see what is assigned, commit, close.

`settle` polls them all until their assignments are as wanted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from queue import Empty, Queue
from threading import Thread
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from support.cluster import wait_until
from support.messages import place_of, value_of


class GroupMember(Protocol):
    read: list[tuple[int, bytes]]
    """(partition, value) of everything read so far."""

    def poll(self) -> None: ...
    def assigned(self) -> set[int]:
        """Partitions of the one topic."""

    def commit(self) -> None: ...
    def close(self) -> None: ...


Make = Callable[..., GroupMember]


CLOSE_PATIENCE_S = 20.0


class ConfluentMember:
    name = "confluent"

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **config: Any) -> None:
        self.read: list[tuple[int, bytes]] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **({} if "group.protocol" in config else {"session.timeout.ms": 6000}),
                **config,
            }
        )
        self.consumer.subscribe(list(topics))

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        while message is not None:
            if message.error() is None:
                self.read.append((place_of(message)[0], value_of(message)))
            message = self.consumer.poll(0)

    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        """First it leaves the group: if librdkafka (2.16) has an assignment to tell when it closes, its callback waits for ever for
        the part of the client that has ended already (its issue 4041), and holds the interpreter's lock meanwhile. One that
        came before it left may wait to be told although nothing is assigned yet, so it is asked for what there is."""
        end = time.monotonic() + CLOSE_PATIENCE_S
        with suppress(confluent_kafka.KafkaException):  # a fenced one has left already
            self.consumer.unsubscribe()
            quiet = 0
            while quiet < 3 and time.monotonic() < end:
                is_message = self.consumer.poll(0.05) is not None
                quiet = 0 if is_message or self.consumer.assignment() else quiet + 1
        self.consumer.close()


class ConfluentCooperative(ConfluentMember):
    name = "confluent cooperative-sticky"

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **config: Any) -> None:
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        super().__init__(bootstrap, group, topics, **strategy, **config)


class ConfluentNew(ConfluentMember):
    name = "confluent consumer protocol"

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **config: Any) -> None:
        super().__init__(bootstrap, group, topics, **{"group.protocol": "consumer"}, **config)

    def commit(self) -> None:
        """A new epoch may be on its way to the member: then the next heartbeat brings it."""

        def committed() -> bool:
            self.poll()
            try:
                super(ConfluentNew, self).commit()
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() != confluent_kafka.KafkaError.STALE_MEMBER_EPOCH:
                    raise
                return False
            return True

        wait_until(committed, 10, "a commit in the current epoch")


class KafkaPythonMember:
    """Polled by a thread of its own: a poll that ends between JoinGroup and SyncGroup never looks at the
    answer, so it must be long, and the others must not wait for it."""

    name = "kafka-python"

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **config: Any) -> None:
        self.read: list[tuple[int, bytes]] = []
        self.consumer = kafka.KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            **config,
        )
        self._work: Queue[Callable[[], None] | None] = Queue()
        self._thread = Thread(target=self._poll_until_closed, daemon=True)
        self._thread.start()

    def _poll_until_closed(self) -> None:
        while True:
            for records in self.consumer.poll(timeout_ms=2000).values():
                self.read.extend((record.partition, record.value) for record in records)
            with suppress(Empty):
                work = self._work.get_nowait()
                if work is None:
                    return
                work()

    def poll(self) -> None:
        time.sleep(0.05)

    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        done: Queue[None] = Queue()

        def commit() -> None:
            self.consumer.commit()
            done.put(None)

        self._work.put(commit)
        done.get(timeout=30)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(30)
        self.consumer.close(autocommit=False)


@cache
def background_loop() -> asyncio.AbstractEventLoop:
    """aiokafka's heartbeats go on while the test does something else."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    return loop


class AiokafkaMember:
    name = "aiokafka"

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], **config: Any) -> None:
        self.read: list[tuple[int, bytes]] = []
        self.consumer = self._run(self._start(bootstrap, group, topics, config))

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, background_loop()).result(60)

    async def _start(
        self, bootstrap: str, group: str, topics: Sequence[str], config: dict[str, Any]
    ) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            **config,
        )
        consumer.subscribe(list(topics))
        await consumer.start()
        return consumer

    def poll(self) -> None:
        for records in self._run(self.consumer.getmany(timeout_ms=50)).values():
            self.read.extend((record.partition, record.value) for record in records)

    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._run(self.consumer.commit())

    def close(self) -> None:
        self._run(self.consumer.stop())


CLIENTS: list[Make] = [
    ConfluentMember,
    ConfluentCooperative,
    ConfluentNew,
    KafkaPythonMember,
    AiokafkaMember,
]


def settle(
    members: Sequence[GroupMember], sizes: Sequence[int], what: str, timeout: float = 30
) -> float:
    """Poll all members until each has as many partitions as `sizes` says (in any order) and no two share
    one; the seconds that it took."""
    began = time.monotonic()

    def settled() -> bool:
        for member in members:
            member.poll()
        shares = [member.assigned() for member in members]
        return sorted(map(len, shares)) == sorted(sizes) and len(set().union(*shares)) == sum(sizes)

    wait_until(settled, timeout, what, every=0)
    return time.monotonic() - began


def read_until(members: Sequence[GroupMember], count: int) -> None:
    def enough() -> bool:
        for member in members:
            member.poll()
        return sum(len(member.read) for member in members) >= count

    wait_until(enough, 30, f"{count} records", every=0)


def produce(bootstrap: str, topic: str, count: int, partitions: int, start: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(start, start + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
