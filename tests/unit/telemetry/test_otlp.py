"""Reading what clients push, and refusing what they never would."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.telemetry.otlp import (
    ATTRIBUTES_MAX,
    POINTS_MAX,
    TEXT_BYTES_MAX,
    MalformedTelemetry,
    Point,
    points,
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | int | float) -> bytes:
    if isinstance(value, bool | int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(key: str, value: str) -> bytes:
    return field(1, key) + field(2, field(1, value))


def encoded(found: list[Point], resource: dict[str, str]) -> bytes:
    """As protobuf writes it, by the fields of opentelemetry/proto/metrics/v1/metrics.proto."""
    own = b"".join(field(1, attribute(*pair)) for pair in resource.items())
    metrics = b""
    for point in found:
        labels = [pair for pair in point.attributes if pair not in resource.items()]
        number = (
            varint(6 << 3 | 1) + struct.pack("<q", point.value)
            if isinstance(point.value, int)
            else field(4, point.value)
        )
        data_point = (
            varint(3 << 3 | 1)
            + bytes(8)
            + number
            + b"".join(field(7, attribute(*pair)) for pair in labels)
        )
        kind = field(1, data_point)
        if point.is_counter:
            kind += field(2, 1 if point.is_delta else 2) + field(3, True)
        metric = field(1, point.name) + field(2, point.description)
        metrics += field(2, metric + field(7 if point.is_counter else 5, kind))
    scope = field(1, field(1, "scope")) + metrics
    return field(1, field(1, own) + field(2, scope))


TEXTS = st.text(min_size=1, max_size=12)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=4)


@st.composite
def sent(draw: st.DrawFn) -> tuple[list[Point], dict[str, str]]:
    resource = draw(LABELS)
    found = []
    for _ in range(draw(st.integers(0, 5))):
        own = {name: value for name, value in draw(LABELS).items() if name not in resource}
        is_counter = draw(st.booleans())
        number = draw(st.integers(-(2**62), 2**62) | st.floats(allow_nan=False))
        is_delta = is_counter and draw(st.booleans())
        labels = tuple((resource | own).items())
        found.append(Point(draw(TEXTS), draw(TEXTS), labels, number, is_counter, is_delta))
    return found, resource


@given(sent())
def test_what_was_sent_is_read(sent: tuple[list[Point], dict[str, str]]) -> None:
    assert points(encoded(*sent)) == sent[0]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedTelemetry):
        points(data)


@given(sent(), st.data())
def test_a_cut_or_changed_message_is_read_or_refused(
    sent: tuple[list[Point], dict[str, str]], data: st.DataObject
) -> None:
    whole = bytearray(encoded(*sent))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedTelemetry):
        points(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_too_many_points_are_refused() -> None:
    one = Point("n", "d", (), 1.0, False, False)
    assert len(points(encoded([one] * POINTS_MAX, {}))) == POINTS_MAX
    with pytest.raises(MalformedTelemetry):
        points(encoded([one] * (POINTS_MAX + 1), {}))


MIB = 1 << 20


SCOPE = (2, 1)
METRIC = (2, *SCOPE)
SUM = (7, *METRIC)


@pytest.mark.parametrize(
    "path", [(), (1,), SCOPE, METRIC, SUM, (1, *SUM), (7, 1, *SUM)], ids=lambda path: str(len(path))
)
def test_many_empty_fields_are_refused_before_they_take_memory(path: tuple[int, ...]) -> None:
    """On every level, named by the fields from the inside: of a resource, a scope, a metric, a sum, a point, an attribute."""
    data = b"\x0a\x00" * (MIB // 2)
    for number in path:
        data = field(number, data)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedTelemetry, match="more than"):
            points(data)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_points_without_a_value_count_too() -> None:
    kind = field(1, b"") * (POINTS_MAX + 1)
    with pytest.raises(MalformedTelemetry, match="data points"):
        points(field(1, field(2, field(2, field(1, "n") + field(5, kind)))))


def test_too_many_attributes_are_refused() -> None:
    labels = tuple((f"a{n}", "") for n in range(ATTRIBUTES_MAX + 1))
    with pytest.raises(MalformedTelemetry, match="attributes"):
        points(encoded([Point("n", "d", labels, 1.0, False, False)], {}))


def test_long_texts_are_cut() -> None:
    long = "x" + "ä" * TEXT_BYTES_MAX
    (read,) = points(encoded([Point(long, long, ((long, long),), 1.0, False, False)], {}))
    short = long[: TEXT_BYTES_MAX // 2]
    assert (read.name, read.description, read.attributes) == (short, short, ((short, short),))
