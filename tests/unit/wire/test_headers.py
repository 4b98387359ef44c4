"""Request and response headers, in every mix of flexible and not, against kio's."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseV1
from kio.serial import entity_writer
from kio.static.primitive import i16, i32
from kio.static.protocol import Entity

from ottla.runtime.seams import FileRange
from ottla.wire.apis import APIS, Api, ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_frame,
    response_chunks,
    response_header,
)

SERVED = [
    (api, version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]
CLIENT_IDS = st.none() | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
CORRELATION_IDS = st.integers(-(2**31), 2**31 - 1)


def kio_bytes(entity: Entity) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@given(st.sampled_from(SERVED), CORRELATION_IDS, CLIENT_IDS, st.binary(max_size=20))
def test_a_request_frame_is_what_kio_writes_and_is_read_back(
    served: tuple[Api, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    api, version = served
    frame = request_frame(api.key, version, correlation_id, client_id, body)
    kio_header = KioRequestV2 if api.flexible(version) else KioRequestV1
    head = kio_bytes(
        kio_header(
            request_api_key=i16(api.key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
    )
    assert frame == (len(head) + len(body)).to_bytes(4, "big") + head + body
    header = read_request_header(memoryview(bytearray(frame))[4:])
    assert header == RequestHeader(api.key, version, correlation_id, client_id, len(head))


@given(st.sampled_from(SERVED), CORRELATION_IDS)
def test_a_response_header_is_what_kio_writes_and_is_read_back(
    served: tuple[Api, int], correlation_id: int
) -> None:
    api, version = served
    tagged = api.flexible(version) and api.key != ApiKey.API_VERSIONS
    kio_header = KioResponseV1 if tagged else KioResponseV0
    header = response_header(api.key, version, correlation_id)
    assert header == kio_bytes(kio_header(correlation_id=i32(correlation_id)))
    frame = memoryview(header + b"body")
    assert read_response_header(api.key, version, frame) == (correlation_id, len(header))


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_header_or_an_invalid_frame(data: bytes) -> None:
    with contextlib.suppress(InvalidFrame):
        read_request_header(memoryview(data))
    for key, version in ((ApiKey.FETCH, 12), (ApiKey.FETCH, 4), (ApiKey.API_VERSIONS, 3)):
        with contextlib.suppress(InvalidFrame):
            read_response_header(key, version, memoryview(data))


@given(st.sampled_from(SERVED), st.binary(max_size=20))
def test_arbitrary_bytes_behind_key_and_version_are_a_header_or_an_invalid_frame(
    served: tuple[Api, int], data: bytes
) -> None:
    api, version = served
    prefix = int(api.key).to_bytes(2, "big") + version.to_bytes(2, "big")
    with contextlib.suppress(InvalidFrame):
        read_request_header(memoryview(prefix + data))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "nothing"),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x01", "cut before the client id"),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x05abc", "client id longer than the frame"),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xfe", "negative length"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x01\xff", "not UTF-8"),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff", "no tagged fields"),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x02\x05\x00\x05\x00", "a tag twice"),
        (b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff\x00", "unknown version"),
        (b"\x00\x04\x00\x00\x00\x00\x00\x01\xff\xff\x00", "a request that Kafka dropped"),
        (b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff\x00", "unknown key"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff", "Produce 0, announced but not served"),
    ],
)
def test_a_bad_request_header_is_an_invalid_frame(frame: bytes, why: str) -> None:
    with pytest.raises(InvalidFrame):
        read_request_header(memoryview(frame))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x01a\x01\x09\x03xyzbody"
    header = read_request_header(memoryview(frame))
    assert header == RequestHeader(ApiKey.METADATA, 12, 1, "a", len(frame) - 4)


def test_an_api_versions_of_unknown_version_is_returned_for_its_answer() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01a\x00\x99\x99"
    header = read_request_header(memoryview(frame))
    assert (header.api_key, header.api_version, header.correlation_id) == (18, 99, 7)
    assert response_header(header.api_key, header.api_version, 7) == b"\x00\x00\x00\x07"


@dataclass
class FakeFile:
    size: int


def test_a_response_has_its_size_in_front_and_no_empty_chunks() -> None:
    ranged = FileRange(FakeFile(100), 10, 50)  # type: ignore[arg-type]
    empty = FileRange(FakeFile(100), 10, 0)  # type: ignore[arg-type]
    chunks = response_chunks(b"head", [b"ab", b"", ranged, empty, memoryview(b"c"), bytearray()])
    assert chunks == [b"\x00\x00\x00\x39head", b"ab", ranged, memoryview(b"c")]
    assert response_chunks(b"head", []) == [b"\x00\x00\x00\x04head"]
