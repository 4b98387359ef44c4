"""Compaction: of each key only the newest record stays (cleanup.policy=compact).

One round over one log, as in Kafka. First the *dirty* part, which no round has seen yet, is read into a map
from key to newest offset, as far as the map's memory allows. Then every closed segment up to there is copied
without the records that a later one of the same key has replaced. Several small segments become one.

What else is removed, and what stays without its records:

    a tombstone            stays for delete.retention.ms from the first round that saw it (KIP-534: that round
                           writes the time into the batch), so that every consumer has a chance to see it
    aborted records        go; the marker that ended a transaction goes when nothing of the transaction is left,
                           after the same delay
    a producer's last five   stay, emptied: they hold the sequence numbers of what it may try again
                             (Kafka keeps the last one: after a restart a retry of the others fails there)
    the round's last batch   stays, emptied: the log must not end before what was flushed

Offsets, leader epochs and the order of records never change; gaps are left.

The work reads closed segments, which do not change, and writes new files (`.cleaned`), which are not part of the log yet. It
goes in small steps that may run in a thread. The log itself puts a finished segment in the place of the old ones
(`Log.replace`). The CRC of each batch is checked on the way: a new batch must not hide old damage under a good CRC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from ottla.log.config import LogConfig
from ottla.log.producer_state import EndTransactionMarker
from ottla.log.recovery import read_marker
from ottla.log.segment import CLEANED, INDEX_KINDS, RELATIVE_MAX, SWAP, OpenFiles, Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.unpacking import unpacked_within_limits
from ottla.records.batch import (
    HEADER_BYTES,
    Batch,
    CorruptBatch,
    check_crc,
    read_batch,
)
from ottla.records.filtering import RecordOutline, emptied_batch, filtered_batch, record_outlines
from ottla.runtime.seams import Buffer, Disk, File

READ_BYTES = 128 << 10
"""Read in one step. The thread that reads shares the interpreter with the event loop, so a step has to be short."""
WRITE_BYTES = 1 << 20
DIGEST_BYTES = 16
BYTES_PER_KEY = 192
"""The memory of a key in the map, as measured: digest, offset, and table entry."""


class ClosedSegment(NamedTuple):
    """A closed segment at the time when the round is planned."""

    path: str
    base: int
    next_offset: int
    size: int
    index_bytes: int
    times_bytes: int
    created_ms: int

    @staticmethod
    def of(segment: Segment) -> ClosedSegment:
        return ClosedSegment(
            segment.path,
            segment.base,
            segment.next_offset,
            segment.size,
            segment.index.bytes,
            segment.times.bytes,
            segment.created_ms,
        )


class RememberedProducer(NamedTuple):
    """A producer that the log remembers, and which of its batches must stay."""

    epoch: int
    last_offsets: Sequence[int]
    """Of its last batches; none if only a marker is left of it."""

    def has(self, batch: Batch) -> bool:
        if self.last_offsets:
            return batch.last_offset in self.last_offsets
        return batch.is_control and batch.producer_epoch == self.epoch


class CompactionRound(NamedTuple):
    """The input of one round. Everything in it is a copy, because the log goes on meanwhile."""

    path: str
    """The log's directory."""
    config: LogConfig
    segments: Sequence[ClosedSegment]
    """All from the log's first up to `end`."""
    first_dirty: int
    end: int
    """Where the first segment begins that is not touched."""
    aborted: Sequence[AbortedTransaction]
    """Those with records below `end`."""
    producers: Mapping[int, RememberedProducer]
    now_ms: int
    generation: int
    """`Log.generation` at the start. The round is void when it has changed."""

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


class NeedsRoom(NamedTuple):
    """The segment that is written next takes at most so many bytes, beside those that it replaces."""

    bytes: int


class Replacement(NamedTuple):
    """A finished segment, complete on disk but for the name of its `.log`."""

    bases: list[int]
    """Of the segments whose place it takes."""
    segment: Segment


