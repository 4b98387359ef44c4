"""What is committed, recorded outside of the cluster.

A `LogCopy` is a log as it was seen on the disk of one node, batch by batch, with a hash over everything up to the end of
each batch: two logs are equal up to an offset exactly if their hashes there are equal. The `Ledger` of a partition is the
copy of what was committed. It only grows, whatever happens to the nodes, unless the cluster itself records a loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from ottla.log.log import Log
from ottla.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, Batch, read_batch
from ottla.sim.engine.disk import SimDisk
from ottla.sim.oracle.rules import RULES
from ottla.wire.types import TopicPartition

NOTES_KEPT = 24
EMPTY = b""


class Violation(Exception):
    """An invariant is broken: which rule, where (node, partition, time), what was found, the last seen there."""

    def __init__(self, rule: str, where: str, what: str, history: list[str]) -> None:
        super().__init__(rule, where, what)
        self.rule = rule
        self.where = where
        self.what = what
        self.history = history

    def __str__(self) -> str:
        lines = [f"{self.rule} {self.where}: {self.what}"]
        if self.rule in RULES:
            lines.append(f"expected: {RULES[self.rule].says}")
        if self.history:
            lines += ["last seen there:", *(f"  {line}" for line in self.history)]
        return "\n".join(lines)


class SeenBatch(NamedTuple):
    """One batch of a log, as it was seen on disk."""

    base: int
    end: int
    """The offset after its last record."""
    epoch: int
    hash: bytes
    """The hash of this batch and all before it."""
    segment: int
    position: int
    size: int
    producer_id: int = NO_PRODUCER_ID
    sequence: int = NO_SEQUENCE


class LogCopy:
    """What a log held when its disk was last seen."""

    def __init__(self, start: int = 0, base_hash: bytes = EMPTY) -> None:
        self.start = start
        self._base_hash = base_hash
        self.batches: list[SeenBatch] = []
        self.epochs: list[tuple[int, int]] = []
        """(epoch, first offset), from the batches."""
        self._ends: list[int] = []

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else self.start

    def hash_at(self, offset: int) -> bytes | None:
        """The hash of everything below `offset`; None if it is within a batch, or outside of what was seen."""
        if offset == self.start:
            return self._base_hash
        at = bisect_left(self._ends, offset)
        if at < len(self._ends) and self._ends[at] == offset:
            return self.batches[at].hash
        return None

    def floor(self, offset: int) -> int:
        """The end of the last batch that ends at or below `offset`."""
        at = bisect_right(self._ends, offset)
        return self._ends[at - 1] if at else self.start

    def agreed(self, other: LogCopy) -> int:
        """The end of the last batch of this copy up to which both are the same."""
        agreed = self.floor(other.end)
        start = max(self.start, other.start)
        while agreed > start and self.hash_at(agreed) != other.hash_at(agreed):
            agreed = self.floor(agreed - 1)
        return agreed

    def add(self, batch: SeenBatch) -> None:
        assert batch.base >= self.end
        if not self.epochs or batch.epoch > self.epochs[-1][0]:
            self.epochs.append((batch.epoch, batch.base))
        self.batches.append(batch)
        self._ends.append(batch.end)

    def cut(self, offset: int) -> list[SeenBatch]:
        """Remove the batches that end above `offset`, and return them."""
        keep = bisect_right(self._ends, offset)
        gone = self.batches[keep:]
        del self.batches[keep:], self._ends[keep:]
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        return gone

    def epochs_from(self, start: int) -> list[tuple[int, int]]:
        """The epochs that have records left when everything below `start` has expired."""
        at = max(0, bisect_right(self.epochs, start, key=lambda entry: entry[1]) - 1)
        return [(epoch, max(first, start)) for epoch, first in self.epochs[at:] if start < self.end]

    def after(self, offset: int) -> list[SeenBatch]:
        return self.batches[bisect_right(self._ends, offset) :]

    def cut_like(self, disk: SimDisk, log: Log) -> list[SeenBatch]:
        """Remove the batches that the log no longer has at its end, and return them."""
        gone = self.cut(log.log_end) if log.log_end < self.end else []
        first = log.segment_bases[0]
        if self.batches and self.batches[-1].segment < first < self.batches[-1].end:
            # It was emptied, and begins again within a batch of its leader that reaches below its start (seed 91).
            return self.cut(self.start) + gone
        while self.batches and not self._still_there(disk, log, self.batches[-1]):
            gone = self.cut(self.batches[-1].base) + gone
        return gone

    def follow(self, disk: SimDisk, log: Log) -> None:
        """Add what the log has appended. Everything in this copy is still in the log, or has expired."""
        while self.end < log.log_end:
            self.add(self._next(disk, log))

    def begin_at(self, start: int, base_hash: bytes, disk: SimDisk, log: Log) -> None:
        """What is below `start` has expired: from now on it counts as equal to what others had there."""
        kept = self.after(start)
        self.start, self._base_hash = start, base_hash
        self.batches, self._ends, self.epochs = [], [], []
        for batch in kept:
            before = self.batches[-1].hash if self.batches else base_hash
            self.add(batch._replace(hash=_hash(before, content(disk, log, batch))))

    def missing(self, before: LogCopy, disk: SimDisk, log: Log) -> list[SeenBatch]:
        """Batches of `before`, from the start of this copy on, that are not here with the same content. Each batch is
        compared on its own, because the hashes of the two copies may begin differently."""
        places = {batch.end: batch for batch in self.batches}
        missing, below = [], before._base_hash
        for batch in before.batches:
            place = places.get(batch.end)
            if batch.end > self.start and (
                place is None or _hash(below, content(disk, log, place)) != batch.hash
            ):
                missing.append(batch)
            below = batch.hash
        return missing

    def _still_there(self, disk: SimDisk, log: Log, last: SeenBatch) -> bool:
        """A log that was truncated and appended to in one event may have the same end and other content."""
        if last.segment not in log.segment_bases:
            return last.end <= log.log_start
        content = disk.peek(_file(log, last.segment))
        if last.position + last.size > len(content):
            return False
        batch = bytes(content[last.position : last.position + last.size])
        before = self.batches[-2].hash if len(self.batches) > 1 else self._base_hash
        return _hash(before, batch) == last.hash

    def _next(self, disk: SimDisk, log: Log) -> SeenBatch:
        if self.batches:
            segment, position = self.batches[-1].segment, self.batches[-1].position
            position += self.batches[-1].size
            if segment not in log.segment_bases:  # expired meanwhile
                segment, position = next(b for b in log.segment_bases if b > segment), 0
        else:
            bases = log.segment_bases
            segment, position = bases[max(0, bisect_right(bases, self.start) - 1)], 0
        content = disk.peek(_file(log, segment))
        while position >= len(content):
            segment = next(base for base in log.segment_bases if base > segment)
            position = 0
            content = disk.peek(_file(log, segment))
        batch = read_batch(content, position)
        data = bytes(content[position : position + batch.size])
        before = self.batches[-1].hash if self.batches else self._base_hash
        return _seen_batch(batch, _hash(before, data), segment, position)


def _seen_batch(batch: Batch, hash: bytes, segment: int, position: int) -> SeenBatch:
    return SeenBatch(
        batch.base_offset,
        batch.next_offset,
        batch.leader_epoch,
        hash,
        segment,
        position,
        batch.size,
        batch.producer_id,
        batch.base_sequence,
    )


def _hash(before: bytes, data: bytes) -> bytes:
    return blake2b(before + data, digest_size=8).digest()


def _file(log: Log, segment: int) -> str:
    return f"{log.path}/{segment:020d}.log"


def is_flushed(disk: SimDisk, log: Log, batch: SeenBatch) -> bool:
    begin = batch.position
    return disk.has_flushed(_file(log, batch.segment), begin, begin + batch.size)


def content(disk: SimDisk, log: Log, batch: SeenBatch) -> bytes:
    file = disk.peek(_file(log, batch.segment))
    return bytes(file[batch.position : batch.position + batch.size])


class RecordedLoss(NamedTuple):
    """Records that may be lost: the controller elected a leader as RECOVERING."""

    first: int
    end: int
    epoch: int
    """The epoch of the leader that began without them. What this or a later leader commits is not excused."""


class Ledger:
    """The committed records of one partition, and the last events there."""

    def __init__(
        self, partition: TopicPartition, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """`tell` is called with each event of the partition."""
        self.partition = partition
        self.copy = LogCopy()
        self._tell = tell
        self.losses: list[RecordedLoss] = []
        self.loss_epoch = -1
        """The epoch of the last loss: leaders of earlier epochs may still have what was lost."""
        self.recovered_in = -1
        """The last epoch whose leader the controller marked as RECOVERING. What was committed in earlier epochs may be
        lost, also if only that leader itself knew that it was committed."""
        self.unclean_in = -1
        """The last epoch whose leader was neither in the ISR, nor in the ELR, nor the last known leader."""
        self._notes: deque[str] = deque(maxlen=NOTES_KEPT)

    @property
    def end(self) -> int:
        return self.copy.end

    def note(self, now: float, who: str, what: str) -> None:
        self.remember(now, who, what)
        self._tell(
            f"{who}: {'' if what.startswith(str(self.partition)) else f'{self.partition} '}{what}"
        )

    def remember(self, now: float, who: str, what: str) -> None:
        """As `note`, for an event that concerns more than this partition: it is not traced again."""
        self._notes.append(f"{now:.6f} {who}: {what}")

    @property
    def notes(self) -> list[str]:
        return list(self._notes)

    def violation(self, rule: str, who: str, now: float, what: str) -> Violation:
        topic, partition = self.partition
        return Violation(rule, f"{who}, {topic}-{partition}, at {now:.6f}", what, self.notes)

    def commit(self, copy: LogCopy, offset: int) -> str | None:
        """A replica counts everything below `offset` as committed. Returns why that is wrong, if it is."""
        offset = copy.floor(offset)
        if offset == copy.start != self.copy.floor(offset) and offset <= self.end:
            return None  # it begins within a batch: it holds nothing below yet
        if offset <= self.end:
            known = self.copy.hash_at(self.copy.floor(offset))
            mine = copy.hash_at(self.copy.floor(offset))
            if mine != known:
                return f"its log below {offset} differs from what is committed"
            return None
        if copy.hash_at(self.end) != self.copy.hash_at(self.end):
            return f"its log below {self.end} differs from what is committed"
        for batch in copy.after(self.end):
            if batch.end > offset:
                break
            self.copy.add(batch)
        return None

    def holds_all(self, copy: LogCopy) -> bool:
        return copy.hash_at(self.end) == self.copy.hash_at(self.end)

    def lose_from(self, offset: int, epoch: int, leader: LogCopy) -> None:
        """A leader begins that may lack records: the ledger ends where its log agrees with it. After an unclean election
        also what former leaders still commit in earlier epochs is lost."""
        end = self.end
        gone = self.copy.cut(offset)
        if leader.start > self.end:
            # What has expired there was of no later epoch than what is left.
            newest = leader.epochs[0][0] if leader.epochs else -1
            gone = [batch for batch in self.copy.batches if batch.epoch > newest] + gone
        if leader.start > self.end or leader.end < self.copy.start:
            # Nothing committed is left that has not expired: the ledger goes on from there.
            self.copy = LogCopy(leader.start, leader.hash_at(leader.start) or EMPTY)
        if gone or leader.end < end or epoch == self.unclean_in:
            first = gone[0].base if gone else min(leader.end, end)
            self.losses.append(RecordedLoss(first, end, epoch))
            self.loss_epoch = epoch

    def excuses(self, offset: int, epoch: int) -> bool:
        """Whether a recorded loss covers what a leader of this epoch had at this offset."""
        return any(offset >= loss.first and epoch < loss.epoch for loss in self.losses)
