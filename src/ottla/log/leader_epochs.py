"""The leader epochs of a partition, and the offset at which each begins.

With these a follower finds where its log parts from its leader's (KIP-101, KIP-279). Entries rise strictly in both
fields. While the log is open the cache is authoritative. `leader-epoch-checkpoint` is written before the recovery point
passes an entry, and at close. What a crash loses of it is rebuilt from the batches after the recovery point. Only an epoch
without a batch can be lost that way, and no replica needs it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from ottla.log import checkpoints
from ottla.runtime.seams import Disk

UNDEFINED = (-1, -1)


class LeaderEpochCache:
    """Kafka: LeaderEpochFileCache."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = list(entries)
        """(epoch, start offset)"""
        self.dirty = False
        """Differs from the checkpoint file."""

    @property
    def latest(self) -> int | None:
        return self.entries[-1][0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` on the log is written in `epoch`. An earlier epoch that begins there or later has no batch,
        and is removed."""
        assert epoch >= 0 and start_offset >= 0, (epoch, start_offset)
        entries = self.entries
        if entries and entries[-1][0] == epoch:
            assert entries[-1][1] <= start_offset, (entries[-1], start_offset)
            return
        assert not entries or entries[-1][0] < epoch, (entries[-1], epoch)  # D6: epochs rise
        while entries and entries[-1][1] >= start_offset:
            entries.pop()
        entries.append((epoch, start_offset))
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ends (KIP-279). (-1, -1) if `epoch` is negative or newer
        than all. For an epoch older than all known ones the answer is that epoch and the first known start: its records
        are gone, and everything that is left comes later."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end
        above = bisect_right(entries, epoch, key=_epoch)
        if above == 0:
            return epoch, entries[0][1]
        return entries[above - 1][0], entries[above][1]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was, or would be, written."""
        index = bisect_right(self.entries, offset, key=_start)
        return self.entries[index - 1][0] if index else None

    def truncate_from_end(self, offset: int) -> None:
        """Forget epochs that begin at `offset` or later."""
        while self.entries and self.entries[-1][1] >= offset:
            self.entries.pop()
            self.dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """Forget epochs that end at or before `offset`; the one that spans it begins there."""
        index = bisect_right(self.entries, offset, key=_start)
        if index and self.entries[index - 1][1] < offset:
            self.entries[:index] = [(self.entries[index - 1][0], offset)]
            self.dirty = True
        elif index > 1:
            del self.entries[: index - 1]
            self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self.entries)
        self.entries.clear()

    def invariants(self) -> None:
        """D6: epochs and start offsets rise strictly."""
        for (epoch, start), (next_epoch, next_start) in zip(
            self.entries, self.entries[1:], strict=False
        ):
            assert epoch < next_epoch and start < next_start, self.entries


class LeaderEpochCheckpointFile:
    """`leader-epoch-checkpoint` of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
        self._content = b""
        """What the file has to hold, as it was decided last."""
        self._is_retired = False

    def retire(self) -> None:
        """The log is closed or deleted. A log of the same name may be created at this path at any time, and a writer that
        still waits for its thread must not overwrite the epochs of that one."""
        self._is_retired = True

    def writer(self, entries: Sequence[tuple[int, int]]) -> Callable[[], None]:
        """A call that writes these entries, and may run in a thread. The file is durable once the directory is flushed;
        until then the old one serves recovery as well."""
        self._content = checkpoints.epochs_text(entries)

        def write() -> None:
            written = None
            # Again if other entries were decided meanwhile: the log may have been emptied.
            while written is not self._content and not self._is_retired:
                written = self._content
                self._disk.replace(self._path, written, durable=False)

        return write


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
