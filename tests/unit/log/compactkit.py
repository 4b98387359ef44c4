"""What the tests of compaction share: rounds run to their end, and what a reader then finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logkit import SMALL, content

from ottla.log import cleaner
from ottla.log.compaction import Compaction, Replacement
from ottla.log.log import Log
from ottla.log.segment import OpenFiles
from ottla.records.batch import batches, check_crc
from ottla.records.record import ControlType, Record, build, control_batch, records
from ottla.runtime.seams import Disk

COMPACT = replace(SMALL, cleanup_policy=("compact",), segment_bytes=600, delete_retention_ms=1000)
"""Small segments, and everything is dirty enough."""


def write(log: Log, *pairs: tuple[str, str | None], now_ms: int = 1000, **fields: Any) -> int:
    """One batch of keys with values (None: a tombstone); its base offset."""
    found = [
        Record(i, now_ms + i, key.encode(), None if value is None else value.encode())
        for i, (key, value) in enumerate(pairs)
    ]
    return log.append_as_leader(memoryview(build(found, **fields)), 0, now_ms).base_offset


def end_transaction(log: Log, producer_id: int, *, committed: bool, now_ms: int = 1000) -> int:
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    batch = control_batch(
        [(kind, bytes(6))],
        timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
    )
    return log.append_marker(batch, 0, now_ms, bumps_epoch=False).base_offset


def transactional(log: Log, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> int:
    return write(
        log,
        *pairs,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def commit(log: Log, *, roll: bool = True) -> None:
    """All of it below the high watermark, flushed and, with `roll`, in closed segments."""
    if roll:
        log.roll(0)
    log.flush()
    log.set_high_watermark(log.log_end)


def begin(disk: Disk, log: Log, now_ms: int = 5000, keys_max: int = 1000) -> Compaction | None:
    dirt = cleaner.log_to_clean(log, now_ms)
    if not dirt.dirty_bytes:
        return None
    return Compaction(disk, OpenFiles(disk), cleaner.round_of(log, dirt, now_ms), keys_max)


def clean(disk: Disk, log: Log, now_ms: int = 5000, keys_max: int = 1000) -> Compaction | None:
    """One round, if anything is dirty."""
    compaction = begin(disk, log, now_ms, keys_max)
    if compaction is None:
        return None
    for step in compaction.steps():
        if isinstance(step, Replacement):
            log.replace(step.bases, step.segment, now_ms)
            log.invariants()
    log.cleaned = compaction.cleaned_up_to
    return compaction


def records_in(log: Log) -> list[Record]:
    """All records that are not markers, each batch checked."""
    data = content(log)
    found: list[Record] = []
    for batch in batches(data):
        check_crc(data, batch)
        if not batch.is_control:
            found += records(data, batch)
    return found


def key_of(record: Record) -> str:
    assert record.key is not None, record
    return record.key.decode()


def pairs_in(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (
            record.offset,
            key_of(record),
            None if record.value is None else record.value.decode(),
        )
        for record in records_in(log)
    ]


def names_in(disk: Disk, log: Log) -> list[str]:
    return [name for name in disk.list_dir(log.path) if not name.endswith(".deleted")]


def view(log: Log) -> dict[str, str]:
    """What a consumer of committed records has in its table after it has read everything."""
    data = content(log)
    aborted = log.aborted_transactions(0, log.log_end)
    table: dict[str, str] = {}
    for batch in batches(data):
        check_crc(data, batch)
        if batch.is_control or any(
            row.producer_id == batch.producer_id
            and row.first_offset <= batch.base_offset <= row.last_offset
            for row in aborted
        ):
            continue
        for record in records(data, batch):
            if record.value is None:
                table.pop(key_of(record), None)
            else:
                table[key_of(record)] = record.value.decode()
    return table
