"""The transaction coordinator: the pure state machine of all transactional ids of one partition.

A transaction's outcome is one record: once PrepareCommit (or PrepareAbort) is committed, it is decided, whichever node
fails. Then the outcome is written as a marker into every partition that took part (the broker does that, for each
`SendMarkers`), and a Complete record ends it.

    Empty ── add ──► Ongoing ── end ──► PrepareCommit|Abort ── markers ──► CompleteCommit|Abort
      ▲                 ▲                                                        │
      └─ InitProducerId └───────────────────────── add ──────────────────────────┘

Epochs decide who may act. InitProducerId raises the epoch, so an older producer of the same id is fenced. With
transaction.version 2 every end raises it too (KIP-890), so a late request of one transaction cannot affect the next. Only
records change the state here: a decision that could not be written did not happen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp, Token
from ottla.coordinators.transactions.transaction_records import (
    COMPLETE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    read_transaction,
    tombstone,
    transaction_record,
)
from ottla.events import Events
from ottla.events.coordination import (
    AbortCause,
    CoordinatorFencedProducer,
    EndTransactionRepeated,
    OpenWork,
    TransactionAborted,
    TransactionEnded,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_codec import MalformedRecord
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

EPOCH_MAX = (1 << 15) - 1
"""Used only to end a transaction: no producer gets it."""
EPOCH_BUMPS_SINCE = 2
"""From this transaction.version on each transaction has an epoch of its own."""
PATIENCE_S = 0.5
"""How long a request for the next transaction waits for the markers of the last one before it is refused as
retriable."""

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

EXPIRED_AT_ONCE_MAX = 1000
"""Ids that one batch of records deletes."""


@dataclass(frozen=True, slots=True)
class InitProducerId:
    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None
    """(producer id, epoch) of a producer that continues after an error (KIP-360)."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    verify_only: bool = False
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of a prepared transaction has its marker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Empty filters let everything pass."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_for_ms: int = -1


