"""Requests about offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any
from uuid import UUID

from ottla.coordinators.groups.classic_group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.context import GroupContext, GroupRequest, Topics, milliseconds
from ottla.coordinators.groups.group_metadata_manager import Group, GroupMetadataManager
from ottla.coordinators.groups.group_records import OffsetCommitKey, OffsetCommitValue, delete, put
from ottla.coordinators.groups.offsets import GroupOffsets, OffsetAndMetadata, is_stale
from ottla.coordinators.shard import ProducerStamp, Token
from ottla.events.coordination import OffsetCommitRefused, OffsetsCommitted, UnstableOffset
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field
from ottla.wire.types import ZERO_UUID, TopicPartition

NO_OFFSET = -1
NO_PRODUCER_ID = -1


class OffsetMetadataManager:
    """The offsets of a shard's groups. Only the replay of records changes them."""

    def __init__(self, context: GroupContext, groups: GroupMetadataManager) -> None:
        self.offsets = GroupOffsets()
        self._context = context
        self._groups = groups

    # -- OffsetCommit, TxnOffsetCommit --------------------------------------------------------------------

    def commit(self, version: int, request: GroupRequest, token: Token) -> None:
        """OffsetCommit 2-10. v9: members of either protocol (KIP-848). v10: topics by id (KIP-848)."""
        message = request.message
        generation = message.generation_id_or_member_epoch
        try:
            self._check_commit(version, message, generation)
        except KafkaError as error:
            self._refuse_commit(message, generation, error.code, NO_PRODUCER_ID, token)
            return
        self._accept_commit(message, NO_PRODUCER_ID, token)

    def _check_commit(self, version: int, message: Any, generation: int) -> None:
        group = self._groups.groups.get(message.group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
                )
        elif isinstance(group, ConsumerGroup):
            group.check_commit(message.member_id, generation, version)
        else:
            instance_id = field(message, "group_instance_id", None)
            group.check_commit(message.member_id, instance_id, generation, False)
            self._groups.heard_of(group, message.member_id)

    def commit_in_transaction(self, version: int, request: GroupRequest, token: Token) -> None:
        """TxnOffsetCommit 0-5. v3: the committing member is checked (KIP-447)."""
        message = request.message
        generation = field(message, "generation_id", -1)
        try:
            self._check_commit_in_transaction(version, message, generation)
        except KafkaError as error:
            self._refuse_commit(message, generation, error.code, message.producer_id, token)
            return
        self._context.out.producer = ProducerStamp(message.producer_id, message.producer_epoch)
        self._accept_commit(message, message.producer_id, token)

    def _check_commit_in_transaction(self, version: int, message: Any, generation: int) -> None:
        if not message.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if message.producer_id < 0 or message.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        group = self._groups.groups.get(message.group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif isinstance(group, ClassicGroup):
            member_id = field(message, "member_id", "")
            instance_id = field(message, "group_instance_id", None)
            group.check_commit(member_id, instance_id, generation, True)
        elif version >= 3 and generation >= 0:
            try:
                group.check_commit(message.member_id, generation, None)
            except KafkaError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from error

    def _refuse_commit(
        self, message: Any, generation: int, error: ErrorCode, producer_id: int, token: Token
    ) -> None:
        if OffsetCommitRefused in self._context.events:
            member_id = field(message, "member_id", "")
            self._context.events.emit(
                OffsetCommitRefused(message.group_id, member_id, generation, error, producer_id)
            )
        self._context.out.reply(token, commit_failure(self._context.topics, message.topics, error))

    def _accept_commit(self, message: Any, producer_id: int, token: Token) -> None:
        """Of a sender that may commit: the records, and a response with an error for each partition."""
        out = self._context.out
        out.only_records = True
        expire_ms = -1
        retention = field(message, "retention_time", None)
        if retention is not None and (retention_ms := milliseconds(retention)) >= 0:
            expire_ms = out.now_ms + retention_ms
        topics = []
        is_told = OffsetsCommitted in self._context.events
        accepted: list[tuple[TopicPartition, int]] = []
        for topic in message.topics:
            name, identity = named(self._context.topics, topic)
            results = []
            for partition in topic.partitions:
                error = self._commit_one(message.group_id, name, partition, expire_ms)
                results.append({"partition_index": partition.partition_index, "error_code": error})
                if is_told and error is ErrorCode.NONE and name is not None:
                    key = TopicPartition(name, partition.partition_index)
                    accepted.append((key, partition.committed_offset))
            topics.append({**identity, "partitions": results})
        out.reply(token, {"topics": topics})
        if is_told:
            member_id = field(message, "member_id", "")
            self._context.events.emit(
                OffsetsCommitted(message.group_id, member_id, tuple(accepted), producer_id)
            )

    def _commit_one(
        self, group_id: str, name: str | None, partition: Any, expire_ms: int
    ) -> ErrorCode:
        context = self._context
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= partition.partition_index < context.topics.partitions(name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata or ""
        if len(metadata) > context.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=field(partition, "committed_leader_epoch", -1),
            metadata=metadata,
            commit_timestamp=context.out.now_ms,
            expire_timestamp=expire_ms,
            topic_id=context.topics.id_of(name) or ZERO_UUID,
        )
        key = OffsetCommitKey(group=group_id, topic=name, partition=partition.partition_index)
        # Only version 1 has the time when an offset expires.
        context.out.records.append(put(key, value, 1 if expire_ms >= 0 else None))
        return ErrorCode.NONE

    # -- OffsetFetch --------------------------------------------------------------------------------------

    def fetch(self, version: int, request: GroupRequest, token: Token) -> None:
        """OffsetFetch 1-10, one group of it; `request.message` is (the group's entry, require_stable)."""
        entry, stable = request.message
        group = self._groups.groups.get(entry.group_id)
        member_id, epoch = field(entry, "member_id", None), field(entry, "member_epoch", -1)
        reply = {"group_id": entry.group_id, "topics": (), "error_code": ErrorCode.NONE}
        if isinstance(group, ConsumerGroup) and (member_id or epoch >= 0):
            try:
                group.check_epoch(member_id or "", epoch)
            except KafkaError as error:
                self._context.out.reply(token, {**reply, "error_code": error.code})
                return
        if entry.topics is None:
            topics = self._fetch_all(entry.group_id, version >= 10, stable)
        else:
            topics = [self._fetch_topic(entry.group_id, topic, stable) for topic in entry.topics]
        self._context.out.reply(token, {**reply, "topics": topics})

    def _fetch_topic(self, group_id: str, topic: Any, stable: bool) -> dict[str, Any]:
        name, identity = named(self._context.topics, topic)
        return {
            **identity,
            "partitions": [
                no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else self._fetch_one(group_id, TopicPartition(name, index), stable)
                for index in topic.partition_indexes
            ],
        }

    def _fetch_all(self, group_id: str, by_id: bool, stable: bool) -> list[dict[str, Any]]:
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for partition in self.offsets.of(group_id):
            answer = self._fetch_one(group_id, partition, stable)
            by_topic.setdefault(partition.topic, []).append(answer)
        answers: list[dict[str, Any]] = []
        for name, partitions in by_topic.items():
            topic_id = self._context.topics.id_of(name)
            if not by_id:
                answers.append({"name": name, "partitions": partitions})
            elif topic_id is not None:
                answers.append({"topic_id": topic_id, "partitions": partitions})
        return answers

    def _fetch_one(self, group_id: str, partition: TopicPartition, stable: bool) -> dict[str, Any]:
        if stable and self.offsets.is_pending(group_id, partition):
            if UnstableOffset in self._context.events:
                self._context.events.emit(UnstableOffset(group_id, partition))
            return no_offset(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.offsets.of(group_id).get(partition)
        if committed is None or is_stale(self._context.topics, partition, committed):
            return no_offset(partition.partition, ErrorCode.NONE)
        return {
            "partition_index": partition.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "error_code": ErrorCode.NONE,
        }

    # -- OffsetDelete, and offsets that are deleted without a request --------------------------------------

    def delete(self, version: int, request: GroupRequest, token: Token) -> None:
        """OffsetDelete 0: of topics that the group no longer reads."""
        message = request.message
        try:
            if not message.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._groups.find(message.group_id)
            if not group.is_empty and not group.uses_consumer_protocol:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        except KafkaError as error:
            self._context.out.reply(token, {"error_code": error.code, "topics": ()})
            return
        self._context.out.only_records = True
        reads = self._groups.reads(group)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": self._delete_one(
                            group.id, reads, TopicPartition(topic.name, partition.partition_index)
                        ),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in message.topics
        ]
        self._context.out.reply(token, {"error_code": ErrorCode.NONE, "topics": topics})

    def _delete_one(
        self, group_id: str, reads: Callable[[str], bool], partition: TopicPartition
    ) -> ErrorCode:
        if not 0 <= partition.partition < self._context.topics.partitions(partition.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if reads(partition.topic):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if partition in self.offsets.of(group_id) or self.offsets.is_pending(group_id, partition):
            self._forget(group_id, partition)
        return ErrorCode.NONE

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
        self._context.out.records.append(delete(key))

    def delete_all(self, group_id: str) -> None:
        for partition in self.offsets.partitions(group_id):
            self._forget(group_id, partition)

    def delete_of_topics(self, names: Collection[str]) -> None:
        for group_id in self.offsets.groups():
            for partition in self.offsets.partitions(group_id):
                if partition.topic in names:
                    self._forget(group_id, partition)

    def delete_stale(self, records_max: int) -> None:
        """Topics may have been deleted while no coordinator could write that their offsets are gone. What exceeds
        `records_max` is deleted when offsets expire."""
        for group_id in self.offsets.groups():
            for partition in self.offsets.stale(group_id, self._context.topics):
                if len(self._context.out.records) >= records_max:
                    return
                self._forget(group_id, partition)

    def expire(self, group: Group) -> bool:
        """Delete the expired offsets of a group; whether it has no others."""
        now_ms, retention_ms = self._context.out.now_ms, self._context.config.offsets_retention_ms
        is_bare = not self.offsets.has_pending(group.id)
        reads = self._groups.reads(group)
        for partition, committed in self.offsets.of(group.id).items():
            base_ms = _expiry_base_ms(group, committed)
            is_over = is_stale(self._context.topics, partition, committed) or (
                base_ms is not None
                and not reads(partition.topic)
                and _is_expired(committed, base_ms, now_ms, retention_ms)
            )
            if is_over and not self.offsets.is_pending(group.id, partition):
                self._forget(group.id, partition)
            else:
                is_bare = False
        return is_bare


def named(topics: Topics, topic: Any) -> tuple[str | None, dict[str, Any]]:
    """The name of a topic that a request gives by name or (newer versions) by id, and how the response gives it."""
    if hasattr(topic, "topic_id"):
        topic_id: UUID = topic.topic_id or ZERO_UUID
        return topics.name_of(topic_id), {"topic_id": topic_id}
    return topic.name, {"name": topic.name}


def commit_failure(topics: Topics, asked: Iterable[Any], error: ErrorCode) -> dict[str, Any]:
    return {
        "topics": [
            {
                **named(topics, topic)[1],
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": error}
                    for partition in topic.partitions
                ],
            }
            for topic in asked
        ]
    }


def no_offset(index: int, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def _expiry_base_ms(group: Group, committed: OffsetAndMetadata) -> int | None:
    """From when an offset's age counts (KIP-211); None while it cannot expire. Offsets of a group with
    members do not expire, except those of topics that no member reads."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return committed.commit_ms
    if group.is_empty:
        return group.state_since_ms if group.state_since_ms >= 0 else committed.commit_ms
    if group.state is ClassicGroupState.STABLE and group.subscribed is not None:
        return committed.commit_ms
    return None


def _is_expired(committed: OffsetAndMetadata, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms >= 0:
        return now_ms >= committed.expire_ms
    return now_ms - base_ms >= retention_ms
