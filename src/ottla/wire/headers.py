"""The header of every request and response, and the size before it.

There are four layouts. Requests: v1 (key, version, correlation id, client id) and v2, which adds tagged fields.
Responses: v0 (correlation id) and v1, which adds tagged fields. Flexible versions of an API use the newer
ones, with one exception: an ApiVersions response always has header v0, because its reader does not know yet
which versions the sender supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from ottla.runtime.seams import Chunk, FileRange
from ottla.wire.apis import APIS, PRIVATE_APIS, PRIVATE_VERSION, ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import skip_tagged_fields

_REQUEST: Final = Struct(">hhih")  # api key, api version, correlation id, length of the client id
_INT32: Final = Struct(">i")
_TAGGED_RESPONSE: Final = Struct(">iB")
_SIZE_AND_REQUEST: Final = Struct(">ihhih")
_NO_TAGS: Final = b"\x00"


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """The position of the body in the frame."""


def _flexible_versions() -> dict[tuple[int, int], bool]:
    return {
        (int(api.key), version): api.flexible(version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    } | {(key, PRIVATE_VERSION): False for key in PRIVATE_APIS}


# Every served (key, version), and whether it is flexible: one look-up on the hot path.
_FLEXIBLE: Final = _flexible_versions()

# Whether a response header has tagged fields. An unknown version of ApiVersions is answered in version 0,
# whose header is the same as that of all others.
_TAGGED: Final = {
    (key, version): flexible and key != ApiKey.API_VERSIONS
    for (key, version), flexible in _FLEXIBLE.items()
}


def read_request_header(frame: memoryview) -> RequestHeader:
    """InvalidFrame if it is malformed, or if its key or version is not served. An ApiVersions request of an unknown
    version is returned, because it is answered with UNSUPPORTED_VERSION (35); its body must not be read."""
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
    except StructError as error:
        raise InvalidFrame("request header is cut short") from error
    flexible = _FLEXIBLE.get((api_key, version))
    if flexible is None:
        if api_key != ApiKey.API_VERSIONS:
            raise InvalidFrame(f"api key {api_key} version {version} is not served")
        # Kafka's clients send the header of their own version. The response needs nothing after the correlation id.
        return RequestHeader(api_key, version, correlation_id, None, len(frame))
    position = _REQUEST.size
    client_id: str | None = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise InvalidFrame("client id is longer than the frame")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidFrame("client id is not UTF-8") from error
        position = end
    elif length != -1:
        raise InvalidFrame(f"client id of length {length}")
    if flexible:
        position = skip_tagged_fields(frame, position)
    make: Any = tuple.__new__  # the NamedTuple's own constructor takes three times as long
    header: RequestHeader = make(
        RequestHeader, (api_key, version, correlation_id, client_id, position)
    )
    return header


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A complete request, including its size."""
    flexible = _FLEXIBLE[api_key, version]
    name = b"" if client_id is None else client_id.encode()
    size = _REQUEST.size + len(name) + flexible + len(body)
    length = -1 if client_id is None else len(name)
    head = _SIZE_AND_REQUEST.pack(size, api_key, version, correlation_id, length)
    return b"".join((head, name, _NO_TAGS if flexible else b"", body))


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    tagged = _TAGGED.get((api_key, version), False)
    return _TAGGED_RESPONSE.pack(correlation_id, 0) if tagged else _INT32.pack(correlation_id)


def read_response_header(api_key: int, version: int, frame: memoryview) -> tuple[int, int]:
    """(correlation id, position of the body)."""
    if len(frame) < _INT32.size:
        raise InvalidFrame("response header is cut short")
    correlation_id: int = _INT32.unpack_from(frame)[0]
    position = _INT32.size
    if _TAGGED.get((api_key, version), False):
        position = skip_tagged_fields(frame, position)
    return correlation_id, position


def response_chunks(header: bytes, body: Sequence[Chunk]) -> list[Chunk]:
    """A complete response: size, header, body. Empty chunks are left out, because a send loop cannot handle
    them."""
    size = len(header)
    if len(body) == 1 and isinstance(body[0], bytes):
        return [_INT32.pack(size + len(body[0])) + header + body[0]]
    chunks: list[Chunk] = [b""]
    for chunk in body:
        length = chunk.size if isinstance(chunk, FileRange) else len(chunk)
        if length:
            size += length
            chunks.append(chunk)
    chunks[0] = _INT32.pack(size) + header
    return chunks
