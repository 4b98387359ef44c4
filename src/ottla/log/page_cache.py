"""Whether a segment can be read without waiting for the disk.

Three things have to be in memory: the index, the part of the file where the first batch is searched for, and the records.
Each is checked only if the reader has not just loaded it. So a reader makes progress even if the system drops pages from
memory at once.
"""

from __future__ import annotations

from ottla.log.errors import InMemory, NotInMemory
from ottla.log.segment import OffsetPosition, Segment
from ottla.runtime.seams import FileRange

READ_AHEAD_BYTES = 1024 * 1024
"""Loaded from the disk at a time, or the first batch if that is larger."""
SCAN_AHEAD_BYTES = 16 * 1024
"""Loaded beyond that, for the search for the end of a batch."""


def check_position_in_memory(segment: Segment, offset: int) -> None:
    """NotInMemory unless the position of this offset can be found without the disk."""
    if (rows := segment.index.not_in_memory()) is not None:
        raise NotInMemory(rows, InMemory())
    if segment.has_resume_position(offset):
        return
    position = segment.scan_start(offset)
    size = min(READ_AHEAD_BYTES, segment.size - position)
    file = segment.opened()
    if size > 0 and file.in_memory(position, size) < size:
        raise NotInMemory(FileRange(file, position, size), InMemory(place=True))


def check_records_in_memory(
    segment: Segment, start: OffsetPosition, max_bytes: int, in_memory: InMemory, at_least: int = 0
) -> int:
    """How many bytes may be read: `max_bytes`, or what the reader has loaded. NotInMemory if these, or the first
    `at_least` bytes, have to come from the disk."""
    if in_memory.size:
        if in_memory.size >= at_least:
            return min(max_bytes, in_memory.size)
    else:
        wanted = min(max_bytes + SCAN_AHEAD_BYTES, segment.size - start.position)
        if wanted <= 0 or segment.opened().in_memory(start.position, wanted) == wanted:
            return max_bytes
    segment.remember(start)
    size = max(at_least, min(max_bytes, READ_AHEAD_BYTES))
    raise NotInMemory(
        FileRange(segment.opened(), start.position, size + SCAN_AHEAD_BYTES),
        InMemory(place=True, size=size),
    )
