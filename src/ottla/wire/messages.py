"""Every message of Kafka's protocol, decoded into kio's entities and encoded from plain values.

Reading gives kio's typed entities: attributes in snake_case, arrays as tuples, durations as timedelta, error
codes as (int) enum members, the zero uuid as None. Writing takes nested dicts with the same names, with
durations and times as int milliseconds and error codes as ints. A name may be of any version; fields that the
written version lacks are dropped. Produce and Fetch have faster codecs of their own in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from struct import error as StructError
from typing import Any

from ottla.wire import decoder, encoder, schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import InvalidFrame


def read_request(key: int, version: int, frame: memoryview, offset: int) -> Any:
    """The body at `offset` of `frame`. InvalidFrame if it is not valid."""
    return _reader(key, version, "request")(frame, offset)


def read_response(key: int, version: int, frame: memoryview, offset: int) -> Any:
    return _reader(key, version, "response")(frame, offset)


def write_request(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """Raises ValueError for a field that no version has."""
    return _write(_encoder(key, version, "request"), fields)


def write_response(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    return _write(_encoder(key, version, "response"), fields)


def field(message: Any, name: str, default: Any) -> Any:
    """A field that only some versions have."""
    return getattr(message, name, default)


def preload(key: int, version: int) -> None:
    """Build the codec of a message before it is needed: importing and compiling one takes milliseconds."""
    _encoder(key, version, "request")
    _reader(key, version, "request")
    _encoder(key, version, "response")
    _reader(key, version, "response")


def _write(encode: encoder.Encode, fields: Mapping[str, Any]) -> bytes:
    out = bytearray()
    encode(out, fields)
    return bytes(out)


@cache
def _encoder(key: int, version: int, direction: schema.Direction) -> encoder.Encode:
    struct = schema.message(key, version, direction)
    return encoder.struct_encoder(struct, encoder.Names(key, direction))


@cache
def _reader(
    key: int, version: int, direction: schema.Direction
) -> Callable[[memoryview, int], Any]:
    elements = decoder.Elements()
    if direction == "request" and key in APIS:
        api = APIS[ApiKey(key)]
        elements = decoder.Elements(api.request_elements_max, api.request_elements_together_max)
    decode = decoder.struct_decoder(schema.message(key, version, direction), elements)
    what = f"{direction} of api key {key} version {version}"
    # Kafka ignores bytes after a request's body, and librdkafka leaves three bytes there when it asks
    # for the metadata of all topics.
    may_be_longer = direction == "request"

    def read(frame: memoryview, offset: int) -> Any:
        elements.left = elements.together
        try:
            message, end = decode(frame, offset)
        except (IndexError, StructError) as error:
            raise InvalidFrame(f"{what} is cut short") from error
        except (ValueError, OverflowError) as error:
            raise InvalidFrame(f"{what}: {error}") from error
        if end != len(frame) and (end > len(frame) or not may_be_longer):
            raise InvalidFrame(f"{what} ends at {end}, its frame at {len(frame)}")
        return message

    return read
