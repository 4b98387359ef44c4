"""Reads OpenTelemetry's MetricsData (protobuf), as far as clients of Kafka send it: gauges and sums.

The bytes come from clients that are not trusted. Every length is checked, nothing is nested deeper than the message is,
and the number of data points is limited. Fields that are not known are skipped, as protobuf wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

POINTS_MAX = 2_000
"""Of one push. librdkafka and Java clients send some dozens."""
ATTRIBUTES_MAX = 32
DELTA, CUMULATIVE = 1, 2

_DOUBLE = Struct("<d")
_INT64 = Struct("<q")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

Value: TypeAlias = int | bytes | memoryview
Fields: TypeAlias = Iterator[tuple[int, int, Value]]


class MalformedTelemetry(Exception):
    """These bytes are no MetricsData, or more than anybody would send."""


class Point(NamedTuple):
    """A data point of a metric."""

    name: str
    description: str
    attributes: tuple[tuple[str, str], ...]
    """Those of the resource, then its own."""
    value: float
    is_counter: bool
    """It only grows."""
    is_delta: bool
    """The value is to be added to what came before."""


def points(data: bytes) -> list[Point]:
    """MalformedTelemetry if they cannot be read."""
    found: list[Point] = []
    try:
        for number, _, resource_metrics in _fields(memoryview(data)):
            if number == 1:
                _read_resource_metrics(_message(resource_metrics), found)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedTelemetry(f"not a MetricsData message: {error}") from error
    return found


def _read_resource_metrics(message: memoryview, found: list[Point]) -> None:
    attributes: dict[str, str] = {}
    scopes = []
    for number, _, value in _fields(message):
        if number == 1:
            for inner, _, attribute in _fields(_message(value)):
                if inner == 1:
                    _read_attribute(_message(attribute), attributes)
        elif number == 2:
            scopes.append(_message(value))
    for scope in scopes:
        for number, _, metric in _fields(scope):
            if number == 2:
                _read_metric(_message(metric), attributes, found)


def _read_metric(message: memoryview, attributes: dict[str, str], found: list[Point]) -> None:
    name = description = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, _, value in _fields(message):
        if number == 1:
            name = str(_message(value), "utf-8")
        elif number == 2:
            description = str(_message(value), "utf-8")
        elif number in (5, 7):
            kinds.append((number, _message(value)))
    for kind, content in kinds:
        temporality, is_monotonic = CUMULATIVE, False
        data_points = []
        for number, _, value in _fields(content):
            if number == 1:
                data_points.append(_message(value))
            elif kind == 7 and number == 2 and isinstance(value, int):
                temporality = value
            elif kind == 7 and number == 3:
                is_monotonic = bool(value)
        for data_point in data_points:
            if len(found) >= POINTS_MAX:
                raise MalformedTelemetry(f"more than {POINTS_MAX} data points")
            measured, labels = _read_point(data_point, attributes)
            if measured is not None:
                found.append(
                    Point(name, description, labels, measured, is_monotonic, temporality == DELTA)
                )


def _read_point(
    message: memoryview, inherited: dict[str, str]
) -> tuple[float | None, tuple[tuple[str, str], ...]]:
    number: float | None = None
    attributes = dict(inherited)
    for field, wire_type, value in _fields(message):
        if field == 4 and wire_type == _FIXED64:
            (number,) = _DOUBLE.unpack(_message(value))
        elif field == 6 and wire_type == _FIXED64:
            (number,) = _INT64.unpack(_message(value))
        elif field == 7:
            _read_attribute(_message(value), attributes)
    return number, tuple(attributes.items())


def _read_attribute(message: memoryview, found: dict[str, str]) -> None:
    key, text = "", None
    for number, _, value in _fields(message):
        if number == 1:
            key = str(_message(value), "utf-8")
        elif number == 2:
            text = _any_value(_message(value))
    if key and text is not None:
        if len(found) >= ATTRIBUTES_MAX:
            raise MalformedTelemetry(f"more than {ATTRIBUTES_MAX} attributes")
        found[key] = text


def _any_value(message: memoryview) -> str | None:
    """None for lists and bytes, which no client sends."""
    text = None
    for number, _, value in _fields(message):
        if number == 1:
            text = str(_message(value), "utf-8")
        elif number == 2:
            text = "true" if value else "false"
        elif number == 3 and isinstance(value, int):
            text = str(value - (1 << 64) if value >> 63 else value)
        elif number == 4:
            text = repr(_DOUBLE.unpack(_message(value))[0])
    return text


def _message(value: Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise MalformedTelemetry("a number where bytes should be")
    return value


def _fields(message: memoryview) -> Fields:
    """(number, wire type, value) of each field. A fixed64 is given as its eight bytes."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield number, wire_type, value
            continue
        if wire_type == _LENGTH:
            size, position = _varint(message, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise MalformedTelemetry(f"wire type {wire_type}")
        if size > end - position:
            raise MalformedTelemetry(f"{size} bytes where {end - position} are left")
        yield number, wire_type, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
        if shift > 63:
            raise MalformedTelemetry("a number of more than 64 bits")