Command: TypeAlias = (
    InitProducerId
    | AddPartitions
    | EndTransaction
    | MarkersWritten
    | DescribeTransaction
    | ListTransactions
)
Reply: TypeAlias = Mapping[str, Any]
"""Always has "error"; the other fields depend on the command."""


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """The broker's task once the decision is committed."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    timeout_ms_max: int = 15 * 60 * 1000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_check_s: float = 10.0
    expiration_check_s: float = 3600.0


@dataclass(slots=True)
class _Parked:
    command: InitProducerId | AddPartitions
    token: Token
    deadline: float


class TransactionShard:
    """See the module. `new_producer_id` returns an id that no other producer has, or None if none is available yet;
    `server_version` returns the cluster's transaction.version."""

    def __init__(
        self,
        config: TransactionConfig,
        new_producer_id: Callable[[], int | None],
        server_version: Callable[[], int],
        events: Events,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self._config = config
        self._new_producer_id = new_producer_id
        self._server_version = server_version
        self._events = events
        self._decided: dict[CoordinatorRecord, tuple[str, TransactionMetadata]] = {}
        """States whose records are being written, with the fields that records do not have."""
        self._parked: list[_Parked] = []
        self._next_abort_check = inf
        self._next_expiration_check = inf

    # -- the log

    def replay(
        self, offset: int, record: CoordinatorRecord, producer: ProducerStamp | None, now_ms: int
    ) -> None:
        decided = self._decided.pop(record, None)
        try:
            transactional_id, transaction = decided or read_transaction(record)
        except MalformedRecord as error:
            # One record that cannot be read must not make all transactional ids unavailable.
            logger.error(
                "skipped record of a transaction coordinator offset=%d error=%s", offset, error
            )
            return
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """This topic takes part in no transaction."""

    def loaded(self, now: float) -> Effects:
        """Markers of transactions that a former coordinator decided are sent again: it may not have sent them all."""
        self._next_abort_check = now + self._config.abort_check_s
        self._next_expiration_check = now + self._config.expiration_check_s
        return Effects(
            actions=[
                _markers(transactional_id, transaction)
                for transactional_id, transaction in self.transactions.items()
                if transaction.state in PREPARED
            ]
        )

    # -- commands

    def handle(
        self, api_key: int, version: int, message: Command, token: Token, now: float, now_ms: int
    ) -> Effects:
        self._decided.clear()
        if isinstance(message, InitProducerId | AddPartitions) and self._is_too_early(message):
            self._parked.append(_Parked(message, token, now + PATIENCE_S))
            return Effects()
        return self._handle(message, token, now, now_ms)

    def _handle(self, command: Command, token: Token, now: float, now_ms: int) -> Effects:
        try:
            match command:
                case InitProducerId():
                    return self._init_producer_id(command, token, now, now_ms)
                case AddPartitions():
                    return self._add_partitions(command, token, now_ms)
                case EndTransaction():
                    return self._end(command, token, now_ms)
                case MarkersWritten():
                    return self._markers_written(command, token, now_ms)
                case DescribeTransaction():
                    return _reply(token, transaction=self._known(command.transactional_id))
                case ListTransactions():
                    return _reply(token, transactions=self._listed(command, now_ms))
        except KafkaError as error:
            if (
                error.code in FENCED
                and CoordinatorFencedProducer in self._events
                and not isinstance(command, ListTransactions)
            ):
                fenced = CoordinatorFencedProducer(command.transactional_id, error.code)
                self._events.emit(fenced)
            return Effects(replies=[(token, refusal(error.code))])

    def _known(self, transactional_id: str) -> TransactionMetadata:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return known

    def _decide(
        self, transactional_id: str, new: TransactionMetadata, token: Token | None, **fields: Any
    ) -> Effects:
        record = transaction_record(transactional_id, new)
        self._decided[record] = transactional_id, new
        replies = [] if token is None else [(token, {"error": ErrorCode.NONE, **fields})]
        actions = [_markers(transactional_id, new)] if new.state in PREPARED else []
        return Effects(records=[record], replies=replies, actions=actions, only_records=True)

    # -- InitProducerId

    def _init_producer_id(
        self, command: InitProducerId, token: Token, now: float, now_ms: int
    ) -> Effects:
        if not 0 < command.timeout_ms <= self._config.timeout_ms_max:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self.transactions.get(command.transactional_id)
        if known is None:
            known = TransactionMetadata(self._take_producer_id())
        if command.expected is not None:
            _check_expected(command.expected, known)
        if known.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TransactionState.ONGOING:
            # The old producer is gone, or fenced from now on. The new one gets its epoch after the abort.
            logger.info(
                "aborting open transaction and fencing its producer transactional_id=%s",
                command.transactional_id,
            )
            self._parked.append(_Parked(command, token, now + PATIENCE_S))
            return self._fence_and_abort(
                command.transactional_id, known, now_ms, AbortCause.NEW_PRODUCER
            )
        new = replace(
            self._bumped(known, None if command.expected is None else command.expected[1]),
            state=TransactionState.EMPTY,
            timeout_ms=command.timeout_ms,
            partitions=frozenset(),
            last_update_ms=now_ms,
            start_ms=NO_TIME,
        )
        if new.producer_id != known.producer_id:
            new = replace(new, previous_producer_id=known.producer_id)
        return self._decide(
            command.transactional_id,
            new,
            token,
            producer_id=new.producer_id,
            producer_epoch=new.producer_epoch,
        )

    def _bumped(
        self, known: TransactionMetadata, expected_epoch: int | None
    ) -> TransactionMetadata:
        """With the next epoch, or with the same one as before for a producer that repeats its request."""
        epoch = known.producer_epoch
        if expected_epoch is not None and expected_epoch != epoch != NO_EPOCH:
            if expected_epoch != known.last_producer_epoch:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            return known
        last = NO_EPOCH if expected_epoch is None else epoch
        if _is_exhausted(epoch):
            return replace(
                known,
                producer_id=self._take_producer_id(),
                producer_epoch=0,
                last_producer_epoch=last,
            )
        return replace(known, producer_epoch=epoch + 1, last_producer_epoch=last)

    def _take_producer_id(self) -> int:
        producer_id = self._new_producer_id()
        if producer_id is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id

    def _fence_and_abort(
        self, transactional_id: str, known: TransactionMetadata, now_ms: int, cause: AbortCause
    ) -> Effects:
        """An abort by the coordinator itself. With epoch bumps the producer's own EndTxn raises the epoch by one, so the
        coordinator raises it by two: the producer cannot mistake one for the other. If only one epoch is left,
        `_repeats_end` tells them apart."""
        if TransactionAborted in self._events:
            producer = known.producer_id, known.producer_epoch
            self._events.emit(
                TransactionAborted(transactional_id, *producer, cause, len(known.partitions))
            )
        version = self._server_version()
        step = 2 if version >= EPOCH_BUMPS_SINCE else 1
        if known.producer_epoch == EPOCH_MAX:
            # Former versions let a fenced producer write with this epoch. No epoch is above it, so the marker has
            # the same one, and partitions must not take it for a late marker.
            version = EPOCH_BUMPS_SINCE - 1
        new = replace(
            known,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=min(known.producer_epoch + step, EPOCH_MAX),
            last_producer_epoch=NO_EPOCH,
            last_update_ms=now_ms,
            client_version=version,
        )
        return self._decide(transactional_id, new, None)

    # -- adding

    def _add_partitions(self, command: AddPartitions, token: Token, now_ms: int) -> Effects:
        known = self._of_producer(command)
        if command.producer_epoch != known.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if known.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_open = known.state is TransactionState.ONGOING
        if command.verify_only:
            missing = command.partitions - known.partitions if is_open else command.partitions
            return _reply(token, missing=missing)
        if is_open and command.partitions <= known.partitions:
            return _reply(token)
        new = replace(
            known,
            state=TransactionState.ONGOING,
            partitions=(known.partitions | command.partitions) if is_open else command.partitions,
            start_ms=known.start_ms if is_open else now_ms,
            last_update_ms=now_ms,
            client_version=command.client_version,
        )
        return self._decide(command.transactional_id, new, token)

    def _of_producer(self, command: AddPartitions | EndTransaction) -> TransactionMetadata:
        if not command.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        known = self.transactions.get(command.transactional_id)
        if known is None or (
            known.producer_id != command.producer_id and not _repeats_last_epoch(command, known)
        ):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if command.producer_epoch == EPOCH_MAX:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return known

    # -- ending

    def _end(self, command: EndTransaction, token: Token, now_ms: int) -> Effects:
        known = self._of_producer(command)
        repeats = _repeats_end(command, known)
        if repeats and EndTransactionRepeated in self._events:
            producer = command.producer_id, command.producer_epoch
            self._events.emit(EndTransactionRepeated(command.transactional_id, *producer))
        if not repeats and command.producer_epoch != known.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        bumps = command.client_version >= EPOCH_BUMPS_SINCE
        # With epoch bumps the same epoch in a completed state is the next transaction, which has nothing
        # in it yet; without them it is the last one, asked for again.
        is_next = bumps and known.client_version >= EPOCH_BUMPS_SINCE and not repeats
        match known.state:
            case TransactionState.ONGOING if not repeats:
                return self._prepare(command, known, token, now_ms)
            case TransactionState.EMPTY if bumps and not command.commit:
                return self._prepare(command, known, token, now_ms)
            case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT if is_next:
                if not command.commit:
                    return self._prepare(command, known, token, now_ms)
            case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
                if is_next or command.commit == (known.state is TransactionState.PREPARE_COMMIT):
                    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
                if command.commit == (known.state is TransactionState.COMPLETE_COMMIT):
                    return _reply(
                        token,
                        producer_id=known.producer_id,
                        producer_epoch=known.producer_epoch,
                    )
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def _prepare(
        self, command: EndTransaction, known: TransactionMetadata, token: Token, now_ms: int
    ) -> Effects:
        new = replace(
            known,
            state=TransactionState.PREPARE_COMMIT
            if command.commit
            else TransactionState.PREPARE_ABORT,
            last_update_ms=now_ms,
            start_ms=known.start_ms if known.state is TransactionState.ONGOING else now_ms,
            partitions=known.partitions if known.state is TransactionState.ONGOING else frozenset(),
            client_version=command.client_version,
        )
        if command.client_version >= EPOCH_BUMPS_SINCE:
            if _is_exhausted(known.producer_epoch):
                new = replace(new, next_producer_id=self._take_producer_id())
            new = replace(
                new,
                producer_epoch=known.producer_epoch + 1,
                last_producer_epoch=known.producer_epoch,
            )
        after = _completed(new, now_ms)
        return self._decide(
            command.transactional_id,
            new,
            token,
            producer_id=after.producer_id,
            producer_epoch=after.producer_epoch,
        )

    def _markers_written(self, command: MarkersWritten, token: Token, now_ms: int) -> Effects:
        known = self._known(command.transactional_id)
        if known.state not in PREPARED or (known.producer_id, known.producer_epoch) != (
            command.producer_id,
            command.producer_epoch,
        ):
            return _reply(token)  # known already
        if TransactionEnded in self._events:
            self._events.emit(
                TransactionEnded(
                    command.transactional_id,
                    known.producer_id,
                    known.producer_epoch,
                    known.state is TransactionState.PREPARE_COMMIT,
                    len(known.partitions),
                )
            )
        return self._decide(command.transactional_id, _completed(known, now_ms), token)

    # -- showing

    def _listed(
        self, command: ListTransactions, now_ms: int
    ) -> list[tuple[str, TransactionMetadata]]:
        return [
            (transactional_id, each)
            for transactional_id, each in self.transactions.items()
            if (not command.states or each.state in command.states)
            and (not command.producer_ids or each.producer_id in command.producer_ids)
            and (
                command.open_for_ms < 0
                or (each.start_ms != NO_TIME and now_ms - each.start_ms > command.open_for_ms)
            )
        ]

    # -- time

    def _is_too_early(self, command: InitProducerId | AddPartitions) -> bool:
        """Whether the request can be served once the markers of the last transaction are written."""
        known = self.transactions.get(command.transactional_id)
        if known is None or known.state not in PREPARED:
            return False
        return isinstance(command, InitProducerId) or (
            not command.verify_only
            and (command.producer_id, command.producer_epoch)
            == (known.producer_id, known.producer_epoch)
        )

    def _must_wait(self, parked: _Parked) -> bool:
        """A new producer also waits until the abort of the old one's transaction is written."""
        known = self.transactions.get(parked.command.transactional_id)
        return self._is_too_early(parked.command) or (
            isinstance(parked.command, InitProducerId)
            and known is not None
            and known.state is TransactionState.ONGOING
        )

    def tick(self, now: float, now_ms: int) -> Effects:
        self._decided.clear()
        effects = [*self._wake_parked(now, now_ms)]
        if now >= self._next_abort_check:
            self._next_abort_check = now + self._config.abort_check_s
            effects += self._abort_overdue(now_ms)
        if now >= self._next_expiration_check:
            self._next_expiration_check = now + self._config.expiration_check_s
            effects += self._expire_ids(now, now_ms)
        return _together(effects)

    def next_deadline(self) -> float:
        deadline = min((each.deadline for each in self._parked), default=inf)
        if any(not self._must_wait(each) for each in self._parked):
            deadline = -inf
        if self.transactions:
            deadline = min(deadline, self._next_abort_check, self._next_expiration_check)
        return deadline

    def open_work(self) -> OpenWork:
        states = [each.state for each in self.transactions.values()]
        return OpenWork(
            ongoing_transactions=states.count(TransactionState.ONGOING),
            prepared_transactions=sum(state in PREPARED for state in states),
        )

    def _wake_parked(self, now: float, now_ms: int) -> Iterable[Effects]:
        """One request for each id: the next one must see its result."""
        parked, self._parked = self._parked, []
        served: set[str] = set()
        for each in parked:
            transactional_id = each.command.transactional_id
            must_wait = self._must_wait(each)
            if transactional_id in served or (must_wait and now < each.deadline):
                self._parked.append(each)
            elif must_wait:
                yield Effects(replies=[(each.token, refusal(ErrorCode.CONCURRENT_TRANSACTIONS))])
            else:
                served.add(transactional_id)
                yield self._handle(each.command, each.token, now, now_ms)

    def _abort_overdue(self, now_ms: int) -> Iterable[Effects]:
        """Also transactions that begin in the future: the clock of a former coordinator was ahead, and they would stay
        open for that much longer."""
        for transactional_id, each in self.transactions.items():
            age_ms = now_ms - each.start_ms
            if (
                each.state is TransactionState.ONGOING
                and not -each.timeout_ms <= age_ms <= each.timeout_ms
            ):
                logger.info(
                    "aborting transaction after its timeout transactional_id=%s open_ms=%d timeout_ms=%d",
                    transactional_id,
                    age_ms,
                    each.timeout_ms,
                )
                yield self._fence_and_abort(transactional_id, each, now_ms, AbortCause.TIMEOUT)

    def _expire_ids(self, now: float, now_ms: int) -> Iterable[Effects]:
        oldest = now_ms - self._config.id_expiration_ms
        expired = [
            tombstone(transactional_id)
            for transactional_id, each in self.transactions.items()
            if each.last_update_ms <= oldest and each.state in (TransactionState.EMPTY, *COMPLETE)
        ]
        if len(expired) > EXPIRED_AT_ONCE_MAX:
            self._next_expiration_check = now + 1.0
        if expired:
            yield Effects(records=expired[:EXPIRED_AT_ONCE_MAX], only_records=True)


def refusal(error: ErrorCode) -> Reply:
    return {"error": error}


def _reply(token: Token, **fields: Any) -> Effects:
    return Effects(replies=[(token, {"error": ErrorCode.NONE, **fields})])


def _together(effects: Iterable[Effects]) -> Effects:
    """As one. They concern different transactional ids."""
    all_of_them = list(effects)
    return Effects(
        records=[record for each in all_of_them for record in each.records],
        replies=[reply for each in all_of_them for reply in each.replies],
        actions=[action for each in all_of_them for action in each.actions],
        only_records=True,
    )


def _markers(transactional_id: str, prepared: TransactionMetadata) -> SendMarkers:
    return SendMarkers(
        transactional_id,
        prepared.producer_id,
        prepared.producer_epoch,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.partitions,
        prepared.client_version,
    )


def _completed(prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    committed = prepared.state is TransactionState.PREPARE_COMMIT
    done = replace(
        prepared,
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=now_ms,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
    if prepared.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(done, producer_id=prepared.next_producer_id, producer_epoch=0)


def _is_exhausted(epoch: int) -> bool:
    """The last epoch is reserved for the coordinator, so that it can always fence."""
    return epoch >= EPOCH_MAX - 1


def _check_expected(expected: tuple[int, int], known: TransactionMetadata) -> None:
    """Only the newest producer of an id may continue after an error. An older one, which got a fencing error, may
    take that for such an error too; it must not end the transaction of its successor."""
    producer_id, epoch = expected
    if known.producer_epoch == NO_EPOCH:
        return
    is_newest = expected == (known.producer_id, known.producer_epoch)
    # The response with the next epoch (or the next id, when the epochs were used up) may have been lost. A producer
    # that has begun a transaction did get it: then this request is only late.
    asks_again = (
        known.state is not TransactionState.ONGOING
        and epoch == known.last_producer_epoch
        and producer_id in (known.producer_id, known.previous_producer_id)
    )
    if not is_newest and not asks_again:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _repeats_end(command: EndTransaction, known: TransactionMetadata) -> bool:
    """Whether this end was asked for before: its epoch is the one that the end itself raised."""
    if min(known.client_version, command.client_version) < EPOCH_BUMPS_SINCE:
        return False
    if known.state not in (*PREPARED, *COMPLETE):
        return False
    if known.producer_epoch == EPOCH_MAX and known.next_producer_id == NO_PRODUCER_ID:
        # A producer's own end with its last epoch leads to the next id. This producer was fenced, with the only
        # epoch that was left.
        return False
    return (
        known.producer_id == command.producer_id
        and known.producer_epoch == command.producer_epoch + 1
    ) or _repeats_last_epoch(command, known)


def _repeats_last_epoch(
    command: AddPartitions | EndTransaction, known: TransactionMetadata
) -> bool:
    """Whether this is the end with the last epoch of a producer id, which led to the next id."""
    return (
        isinstance(command, EndTransaction)
        and known.client_version >= EPOCH_BUMPS_SINCE
        and known.state in COMPLETE
        and known.previous_producer_id == command.producer_id
        and known.producer_epoch == 0
        and _is_exhausted(command.producer_epoch)
    )
