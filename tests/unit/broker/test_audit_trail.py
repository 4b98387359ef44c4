"""The audit's topic: what is recorded, that it is bounded, and that no client writes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from guarded_node import ANN, TOPIC, GuardedNode, acl, produced
from one_node import create

from ottla.broker.observability.event_log import EventLogWriter, audit_journal
from ottla.broker.server.audit_log import AuditLog
from ottla.config import Settings
from ottla.event_log.audit import AUDIT_KINDS, FIELDS, audit_sentence
from ottla.event_log.entry import EventEntry, entries
from ottla.events import Events
from ottla.events.audit import Audited
from ottla.records.batch import batches
from ottla.records.record import records
from ottla.runtime.real import real_runtime
from ottla.security.authorizer import Via
from ottla.security.needs import Right
from ottla.security.operations import AclOperation, ResourceType
from ottla.security.principals import user
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import AUDIT_TOPIC
from ottla.wire.types import TopicPartition

REFUSED = ([ErrorCode.INVALID_TOPIC_EXCEPTION], [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
VIA = Via("CLIENTS", "PLAIN")


def recorded(node: GuardedNode) -> list[EventEntry]:
    partition = node.broker.replicas.partitions.get(TopicPartition(AUDIT_TOPIC, 0))
    if partition is None:
        return []
    read = partition.log.read(0, max_bytes=1 << 20, end_offset=partition.log.log_end)
    data = memoryview(b"" if read.range is None else read.range.read())
    return list(entries(each for batch in batches(data) for each in records(data, batch)))


async def found(
    node: GuardedNode, wanted: Callable[[EventEntry], bool], timeout_s: float = 30
) -> EventEntry:
    async with asyncio.timeout(timeout_s):
        while True:
            for entry in recorded(node):
                if wanted(entry):
                    return entry
            await asyncio.sleep(0.02)


def with_node(
    directory: Path, scenario: Callable[[GuardedNode], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        node = await GuardedNode.start(directory)
        try:
            await scenario(node)
        finally:
            await node.stop()

    asyncio.run(main())


def test_denials_and_changes_are_recorded_with_who_and_what(tmp_path: Path) -> None:
    async def scenario(node: GuardedNode) -> None:
        node.allow()
        client = await node.client(ANN)
        assert await produced(client, TOPIC) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        denial = await found(node, lambda entry: entry.kind == "denial")
        told = denial.told.fields
        assert tuple(told) == FIELDS
        assert told["principal"] == "User:ann"
        assert (told["api"], told["operation"], told["resource"]) == (
            "Produce",
            "WRITE",
            "Topic:orders",
        )
        assert (told["allowed"], told["rule"]) == (False, "DefaultDeny")
        assert (told["host"], told["listener"]) == ("127.0.0.1", "PLAINTEXT")
        change = await found(
            node,
            lambda entry: (
                entry.kind == "change" and entry.told.fields["resource"] == "Topic:orders"
            ),
        )
        assert change.told.fields["principal"] == "User:ANONYMOUS"
        assert change.told.fields["api"] == "CreateTopics"

    with_node(tmp_path, scenario)


def test_a_client_with_the_right_to_write_it_cannot_write_the_audit(tmp_path: Path) -> None:
    async def scenario(node: GuardedNode) -> None:
        await create(node.operator, "another", [[1]])
        await found(node, lambda entry: entry.kind == "change")
        right = Right(ResourceType.TOPIC, AclOperation.WRITE)
        node.allow(acl(right, TOPIC), acl(right, AUDIT_TOPIC))
        for client_id in ("client", "__admin_client"):
            client = await node.client(ANN, client_id)
            assert await produced(client, TOPIC) == [ErrorCode.NONE]
            assert await produced(client, AUDIT_TOPIC) in REFUSED

    with_node(tmp_path, scenario)


def test_what_a_broker_changes_without_the_controller_is_recorded(tmp_path: Path) -> None:
    async def scenario(node: GuardedNode) -> None:
        right = Right(ResourceType.TOPIC, AclOperation.ALL)
        node.allow(acl(right, TOPIC), acl(right, AUDIT_TOPIC))
        client = await node.client(ANN)
        assert await produced(client, TOPIC) == [ErrorCode.NONE]

        async def deleted(topic: str) -> ErrorCode:
            partition = {"partition_index": 0, "offset": -1}
            topics = [{"name": topic, "partitions": [partition]}]
            fields = {"topics": topics, "timeout": 5_000}
            answer = await client.request(ApiKey.DELETE_RECORDS, fields)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        assert await deleted(AUDIT_TOPIC) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await deleted(TOPIC) is ErrorCode.NONE
        change = await found(
            node,
            lambda entry: entry.kind == "change" and entry.told.fields["api"] == "DeleteRecords",
        )
        assert change.told.fields["principal"] == "User:ann"
        assert change.told.fields["operation"] == "DELETE"
        end = node.broker.replicas.partitions[TopicPartition(TOPIC, 0)].log.high_watermark
        assert change.told.fields["resource"] == f"Partition:{TOPIC}-0 before {end}"

    with_node(tmp_path, scenario)


# The pure part


class Told:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.events: list[Audited] = []
        events = Events()
        events.subscribe(self.events.append, Audited)  # type: ignore[arg-type]
        self.log = AuditLog(
            lambda: self.now, lambda s, call: self.timers.append((self.now + s, call)), events
        )

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due, self.timers = [c for at, c in self.timers if at <= self.now], []
        for call in due:
            call()


def test_a_storm_of_failed_logins_is_two_entries() -> None:
    told = Told()
    for _ in range(1000):
        told.log.login_ended("login_failure", "mallory", "10.0.0.7", VIA, "wrong password")
    told.pass_time(10.0)
    assert [(event.kind, event.principal, event.repeated) for event in told.events] == [
        ("login_failure", "User:mallory", 0),
        ("login_failure", "User:mallory", 999),
    ]


def test_every_kind_has_a_sentence_on_one_line() -> None:
    for kind in AUDIT_KINDS:
        told = {**dict.fromkeys(FIELDS), "principal": "User:a\nb", "host": "h", "count": 3}
        entry = EventEntry(0, 1, "1-a-1", _told(kind, told))
        line = audit_sentence(entry)
        assert line.isprintable() and len(line) > 10
        assert "\n" not in line


def _told(kind: str, fields: dict[str, Any]) -> Any:
    from ottla.event_log.entry import Told as EntryTold

    return EntryTold(kind, "User:a", "because", fields)


@pytest.fixture
def writer() -> Iterator[tuple[EventLogWriter, Events]]:
    settings = Settings.of(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": "/tmp/x",
            "ottla.audit.queue.max": "10",
        }
    )
    loop = asyncio.new_event_loop()
    runtime = real_runtime(loop, seed=1)
    yield EventLogWriter(settings, runtime, audit_journal(settings)), runtime.events
    loop.close()


def test_what_does_not_fit_into_the_queue_is_dropped_and_counted(
    writer: tuple[EventLogWriter, Events],
) -> None:
    trail, events = writer
    for number in range(25):
        events.emit(Audited("login", str(user(f"user-{number}")), "10.0.0.7", *VIA))
    assert (trail.waiting, trail.dropped) == (10, 15)


def test_names_that_strangers_choose_are_cut(writer: tuple[EventLogWriter, Events]) -> None:
    trail, _ = writer
    told = trail.journal.tellers[Audited](Audited("login_failure", "User:" + "x" * 100_000, "h"), 1)
    key, value = EventEntry(0, 1, "1-a-1", told).encode()
    assert len(key) + len(value) < 2000
