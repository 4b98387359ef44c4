"""Where golden scripts are played: one partition on a few whole brokers, a controller, a client, and a hand on
every message between them.

Each public method that ends in a list of lines is a command of the script language (`COMMANDS`): it does one
thing, lets the cluster react for a moment, and tells what came of it. The controller's decisions, truncations
and answers to clients are told as they happen, whichever command caused them. All of it is watched by the
checkers of RELIABILITY §1, as in any simulation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar

from ottla.broker.node import Broker
from ottla.controller.draft import UNCLEAN_ELECTION, Draft
from ottla.events import Event
from ottla.events.replication import Truncated
from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER, PartitionChangeRecord
from ottla.records.record import Record, build
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT, DATA, SimCluster, SimNode
from ottla.sim.engine.world import SimHost, World
from ottla.sim.oracle.history import History
from ottla.sim.oracle.safety_checker import SafetyChecker
from ottla.sim.scripts.held_messages import Kind, Message, PostOffice
from ottla.sim.scripts.rendering import decision_text, fetched_text, ids, log_text, message_text
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

T = TypeVar("T")

TOPIC = TopicPartition("t", 0)
LOG = f"{DATA}/{TOPIC.topic}-{TOPIC.partition}"
REACTION_S = 0.1
"""How long the cluster may react to a command before the script goes on."""
PATIENCE_S = 60.0
"""A step that has not come about after so long never will."""
TRIES_MAX = 100
FOREVER_MS = "3600000"

KINDS = {
    "fetch": Kind(ApiKey.FETCH, BROKER_PORT),
    "metadata": Kind(ApiKey.FETCH, CONTROLLER_PORT),
    "alter-partition": Kind(ApiKey.ALTER_PARTITION, CONTROLLER_PORT),
    "end-txn": Kind(ApiKey.END_TXN, BROKER_PORT),
}
ELECTIONS = {"preferred": 0, "unclean": 1}
ENDS = {"commit": True, "abort": False}
CLIENT = "client"
COMMITTED = "committed"

SETTINGS = {
    # Nothing happens by itself unless the script waits for it.
    "replica.lag.time.max.ms": FOREVER_MS,
    "replica.socket.timeout.ms": FOREVER_MS,
    "request.timeout.ms": FOREVER_MS,
    "auto.leader.rebalance.enable": "false",
}


class ScriptError(Exception):
    """A step that could not be taken."""


class NotInTime(ScriptError):
    """What was waited for has not come about."""


class UnflushedIsLost(random.Random):
    """The fate of writes at a power loss, without luck: nothing that was not flushed survives."""

    def choice(self, seq: Any) -> Any:
        return "none" if "none" in seq else super().choice(seq)

    def randint(self, a: int, b: int) -> int:
        return a


class ScriptCluster:
    def __init__(self, world: World) -> None:
        self.world = world
        world.network.conditions.jitter_s = 0.0
        world.network.conditions.cut_rate = 0.0
        self._office = PostOffice(world.loop)
        self._client = world.node(CLIENT)
        self._client.runtime = self._office.between(CLIENT, self._client.runtime)
        self._producers: dict[str, TransactionalProducer] = {}
        self._events: list[str] = []
        self._pending: dict[str, asyncio.Task[str]] = {}
        self._brokers: list[SimNode] = []
        self._decided: PartitionImage | None = None
        self._ends = 1

    def play(self, command: str, arguments: Sequence[str]) -> list[str]:
        """One line of a script; what came of it."""
        known = COMMANDS.get(command)
        if known is None:
            raise ScriptError(f"{command} is none of {', '.join(COMMANDS)}")
        try:
            signature(known).bind(self, *arguments)
        except TypeError as error:
            raise ScriptError(f"{error}; usage: {usage(command)}") from None
        if not self._brokers and known is not ScriptCluster.cluster:
            raise ScriptError(f"there are no brokers yet; first comes: {usage('cluster')}")
        told = known(self, *arguments)
        self.world.run_for(REACTION_S)
        for name, task in list(self._pending.items()):
            if task.done():
                del self._pending[name]
                self._events.append(task.result())
        problems = self.world.problems()
        if problems:
            raise ScriptError("; ".join(problems))
        events, self._events = self._events, []
        return [*told, *events]

    # The cluster

    def cluster(self, brokers: str, *settings: str) -> list[str]:
        """So many brokers, and one controller that never fails."""
        self._cluster = SimCluster(
            self.world, _number(brokers) + 1, {**SETTINGS, **_settings(settings)}, controllers=1
        )
        *self._brokers, self._controller = self._cluster.nodes.values()
        self._evidence = SafetyChecker(self._cluster, History()).evidence
        self._cluster.subscribe(self._happened)
        for node in self._cluster.nodes.values():
            name = node.host.name
            node.host.runtime = self._office.between(name, node.host.runtime)
            node.host.disk.random = UnflushedIsLost()
        self._controller.start()
        self._until(lambda: self._controller.is_ready, "the controller is there")
        controller = self._controller.node
        assert controller is not None and controller.quorum is not None
        controller.quorum.on_image.append(self._metadata_changed)
        return self.start(*(str(broker.id) for broker in self._brokers))

    def topic(self, *settings: str) -> list[str]:
        """`replicas=2,1`: the first is the preferred leader and leads."""
        given = _settings(settings)
        replicas = [int(id) for id in given.pop("replicas").split(",")]
        self._evidence.allows_unclean_elections = given.get(UNCLEAN_ELECTION) == "true"
        wanted = {
            "name": TOPIC.topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": replicas}],
            "configs": [{"name": name, "value": value} for name, value in given.items()],
        }
        answer = self._ask(
            self._brokers[0],
            ApiKey.CREATE_TOPICS,
            {"topics": [wanted], "timeout": 3000, "validate_only": False},
        )
        code = int(answer.topics[0].error_code)
        if code:
            raise ScriptError(f"the topic was not created: {ErrorCode(code).name}")
        self._until(
            lambda: all(self._partition(self._node(id)) is not None for id in replicas),
            "its replicas are there",
        )
        return []

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        topic = image.topics.get(TOPIC.topic)
        decided = None if topic is None else topic.partitions[0]
        if decided is not None and decided != self._decided:
            before, self._decided = self._decided, decided
            if before is None or decision_text(before) != decision_text(decided):
                self._events.append(f"controller: {decision_text(decided)}")

    # Machines

    def start(self, *nodes: str) -> list[str]:
        """Their processes begin, and are unfenced."""
        for node in map(self._node, nodes):
            node.start()
            self._until(lambda node=node: _broker(node) is not None, "the broker is there")  # type: ignore[misc]
        self._until(lambda: all(self._node(id).is_ready for id in nodes), "they are unfenced")
        return []

    def kill(self, *nodes: str) -> list[str]:
        """kill -9: what was written is in the page cache, and its connections close."""
        for node in map(self._node, nodes):
            node.kill()
        return []

    def power(self, *nodes: str) -> list[str]:
        """Power loss: what was not flushed is gone, and nobody is told."""
        for node in map(self._node, nodes):
            self._evidence.power_lost(node.id)
            node.kill(power_loss=True)
        return []

    def flush(self, *nodes: str) -> list[str]:
        """What these have of the log is on their disks."""
        for node in map(self._node, nodes):
            partition = self._partition(node)
            assert partition is not None
            partition.log.flush()
        return []

    def erase(self, node: str) -> list[str]:
        """The partition's directory on a machine that is down is gone; its identity stays."""
        self._evidence.logs_erased(self._node(node).id)
        self._node(node).host.disk.remove_tree(LOG)
        return []

    def replace_disk(self, node: str) -> list[str]:
        """A machine that is down gets an empty disk for its logs."""
        self._evidence.logs_erased(self._node(node).id)
        self._node(node).host.disk.remove_tree(DATA)
        return []

    def isolate(self, node: str) -> list[str]:
        """No line to any other node; clients still reach it."""
        name = self._node(node).host.name
        others = [each.host.name for each in self._cluster.nodes.values()]
        self.world.network.partition([name], [other for other in others if other != name])
        return []

    def heal(self, node: str) -> list[str]:
        name = self._node(node).host.name
        for other in self._cluster.nodes.values():
            if other.host.name != name:
                ways = [(name, other.host.name), (other.host.name, name)]
                self.world.network.unblock(ways)
        return []

    def _happened(self, node: SimNode, truncation: Event) -> None:
        if not isinstance(truncation, Truncated):
            return
        lost = truncation.high_watermark - truncation.first_offset
        self._events.append(
            f"{node.id} truncates its log from {truncation.end_offset} to {truncation.first_offset}"
            + (f"; {lost} of the records were committed" if lost > 0 else "")
        )

    # Messages

    def hold(self, kind: str, *nodes: str) -> list[str]:
        """Such requests of these nodes, and the answers, wait for a word of the script."""
        for node in nodes:
            self._office.hold(_one_of(kind, KINDS), self._name(node))
        return []

    def release(self, kind: str, *nodes: str) -> list[str]:
        for node in nodes:
            self._office.release(_one_of(kind, KINDS), self._name(node))
        return []

    def send(self, kind: str, node: str, which: str = "1") -> list[str]:
        """The oldest request that waits reaches the other side; or the second, on another connection."""
        return self._let_through(kind, node, answers=False, which=_number(which))

    def answer(self, kind: str, node: str) -> list[str]:
        """The oldest answer that waits, or comes, reaches the node that asked."""
        return self._let_through(kind, node, answers=True)

    def lose(self, kind: str, node: str) -> list[str]:
        """The connection with the oldest answer or request that waits breaks."""
        message = self._next(kind, node, (True, False))
        message.link.lose()
        return [f"lost: {self._message_text(message)}"]

    def _let_through(self, kind: str, node: str, *, answers: bool, which: int = 1) -> list[str]:
        message = self._next(kind, node, (answers,), which)
        message.link.let_through(message)
        return [self._message_text(message)]

    def _next(self, kind: str, node: str, sides: Sequence[bool], which: int = 1) -> Message:
        """The oldest message that waits, or the first that comes: answers, requests, or both."""
        name, wanted = self._name(node), _one_of(kind, KINDS)
        found: list[Message] = []

        def is_there() -> bool:
            for answers in sides:
                messages = self._office.waiting(wanted, name, answers=answers)
                if len(messages) >= which:
                    found.append(messages[which - 1])
                    return True
            return False

        self._until(is_there, f"{node} has a message that waits")
        return found[0]

    def _message_text(self, message: Message) -> str:
        return message_text(message, [node.host.name for node in self._cluster.nodes.values()])

    # The controller

    def move(self, leader: str) -> list[str]:
        """The controller gives the leadership to this member of the ISR and changes nothing else; no
        request of Kafka's protocol can order exactly that of any member, so the controller is told."""

        async def decide() -> None:
            node = self._controller.node
            assert node is not None and node.controller is not None and node.quorum is not None
            service, topic = node.controller, node.quorum.image.topics[TOPIC.topic]
            record = PartitionChangeRecord(
                partition_id=0, topic_id=topic.id, leader=int(leader), isr=None
            )
            controller = service._controller

            def move(draft: Draft) -> dict[str, Any]:
                draft.add([record])
                return {}

            service._run(lambda: controller._decide(move))

        self._controller.host.complete(decide())
        return []

    def reassign(self, replicas: str) -> list[str]:
        """AlterPartitionReassignments: `2,1`, the first is the preferred leader."""
        wanted = {"partition_index": 0, "replicas": [int(id) for id in replicas.split(",")]}
        answer = self._ask(
            self._brokers[0],
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            {"topics": [{"name": TOPIC.topic, "partitions": [wanted]}], "timeout": 3000},
        )
        code = int(answer.responses[0].partitions[0].error_code)
        return [f"reassign: {ErrorCode(code).name}"] if code else []

    def elect(self, kind: str, node: str) -> list[str]:
        """ElectLeaders, asked of that broker: `preferred` or `unclean`."""
        election_type = _one_of(kind, ELECTIONS)
        self._evidence.allows_unclean_elections |= kind == "unclean"
        answer = self._ask(
            self._node(node),
            ApiKey.ELECT_LEADERS,
            {
                "election_type": election_type,
                "topic_partitions": [{"topic": TOPIC.topic, "partitions": [0]}],
                "timeout": 3000,
            },
        )
        code = int(answer.replica_election_results[0].partition_result[0].error_code)
        return [f"elect leaders: {ErrorCode(code).name}"] if code else []

    # Clients

    def produce(self, node: str, *values: str) -> list[str]:
        """Each value a batch of one record; `r1..r9` a batch of nine. acks=all, unless `acks=1` is said."""
        acks = 1 if "acks=1" in values else -1
        values = tuple(value for value in values if value != "acks=1")
        for value in values:
            task = self._client.run(self._produce(self._node(node), value, acks))
            self._client.started.remove(task)
            self._pending[value] = task
            self.world.run_until(task.done, REACTION_S)
        waiting = [value for value in values if value in self._pending]
        return [f"{v}: not acknowledged yet" for v in waiting if not self._pending[v].done()]

    async def _produce(self, node: SimNode, value: str, acks: int) -> str:
        records = build([Record(n, 0, None, text) for n, text in enumerate(_values(value))])
        data = produce.PartitionData(TOPIC.topic, self._topic_id(), 0, memoryview(records))
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
        return f"{value}: {'acknowledged' if acks == -1 else 'appended'} at {result.base_offset}"

    def consume(self, node: str, offset: str, isolation: str = "all") -> list[str]:
        """What a consumer gets that asks this broker for that offset; one that wants `committed` records
        gets none of a transaction that is open."""
        asked = FetchPartition(
            TOPIC.topic, self._topic_id(), 0, -1, _number(offset), -1, -1, 1 << 20
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
        return [self._client.complete(self._call(self._node(node), ApiKey.FETCH, 16, body, read))]

    def producer(self, transactional_id: str, kind: str = "") -> list[str]:
        """A transactional producer begins: InitProducerId. `older`: of before transaction.version 2."""
        producer = TransactionalProducer(transactional_id, kind == OLDER)
        self._producers[transactional_id] = producer

        for _ in range(TRIES_MAX):
            answer = self._client.complete(
                self._ask_coordinator(
                    producer, ApiKey.INIT_PRODUCER_ID, INIT_VERSION, producer.init_fields()
                )
            )
            if answer is not None and int(answer.error_code) == ErrorCode.NONE:
                break
            self.world.run_for(REACTION_S)
        else:
            raise ScriptError(f"{transactional_id} was given no epoch: {answer}")
        producer.id, producer.epoch = int(answer.producer_id), int(answer.producer_epoch)
        return [f"{transactional_id}: epoch {producer.epoch}"]

    def write(self, transactional_id: str, node: str, *values: str) -> list[str]:
        """Records of its transaction, to that broker. Older producers announce the partition first."""
        producer, told = _one_of(transactional_id, self._producers), []
        for value in values:
            if producer.is_older:
                fields = producer.add_fields(TOPIC)
                self._client.complete(
                    self._ask_coordinator(
                        producer, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSION, fields
                    )
                )
            body = producer.batch(value, TOPIC, self._topic_id())
            call = self._call(
                self._node(node), ApiKey.PRODUCE, producer.produce_version, body, producer.result
            )
            result = self._client.complete(call)
            if result.error:
                told.append(f"{value}: {ErrorCode(result.error).name}")
            else:
                producer.sequence += 1
                told.append(f"{value}: at {result.base_offset}, epoch {producer.epoch}")
        return told

    def end_transaction(self, transactional_id: str, how: str) -> list[str]:
        """EndTxn, `commit` or `abort`, on a connection of its own."""
        producer = _one_of(transactional_id, self._producers)
        fields, version = producer.end_fields(_one_of(how, ENDS)), producer.end_version

        async def end() -> str:
            answer = await self._ask_coordinator(producer, ApiKey.END_TXN, version, fields)
            code = ErrorCode(int(answer.error_code))
            if code is ErrorCode.NONE:
                producer.ended(answer)
                return f"{transactional_id}: {how} is decided; its epoch is now {producer.epoch}"
            return f"{transactional_id}: {how} is refused: {code.name}"

        name = f"{transactional_id}'s {how}, request {self._ends}"
        self._ends += 1
        task = self._client.run(end())
        self._client.started.remove(task)
        self._pending[name] = task
        if self.world.run_until(task.done, REACTION_S):
            return []
        return [f"{transactional_id}: no answer yet"]

    def transactions(self) -> list[str]:
        """What the coordinator has of each transactional id."""
        return transactions_text(self._cluster)

    async def _ask_coordinator(
        self, producer: TransactionalProducer, key: ApiKey, version: int, fields: dict[str, Any]
    ) -> Any:
        channel = await self._channel(self._brokers[0])
        found = await channel.request(
            ApiKey.FIND_COORDINATOR,
            {"key_type": 1, "coordinator_keys": [producer.transactional_id]},
        )
        channel.close()
        (coordinator,) = found.coordinators
        if int(coordinator.error_code) != ErrorCode.NONE:
            return None
        channel = await self._channel(self._node(int(coordinator.node_id)))
        try:
            return await channel.request(key, fields, version=version, timeout_s=PATIENCE_S)
        finally:
            channel.close()

    def end(self, node: str) -> list[str]:
        """The log's end, as ListOffsets tells it to consumers."""
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        answer = self._ask(
            self._node(node),
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

    def _topic_id(self) -> Any:
        node = self._controller.node
        assert node is not None and node.quorum is not None
        return node.quorum.image.topics[TOPIC.topic].id

    def _ask(self, node: SimNode, key: ApiKey, fields: Mapping[str, Any]) -> Any:
        async def ask() -> Any:
            channel = await self._channel(node)
            try:
                return await channel.request(key, fields)
            finally:
                channel.close()

        return self._client.complete(ask())

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
        return await Channel.open(
            self._client.runtime.network, node.host.name, BROKER_PORT, "script"
        )

    # Looking and waiting

    def state(self) -> list[str]:
        """Every replica, and what the controller has decided."""
        lines = [self._replica_text(node) for node in self._brokers]
        return [*lines, f"controller: {decision_text(self._decision())}"]

    def _decision(self) -> PartitionImage:
        if self._decided is None:
            raise ScriptError(f"there is no topic yet; first comes: {usage('topic')}")
        return self._decided

    def _replica_text(self, node: SimNode) -> str:
        partition = self._partition(node)
        log = log_text(_content(node.host))
        if partition is None:
            return f"{node.id} {'no replica' if node.is_up else 'down':<43} {log}"
        isr = f"ISR {ids(partition.isr)}" if partition.role is Role.LEADER else ""
        text = f"{node.id} {partition.role.name.lower():<8}  epoch {partition.leader_epoch:<2} "
        text += (
            f"LEO {partition.log.log_end:<3} HW {partition.log.high_watermark:<3} {isr:<9} {log}"
        )
        return text

    def epochs(self) -> list[str]:
        """What each replica has in its leader epoch checkpoint: which epoch began at which offset."""
        return [
            f"{node.id}: "
            + ", ".join(f"epoch {e} from {start}" for e, start in partition.log.epochs.entries)
            for node in self._brokers
            if (partition := self._partition(node)) is not None
        ]

    def wait(self, seconds: str) -> list[str]:
        self.world.run_for(float(seconds))
        return []

    def expect(self, *conditions: str) -> list[str]:
        """Wait until the controller has decided `leader=1 isr=1,2`, or until all logs are `equal`."""
        for condition in conditions:
            try:
                self._until(lambda condition=condition: self._holds(condition), condition)  # type: ignore[misc]
            except NotInTime as late:
                raise NotInTime("\n".join([f"{late}; instead:", *self.state()])) from None
        return []

    def _holds(self, condition: str) -> bool:
        name, _, wanted = condition.partition("=")
        decided = self._decision()
        if name == "leader":
            return decided.leader == (NO_LEADER if wanted == "none" else _number(wanted))
        if name == "isr":
            return set(decided.isr) == {_number(id) for id in wanted.split(",")}
        if name != "equal":
            raise ScriptError(f"{name} is none of leader=B, isr=B,B, equal")
        logs = [p.log for node in self._brokers if (p := self._partition(node)) is not None]
        contents = {bytes(_content(node.host)) for node in self._brokers if node.is_up}
        ends = {(log.log_end, log.high_watermark) for log in logs}
        return len(contents) == 1 and len(ends) == 1 and logs[0].high_watermark == logs[0].log_end

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        if not self.world.run_until(condition, PATIENCE_S):
            told = "; ".join(self._events)
            raise NotInTime(f"not within {PATIENCE_S:.0f} s: {what} ({told or 'no news'})")

    def _name(self, node: str) -> str:
        """Of the host of a node, or of the client."""
        return CLIENT if node == CLIENT else self._node(node).host.name

    def _node(self, id: str | int) -> SimNode:
        node = self._cluster.nodes.get(_number(id))
        if node is None:
            raise ScriptError(
                f"there is no broker {id}, only {ids(each.id for each in self._brokers)}"
            )
        return node

    def _partition(self, node: SimNode) -> Partition | None:
        broker = _broker(node)
        return None if broker is None else broker.replicas.partitions.get(TOPIC)


def _broker(node: SimNode) -> Broker | None:
    return None if node.node is None else node.node.broker


def _number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise ScriptError(f"{text} is no number") from None


def _one_of(name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ScriptError(f"{name} is none of {', '.join(known) or '(nothing yet)'}")
    return known[name]


def usage(command: str) -> str:
    """How it is written: `send kind node [which]`."""
    _, *parameters = signature(COMMANDS[command]).parameters.values()
    words = [
        f"[{each.name} …]"
        if each.kind is each.VAR_POSITIONAL
        else each.name
        if each.default is each.empty
        else f"[{each.name}]"
        for each in parameters
    ]
    return " ".join([command, *words])


def _settings(texts: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def _values(text: str) -> list[bytes]:
    """`m1` is one value, `r1..r9` are nine."""
    first, dots, last = text.partition("..")
    if not dots:
        return [text.encode()]
    prefix = first.rstrip("0123456789")
    begin, end = int(first.removeprefix(prefix)), int(last.removeprefix(prefix))
    return [f"{prefix}{number}".encode() for number in range(begin, end + 1)]


def _content(host: SimHost) -> bytes:
    """The partition's segments as they are on the disk of that host, in order."""
    if not host.disk.exists(LOG):
        return b""
    names = [name for name in host.disk.list_dir(LOG) if name.endswith(".log")]
    return b"".join(bytes(host.disk.peek(f"{LOG}/{name}")) for name in names)


COMMANDS: dict[str, Callable[..., list[str]]] = {
    "cluster": ScriptCluster.cluster,
    "topic": ScriptCluster.topic,
    "start": ScriptCluster.start,
    "kill": ScriptCluster.kill,
    "power-off": ScriptCluster.power,
    "flush": ScriptCluster.flush,
    "erase-log": ScriptCluster.erase,
    "replace-disk": ScriptCluster.replace_disk,
    "isolate": ScriptCluster.isolate,
    "heal": ScriptCluster.heal,
    "hold": ScriptCluster.hold,
    "release": ScriptCluster.release,
    "send": ScriptCluster.send,
    "answer": ScriptCluster.answer,
    "lose": ScriptCluster.lose,
    "move-leader": ScriptCluster.move,
    "reassign": ScriptCluster.reassign,
    "elect": ScriptCluster.elect,
    "produce": ScriptCluster.produce,
    "consume": ScriptCluster.consume,
    "producer": ScriptCluster.producer,
    "write": ScriptCluster.write,
    "end-txn": ScriptCluster.end_transaction,
    "transactions": ScriptCluster.transactions,
    "end": ScriptCluster.end,
    "state": ScriptCluster.state,
    "epochs": ScriptCluster.epochs,
    "wait": ScriptCluster.wait,
    "expect": ScriptCluster.expect,
}
