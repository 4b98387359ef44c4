"""What a leader hands out of its journal: records to those whose log agrees, and to the others the way there.

Whether it leads, and in which epoch, was settled before; `leads` is the answer without anything in it.
"""

from __future__ import annotations

from ottla.raft.journal import Agreement, Diverges, Journal
from ottla.raft.messages import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LogPosition,
    Park,
)
from ottla.raft.snapshots import BOOTSTRAP
from ottla.wire.errors import ErrorCode

FETCH_BYTES_MAX = 1 << 20


def serve_fetch(
    journal: Journal, request: Fetch, agreement: Agreement, leads: FetchAnswer, now: float
) -> FetchAnswer | Park:
    """Answered at once if there are records or a higher watermark, or the log must first be mended."""
    if isinstance(agreement, Diverges):
        return leads._replace(diverging=LogPosition(*agreement))
    if agreement is not None:
        return leads._replace(snapshot_id=agreement)
    found = journal.read(request.offset, request.bytes_max, journal.log_end)
    if found.range is not None:
        return leads._replace(records=found.range)
    if leads.high_watermark > request.high_watermark or request.wait_ms_max == 0:
        return leads
    return Park(now + request.wait_ms_max / 1000, leads)


def serve_snapshot(
    journal: Journal, request: FetchSnapshot, leads: FetchSnapshotAnswer
) -> FetchSnapshotAnswer:
    """The next piece of a checkpoint. The one from formatting is not handed out: its content is in the
    log."""
    id = request.snapshot_id
    if id not in journal.snapshots.ids or id == BOOTSTRAP:
        return leads._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND)
    size = journal.snapshots.size(id)
    if not 0 <= request.position < size:
        return leads._replace(error=ErrorCode.POSITION_OUT_OF_RANGE)
    bytes_max = min(request.bytes_max, FETCH_BYTES_MAX)
    data = journal.snapshots.chunk(id, request.position, bytes_max)
    return leads._replace(size=size, position=request.position, data=data)
