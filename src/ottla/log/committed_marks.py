"""How far each log is known to be committed, exactly, also after `kill -9`.

The high watermark's checkpoint is up to five seconds old. That is enough to start from, but not to say which of the
records that a truncation cuts off were committed. So every move of a high watermark is also written here: twelve bytes at
the log's place in one file of its log directory, without a flush. The system keeps them when the process dies.

A mark is an offset and the epoch of the record before it. A leader epoch has one leader, so a log whose record there has
this epoch holds exactly what was committed up to there. A mark that says otherwise is not of this log's present content (a
power loss, a truncation, or another program came in between), and does not count. So nothing here needs to be durable or
lowered in time, and the start value of the high watermark stays that of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from uuid import UUID

from ottla.log.log import Log
from ottla.log.mark import CommittedMark
from ottla.runtime.seams import Disk, File
from ottla.wire.types import TopicPartition

FILE = "ottla-committed-offsets"
SLOT = Struct("<16siqi")
"""Topic id, partition, offset, epoch. 32 bytes: a slot never crosses a page."""
MARK_AT = 20


class CommittedMarks:
    """The marks of one log directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE}"
        self._file: File | None = None
        self._slots: dict[TopicPartition, int] = {}
        self._free: list[int] = []

    def start(self, logs: Iterable[Log]) -> None:
        """Read the marks of the last process, tell the logs, and begin a new file with what still counts."""
        found = dict(self._read())
        content = bytearray()
        marked = list(logs)
        for number, log in enumerate(marked):
            offset, epoch = found.get((log.topic_id, log.partition), (0, -1))
            if log.log_start < offset <= log.log_end and epoch == _epoch_before(log, offset):
                log.known_committed = max(log.known_committed, offset)
            content += _slot(log, log.known_committed)
            self._slots[log.key] = number
        temporary = f"{self._path}.tmp"
        file = self._disk.open(temporary, create=True)
        file.truncate(0)
        if content:
            file.append(content)
        self._disk.rename(temporary, self._path)
        self._file = file
        for log in marked:
            log.mark = CommittedMark(file, self._slots[log.key] * SLOT.size + MARK_AT)

    def _read(self) -> Iterator[tuple[tuple[UUID, int], tuple[int, int]]]:
        if not self._disk.exists(self._path):
            return
        content = self._disk.read(self._path)
        whole = len(content) // SLOT.size * SLOT.size
        for id, partition, offset, epoch in SLOT.iter_unpack(content[:whole]):
            yield (UUID(bytes=id), partition), (offset, epoch)

    def add(self, log: Log) -> None:
        """A new log gets a place."""
        assert self._file is not None, "not started"
        number = self._free.pop() if self._free else self._file.size // SLOT.size
        self._slots[log.key] = number
        position = number * SLOT.size
        self._file.write_at(position, _slot(log, 0))
        log.mark = CommittedMark(self._file, position + MARK_AT)

    def remove(self, log: Log) -> None:
        """The log is deleted or set aside: another may take its place."""
        log.mark = None
        number = self._slots.pop(log.key, None)
        if number is not None:
            self._free.append(number)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _slot(log: Log, offset: int) -> bytes:
    epoch = _epoch_before(log, offset)
    return SLOT.pack(log.topic_id.bytes, log.partition, offset, -1 if epoch is None else epoch)


def _epoch_before(log: Log, offset: int) -> int | None:
    return log.epochs.epoch_for_offset(offset - 1)
