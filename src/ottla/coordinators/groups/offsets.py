"""Committed offsets: who read how far. Also those of open transactions, which count only once these commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from ottla.coordinators.groups.classic_group import ClassicGroup, State
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.context import Desk, Outbox, Topics, milliseconds
from ottla.coordinators.groups.group_records import OffsetCommitKey, OffsetCommitValue, delete, put
from ottla.coordinators.shard import ProducerStamp
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import field
from ottla.wire.types import ZERO_UUID

NO_OFFSET = -1


class Place(NamedTuple):
    topic: str
    partition: int


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires, if the client said so (before KIP-211); else -1."""
    record_offset: int
    """Where it was written: of two commits the later one counts."""
    topic_id: UUID
    """Of which topic of that name; zero in records of older versions."""


Places = dict[Place, Committed]


class Offsets:
    """All offsets of one shard, by group. Changed by replay only."""

    def __init__(self) -> None:
        self._committed: dict[str, Places] = {}
        self._pending: dict[int, dict[str, Places]] = {}
        """By producer id: written in transactions that have not ended."""
        self._open: dict[str, dict[int, None]] = {}
        """Producers with pending offsets, by group."""

    def of(self, group: str) -> Places:
        return self._committed.get(group, {})

    def groups(self) -> list[str]:
        """All that have an offset, committed or pending."""
        return list(dict.fromkeys((*self._committed, *self._open)))

    def is_pending(self, group: str, place: Place) -> bool:
        return any(
            place in self._pending[producer].get(group, {})
            for producer in self._open.get(group, {})
        )

    def has_pending(self, group: str) -> bool:
        return group in self._open

    def places(self, group: str) -> Iterator[Place]:
        """Every place with an offset, committed or pending, once."""
        known = dict.fromkeys(self.of(group))
        for producer in self._open.get(group, {}):
            known.update(dict.fromkeys(self._pending[producer].get(group, {})))
        return iter(known)

    def stale(self, group: str, topics: Topics) -> Iterator[Place]:
        """Places at which nothing is of a topic that there is."""
        for place in self.places(group):
            found = [self.of(group).get(place)]
            found += [
                self._pending[each].get(group, {}).get(place) for each in self._open.get(group, ())
            ]
            if all(is_stale(topics, place, each) for each in found if each is not None):
                yield place

    # -- replay

    def replay(
        self,
        offset: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        place = Place(key.topic, key.partition)
        if value is None:
            self._remove(key.group, place)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            offset,
            value.topic_id,
        )
        if producer is None:
            self._committed.setdefault(key.group, {})[place] = committed
        elif producer.producer_id >= 0:
            # Former versions wrote some of no producer, which no marker would ever end.
            pending = self._pending.setdefault(producer.producer_id, {})
            pending.setdefault(key.group, {})[place] = committed
            self._open.setdefault(key.group, {})[producer.producer_id] = None

    def _remove(self, group: str, place: Place) -> None:
        places = self._committed.get(group)
        if places is not None:
            places.pop(place, None)
            if not places:
                del self._committed[group]
        for producer in self._open.get(group, {}):
            self._pending[producer].get(group, {}).pop(place, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group, places in self._pending.pop(producer_id, {}).items():
            producers = self._open[group]
            del producers[producer_id]
            if not producers:
                del self._open[group]
            if committed:
                self._commit(group, places)

    def _commit(self, group: str, places: Places) -> None:
        for place, pending in places.items():
            kept = self._committed.setdefault(group, {})
            current = kept.get(place)
            if current is None or pending.record_offset > current.record_offset:
                kept[place] = pending


# -- commands -----------------------------------------------------------------------------------------------


def commit(desk: Desk, group_id: str, message: Any) -> dict[str, Any]:
    """The records of an OffsetCommit or TxnOffsetCommit whose sender may commit, and the response."""
    out = desk.out
    expire_ms = -1
    retention = field(message, "retention_time", None)
    if retention is not None and (retention_ms := milliseconds(retention)) >= 0:
        expire_ms = out.now_ms + retention_ms
    topics = []
    for topic in message.topics:
        name, told = named(desk.topics, topic)
        results = []
        for partition in topic.partitions:
            error = _commit_one(desk, group_id, name, partition, expire_ms)
            results.append({"partition_index": partition.partition_index, "error_code": error})
        topics.append({**told, "partitions": results})
    return {"topics": topics}


def named(topics: Topics, topic: Any) -> tuple[str | None, dict[str, Any]]:
    """The name of a topic that a request gives by name or (newer versions) by id, and how the response
    gives it."""
    if hasattr(topic, "topic_id"):
        topic_id: UUID = topic.topic_id or ZERO_UUID
        return topics.name_of(topic_id), {"topic_id": topic_id}
    return topic.name, {"name": topic.name}


def _commit_one(
    desk: Desk, group_id: str, name: str | None, partition: Any, expire_ms: int
) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= partition.partition_index < desk.topics.partitions(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata or ""
    if len(metadata) > desk.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=field(partition, "committed_leader_epoch", -1),
        metadata=metadata,
        commit_timestamp=desk.out.now_ms,
        expire_timestamp=expire_ms,
        topic_id=desk.topics.id_of(name) or ZERO_UUID,
    )
    key = OffsetCommitKey(group=group_id, topic=name, partition=partition.partition_index)
    # Only version 1 can say when an offset expires.
    desk.out.records.append(put(key, value, 1 if expire_ms >= 0 else None))
    return ErrorCode.NONE


def commit_failure(topics: Topics, message: Any, error: ErrorCode) -> dict[str, Any]:
    return {
        "topics": [
            {
                **named(topics, topic)[1],
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": error}
                    for partition in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }


def fetch(
    offsets: Offsets, topics: Topics, group_id: str, asked: Any, by_id: bool, stable: bool
) -> list[dict[str, Any]]:
    """The topics of an OffsetFetch response about one group. `asked` None: all that there are."""
    if asked is None:
        return _fetch_all(offsets, topics, group_id, by_id, stable)
    answers = []
    for topic in asked:
        name, told = named(topics, topic)
        answers.append(
            {
                **told,
                "partitions": [
                    _missing(index, ErrorCode.UNKNOWN_TOPIC_ID)
                    if name is None
                    else _fetched(offsets, topics, group_id, Place(name, index), stable)
                    for index in topic.partition_indexes
                ],
            }
        )
    return answers


def _fetch_all(
    offsets: Offsets, topics: Topics, group_id: str, by_id: bool, stable: bool
) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for place in offsets.of(group_id):
        answer = _fetched(offsets, topics, group_id, place, stable)
        by_topic.setdefault(place.topic, []).append(answer)
    answers: list[dict[str, Any]] = []
    for name, partitions in by_topic.items():
        topic_id = topics.id_of(name)
        if not by_id:
            answers.append({"name": name, "partitions": partitions})
        elif topic_id is not None:
            answers.append({"topic_id": topic_id, "partitions": partitions})
    return answers


def _fetched(
    offsets: Offsets, topics: Topics, group_id: str, place: Place, stable: bool
) -> dict[str, Any]:
    if stable and offsets.is_pending(group_id, place):
        return _missing(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.of(group_id).get(place)
    if committed is None or is_stale(topics, place, committed):
        return _missing(place.partition, ErrorCode.NONE)
    return {
        "partition_index": place.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": ErrorCode.NONE,
    }


def _missing(index: int, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def is_stale(topics: Topics, place: Place, committed: Committed) -> bool:
    """Whether its topic is gone, though there may be a new one of the same name."""
    current = topics.id_of(place.topic)
    return current is None or committed.topic_id not in (ZERO_UUID, current)


def forget(out: Outbox, group_id: str, place: Place) -> None:
    key = OffsetCommitKey(group=group_id, topic=place.topic, partition=place.partition)
    out.records.append(delete(key))


def expiry_base_ms(group: ClassicGroup | ConsumerGroup, committed: Committed) -> int | None:
    """From when an offset's age counts (KIP-211); None while it cannot expire. Offsets of a group with
    members live on, save those of topics that none of the members reads."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return committed.commit_ms
    if group.is_empty:
        return group.state_since_ms if group.state_since_ms >= 0 else committed.commit_ms
    if group.state is State.STABLE and group.subscribed is not None:
        return committed.commit_ms
    return None


def is_expired(committed: Committed, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms >= 0:
        return now_ms >= committed.expire_ms
    return now_ms - base_ms >= retention_ms
