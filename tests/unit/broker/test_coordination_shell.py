"""A shard on its partition: replies wait for the high watermark, and what cannot be written never happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordination.live_shard import InternalTopic, LiveShard
from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp
from ottla.events import Event, Events
from ottla.events.coordination import (
    OpenWork,
    ReplyTimedOut,
    ShardApplied,
    ShardLoaded,
    ShardRestarted,
    ShardUnloaded,
)
from ottla.log.errors import LogDirError
from ottla.records.batch import batches
from ottla.records.record import records
from ottla.replica.observer import News
from ottla.replica.roles import Role
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition


class FakeRange:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data


class FakePartition:
    """A partition whose high watermark is the test's to move."""

    topic, partition, key = "__topic", 0, ("__topic", 0)
    role, leader_epoch = Role.LEADER, 5

    def __init__(self) -> None:
        self.log = self.leadership = self
        self.batches: list[bytes] = []
        self.log_start = self.log_end = self.high_watermark = 0
        self.is_under_min_isr = False
        self.refuses: KafkaError | None = None

    def append_own(self, data: memoryview, leader_epoch: int, now: float, now_ms: int) -> Any:
        assert leader_epoch == 5
        if self.refuses is not None:
            raise self.refuses
        base = self.log_end
        self.batches.append(base.to_bytes(8, "big") + data[8:])
        self.log_end += sum(batch.count for batch in batches(data))
        return SimpleNamespace(base_offset=base)

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> Any:
        data = b"".join(self.batches)
        return SimpleNamespace(range=FakeRange(data), next_offset=self.log_end)


class CountingShard:
    """Counts what was written; says the count."""

    deadline = inf

    def __init__(self) -> None:
        self.count = 0
        self.promised = 0
        self.ticks = 0

    def replay(
        self, offset: int, record: CoordinatorRecord, producer: ProducerStamp | None, now_ms: int
    ) -> None:
        self.count += record.key != b"nothing"

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        raise AssertionError("no transactions here")

    def loaded(self, now: float) -> Effects:
        return Effects()

    def handle(
        self, api_key: int, version: int, message: Any, token: object, now: float, now_ms: int
    ) -> Effects:
        if message == "read":
            return Effects(replies=[(token, {"count": self.count})])
        self.promised += 1
        return Effects(
            records=[CoordinatorRecord(b"k", b"v")],
            only_records=message == "write",
            replies=[(token, {"count": self.count + 1})],
        )

    def tick(self, now: float, now_ms: int) -> Effects:
        self.ticks += 1
        raise ValueError("a mistake of ours")

    def next_deadline(self) -> float:
        return self.deadline

    def open_work(self) -> OpenWork:
        return OpenWork()


def refusal(key: ApiKey, version: int, message: Any, error: ErrorCode) -> Mapping[str, Any]:
    return {"error": error}


class Shell:
    def __init__(
        self, write_timeout_s: float = 5.0, partition: FakePartition | None = None
    ) -> None:
        self.in_doubt = False
        self.events = Events()
        self.heard: list[Event] = []
        self.events.subscribe(self.heard.append)
        self.partition = partition or FakePartition()
        self.replies: list[Mapping[str, Any]] = []
        self.damages: list[tuple[Any, str]] = []
        self.failures: list[LogDirError] = []
        clock = SimpleNamespace(monotonic=lambda: 1.0, wall_ms=lambda: 1000)
        replicas = SimpleNamespace(
            clock=clock,
            purgatory=SimpleNamespace(watch=lambda *_: None, unwatch=lambda *_: None),
            replica_damaged=lambda *damage: self.damages.append(damage),
            directory_failed=self.failures.append,
        )
        topic = InternalTopic(
            "__topic",
            1,
            1,
            {},
            lambda _: CountingShard(),
            refusal,
            write_timeout_s,
            confirmation=CoordinatorRecord(b"nothing", None),
        )
        self.live = LiveShard(topic, self.partition, replicas, lambda: self.in_doubt, self.events)  # type: ignore[arg-type]

    def ask(self, message: str, key: ApiKey = ApiKey.OFFSET_COMMIT) -> None:
        self.live.ask(key, 0, message, self.replies.append)

    def commit(self) -> None:
        self.partition.high_watermark = self.partition.log_end
        self.live.partition_changed(self.partition, News.HIGH_WATERMARK)  # type: ignore[arg-type]


