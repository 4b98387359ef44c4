"""What idempotent and transactional producers have written to one partition.

For each producer id: its epoch, its last five batches and its open transaction. A retry of one of the five batches is
answered with the offsets that the batch has already (KIP-98). The state follows from the batches in the log; snapshots
(`producer_snapshots`) only spare reading the log from its start.

A transaction begins here with its first batch. Before that batch the leader asks the transaction's coordinator whether
the partition is part of the transaction (KIP-890). A `VerificationStateEntry` stands for the time between the question and
the batch. Any batch or marker of the producer removes it: an answer that comes after the end of the transaction opens
nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from ottla.events import Events
from ottla.events.storage import DuplicateBatchAnswered, MarkerRefused, ProducerFenced
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import NO_SEQUENCE, NO_TIMESTAMP, Batch
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000
"""Clients choose producer ids freely. Beyond this number the producer that was silent for longest is forgotten."""
NO_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One batch of a producer in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @staticmethod
    def from_batch(batch: Batch) -> BatchMetadata:
        return BatchMetadata(
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset + batch.last_offset_delta,
            batch.last_offset_delta,
            batch.max_timestamp,
        )

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndTransactionMarker(NamedTuple):
    """What the control record says that ends a transaction. Its coordinator writes it."""

    committed: bool
    coordinator_epoch: int


class VerificationStateEntry:
    """The first batch of a transaction waits for the answer of the transaction's coordinator."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "since_ms")

    def __init__(self, guard: int, epoch: int, sequence: int, since_ms: int) -> None:
        self.guard = guard
        """An answer counts only with this number. No two verifications of a log have the same."""
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that wait. None with a higher one may be appended first: the lower one, which is sent again
        after an error, would be out of order for ever."""
        self.since_ms = since_ms

    def also_for(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class ProducerStateEntry:
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
        self.batches: list[BatchMetadata] = []
        """Oldest first, at most five, all of this epoch."""
        self.whole = True
        """`batches` are all that it ever wrote here."""
        self.last_timestamp = NO_TIMESTAMP
        """The client's own timestamp. It is reported to administrators and never compared with our clock."""
        self.silent_since_ms: int | None = None
        """The time of the first call of `expire` after its last batch or after loading; None until then."""
        self.coordinator_epoch = -1
        self.txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def state(self) -> tuple[object, ...]:
        """Everything that follows from the log, for comparisons."""
        return (
            self.epoch,
            tuple(self.batches),
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class ProducerStateManager:
    def __init__(self, partition: TopicPartition, events: Events) -> None:
        self.producers: dict[int, ProducerStateEntry] = {}
        """By producer id, in the order of their last appends here: the one silent for longest comes first."""
        self._ongoing: dict[int, int] = {}
        """Open transactions: producer id → first offset, the oldest first."""
        self._ended: list[tuple[int, int]] = []
        """(first offset, marker's offset) of transactions whose marker may still lie above the HW."""
        self._verifying: dict[int, VerificationStateEntry] = {}
        self._next_guard = 1
        self._partition = partition
        self._events = events

    @property
    def open_transactions(self) -> int:
        return len(self._ongoing)

    def restore(self, producers: dict[int, ProducerStateEntry]) -> None:
        """Begin with the entries of a snapshot."""
        assert not self.producers
        self.producers = producers
        ongoing = [
            (producer_id, producer.txn_first_offset)
            for producer_id, producer in producers.items()
            if producer.txn_first_offset is not None
        ]
        self._ongoing = dict(sorted(ongoing, key=lambda txn: txn[1]))

    # What may be appended

    def check(self, batch: Batch) -> BatchMetadata | None:
        """Whether a client may append this batch now: KafkaError if not. If the batch is in the log already, its
        metadata is returned."""
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
                    if DuplicateBatchAnswered in self._events:
                        self._events.emit(
                            DuplicateBatchAnswered(
                                self._partition,
                                batch.producer_id,
                                batch.producer_epoch,
                                batch.base_sequence,
                                written.base_offset,
                            )
                        )
                    return written
            raise _out_of_order(batch, producer)
        if producer.txn_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has a transaction open and wrote outside of it",
            )
        return None

    def check_offsets(self, batch: Batch) -> None:
        """Whether a group coordinator may append these offsets of a transaction: KafkaError if not. They have no
        sequence."""
        producer = self.producers.get(batch.producer_id)
        if producer is not None:
            self._check_epoch(batch, producer)

    def check_marker(
        self, batch: Batch, marker: EndTransactionMarker, *, bumps_epoch: bool = False
    ) -> None:
        """Whether a coordinator may append this end of a transaction: KafkaError if not. With `bumps_epoch`
        (transaction.version 2) every transaction has an epoch of its own, and its end has the next one: a marker that
        is sent twice must not end the transaction that comes after."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        refusal = _marker_refusal(batch, marker, producer, bumps_epoch)
        if refusal is None:
            return
        if MarkerRefused in self._events:
            self._events.emit(
                MarkerRefused(
                    self._partition,
                    batch.producer_id,
                    batch.producer_epoch,
                    marker.coordinator_epoch,
                    str(refusal),
                )
            )
        raise refusal

    def _check_epoch(self, batch: Batch, producer: ProducerStateEntry) -> None:
        if batch.producer_epoch < producer.epoch:
            if ProducerFenced in self._events:
                self._events.emit(
                    ProducerFenced(
                        self._partition, batch.producer_id, batch.producer_epoch, producer.epoch
                    )
                )
            raise _fenced(batch, producer)

    # Verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """In this epoch. A batch of a later epoch belongs to the next transaction, even if the marker of the last one
        has not been appended yet."""
        return producer_id in self._ongoing and self.producers[producer_id].epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """A batch would begin a transaction. The guard has to be given with the batch later."""
        found = self._verifying.get(producer_id)
        if found is None:
            if len(self._verifying) >= PRODUCERS_MAX:
                del self._verifying[next(iter(self._verifying))]
            found = VerificationStateEntry(self._next_guard, epoch, sequence, now_ms)
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
        """KafkaError unless the transactional batch is part of an open transaction, is verified to begin one, or is in
        the log already."""
        if self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        found = self._verifying.get(batch.producer_id)
        if found is None or found.guard != guard:
            if self._is_in_log(batch):
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

    def _is_in_log(self, batch: Batch) -> bool:
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
        producer.batches.append(BatchMetadata.from_batch(batch))
        if len(producer.batches) > BATCHES_REMEMBERED:
            del producer.batches[0]
            producer.whole = False
        producer.last_timestamp = batch.max_timestamp
        if producer.txn_first_offset is None and batch.is_transactional:
            producer.txn_first_offset = batch.base_offset
            self._ongoing[batch.producer_id] = batch.base_offset

    def recall(self, batch: Batch) -> None:
        """Take up a batch from before the snapshot that this state was loaded from. The newest has to come first."""
        producer = self.producers.get(batch.producer_id)
        if producer is None or not producer.batches or batch.producer_epoch != producer.epoch:
            return
        oldest = producer.batches[0]
        if (
            len(producer.batches) < BATCHES_REMEMBERED
            and batch.last_offset < oldest.base_offset
            and (batch.last_sequence + 1) & 0x7FFFFFFF == oldest.first_sequence
        ):
            producer.batches.insert(0, BatchMetadata.from_batch(batch))

    def recalled_down_to(self) -> int | None:
        """The next batch for `recall` lies below this offset; None if no more are needed. A producer needs none if it
        has five, or if its oldest has sequence 0, with which its epoch began."""
        return max(
            (
                producer.batches[0].base_offset
                for producer in self.producers.values()
                if 0 < len(producer.batches) < BATCHES_REMEMBERED
                and producer.batches[0].first_sequence != 0
            ),
            default=None,
        )

    def add_marker(self, batch: Batch, marker: EndTransactionMarker) -> AbortedTransaction | None:
        """The end of a transaction is in the log. Returned for the transaction index, if the transaction had records
        here and was aborted."""
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

    def _touched(self, batch: Batch) -> ProducerStateEntry:
        self._verifying.pop(batch.producer_id, None)
        producer = self.producers.pop(batch.producer_id, None)
        if producer is None:
            if len(self.producers) >= PRODUCERS_MAX:
                self._forget_one()
            producer = ProducerStateEntry(batch.producer_epoch)
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
        """The first offset of the oldest transaction whose marker is not below the high watermark."""
        if not self._ongoing and not self._ended:
            return None
        if self._ended:
            self._ended = [txn for txn in self._ended if txn[1] >= high_watermark]
        firsts = [first for first, _ in self._ended]
        firsts += islice(self._ongoing.values(), 1)
        return min(firsts, default=None)

    def oldest_transaction(self) -> tuple[int, int] | None:
        """Of the open transaction that began first: its first offset, and the timestamp of its producer's last batch."""
        for producer_id, first_offset in self._ongoing.items():
            return first_offset, self.producers[producer_id].last_timestamp
        return None

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget producers that are silent for so long, unless they have an open transaction.

        Silence is measured with the clock of the caller, from call to call. It begins with the first call after a batch
        was appended, or after a snapshot or the log was read. So each producer is remembered for at least `after_ms`, and
        for at most one interval between calls more. The timestamps of records cannot be used: those of a mirror or a
        backfill are old when they arrive, and a producer forgotten for that would have its retry written twice.
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

    def truncate_to(self, log_end: int) -> bool:
        """The log was truncated to `log_end`. False if the state has to be rebuilt from the log, because what came before
        is not remembered."""
        if any(producer.coordinator_epoch >= 0 for producer in self.producers.values()):
            return False  # a transaction whose marker was truncated would be open again
        affected = [
            (producer_id, producer)
            for producer_id, producer in self.producers.items()
            if not producer.batches or producer.batches[-1].last_offset >= log_end
        ]
        for _, producer in affected:
            if not producer.whole and (
                not producer.batches or producer.batches[0].last_offset >= log_end
            ):
                return False
        for producer_id, producer in affected:
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


def _out_of_order(batch: Batch, producer: ProducerStateEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence "
        f"{batch.base_sequence}; the last of epoch {producer.epoch} here is {producer.last_sequence}",
    )


def _fenced(batch: Batch, producer: ProducerStateEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {batch.producer_epoch} of producer {batch.producer_id} is behind {producer.epoch}",
    )


def _marker_refusal(
    batch: Batch, marker: EndTransactionMarker, producer: ProducerStateEntry, bumps_epoch: bool
) -> KafkaError | None:
    if batch.producer_epoch < producer.epoch:
        return _fenced(batch, producer)
    if bumps_epoch and batch.producer_epoch == producer.epoch:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {batch.producer_epoch} of producer {batch.producer_id} has begun already",
        )
    if marker.coordinator_epoch < producer.coordinator_epoch:
        return KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} of producer {batch.producer_id} "
            f"is behind {producer.coordinator_epoch}",
        )
    return None
