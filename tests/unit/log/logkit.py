"""What the tests of the log share: batches to append, a simulated disk to lose, short ways to open and read."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.batch import Batch, batches
from ottla.records.record import Record, build
from ottla.runtime.seams import Disk
from ottla.sim.engine.disk import SimDisk

DIRECTORY = "/data"
TOPIC_ID = UUID(int=77)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150, max_message_bytes=900)

COMPACTED = replace(SMALL, cleanup_policy=("compact",))
"""Takes batches with gaps between them."""


def sim_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_dirs(DIRECTORY)
    disk.flush_dir("/")
    return disk


def new_log(disk: Disk, config: LogConfig = SMALL, *, directory: str = DIRECTORY) -> Log:
    return Log.create(LogResources(disk), directory, "t", 0, config, topic_id=TOPIC_ID, now_ms=0)


def reopen(
    disk: Disk,
    *,
    recovery_point: int = 0,
    clean: bool = False,
    config: LogConfig = SMALL,
    log_start: int = 0,
) -> Log:
    log = Log.open(
        LogResources(disk),
        DIRECTORY,
        "t",
        0,
        config,
        recovery_point=recovery_point,
        log_start=log_start,
        clean=clean,
        now_ms=0,
    )
    log.invariants()
    return log


def batch_of(
    count: int = 1, *, timestamp: int = 1000, value: bytes = b"value", **fields
) -> memoryview:
    records = [Record(i, timestamp + i, b"key", value, ()) for i in range(count)]
    return memoryview(build(records, **fields))


def append(log: Log, count: int = 1, *, epoch: int = 0, now_ms: int = 1000, **fields) -> int:
    """Append one batch as a client would; its base offset."""
    return log.append_as_leader(batch_of(count, **fields), epoch, now_ms).base_offset


def content(log: Log, start: int | None = None, end: int | None = None) -> bytes:
    """All bytes from `start` on, read as a consumer does."""
    offset = log.log_start if start is None else start
    end = log.log_end if end is None else end
    data = b""
    while True:
        result = log.read(offset, max_bytes=400, end_offset=end)
        if result.range is None:
            return data
        assert result.next_offset > offset
        data += result.range.read()
        offset = result.next_offset


def batches_in(log: Log, start: int | None = None, end: int | None = None) -> list[Batch]:
    return list(batches(content(log, start, end)))


def offsets_in(log: Log, start: int | None = None, end: int | None = None) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.last_offset) for batch in batches_in(log, start, end)]


def producers_of(log: Log) -> dict[int, tuple[Any, ...]]:
    return {key: producer.state() for key, producer in sorted(log.producers.producers.items())}
