"""Hand-written codec of Produce, versions 3 to 13.

The records of a request are not copied: a partition's `records` is a view into the frame, writable so
that the log can patch offset and epoch in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from ottla.runtime.seams import Buffer
from ottla.wire.errors import InvalidFrame
from ottla.wire.layout import (
    INT32,
    NO_TAGS,
    TOPIC_IDS_FROM,
    NodeEndpoint,
    count_bytes,
    endpoints_bytes,
    read_count,
    read_endpoints,
    read_nullable_string,
    read_size,
    read_tagged,
    read_topic,
    smallest_topic,
    string_bytes,
    tags_bytes,
    topic_bytes,
    whole_request,
    whole_response,
)
from ottla.wire.primitives import read_uvarint, skip_tagged_fields, tagged_fields

PARTITIONS_MAX: Final = 50_000
"""More than a broker leads. Records are long, so the size of a request does not bound its number of partitions,
and each costs some microseconds, even if there is no such partition."""

_FLEXIBLE_FROM: Final = 9
_LOG_START_FROM: Final = 5
_ERROR_MESSAGE_FROM: Final = 8
_LEADER_FROM: Final = 10

_ACKS_TIMEOUT: Final = Struct(">hi")
_ONE_TOPIC: Final = Struct(">BhiBB")  # transactional id, acks, timeout, topics, length of the name
_ONE_PARTITION: Final = Struct(">Bi")
_ONE_END: Final = b"\x00\x00\x00"
_RESULT: Final = Struct(">ihqq")  # partition, error, base offset, log append time
_RESULT_LOG_START: Final = Struct(">ihqqq")
_LEADER: Final = Struct(">ii")  # leader id, leader epoch
_LEADER_TAGS: Final = Struct(">iiB")
_LEADER_TAG: Final = 0
_ENDPOINTS_TAG: Final = 0
_NO_LEADER: Final = (-1, -1)


class PartitionData(NamedTuple):
    topic: str | None
    topic_id: UUID | None
    partition: int
    records: memoryview | None


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


class PartitionResult(NamedTuple):
    topic: str | None
    topic_id: UUID | None
    partition: int
    error: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """(leader, epoch), sent to a client that used the wrong broker (from version 10 on)."""
    record_errors: Sequence[tuple[int, str | None]] = ()
    """The records for which the batch was refused: (position in the batch, reason) (from version 8 on)."""


@dataclass(slots=True)
class ProduceResponse:
    results: list[PartitionResult]
    node_endpoints: tuple[NodeEndpoint, ...] = field(default=())
    throttle_ms: int = 0


@whole_request
def read_request(version: int, frame: memoryview, offset: int) -> tuple[ProduceRequest, int]:
    if _FLEXIBLE_FROM <= version < TOPIC_IDS_FROM:
        one = _read_one_batch(frame, offset)
        if one is not None:
            return one
    flexible = version >= _FLEXIBLE_FROM
    transactional_id, position = read_nullable_string(frame, offset, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    position += _ACKS_TIMEOUT.size
    partitions: list[PartitionData] = []
    topics, position = read_count(frame, position, flexible, smallest_topic(version, flexible))
    if topics > PARTITIONS_MAX:
        raise InvalidFrame(f"{topics} topics, which is more than {PARTITIONS_MAX}")
    for _ in range(topics):
        topic, topic_id, position = read_topic(version, flexible, frame, position)
        count, position = read_count(frame, position, flexible, 6 if flexible else 8)
        if len(partitions) + count > PARTITIONS_MAX:
            raise InvalidFrame(f"records for more than {PARTITIONS_MAX} partitions")
        for _ in range(count):
            (partition,) = INT32.unpack_from(frame, position)
            size, position = read_size(frame, position + 4, flexible)
            records = None
            if size >= 0:
                records = frame[position : position + size]
                position += size
            if flexible:
                position = skip_tagged_fields(frame, position)
            partitions.append(PartitionData(topic, topic_id, partition, records))
        if flexible:
            position = skip_tagged_fields(frame, position)
    if flexible:
        position = skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions), position


def _read_one_batch(frame: memoryview, offset: int) -> tuple[ProduceRequest, int] | None:
    """The request of a client that does not wait for more records: one batch, no transaction and no tagged field. None
    if the request has any other shape."""
    position = offset + _ONE_TOPIC.size
    if len(frame) < position:
        return None
    no_transaction, acks, timeout_ms, topics, length = _ONE_TOPIC.unpack_from(frame, offset)
    name_end = position + length - 1
    records = name_end + _ONE_PARTITION.size
    if (no_transaction, topics) != (0, 2) or not 1 < length < 0x80 or records >= len(frame):
        return None
    partitions, partition = _ONE_PARTITION.unpack_from(frame, name_end)
    size, records = read_uvarint(frame, records)
    end = records + size - 1
    if partitions != 2 or not size or bytes(frame[end:]) != _ONE_END:
        return None
    topic = str(frame[position:name_end], "utf-8")
    data = [PartitionData(topic, None, partition, frame[records:end])]
    return ProduceRequest(None, acks, timeout_ms, data), len(frame)


def write_request(version: int, request: ProduceRequest) -> bytes:
    """Partitions of one topic must be adjacent."""
    flexible = version >= _FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    topics = [(key, list(group)) for key, group in groupby(request.partitions, lambda p: p[:2])]
    parts: list[Buffer] = [
        string_bytes(request.transactional_id, flexible),
        _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms),
        count_bytes(len(topics), flexible),
    ]
    for (topic, topic_id), partitions in topics:
        parts.append(topic_bytes(version, flexible, topic, topic_id))
        parts.append(count_bytes(len(partitions), flexible))
        for _, _, partition, records in partitions:
            parts.append(INT32.pack(partition))
            if records is None:
                parts.append(count_bytes(-1, flexible))
            else:
                parts += (count_bytes(len(records), flexible), records)
            parts.append(tags)
        parts.append(tags)
    parts.append(tags)
    return b"".join(parts)


def write_response(
    version: int,
    results: Sequence[PartitionResult],
    node_endpoints: Sequence[tuple[int, str, int, str | None]] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Results of one topic must be adjacent."""
    flexible = version >= _FLEXIBLE_FROM
    if len(results) == 1:
        topics = [(results[0][:2], list(results))]
    else:
        topics = [(key, list(group)) for key, group in groupby(results, lambda r: r[:2])]
    parts = [count_bytes(len(topics), flexible)]
    for (topic, topic_id), group in topics:
        parts.append(topic_bytes(version, flexible, topic, topic_id))
        parts.append(count_bytes(len(group), flexible))
        parts += [_result_bytes(version, flexible, result) for result in group]
        if flexible:
            parts.append(NO_TAGS)
    parts.append(INT32.pack(throttle_ms))
    if flexible:
        announce = version >= _LEADER_FROM and node_endpoints
        parts.append(
            tags_bytes([(_ENDPOINTS_TAG, endpoints_bytes(node_endpoints))]) if announce else NO_TAGS
        )
    return b"".join(parts)


