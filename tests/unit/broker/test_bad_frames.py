"""Whatever bytes a stranger sends to either listener: the node lives, complains of nothing, and serves others.

`OTTLA_FUZZ_FRAMES` sets how many frames the long run tries.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from fuzzed_node import TOPIC, FuzzedNode, RandomRequests
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.sim.cluster.nodes import CLUSTER_ID
from ottla.wire import fetch as fetch_codec
from ottla.wire import messages
from ottla.wire import produce as produce_codec
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchPartition, FetchRequest
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC as METADATA_TOPIC
from ottla.wire.primitives import TAGGED_FIELDS_MAX, uvarint
from ottla.wire.produce import PARTITIONS_MAX, PartitionData, ProduceRequest
from support.damage import BROKER, CONTROLLER, SERVED, damaged

LISTENERS = (BROKER, CONTROLLER)
FRAMES = int(os.environ.get("OTTLA_FUZZ_FRAMES", 1_000_000))
FRAMES_PER_NODE = 10_000
FRAMES_PER_TURN = 20


# -- any bytes ---------------------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(LISTENERS), st.binary(max_size=300)), max_size=100))
def test_any_bytes_leave_the_node_well(frames: list[tuple[str, bytes]]) -> None:
    with FuzzedNode() as node:
        node.feed(frames)
        node.is_well()


Drawn = tuple[tuple[str, ApiKey, int], int, bool]

DRAWN = st.lists(
    st.tuples(st.sampled_from(SERVED), st.integers(0, 2**32), st.booleans()),
    min_size=10,
    max_size=100,
)


@pytest.mark.parametrize("nodes", [1, 3])
def test_requests_of_every_kind_right_wrong_and_damaged_leave_the_node_well(nodes: int) -> None:
    @settings(derandomize=True, max_examples=120 // nodes)
    @given(DRAWN)
    def check(drawn: list[Drawn]) -> None:
        with FuzzedNode(nodes=nodes) as node:
            node.feed(_frames(node, drawn))
            node.is_well()

    check()


def _frames(node: FuzzedNode, drawn: list[Drawn]) -> Iterator[tuple[str, bytes]]:
    for (listener, key, version), seed, is_damaged in drawn:
        random = Random(seed)
        frame = RandomRequests(random, node).frame(key, version)
        yield listener, damaged(frame, random) if is_damaged else frame


def test_every_version_of_every_api_is_tried_whole_and_damaged() -> None:
    """What chance may leave out above."""
    with FuzzedNode() as node:
        for seed in range(6):
            for served in SERVED:
                node.feed(_frames(node, [(served, seed, seed % 2 == 1)]))
        node.is_well()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_million_frames_leave_the_node_well_and_its_memory_flat(nodes: int) -> None:
    begun_with: int | None = None
    for first in range(0, FRAMES // nodes, FRAMES_PER_NODE):
        with FuzzedNode(nodes=nodes) as node:
            for seed in range(first, first + FRAMES_PER_NODE, FRAMES_PER_TURN):
                random = Random(seed)
                drawn = [
                    (random.choice(SERVED), random.getrandbits(32), random.random() < 0.5)
                    for _ in range(FRAMES_PER_TURN)
                ]
                try:
                    node.feed(_frames(node, drawn))
                    if seed % 1000 == 0:
                        node.is_well()
                except AssertionError as error:
                    error.add_note(f"seed {seed}, {nodes} nodes")
                    raise
            node.is_well()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun_with = begun_with or peak
        assert peak < begun_with + 150_000, "kilobytes, over what the first node's life took"


# -- the rules of a frame, one by one --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node() -> Iterator[FuzzedNode]:
    with FuzzedNode() as running:
        yield running


def _header(key: int, version: int, client: bytes = b"\x00\x01c", tags: bytes = b"") -> bytes:
    packed = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return packed + b"\x00\x00\x00\x07" + client + tags


METADATA_12 = _header(3, 12, tags=b"\x00")
METADATA_1 = _header(3, 1)
LIST_OFFSETS_1 = _header(2, 1)
NO_FLAGS = b"\x01\x00"  # of Metadata 12: auto creation, authorized operations
ID = bytes(16)

REFUSED: dict[str, bytes] = {
    "nothing at all": b"",
    "a header that is cut short": METADATA_12[:9],
    "an API that does not exist": _header(999, 0),
    "a negative API": _header(-1, 0),
    "an API of Kafka's that is not served": _header(ApiKey.OFFSET_COMMIT, 8),
    "a version that is too new": _header(3, 99),
    "a version that is too old": _header(0, 0),
    "a negative version": _header(3, -1),
    "a client id of negative length": _header(3, 1, client=b"\xff\xfe"),
    "a client id longer than the frame": _header(3, 1, client=b"\x7f\xff"),
    "a client id that is not UTF-8": _header(3, 1, client=b"\x00\x01\xff") + b"\x00\x00\x00\x00",
    "no tagged fields in the header": _header(3, 12),
    "a tagged field longer than the frame": _header(3, 12, tags=b"\x01\x09\x7f"),
    "a tagged field that stands there twice": _header(3, 12, tags=b"\x02\x09\x01a\x09\x01b"),
    "too many tagged fields": _header(
        3,
        12,
        tags=uvarint(TAGGED_FIELDS_MAX + 1)
        + b"".join(uvarint(tag) + b"\x00" for tag in range(TAGGED_FIELDS_MAX + 1)),
    )
    + b"\x01"
    + NO_FLAGS
    + b"\x00",
    "a varint of six bytes": METADATA_12 + b"\x80\x80\x80\x80\x80\x01",
    "a varint of more than 32 bits": METADATA_12 + b"\xff\xff\xff\xff\x7f",
    "a varint that does not end": METADATA_12 + b"\x80",
    "no body": METADATA_12,
    "an array longer than the frame": METADATA_12 + b"\xff\xff\xff\xff\x0f",
    "an array of more elements than bytes": METADATA_1 + b"\x7f\xff\xff\xff",
    "an array of -2 elements": METADATA_1 + b"\xff\xff\xff\xfe",
    "null for an array that cannot be null": LIST_OFFSETS_1 + b"\xff" * 8,
    "a string longer than the frame": METADATA_1 + b"\x00\x00\x00\x01\x00\x05ab",
    "a string of length -2": METADATA_1 + b"\x00\x00\x00\x01\xff\xfe",
    "null for a string that cannot be null": METADATA_1 + b"\x00\x00\x00\x01\xff\xff",
    "a string that is not UTF-8": METADATA_1 + b"\x00\x00\x00\x01\x00\x02\xc3\x28",
    "a lone surrogate": METADATA_1 + b"\x00\x00\x00\x01\x00\x03\xed\xa0\x80",
    "a compact string longer than a string may be": METADATA_12
    + b"\x02"
    + ID
    + uvarint(32769)
    + b"x" * 32768
    + b"\x00"
    + NO_FLAGS
    + b"\x00",
    "more than anybody needs to ask": METADATA_1 + bytes(2 * 1024 * 1024),
    "records for more partitions than there are": request_frame(
        ApiKey.PRODUCE,
        9,
        7,
        "c",
        produce_codec.write_request(
            9,
            ProduceRequest(
                None, 1, 0, [PartitionData(TOPIC, None, 0, None)] * (PARTITIONS_MAX + 1)
            ),
        ),
    )[4:],
    "more coordinators than there are groups": request_frame(
        ApiKey.FIND_COORDINATOR,
        4,
        7,
        "c",
        messages.write_request(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["k"] * 10_001}),
    )[4:],
}


@pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_frame_that_cannot_be_read_closes_the_connection(
    node: FuzzedNode, listener: str, frame: bytes
) -> None:
    assert node.answer_to_frame(listener, frame) is None
    node.check()


def test_what_is_wrong_above_is_right_otherwise(node: FuzzedNode) -> None:
    """The same frames without their mistakes are answered; unknown tagged fields are skipped."""
    rights = (
        METADATA_12 + b"\x01" + NO_FLAGS + b"\x00",
        _header(3, 12, tags=b"\x02\x09\x01a\x0a\x01b") + b"\x01" + NO_FLAGS + b"\x01\x4d\x02xy",
        METADATA_1 + b"\x00\x00\x00\x01\x00\x02ab",
        _header(3, 1, client=b"\xff\xff") + b"\xff\xff\xff\xff",
        LIST_OFFSETS_1 + b"\xff\xff\xff\xff\x00\x00\x00\x00",
    )
    for frame in rights:
        assert node.answer_to_frame(BROKER, frame) is not None


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("body", [b"", b"\xff" * 30])
def test_an_unknown_version_of_api_versions_gets_the_oldest_answer_with_code_35(
    node: FuzzedNode, listener: str, body: bytes
) -> None:
    for version in (5, 99, 32767, -1):
        answer = node.answer_to_frame(listener, _header(18, version) + body)
        assert answer is not None
        assert answer[:4] == b"\x00\x00\x00\x07"
        message = messages.read_response(ApiKey.API_VERSIONS, 0, answer, 4)
        assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {row.api_key for row in message.api_keys} >= {ApiKey.API_VERSIONS, ApiKey.FETCH}


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "grüße", "a\x00", "."])
def test_a_client_software_name_that_is_none_is_an_invalid_request(
    node: FuzzedNode, name: str
) -> None:
    for fields in (
        {"client_software_name": name, "client_software_version": "1"},
        {"client_software_name": "client", "client_software_version": name},
    ):
        answer = node.ask(BROKER, ApiKey.API_VERSIONS, 3, fields)
        assert ErrorCode.INVALID_REQUEST == answer.error_code == 42


# -- requests that can be read and are wrong -------------------------------------------------------------------


def _topic(name: str = "fresh", **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}


def _assigned(*replicas: list[int], first: int = 0) -> dict[str, Any]:
    rows = [{"partition_index": first + i, "broker_ids": ids} for i, ids in enumerate(replicas)]
    return _topic("fresh", num_partitions=-1, replication_factor=-1, assignments=rows)


def _create(*topics: dict[str, Any]) -> tuple[ApiKey, int, dict[str, Any]]:
    return ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 1000}


def _grow(*topics: dict[str, Any]) -> tuple[ApiKey, int, dict[str, Any]]:
    return ApiKey.CREATE_PARTITIONS, 3, {"topics": topics, "timeout": 1000}


def _delete(*topics: dict[str, Any]) -> tuple[ApiKey, int, dict[str, Any]]:
    return ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout": 1000}


def _change(
    *changes: tuple[str, int, str | None], kind: int = 2, name: str = TOPIC, times: int = 1
) -> tuple[ApiKey, int, dict[str, Any]]:
    rows = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource] * times}


def _describe(kind: int, name: str) -> tuple[ApiKey, int, dict[str, Any]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}


def _elect(kind: int, topic: str, *partitions: int) -> tuple[ApiKey, int, dict[str, Any]]:
    rows = [{"topic": topic, "partitions": partitions}]
    return ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": rows}


def _ask_offset(topic: str, *partitions: int, at: int = -1) -> tuple[ApiKey, int, dict[str, Any]]:
    rows = [{"partition_index": i, "current_leader_epoch": -1, "timestamp": at} for i in partitions]
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
    return ApiKey.LIST_OFFSETS, 7, fields


def _cut(topic: str, partition: int, offset: int) -> tuple[ApiKey, int, dict[str, Any]]:
    rows = [{"partition_index": partition, "offset": offset}]
    topics = [{"name": topic, "partitions": rows}]
    return ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 100}


def _metadata(name: str) -> tuple[ApiKey, int, dict[str, Any]]:
    return ApiKey.METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True}


BAD_NAMES = ["", ".", "..", "a/b", "../../etc/passwd", "a b", "nul\x00", "grüße", "x" * 250, "a\n"]

Case = tuple[tuple[ApiKey, int, dict[str, Any]], ErrorCode]
E = ErrorCode

WRONG: dict[str, Case] = {
    "no partitions": (_create(_topic(num_partitions=0)), E.INVALID_PARTITIONS),
    "fewer than none": (_create(_topic(num_partitions=-2)), E.INVALID_PARTITIONS),
    "too many partitions": (_create(_topic(num_partitions=10_001)), E.POLICY_VIOLATION),
    "most partitions": (_create(_topic(num_partitions=2**31 - 1)), E.POLICY_VIOLATION),
    "no replicas": (_create(_topic(replication_factor=0)), E.INVALID_REPLICATION_FACTOR),
    "-2 replicas": (_create(_topic(replication_factor=-2)), E.INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (
        _create(_topic(replication_factor=2)),
        E.INVALID_REPLICATION_FACTOR,
    ),
    "a count beside an assignment": (
        _create(_assigned([1]) | {"num_partitions": 1}),
        E.INVALID_REQUEST,
    ),
    "an unknown broker": (_create(_assigned([99])), E.INVALID_REPLICA_ASSIGNMENT),
    "a negative broker": (_create(_assigned([-1])), E.INVALID_REPLICA_ASSIGNMENT),
    "a broker twice": (_create(_assigned([1, 1])), E.INVALID_REPLICA_ASSIGNMENT),
    "nobody assigned": (_create(_assigned([])), E.INVALID_REPLICA_ASSIGNMENT),
    "partitions from 1 on": (_create(_assigned([1], first=1)), E.INVALID_REPLICA_ASSIGNMENT),
    "partitions from -1 on": (_create(_assigned([1], first=-1)), E.INVALID_REPLICA_ASSIGNMENT),
    "a topic that exists": (_create(_topic(TOPIC)), E.TOPIC_ALREADY_EXISTS),
    "a topic twice": (_create(_topic(), _topic()), E.INVALID_REQUEST),
    "the metadata's own topic": (_create(_topic(METADATA_TOPIC)), E.INVALID_REQUEST),
    "an unknown setting": (
        _create(_topic(configs=[{"name": "no.such", "value": "1"}])),
        E.INVALID_CONFIG,
    ),
    "a setting of another type": (
        _create(_topic(configs=[{"name": "retention.ms", "value": "soon"}])),
        E.INVALID_CONFIG,
    ),
    "a number with underscores": (
        _create(_topic(configs=[{"name": "retention.ms", "value": "1_000"}])),
        E.INVALID_CONFIG,
    ),
    "a number of 5000 digits": (
        _create(_topic(configs=[{"name": "retention.ms", "value": "9" * 5000}])),
        E.INVALID_CONFIG,
    ),
    "a setting without a value": (
        _create(_topic(configs=[{"name": "retention.ms", "value": None}])),
        E.INVALID_CONFIG,
    ),
    "fewer partitions than before": (
        _grow({"name": TOPIC, "count": 1, "assignments": None}),
        E.INVALID_PARTITIONS,
    ),
    "as many as before": (
        _grow({"name": TOPIC, "count": 2, "assignments": None}),
        E.INVALID_PARTITIONS,
    ),
    "a negative count": (
        _grow({"name": TOPIC, "count": -1, "assignments": None}),
        E.INVALID_PARTITIONS,
    ),
    "a huge count": (
        _grow({"name": TOPIC, "count": 2**31 - 1, "assignments": None}),
        E.POLICY_VIOLATION,
    ),
    "an assignment too few": (
        _grow({"name": TOPIC, "count": 4, "assignments": [{"broker_ids": [1]}]}),
        E.INVALID_REPLICA_ASSIGNMENT,
    ),
    "growing an unknown topic": (
        _grow({"name": "nowhere", "count": 4, "assignments": None}),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "growing a topic twice": (
        _grow(*2 * [{"name": TOPIC, "count": 4, "assignments": None}]),
        E.INVALID_REQUEST,
    ),
    "deleting an unknown topic": (_delete({"name": "nowhere"}), E.UNKNOWN_TOPIC_OR_PARTITION),
    "deleting an unknown id": (
        _delete({"name": None, "topic_id": FuzzedNode.unknown_id}),
        E.UNKNOWN_TOPIC_ID,
    ),
    "deleting by name and id": (
        _delete({"name": TOPIC, "topic_id": FuzzedNode.unknown_id}),
        E.INVALID_REQUEST,
    ),
    "deleting nothing": (_delete({"name": None}), E.INVALID_REQUEST),
    "deleting twice": (_delete({"name": TOPIC}, {"name": TOPIC}), E.INVALID_REQUEST),
    "changing an unknown setting": (_change(("no.such", 0, "1")), E.INVALID_CONFIG),
    "changing to a wrong type": (_change(("retention.ms", 0, "x")), E.INVALID_CONFIG),
    "changing to null": (_change(("retention.ms", 0, None)), E.INVALID_REQUEST),
    "appending to what is no list": (_change(("retention.ms", 2, "1")), E.INVALID_CONFIG),
    "an unknown operation": (_change(("retention.ms", 9, "1")), E.INVALID_REQUEST),
    "a setting twice": (_change(*2 * [("retention.ms", 0, "1")]), E.INVALID_REQUEST),
    "a resource twice": (_change(("retention.ms", 0, "1"), times=2), E.INVALID_REQUEST),
    "settings of an unknown topic": (
        _change(("retention.ms", 0, "1"), name="nowhere"),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "settings of an unknown kind": (_change(("x", 0, "1"), kind=77), E.INVALID_REQUEST),
    "settings of a broker that is no number": (
        _change(("x", 0, "1"), kind=4, name="²"),
        E.INVALID_REQUEST,
    ),
    "settings of a broker with too many digits": (
        _change(("x", 0, "1"), kind=4, name="9" * 5000),
        E.INVALID_REQUEST,
    ),
    "settings of an unknown broker": (
        _change(("x", 0, "1"), kind=4, name="99"),
        E.BROKER_ID_NOT_REGISTERED,
    ),
    "describing an unknown topic": (_describe(2, "nowhere"), E.UNKNOWN_TOPIC_OR_PARTITION),
    "describing an unknown kind": (_describe(77, "x"), E.INVALID_REQUEST),
    "describing another broker": (_describe(4, "99"), E.INVALID_REQUEST),
    "electing in an unknown way": (_elect(7, TOPIC, 0), E.INVALID_REQUEST),
    "electing for partition -1": (_elect(0, TOPIC, -1), E.UNKNOWN_TOPIC_OR_PARTITION),
    "electing for nobody's partition": (_elect(0, "nowhere", 0), E.UNKNOWN_TOPIC_OR_PARTITION),
    "electing the leader again": (_elect(0, TOPIC, 0), E.ELECTION_NOT_NEEDED),
    "the offset of partition -1": (_ask_offset(TOPIC, -1), E.UNKNOWN_TOPIC_OR_PARTITION),
    "an offset twice": (_ask_offset(TOPIC, 0, 0), E.INVALID_REQUEST),
    "the offset of an unknown special time": (_ask_offset(TOPIC, 0, at=-77), E.UNSUPPORTED_VERSION),
    "deleting records of partition -1": (_cut(TOPIC, -1, 0), E.UNKNOWN_TOPIC_OR_PARTITION),
    "deleting records that do not exist": (_cut(TOPIC, 0, 10**9), E.OFFSET_OUT_OF_RANGE),
    "deleting records before the first": (_cut(TOPIC, 0, -5), E.OFFSET_OUT_OF_RANGE),
    "unregistering an unknown broker": (
        (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 99}),
        E.BROKER_ID_NOT_REGISTERED,
    ),
    "a transactional id of nothing": (
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": ""}),
        E.INVALID_REQUEST,
    ),
}
for _name in BAD_NAMES:
    WRONG[f"creating {_name[:20]!r}"] = _create(_topic(_name)), E.INVALID_TOPIC_EXCEPTION
    WRONG[f"metadata of {_name[:20]!r}"] = _metadata(_name), E.INVALID_TOPIC_EXCEPTION
    WRONG[f"settings of {_name[:20]!r}"] = _describe(2, _name), E.INVALID_TOPIC_EXCEPTION
    WRONG[f"changing {_name[:20]!r}"] = (
        _change(("retention.ms", 0, "1"), name=_name),
        E.INVALID_TOPIC_EXCEPTION if _name else E.INVALID_REQUEST,
    )
    WRONG[f"offsets of {_name[:20]!r}"] = _ask_offset(_name, 0), E.UNKNOWN_TOPIC_OR_PARTITION
    WRONG[f"cutting {_name[:20]!r}"] = _cut(_name, 0, 0), E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_request_gets_kafkas_error_code(node: FuzzedNode, case: Case) -> None:
    (key, version, fields), expected = case
    answer = node.ask(BROKER, key, version, fields)
    assert _last_error(answer) == expected, answer
    node.check()


def _last_error(answer: Any) -> ErrorCode:
    """The code of the last row of the answer, or of the whole where it has no rows."""
    for name in ("topics", "responses", "results", "replica_election_results"):
        rows = getattr(answer, name, ())
        for row in rows[-1:]:
            for inner in ("partitions", "partition_result"):
                for part in (getattr(row, inner, None) or ())[-1:]:
                    return ErrorCode(int(part.error_code))
            return ErrorCode(int(row.error_code))
    return ErrorCode(int(answer.error_code))


def test_names_that_differ_in_dots_and_underscores_collide(node: FuzzedNode) -> None:
    assert _last_error(node.ask(BROKER, *_create(_topic("a.b_c")))) == E.NONE
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        for asked in (_create(_topic(name)), _metadata(name)):
            assert E.INVALID_TOPIC_EXCEPTION == _last_error(node.ask(BROKER, *asked)) == 17
    answer = node.ask(BROKER, *_create(_topic("d.e"), _topic("d_e")))
    assert [int(t.error_code) for t in answer.topics] == [E.NONE, E.INVALID_TOPIC_EXCEPTION]
    # Other names may hold both characters.
    assert _last_error(node.ask(BROKER, *_create(_topic("a.b_d")))) == E.NONE


def test_no_name_leads_out_of_the_log_directory(node: FuzzedNode) -> None:
    """Every file that the node has lies in its own directories, after all that was asked of it."""
    for name in BAD_NAMES:
        node.ask(BROKER, *_metadata(name))
    disk = node.sim.host.disk
    assert disk.list_dir("/") == ["data", "metadata"]
    with pytest.raises(Exception, match="is no partition's name"):
        node.node.broker.logs.create("../out", node.topic_id, 0, None, 0)


# -- fetches that ask for too much -------------------------------------------------------------------------------


def _fetch(node: FuzzedNode, **fields: Any) -> Any:
    partitions = fields.pop("partitions", [_asked(0)])
    request = FetchRequest(partitions=partitions, **fields)
    body = fetch_codec.write_request(12, request)
    answer = node.answer_to(BROKER, ApiKey.FETCH, 12, body)
    assert answer is not None
    _, position = read_response_header(ApiKey.FETCH, 12, answer)
    return fetch_codec.read_response(12, answer, position)


def _asked(partition: int, offset: int = 0, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(TOPIC, None, partition, -1, offset, -1, -1, max_bytes)


def test_a_fetch_session_that_nobody_has_is_not_found(node: FuzzedNode) -> None:
    for session_id in (0, 1, -1, 2**31 - 1):
        answer = _fetch(node, session_id=session_id, session_epoch=5)
        assert answer.error == E.FETCH_SESSION_ID_NOT_FOUND
    created = _fetch(node, session_epoch=0)
    # Another connection, and the first one is closed: its session went with it.
    answer = _fetch(node, session_id=created.session_id, session_epoch=1)
    assert answer.error == E.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_that_are_not_there_are_told_apart_from_those_that_are(node: FuzzedNode) -> None:
    numbers = [0, -1, 2, -(2**31), 2**31 - 1, 0]
    answer = _fetch(node, partitions=[_asked(i) for i in numbers])
    codes = {p.partition: p.error for p in answer.partitions}
    assert codes.pop(0) == E.NONE
    assert set(codes.values()) == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(answer.partitions) == len(set(numbers)), "a doubled one is answered once"


@pytest.mark.parametrize("limit", [-1, 0, -(2**31)])
def test_negative_limits_are_no_limits_to_break(node: FuzzedNode, limit: int) -> None:
    answer = _fetch(node, max_bytes=limit, min_bytes=limit, max_wait_ms=limit)
    assert answer.partitions[0].error == E.NONE
    answer = _fetch(node, partitions=[_asked(0, max_bytes=limit)])
    assert answer.partitions[0].error == E.NONE
    answer = _fetch(node, partitions=[_asked(0, offset=limit - 1)])
    assert answer.partitions[0].error == E.OFFSET_OUT_OF_RANGE


def test_forgetting_what_was_never_asked_for_is_nothing(node: FuzzedNode) -> None:
    answer = _fetch(node, session_epoch=0, forgotten=[(TOPIC, 1), ("nowhere", -5), (TOPIC, 0)])
    assert answer.error == E.NONE


def test_a_fetch_that_would_wait_for_weeks_is_forgotten_with_its_connection() -> None:
    """Nothing of it is left: no timer, no watcher, no session."""
    patient = FetchRequest(
        session_epoch=0, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, partitions=[_asked(0)]
    )
    frame = request_frame(ApiKey.FETCH, 12, 7, "c", fetch_codec.write_request(12, patient))[4:]
    with FuzzedNode() as node:
        handler = node.node.servers[BROKER].handlers[ApiKey.FETCH]
        replicas = node.node.broker.replicas
        for epoch in (0, -1):
            patient.session_epoch = epoch
            for _ in range(5):
                (connection,) = node.feed([(BROKER, frame)])
                assert not connection.answers, "it waited"
        assert not handler._live and not handler._of_connection
        assert not [w for p, w in replicas.purgatory._watchers.items() if p.topic == TOPIC]


def test_sessions_that_name_too_much_live_for_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.apis.fetch.SESSION_PARTITIONS_MAX", 100)
    with FuzzedNode() as node:
        handler = node.node.servers[BROKER].handlers[ApiKey.FETCH]
        assert _fetch(node, session_epoch=0, partitions=[_asked(i) for i in range(100)]).session_id
        answer = _fetch(node, session_epoch=0, partitions=[_asked(i) for i in range(101)])
        assert answer.error == E.NONE
        assert answer.session_id == 0, "no session was made"
        assert len(answer.partitions) == 101
        assert not handler._live


# -- the quorum's own requests, forged -------------------------------------------------------------------------


def _begin(epoch: int, leader: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "leader_id": leader, "leader_epoch": epoch}
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": CLUSTER_ID, "topics": topics}


def _vote(epoch: int, candidate: int) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "replica_epoch": epoch,
        "replica_id": candidate,
        "last_offset_epoch": 0,
        "last_offset": 0,
    }
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": CLUSTER_ID, "topics": topics}


def _quorum_error(answer: Any) -> ErrorCode:
    return ErrorCode(int(answer.topics[0].partitions[0].error_code))


def test_M1_a_second_leader_of_an_epoch_is_refused_and_the_node_lives() -> None:
    for key in (ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH):
        with FuzzedNode() as node:
            epoch = node.node.quorum.epoch + 1
            assert _quorum_error(node.ask(CONTROLLER, key, 0, _begin(epoch, 7))) == E.NONE
            answer = node.ask(CONTROLLER, key, 0, _begin(epoch, 8))
            assert _quorum_error(answer) == E.INVALID_REQUEST
            node.check()
            node.is_well()


def test_one_frame_cannot_use_up_all_epochs() -> None:
    with FuzzedNode() as node:
        epoch = node.node.quorum.epoch
        for far in (2**31 - 1, epoch + 1_000_001):
            for key, fields in (
                (ApiKey.VOTE, _vote(far, 7)),
                (ApiKey.BEGIN_QUORUM_EPOCH, _begin(far, 7)),
                (ApiKey.END_QUORUM_EPOCH, _begin(far, 7)),
            ):
                answer = node.ask(CONTROLLER, key, 0, fields)
                assert _quorum_error(answer) == E.INVALID_REQUEST
        assert node.node.quorum.epoch == epoch
        node.is_well()


# -- answers stay in proportion --------------------------------------------------------------------------------


def test_naming_a_topic_a_thousand_times_is_answered_once(node: FuzzedNode) -> None:
    names = [{"name": TOPIC}] * 1000
    answer = node.ask(BROKER, ApiKey.METADATA, 12, {"topics": names})
    assert len(answer.topics) == 1
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
    answer = node.ask(BROKER, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource] * 1000})
    assert len(answer.results) == 1


def test_one_request_creates_a_bounded_number_of_topics() -> None:
    with FuzzedNode() as node:
        names = [{"name": f"wish-{i}"} for i in range(1500)]
        fields = {"topics": names, "allow_auto_topic_creation": True}
        answer = node.ask(BROKER, ApiKey.METADATA, 12, fields)
        assert len(answer.topics) == 1500
        made = [name for name in node.node.quorum.image.topics if name.startswith("wish-")]
        assert len(made) == 1000
        node.check()


def test_many_users_are_described_in_linear_time(node: FuzzedNode) -> None:
    users = [{"name": f"{number:06x}"} for number in range(40_000)]
    began = time.process_time()
    answer = node.ask(BROKER, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": users})
    assert time.process_time() - began < 8, "a second, or a minute if each name is sought in all"
    assert len(answer.results) == len(users)


def test_a_list_of_very_many_short_names_is_not_read(node: FuzzedNode) -> None:
    """Two megabytes hold 300,000 of them, and each would be decided, told to the audit and answered."""
    for listener, key, version, before, after in (
        (BROKER, ApiKey.METADATA, 4, b"", b"\0"),
        (BROKER, ApiKey.DELETE_TOPICS, 3, b"", b"\0\0\x75\x30"),
        (CONTROLLER, ApiKey.DELETE_TOPICS, 3, b"", b"\0\0\x75\x30"),
    ):
        most = 50_000 if key is ApiKey.METADATA else 20_000
        for count, is_read in ((most, True), (most + 1, False)):
            names = b"".join(b"\0\5%05x" % number for number in range(count))
            body = before + count.to_bytes(4) + names + after
            answer = node.answer_to(listener, key, version, body)
            assert (answer is not None) == is_read, (key, count)
    node.is_well()


def test_many_short_lists_are_bounded_together(node: FuzzedNode) -> None:
    """Each of these is short. Together they could be 300,000 elements in two megabytes."""
    key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
    setting = b"\x02a\x00\x00\x00"  # its name, set, no value, no tags
    for each, is_read in ((398, True), (400, False)):
        resource = b"\x02\x02x" + uvarint(each + 1) + setting * each + b"\x00"
        body = uvarint(101) + resource * 100 + b"\x01\x00"
        answer = node.answer_to(BROKER, key, version, body)
        assert (answer is not None) == is_read, each
    # What one request used is there for the next.
    body = uvarint(2) + b"\x02\x02x\x02" + setting + b"\x00" + b"\x01\x00"
    assert node.answer_to(BROKER, key, version, body) is not None
    node.is_well()


def test_brokers_may_report_about_all_of_their_partitions_at_once() -> None:
    partitions = [{"partition_index": number} for number in range(60_000)]
    topics = [{"topic_id": UUID(int=1), "partitions": partitions}]
    directories = [{"id_": UUID(int=2), "topics": topics}]
    fields = {"broker_id": 1, "broker_epoch": 1, "directories": directories}
    key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    body = memoryview(messages.write_request(key, 0, fields))
    read = messages.read_request(key, 0, body, 0)
    assert len(read.directories[0].topics[0].partitions) == 60_000


def test_a_message_about_a_long_name_is_cut(node: FuzzedNode) -> None:
    answer = node.ask(BROKER, *_create(_topic("x" * 32767)))
    assert _last_error(answer) == E.INVALID_TOPIC_EXCEPTION
    assert len(answer.topics[0].error_message) <= 1000


@pytest.mark.parametrize("version", [10, 11])
def test_a_topic_without_a_name_is_an_invalid_request_where_answers_need_one(
    node: FuzzedNode, version: int
) -> None:
    for topic in ({"name": None}, {"name": TOPIC, "topic_id": node.topic_id}):
        answer = node.ask(BROKER, ApiKey.METADATA, version, {"topics": [topic]})
        assert [int(each.error_code) for each in answer.topics] == [E.INVALID_REQUEST]
    answer = node.ask(BROKER, ApiKey.METADATA, version, {"topics": [{"name": TOPIC}]})
    assert [int(each.error_code) for each in answer.topics] == [E.NONE]
    node.check()


def test_a_cursor_that_cannot_be_is_an_invalid_request(node: FuzzedNode) -> None:
    for cursor in (
        {"topic_name": TOPIC, "partition_index": -1},
        {"topic_name": "nowhere", "partition_index": 0},
    ):
        fields = {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": cursor}
        answer = node.ask(BROKER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
        assert [int(topic.error_code) for topic in answer.topics] == [E.INVALID_REQUEST]


def test_a_cursor_that_cannot_be_brings_no_name_to_light(node: FuzzedNode) -> None:
    """A question about all topics is answered with those that the client may describe, and this one with none."""
    cursor = {"topic_name": TOPIC, "partition_index": -2}
    fields = {"topics": [], "response_partition_limit": 10, "cursor": cursor}
    assert not node.ask(BROKER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields).topics


def test_only_records_may_be_long() -> None:
    assert APIS[ApiKey.PRODUCE].request_bytes_max == 2**31 - 1
    assert {api.request_bytes_max for api in APIS.values() if api.key != ApiKey.PRODUCE} == {
        2 * 1024 * 1024,
        8 * 1024 * 1024,
    }
