"""The hand-written Produce codec against kio's, for every version and both directions."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from ottla.wire import messages, produce
from ottla.wire.errors import InvalidFrame
from ottla.wire.layout import NodeEndpoint
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse

VERSIONS = range(3, 14)
every_version = pytest.mark.parametrize("version", VERSIONS)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
IDS = st.uuids().filter(lambda value: value.int != 0)
RECORDS = st.none() | st.binary(max_size=300)
ERRORS = st.integers(-1, 133)
TIMES = st.integers(-1, 2**42)
PAIRS = st.none() | st.tuples(INT32, INT32).filter(lambda pair: pair != (-1, -1))
ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), max_size=3
).map(tuple)


def kio_class(version: int, direction: str) -> Any:
    module = importlib.import_module(f"kio.schema.produce.v{version}.{direction}")
    return getattr(module, f"Produce{direction.capitalize()}")


def through_kio(version: int, direction: str, body: bytes) -> tuple[Any, bytes]:
    """What kio reads in `body`, and what it writes for that."""
    cls = kio_class(version, direction)
    entity, size = entity_reader(cls)(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    entity_writer(cls)(out, entity)
    return entity, out.getvalue()


def framed(body: bytes) -> memoryview:
    """Not at the beginning of its frame, as after a header."""
    return memoryview(bytearray(b"\xaa" * 7 + body))


@st.composite
def topics(draw: st.DrawFn, version: int) -> list[tuple[str | None, UUID | None, int]]:
    """Partitions grouped by topics, whose neighbours differ."""
    keys: list[tuple[str | None, UUID | None]]
    if version >= 13:
        keys = [(None, key) for key in draw(st.lists(IDS, max_size=3, unique=True))]
    else:
        keys = [(key, None) for key in draw(st.lists(NAMES, max_size=3, unique=True))]
    return [
        (*key, partition)
        for key in keys
        for partition in draw(st.lists(INT32, min_size=1, max_size=3))
    ]


@every_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_request_is_the_same_to_kio_and_is_read_back(version: int, data: st.DataObject) -> None:
    partitions = [
        PartitionData(*where, None if records is None else memoryview(records))
        for where in data.draw(topics(version))
        for records in [data.draw(RECORDS)]
    ]
    request = ProduceRequest(
        data.draw(st.none() | NAMES), data.draw(INT16), data.draw(INT32), partitions
    )
    body = produce.write_request(version, request)
    entity, kio_body = through_kio(version, "request", body)
    assert kio_body == body
    assert entity.transactional_id == request.transactional_id
    assert entity.acks == request.acks
    assert entity.timeout == datetime.timedelta(milliseconds=request.timeout_ms)
    flat = [
        PartitionData(
            messages.field(topic, "name", None),
            messages.field(topic, "topic_id", None),
            partition.index,
            partition.records,
        )
        for topic in entity.topic_data
        for partition in topic.partition_data
    ]
    assert flat == partitions
    assert produce.read_request(version, framed(kio_body), 7) == request


@every_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_response_is_the_same_to_kio_and_is_read_back(version: int, data: st.DataObject) -> None:
    results = [
        PartitionResult(
            *where,
            data.draw(ERRORS),
            data.draw(INT64),
            data.draw(TIMES),
            data.draw(INT64),
            data.draw(st.none() | NAMES),
            data.draw(PAIRS),
        )
        for where in data.draw(topics(version))
    ]
    endpoints, throttle_ms = data.draw(ENDPOINTS), data.draw(INT32)
    body = produce.write_response(version, results, endpoints, throttle_ms)
    entity, kio_body = through_kio(version, "response", body)
    assert kio_body == body
    known = [
        result._replace(
            log_start_offset=result.log_start_offset if version >= 5 else -1,
            error_message=result.error_message if version >= 8 else None,
            current_leader=result.current_leader if version >= 10 else None,
        )
        for result in results
    ]
    flat = [
        result_of_kio(topic, partition)
        for topic in entity.responses
        for partition in topic.partition_responses
    ]
    assert flat == known
    expected = ProduceResponse(known, endpoints if version >= 10 else (), throttle_ms)
    assert produce.read_response(version, framed(kio_body), 7) == expected


def result_of_kio(topic: Any, partition: Any) -> PartitionResult:
    time = partition.log_append_time
    leader = messages.field(partition, "current_leader", None)
    pair = (leader.leader_id, leader.leader_epoch) if leader else None
    return PartitionResult(
        messages.field(topic, "name", None),
        messages.field(topic, "topic_id", None),
        partition.index,
        partition.error_code,
        partition.base_offset,
        -1 if time is None else round(time.timestamp() * 1000),
        messages.field(partition, "log_start_offset", -1),
        messages.field(partition, "error_message", None),
        None if pair == (-1, -1) else pair,
    )


@pytest.mark.parametrize("version", [8, 9, 12])
def test_errors_of_single_records_in_a_response_are_skipped(version: int) -> None:
    errors = [{"batch_index": 3, "batch_index_error_message": "bad"}, {"batch_index": 4}]
    partition = {"index": 1, "error_code": 87, "record_errors": errors, "error_message": "worse"}
    body = messages.write_response(
        0, version, {"responses": [{"name": "t", "partition_responses": [partition]}]}
    )
    (result,) = produce.read_response(version, framed(body), 7).results
    assert (result.partition, result.error, result.error_message) == (1, 87, "worse")


def test_records_are_writable_views_into_the_frame() -> None:
    data = PartitionData("t", None, 0, memoryview(b"records"))
    frame = framed(produce.write_request(9, ProduceRequest(None, -1, 1000, [data])))
    records = produce.read_request(9, frame, 7).partitions[0].records
    assert records is not None
    records[0:3] = b"REC"
    assert b"RECords" in bytes(frame)


@every_version
@settings(max_examples=40, deadline=None)
@given(body=st.binary(max_size=60))
def test_arbitrary_bytes_are_a_message_or_an_invalid_frame(version: int, body: bytes) -> None:
    with contextlib.suppress(InvalidFrame):
        produce.read_request(version, framed(body), 7)
    with contextlib.suppress(InvalidFrame):
        produce.read_response(version, framed(body), 7)


@every_version
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_hurt_message_is_read_or_refused_as_the_adaptor_does(
    version: int, data: st.DataObject
) -> None:
    """The hand codec and the adaptor take and refuse the same bytes."""
    name, id = (None, UUID(int=5)) if version >= 13 else ("t", None)
    request = ProduceRequest("x", -1, 5, [PartitionData(name, id, 1, memoryview(b"abc"))] * 2)
    results = [PartitionResult(name, id, 1, 0, 5, -1, 0, "no", (1, 2))] * 2
    endpoints = (NodeEndpoint(1, "h", 2, None),)
    for read, direction, body in (
        (produce.read_request, "request", produce.write_request(version, request)),
        (
            produce.read_response,
            "response",
            produce.write_response(version, results, endpoints),
        ),
    ):
        hurt = bytearray(body)
        hurt[data.draw(st.integers(0, len(hurt) - 1))] = data.draw(st.integers(0, 255))
        adaptor = messages.read_request if direction == "request" else messages.read_response
        ours = theirs = True
        try:
            read(version, framed(bytes(hurt)), 7)
        except InvalidFrame:
            ours = False
        try:
            adaptor(0, version, framed(bytes(hurt)), 7)
        except InvalidFrame as error:
            if "time" in str(error) or isinstance(error.__cause__, OverflowError):
                continue  # the adaptor also refuses times that Python cannot say
            theirs = False
        assert ours == theirs
