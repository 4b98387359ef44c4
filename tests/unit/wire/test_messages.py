"""The kio adaptor: what is written is read back, kio agrees about every byte, and no bytes can hurt it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import random
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from ottla.wire import messages, schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.repeated import Repeated

EVERY_MESSAGE = [
    (api.key, version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in ("request", "response")
]
INT_RANGES = {
    "int8": 7,
    "int16": 15,
    "int32": 31,
    "int64": 63,
    "timedelta_i32": 31,
    "timedelta_i64": 50,  # as far as a Python timedelta goes
    "datetime_i64": 42,  # kio loses precision beyond the year 2109
}


def read(direction: str, key: int, version: int, body: bytes) -> Any:
    frame = memoryview(bytearray(b"\xee" * 5 + body))
    function = messages.read_request if direction == "request" else messages.read_response
    return function(key, version, frame, 5)


def write(direction: str, key: int, version: int, fields: dict[str, Any]) -> bytes:
    function = messages.write_request if direction == "request" else messages.write_response
    return function(key, version, fields)


def random_value(rng: random.Random, field: schema.Field) -> Any:
    if field.nullable and rng.random() < 0.2:
        return None
    if field.array:
        element = dataclasses.replace(field, array=False, nullable=False)
        return [random_value(rng, element) for _ in range(rng.choice((0, 1, 2, 3)))]
    match field.kind:
        case "struct":
            assert field.struct is not None
            return random_fields(rng, field.struct)
        case "string":
            return rng.choice(("", "a", "tøpic", "x" * 127, "y" * 300))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 20_000)))
        case "uuid":
            return UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
        case "bool":
            return rng.random() < 0.5
        case "error_code":
            return rng.randint(-1, 133)
        case "uint16":
            return rng.getrandbits(16)
        case "float64":
            return rng.random()
        case "datetime_i64":
            return rng.choice((-1, 0, rng.getrandbits(42)))
    bits = INT_RANGES[field.kind]
    return rng.choice((0, 1, -1, rng.getrandbits(bits), -rng.getrandbits(bits)))


def random_fields(rng: random.Random, struct: schema.Struct) -> dict[str, Any]:
    given = [field for field in struct.fields if rng.random() < 0.9]
    return {field.name: random_value(rng, field) for field in given}


def plain(value: Any, field: schema.Field) -> Any:
    """What kio read, in the form in which it was given to be written."""
    if isinstance(value, tuple):
        element = dataclasses.replace(field, array=False)
        return [plain(item, element) for item in value]
    if value is None:
        return (
            {"uuid": UUID(int=0), "datetime_i64": -1}.get(field.kind) if not field.array else None
        )
    if field.struct is not None:
        return {
            inner.name: plain(getattr(value, inner.name), inner) for inner in field.struct.fields
        }
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


def with_defaults(fields: dict[str, Any], struct: schema.Struct) -> dict[str, Any]:
    """`fields` with everything that was not given."""

    def complete(value: Any, field: schema.Field) -> Any:
        if value is None or field.struct is None:
            return list(value) if isinstance(value, tuple) else value
        if field.array:
            return [with_defaults(item, field.struct) for item in value]
        return with_defaults(value, field.struct)

    return {
        field.name: complete(fields.get(field.name, field.default), field)
        for field in struct.fields
    }


def test_a_tag_of_our_own_may_be_about_more_brokers_than_a_string_of_kafka_has_room_for() -> None:
    loads = b"x" * 100_000
    body = messages.write_response(ApiKey.BROKER_HEARTBEAT, 2, {"ottla_loads": loads})
    read = messages.read_response(ApiKey.BROKER_HEARTBEAT, 2, memoryview(body), 0)
    assert read.ottla_loads == loads


@pytest.mark.parametrize("seed", range(4))
def test_every_message_of_every_version_is_read_back_as_written_and_kio_writes_the_same(
    seed: int,
) -> None:
    rng = random.Random(seed)
    for key, version, direction in EVERY_MESSAGE:
        struct = schema.message(key, version, direction)
        fields = random_fields(rng, struct)
        body = write(direction, key, version, fields)
        entity = read(direction, key, version, body)
        root = schema.Field("", "struct", struct, False, False, None, None, None)
        assert plain(entity, root) == with_defaults(fields, struct), (key, version, direction)
        try:
            by_kio = entity_reader(struct.entity)(body, 0)[0]
        except OutOfBoundValue:
            # Kafka says -1 where no transaction has begun, and where a token is refused; kio's schema knows no such time.
            assert key is ApiKey.DESCRIBE_TRANSACTIONS or key.name.endswith("_DELEGATION_TOKEN")
            continue
        assert entity == by_kio
        kios = io.BytesIO()
        entity_writer(struct.entity)(kios, entity)
        assert kios.getvalue() == body, (key, version, direction)


@pytest.mark.parametrize("direction", ["request", "response"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_arbitrary_bytes_are_a_message_or_an_invalid_frame(
    direction: str, data: st.DataObject
) -> None:
    key, version, _ = data.draw(st.sampled_from(EVERY_MESSAGE))
    body = data.draw(st.binary(max_size=80))
    with contextlib.suppress(InvalidFrame):
        read(direction, key, version, body)


@pytest.mark.parametrize("seed", range(3))
def test_a_message_with_any_byte_changed_or_cut_is_a_message_or_an_invalid_frame(seed: int) -> None:
    rng = random.Random(seed)
    for key, version, direction in EVERY_MESSAGE:
        struct = schema.message(key, version, direction)
        body = write(direction, key, version, random_fields(rng, struct))
        for _ in range(20):
            hurt = bytearray(body)
            for _ in range(rng.choice((1, 1, 4))):
                if hurt:
                    hurt[rng.randrange(len(hurt))] = rng.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8))
                    )
            if rng.random() < 0.3:
                del hurt[rng.randint(0, len(hurt)) :]
            with contextlib.suppress(InvalidFrame):
                read(direction, key, version, bytes(hurt))


ID = b"\x00" * 16


@pytest.mark.parametrize(
    ("version", "body", "why"),
    [
        (12, b"\xff\xff\xff\xff\x0f", "more elements than bytes, compact"),
        (1, b"\x7f\xff\xff\xff", "more elements than bytes"),
        (1, b"\xff\xff\xff\xfe", "negative count"),
        (0, b"\xff\xff\xff\xff", "null array where none is allowed"),
        (1, b"\x00\x00\x00\x01\xff\xff", "null string where none is allowed"),
        (1, b"\x00\x00\x00\x01\xff\xfe", "negative length"),
        (1, b"\x00\x00\x00\x01\x00\x09a", "string longer than the frame"),
        (1, b"\x00\x00\x00\x01\x00\x01\xff", "not UTF-8"),
        (12, b"\x00\x01\x01", "missing tags"),
        (12, b"\x00\x01\x01\x02\x09\x01a\x09\x01b", "the same tag twice"),
        (12, b"\x00\x01\x01\x01\x09\x05a", "tag longer than the frame"),
        (12, b"\x00\x01\x01\xff\xff\xff\xff\x0f", "more tags than bytes"),
        (12, b"\x80\x80\x80\x80\x80\x00\x01\x01\x00", "varint of six bytes"),
        (12, b"\xff\xff\xff\xff\x7f\x01\x01\x00", "varint beyond 32 bits"),
        (12, b"\x02" + ID + b"\x81\x80\x02" + b"a" * 32768 + b"\x00\x01\x01\x00", "long string"),
    ],
)
def test_a_body_out_of_bounds_is_an_invalid_frame(version: int, body: bytes, why: str) -> None:
    with pytest.raises(InvalidFrame):
        read("request", ApiKey.METADATA, version, body)


def test_bytes_behind_a_request_are_ignored_as_in_kafka_and_refused_behind_a_response() -> None:
    """librdkafka leaves three of them when it asks for the metadata of all topics."""
    assert read("request", ApiKey.METADATA, 12, b"\x00\x01\x01\x00\x00\x00\x00").topics is None
    body = write("response", ApiKey.METADATA, 12, {})
    with pytest.raises(InvalidFrame):
        read("response", ApiKey.METADATA, 12, body + b"\x00")


def test_unknown_tagged_fields_are_skipped() -> None:
    message = read("request", ApiKey.METADATA, 12, b"\x00\x01\x00\x02\x09\x01a\x0a\x00")
    assert message.topics is None
    assert message.allow_auto_topic_creation is True


def test_a_message_does_not_hold_on_to_the_frame_it_was_read_from() -> None:
    body = write("request", ApiKey.METADATA, 12, {"topics": [{"name": "orders"}]})
    buffer = bytearray(body)
    frame = memoryview(buffer)
    message = messages.read_request(ApiKey.METADATA, 12, frame, 0)
    frame.release()
    buffer.clear()
    assert message.topics[0].name == "orders"


def test_fields_of_other_versions_are_dropped_and_unknown_ones_refused() -> None:
    topic = {"name": "orders", "topic_id": UUID(int=7)}
    assert write("request", ApiKey.METADATA, 1, {"topics": [topic]}) == (
        b"\x00\x00\x00\x01\x00\x06orders"
    )
    with pytest.raises(ValueError, match="topic_idd"):
        write("request", ApiKey.METADATA, 1, {"topics": [{"name": "orders", "topic_idd": 1}]})
    with pytest.raises(ValueError, match="topics_"):
        write("request", ApiKey.METADATA, 12, {"topics_": []})


def test_a_value_that_does_not_fit_is_refused_with_the_field_that_has_it() -> None:
    with pytest.raises(Exception) as raised:
        write("response", ApiKey.METADATA, 12, {"brokers": [{"node_id": 2**31}]})
    assert "while writing brokers.node_id" in raised.value.__notes__
    with pytest.raises(ValueError, match="null"):
        write("response", ApiKey.METADATA, 12, {"brokers": None})


def test_a_field_that_a_version_lacks_has_a_default() -> None:
    message = read("request", ApiKey.METADATA, 0, b"\x00\x00\x00\x00")
    assert messages.field(message, "allow_auto_topic_creation", True) is True


def test_importing_wire_loads_nothing_of_kio() -> None:
    modules = ["apis", "errors", "headers", "messages", "types", "produce", "fetch", "channel"]
    script = "import sys\n" + "".join(f"import ottla.wire.{name}\n" for name in modules)
    script += "assert not [name for name in sys.modules if name.startswith('kio')]"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_error_message_is_cut_where_a_name_would_be_refused() -> None:
    row = {"name": "t", "error_code": 17, "error_message": "é" * 40_000}
    body = messages.write_response(ApiKey.CREATE_TOPICS, 7, {"topics": [row]})
    (topic,) = messages.read_response(ApiKey.CREATE_TOPICS, 7, memoryview(body), 0).topics
    assert topic.error_message is not None
    assert len(topic.error_message) == 1000
    with pytest.raises(ValueError, match="longer than 32767"):
        messages.write_response(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "x" * 40_000}]})


@pytest.mark.parametrize("version", [5, 7])
def test_a_list_that_is_repeated_is_encoded_once_and_alike(version: int) -> None:
    rows = [{"name": "a", "value": "1", "read_only": False, "config_source": 5}]
    rows.append({**rows[0], "name": "b"})
    once = Repeated(rows)

    def answer(configs: list[Any]) -> bytes:
        topics = [
            {"name": f"t{number}", "error_code": 0, "configs": configs} for number in range(3)
        ]
        return messages.write_response(ApiKey.CREATE_TOPICS, version, {"topics": topics})

    assert answer(once) == answer(rows)
    (encoded,) = once.encoded.values()
    assert answer(once).count(encoded) == 3
    assert answer(once) == answer(rows), "also the second time"
