"""How full a disk may become before its logs refuse to grow, and when they go on."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from logkit import DIRECTORY, SMALL, append, batch_of, sim_disk

from ottla.events import Event, Events
from ottla.events.storage import LogDirectoryRoomChanged
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.room import (
    LOOK_AFTER_BYTES_MAX,
    UNLIMITED,
    DirectoryRoom,
    Level,
    Watermark,
    level_of,
)
from ottla.sim.engine.disk import SimDisk
from ottla.wire.errors import ErrorCode, KafkaError

MIB = 1 << 20
HEADROOM = 100_000


def test_the_headroom_is_a_share_of_the_disk_and_has_a_limit() -> None:
    assert Watermark(95).headroom(1000) == 50
    assert Watermark(95, 5 << 30).headroom(100 << 30) == 5 << 30
    assert Watermark(95, 5 << 30).headroom(1 << 30) == (1 << 30) * 5 // 100
    assert Watermark(100).headroom(1000) == 0


def test_a_level_begins_at_its_mark_and_ends_when_a_fifth_more_is_free() -> None:
    level, seen = Level.AMPLE, []
    for free in (1000, 999, 600, 500, 499, 599, 600, 1199, 1200, 1000):
        level = level_of(free, 1000, level)
        seen.append((free, level.name))
    assert seen == [
        (1000, "AMPLE"),
        (999, "SCARCE"),
        (600, "SCARCE"),
        (500, "SCARCE"),
        (499, "NONE"),
        (599, "NONE"),
        (600, "SCARCE"),
        (1199, "SCARCE"),
        (1200, "AMPLE"),
        (1000, "AMPLE"),
    ]


def crowded(free: int) -> tuple[LogManager, SimDisk, list[Event]]:
    disk = sim_disk()
    events = Events()
    seen: list[Event] = []
    events.subscribe(seen.append, LogDirectoryRoomChanged)
    disk.capacity_bytes = 10 * MIB
    disk.taken_bytes = 10 * MIB - free
    manager = LogManager(
        disk,
        [DIRECTORY],
        SMALL,
        new_id=lambda: UUID(int=1),
        events=events,
        watermark=Watermark(90, HEADROOM),
    )
    manager.start("c", 1, 0)
    return manager, disk, seen


def new(manager: LogManager) -> Log:
    return manager.create("t", UUID(int=40), 0, SMALL, 0)


def test_records_are_refused_while_the_disk_is_nearly_full() -> None:
    manager, disk, seen = crowded(free=8 * MIB)
    log = new(manager)
    append(log, 1)
    disk.taken_bytes = 10 * MIB - disk.used_bytes - HEADROOM + 1
    manager.look_for_room()
    with pytest.raises(KafkaError, match="nearly full") as refused:
        append(log, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed is None and log.log_end == 1
    copied = batch_of(1)
    log.append_as_follower(_of_epoch(copied, 1, 0), 0)
    assert log.log_end == 2, "followers may copy what leaders had taken"
    disk.taken_bytes += HEADROOM // 2
    manager.look_for_room()
    with pytest.raises(KafkaError):
        log.append_as_follower(_of_epoch(batch_of(1), 2, 0), 0)
    assert log.log_end == 2
    assert log.read(0, max_bytes=10_000, end_offset=2).range is not None, "reads go on"
    disk.taken_bytes = 0
    manager.look_for_room()
    append(log, 1)
    assert [event.level for event in seen if isinstance(event, LogDirectoryRoomChanged)] == [
        "scarce",
        "none",
        "ample",
    ]


def _of_epoch(batch: memoryview, offset: int, epoch: int) -> memoryview:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return batch


def test_a_start_on_a_full_disk_takes_no_record() -> None:
    manager, _, _ = crowded(free=HEADROOM // 4)
    with pytest.raises(KafkaError):
        append(new(manager), 1)


def test_a_log_that_fills_the_disk_itself_stops_in_time() -> None:
    """By what it writes, between two looks by the clock."""
    for seed in range(10):
        chance = random.Random(seed)
        manager, disk, _ = crowded(free=HEADROOM + chance.randrange(50_000))
        log = new(manager)
        with pytest.raises(KafkaError):
            for _ in range(10_000):
                append(log, 1, value=bytes(chance.randrange(600)))
        assert disk.free_bytes > HEADROOM // 2
        assert log.failed is None and not manager.offline_directories


def test_without_a_watermark_the_disk_is_never_asked() -> None:
    class Silent(SimDisk):
        def usage(self, path: str) -> tuple[int, int]:
            raise AssertionError("asked")

    room = DirectoryRoom(Silent(random.Random(1)), "/", Watermark(100), lambda room: None)
    room.left -= 5
    room.look()
    assert (room.left, room.level) == (UNLIMITED, Level.AMPLE)


def test_a_disk_far_from_its_mark_is_asked_seldom_and_one_that_cannot_answer_is_as_before() -> None:
    disk = SimDisk(random.Random(1))
    room = DirectoryRoom(disk, "/", Watermark(95, 5 << 30), lambda room: None)
    room.look()
    assert room.left == LOOK_AFTER_BYTES_MAX

    def fail(path: str) -> tuple[int, int]:
        raise OSError

    disk.usage = fail  # type: ignore[method-assign]
    room.look()
    assert room.level is Level.AMPLE and room.left > 0
