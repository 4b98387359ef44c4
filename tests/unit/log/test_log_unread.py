"""The first record that a consumer would still read, in logs with gaps, markers and aborted transactions."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from compactkit import COMPACT, clean, commit, end_transaction, records_in
from hypothesis import example, given
from hypothesis import strategies as st
from logkit import append, new_log, sim_disk

from ottla.broker.replication.first_unread import (
    first_unread,
    first_unread_by_level,
    offset_in,
    question_about,
)
from ottla.log.errors import InMemory, NotInMemory
from ottla.log.log import Log
from ottla.log.unread import FirstRecord
from ottla.records.record import Record, build
from ottla.runtime import FileRange
from ottla.wire.errors import ErrorCode, KafkaError

FIRST, SECOND = 7, 8


class FakePartition:
    """A partition that leads; only its log is real."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.leadership: object | None = object()

    def leading(self) -> object:
        if self.leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leadership

    def latest_offset(self, read_committed: bool) -> int:
        return self.log.last_stable_offset if read_committed else self.log.high_watermark


class World:
    """A log, and a model that keeps every record with what became of its transaction. What compaction removes is seen by
    reading the whole log, without the code under test."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = sim_disk(seed)
        self.append_time = self.random.random() < 0.3
        kind = "LogAppendTime" if self.append_time else "CreateTime"
        self.log = new_log(self.disk, replace(COMPACT, message_timestamp_type=kind))
        self.log.flush()
        self.timestamps: dict[int, int] = {}
        self.open: dict[int, set[int]] = {}
        self.aborted: set[int] = set()
        self.sequences = {FIRST: 0, SECOND: 0}
        self.now_ms = 1_000_000
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        steps = (self.append, self.append_in_transaction, self.end, self.compact, self.delete)
        (chosen,) = self.random.choices(steps, (4, 4, 3, 1, 1))
        chosen()
        if self.random.random() < 0.7:
            commit(self.log, roll=self.random.random() < 0.2)

    def append(self) -> None:
        self._append(None)

    def append_in_transaction(self) -> None:
        self._append(self.random.choice((FIRST, SECOND)))

    def _append(self, producer: int | None) -> None:
        self.now_ms += 500
        count = self.random.randint(1, 5)
        stamps = [self.now_ms + self.random.randint(-3000, 3000) for _ in range(count)]
        fields: dict[str, Any] = {"codec": self.random.choice((0, 0, 1, 3, 4))}
        if producer is not None:
            fields |= {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer],
                "transactional": True,
            }
            self.sequences[producer] += count
        written = [
            Record(i, stamp, self.random.choice("abcd").encode(), b"value")
            for i, stamp in enumerate(stamps)
        ]
        batch = memoryview(build(written, **fields))
        base = self.log.append_as_leader(batch, 0, self.now_ms).base_offset
        for i, stamp in enumerate(stamps):
            self.timestamps[base + i] = self.now_ms if self.append_time else stamp
            if producer is not None:
                self.open.setdefault(producer, set()).add(base + i)

    def end(self) -> None:
        if self.open:
            producer = self.random.choice(list(self.open))
            committed = self.random.random() < 0.5
            offsets = self.open.pop(producer)
            end_transaction(self.log, producer, committed=committed, now_ms=self.now_ms)
            if not committed:
                self.aborted |= offsets

    def compact(self) -> None:
        commit(self.log)
        clean(self.disk, self.log, self.now_ms + 10_000 * self.random.randint(0, 4))
        kept = {record.offset for record in records_in(self.log)}
        below = [offset for offset in self.timestamps if offset < self.log.log_start]
        gone = self.timestamps.keys() - kept
        self.seen["compacted"] += len(gone) - len(below)
        for offset in gone:
            del self.timestamps[offset]

    def delete(self) -> None:
        room = self.log.last_stable_offset - self.log.log_start
        self.log.advance_log_start(self.log.log_start + int(self.random.random() * 0.3 * room))

    def truth(self, offset: int, *, read_committed: bool) -> FirstRecord | None:
        log = self.log
        end = log.last_stable_offset if read_committed else log.high_watermark
        for at in sorted(self.timestamps):
            if max(offset, log.log_start) <= at < end:
                if not (read_committed and at in self.aborted):
                    return FirstRecord(self.timestamps[at], at)
                self.seen["aborted"] += 1
        return None

    async def check(self) -> None:
        partition: Any = FakePartition(self.log)
        for offset in range(self.log.log_end + 2):
            both = await first_unread_by_level(partition, offset)
            for read_committed in (False, True):
                found = await first_unread(partition, offset, read_committed=read_committed)
                assert found == both[read_committed], (offset, read_committed, self.log)
                truth = self.truth(offset, read_committed=read_committed)
                assert found == truth, (offset, read_committed, self.log)
                self.seen["found" if found else "nothing"] += 1


def test_the_first_visible_record_is_found_from_every_offset() -> None:
    async def run(world: World) -> None:
        for _ in range(25):
            world.step()
            await world.check()

    seen: Counter[str] = Counter()
    for seed in range(30):
        world = World(seed)
        asyncio.run(run(world))
        seen += world.seen
    assert min(seen[what] for what in ("compacted", "aborted", "found", "nothing")) > 100, seen


@given(st.integers(0, (1 << 62) - 1))
@example(0)
def test_a_question_has_the_offset_in_it(offset: int) -> None:
    asked = question_about(offset)
    assert -(1 << 63) <= asked < -6
    assert offset_in(asked) == offset


@pytest.mark.parametrize("timestamp", [0, 1_700_000_000_000, -1, -2, -3, -4, -5, -6])
def test_a_time_is_no_question_about_an_offset(timestamp: int) -> None:
    assert offset_in(timestamp) is None


def test_only_the_leader_answers() -> None:
    log = new_log(sim_disk())
    append(log, 3)
    partition = FakePartition(log)
    partition.leadership = None
    with pytest.raises(KafkaError) as refused:
        asyncio.run(first_unread(partition, 0, read_committed=False))  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_log_that_is_deleted_while_a_thread_reads_is_not_read_again() -> None:
    """Its files are gone: that must not look like a failing disk."""
    log = new_log(sim_disk())
    append(log, 3)
    log.set_high_watermark(log.log_end)
    partition = FakePartition(log)

    class SlowFile:
        path = "cold"

        def bring(self, position: int, size: int) -> None:
            partition.leadership = None

    reads = []

    def read(*args: Any, **options: Any) -> Any:
        reads.append(args)
        cold: Any = SlowFile()
        raise NotInMemory(FileRange(cold, 0, 1), InMemory(place=True))

    log.read = read
    with pytest.raises(KafkaError) as refused:
        asyncio.run(first_unread(partition, 0, read_committed=False))  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(reads) == 1
