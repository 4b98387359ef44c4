"""Requests of every API and version with hostile values, and what can be broken in one of them.

A frame is made out of its schema, and each length, count and place of tagged fields in it is marked. So a mutation can change
just one of them, where the damage of `support.damage` would most often hit a text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.records.record import Record, build
from ottla.wire import fetch, messages, produce, schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.headers import read_request_header
from ottla.wire.primitives import uvarint
from ottla.wire.types import ZERO_UUID
from support.damage import INTERESTING, damaged

HEADER: Final = struct.Struct(">hhi")
"""API key, version, correlation id."""
CLIENT_AT: Final = HEADER.size
CLIENT: Final = b"fuzz"
AFTER_CLIENT: Final = CLIENT_AT + 2 + len(CLIENT)


class Mark(NamedTuple):
    position: int
    size: int
    kind: str
    """"fixed": a length or count of 2 or 4 bytes; "varint": one as a varint; "tags": the count of tagged fields."""
    value: int


class MarkedFrame(NamedTuple):
    """A request without its size."""

    key: ApiKey
    version: int
    data: bytes
    marks: tuple[Mark, ...]


class Known(NamedTuple):
    """What the requests are about: names and ids of which some exist."""

    topics: Sequence[str]
    groups: Sequence[str]
    transactions: Sequence[str]
    users: Sequence[str]
    ids: Sequence[UUID]


ODD_TEXTS: Final = (
    "",
    ".",
    "..",
    "../../../etc/passwd",
    "a/b",
    "nul\x00",
    "sp ace",
    "new\nline",
    "grüße",
    "\U0001f600",
    "x" * 249,
    "x" * 250,
    "y" * 2000,
    "1",
    "-1",
    "²",
    "9" * 500,
    "nan",
    "*",
    "retention.ms",
    "cleanup.policy",
    "super.users",
    "compact",
    "CONTROLLER",
    "CLIENTS",
    "metadata.version",
    "kafka-cluster",
    "__consumer_offsets",
    "__cluster_metadata",
    "range",
    "consumer",
)
NUMBERS: Final = (0, 0, 1, 1, -1, 2, -2, 3, 5, 7)
EXTREMES: Final = {1: (127, -128), 2: (32767, -32768), 4: (2**31 - 1, -(2**31)), 8: (2**63 - 1, -(2**63))}  # fmt: skip
TIMES_MS: Final = (0, 0, 1, 1, 10, -1)
SESSIONS_MS: Final = (6_000, 10_000, 0, -1)
UNSIGNED: Final = frozenset({"uint8", "uint16", "uint32", "uint64"})


class FrameMaker:
    def __init__(self, random: Random, known: Known) -> None:
        self._random = random
        self._known = known
        self._out = bytearray()
        self._marks: list[Mark] = []

    def frame(self, key: ApiKey, version: int) -> MarkedFrame:
        """One that can be read."""
        found = schema.message(key, version, "request")
        self._marks = []
        self._out = out = bytearray(HEADER.pack(key, version, 0))
        self._fixed_length(len(CLIENT), ">h")
        out += CLIENT
        if APIS[key].flexible(version):
            self._tags([])
        self._struct(found)
        return MarkedFrame(key, version, bytes(self._out), tuple(self._marks))

    # Lengths

    def _fixed_length(self, value: int, format: str) -> None:
        data = struct.pack(format, value)
        self._marks.append(Mark(len(self._out), len(data), "fixed", value))
        self._out += data

    def _varint(self, value: int, kind: str = "varint") -> None:
        data = uvarint(value)
        self._marks.append(Mark(len(self._out), len(data), kind, value))
        self._out += data

    def _length(self, value: int, flexible: bool, format: str) -> None:
        """-1 for null."""
        if flexible:
            self._varint(value + 1)
        else:
            self._fixed_length(value, format)

    # Values

    def _struct(self, found: schema.Struct) -> None:
        for field in found.fields:
            if field.tag is None:
                self._field(field, found.flexible)
        if found.flexible:
            tagged = [field for field in found.fields if field.tag is not None]
            some = [field for field in tagged if self._random.random() < 0.5]
            self._tags(sorted(some, key=lambda field: field.tag or 0))

    def _tags(self, fields: Sequence[schema.Field]) -> None:
        self._varint(len(fields), "tags")
        for field in fields:
            out, marks = self._out, self._marks
            self._out, self._marks = bytearray(), []
            self._field(field, True)
            value, inner = self._out, self._marks
            self._out, self._marks = out, marks
            out += uvarint(field.tag or 0)
            self._varint(len(value))
            marks += [mark._replace(position=mark.position + len(out)) for mark in inner]
            out += value

    def _field(self, field: schema.Field, flexible: bool) -> None:
        random = self._random
        is_null = field.nullable and random.random() < 0.15
        if field.array:
            count = -1 if is_null else random.choice((0, 1, 1, 1, 2, 3))
            self._length(count, flexible, ">i")
            for _ in range(count):
                self._value(field, flexible)
        elif field.struct is not None:
            if field.nullable and field.tag is None:
                self._out.append(0xFF if is_null else 1)
            if not is_null or field.tag is not None:
                self._struct(field.struct)
        elif is_null and field.kind in ("string", "bytes", "records"):
            self._length(-1, flexible, ">h" if field.kind == "string" else ">i")
        else:
            self._value(field, flexible)

    def _value(self, field: schema.Field, flexible: bool) -> None:
        if field.struct is not None:
            self._struct(field.struct)
            return
        match field.kind:
            case "string":
                data = self._text(field.name).encode()
                self._length(len(data), flexible, ">h")
                self._out += data
            case "bytes" | "records":
                data = self._bytes(field.kind)
                self._length(len(data), flexible, ">i")
                self._out += data
            case "uuid":
                self._out += self._random.choice(self._known.ids).bytes
            case "bool":
                self._out.append(self._random.random() < 0.5)
            case "float64":
                self._out += struct.pack(">d", self._random.choice((0.0, 1.5, -1.5, float("inf"))))
            case kind:
                self._out += struct.pack(">" + schema.FORMATS[kind], self._number(field.name, kind))

    def _text(self, name: str) -> str:
        random, known = self._random, self._known
        if random.random() < 0.2:
            return random.choice(ODD_TEXTS)
        if "group" in name:
            return random.choice(known.groups)
        if "transactional" in name:
            return random.choice(known.transactions)
        if "principal" in name or "user" in name or "owner" in name:
            return random.choice(known.users)
        kinds = (known.topics, known.topics, known.groups, known.transactions, known.users)
        return random.choice(known.topics if "topic" in name else random.choice(kinds))

    def _number(self, name: str, kind: str) -> int:
        random = self._random
        if kind in UNSIGNED:
            return random.choice((0, 1, 255 if kind == "uint8" else 65535))
        if kind == "error_code":
            return random.choice((0, 87, -1))
        if kind == "datetime_i64":
            return random.choice((-1, 0, 1_767_225_600_000))
        if kind == "timedelta_i64":
            return random.choice((0, 1, -1, 10**12))
        size = schema.FIXED_BYTES[kind]
        # A request that waits for long answers nothing that comes after it on its connection.
        if "session" in name or "rebalance" in name:
            return random.choice(SESSIONS_MS)
        if "wait" in name or "timeout" in name:
            return random.choice(TIMES_MS)
        if name == "acks":
            return random.choice((-1, -1, 0, 1, 7))
        # Ten thousand partitions are right, and only take time.
        few = name in ("count", "num_partitions")
        return random.choice(EXTREMES[size] if random.random() < 0.15 and not few else NUMBERS)

    def _bytes(self, kind: str) -> bytes:
        random = self._random
        choice = random.randrange(5)
        if choice == 0:
            return random.randbytes(random.randrange(100))
        if choice == 1 and kind == "bytes":
            return b""
        count = random.randrange(1, 4)
        batch = build([Record(i, 1_767_225_600_000, b"k", b"v" * 20) for i in range(count)])
        if choice == 2:
            batch[random.randrange(len(batch))] = random.randrange(256)
        return bytes(batch)


def can_be_read(frame: bytes) -> bool:
    """Whether the server can: otherwise it closes the connection."""
    view = memoryview(frame)
    try:
        header = read_request_header(view)
        match header.api_key:
            case ApiKey.PRODUCE:
                produce.read_request(header.api_version, view, header.body)
            case ApiKey.FETCH:
                fetch.read_request(header.api_version, view, header.body)
            case ApiKey.API_VERSIONS if not APIS[ApiKey.API_VERSIONS].serves(header.api_version):
                pass
            case key:
                messages.read_request(key, header.api_version, view, header.body)
    except (InvalidFrame, KeyError):
        return False
    return APIS[ApiKey(header.api_key)].on_broker


def expects_no_answer(frame: bytes) -> bool:
    """Of one that can be read. If such records are refused, the connection is closed, as in Kafka."""
    view = memoryview(frame)
    header = read_request_header(view)
    if header.api_key != ApiKey.PRODUCE:
        return False
    return produce.read_request(header.api_version, view, header.body).acks == 0


# Mutations

Mutation = Callable[[MarkedFrame, Random], bytes]


def _replaced(data: bytes, mark: Mark, new: bytes) -> bytes:
    return data[: mark.position] + new + data[mark.position + mark.size :]


def _one_of(frame: MarkedFrame, random: Random, *kinds: str) -> Mark | None:
    marks = [mark for mark in frame.marks if mark.kind in kinds]
    return random.choice(marks) if marks else None


def _extreme(mark: Mark, random: Random) -> bytes:
    if mark.kind == "fixed":
        largest = 2 ** (8 * mark.size - 1) - 1
        wanted = (0, 1, -1, -2, largest, -largest - 1, mark.value + 1, mark.value - 1, 50_001)
        value = max(-largest - 1, min(largest, random.choice(wanted)))
        return value.to_bytes(mark.size, "big", signed=True)
    values = (0, 1, 2, mark.value + 1, max(0, mark.value - 1), 50_002, 2**31, 2**32 - 1)
    return uvarint(random.choice(values))


def another_count(frame: MarkedFrame, random: Random) -> bytes:
    mark = random.choice(frame.marks)
    return _replaced(frame.data, mark, _extreme(mark, random))


def all_counts(frame: MarkedFrame, random: Random) -> bytes:
    """Nested ones, too."""
    data = frame.data
    for mark in reversed(frame.marks):
        if random.random() < 0.7:
            data = _replaced(data, mark, _extreme(mark, random))
    return data


def longer_varint(frame: MarkedFrame, random: Random) -> bytes:
    """The same number in more bytes than it needs."""
    mark = _one_of(frame, random, "varint", "tags")
    if mark is None:
        return another_count(frame, random)
    short = bytearray(uvarint(mark.value))
    short[-1] |= 0x80
    more = random.randrange(0, 9)
    return _replaced(frame.data, mark, bytes(short) + b"\x80" * more + b"\x00")


def other_tags(frame: MarkedFrame, random: Random) -> bytes:
    """Fields that nobody knows, fields that stand there twice, that are longer than the frame, or very many of them."""
    mark = _one_of(frame, random, "tags")
    if mark is None:
        return another_count(frame, random)
    tag = uvarint(random.choice((0, 1, 2, 77, 10_000, 2**31, 2**32 - 1)))
    one = tag + b"\x02ab"
    rest = random.choice(
        (
            (1, one),
            (2, one + one),
            (1, tag + b"\x7f"),
            (1, tag + b"\xff\xff\xff\xff\x0f"),
            (2, one),
            (101, b"".join(uvarint(each) + b"\x00" for each in range(101))),
            (100, b"".join(uvarint(200 + each) + b"\x00" for each in range(100))),
        )
    )
    return _replaced(frame.data, mark, uvarint(mark.value + rest[0]) + rest[1])


def wrong_header(frame: MarkedFrame, random: Random) -> bytes:
    """Another version, another API, or the header of another version: with tagged fields where there are none, or without."""
    key, version, data = int(frame.key), frame.version, frame.data
    match random.randrange(4):
        case 0:
            api = APIS[frame.key]
            version = random.choice((*range(api.min_version, api.max_version + 3), -1, 99, 32767))
        case 1:
            key = random.choice((*APIS, 5, 6, 7, 76, 92, 999, -1, 20_000, 32767))
        case 2:
            data = data[:AFTER_CLIENT] + b"\x00" + data[AFTER_CLIENT:]
        case _:
            data = data[:AFTER_CLIENT] + data[AFTER_CLIENT + 1 :]
    return HEADER.pack(key, version, 0) + data[HEADER.size :]


def any_damage(frame: MarkedFrame, random: Random) -> bytes:
    return damaged(frame.data, random)


def some_bits(frame: MarkedFrame, random: Random) -> bytes:
    data = bytearray(frame.data)
    for _ in range(random.randrange(1, 4)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def only_bytes(frame: MarkedFrame, random: Random) -> bytes:
    return random.randbytes(random.randrange(60)) + random.choice(INTERESTING)


MUTATIONS: Final[tuple[Mutation, ...]] = (
    another_count,
    another_count,
    all_counts,
    longer_varint,
    other_tags,
    wrong_header,
    any_damage,
    some_bits,
    some_bits,
    only_bytes,
)


class Frames:
    """Frames without end: `next` draws one that is as it was made, or a mutation of it."""

    def __init__(self, random: Random, known: Known, kept: int = 8) -> None:
        """`kept`: how many of each API and version are at hand. They are replaced from time to time."""
        self._random = random
        self._maker = FrameMaker(random, known)
        self._served = [
            (api.key, version)
            for api in APIS.values()
            if api.on_broker
            for version in range(api.min_version, api.max_version + 1)
        ]
        self._kept = [[self._maker.frame(*served) for _ in range(kept)] for served in self._served]
        self._by_key: dict[ApiKey, list[int]] = {}
        for number, (key, _) in enumerate(self._served):
            self._by_key.setdefault(key, []).append(number)
        self._keys = list(self._by_key)

    def whole(self, key: ApiKey | None = None) -> MarkedFrame:
        """Every API as often as every other, whatever number of versions it has."""
        random = self._random
        number = random.choice(self._by_key[random.choice(self._keys) if key is None else key])
        kept = self._kept[number]
        place = random.randrange(len(kept))
        if random.random() < 0.03:
            kept[place] = self._maker.frame(*self._served[number])
        return kept[place]

    def mutated(self, key: ApiKey | None = None) -> bytes:
        random = self._random
        return random.choice(MUTATIONS)(self.whole(key), random)


def names_of(frame: bytes) -> tuple[int, int]:
    """API key and version, as the bytes say."""
    return struct.unpack_from(">hh", frame) if len(frame) >= 4 else (-1, -1)


def no_ids() -> list[UUID]:
    return [ZERO_UUID, UUID(int=2**100)]


def error_codes(value: Any) -> list[int]:
    """All that are anywhere in an answer."""
    found: list[int] = []
    if isinstance(value, tuple):
        for each in value:
            found += error_codes(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            inner = getattr(value, name)
            if name == "error_code":
                found.append(int(inner))
            else:
                found += error_codes(inner)
    return found
