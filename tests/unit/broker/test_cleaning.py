"""Compaction as the broker drives it: one bad log does not stop the others, and what happens to a log between two
steps ends its round."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.replication.log_cleaner import Cleaning
from ottla.config.values import FLOAT_MAX
from ottla.log.config import LogConfig
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.room import NO_WATERMARK, Watermark
from ottla.records.record import Record, build
from ottla.sim.engine.disk import SimDisk
from ottla.wire.types import TopicPartition

COMPACT = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, max_message_bytes=500, retention_ms=-1
)


class Broker:
    """A log manager, a clock, and somebody to tell of failed disks."""

    def __init__(
        self, bytes_per_second: float = FLOAT_MAX, watermark: Watermark = NO_WATERMARK
    ) -> None:
        self.disk = SimDisk(random.Random(1))
        ids = count(1)
        self.logs = LogManager(
            self.disk,
            ["/data"],
            COMPACT,
            new_id=lambda: UUID(int=next(ids)),
            watermark=watermark,
        )
        self.logs.start("cluster", 1, 0)
        self.failed: list[LogDirError] = []
        self.time = 0.0
        self.between_steps: Any = lambda: None
        clock: Any = SimpleNamespace(wall_ms=lambda: 5000, monotonic=lambda: self.time)
        settings: Any = SimpleNamespace(
            log_cleaner_dedupe_buffer_size=1 << 20,
            log_cleaner_threads=1,
            log_cleaner_io_max_bytes_per_second=bytes_per_second,
        )
        this: Any = self
        self.cleaning = Cleaning(settings, clock, this, self._in_thread)

    def directory_failed(self, error: LogDirError) -> None:
        self.failed.append(error)
        self.logs.mark_offline(error.directory, error.cause)

    async def _in_thread(self, work: Any) -> Any:
        done = work()
        self.between_steps()
        return done

    def dirty(self, topic: str, keys: Sequence[int] = (0, 1, 2) * 13 + (0,)) -> Log:
        log = self.logs.create(topic, UUID(int=7), 0, COMPACT, 0)
        for number, key in enumerate(keys):
            record = Record(0, 1000, f"k{key}".encode(), str(number).encode())
            log.append_as_leader(memoryview(build([record])), 0, 1000)
        log.roll(0)
        log.flush()
        log.set_high_watermark(log.log_end)
        return log

    def clean(self) -> None:
        asyncio.run(self.cleaning.clean_all_dirty())


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_all_dirty_logs_are_compacted(broker: Broker) -> None:
    logs = [broker.dirty(topic) for topic in ("a", "b", "c")]
    broker.clean()
    assert [log.size_bytes < 300 for log in logs] == [True, True, True]
    assert [log.cleaned for log in logs] == [40, 40, 40]


def test_a_log_that_cannot_be_read_is_left_alone_and_the_others_go_on(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = broker.dirty("bad"), broker.dirty("good")
    broker.disk.rot(f"{bad.path}/{0:020d}.log", 70)
    before = broker.disk.list_dir(bad.path)
    broker.clean()
    broker.clean()
    assert good.cleaned == 40 and bad.cleaned is None
    assert bad.uncleanable is not None and "CRC" in bad.uncleanable
    assert broker.disk.list_dir(bad.path) == before
    assert len([line for line in caplog.messages if "is not compacted any more" in line]) == 1


def test_a_log_that_is_cut_or_deleted_meanwhile_ends_the_round(broker: Broker) -> None:
    cut, deleted = broker.dirty("cut"), broker.dirty("deleted")
    steps = count()

    def trouble() -> None:
        if next(steps) == 3:
            cut.truncate_to(10)
            if not deleted.gone:
                broker.logs.delete(TopicPartition("deleted", 0), 0)

    broker.between_steps = trouble
    broker.clean()
    assert cut.log_end == 10 and not broker.failed
    assert not [n for n in broker.disk.list_dir(cut.path) if n.endswith((".cleaned", ".swap"))]


def test_a_disk_that_fails_is_told_and_the_round_ends(broker: Broker) -> None:
    log = broker.dirty("t")
    broker.disk.fail("write", log.path, error=errno.EIO)
    broker.clean()
    assert [error.directory for error in broker.failed] == ["/data"]


def test_compaction_leaves_half_of_the_headroom_free_and_goes_on_when_there_is_room() -> None:
    """What it replaces stays on the disk for a while, so a round over a large log would fill it."""
    broker = Broker(watermark=Watermark(90))
    disk = broker.disk
    log = broker.dirty("t", keys=[number if number % 8 else 0 for number in range(400)])
    disk.capacity_bytes, headroom = 1_000_000, 100_000
    disk.taken_bytes = disk.free_bytes - headroom // 2 - 5_000
    least = []
    broker.between_steps = lambda: least.append(disk.free_bytes)
    broker.logs.look_for_room()
    broker.clean()
    assert log.cleaned != 400 and len(least) > 5, "it began"
    assert min(least) >= headroom // 2
    for path in log.doomed_by(1 << 60):
        disk.remove(path)
    disk.taken_bytes = 0
    broker.logs.look_for_room()
    broker.clean()
    assert log.cleaned == 400


def test_rounds_wait_where_they_are_faster_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(bytes_per_second=100_000.0)
    before = broker.dirty("t").size_bytes

    async def sleep(seconds: float) -> None:
        broker.time += seconds

    monkeypatch.setattr("ottla.broker.replication.log_cleaner.asyncio.sleep", sleep)
    broker.clean()
    assert 2 * before / 100_000 <= broker.time < 4 * before / 100_000


def test_a_new_rate_holds_for_rounds_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(bytes_per_second=1.0)
    before = broker.dirty("t").size_bytes
    broker.cleaning.configure(threads=2, dedupe_bytes=1 << 20, bytes_per_second=200_000.0)

    async def sleep(seconds: float) -> None:
        broker.time += seconds

    monkeypatch.setattr("ottla.broker.replication.log_cleaner.asyncio.sleep", sleep)
    broker.clean()
    assert 2 * before / 100_000 <= broker.time < 4 * before / 100_000
