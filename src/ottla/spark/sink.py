"""Carries out what `ottla.spark.decisions` asks for: the decision topic, and the ends of the tasks' transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar
from zlib import crc32

from ottla.client.client import EARLIEST, Client
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.client.transactions import ONGOING, Transactions
from ottla.records.batch import HEADER_BYTES
from ottla.records.compression import Codec
from ottla.records.record import Record as LogRecord
from ottla.records.record import build
from ottla.spark.decisions import (
    Abort,
    Commit,
    Confirm,
    Decision,
    ListOpen,
    Outcome,
    Procedure,
    Propose,
    Record,
    Step,
    Withdraw,
    Written,
    driver_id,
    prefix,
)
from ottla.spark.errors import SparkSourceError
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

    async def propose(self, decision: Decision) -> Decision | None:
        await self._create_topic()
        await self.close()
        self._producer = PipelinedProducer(
            self._client, driver_id(self._query), transaction_timeout_ms=DRIVER_TIMEOUT_MS
        )
        await self._producer.start()
        await self._write(decision)
        ours = self._producer.first_offsets[DECISION_TOPIC, self._partition]
        return await self._newest_before(ours)

    async def end(self, *, commit: bool) -> None:
        assert self._producer is not None, "proposed"
        await self._producer.end(commit=commit)

    async def record(self, decision: Decision) -> None:
        await self._write(decision)
        await self.end(commit=True)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    async def _write(self, decision: Decision) -> None:
        assert self._producer is not None
        now_ms = self._now_ms()
        record = LogRecord(0, now_ms, self._query.encode(), decision.to_json().encode())
        body = memoryview(build([record], codec=Codec.ZSTD))[HEADER_BYTES:]
        section = Section(body, 1, now_ms, Codec.ZSTD)
        await self._producer.send(DECISION_TOPIC, self._partition, section)
        await self._producer.flush()

    async def _create_topic(self) -> None:
        if await self._topic_exists():
            return
        factor = min(3, len((await self._client.metadata([])).brokers))
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

    async def _newest_before(self, offset: int) -> Decision | None:
        """The write at `offset` is acknowledged, so that its leader was the leader; and our transaction is open, so
        that nothing behind it can be read. What is committed before it is all that there is."""
        newest: Decision | None = None
        key = self._query.encode()
        position = await self._client.offset(DECISION_TOPIC, self._partition, EARLIEST)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * DRIVER_TIMEOUT_MS / 1000
        while position < offset:
            fetched = await self._client.fetch(
                DECISION_TOPIC, self._partition, position, committed=True
            )
            for record in fetched.records:
                if record.key == key and record.value is not None and record.offset < offset:
                    newest = Decision.from_json(self._query, record.value)
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
        self._transactions = Transactions(client)
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
            case ListOpen(query, expected):
                return await self._open(query, expected)
            case Propose(decision):
                return await self._decisions.propose(decision)
            case Confirm():
                await self._decisions.end(commit=True)
            case Withdraw():
                await self._decisions.end(commit=False)
            case Record(decision):
                await self._decisions.record(decision)
            case Commit(transactions):
                return await _all(self.commit, transactions)
            case Abort(transactional_ids):
                await _all(self._abort, transactional_ids)
        return None

    async def _open(self, query: str, expected: tuple[Written, ...]) -> set[str]:
        """A broker that has just died lists nothing: those that must be there are looked for one by one."""
        within = prefix(query)
        listed = await self._transactions.all(states=(ONGOING,), pattern=f"{within}.*")
        found = {each.id for each in listed.answers if each.id.startswith(within)}
        found.discard(driver_id(query))
        missing = [each for each in expected if each.identity.transactional_id not in found]
        for each, is_open in zip(missing, await _all(self._is_open, missing), strict=True):
            if is_open:
                found.add(each.identity.transactional_id)
        return found

    async def _is_open(self, written: Written) -> bool:
        try:
            described = await self._transactions.describe(written.identity.transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        return described.state == ONGOING and described.producer_id == written.identity.producer_id

    async def commit(self, written: Written) -> Outcome:
        """As often as it is asked, the answer is the same."""
        try:
            await self._transactions.end(written.identity, commit=True)
            return Outcome.COMMITTED
        except KafkaError as error:
            if error.retriable:
                raise
            # Its coordinator may have forgotten it, or know only of a later one with the same id. The log knows.
            outcome = await self._outcome_in_log(written)
            log.info("the transaction of %s is %s already (%s)", written, outcome.value, error)
            return outcome

    async def _outcome_in_log(self, written: Written) -> Outcome:
        topic, partition, first = written.topic, written.partition, written.first_offset
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.connections.timeout_s
        while True:
            try:
                fetched = await self._client.fetch(
                    topic, partition, first, max_bytes=1, max_wait_ms=0, committed=True
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                raise SparkSourceError(
                    f"nobody knows any more whether {written} was committed: its coordinator has forgotten it, and the "
                    "records are not in the topic any more"
                ) from error
            if fetched.last_stable_offset > first:
                is_aborted = (written.identity.producer_id, first) in fetched.aborted
                return Outcome.ABORTED if is_aborted else Outcome.COMMITTED
            if loop.time() > deadline:
                raise SparkSourceError(
                    f"the transaction of {written} can neither be ended nor is it over; start the query again when the "
                    "cluster is well"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def abort(self, written: Written) -> None:
        """What nobody decided about, told by the one who wrote it or by whom he told."""
        await self._transactions.end(written.identity, commit=False)

    async def _abort(self, transactional_id: str) -> None:
        try:
            await self._transactions.abort(transactional_id)
        except (KafkaError, OSError) as error:
            # What counts is committed. This one holds readers up until its timeout, and no longer.
            log.warning("%s could not be aborted: %s", transactional_id, error)


async def _all(work: Callable[[Any], Awaitable[T]], items: Iterable[Any]) -> list[T]:
    """Some at a time; in the order of the items."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> T:
        async with room:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))
