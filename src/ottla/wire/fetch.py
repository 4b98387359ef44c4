"""Hand-written codec of Fetch, versions 4 to 18.

Followers, consumers and the metadata quorum all use this message, with up to thousands of partitions each time. A
partition therefore costs one unpack or pack and one tuple. Records are never copied: a response is a list of chunks in
which file ranges stay file ranges, and records that are read are a view into the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.runtime.seams import Chunk, FileRange
from ottla.wire.apis import CLIENT_ELEMENTS_MAX
from ottla.wire.errors import InvalidFrame
from ottla.wire.fetch_messages import (
    HIGH_WATERMARK_UNSUPPORTED,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    fetched_partition,
)
from ottla.wire.fetch_usual import (
    read_one_answer,
    read_one_asked,
    write_one_answer,
    write_one_asked,
)
from ottla.wire.layout import (
    INT16,
    INT32,
    NO_TAGS,
    TOPIC_IDS_FROM,
    NodeEndpoint,
    count_bytes,
    endpoints_bytes,
    id_from_bytes,
    read_count,
    read_endpoints,
    read_nullable_string,
    read_size,
    read_string,
    read_tagged,
    read_topic,
    smallest_topic,
    string_bytes,
    tags_bytes,
    topic_bytes,
    whole_request,
    whole_response,
)
from ottla.wire.primitives import read_uvarint, skip_tagged_fields, tagged_fields, uvarint
from ottla.wire.types import ZERO_UUID

# The first version with each field.
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACK_FROM: Final = 11
_FLEXIBLE_FROM: Final = 12
_LAST_FETCHED_EPOCH_FROM: Final = 12
_REPLICA_STATE_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16
_DIRECTORY_FROM: Final = 17
_HIGH_WATERMARK_FROM: Final = 18

# Tagged fields of the request, its partitions and the response.
_CLUSTER_ID_TAG: Final = 0
_REPLICA_STATE_TAG: Final = 1
_DIRECTORY_TAG: Final = 0
_HIGH_WATERMARK_TAG: Final = 1
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_SNAPSHOT_TAG: Final = 2
_ENDPOINTS_TAG: Final = 0

_LIMITS: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION: Final = Struct(">ii")  # session id, session epoch
_INT64: Final = Struct(">q")
_ID_AND_COUNT: Final = Struct(">16sB")
_REPLICA_STATE: Final = Struct(">iq")  # replica id, replica epoch
_DIVERGING: Final = Struct(">iq")  # epoch, end offset
_LEADER: Final = Struct(">ii")  # leader id, leader epoch
_SNAPSHOT: Final = Struct(">qi")  # end offset, epoch
_ABORTED: Final = Struct(">qq")  # producer id, first offset
_ABSENT: Final = (-1, -1)

# A partition of the request, before its tagged fields.
_ASKED_V4: Final = Struct(">iqi")  # partition, fetch offset, max bytes
_ASKED_V5: Final = Struct(">iqqi")  # … log start offset before max bytes
_ASKED_V9: Final = Struct(">iiqqi")  # … current leader epoch behind partition
_ASKED_V12: Final = Struct(">iiqiqi")  # … last fetched epoch behind fetch offset

# A partition of the response, up to the aborted transactions.
_ANSWER_V4: Final = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5: Final = Struct(">ihqqq")  # … log start offset
# The same without aborted transactions (null), and with the preferred replica.
_PLAIN_ANSWER_V12: Final = Struct(">ihqqqBi")

_UNLIMITED: Final = 2**31 - 1
_SMALL_RECORDS_BYTES: Final = 1024
"""Records in memory up to this size are joined to the bytes around them: a small copy is cheaper than
another entry in the system call that sends them."""


@whole_request
def read_request(version: int, frame: memoryview, offset: int) -> tuple[FetchRequest, int]:
    if version >= _REPLICA_STATE_FROM:
        one = read_one_asked(frame, offset)
        if one is not None:
            return one
    return _read_request(version, frame, offset, _UNLIMITED)


@whole_request
def read_long_request(version: int, frame: memoryview, offset: int) -> tuple[FetchRequest, int]:
    """Of a client: InvalidFrame if it names more than a client may."""
    return _read_request(version, frame, offset, CLIENT_ELEMENTS_MAX)


def _read_request(
    version: int, frame: memoryview, offset: int, elements_max: int
) -> tuple[FetchRequest, int]:
    flexible = version >= _FLEXIBLE_FROM
    request = FetchRequest()
    position = offset
    if version < _REPLICA_STATE_FROM:
        (request.replica_id,) = INT32.unpack_from(frame, position)
        position += 4
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    ) = _LIMITS.unpack_from(frame, position)
    position += _LIMITS.size
    if version >= _SESSIONS_FROM:
        request.session_id, request.session_epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    read_topics = _read_asked_topics if flexible else _read_asked_topics_legacy
    position = read_topics(version, frame, position, request.partitions, elements_max)
    if version >= _SESSIONS_FROM:
        position = _read_forgotten(version, frame, position, request.forgotten, elements_max)
    if version >= _RACK_FROM:
        request.rack_id, position = read_string(frame, position, flexible)
    if flexible:
        tags, position = tagged_fields(frame, position)
        if _CLUSTER_ID_TAG in tags:
            request.cluster_id = _read_cluster_id(frame, tags[_CLUSTER_ID_TAG])
        if version >= _REPLICA_STATE_FROM and _REPLICA_STATE_TAG in tags:
            request.replica_id, request.replica_epoch = read_tagged(
                frame, tags[_REPLICA_STATE_TAG], _REPLICA_STATE
            )
    return request, position


def _too_many(count: int) -> InvalidFrame:
    return InvalidFrame(f"{count} topics or partitions, which is more than a client may name")


def _read_asked_topics(
    version: int, frame: memoryview, position: int, into: list[FetchPartition], elements_max: int
) -> int:
    """For flexible versions. Nearly every count here fits into one byte and nearly no tagged field is set,
    so both are checked inline before the general readers are called."""
    unpack, size = _ASKED_V12.unpack_from, _ASKED_V12.size
    make: Any = tuple.__new__  # the NamedTuple's own constructor takes three times as long
    topics, position = read_count(frame, position, True, smallest_topic(version, True))
    if topics > elements_max:
        raise _too_many(topics)
    topic: str | None = None
    topic_id: UUID | None = None
    for _ in range(topics):
        if version >= TOPIC_IDS_FROM:
            raw_id, count = _ID_AND_COUNT.unpack_from(frame, position)
            topic_id = id_from_bytes(raw_id)
            position += 16
        else:
            topic, position = read_string(frame, position, True)
            count = frame[position]
        count -= 1
        if 0 <= count < 0x7F and count * size < len(frame) - position:
            position += 1
        else:
            count, position = read_count(frame, position, True, size + 1)
        if len(into) + count > elements_max:
            raise _too_many(len(into) + count)
        for _ in range(count):
            partition, leader_epoch, offset, fetched_epoch, log_start, max_bytes = unpack(
                frame, position
            )
            position += size
            directory_id, high_watermark = None, HIGH_WATERMARK_UNSUPPORTED
            if frame[position] == 0:
                position += 1
            else:
                tags, position = tagged_fields(frame, position)
                directory_id, high_watermark = _read_asked_tags(version, frame, tags)
            asked = (
                topic,
                topic_id,
                partition,
                leader_epoch,
                offset,
                fetched_epoch,
                log_start,
                max_bytes,
                directory_id,
                high_watermark,
            )
            into.append(make(FetchPartition, asked))
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    return position


def _read_asked_tags(
    version: int, frame: memoryview, tags: dict[int, tuple[int, int]]
) -> tuple[UUID | None, int]:
    directory_id, high_watermark = None, HIGH_WATERMARK_UNSUPPORTED
    if version >= _DIRECTORY_FROM and _DIRECTORY_TAG in tags:
        start, end = tags[_DIRECTORY_TAG]
        if end - start != 16:
            raise InvalidFrame(f"a directory id of {end - start} bytes")
        directory_id = id_from_bytes(bytes(frame[start:end]))
    if version >= _HIGH_WATERMARK_FROM and _HIGH_WATERMARK_TAG in tags:
        start, end = tags[_HIGH_WATERMARK_TAG]
        if end - start != 8:
            raise InvalidFrame(f"a high watermark of {end - start} bytes")
        (high_watermark,) = _INT64.unpack_from(frame, start)
    return directory_id, high_watermark


def _asked_packing(version: int) -> Struct:
    if version >= _LAST_FETCHED_EPOCH_FROM:
        return _ASKED_V12
    if version >= _LEADER_EPOCH_FROM:
        return _ASKED_V9
    return _ASKED_V5 if version >= _LOG_START_FROM else _ASKED_V4


def _read_asked_topics_legacy(
    version: int, frame: memoryview, position: int, into: list[FetchPartition], elements_max: int
) -> int:
    packing = _asked_packing(version)
    topics, position = read_count(frame, position, False, smallest_topic(version, False))
    if topics > elements_max:
        raise _too_many(topics)
    for _ in range(topics):
        topic, topic_id, position = read_topic(version, False, frame, position)
        count, position = read_count(frame, position, False, packing.size)
        if len(into) + count > elements_max:
            raise _too_many(len(into) + count)
        for _ in range(count):
            partition, *others, max_bytes = packing.unpack_from(frame, position)
            position += packing.size
            leader_epoch = others.pop(0) if version >= _LEADER_EPOCH_FROM else -1
            log_start = others.pop() if version >= _LOG_START_FROM else -1
            (offset,) = others
            asked = (topic, topic_id, partition, leader_epoch, offset, -1, log_start, max_bytes)
            into.append(FetchPartition(*asked))
    return position


def _read_forgotten(
    version: int,
    frame: memoryview,
    position: int,
    into: list[tuple[str | UUID, int]],
    elements_max: int,
) -> int:
    flexible = version >= _FLEXIBLE_FROM
    topics, position = read_count(frame, position, flexible, smallest_topic(version, flexible))
    if topics > elements_max:
        raise _too_many(topics)
    for _ in range(topics):
        topic, topic_id, position = read_topic(version, flexible, frame, position)
        key = topic if topic is not None else topic_id
        assert key is not None
        count, position = read_count(frame, position, flexible, 4)
        if len(into) + count > elements_max:
            raise _too_many(len(into) + count)
        for _ in range(count):
            (partition,) = INT32.unpack_from(frame, position)
            position += 4
            into.append((key, partition))
        if flexible:
            position = skip_tagged_fields(frame, position)
    return position


def _read_cluster_id(frame: memoryview, span: tuple[int, int]) -> str | None:
    start, end = span
    cluster_id, position = read_nullable_string(frame, start, True)
    if position != end:
        raise InvalidFrame("the cluster id has another size than its tagged field")
    return cluster_id


def write_request(version: int, request: FetchRequest) -> bytes:
    """Partitions of one topic must be adjacent, in `partitions` and in `forgotten`."""
    if version >= _REPLICA_STATE_FROM and len(request.partitions) == 1:
        one = write_one_asked(request, request.partitions[0])
        if one is not None:
            return one
    flexible = version >= _FLEXIBLE_FROM
    parts: list[bytes] = []
    if version < _REPLICA_STATE_FROM:
        parts.append(INT32.pack(request.replica_id))
    parts.append(
        _LIMITS.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
        )
    )
    if version >= _SESSIONS_FROM:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    topics = _by_topic(version, request.partitions)
    parts.append(count_bytes(len(topics), flexible))
    for asked in topics:
        parts.append(topic_bytes(version, flexible, asked[0].topic, asked[0].topic_id))
        parts.append(count_bytes(len(asked), flexible))
        parts += [_asked_bytes(version, partition) for partition in asked]
        if flexible:
            parts.append(NO_TAGS)
    if version >= _SESSIONS_FROM:
        parts += _forgotten_parts(version, flexible, request.forgotten)
    if version >= _RACK_FROM:
        parts.append(string_bytes(request.rack_id, flexible))
    if flexible:
        parts.append(tags_bytes(_request_tags(version, request)))
    return b"".join(parts)


def _by_topic(version: int, partitions: Sequence[Any]) -> list[list[Any]]:
    """Groups of adjacent partitions of one topic, for requests and responses."""
    # A UUID is compared in Python, its integer in C.
    key = attrgetter("topic_id.int" if version >= TOPIC_IDS_FROM else "topic")
    return [list(group) for _, group in groupby(partitions, key)]


def _asked_bytes(version: int, asked: FetchPartition) -> bytes:
    _, _, partition, leader_epoch, offset, fetched_epoch, log_start, max_bytes, _, _ = asked
    if version >= _LAST_FETCHED_EPOCH_FROM:
        return _ASKED_V12.pack(
            partition, leader_epoch, offset, fetched_epoch, log_start, max_bytes
        ) + tags_bytes(_asked_tags(version, asked))
    if version >= _LEADER_EPOCH_FROM:
        return _ASKED_V9.pack(partition, leader_epoch, offset, log_start, max_bytes)
    if version >= _LOG_START_FROM:
        return _ASKED_V5.pack(partition, offset, log_start, max_bytes)
    return _ASKED_V4.pack(partition, offset, max_bytes)


def _asked_tags(version: int, asked: FetchPartition) -> list[tuple[int, bytes]]:
    tags = []
    directory_id, high_watermark = asked.replica_directory_id, asked.high_watermark
    if version >= _DIRECTORY_FROM and directory_id is not None and directory_id != ZERO_UUID:
        tags.append((_DIRECTORY_TAG, directory_id.bytes))
    if version >= _HIGH_WATERMARK_FROM and high_watermark != HIGH_WATERMARK_UNSUPPORTED:
        tags.append((_HIGH_WATERMARK_TAG, _INT64.pack(high_watermark)))
    return tags


def _forgotten_parts(
    version: int, flexible: bool, forgotten: Sequence[tuple[str | UUID, int]]
) -> list[bytes]:
    topics = [(key, list(group)) for key, group in groupby(forgotten, itemgetter(0))]
    parts = [count_bytes(len(topics), flexible)]
    for key, group in topics:
        topic, topic_id = (key, None) if isinstance(key, str) else (None, key)
        parts.append(topic_bytes(version, flexible, topic, topic_id))
        parts.append(count_bytes(len(group), flexible))
        parts += [INT32.pack(partition) for _, partition in group]
        if flexible:
            parts.append(NO_TAGS)
    return parts


def _request_tags(version: int, request: FetchRequest) -> list[tuple[int, bytes]]:
    tags = []
    if request.cluster_id is not None:
        tags.append((_CLUSTER_ID_TAG, string_bytes(request.cluster_id, True)))
    state = (request.replica_id, request.replica_epoch)
    if version >= _REPLICA_STATE_FROM and state != _ABSENT:
        tags.append((_REPLICA_STATE_TAG, _REPLICA_STATE.pack(*state) + NO_TAGS))
    return tags


def write_response(
    version: int,
    error: int,
    session_id: int,
    partitions: Sequence[FetchedPartition],
    node_endpoints: Sequence[tuple[int, str, int, str | None]] = (),
    throttle_ms: int = 0,
) -> list[Chunk]:
    """Partitions of one topic must be adjacent."""
    if len(partitions) == 1 and version >= TOPIC_IDS_FROM and not node_endpoints:
        one = write_one_answer(error, session_id, partitions[0], throttle_ms)
        if one is not None:
            return one
    flexible = version >= _FLEXIBLE_FROM
    chunks: list[Chunk] = []
    out = bytearray(INT32.pack(throttle_ms))
    if version >= _SESSIONS_FROM:
        out += INT16.pack(error) + INT32.pack(session_id)
    topics = _by_topic(version, partitions)
    out += count_bytes(len(topics), flexible)
    write_topics = _write_topics if flexible else _write_topics_legacy
    out = write_topics(version, topics, chunks, out)
    if flexible:
        announce = version >= _ENDPOINTS_FROM and node_endpoints
        out += (
            tags_bytes([(_ENDPOINTS_TAG, endpoints_bytes(node_endpoints))]) if announce else NO_TAGS
        )
    if out:
        chunks.append(out)
    return chunks


def _write_topics(
    version: int, topics: list[list[FetchedPartition]], chunks: list[Chunk], out: bytearray
) -> bytearray:
    """Appends to `out`, and moves it to `chunks` whenever records follow. Returns the part not moved yet."""
    pack = _PLAIN_ANSWER_V12.pack
    for answers in topics:
        out += topic_bytes(version, True, answers[0].topic, answers[0].topic_id)
        out += uvarint(len(answers) + 1)
        for (
            _,
            _,
            partition,
            error,
            high_watermark,
            last_stable,
            log_start,
            aborted,
            preferred,
            diverging,
            leader,
            snapshot,
            records,
        ) in answers:
            if aborted is None:
                out += pack(partition, error, high_watermark, last_stable, log_start, 0, preferred)
            else:
                out += _ANSWER_V5.pack(partition, error, high_watermark, last_stable, log_start)
                out += _aborted_bytes(aborted)
                out += INT32.pack(preferred)
            if records is None:
                out += b"\x01"
            else:
                parts, size = _records(records)
                out += uvarint(size + 1)
                out = _append_records(parts, chunks, out)
            if diverging is None and leader is None and snapshot is None:
                out += NO_TAGS
            else:
                out += _answer_tags(diverging, leader, snapshot)
        out += NO_TAGS
    return out


def _aborted_bytes(aborted: Sequence[tuple[int, int]]) -> bytes:
    transactions = [_ABORTED.pack(*transaction) + NO_TAGS for transaction in aborted]
    return uvarint(len(aborted) + 1) + b"".join(transactions)


def _answer_tags(
    diverging: tuple[int, int] | None,
    leader: tuple[int, int] | None,
    snapshot: tuple[int, int] | None,
) -> bytes:
    tags = []
    if diverging is not None and diverging != _ABSENT:
        tags.append((_DIVERGING_TAG, _DIVERGING.pack(*diverging) + NO_TAGS))
    if leader is not None and leader != _ABSENT:
        tags.append((_LEADER_TAG, _LEADER.pack(*leader) + NO_TAGS))
    if snapshot is not None and snapshot != _ABSENT:
        tags.append((_SNAPSHOT_TAG, _SNAPSHOT.pack(*snapshot) + NO_TAGS))
    return tags_bytes(tags)


def _write_topics_legacy(
    version: int, topics: list[list[FetchedPartition]], chunks: list[Chunk], out: bytearray
) -> bytearray:
    for answers in topics:
        out += topic_bytes(version, False, answers[0].topic, None)
        out += INT32.pack(len(answers))
        for answer in answers:
            partition, error, high_watermark, last_stable, log_start = answer[2:7]
            if version >= _LOG_START_FROM:
                out += _ANSWER_V5.pack(partition, error, high_watermark, last_stable, log_start)
            else:
                out += _ANSWER_V4.pack(partition, error, high_watermark, last_stable)
            if answer.aborted is None:
                out += INT32.pack(-1)
            else:
                out += INT32.pack(len(answer.aborted))
                for transaction in answer.aborted:
                    out += _ABORTED.pack(*transaction)
            if version >= _RACK_FROM:
                out += INT32.pack(answer.preferred_read_replica)
            parts, size = _records(answer.records)
            out += INT32.pack(size)
            out = _append_records(parts, chunks, out)
    return out


def _records(records: Chunk | list[Chunk] | None) -> tuple[Sequence[Chunk], int]:
    """(the chunks, their total size)."""
    if records is None:
        return (), 0
    if isinstance(records, FileRange):
        return (records,), records.size
    if isinstance(records, list):
        sizes = [part.size if isinstance(part, FileRange) else len(part) for part in records]
        return records, sum(sizes)
    return (records,), len(records)


def _append_records(parts: Sequence[Chunk], chunks: list[Chunk], out: bytearray) -> bytearray:
    for part in parts:
        if isinstance(part, FileRange):
            if not part.size:
                continue  # an empty chunk would make a send loop spin
        elif len(part) <= _SMALL_RECORDS_BYTES:
            out += part
            continue
        if out:
            chunks.append(out)
            out = bytearray()
        chunks.append(part)
    return out


@whole_response
def read_response(version: int, frame: memoryview, offset: int) -> tuple[FetchResponse, int]:
    if version >= TOPIC_IDS_FROM:
        one = read_one_answer(frame, offset)
        if one is not None:
            return one
    flexible = version >= _FLEXIBLE_FROM
    (throttle_ms,) = INT32.unpack_from(frame, offset)
    position = offset + 4
    error, session_id = 0, 0
    if version >= _SESSIONS_FROM:
        (error,) = INT16.unpack_from(frame, position)
        (session_id,) = INT32.unpack_from(frame, position + 2)
        position += 6
    partitions: list[FetchedPartition] = []
    smallest = (_ANSWER_V5 if version >= _LOG_START_FROM else _ANSWER_V4).size
    topics, position = read_count(frame, position, flexible, smallest_topic(version, flexible))
    for _ in range(topics):
        topic, topic_id, position = read_topic(version, flexible, frame, position)
        count, position = read_count(frame, position, flexible, smallest)
        for _ in range(count):
            if flexible:
                answer, position = _read_answer(topic, topic_id, frame, position)
            else:
                answer, position = _read_answer_legacy(version, topic, frame, position)
            partitions.append(answer)
        if flexible:
            position = skip_tagged_fields(frame, position)
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, position = tagged_fields(frame, position)
        if version >= _ENDPOINTS_FROM and _ENDPOINTS_TAG in tags:
            endpoints = read_endpoints(frame, tags[_ENDPOINTS_TAG])
    return FetchResponse(error, session_id, partitions, endpoints, throttle_ms), position


def _read_answer(
    topic: str | None, topic_id: UUID | None, frame: memoryview, position: int
) -> tuple[FetchedPartition, int]:
    partition, error, high_watermark, last_stable, log_start, aborted_count, preferred = (
        _PLAIN_ANSWER_V12.unpack_from(frame, position)
    )
    aborted: list[tuple[int, int]] | None = None
    if aborted_count == 0:
        position += _PLAIN_ANSWER_V12.size
    else:
        aborted, position = _read_aborted(True, frame, position + _ANSWER_V5.size)
        (preferred,) = INT32.unpack_from(frame, position)
        position += 4
    size, position = read_size(frame, position, True)
    records = None
    if size >= 0:
        records = frame[position : position + size]
        position += size
    diverging = leader = snapshot = None
    if frame[position] == 0:
        position += 1
    else:
        tags, position = tagged_fields(frame, position)
        diverging = _read_pair(frame, tags.get(_DIVERGING_TAG), _DIVERGING)
        leader = _read_pair(frame, tags.get(_LEADER_TAG), _LEADER)
        snapshot = _read_pair(frame, tags.get(_SNAPSHOT_TAG), _SNAPSHOT)
    answer = fetched_partition(
        topic,
        topic_id,
        partition,
        error,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        preferred,
        diverging,
        leader,
        snapshot,
        records,
    )
    return answer, position


def _read_answer_legacy(
    version: int, topic: str | None, frame: memoryview, position: int
) -> tuple[FetchedPartition, int]:
    packing = _ANSWER_V5 if version >= _LOG_START_FROM else _ANSWER_V4
    partition, error, high_watermark, last_stable, *rest = packing.unpack_from(frame, position)
    (log_start,) = rest or (-1,)
    aborted, position = _read_aborted(False, frame, position + packing.size)
    preferred = -1
    if version >= _RACK_FROM:
        (preferred,) = INT32.unpack_from(frame, position)
        position += 4
    size, position = read_size(frame, position, False)
    records = None
    if size >= 0:
        records = frame[position : position + size]
        position += size
    answer = fetched_partition(
        topic,
        None,
        partition,
        error,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        preferred,
        None,
        None,
        None,
        records,
    )
    return answer, position


def _read_aborted(
    flexible: bool, frame: memoryview, position: int
) -> tuple[list[tuple[int, int]] | None, int]:
    count: int
    if flexible:
        count, position = read_uvarint(frame, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(frame, position)
        position += 4
    if count == -1:
        return None, position
    if count < 0 or count * _ABORTED.size > len(frame) - position:
        raise InvalidFrame(f"{count} aborted transactions")
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(frame, position)
        position += _ABORTED.size
        aborted.append((producer_id, first_offset))
        if flexible:
            position = skip_tagged_fields(frame, position)
    return aborted, position


def _read_pair(
    frame: memoryview, span: tuple[int, int] | None, packing: Struct
) -> tuple[int, int] | None:
    if span is None:
        return None
    first, second = read_tagged(frame, span, packing)
    return (first, second)
