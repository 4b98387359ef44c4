"""A whole node in a simulated world, fed with whatever bytes a stranger may send to either of its listeners.

Frames go straight into the listener's server, so that a million of them are tried in minutes; everything
behind that point is what runs in production. `requests` makes requests out of the schemas themselves, with
values that are right in some places and hostile in others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Self
from uuid import UUID

from ottla.broker.server.connections import ServerConnection
from ottla.records.record import Record, build
from ottla.runtime import Chunk, FileRange
from ottla.sim.cluster.nodes import CLUSTER_ID, SimCluster
from ottla.sim.engine.world import World
from ottla.wire import messages, schema
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC as METADATA_TOPIC
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC_ID as METADATA_TOPIC_ID
from ottla.wire.types import ZERO_UUID
from support.damage import BROKER, SERVED

TOPIC = "orders"

GROUP, TRANSACTION = 0, 1
FEW_COORDINATORS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

Frame = tuple[str, bytes]
"""A listener, and what it gets: a frame without its size."""


class FuzzConnection:
    """The seam's Connection, whose other end takes everything at once."""

    def __init__(self) -> None:
        self.peer = ("10.0.0.9", 4242)
        self.local = ("10.0.0.1", 9092)
        self.closed = False
        self.queued_bytes = 0
        self.frame_bytes_max = 1 << 30
        self.idle_s = 0.0
        self.answers: list[bytes] = []
        self.heard = asyncio.Event()
        """Set by an answer, and by the end."""
        self.receiver: ServerConnection | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        if not self.closed:
            data = b"".join(c.read() if isinstance(c, FileRange) else c for c in chunks)
            size = int.from_bytes(data[:4], "big")
            assert len(data) == 4 + size, "an answer is as long as it says"
            self.answers.append(data[4:])
            self.heard.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.heard.set()
            assert self.receiver is not None
            asyncio.get_running_loop().call_soon(self.receiver.connection_lost, "closed")

    def receive(self, frame: bytes) -> None:
        """As the real ones: a writable view of memory that is used again afterwards."""
        assert self.receiver is not None
        buffer = bytearray(frame)
        self.receiver.frame_received(memoryview(buffer))
        buffer[:] = bytes(len(buffer))


