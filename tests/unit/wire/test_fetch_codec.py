"""The hand-written Fetch codec against kio's, for every version and both directions."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import io
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from ottla.runtime.seams import Chunk, FileRange
from ottla.wire import fetch, messages
from ottla.wire.errors import InvalidFrame
from ottla.wire.fetch_messages import (
    HIGH_WATERMARK_UNSUPPORTED,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    fetched_partition,
)
from ottla.wire.layout import NodeEndpoint

VERSIONS = range(4, 19)
every_version = pytest.mark.parametrize("version", VERSIONS)

INT8 = st.integers(-128, 127)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
IDS = st.uuids().filter(lambda value: value.int != 0)
ERRORS = st.integers(-1, 133)
ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), max_size=3
).map(tuple)
TRANSACTIONS = st.none() | st.lists(st.tuples(INT64, INT64), max_size=3)


def pairs(
    first: st.SearchStrategy[int], second: st.SearchStrategy[int]
) -> st.SearchStrategy[tuple[int, int] | None]:
    return st.none() | st.tuples(first, second).filter(lambda pair: pair != (-1, -1))


def through_kio(version: int, direction: str, body: bytes) -> tuple[Any, bytes]:
    """What kio reads in `body`, and what it writes for that."""
    module = importlib.import_module(f"kio.schema.fetch.v{version}.{direction}")
    cls = getattr(module, f"Fetch{direction.capitalize()}")
    entity, size = entity_reader(cls)(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    entity_writer(cls)(out, entity)
    return entity, out.getvalue()


def framed(body: bytes) -> memoryview:
    return memoryview(bytearray(b"\xaa" * 7 + body))


@st.composite
def topics(draw: st.DrawFn, version: int) -> list[tuple[str | None, UUID | None, int]]:
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


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    return FetchRequest(
        replica_id=draw(INT32),
        replica_epoch=draw(INT64),
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=draw(INT32),
        isolation_level=draw(INT8),
        session_id=draw(INT32),
        session_epoch=draw(INT32),
        cluster_id=draw(st.none() | NAMES),
        rack_id=draw(NAMES),
        partitions=[
            FetchPartition(
                *where,
                draw(INT32),
                draw(INT64),
                draw(INT32),
                draw(INT64),
                draw(INT32),
                draw(st.none() | IDS),
                draw(INT64 | st.just(HIGH_WATERMARK_UNSUPPORTED)),
            )
            for where in draw(topics(version))
        ],
        forgotten=[
            (name if name is not None else topic_id, partition)  # type: ignore[misc]
            for name, topic_id, partition in draw(topics(version))
        ],
    )


def as_sent(version: int, request: FetchRequest) -> FetchRequest:
    """What a version carries of a request."""
    unsupported = HIGH_WATERMARK_UNSUPPORTED
    return replace(
        request,
        replica_epoch=request.replica_epoch if version >= 15 else -1,
        session_id=request.session_id if version >= 7 else 0,
        session_epoch=request.session_epoch if version >= 7 else -1,
        cluster_id=request.cluster_id if version >= 12 else None,
        rack_id=request.rack_id if version >= 11 else "",
        forgotten=request.forgotten if version >= 7 else [],
        partitions=[
            asked._replace(
                current_leader_epoch=asked.current_leader_epoch if version >= 9 else -1,
                last_fetched_epoch=asked.last_fetched_epoch if version >= 12 else -1,
                log_start_offset=asked.log_start_offset if version >= 5 else -1,
                replica_directory_id=asked.replica_directory_id if version >= 17 else None,
                high_watermark=asked.high_watermark if version >= 18 else unsupported,
            )
            for asked in request.partitions
        ],
    )


def request_of_kio(entity: Any) -> FetchRequest:
    field = messages.field
    state = field(entity, "replica_state", None)
    return FetchRequest(
        replica_id=state.replica_id if state else entity.replica_id,
        replica_epoch=state.replica_epoch if state else -1,
        max_wait_ms=entity.max_wait // datetime.timedelta(milliseconds=1),
        min_bytes=entity.min_bytes,
        max_bytes=entity.max_bytes,
        isolation_level=entity.isolation_level,
        session_id=field(entity, "session_id", 0),
        session_epoch=field(entity, "session_epoch", -1),
        cluster_id=field(entity, "cluster_id", None),
        rack_id=field(entity, "rack_id", ""),
        partitions=[
            FetchPartition(
                field(topic, "topic", None),
                field(topic, "topic_id", None),
                asked.partition,
                field(asked, "current_leader_epoch", -1),
                asked.fetch_offset,
                field(asked, "last_fetched_epoch", -1),
                field(asked, "log_start_offset", -1),
                asked.partition_max_bytes,
                field(asked, "replica_directory_id", None),
                field(asked, "high_watermark", HIGH_WATERMARK_UNSUPPORTED),
            )
            for topic in entity.topics
            for asked in topic.partitions
        ],
        forgotten=[
            (field(topic, "topic", None) or field(topic, "topic_id", ""), partition)
            for topic in field(entity, "forgotten_topics_data", ())
            for partition in topic.partitions
        ],
    )


@every_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_request_is_the_same_to_kio_and_is_read_back(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    body = fetch.write_request(version, request)
    entity, kio_body = through_kio(version, "request", body)
    assert kio_body == body
    sent = as_sent(version, request)
    assert request_of_kio(entity) == sent
    assert fetch.read_request(version, framed(kio_body), 7) == sent


@dataclass(frozen=True)
class MemoryFile:
    """As much of a file as a FileRange needs."""

    data: bytes

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


def range_of(data: bytes) -> FileRange:
    return FileRange(MemoryFile(b"before" + data + b"after"), 6, len(data))  # type: ignore[arg-type]


def joined(chunks: list[Chunk]) -> bytes:
    return b"".join(
        chunk.read() if isinstance(chunk, FileRange) else bytes(chunk) for chunk in chunks
    )


ANY_BYTES = st.binary(max_size=40) | st.binary(min_size=1025, max_size=1100)
ANY_CHUNK: st.SearchStrategy[Chunk] = st.one_of(
    ANY_BYTES, ANY_BYTES.map(lambda data: memoryview(data)), ANY_BYTES.map(range_of)
)
ANY_RECORDS = st.none() | ANY_CHUNK | st.lists(ANY_CHUNK, max_size=3)


def content(records: Chunk | list[Chunk] | None) -> bytes:
    if records is None:
        return b""
    return joined(records if isinstance(records, list) else [records])


@st.composite
def answers(draw: st.DrawFn, version: int) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            *where,
            draw(ERRORS),
            draw(INT64),
            draw(INT64),
            draw(INT64),
            draw(TRANSACTIONS),
            draw(INT32),
            draw(pairs(INT32, INT64)),
            draw(pairs(INT32, INT32)),
            draw(pairs(INT64, INT32)),
            draw(ANY_RECORDS),
        )
        for where in draw(topics(version))
    ]


def answer_as_sent(version: int, answer: FetchedPartition) -> FetchedPartition:
    return answer._replace(
        log_start_offset=answer.log_start_offset if version >= 5 else -1,
        preferred_read_replica=answer.preferred_read_replica if version >= 11 else -1,
        diverging=answer.diverging if version >= 12 else None,
        current_leader=answer.current_leader if version >= 12 else None,
        snapshot_id=answer.snapshot_id if version >= 12 else None,
        records=content(answer.records),
    )


def answer_of_kio(topic: Any, answer: Any) -> FetchedPartition:
    field = messages.field

    def pair(name: str, first: str, second: str) -> tuple[int, int] | None:
        value = field(answer, name, None)
        found = (getattr(value, first), getattr(value, second)) if value else (-1, -1)
        return None if found == (-1, -1) else found

    aborted = answer.aborted_transactions
    return FetchedPartition(
        field(topic, "topic", None),
        field(topic, "topic_id", None),
        answer.partition_index,
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        field(answer, "log_start_offset", -1),
        None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        field(answer, "preferred_read_replica", -1),
        pair("diverging_epoch", "epoch", "end_offset"),
        pair("current_leader", "leader_id", "leader_epoch"),
        pair("snapshot_id", "end_offset", "epoch"),
        answer.records,
    )


@every_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_response_is_the_same_to_kio_and_is_read_back(version: int, data: st.DataObject) -> None:
    partitions = data.draw(answers(version))
    error, session_id, throttle_ms = data.draw(ERRORS), data.draw(INT32), data.draw(INT32)
    endpoints = data.draw(ENDPOINTS)
    chunks = fetch.write_response(version, error, session_id, partitions, endpoints, throttle_ms)
    assert all(chunk.size if isinstance(chunk, FileRange) else len(chunk) for chunk in chunks)
    body = joined(chunks)
    entity, kio_body = through_kio(version, "response", body)
    assert kio_body == body
    sent = [answer_as_sent(version, answer) for answer in partitions]
    flat = [
        answer_of_kio(topic, answer) for topic in entity.responses for answer in topic.partitions
    ]
    assert flat == sent
    expected = FetchResponse(
        error if version >= 7 else 0,
        session_id if version >= 7 else 0,
        sent,
        endpoints if version >= 16 else (),
        throttle_ms,
    )
    assert fetch.read_response(version, framed(kio_body), 7) == expected


@pytest.mark.parametrize("version", [11, 17])
def test_file_ranges_and_large_buffers_are_passed_on_as_they_are(version: int) -> None:
    ranged, large, small = range_of(b"r" * 5000), memoryview(b"l" * 5000), b"s" * 10
    name, id = (None, UUID(int=9)) if version >= 13 else ("t", None)
    chunks = fetch.write_response(
        version,
        0,
        0,
        [
            FetchedPartition(name, id, 0, 0, records=ranged),
            FetchedPartition(name, id, 1, 0, records=[large, ranged]),
            FetchedPartition(name, id, 2, 0, records=small),
        ],
    )
    assert [chunk for chunk in chunks if isinstance(chunk, FileRange)] == [ranged, ranged]
    assert any(chunk is large for chunk in chunks)
    assert len(chunks) == 6  # bytes, range, bytes, large, range, bytes


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_null_records_of_another_broker_are_read_as_none(version: int) -> None:
    answer = {"partition_index": 1, "records": None}
    body = messages.write_response(
        1, version, {"responses": [{"topic": "t", "topic_id": UUID(int=1), "partitions": [answer]}]}
    )
    (read,) = fetch.read_response(version, framed(body), 7).partitions
    assert read.records is None


def test_unknown_tagged_fields_of_a_partition_are_skipped() -> None:
    asked = FetchPartition(None, UUID(int=9), 1, 2, 3, 4, 5, 6)
    body = fetch.write_request(16, FetchRequest(partitions=[asked], max_wait_ms=1))
    # Version 16 has no tags in a partition: give it the two of version 18 and one that nobody knows.
    plain = bytes.fromhex("000000050000000600")
    assert body.count(plain) == 1
    tags = b"\x03" + b"\x00\x10" + b"i" * 16 + b"\x01\x08" + b"w" * 8 + b"\x63\x02??"
    tagged = body.replace(plain, plain[:-1] + tags)
    assert fetch.read_request(16, framed(tagged), 7).partitions == [asked]
    read = fetch.read_request(18, framed(tagged), 7).partitions[0]
    assert read.replica_directory_id == UUID(bytes=b"i" * 16)
    assert read.high_watermark == int.from_bytes(b"w" * 8, "big")


@every_version
@settings(max_examples=40, deadline=None)
@given(body=st.binary(max_size=90))
def test_arbitrary_bytes_are_a_message_or_an_invalid_frame(version: int, body: bytes) -> None:
    with contextlib.suppress(InvalidFrame):
        fetch.read_request(version, framed(body), 7)
    with contextlib.suppress(InvalidFrame):
        fetch.read_response(version, framed(body), 7)


@every_version
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_hurt_message_is_read_or_refused_as_the_adaptor_does(
    version: int, data: st.DataObject
) -> None:
    """The hand codec and the adaptor take and refuse the same bytes."""
    name, id = (None, UUID(int=5)) if version >= 13 else ("t", None)
    key = id or name or ""
    request = FetchRequest(
        replica_id=3,
        replica_epoch=4,
        cluster_id="c",
        rack_id="r",
        partitions=[FetchPartition(name, id, 1, 2, 3, 4, 5, 6, UUID(int=8), 7)] * 2,
        forgotten=[(key, 1), (key, 2)],
    )
    answer = FetchedPartition(name, id, 1, 0, 2, 3, 4, [(5, 6)], 7, (8, 9), (1, 2), (3, 4), b"abc")
    response = fetch.write_response(
        version, 0, 5, [answer, answer], (NodeEndpoint(1, "h", 2, None),)
    )
    for read, adaptor, body in (
        (fetch.read_request, messages.read_request, fetch.write_request(version, request)),
        (fetch.read_response, messages.read_response, joined(response)),
    ):
        hurt = bytearray(body)
        hurt[data.draw(st.integers(0, len(hurt) - 1))] = data.draw(st.integers(0, 255))
        ours = theirs = True
        try:
            read(version, framed(bytes(hurt)), 7)
        except InvalidFrame:
            ours = False
        try:
            adaptor(1, version, framed(bytes(hurt)), 7)
        except InvalidFrame:
            theirs = False
        assert ours == theirs


def test_the_quick_factory_of_an_answer_has_its_fields_in_their_order() -> None:
    parameters = signature(fetched_partition).parameters
    assert tuple(parameters) == FetchedPartition._fields
    annotations = {name: each.annotation for name, each in parameters.items()}
    assert annotations == FetchedPartition.__annotations__ or annotations == {
        name: getattr(each, "__forward_arg__", each)
        for name, each in FetchedPartition.__annotations__.items()
    }
    values = {name: object() for name in FetchedPartition._fields}
    assert fetched_partition(**values)._asdict() == values  # type: ignore[arg-type]
