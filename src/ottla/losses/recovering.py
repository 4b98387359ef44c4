"""From kept batches to records that can be written again.

A kept batch is what a leader wrote, byte for byte. It may begin before the loss, be compressed, belong to a transaction, or
lie on several disks. `BatchReader` cuts the bytes that arrive into batches, and says which ones are damaged or missing.
`Recovery` says which records of them are wanted, each once. `missing` says what no disk could give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.losses.manifest import Manifest
from ottla.losses.merge import NamedLoss
from ottla.records.batch import HEADER_BYTES, Batch, CorruptBatch, check_crc, read_batch
from ottla.records.record import ControlType, Record, control_type, records

FROM, TOPIC_ID, OFFSET, EPOCH, BROKER, KEPT, TRANSACTION = (
    f"ottla.recovered.{name}"
    for name in ("from", "topic_id", "offset", "epoch", "broker", "kept", "transaction")
)
"""The headers of a recovered record."""
OPEN = b"open"
"""The value of TRANSACTION: whether its transaction was committed is not known, because its marker is not kept."""


Range = tuple[int, int]
"""Offsets [first, end)."""


class BatchReader:
    """Whole batches from the bytes of one manifest, which arrive in parts. A batch that is damaged is left out. If its
    header is damaged too, nobody knows where the next one begins, and all that follows is left out."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.damage: list[str] = []
        self._buffer = b""
        self._bytes_good = 0
        self._is_lost = False
        self._next_offset = manifest.first_offset
        self._jumps: list[Range] = []
        """Offsets between two batches: of batches that were left out, or that compaction has removed."""

    def batches(self, data: bytes) -> Iterator[tuple[bytes, Batch]]:
        """Those that are complete now, each with its own bytes."""
        buffer, position = self._buffer + data, 0
        while len(buffer) - position >= HEADER_BYTES and not self._is_lost:
            try:
                size = read_batch(buffer, position).size
            except CorruptBatch as damage:
                self.damage.append(damage.why)
                self._is_lost = True
                break
            if len(buffer) - position < size:
                break
            whole = buffer[position : position + size]
            position += size
            batch = read_batch(whole, 0)
            try:
                check_crc(whole, batch)
            except CorruptBatch as damage:
                self.damage.append(damage.why)
                continue
            self._is_good(batch)
            yield whole, batch
        self._buffer = b"" if self._is_lost else buffer[position:]

    def _is_good(self, batch: Batch) -> None:
        self._bytes_good += batch.size
        if batch.base_offset > self._next_offset:
            self._jumps.append((self._next_offset, batch.base_offset))
        self._next_offset = max(self._next_offset, batch.next_offset)

    def unread(self) -> list[Range]:
        """The offsets whose records may be missing, after everything was read. None, if all bytes of the manifest are
        there."""
        if self._bytes_good >= self.manifest.bytes:
            return []
        left = self._next_offset, self.manifest.end_offset
        return self._jumps + ([left] if left[0] < left[1] else [])


def missing(loss: NamedLoss, readers: Iterable[BatchReader], *, possible: bool) -> list[Range]:
    """What none of the readers could give of a loss."""
    readers = list(readers)
    found: list[Range] = []
    for piece in loss.pieces:
        wanted = [(piece.first, piece.possible if possible else piece.certain)]
        for reader in readers:
            unread = reader.unread()
            for epoch, first, end in reader.manifest.epochs:
                if epoch == piece.epoch:
                    left = [(0, first), *_common([(first, end)], unread), (end, piece.possible)]
                    wanted = _common(wanted, left)
        found += wanted
    return found


def _common(some: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """The offsets that are in both."""
    others = list(others)
    pairs = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return [(first, end) for first, end in pairs if first < end]


class Recovered(NamedTuple):
    epoch: int
    codec: int
    """Of its batch: a record that was small enough when compressed must be compressed again."""
    record: Record
    """As it was written, with the headers that say where it comes from."""


class Recovery:
    """The records of one loss. Give it all batches twice, in the order of their offsets: once to `survey`, then to
    `records`."""

    def __init__(self, loss: NamedLoss, *, possible: bool) -> None:
        self.aborted = 0
        """Records that were left out: their transaction was aborted."""
        self.undecided = 0
        """Records of transactions whose end is not kept."""
        self.markers = 0
        self._loss = loss
        self._possible = possible
        self._ends: dict[tuple[int, int], dict[int, bool]] = {}
        """(producer id, epoch) → offset of a marker → whether it commits."""
        self._done: set[tuple[int, int]] = set()
        """(leader epoch, base offset)"""

    def survey(self, data: bytes, batch: Batch) -> None:
        """Learn how transactions ended. Their markers come after their records."""
        if not batch.is_control:
            return
        for record in records(data, batch):
            kind = control_type(record)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                ends = self._ends.setdefault((batch.producer_id, batch.producer_epoch), {})
                ends[record.offset] = kind == ControlType.COMMIT

    def records(self, data: bytes, batch: Batch, broker: int, kept: str) -> Iterator[Recovered]:
        place = batch.leader_epoch, batch.base_offset
        if place in self._done:
            return
        self._done.add(place)
        wanted = [
            record
            for record in records(data, batch)
            if self._loss.holds(batch.leader_epoch, record.offset, possible=self._possible)
        ]
        if batch.is_control:
            self.markers += len(wanted)
            return
        commits = self._commits(batch) if batch.is_transactional else True
        if commits is False:
            self.aborted += len(wanted)
            return
        if commits is None:
            self.undecided += len(wanted)
        for record in wanted:
            headers = (
                (FROM, f"{self._loss.topic}-{self._loss.partition}".encode()),
                (TOPIC_ID, self._loss.topic_id.encode()),
                (OFFSET, str(record.offset).encode()),
                (EPOCH, str(batch.leader_epoch).encode()),
                (BROKER, str(broker).encode()),
                (KEPT, kept.encode()),
                *(((TRANSACTION, OPEN),) if commits is None else ()),
            )
            yield Recovered(
                batch.leader_epoch,
                batch.codec,
                record._replace(headers=(*record.headers, *headers)),
            )

    def _commits(self, batch: Batch) -> bool | None:
        """How the first marker after the batch ends its transaction; None if there is none. A marker may have a later
        epoch of the producer (KIP-890)."""
        ends = [
            (offset, commits)
            for (producer_id, epoch), markers in self._ends.items()
            if producer_id == batch.producer_id and epoch >= batch.producer_epoch
            for offset, commits in markers.items()
            if offset >= batch.next_offset
        ]
        return min(ends)[1] if ends else None


Identity = tuple[str, ...]


def identity_of(record: Record) -> Identity | None:
    """What a recovered record is a copy of: (partition, topic id, offset, epoch). None if it is no such record. A topic that
    was deleted and created again has the same offsets and epochs, and another id."""
    headers = dict(record.headers)
    found = [headers.get(name) for name in (FROM, TOPIC_ID, OFFSET, EPOCH)]
    values = [value.decode("utf-8", "replace") for value in found if value is not None]
    return tuple(values) if len(values) == len(found) else None
