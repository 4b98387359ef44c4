"""Carries out what `ottla.spark.write.decisions` asks for: the decision topic, and the ends of the tasks' transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar
from zlib import crc32

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.connections import Unreachable
from ottla.client.model import FetchedRecords
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.client.transaction_admin import EPOCH_PER_TRANSACTION, ONGOING, TransactionAdmin
from ottla.records.batch import HEADER_BYTES
from ottla.records.compression import Codec
from ottla.records.record import Record, build
from ottla.spark.errors import SparkSourceError
from ottla.spark.write.decisions import (
    Abort,
    BatchDecision,
    CheckOpen,
    CommitTransactions,
    Confirm,
    ListOpen,
    Procedure,
    Propose,
    RecordDecision,
    Step,
    TaskTransaction,
    TransactionOutcome,
    Withdraw,
    driver_id,
    prefix,
)
from ottla.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T")

DECISION_TOPIC: Final = "ottla-sink-decisions"
DECISION_PARTITIONS: Final = 16
DECISION_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # A driver reads a partition from its beginning, and only closed segments are compacted.
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
DRIVER_TIMEOUT_MS: Final = 60_000
"""For the transactions with decisions, which are short. One that is left open holds up other queries that share the
partition for so long."""
LAST_CHANCE_S: Final = 900.0
"""How long a commit is tried that nobody would try later: brokers let no transaction be open for longer, unless told to."""
STABLE_PATIENCE_S: Final = 2 * DRIVER_TIMEOUT_MS / 1000
"""A coordinator ends an overdue transaction with some delay."""
AT_ONCE: Final = 50
"""Transactions ended at the same time."""
LOOK_EVERY_S: Final = 0.05


class DecisionLog:
    """The decisions about one query."""

    def __init__(self, client: Client, query: str, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._query = query
        self._now_ms = now_ms
        self._partition = crc32(query.encode()) % DECISION_PARTITIONS
        self._producer: PipelinedProducer | None = None

    async def propose(self, decision: BatchDecision) -> BatchDecision | None:
        await self._create_topic()
        await self.close()
        self._producer = PipelinedProducer(
            self._client, driver_id(self._query), transaction_timeout_ms=DRIVER_TIMEOUT_MS
        )
        await self._producer.start()
        await self._until_stable()
        await self._write(decision)
        ours = self._producer.first_offsets[DECISION_TOPIC, self._partition]
        return await self._newest_before(ours)

    async def end(self, *, commit: bool) -> None:
        assert self._producer is not None, "proposed"
        await self._producer.end(commit=commit)

    async def record(self, decision: BatchDecision) -> None:
        await self._write(decision)
        await self.end(commit=True)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    async def _write(self, decision: BatchDecision) -> None:
        assert self._producer is not None
        now_ms = self._now_ms()
        record = Record(0, now_ms, self._query.encode(), decision.to_json().encode())
        body = memoryview(build([record], codec=Codec.ZSTD))[HEADER_BYTES:]
        section = Section(body, 1, now_ms, Codec.ZSTD)
        await self._producer.send(DECISION_TOPIC, self._partition, section)
        await self._producer.flush()

    async def _create_topic(self) -> None:
        if await self._topic_exists():
            return
        # Of all that are registered: a topic that is made while brokers are away would lack their copies for ever.
        factor = min(3, len((await self._client.describe_cluster()).brokers))
        settings = {**DECISION_SETTINGS, "min.insync.replicas": str(max(1, factor - 1))}
        try:
            await self._client.create_topic(DECISION_TOPIC, DECISION_PARTITIONS, factor, settings)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self._client.metadata([DECISION_TOPIC], created=True)

    async def _topic_exists(self) -> bool:
        try:
            await self._client.topic(DECISION_TOPIC)
            return True
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False

    async def _until_stable(self) -> None:
        """Other queries' drivers write to the partition too, and one that died has a proposal open until its timeout. That
        is waited for before our own timeout runs; whoever begins meanwhile is alive, and does not take long."""
        end = await self._client.offset(DECISION_TOPIC, self._partition, LATEST)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STABLE_PATIENCE_S
        while loop.time() < deadline:
            fetched = await self._client.fetch(
                DECISION_TOPIC, self._partition, end, max_bytes=1, max_wait_ms=0, committed=True
            )
            if fetched.last_stable_offset >= end:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _newest_before(self, offset: int) -> BatchDecision | None:
        """The write at `offset` is acknowledged, so that its leader was the leader; and our transaction is open, so
        that nothing behind it can be read. What is committed before it is all that there is."""
        newest: BatchDecision | None = None
        key = self._query.encode()
        position = await self._client.offset(DECISION_TOPIC, self._partition, EARLIEST)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STABLE_PATIENCE_S
        while position < offset:
            fetched = await self._client.fetch(
                DECISION_TOPIC, self._partition, position, committed=True
            )
            for record in fetched.records:
                if record.key == key and record.value is not None and record.offset < offset:
                    newest = BatchDecision.from_json(self._query, record.value)
            if fetched.next_offset == position:
                if fetched.last_stable_offset >= offset:
                    break  # compaction has removed the last ones
                if loop.time() > deadline:
                    raise SparkSourceError(
                        f"the decisions in {DECISION_TOPIC}-{self._partition} cannot be read: a transaction is open there at "
                        f"offset {fetched.last_stable_offset}, and nobody ends it ('ottla transactions' shows whose it is)"
                    )
            position = fetched.next_offset
        return newest


class SinkDriver:
    """What the driver of one query does in the cluster."""

    def __init__(self, client: Client, query: str, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._transactions = TransactionAdmin(client)
        self._decisions = DecisionLog(client, query, now_ms)

    async def carry_out(self, procedure: Procedure) -> None:
        answer: Any = None
        try:
            while True:
                try:
                    step = procedure.send(answer)
                except StopIteration:
                    return
                answer = await self.do(step)
        finally:
            await self._decisions.close()

    async def do(self, step: Step) -> Any:
        match step:
            case ListOpen(query):
                return await self._open(query)
            case CheckOpen(transactions):
                are_open = await _all(self._is_open, transactions)
                return [
                    each
                    for each, is_open in zip(transactions, are_open, strict=True)
                    if not is_open
                ]
            case Propose(decision):
                return await self._decisions.propose(decision)
            case Confirm():
                await self._decisions.end(commit=True)
            case Withdraw():
                await self._decisions.end(commit=False)
            case RecordDecision(decision):
                await self._decisions.record(decision)
            case CommitTransactions(transactions, is_last_chance):
                how = self._commit_for_good if is_last_chance else self.commit
                return await _all(how, transactions)
            case Abort(transactional_ids):
                await _all(self._abort, transactional_ids)
        return None

    async def _open(self, query: str) -> set[str]:
        within = prefix(query)
        listed = await self._transactions.all(states=(ONGOING,), pattern=f"{within}.*")
        found = {each.id for each in listed.answers if each.id.startswith(within)}
        found.discard(driver_id(query))
        return found

    async def _is_open(self, written: TaskTransaction) -> bool:
        """Under the same id another attempt may have one open: then this one is over, and the epoch tells."""
        try:
            described = await self._transactions.describe(written.identity.transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        found = described.producer_id, described.producer_epoch
        return described.state == ONGOING and found == written.identity[1:3]

    async def commit(self, written: TaskTransaction) -> TransactionOutcome:
        """Idempotent: each call has the same outcome."""
        try:
            await self._transactions.end(written.identity, commit=True)
            return TransactionOutcome.COMMITTED
        except KafkaError as error:
            if error.retriable:
                raise
            # Its coordinator may have forgotten it, or know only of a later one with the same id. The log knows.
            outcome = await self._outcome_in_log(written)
            log.info(
                "transaction ended already transaction=%s outcome=%s error=%s",
                written,
                outcome.value,
                error,
            )
            return outcome

    async def _commit_for_good(self, written: TaskTransaction) -> TransactionOutcome:
        """Retry until there is an outcome. A coordinator that does not answer may have received the request, and commit later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_CHANCE_S
        while True:
            try:
                return await self.commit(written)
            except (KafkaError, OSError, Unreachable) as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                if loop.time() > deadline:
                    return TransactionOutcome.UNKNOWN
                log.warning(
                    "commit not confirmed yet transaction=%s error=%s",
                    written,
                    str(error) or "no answer",
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _outcome_in_log(self, written: TaskTransaction) -> TransactionOutcome:
        """Decided by records that exist, never by missing ones: compaction removes aborted transactions."""
        fetched = await self._when_over(written)
        first, producer_id = written.first_offset, written.identity.producer_id
        if any(of == producer_id and begin <= first for of, begin in fetched.aborted):
            return TransactionOutcome.ABORTED
        end, position = fetched.high_watermark, first
        is_there = any(
            each.producer_id == producer_id and each.count and not each.is_control
            for each in fetched.batches
            if each.base_offset <= first <= each.last_offset
        )
        while position < end:
            # Not only what is committed: somebody else's open transaction may lie before the marker.
            fetched = await self._client.fetch(
                written.topic, written.partition, position, max_wait_ms=0
            )
            for marker in fetched.markers:
                # With an epoch for each transaction, the marker has it or the next. Else it is the first one behind
                # the records, which compaction does not take away before them.
                is_ours = is_there or (
                    written.identity.version >= EPOCH_PER_TRANSACTION
                    and marker.producer_epoch - written.identity.producer_epoch in (0, 1)
                )
                if marker.producer_id == producer_id and marker.offset > first and is_ours:
                    return (
                        TransactionOutcome.COMMITTED
                        if marker.is_commit
                        else TransactionOutcome.ABORTED
                    )
            if fetched.next_offset == position:
                break  # compaction has removed the last ones
            position = fetched.next_offset
        raise self._forgotten(written)

    async def _when_over(self, written: TaskTransaction) -> FetchedRecords:
        """A committed read of the place that it wrote to, when no transaction is open there."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.connections.timeout_s
        topic, partition, first = written.topic, written.partition, written.first_offset
        while True:
            try:
                fetched = await self._client.fetch(
                    topic, partition, first, max_bytes=1, max_wait_ms=0, committed=True
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                raise self._forgotten(written) from error
            if fetched.last_stable_offset > first:
                return fetched
            if loop.time() > deadline:
                raise SparkSourceError(
                    f"the transaction of {written} can neither be ended nor is it over; start the query again when the "
                    "cluster is well"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _forgotten(self, written: TaskTransaction) -> SparkSourceError:
        return SparkSourceError(
            f"nobody knows any more whether {written} was committed: its coordinator has forgotten it, and its records are "
            "not in the topic any more. Look whether the rows are there: if so, go on with a new checkpoint behind them, "
            "else with one before them"
        )

    async def abort(self, written: TaskTransaction) -> None:
        """Abort a transaction that no decision names."""
        await self._transactions.end(written.identity, commit=False)

    async def _abort(self, transactional_id: str) -> None:
        try:
            await self._transactions.abort(transactional_id)
        except (KafkaError, OSError, Unreachable, SparkSourceError) as error:
            # What counts is committed. This one delays readers until its timeout at most.
            log.warning("transaction not aborted id=%s error=%s", transactional_id, error)


async def _all(work: Callable[[Any], Awaitable[T]], items: Iterable[Any]) -> list[T]:
    """Some at a time; in the order of the items."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> T:
        async with room:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))
