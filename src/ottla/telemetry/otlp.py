"""Reads OpenTelemetry's MetricsData (protobuf), as far as clients of Kafka send it: gauges and sums.

The bytes come from clients that are not trusted. Every length is checked, and only levels that are known are entered, so
no message is too deep. Fields are counted as they are read, and the reader stops at a limit: a short push may unpack to
half a million empty ones. Fields that are not known are skipped, as protobuf wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

POINTS_MAX = 1_000
"""Of one push. librdkafka and Java clients send some dozens."""
ATTRIBUTES_MAX = 32
FIELDS_MAX = 100_000
"""Of one push, on all levels: one or two tenths of a second."""
TEXT_BYTES_MAX = 1_024
"""Of a name, a description or a value. The rest is cut off."""
DELTA, CUMULATIVE = 1, 2
GAUGE, SUM = 5, 7
"""Fields of a metric."""

_DOUBLE = Struct("<d")
_INT64 = Struct("<q")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

Value: TypeAlias = int | bytes | memoryview
Fields: TypeAlias = Iterator[tuple[int, int, Value]]
Attributes: TypeAlias = tuple[tuple[str, str], ...]


class MalformedTelemetry(Exception):
    """These bytes are no MetricsData, or more than anybody would send."""


class Point(NamedTuple):
    """A data point of a metric."""

    name: str
    description: str
    attributes: Attributes
    """Those of the resource, then its own."""
    value: float
    is_counter: bool
    """It only grows."""
    is_delta: bool
    """The value is to be added to what came before."""


def points(data: bytes) -> list[Point]:
    """MalformedTelemetry if they cannot be read."""
    reader = _Reader()
    try:
        for number, _, resource_metrics in reader.fields(memoryview(data)):
            if number == 1:
                reader.read_resource_metrics(_message(resource_metrics))
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedTelemetry(f"not a MetricsData message: {error}") from error
    return reader.found


class _Reader:
    """Of one push."""

    def __init__(self) -> None:
        self.found: list[Point] = []
        self._fields_left = FIELDS_MAX
        self._points_left = POINTS_MAX

    def fields(self, message: memoryview) -> Fields:
        for field in _fields(message):
            if not self._fields_left:
                raise MalformedTelemetry(f"more than {FIELDS_MAX} fields")
            self._fields_left -= 1
            yield field

    def read_resource_metrics(self, message: memoryview) -> None:
        """Twice over it: the attributes may come last."""
        attributes: dict[str, str] = {}
        for number, _, value in self.fields(message):
            if number == 1:
                for inner, _, attribute in self.fields(_message(value)):
                    if inner == 1:
                        self._read_attribute(_message(attribute), attributes)
        for number, _, scope in self.fields(message):
            if number == 2:
                for inner, _, metric in self.fields(_message(scope)):
                    if inner == 2:
                        self._read_metric(_message(metric), attributes)

    def _read_metric(self, message: memoryview, attributes: dict[str, str]) -> None:
        name = description = ""
        for number, _, value in self.fields(message):
            if number == 1:
                name = _text(value)
            elif number == 2:
                description = _text(value)
        for kind, _, value in self.fields(message):
            if kind in (GAUGE, SUM):
                content = _message(value)
                is_monotonic, is_delta = (
                    self._read_nature(content) if kind == SUM else (False, False)
                )
                for measured, labels in self._read_points(content, attributes):
                    self.found.append(
                        Point(name, description, labels, measured, is_monotonic, is_delta)
                    )

    def _read_nature(self, sum: memoryview) -> tuple[bool, bool]:
        """(whether it only grows, whether its values are differences)"""
        temporality, is_monotonic = CUMULATIVE, False
        for number, _, value in self.fields(sum):
            if number == 2 and isinstance(value, int):
                temporality = value
            elif number == 3:
                is_monotonic = bool(value)
        return is_monotonic, temporality == DELTA

    def _read_points(
        self, content: memoryview, inherited: dict[str, str]
    ) -> Iterator[tuple[float, Attributes]]:
        for number, _, value in self.fields(content):
            if number == 1:
                if not self._points_left:
                    raise MalformedTelemetry(f"more than {POINTS_MAX} data points")
                self._points_left -= 1
                measured, labels = self._read_point(_message(value), inherited)
                if measured is not None:
                    yield measured, labels

    def _read_point(
        self, message: memoryview, inherited: dict[str, str]
    ) -> tuple[float | None, Attributes]:
        number: float | None = None
        attributes = dict(inherited)
        for field, wire_type, value in self.fields(message):
            if field == 4 and wire_type == _FIXED64:
                (number,) = _DOUBLE.unpack(_message(value))
            elif field == 6 and wire_type == _FIXED64:
                (number,) = _INT64.unpack(_message(value))
            elif field == 7:
                self._read_attribute(_message(value), attributes)
        return number, tuple(attributes.items())

    def _read_attribute(self, message: memoryview, found: dict[str, str]) -> None:
        key, text = "", None
        for number, _, value in self.fields(message):
            if number == 1:
                key = _text(value)
            elif number == 2:
                text = self._any_value(_message(value))
        if key and text is not None:
            if len(found) >= ATTRIBUTES_MAX:
                raise MalformedTelemetry(f"more than {ATTRIBUTES_MAX} attributes")
            found[key] = text

    def _any_value(self, message: memoryview) -> str | None:
        """None for lists and bytes, which no client sends."""
        text = None
        for number, _, value in self.fields(message):
            if number == 1:
                text = _text(value)
            elif number == 2:
                text = "true" if value else "false"
            elif number == 3 and isinstance(value, int):
                text = str(value - (1 << 64) if value >> 63 else value)
            elif number == 4:
                text = repr(_DOUBLE.unpack(_message(value))[0])
        return text


def _text(value: Value) -> str:
    data = _message(value)
    if len(data) <= TEXT_BYTES_MAX:
        return str(data, "utf-8")
    return str(data[:TEXT_BYTES_MAX], "utf-8", "ignore")  # the cut may be within a character


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
