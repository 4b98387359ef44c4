"""Clients that consume, transform and produce in transactions, exactly once.

A processor is a member of a group. Each transaction takes some records of a partition that the processor owns, writes one
record for each, and commits the offset with them. Some crash in the middle; some pause until another instance has taken
over, and then go on as zombies.

There are two kinds. Those of transaction.version 2 (KIP-890) leave it to the leaders to add partitions, and each end of a
transaction raises their epoch, so that a late request has no effect. Older ones send AddPartitionsToTxn. A late request of
theirs could reach the next transaction, so after a missing answer they begin again with InitProducerId.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ottla.records.batch import batches, check_crc
from ottla.records.record import Record, build
from ottla.records.record import records as records_of
from ottla.sim.clients.connections import BACKOFF_S, REQUEST_TIMEOUT_S, ClientConnections
from ottla.sim.clients.group_clients import (
    NO_ANSWER,
    READ_COMMITTED,
    ClientBehaviour,
    fetch_committed,
    topics_of,
)
from ottla.sim.clients.group_members import TRANSACTION, Coordinator, MemberClient
from ottla.sim.engine.loop import START_NS
from ottla.sim.engine.world import WALL_START_MS
from ottla.sim.oracle.group_oracle import OFFSETS, TRANSACTIONS, GroupOracle, Transaction, text
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import RETRIABLE, ErrorCode
from ottla.wire.types import TopicPartition

INIT_VERSION, ADD_OFFSETS_VERSION, ADD_PARTITIONS_VERSION = 5, 4, 3
TRIES_MAX = 8
RECORDS_MAX = 5
CERTAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Errors after which the request surely had no effect. After other retriable errors it may have one, also later."""


Ask = Callable[[], Coroutine[Any, Any, tuple[Any, ErrorCode]]]
"""Sends a request; returns the response and its error code."""


class RequestRefused(Exception):
    """A request was refused with an error that is not retriable."""

    def __init__(self, what: str, code: ErrorCode) -> None:
        super().__init__(f"{what}: {code.name}")
        self.code = code


class GaveUp(Exception):
    """A transaction was given up: no answer for too long, or a simulated crash."""


class Retired(Exception):
    """Another instance has taken over the transactional id."""


