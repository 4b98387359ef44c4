"""What all logs of a node share."""

from __future__ import annotations

from ottla.events import Events
from ottla.log.segment import OpenFiles
from ottla.runtime.seams import Disk


class LogResources:
    """The disk, the open files, and the events. Without the last two a log has its own."""

    __slots__ = ("disk", "events", "files")

    def __init__(
        self, disk: Disk, files: OpenFiles | None = None, events: Events | None = None
    ) -> None:
        self.disk = disk
        self.files = files if files is not None else OpenFiles(disk)
        self.events = events if events is not None else Events()