def with_shell(test: Callable[[Shell], Awaitable[None]]) -> None:
    async def run() -> None:
        shell = Shell()
        await asyncio.sleep(0)  # an empty log is loaded at once
        await test(shell)
        shell.live.drop()

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to that")


def test_while_it_loads_a_shard_answers_nothing_else() -> None:
    async def run() -> None:
        shell = Shell()
        shell.ask("read")
        assert shell.replies == [{"error": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]
        shell.live.drop()

    asyncio.run(run())


def test_C4_a_reply_waits_until_what_was_decided_before_it_is_committed() -> None:
    async def run(shell: Shell) -> None:
        shell.ask("write")
        shell.ask("read")  # sees the write, so it must wait for it
        assert shell.replies == []
        shell.commit()
        assert shell.replies == [{"count": 1}, {"count": 1}]
        shell.ask("read")
        assert shell.replies[2:] == [{"count": 1}]

    with_shell(run)


def test_C4_a_coordinator_in_doubt_tells_of_offsets_only_after_its_followers_have_confirmed_it() -> (
    None
):
    async def run(shell: Shell) -> None:
        shell.in_doubt = True
        shell.ask("read", ApiKey.OFFSET_FETCH)
        assert shell.replies == [], "another may have become leader, and have newer ones"
        shell.commit()
        assert shell.replies == [{"count": 0}], "what it wrote for that means nothing"
        shell.in_doubt = False
        shell.ask("read", ApiKey.OFFSET_FETCH)
        assert shell.replies[1:] == [{"count": 0}]
        assert shell.partition.log_end == 1

    with_shell(run)


def test_C4_a_coordinator_in_doubt_whose_followers_are_gone_sends_its_clients_away() -> None:
    async def run(shell: Shell) -> None:
        shell.in_doubt = True
        shell.partition.refuses = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        shell.ask("read", ApiKey.OFFSET_FETCH)
        assert shell.replies == [{"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}]

    with_shell(run)


def test_who_waits_too_long_for_the_replicas_is_told_to_try_again() -> None:
    async def run() -> None:
        shell = Shell(write_timeout_s=0.0)
        await asyncio.sleep(0)
        shell.ask("write")
        assert shell.replies == []
        await asyncio.sleep(0.01)
        assert shell.replies == [{"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}]
        assert not len(shell.live._deferred), "nor kept"
        shell.commit()
        assert len(shell.replies) == 1, "what is committed late is answered no second time"
        shell.ask("read")
        assert shell.replies[1:] == [{"count": 1}], "and still counts"
        shell.live.drop()

    asyncio.run(run())


def test_the_life_of_a_shard_is_reported() -> None:
    async def run() -> None:
        shell = Shell(write_timeout_s=0.0)
        await asyncio.sleep(0)
        shell.ask("write")
        await asyncio.sleep(0.01)
        shard = shell.live.shard
        shell.ask("write")
        shell.partition.refuses = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        shell.live.drop()
        where = TopicPartition("__topic", 0), 5
        assert shell.heard == [
            ShardLoaded(*where, OpenWork()),
            ShardApplied(*where, 1, shard),
            ReplyTimedOut(*where, 1),
            ShardApplied(*where, 1, shard),
            ShardUnloaded(*where, OpenWork(), 1),
        ]

    asyncio.run(run())


def test_a_shard_that_loads_its_log_again_is_reported_with_the_reason() -> None:
    async def run(shell: Shell) -> None:
        shell.partition.refuses = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        shell.ask("decide")
        (restarted,) = [event for event in shell.heard if isinstance(event, ShardRestarted)]
        assert "NOT_ENOUGH_REPLICAS" in restarted.reason

    with_shell(run)


def test_a_record_that_cannot_be_written_is_refused_and_all_else_goes_on() -> None:
    async def run(shell: Shell) -> None:
        before = shell.live.shard
        shell.partition.refuses = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        shell.ask("write")
        assert shell.replies == [{"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}]
        assert shell.live.shard is before
        assert shell.live.is_loaded

    with_shell(run)


def test_a_shard_that_counted_on_its_records_begins_again_from_the_log() -> None:
    async def run(shell: Shell) -> None:
        shell.ask("write")
        shell.commit()
        shell.partition.refuses = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        shell.ask("decide")
        assert shell.replies[1:] == [{"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}]
        assert not shell.live.is_loaded
        for _ in range(3):
            await asyncio.sleep(0)
        shell.ask("read")
        assert shell.replies[2:] == [{"count": 1}]

    with_shell(run)


def test_below_the_minimum_isr_writes_are_refused_before_they_change_anything() -> None:
    async def run(shell: Shell) -> None:
        shell.partition.is_under_min_isr = True
        shell.ask("decide")
        assert shell.replies == [{"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}]
        assert isinstance(shell.live.shard, CountingShard)
        assert shell.live.shard.promised == 0
        shell.ask("read", ApiKey.OFFSET_FETCH)
        assert shell.replies[1:] == [{"count": 0}]

    with_shell(run)


def test_who_waits_when_leadership_is_lost_is_sent_to_the_next_coordinator() -> None:
    async def run(shell: Shell) -> None:
        shell.ask("write")
        shell.live.drop()
        assert shell.replies == [{"error": ErrorCode.NOT_COORDINATOR}]
        shell.commit()
        assert len(shell.replies) == 1

    with_shell(run)


def test_what_a_shard_writes_is_one_batch_that_can_be_read_again() -> None:
    async def run(shell: Shell) -> None:
        shell.ask("write")
        (raw,) = shell.partition.batches
        (batch,) = batches(memoryview(raw))
        (record,) = records(memoryview(raw), batch)
        assert (record.key, record.value, record.timestamp) == (b"k", b"v", 1000)
        assert not batch.is_transactional

    with_shell(run)


def test_a_shard_that_cannot_be_loaded_sends_its_clients_away_and_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.coordination.live_shard.RELOAD_PAUSE_S", 0.0)

    async def run() -> None:
        shell = Shell()
        shell.partition.log_end = 1  # of which nothing can be read
        monkeypatch.setattr(shell.partition, "read", unreadable)
        for _ in range(3):
            await asyncio.sleep(0.001)
        shell.ask("read")
        assert shell.replies == [{"error": ErrorCode.NOT_COORDINATOR}]
        shell.partition.log_end = 0
        await until(lambda: shell.live.is_loaded)
        shell.ask("read")
        assert shell.replies[1:] == [{"count": 0}]
        shell.live.drop()

    def unreadable(offset: int, **_: Any) -> Any:
        raise OSError("the disk says no")

    asyncio.run(run())


def test_a_shard_whose_disk_fails_while_it_loads_takes_the_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would lead a log that nobody can write any more."""
    failure = LogDirError("/data", OSError("the disk says no"))

    def failing(offset: int, **_: Any) -> Any:
        raise failure

    async def run() -> None:
        shell = Shell()
        shell.partition.log_end = 1
        monkeypatch.setattr(shell.partition, "read", failing)
        await until(lambda: bool(shell.failures))
        assert shell.failures == [failure]
        shell.live.drop()

    asyncio.run(run())


def test_a_shard_whose_timers_fail_is_loaded_anew_once_and_then_goes_on_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(shell: Shell) -> None:
        before = shell.live.shard
        monkeypatch.setattr(CountingShard, "deadline", 0.0)  # it is due, and stays so
        shell.ask("read")
        await until(lambda: shell.live.shard is not before and shell.live.is_loaded)
        again = shell.live.shard
        assert isinstance(again, CountingShard)
        await until(lambda: again.ticks > 0)
        shell.ask("read")
        await asyncio.sleep(0.01)
        shell.ask("read")
        assert shell.replies == [{"count": 0}] * 3
        assert shell.live.shard is again
        assert again.ticks == 1, "there is a pause before it is tried again"

    with_shell(run)


def test_a_shard_is_not_loaded_from_a_log_that_rots() -> None:
    async def run(shell: Shell) -> None:
        shell.ask("write")
        shell.ask("write")
        whole = shell.partition.batches
        leader_epoch = range(12, 16)  # has no bearing, and is not under the CRC
        for byte in sorted({*range(len(whole[1]))} - {*leader_epoch}):
            rotten = bytearray(whole[1])
            rotten[byte] ^= 1
            partition = FakePartition()
            partition.batches = [whole[0], bytes(rotten)]
            partition.log_end = 2
            damaged = Shell(partition=partition)
            for _ in range(3):
                await asyncio.sleep(0)
            ((which, why),) = damaged.damages
            assert which is partition and "from offset 0" in why
            damaged.ask("read")
            assert damaged.replies == [{"error": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]
            damaged.live.drop()

    with_shell(run)