def _result_bytes(version: int, flexible: bool, result: PartitionResult) -> bytes:
    _, _, partition, error, base, append_time, log_start, message, leader, refused = result
    if version < _LOG_START_FROM:
        return _RESULT.pack(partition, error, base, append_time)
    fixed = _RESULT_LOG_START.pack(partition, error, base, append_time, log_start)
    if version < _ERROR_MESSAGE_FROM:
        return fixed
    fixed += count_bytes(len(refused), flexible)
    for index, why in refused:
        fixed += INT32.pack(index) + string_bytes(why, flexible) + (NO_TAGS if flexible else b"")
    fixed += string_bytes(message, flexible)
    if not flexible:
        return fixed
    if version < _LEADER_FROM or leader is None or leader == _NO_LEADER:
        return fixed + NO_TAGS
    return fixed + tags_bytes([(_LEADER_TAG, _LEADER_TAGS.pack(*leader, 0))])


@whole_response
def read_response(version: int, frame: memoryview, offset: int) -> tuple[ProduceResponse, int]:
    flexible = version >= _FLEXIBLE_FROM
    results: list[PartitionResult] = []
    smallest = (_RESULT if version < _LOG_START_FROM else _RESULT_LOG_START).size
    topics, position = read_count(frame, offset, flexible, smallest_topic(version, flexible))
    for _ in range(topics):
        topic, topic_id, position = read_topic(version, flexible, frame, position)
        count, position = read_count(frame, position, flexible, smallest)
        for _ in range(count):
            result, position = _read_result(version, flexible, topic, topic_id, frame, position)
            results.append(result)
        if flexible:
            position = skip_tagged_fields(frame, position)
    (throttle_ms,) = INT32.unpack_from(frame, position)
    position += 4
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, position = tagged_fields(frame, position)
        if version >= _LEADER_FROM and _ENDPOINTS_TAG in tags:
            endpoints = read_endpoints(frame, tags[_ENDPOINTS_TAG])
    return ProduceResponse(results, endpoints, throttle_ms), position


def _read_result(
    version: int,
    flexible: bool,
    topic: str | None,
    topic_id: UUID | None,
    data: memoryview,
    position: int,
) -> tuple[PartitionResult, int]:
    if version < _LOG_START_FROM:
        fixed = (*_RESULT.unpack_from(data, position), -1)
        position += _RESULT.size
    else:
        fixed = _RESULT_LOG_START.unpack_from(data, position)
        position += _RESULT_LOG_START.size
    message: str | None = None
    leader: tuple[int, int] | None = None
    refused: list[tuple[int, str | None]] = []
    if version >= _ERROR_MESSAGE_FROM:
        refused, position = _read_record_errors(flexible, data, position)
        message, position = read_nullable_string(data, position, flexible)
    if flexible:
        tags, position = tagged_fields(data, position)
        if version >= _LEADER_FROM and _LEADER_TAG in tags:
            leader_id, epoch = read_tagged(data, tags[_LEADER_TAG], _LEADER)
            leader = (leader_id, epoch)
    partition, error, base, append_time, log_start = fixed
    return PartitionResult(
        topic,
        topic_id,
        partition,
        error,
        base,
        append_time,
        log_start,
        message,
        leader,
        tuple(refused),
    ), position


def _read_record_errors(
    flexible: bool, data: memoryview, position: int
) -> tuple[list[tuple[int, str | None]], int]:
    count, position = read_count(data, position, flexible, 6)
    refused = []
    for _ in range(count):
        (index,) = INT32.unpack_from(data, position)
        why, position = read_nullable_string(data, position + 4, flexible)
        if flexible:
            position = skip_tagged_fields(data, position)
        refused.append((index, why))
    return refused, position