class Complaints(logging.Handler):
    """Whatever a node logs that it would not log if all were well."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(self.format(record))


class FuzzedNode:
    """One combined node with a topic, alone or the first of several, until `close`."""

    unknown_id = UUID(int=2**100)

    def __init__(self, seed: int = 1, nodes: int = 1, **overrides: str) -> None:
        self.world = World(seed)
        given = {name.replace("_", "."): value for name, value in overrides.items()}
        settings = {**FEW_COORDINATORS, **given}
        self.cluster = SimCluster(self.world, nodes, settings)
        self.complaints = Complaints()
        logging.getLogger("ottla").addHandler(self.complaints)
        self.cluster.start()
        assert self.cluster.wait_ready(30), "the node came up"
        self.sim = self.cluster.nodes[1]
        self.create_topic()
        for key_type in (GROUP, TRANSACTION):
            self.find_coordinator(key_type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        logging.getLogger("ottla").removeHandler(self.complaints)
        for each in self.cluster.up:
            each.kill()
        self.world.close()

    @property
    def node(self) -> Any:
        assert self.sim.node is not None, "the process is gone"
        return self.sim.node

    def create_topic(self) -> None:
        topics = [
            {"name": TOPIC, "num_partitions": 2, "replication_factor": len(self.cluster.nodes)}
        ]
        answer = self.ask(BROKER, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 5000})
        assert self.world.run_until(self.leads, 10), answer

    def find_coordinator(self, key_type: int) -> None:
        """Whoever asks first brings the coordinators about."""

        def found() -> bool:
            fields = {"key_type": key_type, "coordinator_keys": [TOPIC]}
            answer = self.ask(BROKER, ApiKey.FIND_COORDINATOR, 4, fields)
            return bool(answer.coordinators[0].error_code == 0)

        for _ in range(100):
            if found():
                return
            self.world.run_for(0.1)
        raise AssertionError("no coordinator came about")

    def leads(self) -> bool:
        topic = self.node.quorum.image.topics.get(TOPIC)
        hosted = self.node.broker.replicas.partitions
        return topic is not None and all(
            partition.leader > 0 and (1 not in partition.replicas or (TOPIC, index) in hosted)
            for index, partition in enumerate(topic.partitions)
        )

    @property
    def topic_id(self) -> UUID:
        topic = self.node.quorum.image.topics.get(TOPIC)
        return ZERO_UUID if topic is None else topic.id

    def connect(self, listener: str) -> FuzzConnection:
        connection = FuzzConnection()
        connection.receiver = self.node.servers[listener]._accept(connection)
        return connection

    def feed(self, frames: Iterable[Frame]) -> list[FuzzConnection]:
        """Each frame over a connection of its own, or the last one if that is still open; then let time
        pass until what was begun has ended."""

        async def all_of_them() -> list[FuzzConnection]:
            used: list[FuzzConnection] = []
            last: dict[str, FuzzConnection] = {}
            for listener, frame in frames:
                connection = last.get(listener)
                if connection is None or connection.closed:
                    connection = last[listener] = self.connect(listener)
                    used.append(connection)
                connection.receive(frame)
            await asyncio.sleep(0.01)
            for connection in used:
                connection.abort()
            await asyncio.sleep(0.01)
            return used

        used = self.sim.host.complete(all_of_them())
        self.check()
        return used

    def check(self) -> None:
        """Nothing went wrong unseen, and the node lives."""
        assert not self.complaints.found, "\n".join(self.complaints.found[:3])
        assert not self.world.problems(), self.world.problems()[:3]
        for each in self.cluster.nodes.values():
            assert each.node is not None, f"{each} is gone"
            assert each.node.quorum is not None and each.node.quorum.failed is None
            assert each.node.broker is not None and not each.node.broker.lifecycle.failed.done()

    def ask(self, listener: str, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """A request of a well-behaved client, on a connection of its own; its answer."""
        return self.send(listener, key, version, messages.write_request(key, version, fields))

    def send(self, listener: str, key: ApiKey, version: int, body: bytes) -> Any:
        answer = self.answer_to(listener, key, version, body)
        assert answer is not None, "the connection was closed"
        _, position = read_response_header(key, version, answer)
        return messages.read_response(key, version, answer, position)

    def answer_to(self, listener: str, key: ApiKey, version: int, body: bytes) -> memoryview | None:
        """The frame that answers; None if the connection was closed instead."""
        frame = request_frame(key, version, 7, "client", body)[4:]
        return self.answer_to_frame(listener, frame)

    def answer_to_frame(self, listener: str, frame: bytes) -> memoryview | None:
        async def exchange() -> memoryview | None:
            connection = self.connect(listener)
            connection.receive(frame)
            await connection.heard.wait()
            answers = connection.answers
            connection.abort()
            return memoryview(answers[0]) if answers else None

        return self.sim.host.complete(exchange())

    def is_well(self) -> None:
        """It serves others again soon, whatever was done to it: strangers may have unregistered it, deleted
        its topic or disturbed its quorum, which Kafka without access control lets them do. Where one said
        goodbye in its name, an operator has to help: it is fenced for the rest of that life, as in Kafka."""
        for broker in list(self.node.quorum.image.brokers.values()):
            if broker.in_controlled_shutdown:
                self.ask(BROKER, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": broker.id})
        assert self.world.run_until(self._is_registered, 60), self.node.quorum.image.brokers
        if TOPIC not in self.node.quorum.image.topics:
            self.create_topic()
        assert self.world.run_until(self.leads, 10), self.node.quorum.image.topics[TOPIC]
        answer = self.ask(BROKER, ApiKey.METADATA, 12, {"topics": [{"name": TOPIC}]})
        assert answer.topics[0].partitions, answer

    def _is_registered(self) -> bool:
        quorum = self.node.quorum
        return quorum.leader_id is not None and all(
            (broker := quorum.image.brokers.get(each.id)) is not None
            and not broker.fenced
            and each.node is not None
            and each.node.broker is not None
            and broker.epoch == each.node.broker.lifecycle.broker_epoch
            for each in self.cluster.nodes.values()
        )


# Requests out of the schemas

NUMBERS = (0, 1, -1, 2, -2, 3, 4, 5, 7, 100, 127, -128, 1000, 9092)
EXTREMES = {
    "int8": (127, -128),
    "uint8": (255,),
    "int16": (32767, -32768),
    "uint16": (65535,),
    "error_code": (0, 87, -1),
    "int32": (2**31 - 1, -(2**31), 2**30, 10_001, 1_000_000),
    "uint32": (2**32 - 1,),
    "timedelta_i32": (2**31 - 1, -(2**31), 0, 1, -1),
    "int64": (2**63 - 1, -(2**63), 2**31, -5, 1_767_225_600_000),
    "uint64": (2**64 - 1,),
    "timedelta_i64": (0, 1, -1, 10**15),
    "datetime_i64": (-1, 0, 1_767_225_600_000),
    "float64": (0.0, float("inf"), -1.5),
}
TEXTS = (
    TOPIC,
    TOPIC,
    TOPIC,
    METADATA_TOPIC,
    CLUSTER_ID,
    "",
    ".",
    "..",
    "../../../etc/passwd",
    "a/b",
    "a.b",
    "a_b",
    "nul\x00",
    "sp ace",
    "grüße",
    "\U0001f600",
    "x" * 249,
    "x" * 250,
    "y" * 32767,
    "1",
    "-1",
    "²",
    "99999999999999999999",
    "9" * 5000,
    "1_000",
    "nan",
    "retention.ms",
    "min.insync.replicas",
    "cleanup.policy",
    "unclean.leader.election.enable",
    "compact",
    "true",
    "CONTROLLER",
    "PLAINTEXT",
    "metadata.version",
    "localhost",
    "__consumer_offsets",
)


class RandomRequests:
    """Requests of every API and version that a listener serves."""

    def __init__(self, random: Random, node: FuzzedNode) -> None:
        self._random = random
        self._node = node

    def frame(self, key: ApiKey, version: int) -> bytes:
        """A frame that can be decoded."""
        struct = schema.message(key, version, "request")
        try:
            body = messages.write_request(key, version, self._fields(struct))
        except OverflowError:  # a time that no message can carry
            body = b""
        return request_frame(key, version, self._random.getrandbits(31), "fuzz", body)[4:]

    def _fields(self, struct: schema.Struct) -> dict[str, Any]:
        return {
            field.name: self._field(field)
            for field in struct.fields
            if field.tag is None or self._random.random() < 0.5
        }

    def _field(self, field: schema.Field) -> Any:
        if field.nullable and self._random.random() < 0.15:
            return None
        if not field.array:
            return self._value(field)
        values = [self._value(field) for _ in range(self._random.choice((0, 1, 1, 1, 2, 3)))]
        if values and self._random.random() < 0.2:
            values.append(values[0])
        return values

    def _value(self, field: schema.Field) -> Any:
        random, kind = self._random, field.kind
        if field.struct is not None:
            return self._fields(field.struct)
        match kind:
            case "bool":
                # A broker that says it stops is believed, here as in Kafka, and must be started anew.
                return field.name != "want_shut_down" and random.random() < 0.5
            case "string":
                return random.choice(TEXTS)
            case "bytes" | "records":
                return self._bytes()
            case "uuid":
                return random.choice(self._ids())
        return self._number(field.name, kind)

    def _number(self, name: str, kind: str) -> Any:
        random = self._random
        if name in ("count", "num_partitions"):  # ten thousand are right, and only take time
            return random.choice((*NUMBERS[:8], 2**31 - 1, -(2**31)))
        if random.random() < 0.3 or kind not in ("int8", "int16", "int32", "int64"):
            return random.choice(EXTREMES[kind])
        quorum = self._node.node.quorum
        numbers: tuple[int, ...] = NUMBERS
        if "epoch" in name and random.random() < 0.7:
            broker = quorum.image.brokers.get(1)
            numbers = (quorum.epoch, quorum.epoch + 1, broker.epoch if broker else 0)
        elif "offset" in name and random.random() < 0.5:
            numbers = (quorum.next_offset,)
        most = EXTREMES[kind][0]
        return random.choice([number for number in numbers if -most <= number <= most] or [most])

    def _ids(self) -> list[UUID]:
        return [
            self._node.topic_id,
            ZERO_UUID,
            METADATA_TOPIC_ID,
            self._node.node.quorum.directory_id,
            UUID(int=self._random.getrandbits(128)),
        ]

    def _bytes(self) -> bytes:
        random = self._random
        choice = random.randrange(5)
        if choice == 0:
            return random.randbytes(random.randrange(100))
        if choice == 1:
            return b""
        if choice == 2:
            _, key, version = random.choice(SERVED)
            return self.frame(key, version)
        batch = build([Record(i, 1_767_225_600_000, b"k", b"v" * 50) for i in range(3)])
        if choice == 3:
            batch[random.randrange(len(batch))] = random.randrange(256)
        return bytes(batch)
