"""The consumer's own words inside the classic protocol: which topics a member subscribes to.

To a coordinator a member's metadata is opaque; but offsets of a topic that nobody of a group reads may expire,
so this much is read of it: version (int16), topic names, and whatever follows is left alone.
"""

from __future__ import annotations

import struct

PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """None if it is not a consumer's subscription."""
    try:
        (_, count) = struct.unpack_from(">hi", metadata)
        position = 6
        names = []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            raw = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(raw) < length:
                return None
            names.append(raw.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(names)
