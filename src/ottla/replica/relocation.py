"""A replica that moves to another directory of its broker: its future log follows the current one.

The current log goes on as before: it is led or followed, it is appended to and truncated. The future log holds a beginning of
it, found by leader epochs as between a follower and its leader, and is copied further until it holds the same.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.errors import InMemory
from ottla.log.log import Log
from ottla.log.replacement import announce_gaps
from ottla.runtime.seams import FileRange

NO_EPOCH = -1


class Chunk(NamedTuple):
    """Whole batches of the current log that come next."""

    range: FileRange
    epoch: int
    """The last of the current log."""
    generation: int
    """Of the current log. If it has another one when the bytes are read, they may be of records that it truncated."""


def agreement(current: Log, future: Log) -> int | None:
    """The offset up to which the future log holds what the current one does; None if they have nothing in common. A leader
    epoch has one leader, so logs that both have records of an epoch agree up to there."""
    if not future.epochs.entries:
        return min(future.log_end, current.log_end)
    ends = _ends(current)
    for epoch, end in reversed(_ends(future).items()):
        if epoch in ends:
            return min(end, ends[epoch])
    return None


def _ends(log: Log) -> dict[int, int]:
    """Where each epoch ends."""
    entries = log.epochs.entries
    following = [*(start for _, start in entries), log.log_end][1:]
    return {epoch: end for (epoch, _), end in zip(entries, following, strict=True)}


def follow(current: Log, future: Log) -> None:
    """Drop from the future log what the current one has no longer, at both ends."""
    future.config = current.config
    if current.cleaned is not None and future.cleaned is None:
        announce_gaps(future)
    at = agreement(current, future)
    begins_within = future.log_start <= current.log_start <= future.log_end
    if at is None or not begins_within or at < current.log_start:
        future.truncate_fully(current.log_start)
    elif at < future.log_end:
        future.truncate_to(at)
        if future.log_end < current.log_start:
            future.truncate_fully(current.log_start)
    if future.log_start < current.log_start:
        future.advance_log_start(current.log_start)
    future.advance_high_watermark(current.high_watermark)
    if len(future.segments) > 1 and future.segments[1].base <= future.log_start:
        future.delete_segments_below_start(now_ms=0)


def behind(current: Log, future: Log) -> int:
    """How many bytes are to be copied. Exactly: what seems little is copied in one turn of the event loop."""
    return current.exact_bytes_from(future.log_end) if future.log_end < current.log_end else 0


def next_chunk(
    current: Log, future: Log, max_bytes: int, in_memory: InMemory | None = None
) -> Chunk | None:
    """None if the future log holds all. NotInMemory: see `Log.read`."""
    follow(current, future)
    if future.log_end >= current.log_end:
        return None
    found = current.read(
        future.log_end, max_bytes=max_bytes, end_offset=current.log_end, in_memory=in_memory
    )
    if found.range is None:
        return None
    latest = current.epochs.latest
    return Chunk(found.range, NO_EPOCH if latest is None else latest, current.generation)


def append(future: Log, records: bytes, epoch: int) -> int:
    """What was read of a chunk. It may be called in a thread if the future log holds something already: an empty one may
    have to begin anew. Returns how many bytes."""
    before = future.log_end
    future.append_as_follower(memoryview(records), epoch)
    return len(records) if future.log_end > before else 0


def copy_rest(current: Log, future: Log, max_bytes: int) -> int:
    """Here and now, so that both hold the same. Returns how many bytes that were."""
    copied = 0
    while (chunk := next_chunk(current, future, max_bytes)) is not None:
        size = append(future, chunk.range.read(), chunk.epoch)
        assert size, (current, future)
        copied += size
    return copied


def flush_as(current: Log, future: Log) -> None:
    """What the current log had flushed before it answered is durable in the future log, too, before the current one goes."""
    if future.recovery_point < current.recovery_point:
        future.flush()