class OffsetMap:
    """The map from key to newest offset, over records without gaps from the first dirty one on."""

    def __init__(self, keys_max: int, start: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.end = start
        """Below it everything is in the map."""

    def add(self, batch: Batch, found: Sequence[RecordOutline]) -> bool:
        """Add a batch. False if the map is full. One batch always fits, so each round makes progress."""
        offsets = self._offsets
        if offsets and len(offsets) + len(found) > self._keys_max:
            new = {digest(key) for *_, key, _ in found if key is not None}.difference(offsets)
            if len(offsets) + len(new) > self._keys_max:
                return False
        for *_, offset, key, _ in found:
            if key is not None:
                offsets[digest(key)] = offset
        self.end = batch.next_offset
        return True

    def is_newest(self, offset: int, key: bytes | None) -> bool:
        """Whether no record below `end` replaces this one. A record without a key cannot be found again."""
        if offset >= self.end:
            return True
        return key is not None and self._offsets.get(digest(key), -1) <= offset


def digest(key: bytes) -> bytes:
    """Shorter keys are their own digest. No real digest has the same length."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class CleanedTransactionMetadata:
    """How each transaction ended, while the batches are read in order. Kafka's name."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer: the aborted transaction that it is in."""
        self._seen: set[int] = set()
        """Producers with a batch of their current transaction, however it ends."""

    def is_aborted(self, batch: Batch) -> bool:
        if not batch.is_transactional:
            return False
        self._reach(batch.last_offset)
        self._seen.add(batch.producer_id)
        return batch.producer_id in self._aborted

    def end(
        self, batch: Batch, marker: EndTransactionMarker
    ) -> tuple[bool, AbortedTransaction | None]:
        """The marker is read. Whether nothing of its transaction is left; and the row for the transaction index, if
        something is."""
        self._reach(batch.last_offset)
        is_empty = batch.producer_id not in self._seen
        self._seen.discard(batch.producer_id)
        aborted = None if marker.committed else self._aborted.pop(batch.producer_id, None)
        return is_empty, None if is_empty else aborted

    def _reach(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            aborted = self._to_come.pop()
            self._aborted.setdefault(aborted.producer_id, aborted)


class Compaction:
    """One round. `steps` does the work; between two of its steps anything may happen to the log."""

    def __init__(self, disk: Disk, files: OpenFiles, round: CompactionRound, keys_max: int) -> None:
        assert round.segments and round.first_dirty < round.end, round
        self.round = round
        self.bytes_read = 0
        self.bytes_kept = 0
        self._disk = disk
        self._files = files
        self._newest = OffsetMap(keys_max, round.first_dirty)
        self._outcomes = CleanedTransactionMetadata(round.aborted)

    @property
    def cleaned_up_to(self) -> int:
        """How far the log is clean when all replacements are in place."""
        return self._newest.end

    def steps(self) -> Iterator[int | NeedsRoom | Replacement]:
        """The bytes that each step read or wrote; what room the next segment needs; and each segment that is finished. CorruptBatch or another
        KafkaError where a batch cannot be read, OSError where the disk fails."""
        yield from self._map()
        for group in self._groups():
            yield NeedsRoom(sum(segment.size for segment in group))
            yield from self._copy(group)

    # The map

    def _map(self) -> Iterator[int]:
        round, newest = self.round, self._newest
        # Without those that ended before: their markers are not read, and they would be taken for the next one of the
        # same producer.
        outcomes = CleanedTransactionMetadata(
            [each for each in round.aborted if each.last_offset >= round.first_dirty]
        )
        for segment in round.segments:
            if segment.next_offset <= round.first_dirty:
                continue
            for block in self._blocks(segment):
                for content, batch in block:
                    if batch.last_offset < round.first_dirty:
                        continue
                    found: list[RecordOutline] = []
                    if batch.is_control:
                        marker = read_marker(content, batch)
                        if marker is not None:
                            outcomes.end(batch, marker)
                    elif not outcomes.is_aborted(batch):
                        found = list(record_outlines(unpacked_within_limits(content, batch), batch))
                    if not newest.add(batch, found):
                        return
                yield _size(block)
            newest.end = segment.next_offset

    # The copy

    def _groups(self) -> list[list[ClosedSegment]]:
        """Neighbours that fit into one segment."""
        config = self.round.config
        groups: list[list[ClosedSegment]] = []
        size = index = times = 0
        for segment in self.round.segments:
            if segment.base >= self._newest.end:
                break
            size += segment.size
            index += segment.index_bytes
            times += segment.times_bytes
            if (
                not groups
                or size > config.segment_bytes
                or max(index, times) > config.index_bytes_max
                or segment.next_offset - 1 - groups[-1][0].base > RELATIVE_MAX
            ):
                groups.append([])
                size, index, times = segment.size, segment.index_bytes, segment.times_bytes
            groups[-1].append(segment)
        return groups

    def _copy(self, group: list[ClosedSegment]) -> Iterator[int | Replacement]:
        first = group[0]
        target = Segment(
            self._disk,
            self._files,
            first.path.removesuffix(".log"),
            first.base,
            group[-1].created_ms,
            suffix=CLEANED,
        )
        file = self._disk.open(target.path, create=True)
        try:
            if file.size:
                file.truncate(0)
            changed = len(group) > 1
            waiting = bytearray()
            for segment in group:
                for block in self._blocks(segment):
                    for content, batch in block:
                        kept = self._kept(target, content, batch)
                        changed = changed or kept is not content
                        if kept is not None:
                            waiting += kept
                            batch = read_batch(kept, 0)
                            target.added(batch, target.size, self.round.config.index_interval_bytes)
                    written = 0
                    if len(waiting) >= WRITE_BYTES:
                        written = len(waiting)
                        file.append(waiting)
                        waiting = bytearray()
                    self.bytes_read += _size(block)
                    yield _size(block) + written
            if not changed:
                self.bytes_kept += target.size
                self._remove(target)
                return
            file.append(waiting)
            target.next_offset = group[-1].next_offset
            target.seal()
            yield len(waiting)
            file.flush()
        finally:
            file.close()
        self._finish(target)
        self.bytes_kept += target.size
        yield Replacement([segment.base for segment in group], target)

    def _kept(self, target: Segment, content: memoryview, batch: Batch) -> Buffer | None:
        """What stays of the batch: `content` itself if it stays as it is, None if nothing does."""
        round = self.round
        is_needed = batch.next_offset == round.end or (
            batch.producer_id in round.producers and round.producers[batch.producer_id].has(batch)
        )
        horizon = batch.delete_horizon_ms
        is_due = horizon is not None and horizon <= round.now_ms
        found: list[RecordOutline] = []
        if batch.is_control:
            goes, is_mortal = self._judge_marker(target, content, batch, is_due)
            if batch.count and not goes and not (is_mortal and horizon is None):
                return content
            data = unpacked_within_limits(content, batch)
            found = list(record_outlines(data, batch))
            kept = [] if goes else found
        elif self._outcomes.is_aborted(batch):
            data, kept, is_mortal = b"", [], False
        elif batch.base_offset >= self._newest.end:
            return content
        else:
            data = unpacked_within_limits(content, batch)
            found = list(record_outlines(data, batch))
            is_newest = self._newest.is_newest
            kept = [
                outline
                for outline in found
                if is_newest(outline[4], outline[5]) and (outline[6] or not is_due)
            ]
            is_mortal = not all(outline[6] for outline in kept)
        if not kept:
            if not is_needed:
                return None
            return emptied_batch(batch) if batch.count else content
        if is_mortal and horizon is None:
            horizon = round.now_ms + round.config.delete_retention_ms
            return filtered_batch(batch, data, kept, horizon)
        return content if len(kept) == len(found) else filtered_batch(batch, data, kept, None)

    def _judge_marker(
        self, target: Segment, content: memoryview, batch: Batch, is_due: bool
    ) -> tuple[bool, bool]:
        """Whether it goes now, and whether it goes some day."""
        marker = read_marker(content, batch) if batch.producer_id >= 0 else None
        if marker is None:
            return False, False  # not the end of a transaction, or emptied by an earlier round
        is_empty, aborted = self._outcomes.end(batch, marker)
        if aborted is not None:
            target.aborted.append(aborted)
        return is_empty and is_due, is_empty

    def _finish(self, target: Segment) -> None:
        """Make all files durable, and rename all but the `.log`: after a crash a `.log.swap` decides which segments
        count."""
        for path in target.index_paths:
            index = self._disk.open(path)
            try:
                index.flush()
            finally:
                index.close()
        target.rename(self._disk, INDEX_KINDS, SWAP)
        self._disk.flush_dir(self.round.path)

    def _remove(self, target: Segment) -> None:
        for path in (target.path, *target.index_paths):
            if self._disk.exists(path):
                self._disk.remove(path)

    def discard(self) -> None:
        """The round ends early: remove what was not put in place."""
        for name in self._disk.list_dir(self.round.path):
            if name.endswith((CLEANED, SWAP)):
                self._disk.remove(f"{self.round.path}/{name}")

    def _blocks(self, segment: ClosedSegment) -> Iterator[Block]:
        file = self._disk.open(segment.path)
        try:
            position = 0
            while position < segment.size:
                block = _block(file, position, segment)
                yield block
                position += _size(block)
        finally:
            file.close()


Block: TypeAlias = list[tuple[memoryview, Batch]]
"""Some batches in a row: the bytes of each, and its header with position 0."""


def _block(file: File, position: int, segment: ClosedSegment) -> Block:
    """At least one batch from `position` on, checked. CorruptBatch if it is not what was written."""
    data = file.read_at(position, min(READ_BYTES, segment.size - position))
    first = read_batch(data, 0).size
    if len(data) < first:
        data = file.read_at(position, min(first, segment.size - position))
    content = memoryview(data)
    block: Block = []
    at = 0
    while len(data) - at >= HEADER_BYTES:
        found = read_batch(data, at)
        if found.end > len(data):
            break
        batch = Batch(0, *found[1:])
        each = content[at : found.end]
        try:
            check_crc(each, batch)
        except CorruptBatch as error:
            raise CorruptBatch(position + at, error.why) from error
        if not segment.base <= batch.base_offset <= batch.last_offset < segment.next_offset:
            raise CorruptBatch(position + at, f"offset {batch.base_offset} does not belong here")
        block.append((each, batch))
        at = found.end
    if not block:
        raise CorruptBatch(position, f"{first} bytes long, {len(data)} are left")
    return block


def _size(block: Block) -> int:
    return sum(len(content) for content, _ in block)