class Processor:
    def __init__(
        self,
        connections: ClientConnections,
        member: MemberClient,
        oracle: GroupOracle,
        transactional_id: str,
        outputs: Sequence[TopicPartition],
        chance: random.Random,
        behaviour: ClientBehaviour,
        *,
        is_modern: bool,
        timeout_ms: int,
        on_pause: Callable[[Processor], None],
    ) -> None:
        self.member = member
        self.transactional_id = transactional_id
        self.name = member.name
        self.is_modern = is_modern
        self.is_retired = False
        self.positions: dict[TopicPartition, int] = {}
        self._connections = connections
        self._oracle = oracle
        self._outputs = outputs
        self._random = chance
        self._behaviour = behaviour
        self._timeout_ms = timeout_ms
        self._on_pause = on_pause
        self._is_replaced = False
        self._coordinator = Coordinator(connections, TRANSACTION, transactional_id)
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._is_doubtful = False
        """Something was sent and no answer came: it may still arrive."""
        self._sent: list[tuple[str, Ask, TopicPartition]] = []
        self._late: list[tuple[str, Ask, TopicPartition]] = []
        """The requests of the last transaction: one of them may be sent again."""
        self._count = 0
        self._seen: tuple[str, int] | None = None

    async def run(self) -> None:
        while not self.is_retired:
            try:
                await self._round()
            except NO_ANSWER:
                await asyncio.sleep(BACKOFF_S)
            except Retired:
                self.is_retired = True
            await self._behaviour.rest(self._random)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _identity(self) -> str:
        return "none" if self._producer is None else "{}/{}".format(*self._producer)

    async def _round(self) -> None:
        member = self.member
        await member.poll()
        now = member.member_id, member.generation
        if now != self._seen:
            self._seen = now
            self.positions.clear()
        if not member.is_joined or not member.owned:
            return
        if self._producer is None:
            await self._init()
            return
        missing = [each for each in member.owned if each not in self.positions]
        if missing:
            found = await fetch_committed(member, self._oracle, missing)
            self.positions.update({each: max(0, offset) for each, offset in found.items()})
        known = [each for each in member.owned if each in self.positions]
        if not known:
            return
        source = self._random.choice(known)
        records = await self._fetch(source)
        if records:
            await self._process(source, records)

    async def _fetch(self, source: TopicPartition) -> list[Record]:
        try:
            place, channel = await self._connections.leader(source)
            position = self.positions[source]
            answer, data = await self._connections.fetch(
                place, channel, source, position, -1, isolation=READ_COMMITTED
            )
        except NO_ANSWER:
            self._connections.forget(source)
            raise
        if answer.error != ErrorCode.NONE:
            self._connections.forget(source)
            return []
        found: list[Record] = []
        for batch in batches(data):
            check_crc(data, batch)
            if not batch.is_control:
                found += [each for each in records_of(data, batch) if each.offset >= position]
        return found if self._behaviour.is_calm else found[: self._random.randint(1, RECORDS_MAX)]

    # One transaction

    async def _process(self, source: TopicPartition, records: Sequence[Record]) -> None:
        self._count += 1
        name = f"{self.name}.{self._count}"
        transaction = self._oracle.begin_transaction(name, self.transactional_id, self._identity)
        values: dict[TopicPartition, list[bytes]] = {}
        for record in records:
            target = self._random.choice(self._outputs)
            value = f"{source.topic}/{source.partition}/{record.offset}={name}".encode()
            values.setdefault(target, []).append(value)
            transaction.values[value] = target
        self._late, self._sent = self._sent, []
        try:
            await self._send(transaction, values)
            await self._repeat_a_late_request()
            await self._interrupt()
            await self._commit_offset(transaction, source, records[-1].offset + 1)
            await self._interrupt()
            commit = self._random.random() >= self._behaviour.abort
            await self._end(transaction, commit=commit)
        except (RequestRefused, GaveUp) as error:
            self._failed(transaction, error)
            return
        if transaction.is_committed:
            self.positions[source] = records[-1].offset + 1
        else:
            self.positions.clear()
        if self._is_doubtful and not self.is_modern:
            self._producer = None

    def _failed(self, transaction: Transaction, error: Exception) -> None:
        """If EndTxn(commit) was not sent, it will not be committed: the next instance aborts it, or its timeout."""
        self._oracle.note(f"{transaction}: {error}", transaction.transactional_id)
        if not transaction.asked_to_commit:
            self._oracle.ended(transaction, committed=False)
        self.positions.clear()
        self._producer = None
        if isinstance(error, RequestRefused):
            self.member.refused(error.code)
        if self._is_replaced:
            raise Retired

    async def _repeat_a_late_request(self) -> None:
        """C3: a request of the last transaction that arrives during this one has no effect. (Older clients cannot rely
        on that.)"""
        if not self.is_modern or not self._late or self._random.random() >= self._behaviour.late:
            return
        what, ask, at = self._random.choice(self._late)
        try:
            _, code = await ask()
        except NO_ANSWER:
            return  # lost on its way; this transaction goes on
        self._note(f"a late {what} while {self._identity} works: {code.name}")
        if code is ErrorCode.NONE and not {at, TRANSACTIONS} & self._oracle.losses.keys():
            self._oracle.fail(
                "C3",
                f"transactional id {self.transactional_id}",
                f"a late {what} of the last transaction succeeded during that of {self._identity}",
                [self.transactional_id],
            )

    def _note(self, what: str) -> None:
        self._oracle.note(f"{self.name}: {what}", self.transactional_id)

    async def _interrupt(self) -> None:
        """A long pause, in which other members take over the partition, or another instance the transactional id; or a
        crash."""
        if self._random.random() < self._behaviour.pause and not self._is_replaced:
            if self._random.random() < 0.5:
                self._is_replaced = True
                self._on_pause(self)
            await asyncio.sleep(self._random.uniform(0.5, 12.0))
        elif self._random.random() < self._behaviour.crash:
            self.member.crash()
            if self._random.random() < 0.5:
                self._change_transactional_id()
            raise GaveUp("crashed")

    def _change_transactional_id(self) -> None:
        """No client will end the open transaction of the old id: the coordinator has to."""
        self.transactional_id = f"{self.name}.{self._count}"
        self._coordinator = Coordinator(self._connections, TRANSACTION, self.transactional_id)

    async def _init(self) -> None:
        if self._is_replaced:
            raise Retired
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._coordinator.ask(ApiKey.INIT_PRODUCER_ID, fields, INIT_VERSION)
        code = ErrorCode(int(answer.error_code))
        if code is ErrorCode.NONE:
            self._producer = int(answer.producer_id), int(answer.producer_epoch)
            self._sequences.clear()
            self._sent.clear()
            self._is_doubtful = False
            self._oracle.initialized(self.transactional_id, self._identity, self.name)
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._coordinator.forget()

    async def _ask_until_answered(
        self, what: str, ask: Ask, forget: Callable[[], None], at: TopicPartition
    ) -> tuple[Any, int]:
        """Retry until there is a final answer; returns it and the number of retries. `at`: the partition whose leader is
        asked."""
        begun = self._now()
        self._sent.append((what, ask, at))
        for tries in range(TRIES_MAX):
            try:
                answer, code = await ask()
            except NO_ANSWER:
                self._is_doubtful = True
            else:
                if code is ErrorCode.NONE:
                    if tries == 0:
                        self._oracle.check_fenced(
                            self.transactional_id, self.name, begun, what, self._identity, at
                        )
                    return answer, tries
                if code not in RETRIABLE:
                    self._note(f"{what} of {self._identity}: {code.name}")
                    raise RequestRefused(what, code)
                self._is_doubtful = self._is_doubtful or code not in CERTAIN
                if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    await asyncio.sleep(BACKOFF_S)
                    continue
            forget()
            await asyncio.sleep(BACKOFF_S * (tries + 1))
        raise GaveUp(what)

    async def _ask_coordinator(
        self, what: str, key: ApiKey, fields: dict[str, Any], version: int
    ) -> tuple[Any, int]:
        async def ask() -> tuple[Any, ErrorCode]:
            answer = await self._coordinator.ask(key, fields, version)
            if key is ApiKey.ADD_PARTITIONS_TO_TXN:
                rows = [
                    row
                    for topic in answer.results_by_topic_v3_and_below
                    for row in topic.results_by_partition
                ]
                codes = [ErrorCode(int(row.partition_error_code)) for row in rows]
                return answer, next((code for code in codes if code), ErrorCode.NONE)
            return answer, ErrorCode(int(answer.error_code))

        return await self._ask_until_answered(what, ask, self._coordinator.forget, TRANSACTIONS)

    async def _send(
        self, transaction: Transaction, values: dict[TopicPartition, list[bytes]]
    ) -> None:
        assert self._producer is not None
        producer_id, epoch = self._producer
        if not self.is_modern:
            topics: dict[str, list[int]] = {}
            for target in sorted(values):
                topics.setdefault(target.topic, []).append(target.partition)
            fields = {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [
                    {"name": name, "partitions": numbers} for name, numbers in topics.items()
                ],
            }
            await self._ask_coordinator(
                "AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, fields, ADD_PARTITIONS_VERSION
            )
        for target, each in values.items():
            sequence = self._sequences.get(target, 0)
            base_offset, leader_epoch = await self._produce(target, each, sequence)
            self._oracle.placed(transaction, each, base_offset, leader_epoch)
            self._sequences[target] = sequence + len(each)

    async def _produce(
        self, target: TopicPartition, values: Sequence[bytes], sequence: int
    ) -> tuple[int, int]:
        """The base offset, and the leader epoch that the client knew."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        now_ms = WALL_START_MS + int(self._now() * 1000) - START_NS // 1_000_000
        data = build(
            [Record(number, now_ms, None, value) for number, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        version = 13 if self.is_modern else 11

        async def ask() -> tuple[Any, ErrorCode]:
            place, channel = await self._connections.leader(target)
            part = produce.PartitionData(
                target.topic, place.topic_id, target.partition, memoryview(bytearray(data))
            )
            timeout_ms = int(REQUEST_TIMEOUT_S * 1000)
            request = produce.ProduceRequest(self.transactional_id, -1, timeout_ms, [part])
            body = produce.write_request(version, request)

            def read(frame: memoryview, start: int) -> produce.PartitionResult:
                return produce.read_response(version, frame, start).results[0]

            result = await self._connections.call(channel, ApiKey.PRODUCE, version, body, read)
            return (result.base_offset, place.leader_epoch), ErrorCode(result.error)

        def forget() -> None:
            self._connections.forget(target)

        placed: tuple[int, int]
        placed, _ = await self._ask_until_answered(
            f"Produce to {text(target)}", ask, forget, target
        )
        return placed

    async def _commit_offset(
        self, transaction: Transaction, source: TopicPartition, offset: int
    ) -> None:
        assert self._producer is not None
        member = self.member
        producer_id, epoch = self._producer
        stamp = {
            "transactional_id": self.transactional_id,
            "group_id": member.group,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        if not self.is_modern:
            await self._ask_coordinator(
                "AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, stamp, ADD_OFFSETS_VERSION
            )
        place = member.group, source
        commit = self._oracle.begin_commit(place, transaction.name, offset)
        transaction.commits.append((place, commit))
        row = {"committed_offset": offset, "committed_metadata": commit.name}
        fields = {
            **stamp,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "topics": topics_of([(source, row)]),
        }
        version = 5 if self.is_modern else 4

        async def ask() -> tuple[Any, ErrorCode]:
            answer = await member.coordinator.ask(ApiKey.TXN_OFFSET_COMMIT, fields, version)
            (topic,) = answer.topics
            (result,) = topic.partitions
            return answer, ErrorCode(int(result.error_code))

        await self._ask_until_answered("TxnOffsetCommit", ask, member.coordinator.forget, OFFSETS)

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        assert self._producer is not None
        producer_id, epoch = self._producer
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": commit,
        }
        transaction.asked_to_commit = commit
        was_doubtful, self._is_doubtful = self._is_doubtful, False
        try:
            answer, _ = await self._ask_coordinator(
                "EndTxn", ApiKey.END_TXN, fields, 5 if self.is_modern else 4
            )
        except RequestRefused:
            if not self._is_doubtful:
                transaction.asked_to_commit = False  # the first try was refused: it had no effect
            raise
        finally:
            self._is_doubtful = self._is_doubtful or was_doubtful
        if self.is_modern:
            self._producer = int(answer.producer_id), int(answer.producer_epoch)
            self._sequences.clear()
        self._oracle.ended(transaction, committed=commit)
