"""The shapes that nearly every message of a busy session has are read and written in one piece: what comes out must
be what the general way makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from ottla.runtime import FileRange
from ottla.wire import fetch, produce
from ottla.wire.errors import InvalidFrame
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest

TOPIC = UUID(int=77)
HEAD = b"before the body"
DAMAGED_VERSIONS = (16, 18)
"""Of fetches: one shape of each field that differs is enough, and every byte of it takes its time."""


class MemoryFile:
    def read_at(self, position: int, size: int) -> bytes:
        return b"x" * size


FILE: Any = MemoryFile()


def asked(**changes: Any) -> FetchPartition:
    return FetchPartition(None, TOPIC, 3, 5, 2**40, 4, 17, 1 << 20)._replace(**changes)


def request(**changes: Any) -> FetchRequest:
    fields: dict[str, Any] = {
        "replica_id": 2,
        "replica_epoch": 99,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 10 << 20,
        "session_id": 1234567,
        "session_epoch": 9,
        "partitions": [asked()],
    }
    return FetchRequest(**{**fields, **changes})


REQUESTS = [
    request(),
    request(replica_id=-1, replica_epoch=-1, isolation_level=1, session_id=0, session_epoch=-1),
    request(replica_id=-1, replica_epoch=7),
    request(rack_id="r"),
    request(cluster_id="c"),
    request(forgotten=[(TOPIC, 8)]),
    request(partitions=[]),
    request(partitions=[asked(), asked(partition=4)]),
    request(partitions=[asked(), asked(topic_id=UUID(int=78))]),
    request(partitions=[asked(replica_directory_id=UUID(int=5))]),
    request(partitions=[asked(high_watermark=12)]),
]

ANSWER = FetchedPartition(None, TOPIC, 3, 0, 40, 30, 20)
ANSWERS = [
    ANSWER,
    ANSWER._replace(error=6),
    ANSWER._replace(preferred_read_replica=2),
    ANSWER._replace(records=FileRange(FILE, 5, 300)),
    ANSWER._replace(records=FileRange(FILE, 5, 300, b"x" * 300)),
    ANSWER._replace(records=FileRange(FILE, 5, 0)),
    ANSWER._replace(records=b"x" * 20),
    ANSWER._replace(records=[b"x" * 2000, FileRange(FILE, 0, 3)]),
    ANSWER._replace(aborted=[]),
    ANSWER._replace(aborted=[(1, 2)]),
    ANSWER._replace(diverging=(1, 2)),
    ANSWER._replace(current_leader=(1, 2)),
    ANSWER._replace(snapshot_id=(1, 2)),
]


def in_general(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, work: Callable[[], Any]
) -> Any:
    with monkeypatch.context() as patched:
        patched.setattr(module, name, lambda *_: None)
        return work()


def every_cut_is_noticed(read: Callable[[memoryview], object], frame: bytes) -> None:
    for end in range(len(HEAD), len(frame)):
        with pytest.raises(InvalidFrame):
            read(memoryview(frame[:end]))


def damaged(frame: bytes) -> Iterator[bytes]:
    """The same frame with one byte other, missing or too many, wherever more than records is."""
    places = range(len(HEAD), len(frame))
    for place in sorted({*places[:120], *places[-6:]}):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            yield frame[:place] + bytes([byte]) + frame[place + 1 :]
        yield frame[:place] + frame[place + 1 :]
        yield frame[:place] + b"\x00" + frame[place:]


def both_make_the_same_of_damage(
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    read: Callable[[memoryview], object],
    frame: bytes,
) -> None:
    """A value, or that there is none."""

    def made_of(view: memoryview) -> object:
        try:
            return read(view)
        except InvalidFrame:
            return InvalidFrame

    for each in damaged(frame):
        view = memoryview(each)
        expected = in_general(monkeypatch, module, name, partial(made_of, view))
        assert made_of(view) == expected, each.hex()


@pytest.mark.parametrize("version", range(15, 19))
@pytest.mark.parametrize("given", REQUESTS)
def test_a_fetch_of_one_partition(
    monkeypatch: pytest.MonkeyPatch, version: int, given: FetchRequest
) -> None:
    def write() -> bytes:
        return HEAD + fetch.write_request(version, given)

    def read(frame: memoryview) -> FetchRequest:
        return fetch.read_request(version, frame, len(HEAD))

    frame = write()
    assert frame == in_general(monkeypatch, fetch, "write_one_asked", write)
    view = memoryview(frame)
    assert read(view) == in_general(monkeypatch, fetch, "read_one_asked", lambda: read(view))
    every_cut_is_noticed(read, frame)
    if version in DAMAGED_VERSIONS:
        both_make_the_same_of_damage(monkeypatch, fetch, "read_one_asked", read, frame)


def joined(chunks: list[Any]) -> bytes:
    return b"".join(c.read() if isinstance(c, FileRange) else bytes(c) for c in chunks)


@pytest.mark.parametrize("version", range(13, 19))
@pytest.mark.parametrize("answers", [*([answer] for answer in ANSWERS), [], [ANSWER, ANSWER]])
def test_an_answer_about_one_partition(
    monkeypatch: pytest.MonkeyPatch, version: int, answers: list[FetchedPartition]
) -> None:
    def write() -> bytes:
        return HEAD + joined(fetch.write_response(version, 0, 1234567, answers, (), 17))

    def read(frame: memoryview) -> FetchResponse:
        return fetch.read_response(version, frame, len(HEAD))

    frame = write()
    assert frame == in_general(monkeypatch, fetch, "write_one_answer", write)
    view = memoryview(frame)
    assert read(view) == in_general(monkeypatch, fetch, "read_one_answer", lambda: read(view))
    every_cut_is_noticed(read, frame)
    with pytest.raises(InvalidFrame):
        read(memoryview(frame + b"\x00"))
    if version in DAMAGED_VERSIONS:
        both_make_the_same_of_damage(monkeypatch, fetch, "read_one_answer", read, frame)


BATCH = PartitionData("topic", None, 3, memoryview(b"records" * 40))
PRODUCED = [
    ProduceRequest(None, -1, 30_000, [BATCH]),
    ProduceRequest(None, 1, 30_000, [BATCH._replace(topic="t" * 200)]),
    ProduceRequest(None, 1, 30_000, [BATCH._replace(topic="")]),
    ProduceRequest(None, 0, 0, [BATCH._replace(records=None)]),
    ProduceRequest(None, 0, 0, [BATCH._replace(records=memoryview(b""))]),
    ProduceRequest("mine", -1, 30_000, [BATCH]),
    ProduceRequest(None, -1, 30_000, [BATCH, BATCH._replace(partition=4)]),
    ProduceRequest(None, -1, 30_000, [BATCH, BATCH._replace(topic="other")]),
    ProduceRequest(None, -1, 30_000, []),
]


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("given", PRODUCED)
def test_a_produce_of_one_batch(
    monkeypatch: pytest.MonkeyPatch, version: int, given: ProduceRequest
) -> None:
    def read(frame: memoryview) -> ProduceRequest:
        return produce.read_request(version, frame, len(HEAD))

    frame = HEAD + produce.write_request(version, given)
    view = memoryview(frame)
    assert read(view) == in_general(monkeypatch, produce, "_read_one_batch", lambda: read(view))
    every_cut_is_noticed(read, frame)
    if version == 12:
        both_make_the_same_of_damage(monkeypatch, produce, "_read_one_batch", read, frame)


@pytest.mark.parametrize("version", range(3, 14))
def test_the_result_of_one_batch_is_written_as_those_of_many(version: int) -> None:
    result = PartitionResult("t", TOPIC, 3, 0, 7, -1, 0)
    written = produce.write_response(version, [result])
    assert produce.read_response(version, memoryview(written), 0).results[0].base_offset == 7
