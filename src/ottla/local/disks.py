"""Why a node cannot write to its directories, as this process sees it.

A node on a full disk ends, and may be unable to write into its log why. So the commands look themselves.
"""

from __future__ import annotations

import os
from pathlib import Path

from ottla.log.checkpoints import META_PROPERTIES

ROOM_BYTES_MIN = 1 << 20
"""A node with less room than this, in bytes, would end again at once."""


def is_gone(directory: Path) -> bool:
    """Whether nothing says any more that this is the log directory of a node: its disk was replaced, or it was deleted. One
    that cannot be read is there."""
    try:
        os.stat(directory / META_PROPERTIES)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def trouble_with(directory: Path) -> str | None:
    """`DIR: its disk is full, 12 KiB are free; free some space there`; None if nothing is wrong with it."""
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError as error:
        return f"{directory}: {error.strerror}; look at that disk"
    free = found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)
    if found.f_flag & os.ST_RDONLY:
        return f"{directory}: its disk can only be read; mount it for writing"
    if free < ROOM_BYTES_MIN:
        return f"{directory}: its disk is full, {free >> 10} KiB are free; free some space there"
    if found.f_files and not found.f_ffree:
        return f"{directory}: its disk is full, no inode is free; remove some files there"
    return None
