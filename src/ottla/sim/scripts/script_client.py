"""The client of the golden scripts: it sends each request when the script says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.records.record import Record, build
from ottla.sim.cluster.nodes import BROKER_PORT, SimNode
from ottla.sim.engine.world import SimHost, World
from ottla.sim.scripts.arguments import ScriptError, number, one_of, values
from ottla.sim.scripts.rendering import fetched_text
from ottla.sim.scripts.transactional_producer import (
    ADD_VERSION,
    INIT_VERSION,
    OLDER,
    TransactionalProducer,
    transactions_text,
)
from ottla.wire import fetch, produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchPartition, FetchRequest
from ottla.wire.types import TopicPartition

if TYPE_CHECKING:
    from ottla.sim.scripts.script_cluster import ScriptCluster

T = TypeVar("T")

TOPIC = TopicPartition("t", 0)
"""The partition of all scripts."""
REACTION_S = 0.1
"""How long the cluster may react to a command before the script goes on."""
PATIENCE_S = 60.0
"""If a step has not happened after so long, it never will."""
FOREVER_MS = "3600000"
TRIES_MAX = 100
ENDS = {"commit": True, "abort": False}
COMMITTED = "committed"


class ScriptClient:
    """Producers and a consumer. Requests without an answer are pending: their outcome is reported when it is known."""

    def __init__(self, world: World, host: SimHost, cluster: ScriptCluster) -> None:
        self._world = world
        self._host = host
        self._cluster = cluster
        self._producers: dict[str, TransactionalProducer] = {}
        self._pending: dict[str, asyncio.Task[str]] = {}
        self.acknowledged: list[str] = []
        """The values that were acknowledged with acks=all, in that order."""
        self._ends = 1

    def finished(self) -> list[str]:
        """The outcomes of pending requests that are known now."""
        done = {name: task for name, task in self._pending.items() if task.done()}
        for name in done:
            del self._pending[name]
        return [task.result() for task in done.values()]

    def produce(self, node: str, *values: str) -> list[str]:
        """Each value is a batch of one record; `r1..r9` is a batch of nine. acks=all, unless one word is `acks=1`."""
        acks = 1 if "acks=1" in values else -1
        values = tuple(value for value in values if value != "acks=1")
        for value in values:
            task = self._host.run(self._produce(self._cluster.node(node), value, acks))
            self._host.started.remove(task)
            self._pending[value] = task
            self._world.run_until(task.done, REACTION_S)
        waiting = [value for value in values if value in self._pending]
        return [f"{v}: not acknowledged yet" for v in waiting if not self._pending[v].done()]

    async def _produce(self, node: SimNode, value: str, acks: int) -> str:
        records = build([Record(n, 0, None, text) for n, text in enumerate(values(value))])
        data = produce.PartitionData(TOPIC.topic, self._cluster.topic_id(), 0, memoryview(records))
        request = produce.ProduceRequest(None, acks, int(FOREVER_MS), [data])
        version = produce_version = 12

        def read(frame: memoryview, body: int) -> produce.PartitionResult:
            return produce.read_response(version, frame, body).results[0]

        try:
            result = await self._call(
                node, ApiKey.PRODUCE, produce_version, produce.write_request(version, request), read
            )
        except OSError:
            return f"{value}: the connection is lost, the outcome unknown"
        if result.error:
            return f"{value}: {ErrorCode(result.error).name}"
        if acks == -1:
            self.acknowledged += [each.decode() for each in values(value)]
        return f"{value}: {'acknowledged' if acks == -1 else 'appended'} at {result.base_offset}"

    def consume(self, node: str, offset: str, isolation: str = "all") -> list[str]:
        """Fetch from this broker at that offset, with read_uncommitted, or with read_committed if `committed` is given."""
        asked = FetchPartition(
            TOPIC.topic, self._cluster.topic_id(), 0, -1, number(offset), -1, -1, 1 << 20
        )
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=1 << 20,
            isolation_level=int(isolation == COMMITTED),
            session_epoch=-1,
            partitions=[asked],
        )

        def read(frame: memoryview, body: int) -> str:
            return fetched_text(fetch.read_response(16, frame, body).partitions[0])

        body = fetch.write_request(16, request)
        return [
            self._host.complete(self._call(self._cluster.node(node), ApiKey.FETCH, 16, body, read))
        ]

    def producer(self, transactional_id: str, kind: str = "") -> list[str]:
        """InitProducerId of a transactional producer. `older`: from before transaction.version 2."""
        producer = TransactionalProducer(transactional_id, kind == OLDER)
        self._producers[transactional_id] = producer

        for _ in range(TRIES_MAX):
            answer = self._host.complete(
                self._ask_coordinator(
                    producer, ApiKey.INIT_PRODUCER_ID, INIT_VERSION, producer.init_fields()
                )
            )
            if answer is not None and int(answer.error_code) == ErrorCode.NONE:
                break
            self._world.run_for(REACTION_S)
        else:
            raise ScriptError(f"{transactional_id} was given no epoch: {answer}")
        producer.id, producer.epoch = int(answer.producer_id), int(answer.producer_epoch)
        return [f"{transactional_id}: epoch {producer.epoch}"]

    def write(self, transactional_id: str, node: str, *values: str) -> list[str]:
        """Records of its transaction, to that broker. Older producers send AddPartitionsToTxn first."""
        producer, lines = one_of(transactional_id, self._producers), []
        for value in values:
            if producer.is_older:
                fields = producer.add_fields(TOPIC)
                self._host.complete(
                    self._ask_coordinator(
                        producer, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSION, fields
                    )
                )
            body = producer.batch(value, TOPIC, self._cluster.topic_id())
            call = self._call(
                self._cluster.node(node),
                ApiKey.PRODUCE,
                producer.produce_version,
                body,
                producer.result,
            )
            result = self._host.complete(call)
            if result.error:
                lines.append(f"{value}: {ErrorCode(result.error).name}")
            else:
                producer.sequence += 1
                lines.append(f"{value}: at {result.base_offset}, epoch {producer.epoch}")
        return lines

    def end_transaction(self, transactional_id: str, how: str) -> list[str]:
        """EndTxn, `commit` or `abort`, on a new connection."""
        producer = one_of(transactional_id, self._producers)
        fields, version = producer.end_fields(one_of(how, ENDS)), producer.end_version

        async def end() -> str:
            answer = await self._ask_coordinator(producer, ApiKey.END_TXN, version, fields)
            code = ErrorCode(int(answer.error_code))
            if code is ErrorCode.NONE:
                producer.ended(answer)
                return f"{transactional_id}: {how} is decided; its epoch is now {producer.epoch}"
            return f"{transactional_id}: {how} is refused: {code.name}"

        name = f"{transactional_id}'s {how}, request {self._ends}"
        self._ends += 1
        task = self._host.run(end())
        self._host.started.remove(task)
        self._pending[name] = task
        if self._world.run_until(task.done, REACTION_S):
            return []
        return [f"{transactional_id}: no answer yet"]

    def transactions(self) -> list[str]:
        """The state of each transactional id at its coordinator."""
        return transactions_text(self._cluster.sim_cluster)

    async def _ask_coordinator(
        self, producer: TransactionalProducer, key: ApiKey, version: int, fields: dict[str, Any]
    ) -> Any:
        channel = await self._channel(self._cluster.brokers[0])
        found = await channel.request(
            ApiKey.FIND_COORDINATOR,
            {"key_type": 1, "coordinator_keys": [producer.transactional_id]},
        )
        channel.close()
        (coordinator,) = found.coordinators
        if int(coordinator.error_code) != ErrorCode.NONE:
            return None
        channel = await self._channel(self._cluster.node(int(coordinator.node_id)))
        try:
            return await channel.request(key, fields, version=version, timeout_s=PATIENCE_S)
        finally:
            channel.close()

    def end(self, node: str) -> list[str]:
        """The end of the log by ListOffsets, as consumers see it."""
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        answer = self.ask(
            self._cluster.node(node),
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": TOPIC.topic, "partitions": [asked]}],
            },
        )
        found = answer.topics[0].partitions[0]
        code = ErrorCode(int(found.error_code))
        return [f"end: {found.offset if code is ErrorCode.NONE else code.name}"]

    def ask(self, node: SimNode, key: ApiKey, fields: Mapping[str, Any]) -> Any:
        async def ask() -> Any:
            channel = await self._channel(node)
            try:
                return await channel.request(key, fields)
            finally:
                channel.close()

        return self._host.complete(ask())

    async def _call(
        self,
        node: SimNode,
        key: ApiKey,
        version: int,
        body: bytes,
        read: Callable[[memoryview, int], T],
    ) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        channel = await self._channel(node)
        channel.call(
            key,
            version,
            body,
            lambda frame, start: done.set_result(read(frame, start)),
            on_failure=done.set_exception,
        )
        try:
            return await done
        finally:
            channel.close()

    async def _channel(self, node: SimNode) -> Channel:
        return await Channel.open(self._host.runtime.network, node.host.name, BROKER_PORT, "script")
