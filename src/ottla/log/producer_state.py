"""What idempotent and transactional producers have written to one partition.

Per producer id: its epoch, its last five batches (a retry of one of these is answered with the offsets it
already has, KIP-98) and its open transaction. The state follows from the batches in the log; snapshots
(`<offset>.snapshot`, Kafka's format) only spare reading the log from its start. A snapshot holds each
producer's last batch, not all five: so says the format. Whoever loads one looks for the other four in the log
(`recall`): a producer whose answers were lost in a restart retries all five.

A transaction begins here with its first batch. Before that batch the leader asks the transaction's coordinator
whether the partition is part of it (KIP-890): what is between the question and the batch is a `Verification`.
Any batch or marker of the producer ends it, so an answer that was overtaken by the end of the transaction
opens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

from ottla.log.segment import file_name
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import NO_SEQUENCE, NO_TIMESTAMP, Batch
from ottla.records.crc import crc32c
from ottla.runtime.seams import Buffer, Disk
from ottla.wire.errors import ErrorCode, KafkaError

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000
"""Producer ids are the clients' to invent: beyond this the one silent for longest is forgotten."""
NO_EPOCH = -1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6


class CorruptSnapshot(Exception):
    """These bytes are not a whole snapshot."""


class Written(NamedTuple):
    """One batch of a producer, as it lies in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @staticmethod
    def from_batch(batch: Batch) -> Written:
        return Written(
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset + batch.last_offset_delta,
            batch.last_offset_delta,
            batch.max_timestamp,
        )

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Marker(NamedTuple):
    """The end of a transaction, as the coordinator writes it."""

    committed: bool
    coordinator_epoch: int


class Verification:
    """A transaction's first batch waits here for its coordinator's word."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "since_ms")

    def __init__(self, guard: int, epoch: int, sequence: int, since_ms: int) -> None:
        self.guard = guard
        """Whose answer counts; no two verifications of a log have the same."""
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that waited: none with a higher one may come first, else the lower, which is sent
        again after an error, would be out of order for ever."""
        self.since_ms = since_ms

    def also_for(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "silent_since_ms",
        "txn_first_offset",
        "whole",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[Written] = []
        """Oldest first, at most five, all of this epoch."""
        self.whole = True
        """These are all batches it ever wrote here."""
        self.last_timestamp = NO_TIMESTAMP
        """As the client stamped it: for whoever asks, never compared with our clock."""
        self.silent_since_ms: int | None = None
        """When `expire` came by first after its last batch or after loading; None until then."""
        self.coordinator_epoch = -1
        self.txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def state(self) -> tuple[object, ...]:
        """Everything that follows from the log, to compare."""
        return (
            self.epoch,
            tuple(self.batches),
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class ProducerState:
    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        """By producer id, the one silent for longest first: in the order of their last appends here."""
        self._ongoing: dict[int, int] = {}
        """Open transactions: producer id → first offset, the oldest first."""
        self._ended: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions whose marker may still lie above the HW."""
        self._verifying: dict[int, Verification] = {}
        self._next_guard = 1

    def check(self, batch: Batch) -> Written | None:
        """May a client append this batch now? A batch that is here already is returned; KafkaError if
        it is out of turn."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return None  # never seen, or expired: any sequence may begin (KIP-360)
        if batch.producer_epoch != producer.epoch:
            self._check_epoch(batch, producer)
            if batch.base_sequence != 0 and producer.epoch != NO_EPOCH:
                raise _out_of_order(batch, producer)
        elif batch.base_sequence != (producer.last_sequence + 1) & 0x7FFFFFFF:
            for written in producer.batches:
                if (written.first_sequence, written.last_sequence) == (
                    batch.base_sequence,
                    batch.last_sequence,
                ):
                    return written
            raise _out_of_order(batch, producer)
        if producer.txn_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has a transaction open and wrote outside of it",
            )
        return None

    def check_offsets(self, batch: Batch) -> None:
        """May a group's coordinator append these offsets of a transaction? They have no sequence."""
        producer = self.producers.get(batch.producer_id)
        if producer is not None:
            self._check_epoch(batch, producer)

    def check_marker(self, batch: Batch, marker: Marker, *, bumps_epoch: bool = False) -> None:
        """May a coordinator append this end of a transaction? If every transaction has an epoch of its own
        (`bumps_epoch`, transaction.version 2), its end has the next one: a marker that comes late, after
        its like, must not end the transaction after."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        self._check_epoch(batch, producer)
        if bumps_epoch and batch.producer_epoch == producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} has begun already",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} of producer {batch.producer_id} "
                f"is behind {producer.coordinator_epoch}",
            )

    def _check_epoch(self, batch: Batch, producer: Producer) -> None:
        if batch.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} "
                f"is behind {producer.epoch}",
            )

    # Verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """With this epoch: what comes with a later one belongs to the next transaction, also while the end
        of the last one is still on its way here."""
        return producer_id in self._ongoing and self.producers[producer_id].epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """A batch came that would begin a transaction. The guard to show with it later."""
        found = self._verifying.get(producer_id)
        if found is None:
            if len(self._verifying) >= PRODUCERS_MAX:
                del self._verifying[next(iter(self._verifying))]
            found = Verification(self._next_guard, epoch, sequence, now_ms)
            self._next_guard += 1
            self._verifying[producer_id] = found
        else:
            found.also_for(epoch, sequence)
        return found.guard

    def is_verified(self, producer_id: int, guard: int) -> bool:
        """Whether a positive answer for `guard` still counts."""
        found = self._verifying.get(producer_id)
        return found is not None and found.guard == guard

    def check_verified(self, batch: Batch, guard: int | None) -> None:
        """A transactional batch is part of an open transaction, or verified to begin one, or here already;
        KafkaError if not."""
        if self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        found = self._verifying.get(batch.producer_id)
        if found is None or found.guard != guard:
            if self._is_here(batch):
                return
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has no transaction open in this partition",
            )
        if found.epoch == batch.producer_epoch and batch.base_sequence > found.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence}; "
                f"{found.lowest_sequence} has to come before",
            )

    def _is_here(self, batch: Batch) -> bool:
        producer = self.producers.get(batch.producer_id)
        return (
            producer is not None
            and producer.epoch == batch.producer_epoch
            and any(
                (written.first_sequence, written.last_sequence)
                == (batch.base_sequence, batch.last_sequence)
                for written in producer.batches
            )
        )

    # What is in the log

    def add(self, batch: Batch) -> None:
        """The batch is in the log, with its offsets."""
        producer = self._touched(batch)
        producer.batches.append(Written.from_batch(batch))
        if len(producer.batches) > BATCHES_REMEMBERED:
            del producer.batches[0]
            producer.whole = False
        producer.last_timestamp = batch.max_timestamp
        if producer.txn_first_offset is None and batch.is_transactional:
            producer.txn_first_offset = batch.base_offset
            self._ongoing[batch.producer_id] = batch.base_offset

    def recall(self, batch: Batch) -> None:
        """A batch from before the snapshot that this state was loaded from; the newest come first."""
        producer = self.producers.get(batch.producer_id)
        if producer is None or not producer.batches or batch.producer_epoch != producer.epoch:
            return
        oldest = producer.batches[0]
        if (
            len(producer.batches) < BATCHES_REMEMBERED
            and batch.last_offset < oldest.base_offset
            and (batch.last_sequence + 1) & 0x7FFFFFFF == oldest.first_sequence
        ):
            producer.batches.insert(0, Written.from_batch(batch))

    def recalled_down_to(self) -> int | None:
        """Below this offset lies the next batch that `recall` may want; None if it wants none. A producer
        lacks none that has five, or whose oldest began its epoch with sequence 0."""
        return max(
            (
                producer.batches[0].base_offset
                for producer in self.producers.values()
                if 0 < len(producer.batches) < BATCHES_REMEMBERED
                and producer.batches[0].first_sequence != 0
            ),
            default=None,
        )

    def add_marker(self, batch: Batch, marker: Marker) -> AbortedTransaction | None:
        """The end of a transaction is in the log. If it had records here and was aborted: what the index
        is to say of it."""
        producer = self._touched(batch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        first_offset = producer.txn_first_offset
        if first_offset is None:
            return None
        self._ended.append((first_offset, batch.last_offset))
        del self._ongoing[batch.producer_id]
        producer.txn_first_offset = None
        if marker.committed:
            return None
        stable = next(iter(self._ongoing.values()), batch.last_offset + 1)
        return AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable)

    def _touched(self, batch: Batch) -> Producer:
        self._verifying.pop(batch.producer_id, None)
        producer = self.producers.pop(batch.producer_id, None)
        if producer is None:
            if len(self.producers) >= PRODUCERS_MAX:
                self._forget_one()
            producer = Producer(batch.producer_epoch)
        elif producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
            producer.whole = False
        producer.silent_since_ms = None
        self.producers[batch.producer_id] = producer
        return producer

    def _forget_one(self) -> None:
        for producer_id in self.producers:
            if producer_id not in self._ongoing:
                del self.producers[producer_id]
                return

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins whose outcome is not yet below the high watermark."""
        if not self._ongoing and not self._ended:
            return None
        if self._ended:
            self._ended = [txn for txn in self._ended if txn[1] >= high_watermark]
        firsts = [first for first, _ in self._ended]
        firsts += islice(self._ongoing.values(), 1)
        return min(firsts, default=None)

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget producers that are silent for so long, unless a transaction of theirs is open.

        Silence is measured by the clock of whoever calls this from time to time, from call to call: it
        begins with the first call after a batch came, or after a snapshot or the log was read. So each is
        remembered for `after_ms` at least, and for one interval between calls more at most. The records'
        own timestamps say nothing: a mirror's or a backfill's are old when they come, and a producer
        forgotten for that would have its retry written twice.
        """
        for producer_id, producer in list(self.producers.items()):
            if producer.silent_since_ms is None:
                producer.silent_since_ms = now_ms
            elif producer.txn_first_offset is None and (
                now_ms - producer.silent_since_ms > after_ms
            ):
                del self.producers[producer_id]
        for producer_id, verification in list(self._verifying.items()):
            if now_ms - verification.since_ms > after_ms:
                del self._verifying[producer_id]

    def cut(self, log_end: int) -> bool:
        """The log now ends at `log_end`. True if the state could be wound back to it; False if it has to
        be rebuilt, because what came before is not remembered."""
        if any(producer.coordinator_epoch >= 0 for producer in self.producers.values()):
            return False  # a transaction that ended beyond the cut would be open again
        cut = [
            (producer_id, producer)
            for producer_id, producer in self.producers.items()
            if not producer.batches or producer.batches[-1].last_offset >= log_end
        ]
        for _, producer in cut:
            if not producer.whole and (
                not producer.batches or producer.batches[0].last_offset >= log_end
            ):
                return False
        for producer_id, producer in cut:
            producer.batches = [kept for kept in producer.batches if kept.last_offset < log_end]
            txn_first = producer.txn_first_offset
            if txn_first is not None and txn_first >= log_end:
                producer.txn_first_offset = None
                del self._ongoing[producer_id]
            if producer.batches:
                producer.last_timestamp = producer.batches[-1].timestamp
            else:
                del self.producers[producer_id]
        return True

    def clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._ended.clear()
        self._verifying.clear()

    def encode(self) -> bytes:
        body = bytearray(_SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(self.producers)))
        for producer_id, producer in self.producers.items():
            last = producer.batches[-1] if producer.batches else None
            body += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                last.last_offset if last else -1,
                last.offset_delta if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                -1 if producer.txn_first_offset is None else producer.txn_first_offset,
            )
        crc = crc32c(memoryview(body)[_CRC_END:])
        _SNAPSHOT_HEAD.pack_into(body, 0, SNAPSHOT_VERSION, crc, len(self.producers))
        return bytes(body)

    @classmethod
    def decode(cls, data: Buffer) -> ProducerState:
        if len(data) < _SNAPSHOT_HEAD.size:
            raise CorruptSnapshot(f"{len(data)} bytes")
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data, 0)
        if version != SNAPSHOT_VERSION:
            raise CorruptSnapshot(f"version {version}")
        if crc32c(memoryview(data)[_CRC_END:]) != crc:
            raise CorruptSnapshot("CRC")
        if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            raise CorruptSnapshot(f"{count} producers in {len(data)} bytes")
        state = cls()
        for entry in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]):
            state._restore(*entry)
        state._ongoing = dict(sorted(state._ongoing.items(), key=lambda txn: txn[1]))
        return state

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        producer = Producer(epoch)
        producer.whole = False
        if last_offset >= 0:
            first_sequence = (last_sequence - offset_delta) & 0x7FFFFFFF
            producer.batches.append(
                Written(first_sequence, last_sequence, last_offset, offset_delta, timestamp)
            )
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        if txn_first_offset >= 0:
            producer.txn_first_offset = txn_first_offset
            self._ongoing[producer_id] = txn_first_offset
        self.producers[producer_id] = producer


def _out_of_order(batch: Batch, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence "
        f"{batch.base_sequence}; the last of epoch {producer.epoch} here is {producer.last_sequence}",
    )


class Snapshots:
    """The snapshot files of one log. They are written without a flush: a torn one fails its CRC, and an
    older one with more of the log to read does as well."""

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, '.snapshot')}"

    def take(self, state: ProducerState, offset: int) -> None:
        file = self._disk.open(self.path(offset), create=True)
        try:
            if file.size:
                file.truncate(0)
            file.append(state.encode())
        finally:
            file.close()
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def latest(self, up_to: int) -> tuple[ProducerState, int]:
        """The newest readable snapshot not beyond `up_to` and its offset; an empty state and -1 if there
        is none. Unreadable ones are removed."""
        while candidates := [offset for offset in self.offsets if offset <= up_to]:
            try:
                return ProducerState.decode(self._disk.read(self.path(candidates[-1]))), candidates[
                    -1
                ]
            except CorruptSnapshot:
                self._remove(candidates[-1])
        return ProducerState(), -1

    def remove_above(self, offset: int) -> bool:
        doomed = [taken for taken in self.offsets if taken > offset]
        for taken in reversed(doomed):
            self._remove(taken)
        return bool(doomed)

    def remove_below(self, offset: int) -> None:
        for taken in [taken for taken in self.offsets if taken < offset]:
            self._remove(taken)

    def remove(self, offsets: Sequence[int]) -> None:
        for taken in offsets:
            if taken in self.offsets:
                self._remove(taken)

    def _remove(self, offset: int) -> None:
        self._disk.remove(self.path(offset))
        self.offsets.remove(offset)
