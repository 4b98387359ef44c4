"""What a reader who would not wait for the disk has to know to be in memory before a segment is read.

First the index, then the place where the records begin, then the records: each is looked for only where nobody has
just brought it, so that a reader gets on even where memory forgets at once.
"""

from __future__ import annotations

from ottla.log.errors import InMemory, NotInMemory
from ottla.log.segment import OffsetPosition, Segment
from ottla.runtime.seams import FileRange

BROUGHT_BYTES = 1024 * 1024
"""So much is brought from the disk at a time, or the first batch if that is larger."""
LOOKING_BYTES = 16 * 1024
"""And so much more, in which one looks where a batch ends."""


def check_place(segment: Segment, offset: int) -> None:
    """NotInMemory if one would have to wait to see where the records of this offset begin."""
    if (rows := segment.index.not_in_memory()) is not None:
        raise NotInMemory(rows, InMemory())
    if segment.knows_place(offset):
        return
    position = segment.looks_from(offset)
    size = min(BROUGHT_BYTES, segment.size - position)
    file = segment.opened()
    if size > 0 and file.in_memory(position, size) < size:
        raise NotInMemory(FileRange(file, position, size), InMemory(place=True))


def check_records(
    segment: Segment, start: OffsetPosition, max_bytes: int, in_memory: InMemory, at_least: int = 0
) -> int:
    """How many bytes may be read: `max_bytes`, or what was brought. NotInMemory if one would have to wait for
    them, or for the first `at_least` bytes."""
    if in_memory.size:
        if in_memory.size >= at_least:
            return min(max_bytes, in_memory.size)
    else:
        wanted = min(max_bytes + LOOKING_BYTES, segment.size - start.position)
        if wanted <= 0 or segment.opened().in_memory(start.position, wanted) == wanted:
            return max_bytes
    segment.remember(start)
    size = max(at_least, min(max_bytes, BROUGHT_BYTES))
    raise NotInMemory(
        FileRange(segment.opened(), start.position, size + LOOKING_BYTES),
        InMemory(place=True, size=size),
    )
