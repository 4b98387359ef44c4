"""A consumer group from the disks of a cluster that does not run: its members and offsets in `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.coordinators.groups.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from ottla.coordinators.shard import CoordinatorRecord, partition_of
from ottla.diagnosis.disks import log_directories, segments
from ottla.diagnosis.now import GroupNow, LagNow, MemberNow
from ottla.metadata.image import MetadataImage
from ottla.records.batch import Batch, CorruptBatch, batches
from ottla.records.record import ControlType, Record, control_type, records
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC
from ottla.wire.record_codec import MalformedRecord

Place = tuple[str, int]


class StoredGroup:
    """What the records of one partition of `__consumer_offsets` say of a group, applied in order."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.type = ""
        self.members: dict[str, MemberNow] = {}
        self.offsets: dict[Place, int] = {}
        self._pending: dict[int, list[Record]] = {}
        """By producer id: offsets of its open transaction."""

    def apply(self, batch: Batch, found: Sequence[Record]) -> None:
        if batch.is_control:
            decided = self._pending.pop(batch.producer_id, [])
            if control_type(found[0]) == ControlType.COMMIT:
                self._replay(decided)
        elif batch.is_transactional:
            self._pending.setdefault(batch.producer_id, []).extend(found)
        else:
            self._replay(found)

    def _replay(self, found: Sequence[Record]) -> None:
        for record in found:
            if record.key is None:
                continue
            try:
                read = read_record(CoordinatorRecord(bytes(record.key), record.value))
            except MalformedRecord:
                continue
            match read:
                case (OffsetCommitKey(group=self.id) as key, value):
                    self._offset((key.topic, key.partition), value)
                case (GroupMetadataKey(group=self.id), value):
                    self.type = "classic" if value is not None else ""
                    self.members = _classic_members(value)
                case (ConsumerGroupMetadataKey(group_id=self.id), value):
                    self.type = "consumer" if value is not None else ""
                case (ConsumerGroupMemberMetadataKey(group_id=self.id) as key, value):
                    self.members.pop(key.member_id, None)
                    if isinstance(value, ConsumerGroupMemberMetadataValue):
                        self.members[key.member_id] = MemberNow(
                            key.member_id, value.client_id, value.client_host, 0
                        )

    def _offset(self, place: Place, value: object) -> None:
        self.offsets.pop(place, None)
        if isinstance(value, OffsetCommitValue):
            self.offsets[place] = value.offset


def _classic_members(value: object) -> dict[str, MemberNow]:
    if not isinstance(value, GroupMetadataValue):
        return {}
    return {
        each.member_id: MemberNow(each.member_id, each.client_id, each.client_host, 0)
        for each in value.members
    }


def stored_group(nodes: Sequence[Path], image: MetadataImage, id: str) -> GroupNow | None:
    """None if no disk knows the group."""
    topic = image.topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        return None
    number = partition_of(id, len(topic.partitions))
    group = StoredGroup(id)
    for data, batch in _longest_log(nodes, (GROUP_METADATA_TOPIC, number)):
        group.apply(batch, list(records(data, batch)))
    if not group.type and not group.offsets:
        return None
    lags = []
    for place, offset in sorted(group.offsets.items()):
        end = max((batch.next_offset for _, batch in _longest_log(nodes, place)), default=offset)
        lags.append(LagNow(*place, offset, end, max(0, end - offset), None, offset, end))
    return GroupNow(
        id,
        "Stable" if group.members else "Empty",
        group.type or "classic",
        topic.partitions[number].leader,
        tuple(group.members.values()),
        tuple(lags),
        0.0,
    )


def _longest_log(nodes: Sequence[Path], place: Place) -> list[tuple[bytes, Batch]]:
    """The batches of the replica that reaches furthest, each with the bytes that hold it."""
    name = f"{place[0]}-{place[1]}"
    found = [
        list(_batches(directory / name)) for node in nodes for directory in log_directories(node)
    ]
    return max(found, key=lambda log: log[-1][1].next_offset if log else 0, default=[])


def _batches(directory: Path) -> Iterator[tuple[bytes, Batch]]:
    for data in segments(directory):
        try:
            for batch in batches(data, allow_partial=True):
                yield data, batch
        except CorruptBatch:
            return
