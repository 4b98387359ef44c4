"""The files of segments that a log has dropped: renamed at once, removed after file.delete.delay.ms.

A reader that has such a file open goes on reading. A crash leaves files that end in `.deleted`; recovery removes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.resources import LogResources
from ottla.log.segment import SEGMENT_KINDS, Segment

DELETED = ".deleted"


class DeletedSegments:
    def __init__(self, resources: LogResources) -> None:
        self._disk = resources.disk
        self._files = resources.files
        self._due_ms: dict[str, int] = {}
        """When each file may be removed. A segment that is dropped, begun again and dropped again replaces the first."""

    def add(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files of these segments, in the given order."""
        for segment in segments:
            self._files.forget(segment)
            for kind in SEGMENT_KINDS:
                source, target = segment.stem + kind, segment.stem + kind + DELETED
                if not self._disk.exists(source):
                    continue  # an empty segment has no indexes yet
                self._disk.rename(source, target)
                self._due_ms[target] = due_ms

    def share(self, resources: LogResources) -> None:
        """The log is in use from now on, among others."""
        self._files = resources.files

    def moved_to(self, directory: str) -> None:
        """The directory of the log has another name."""
        self._due_ms = {
            f"{directory}/{path.rpartition('/')[2]}": when for path, when in self._due_ms.items()
        }

    def take_due(self, now_ms: int) -> list[str]:
        """The files whose delay is over. Each is returned once; the caller removes it."""
        due = [path for path, when in self._due_ms.items() if when <= now_ms]
        for path in due:
            del self._due_ms[path]
        return due
