"""The events of logs: emitted once, with what an operator needs to know."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from logkit import SMALL, append, batch_of, sim_disk

from ottla.events import Event, Events
from ottla.events.storage import (
    CleanShutdownRecognized,
    DuplicateBatchAnswered,
    LogDirectoryFailed,
    LogSetAside,
    ProducerFenced,
    SegmentsExpired,
    TornTailCut,
)
from ottla.log.manager import LogManager
from ottla.wire.errors import KafkaError
from ottla.wire.types import TopicPartition

KEY = TopicPartition("t", 0)


@pytest.fixture
def heard() -> list[Event]:
    return []


def started(disk, heard: list[Event]) -> LogManager:
    events = Events()
    events.subscribe(heard.append)
    manager = LogManager(disk, ["/data"], SMALL, new_id=lambda: UUID(int=5), events=events)
    manager.start("c", 1, now_ms=0)
    return manager


def created(manager: LogManager, config=SMALL):
    return manager.create("t", UUID(int=7), 0, config, 0)


def test_a_clean_shutdown_is_recognized_at_the_next_start(heard):
    disk = sim_disk()
    manager = started(disk, heard)
    created(manager)
    manager.close(clean=True, broker_epoch=4)
    assert heard == []
    started(disk, heard)
    assert heard == [CleanShutdownRecognized(("/data",), 4)]


def test_a_torn_tail_is_reported_with_what_was_cut(heard):
    disk = sim_disk()
    manager = started(disk, heard)
    log = created(manager)
    append(log, 2)
    whole = log.size_bytes
    append(log)
    path = log.segments[-1].path
    manager.close(clean=False)
    file = disk.open(path)
    file.truncate(whole + 10)
    file.close()
    started(disk, heard)
    assert heard == [TornTailCut(KEY, "/data", 10, 2)]


def test_expired_segments_are_reported_with_the_reason(heard):
    manager = started(sim_disk(), heard)
    log = created(manager, replace(SMALL, retention_ms=100))
    for _ in range(20):
        append(log, 2, value=b"x" * 100)
    size = log.size_bytes
    log.advance_high_watermark(log.log_end)
    dropped = manager.retention(now_ms=10_000)[KEY]
    assert heard == [SegmentsExpired(KEY, "/data", dropped, size, log.log_start, ("retention.ms",))]


def test_a_directory_that_fails_and_a_log_set_aside_are_reported(heard):
    manager = started(sim_disk(), heard)
    created(manager)
    path = manager.set_aside(KEY)
    created(manager)
    manager.mark_offline("/data", OSError("broken"))
    manager.mark_offline("/data", OSError("broken"))
    assert heard == [
        LogSetAside(KEY, "/data", path),
        LogDirectoryFailed("/data", "broken", (KEY,)),
    ]


def test_a_retry_and_a_fenced_producer_are_reported(heard):
    log = created(started(sim_disk(), heard))
    fields = {"producer_id": 9, "base_sequence": 0}
    append(log, producer_epoch=1, **fields)
    append(log, producer_epoch=1, **fields)
    with pytest.raises(KafkaError):
        log.append_as_leader(batch_of(producer_epoch=0, **fields), 0, 1000)
    assert heard == [DuplicateBatchAnswered(KEY, 9, 1, 0, 0), ProducerFenced(KEY, 9, 0, 1)]
