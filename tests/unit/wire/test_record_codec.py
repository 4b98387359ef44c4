"""The codec of Kafka's own records: what is written comes back, in flexible and in plain versions."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.errors import InvalidFrame
from ottla.wire.primitives import read_uvarint, uvarint
from ottla.wire.record_codec import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    RUN_MAX,
    STRING,
    UUID_TYPE,
    CoordinatorKey,
    CoordinatorValue,
    MalformedRecord,
    Message,
    Reader,
    Writer,
    array,
    key_type,
    message,
    read_key,
    read_value,
    struct_of,
    tagged_nullable_struct_of,
    wire,
    write_key,
    write_value,
)


@message
class Inner(Message):
    name: str = wire(STRING)
    numbers: tuple[int, ...] | None = wire(array(INT32, nullable=True))
    late: int = wire(INT8, since=2, default=7)


@message
class Sample(CoordinatorValue):
    VERSION: ClassVar[int] = 3
    NEWEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    number: int = wire(INT64)
    text: str | None = wire(NULLABLE_STRING)
    data: bytes = wire(BYTES)
    inner: tuple[Inner, ...] = wire(array(struct_of(Inner)))
    only_in_one: int = wire(INT32, since=1, until=1, default=-1)
    id: UUID = wire(UUID_TYPE, since=2, tag=0, default=UUID(int=0))
    optional: Inner | None = wire(tagged_nullable_struct_of(Inner), since=3, tag=5, default=None)


@message
class SampleKey(CoordinatorKey):
    TYPE: ClassVar[int] = 9

    name: str = wire(STRING)
    number: int = wire(INT32)


INT32S = st.integers(-(2**31), 2**31 - 1)
INNERS = st.builds(
    Inner,
    name=st.text(max_size=200),
    numbers=st.none() | st.lists(INT32S, max_size=RUN_MAX + 2).map(tuple),
)
SAMPLES = st.builds(
    Sample,
    number=st.integers(-(2**63), 2**63 - 1),
    text=st.none() | st.text(max_size=200),
    data=st.binary(max_size=200),
    inner=st.lists(INNERS, max_size=3).map(tuple),
)


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_varint_comes_back(value: int) -> None:
    raw = uvarint(value)
    assert read_uvarint(raw, 0) == (value, len(raw))
    assert read_uvarint(memoryview(raw), 0) == (value, len(raw))
    writer = Writer()
    writer.uvarint(value)
    assert bytes(writer.data) == raw
    assert Reader(raw).uvarint() == value


@given(st.binary(max_size=7))
def test_the_record_codec_refuses_the_varints_that_frames_refuse(raw: bytes) -> None:
    try:
        value, end = read_uvarint(raw, 0)
    except InvalidFrame:
        with pytest.raises(MalformedRecord):
            Reader(raw).uvarint()
        return
    reader = Reader(raw)
    assert (reader.uvarint(), reader.position) == (value, end)


@given(SAMPLES, st.integers(0, 3))
def test_a_value_comes_back_from_every_version(value: Sample, version: int) -> None:
    assert read_value(Sample, write_value(value, version)) == value


@given(SAMPLES, st.uuids(), INNERS)
def test_tagged_fields_come_back_from_the_versions_that_have_them(
    value: Sample, id: UUID, optional: Inner
) -> None:
    fields = {name: getattr(value, name) for name in ("number", "text", "data", "inner")}
    tagged = Sample(**fields, id=id, optional=optional)
    assert read_value(Sample, write_value(tagged)) == tagged
    assert read_value(Sample, write_value(tagged, 2)) == Sample(**fields, id=id)
    assert read_value(Sample, write_value(tagged, 1)) == value


@given(st.text(max_size=200), INT32S)
def test_a_key_comes_back(name: str, number: int) -> None:
    key = SampleKey(name=name, number=number)
    raw = write_key(key)
    assert (key_type(raw), read_key(SampleKey, raw)) == (SampleKey.TYPE, key)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_raise_nothing_but_malformed_record(raw: bytes) -> None:
    for read in (
        lambda: read_value(Sample, raw),
        lambda: read_key(SampleKey, raw),
        lambda: key_type(raw),
    ):
        try:
            read()
        except MalformedRecord:
            continue


@pytest.mark.parametrize("tags", ["02 05 00 05 00", "02 05 00 04 00", "01 04 02 00"])
def test_tags_that_repeat_go_back_or_end_outside_are_refused(tags: str) -> None:
    value = Sample(number=1, text=None, data=b"", inner=())
    raw = write_value(value, 2)
    assert raw[-1] == 0
    with pytest.raises(MalformedRecord):
        read_value(Sample, raw[:-1] + bytes.fromhex(tags))


def test_a_length_below_null_is_refused() -> None:
    value = Sample(number=1, text=None, data=b"", inner=())
    raw = write_value(value, 0)
    assert raw[10:12] == b"\xff\xff"
    with pytest.raises(MalformedRecord, match="null where the schema has none"):
        read_value(Sample, raw[:10] + b"\xff\xfe" + raw[12:])
