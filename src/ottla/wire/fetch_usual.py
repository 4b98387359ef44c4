"""The most frequent shape of a fetch, read and written in one piece.

Nearly every message of a busy session names one partition of one topic, forgets none, and has no rack. Its only tagged
field is the replica's, in a request. Such a message is a single unpack or pack. For any other shape these functions
return None, and `fetch` handles it field by field. Both must read and write the same:
tests/unit/wire/test_one_partition.py compares them.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from ottla.runtime.seams import Chunk, FileRange
from ottla.wire.fetch_messages import (
    HIGH_WATERMARK_UNSUPPORTED,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    fetched_partition,
)
from ottla.wire.layout import id_from_bytes
from ottla.wire.primitives import read_uvarint, uvarint

_ONE_ASKED_V15: Final = Struct(">iiib ii B16sB iiqiqi BBBB B")
_ONE_ASKED_SHAPE: Final = (2, 2, 0, 0, 1, 1)
_REPLICA_STATE_AND_END: Final = Struct(">BBiqB")
_REPLICA_STATE_SHAPE: Final = (1, 13, 0)  # tag, size with its own end, that end
_ONE_ANSWER_V13: Final = Struct(">ihi B16sB ihqqqBi")
_ONE_ANSWER_END: Final = b"\x00\x00\x00"


def read_one_asked(frame: memoryview, offset: int) -> tuple[FetchRequest, int] | None:
    """None if the request has any other shape."""
    position = offset + _ONE_ASKED_V15.size
    if len(frame) < position:
        return None
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        raw_id,
        partitions,
        partition,
        leader_epoch,
        fetch_offset,
        fetched_epoch,
        log_start,
        partition_max_bytes,
        partition_tags,
        topic_tags,
        forgotten,
        rack,
        tags,
    ) = _ONE_ASKED_V15.unpack_from(frame, offset)
    if (topics, partitions, partition_tags, topic_tags, forgotten, rack) != _ONE_ASKED_SHAPE:
        return None
    replica_id = replica_epoch = -1
    if tags:
        if tags != 1 or len(frame) < position + _REPLICA_STATE_AND_END.size:
            return None
        tag, size, replica_id, replica_epoch, end = _REPLICA_STATE_AND_END.unpack_from(
            frame, position
        )
        if (tag, size, end) != _REPLICA_STATE_SHAPE:
            return None
        position += _REPLICA_STATE_AND_END.size
    asked = (
        None,
        id_from_bytes(raw_id),
        partition,
        leader_epoch,
        fetch_offset,
        fetched_epoch,
        log_start,
        partition_max_bytes,
        None,
        HIGH_WATERMARK_UNSUPPORTED,
    )
    make: Any = tuple.__new__
    request = FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        None,
        "",
        [make(FetchPartition, asked)],
        [],
    )
    return request, position


def write_one_asked(request: FetchRequest, asked: FetchPartition) -> bytes | None:
    """None if the request has any other shape."""
    (
        _,
        topic_id,
        partition,
        leader_epoch,
        fetch_offset,
        fetched_epoch,
        log_start,
        max_bytes,
        directory_id,
        high_watermark,
    ) = asked
    if (
        topic_id is None
        or directory_id is not None
        or high_watermark != HIGH_WATERMARK_UNSUPPORTED
        or request.forgotten
        or request.rack_id
        or request.cluster_id is not None
        or request.replica_id == -1
    ):
        return None
    tag, size, end = _REPLICA_STATE_SHAPE
    return _ONE_ASKED_V15.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        2,
        topic_id.bytes,
        2,
        partition,
        leader_epoch,
        fetch_offset,
        fetched_epoch,
        log_start,
        max_bytes,
        0,
        0,
        1,
        1,
        1,
    ) + _REPLICA_STATE_AND_END.pack(tag, size, request.replica_id, request.replica_epoch, end)


def write_one_answer(
    error: int, session_id: int, answer: FetchedPartition, throttle_ms: int
) -> list[Chunk] | None:
    """None if the answer has any other shape."""
    (
        _,
        topic_id,
        partition,
        partition_error,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        preferred,
        diverging,
        leader,
        snapshot,
        records,
    ) = answer
    if aborted is not None or diverging or leader or snapshot or topic_id is None:
        return None
    head = _ONE_ANSWER_V13.pack(
        throttle_ms,
        error,
        session_id,
        2,
        topic_id.bytes,
        2,
        partition,
        partition_error,
        high_watermark,
        last_stable,
        log_start,
        0,
        preferred,
    )
    if records is None:
        return [head + b"\x01" + _ONE_ANSWER_END]
    if not isinstance(records, FileRange) or not records.size:
        return None
    head += uvarint(records.size + 1)
    if records.in_memory is not None:
        return [head + records.in_memory + _ONE_ANSWER_END]
    return [head, records, _ONE_ANSWER_END]


def read_one_answer(frame: memoryview, offset: int) -> tuple[FetchResponse, int] | None:
    """None if the response has any other shape."""
    position = offset + _ONE_ANSWER_V13.size
    end = len(frame) - len(_ONE_ANSWER_END)
    if end < position or bytes(frame[end:]) != _ONE_ANSWER_END:
        return None
    (
        throttle_ms,
        error,
        session_id,
        topics,
        raw_id,
        partitions,
        partition,
        partition_error,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        preferred,
    ) = _ONE_ANSWER_V13.unpack_from(frame, offset)
    if topics != 2 or partitions != 2 or aborted != 0:
        return None
    size, position = read_uvarint(frame, position)
    if not size or position + size - 1 != end:
        return None  # null records have no size plus one: they are another shape
    answer = fetched_partition(
        None,
        id_from_bytes(raw_id),
        partition,
        partition_error,
        high_watermark,
        last_stable,
        log_start,
        None,
        preferred,
        None,
        None,
        None,
        frame[position:end],
    )
    return FetchResponse(error, session_id, [answer], (), throttle_ms), len(frame)
