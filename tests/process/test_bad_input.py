"""A real node and strangers at its ports: every code that bad records get, sizes, slow and idle and very many
connections, garbage. It never complains of more than them, its memory stays, and others are served."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from ottla.records.batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_END, MAGIC
from ottla.records.compression import compress
from ottla.records.record import Record, build
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from ottla.wire.messages import write_request
from support.cluster import HOST, NodeProcess, ProcessCluster, wait_until
from support.damage import BROKER, SERVED, damaged

TOPIC, STAMPED, KEYED = "plain", "stamped", "keyed"
MEGABYTE = 1024 * 1024
CONNECTIONS = 10_000
CLOSED = b""


@pytest.fixture(scope="module", autouse=True)
def enough_descriptors() -> Iterator[None]:
    """For us and, inherited, for the node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One node for the whole module; in the end its log is read."""
    with ProcessCluster(tmp_path_factory.mktemp("alone"), 1) as cluster:
        cluster.create_topic(TOPIC)
        cluster.create_topic(STAMPED, config={"message.timestamp.before.max.ms": "1000"})
        cluster.create_topic(KEYED, config={"cleanup.policy": "compact"})
        yield cluster
        assert_no_complaints(cluster)


def assert_no_complaints(cluster: ProcessCluster) -> None:
    for node in cluster.nodes.values():
        assert node.running
        text = node.log.read_text(errors="replace")
        for word in ("Traceback", "request failed", "Task exception", "never retrieved"):
            assert word not in text, cluster.nodes[node.id].last_lines(80)


@pytest.fixture
def node(alone: ProcessCluster) -> NodeProcess:
    return alone.nodes[1]


@contextmanager
def connected(node: NodeProcess, port: int | None = None) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, port or node.port), 10) as connection:
        connection.settimeout(20)
        yield connection


def received(connection: socket.socket) -> bytes:
    """The next frame, or CLOSED."""
    head = exactly(connection, 4)
    return head and exactly(connection, int.from_bytes(head, "big"))


def exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    try:
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                return CLOSED
            data += piece
    except ConnectionError:
        return CLOSED
    return bytes(data)


def ping(connection: socket.socket) -> bytes:
    connection.sendall(request_frame(ApiKey.API_VERSIONS, 0, 7, "ping", b""))
    return received(connection)


@contextmanager
def others_served(node: NodeProcess, within_s: float) -> Iterator[None]:
    """Meanwhile somebody else asks again and again, and never waits longer than this."""
    slowest, count = 0.0, 0
    stop = threading.Event()

    def ask() -> None:
        nonlocal slowest, count
        with connected(node) as connection:
            while not stop.is_set():
                begun = time.monotonic()
                if ping(connection) == CLOSED:
                    slowest = float("inf")
                    return
                slowest = max(slowest, time.monotonic() - begun)
                count += 1
                stop.wait(0.005)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert count and slowest < within_s, f"the slowest of {count} took {slowest:.3f} s"


# -- records ---------------------------------------------------------------------------------------------------


def batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    key: bytes | None = b"key",
    timestamp: int | None = None,
    **fields: Any,
) -> bytearray:
    at = int(time.time() * 1000) if timestamp is None else timestamp
    return build([Record(i, at, key, value) for i in range(count)], **fields)


def with_field(place: int, value: bytes, whole: bytearray | None = None) -> bytearray:
    """A batch with other bytes at `place`, and the CRC that belongs to them."""
    data = whole or batch()
    data[place : place + len(value)] = value
    data[17:CRC_START] = crc32c(data[CRC_START:]).to_bytes(4, "big")
    return data


def bomb(unpacked: int) -> bytearray:
    packed = compress(4, bytes(unpacked))
    now = int(time.time() * 1000)
    fields = (4, 0, now, now, -1, -1, -1, 1)
    size = HEADER_BYTES + len(packed)
    data = bytearray(HEADER.pack(0, size - LENGTH_END, -1, MAGIC, 0, *fields) + packed)
    return with_field(0, bytes(8), data)


def said_of(
    node: NodeProcess,
    records: bytes | bytearray | None,
    *,
    topic: str | None = TOPIC,
    topic_id: UUID | None = None,
    partition: int = 0,
    acks: int = 1,
    version: int = 9,
) -> ErrorCode:
    view = None if records is None else memoryview(bytes(records))
    data = produce.PartitionData(topic, topic_id, partition, view)
    body = produce.write_request(version, produce.ProduceRequest(None, acks, 5000, [data]))
    with connected(node) as connection:
        connection.sendall(request_frame(ApiKey.PRODUCE, version, 7, "test", body))
        answer = received(connection)
    assert answer != CLOSED, "the connection was closed"
    frame = memoryview(bytearray(answer))
    _, position = read_response_header(ApiKey.PRODUCE, version, frame)
    (result,) = produce.read_response(version, frame, position).results
    return ErrorCode(result.error)


E = ErrorCode
ATTRIBUTES, LAST_DELTA, COUNT, SEQUENCE, EPOCH, PRODUCER = 21, 23, 57, 53, 51, 43

BAD_RECORDS: dict[str, tuple[Callable[[], bytes | bytearray | None], ErrorCode]] = {
    "no records": (lambda: None, E.INVALID_RECORD),
    "an empty batch": (lambda: b"", E.INVALID_RECORD),
    "a few bytes": (lambda: b"abc", E.INVALID_RECORD),
    "two batches": (lambda: batch() + batch(), E.INVALID_RECORD),
    "a batch that is cut short": (lambda: batch()[:-1], E.INVALID_RECORD),
    "a batch and a byte": (lambda: batch() + b"\x00", E.INVALID_RECORD),
    "the oldest format": (lambda: with_field(16, b"\x00"), E.INVALID_RECORD),
    "an older format": (lambda: with_field(16, b"\x01"), E.INVALID_RECORD),
    "a format of the future": (lambda: with_field(16, b"\x03"), E.CORRUPT_MESSAGE),
    "a wrong CRC": (lambda: batch()[:-1] + b"x", E.CORRUPT_MESSAGE),
    "a negative length": (lambda: with_field(8, b"\xff\xff\xff\xff"), E.CORRUPT_MESSAGE),
    "more records than offsets": (
        lambda: with_field(COUNT, (5).to_bytes(4, "big")),
        E.INVALID_RECORD,
    ),
    "more offsets than records": (
        lambda: with_field(LAST_DELTA, (5).to_bytes(4, "big")),
        E.INVALID_RECORD,
    ),
    "no record in it": (
        lambda: with_field(LAST_DELTA, b"\xff" * 4, with_field(COUNT, bytes(4))),
        E.INVALID_RECORD,
    ),
    "a base offset": (lambda: with_field(0, (5).to_bytes(8, "big")), E.INVALID_RECORD),
    "a control batch": (lambda: with_field(ATTRIBUTES, b"\x00\x20"), E.INVALID_RECORD),
    "attributes that do not exist": (lambda: with_field(ATTRIBUTES, b"\x40\x00"), E.INVALID_RECORD),
    "an unknown codec": (
        lambda: with_field(ATTRIBUTES, b"\x00\x05"),
        E.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "the broker's own timestamp": (
        lambda: with_field(ATTRIBUTES, b"\x00\x08"),
        E.INVALID_TIMESTAMP,
    ),
    "a producer without sequence": (
        lambda: with_field(PRODUCER, bytes(8), with_field(EPOCH, bytes(2))),
        E.INVALID_RECORD,
    ),
    "a producer of epoch -1": (
        lambda: with_field(PRODUCER, bytes(8), with_field(SEQUENCE, bytes(4))),
        E.INVALID_RECORD,
    ),
    "producer -2": (lambda: with_field(PRODUCER, b"\xff" * 7 + b"\xfe"), E.INVALID_RECORD),
    "a transaction that nobody began": (
        lambda: batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        E.INVALID_TXN_STATE,
    ),
    "a batch that is too large": (lambda: batch(value=bytes(2 * MEGABYTE)), E.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("case", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_bad_records_get_their_code_and_leave_nothing(
    alone: ProcessCluster,
    node: NodeProcess,
    case: tuple[Callable[[], bytes | bytearray | None], ErrorCode],
) -> None:
    make, expected = case
    before = alone.log_bytes(1, TOPIC, 0)
    assert said_of(node, make()) == expected
    assert alone.log_bytes(1, TOPIC, 0) == before


def test_good_records_are_taken_all_the_same(node: NodeProcess) -> None:
    assert said_of(node, batch()) == E.NONE
    for codec in (1, 2, 3, 4):
        assert said_of(node, batch(10, codec=codec)) == E.NONE


def test_zstd_needs_a_client_that_knows_it(node: NodeProcess) -> None:
    assert E.UNSUPPORTED_COMPRESSION_TYPE == said_of(node, batch(codec=4), version=6) == 76
    assert said_of(node, batch(codec=4), version=7) == E.NONE


@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
def test_acks_that_mean_nothing_are_refused(node: NodeProcess, acks: int) -> None:
    assert E.INVALID_REQUIRED_ACKS == said_of(node, batch(), acks=acks) == 21


def test_a_timestamp_too_far_off_is_refused(node: NodeProcess) -> None:
    assert E.INVALID_TIMESTAMP == said_of(node, batch(timestamp=1000), topic=STAMPED) == 32
    assert said_of(node, batch(), topic=STAMPED) == E.NONE


def test_a_compacted_topic_takes_no_record_without_key_and_opens_no_bomb(
    alone: ProcessCluster, node: NodeProcess
) -> None:
    assert said_of(node, batch(key=None), topic=KEYED) == E.INVALID_RECORD
    before = alone.proportional_bytes(1)
    assert said_of(node, bomb(900 * MEGABYTE), topic=KEYED) == E.MESSAGE_TOO_LARGE
    assert said_of(node, bomb(900 * MEGABYTE), topic=TOPIC) == E.NONE, "where nobody opens it"
    assert alone.proportional_bytes(1) < before + 300 * MEGABYTE


def test_a_sequence_out_of_order_and_a_producer_of_old_are_refused(node: NodeProcess) -> None:
    mine: dict[str, Any] = {"producer_id": 4242, "producer_epoch": 3}
    assert said_of(node, batch(base_sequence=0, **mine)) == E.NONE
    assert E.OUT_OF_ORDER_SEQUENCE_NUMBER == said_of(node, batch(base_sequence=5, **mine)) == 45
    old: dict[str, Any] = {"producer_id": 4242, "producer_epoch": 2}
    assert E.INVALID_PRODUCER_EPOCH == said_of(node, batch(base_sequence=1, **old)) == 47


def test_records_for_what_does_not_exist_are_refused(node: NodeProcess) -> None:
    for topic in ("nowhere", "", "..", "../plain", "x" * 30_000):
        assert said_of(node, batch(), topic=topic) == E.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (-1, 1, 2**31 - 1, -(2**31)):
        assert said_of(node, batch(), partition=partition) == E.UNKNOWN_TOPIC_OR_PARTITION
    unknown = UUID(int=5)
    assert said_of(node, batch(), topic=None, topic_id=unknown, version=13) == E.UNKNOWN_TOPIC_ID


def test_without_acks_an_error_closes_the_connection(node: NodeProcess) -> None:
    data = produce.PartitionData(TOPIC, None, 99, memoryview(batch()))
    body = produce.write_request(9, produce.ProduceRequest(None, 0, 5000, [data]))
    with connected(node) as connection:
        connection.sendall(request_frame(ApiKey.PRODUCE, 9, 7, "test", body))
        assert received(connection) == CLOSED


def test_no_name_that_clients_give_leads_out_of_the_log_directory(
    alone: ProcessCluster, node: NodeProcess
) -> None:
    names = ["..", ".", "../out", "a/b", "/tmp/out", "nul\x00", "", "x" * 250]
    topics = [{"name": name} for name in names]
    fields = {"topics": topics, "allow_auto_topic_creation": True}
    answer = alone.ask(node, ApiKey.METADATA, 12, fields)
    assert {int(topic.error_code) for topic in answer.topics} == {E.INVALID_TOPIC_EXCEPTION}
    kept = {path.name for path in node.directory.iterdir()}
    assert kept == {"server.properties", "node.log", "data"}
    directories = {path.name for path in node.data.iterdir() if path.is_dir()}
    own = {"__cluster_metadata-0", f"{EVENT_LOG_TOPIC}-0"}
    assert directories - own == {f"{t}-0" for t in (TOPIC, STAMPED, KEYED)}


# -- frames and connections --------------------------------------------------------------------------------------


def ports(node: NodeProcess) -> tuple[int, int]:
    assert node.controller_port is not None
    return node.port, node.controller_port


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_size_that_no_frame_may_have_closes_at_once_and_takes_no_memory(
    alone: ProcessCluster, node: NodeProcess, size: int
) -> None:
    before = alone.proportional_bytes(1)
    for port in ports(node):
        for _ in range(20):
            with connected(node, port) as connection:
                connection.sendall(size.to_bytes(4, "big", signed=True) + b"some bytes")
                assert received(connection) == CLOSED
    assert alone.proportional_bytes(1) < before + 5 * MEGABYTE


def test_sizes_that_are_only_announced_take_no_memory(
    alone: ProcessCluster, node: NodeProcess
) -> None:
    before = alone.proportional_bytes(1)
    with ExitStack() as stack:
        for i in range(200):
            connection = stack.enter_context(connected(node, ports(node)[i % 2]))
            connection.sendall((100 * MEGABYTE).to_bytes(4, "big") + bytes(1000))
        with connected(node) as another:
            assert ping(another)
        assert alone.proportional_bytes(1) < before + 20 * MEGABYTE


def test_frames_that_come_byte_by_byte_keep_nobody_waiting(node: NodeProcess) -> None:
    frame = request_frame(ApiKey.API_VERSIONS, 0, 7, "slow", b"")
    with ExitStack() as stack, others_served(node, within_s=2):
        slow = [stack.enter_context(connected(node, ports(node)[i % 2])) for i in range(100)]
        for byte in frame:
            for connection in slow:
                connection.sendall(bytes([byte]))
        for connection in slow:
            assert received(connection)


def test_a_hundred_megabytes_of_records_are_refused_and_forgotten(
    alone: ProcessCluster, node: NodeProcess
) -> None:
    before = alone.proportional_bytes(1)
    large = bytes(99 * MEGABYTE)
    with others_served(node, within_s=3):
        assert said_of(node, large) == E.INVALID_RECORD
        assert said_of(node, large) == E.INVALID_RECORD
    # The collector of the C library gives it back when it likes; not twice of it, in any case.
    assert alone.proportional_bytes(1) < before + 150 * MEGABYTE


def test_a_hundred_megabytes_of_a_request_that_is_never_long_are_not_even_read(
    node: NodeProcess,
) -> None:
    size = 100 * MEGABYTE - 100
    head = request_frame(ApiKey.METADATA, 1, 7, "test", b"")[4:]
    with others_served(node, within_s=3), connected(node) as connection:
        connection.sendall((len(head) + size).to_bytes(4, "big") + head + bytes(size))
        assert received(connection) == CLOSED


def test_ten_thousand_connections_are_served_and_forgotten(
    alone: ProcessCluster, node: NodeProcess
) -> None:
    """Or as many as this machine has descriptors for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, hard - 500)
    before = alone.proportional_bytes(1)
    with ExitStack() as stack, others_served(node, within_s=5):
        many = [stack.enter_context(connected(node)) for _ in range(count)]
        for connection in many:
            connection.sendall(b"\x00\x00")
        for connection in many[:: count // 50]:
            rest = request_frame(ApiKey.API_VERSIONS, 0, 7, "one of many", b"")[2:]
            connection.sendall(rest)
            assert received(connection)
        grown = alone.proportional_bytes(1) - before
        assert grown < count * 4096, f"{grown // count} bytes for each of {count} connections"

    def forgotten() -> bool:
        return len(os.listdir(f"/proc/{node.pid}/fd")) < 200

    wait_until(forgotten, 20, "the connections are forgotten")


def test_garbage_at_both_ports_harms_nobody(alone: ProcessCluster, node: NodeProcess) -> None:
    """Raw bytes, and damaged requests of every API and version."""
    random = Random(7)
    with others_served(node, within_s=2):
        for _ in range(4):
            for listener, key, version in SERVED:
                port = node.port if listener == BROKER else node.controller_port
                whole = request_frame(key, version, 7, "test", write_request(key, version, {}))
                body = damaged(whole[4:], random)
                frames = len(body).to_bytes(4, "big") + body + random.randbytes(40)
                with connected(node, port) as connection:
                    connection.sendall(frames)
                    connection.shutdown(socket.SHUT_WR)
                    received(connection)
    wait_until(lambda: alone.partitions(TOPIC)[0].leader == 1, 20, "the topic is led")
    assert said_of(node, batch()) == E.NONE
    assert_no_complaints(alone)


def test_idle_and_too_many_connections_are_closed(new_cluster: Callable[..., Any]) -> None:
    cluster = new_cluster(1, max_connections_per_ip="20", connections_max_idle_ms="1500")
    (node,) = cluster.nodes.values()
    with ExitStack() as stack:
        many = [stack.enter_context(connected(node)) for _ in range(30)]
        served = [connection for connection in many if is_open(connection)]
        assert 15 < len(served) <= 20, "a few may be the test cluster's own"
        # One that goes on asking stays; one that says nothing, or never ends what it says, does not.
        busy, silent, endless = served[:3]
        endless.sendall((1000).to_bytes(4, "big"))

        def both_ended() -> bool:
            endless.sendall(b"x")
            assert ping(busy)
            return len(select.select([silent, endless], [], [], 0)[0]) == 2

        wait_until(both_ended, 20, "idle connections are closed", every=0.2)
        assert received(silent) == CLOSED
        assert received(endless) == CLOSED
        assert ping(busy)
    assert_no_complaints(cluster)


def is_open(connection: socket.socket) -> bool:
    try:
        return ping(connection) != CLOSED
    except ConnectionError:
        return False


def test_a_node_takes_as_many_descriptors_as_it_may_have(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with ProcessCluster(tmp_path, 1) as cluster:
            limits = Path(f"/proc/{cluster.nodes[1].pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (allowed,) = [line.split()[3:5] for line in limits.splitlines() if "open files" in line]
    assert allowed == [str(hard), str(hard)]
