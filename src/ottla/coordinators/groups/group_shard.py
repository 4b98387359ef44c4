"""The coordinator of all groups that hash to one partition of `__consumer_offsets`.

Offsets and groups of the consumer protocol are what the records say. A classic group's state leads and its
record follows: only while the shard is loaded do records make classic groups; from then on such a group is changed
by what its members do, and written down.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.coordinators.groups import offsets
from ottla.coordinators.groups.classic_group import ClassicGroup, State
from ottla.coordinators.groups.classic_members import MixedProtocol
from ottla.coordinators.groups.classic_protocol import ClassicProtocol
from ottla.coordinators.groups.consumer_group import (
    LEAVING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedPattern,
    from_record,
)
from ottla.coordinators.groups.consumer_protocol import ConsumerProtocol
from ottla.coordinators.groups.context import Asked, Desk, GroupConfig, Outbox, Topics
from ottla.coordinators.groups.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    delete,
    read_record,
)
from ottla.coordinators.groups.migration import can_be_classic, downgraded, records_of, upgraded
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp, Token
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field
from ottla.wire.record_codec import CoordinatorKey, CoordinatorValue, MalformedRecord

logger = logging.getLogger(__name__)

UNKNOWN_OPERATIONS = -(2**31)
ALL_GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, Delete, Describe, DescribeConfigs, AlterConfigs: without ACLs, all of them."""

EXPIRED_AT_ONCE_MAX = 1000
"""Offsets deleted in one batch; what is left comes right after."""

FAILED_TIMER_RETRY_MS = 30_000

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Which protocol a member speaks, in ConsumerGroupDescribe."""

_EXPIRY = ("expiry",)

Command = Callable[[int, Asked, Token], None]
Group = ClassicGroup | ConsumerGroup


class GroupShard:
    """See `shard.Shard`. Messages are `Asked`; of requests about several groups, the part about one: its
    id (DescribeGroups, DeleteGroups), or the group's entry (OffsetFetch)."""

    def __init__(self, config: GroupConfig, topics: Topics, new_id: Callable[[], str]) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._desk = Desk(config, topics, new_id)
        self._is_loaded = False
        self._classic = ClassicProtocol(self._desk, self._classic_group)
        self._consumer = ConsumerProtocol(self._desk, self._consumer_group, self._go_classic)
        self._mixed = MixedProtocol(self._desk, self._consumer)
        self._commands: dict[int, Command] = {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_in_transaction,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.OFFSET_DELETE: self._delete_offsets,
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.DELETE_GROUPS: self._delete,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._describe_consumers,
        }

    # -- records ------------------------------------------------------------------------------------------

    def replay(
        self, offset: int, record: CoordinatorRecord, producer: ProducerStamp | None, now_ms: int
    ) -> None:
        """Kafka, too, goes on: one record that cannot be read, or makes no sense, must not take all groups away."""
        try:
            found = read_record(record)
        except MalformedRecord as error:
            logger.error("record %d of a group coordinator is left out: %s", offset, error)
            return
        if found is None:
            return
        key, value = found
        try:
            self._replay(offset, key, value, producer)
        except Exception:
            logger.exception("record %d of a group coordinator is left out: %s", offset, key)

    def _replay(
        self,
        offset: int,
        key: CoordinatorKey,
        value: CoordinatorValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(offset, key, value, producer)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        elif hasattr(key, "group_id"):
            self._replay_consumer(key.group_id, key, value)

    def _replay_classic(self, id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            group = self.groups.get(id)
            if isinstance(group, ClassicGroup):
                del self.groups[id]
                self._classic.forget(group)
        elif not self._is_loaded:
            self.groups[id] = ClassicGroup.from_record(id, value)

    def _replay_consumer(
        self, id: str, key: CoordinatorKey, value: CoordinatorValue | None
    ) -> None:
        group = self.groups.get(id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # of a group that is gone
            group = self.groups[id] = ConsumerGroup(id)
        match key, value:
            case ConsumerGroupMetadataKey(), None:
                del self.groups[id]
            case _, ConsumerGroupMetadataValue():
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupMemberMetadataKey(), None:
                group.remove_member(key.member_id)
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
                group.put_member(member.with_metadata(value))
            case ConsumerGroupTargetAssignmentMetadataKey(), None:
                group.assignment_epoch = 0
            case _, ConsumerGroupTargetAssignmentMetadataValue():
                group.assignment_epoch = value.assignment_epoch
            case ConsumerGroupTargetAssignmentMemberKey(), None:
                group.target.pop(key.member_id, None)
            case (
                ConsumerGroupTargetAssignmentMemberKey(),
                ConsumerGroupTargetAssignmentMemberValue(),
            ):
                group.target[key.member_id] = from_record(value.topic_partitions)
            case ConsumerGroupCurrentMemberAssignmentKey(), None:
                self._replay_released(group, key.member_id)
            case (
                ConsumerGroupCurrentMemberAssignmentKey(),
                ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
                group.put_member(member.with_assignment(value))
            case ConsumerGroupRegularExpressionKey(), None:
                group.patterns.pop(key.regular_expression, None)
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                group.patterns[key.regular_expression] = ResolvedPattern(
                    value.topics, value.version, value.timestamp
                )

    def _replay_released(self, group: ConsumerGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            released = replace(
                member,
                epoch=LEAVING,
                previous_epoch=LEAVING,
                state=MemberState.STABLE,
                assigned={},
                revoking={},
            )
            group.put_member(released)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        self.offsets.end_transaction(producer.producer_id, committed)

    # -- the shard's life ---------------------------------------------------------------------------------

    def loaded(self, now: float) -> Effects:
        self._is_loaded = True
        self._desk.out = Outbox(now, -1, only_records=True)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumer.restart_timers(group)
            elif group.awaits_first_rebalance:
                self._classic.take(group, "it was a consumer group")
            else:
                self._classic.restart_sessions(group)
        self._forget_stale()
        self._await_expiry(self._desk.config.offsets_retention_check_interval_ms)
        return self._desk.out.effects()

    def _forget_stale(self) -> None:
        """Topics may have been deleted while nobody could write down that their offsets are gone. What is too much
        for one batch goes when offsets expire."""
        out = self._desk.out
        for group_id in self.offsets.groups():
            for place in self.offsets.stale(group_id, self._desk.topics):
                if len(out.records) >= EXPIRED_AT_ONCE_MAX:
                    return
                offsets.forget(out, group_id, place)

    def handle(
        self, api_key: int, version: int, message: Any, token: Token, now: float, now_ms: int
    ) -> Effects:
        self._desk.out = Outbox(now, now_ms)
        self._commands[api_key](version, message, token)
        return self._desk.out.effects()

    def tick(self, now: float, now_ms: int) -> Effects:
        self._desk.out = Outbox(now, now_ms)
        out = self._desk.out
        for name, action in self._desk.timers.due(now):
            decided = len(out.records), len(out.replies)
            try:
                action()
            except Exception:
                # Of one group: all others go on, and nothing is written of what was half decided.
                logger.exception("%s failed, and is tried again", " of ".join(name[:2]))
                del out.records[decided[0] :], out.replies[decided[1] :]
                self._desk.after(name, FAILED_TIMER_RETRY_MS, action)
        return out.effects()

    def next_deadline(self) -> float:
        return self._desk.timers.next_look()

    def topics_deleted(self, names: list[str], now: float, now_ms: int) -> Effects:
        """What was committed for topics that are gone means nothing for topics of the same name."""
        self._desk.out = Outbox(now, now_ms, only_records=True)
        for group_id in self.offsets.groups():
            for place in self.offsets.places(group_id):
                if place.topic in names:
                    offsets.forget(self._desk.out, group_id, place)
        return self._desk.out.effects()

    # -- groups -------------------------------------------------------------------------------------------

    def _group(self, id: str) -> Group:
        group = self.groups.get(id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} not found.")
        return group

    def _classic_group(self, id: str, create: bool) -> ClassicGroup:
        group = self.groups.get(id)
        if isinstance(group, ClassicGroup):
            return group
        if not create:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a classic group.")
        if group is not None:
            if not group.is_empty:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self._consumer.delete(group)
        created = self.groups[id] = ClassicGroup(id)
        return created

    def _consumer_group(self, id: str, create: bool) -> ConsumerGroup:
        """A new one becomes known with the replay of its first record."""
        group = self.groups.get(id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None and not create:
            # Its member should join anew, not give up.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {id} not found.")
        if group is not None:
            if create and not group.is_empty and self._may_upgrade(group):
                return self._go_consumer(group)
            if not create or not group.is_empty:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a consumer group."
                )
            self._desk.out.records.append(delete(GroupMetadataKey(group=id)))
        return ConsumerGroup(id)

    # -- from one protocol to the other (`migration`). As in all that is about classic groups, state leads and
    # records follow: replaying them changes nothing any more.

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        config = self._desk.config
        return (
            config.can_upgrade
            and group.uses_consumer_protocol
            and len(group.members) < config.consumer_max_size
        )

    def _go_consumer(self, group: ClassicGroup) -> ConsumerGroup:
        new = upgraded(group, self._desk.topics)
        logger.info("group %s goes over to the consumer protocol", group.id)
        self._classic.give_away(group)
        self.groups[group.id] = new
        self._desk.out.records.append(delete(GroupMetadataKey(group=group.id)))
        self._desk.out.records.extend(records_of(new))
        self._consumer.restart_timers(new)
        return new

    def _go_classic(self, group: ConsumerGroup, gone: Collection[str]) -> bool:
        config = self._desk.config
        if (
            not config.can_downgrade
            or not can_be_classic(group, gone)
            or len(group.members) - len(gone) > config.max_size
        ):
            return False
        logger.info("group %s goes over to the classic protocol", group.id)
        new = downgraded(group, gone, self._desk.topics, self._desk.out.now_ms)
        self._consumer.delete(group)
        self._desk.out.records.append(new.record())
        self.groups[group.id] = new
        self._classic.take(new, "its last member of the consumer protocol left")
        return True

    def _mixed_group(self, id: str) -> ConsumerGroup | None:
        """One that members of the classic protocol may have to do with."""
        group = self.groups.get(id)
        return group if isinstance(group, ConsumerGroup) and not group.is_empty else None

    def _join(self, version: int, asked: Asked, token: Token) -> None:
        """JoinGroup 0-9."""
        if (group := self._mixed_group(asked.message.group_id)) is not None:
            self._mixed.join(group, version, asked, token)
        else:
            self._classic.join(version, asked, token)

    def _sync(self, version: int, asked: Asked, token: Token) -> None:
        """SyncGroup 0-5."""
        if (group := self._mixed_group(asked.message.group_id)) is not None:
            self._mixed.sync(group, asked, token)
        else:
            self._classic.sync(version, asked, token)

    def _heartbeat(self, version: int, asked: Asked, token: Token) -> None:
        """Heartbeat 0-4."""
        if (group := self._mixed_group(asked.message.group_id)) is not None:
            self._mixed.heartbeat(group, asked, token)
        else:
            self._classic.heartbeat(asked, token)

    def _leave(self, version: int, asked: Asked, token: Token) -> None:
        """LeaveGroup 0-5."""
        if (group := self._mixed_group(asked.message.group_id)) is not None:
            self._mixed.leave(group, version, asked, token)
        else:
            self._classic.leave(version, asked, token)

    def _reads(self, group: Group) -> Callable[[str], bool]:
        """Whether some member reads a topic."""
        if group.is_empty:
            return lambda _: False
        if isinstance(group, ClassicGroup):
            return group.is_subscribed_to
        return group.subscribed().__contains__

    # -- offsets ------------------------------------------------------------------------------------------

    def _commit(self, version: int, asked: Asked, token: Token) -> None:
        """OffsetCommit 2-10. v9: members of either protocol (KIP-848). v10: topics by id (KIP-848)."""
        message = asked.message
        desk = self._desk
        generation = message.generation_id_or_member_epoch
        try:
            group = self.groups.get(message.group_id)
            if group is None:
                if generation >= 0:
                    raise KafkaError(
                        ErrorCode.GROUP_ID_NOT_FOUND
                        if version >= 9
                        else ErrorCode.ILLEGAL_GENERATION
                    )
            else:
                self._check_commit(group, version, message, generation)
        except KafkaError as error:
            desk.out.reply(token, offsets.commit_failure(desk.topics, message, error.code))
            return
        desk.out.only_records = True
        desk.out.reply(token, offsets.commit(desk, message.group_id, message))

    def _check_commit(self, group: Group, version: int, message: Any, generation: int) -> None:
        if isinstance(group, ConsumerGroup):
            group.check_commit(message.member_id, generation, version)
            return
        instance_id = field(message, "group_instance_id", None)
        group.check_commit(message.member_id, instance_id, generation, False)
        member = group.members.get(message.member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING):
            self._classic.heard_of(group, member)

    def _commit_in_transaction(self, version: int, asked: Asked, token: Token) -> None:
        """TxnOffsetCommit 0-5. v3: the committing member is checked (KIP-447)."""
        message = asked.message
        desk = self._desk
        generation = field(message, "generation_id", -1)
        try:
            if not message.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            if message.producer_id < 0 or message.producer_epoch < 0:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            group = self.groups.get(message.group_id)
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
        except KafkaError as error:
            desk.out.reply(token, offsets.commit_failure(desk.topics, message, error.code))
            return
        desk.out.only_records = True
        desk.out.producer = ProducerStamp(message.producer_id, message.producer_epoch)
        desk.out.reply(token, offsets.commit(desk, message.group_id, message))

    def _fetch(self, version: int, asked: Asked, token: Token) -> None:
        """OffsetFetch 1-10, one group of it; `asked.message` is (the group's entry, require_stable)."""
        entry, stable = asked.message
        group = self.groups.get(entry.group_id)
        member_id, epoch = field(entry, "member_id", None), field(entry, "member_epoch", -1)
        if isinstance(group, ConsumerGroup) and (member_id or epoch >= 0):
            try:
                group.check_epoch(member_id or "", epoch)
            except KafkaError as error:
                failure = {"group_id": entry.group_id, "topics": (), "error_code": error.code}
                self._desk.out.reply(token, failure)
                return
        topics = offsets.fetch(
            self.offsets, self._desk.topics, entry.group_id, entry.topics, version >= 10, stable
        )
        self._desk.out.reply(
            token, {"group_id": entry.group_id, "topics": topics, "error_code": ErrorCode.NONE}
        )

    def _delete_offsets(self, version: int, asked: Asked, token: Token) -> None:
        """OffsetDelete 0: of topics that the group no longer reads."""
        message = asked.message
        try:
            if not message.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._group(message.group_id)
            if not group.is_empty and not group.uses_consumer_protocol:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        except KafkaError as error:
            self._desk.out.reply(token, {"error_code": error.code, "topics": ()})
            return
        self._desk.out.only_records = True
        reads = self._reads(group)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": self._delete_offset(
                            group.id,
                            reads,
                            offsets.Place(topic.name, partition.partition_index),
                        ),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in message.topics
        ]
        self._desk.out.reply(token, {"error_code": ErrorCode.NONE, "topics": topics})

    def _delete_offset(
        self, group_id: str, reads: Callable[[str], bool], place: offsets.Place
    ) -> ErrorCode:
        if not 0 <= place.partition < self._desk.topics.partitions(place.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if reads(place.topic):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if place in self.offsets.of(group_id) or self.offsets.is_pending(group_id, place):
            offsets.forget(self._desk.out, group_id, place)
        return ErrorCode.NONE

    # -- expiry -------------------------------------------------------------------------------------------

    def _await_expiry(self, delay_ms: int) -> None:
        self._desk.after(_EXPIRY, delay_ms, self._expire)

    def _expire(self) -> None:
        """Offsets that nobody came back for, and groups that have nothing left."""
        out = self._desk.out
        for group in list(self.groups.values()):
            self._expire_offsets(group)
            if len(out.records) >= EXPIRED_AT_ONCE_MAX:
                self._await_expiry(1)
                return
        self._await_expiry(self._desk.config.offsets_retention_check_interval_ms)

    def _expire_offsets(self, group: Group) -> None:
        out, retention_ms = self._desk.out, self._desk.config.offsets_retention_ms
        is_bare = not self.offsets.has_pending(group.id)
        reads = self._reads(group)
        for place, committed in self.offsets.of(group.id).items():
            base_ms = offsets.expiry_base_ms(group, committed)
            is_over = offsets.is_stale(self._desk.topics, place, committed) or (
                base_ms is not None
                and not reads(place.topic)
                and offsets.is_expired(committed, base_ms, out.now_ms, retention_ms)
            )
            if is_over and not self.offsets.is_pending(group.id, place):
                offsets.forget(out, group.id, place)
            else:
                is_bare = False
        if is_bare and group.is_empty and not (isinstance(group, ClassicGroup) and group.pending):
            self._delete_group(group)

    def _delete_group(self, group: Group) -> None:
        if isinstance(group, ClassicGroup):
            self._desk.out.records.append(delete(GroupMetadataKey(group=group.id)))
        else:
            self._consumer.delete(group)

    # -- about groups -------------------------------------------------------------------------------------

    def _list(self, version: int, asked: Asked, token: Token) -> None:
        """ListGroups 0-5, this shard's part. v4: by state (KIP-518). v5: by type (KIP-848)."""
        states = {state.lower() for state in field(asked.message, "states_filter", ())}
        types = {kind.lower() for kind in field(asked.message, "types_filter", ())}
        groups = [
            {
                "group_id": group.id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state_name,
                "group_type": _type_of(group),
            }
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states)
            and (not types or _type_of(group) in types)
        ]
        self._desk.out.reply(token, {"error_code": ErrorCode.NONE, "groups": groups})

    def _describe(self, version: int, asked: Asked, token: Token) -> None:
        """DescribeGroups 0-6, one group. v6: an unknown group is an error (KIP-1043). While a rebalance
        goes on, `error_message` says (without an error) who holds it up."""
        group = self.groups.get(asked.message)
        if not isinstance(group, ClassicGroup):
            self._desk.out.reply(token, not_described(asked.message, version))
            return
        is_stable = group.state is State.STABLE
        self._desk.out.reply(
            token,
            {
                "error_code": ErrorCode.NONE,
                "error_message": _explanation(group),
                "group_id": group.id,
                "group_state": group.state.value,
                "protocol_type": group.protocol_type or "",
                "protocol_data": (group.protocol or "") if is_stable else "",
                "members": [
                    {
                        "member_id": member.id,
                        "group_instance_id": member.instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                        "member_assignment": member.assignment if is_stable else b"",
                    }
                    for member in group.members.values()
                ],
            },
        )

    def _describe_consumers(self, version: int, asked: Asked, token: Token) -> None:
        """ConsumerGroupDescribe 0-1, one group. v1: which protocol each member speaks."""
        group = self.groups.get(asked.message)
        if not isinstance(group, ConsumerGroup):
            failure = {
                "group_id": asked.message,
                "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
                "error_message": f"Group {asked.message} is not a consumer group.",
            }
            self._desk.out.reply(token, failure)
            return
        self._desk.out.reply(
            token,
            {
                "error_code": ErrorCode.NONE,
                "error_message": _explanation_of_consumers(group),
                "group_id": group.id,
                "group_state": group.state_name,
                "group_epoch": group.epoch,
                "assignment_epoch": group.assignment_epoch,
                "assignor_name": self._consumer.assignor_of(group),
                "members": [self._described(group, each) for each in group.members.values()],
            },
        )

    def _described(self, group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
        return {
            "member_id": member.id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": member.topics,
            "subscribed_topic_regex": member.regex,
            "assignment": {"topic_partitions": self._named(member.assigned)},
            "target_assignment": {"topic_partitions": self._named(group.target.get(member.id, {}))},
            "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        }

    def _named(self, assignment: Mapping[UUID, frozenset[int]]) -> list[dict[str, Any]]:
        return [
            {"topic_id": id, "topic_name": name, "partitions": sorted(numbers)}
            for id, numbers in sorted(assignment.items())
            if (name := self._desk.topics.name_of(id)) is not None
        ]

    def _delete(self, version: int, asked: Asked, token: Token) -> None:
        """DeleteGroups 0-2, one group: it must have no members; its offsets go with it."""
        group_id: str = asked.message
        error = ErrorCode.NONE
        try:
            group = self._group(group_id)
            if not group.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            self._desk.out.only_records = True
            for place in self.offsets.places(group_id):
                offsets.forget(self._desk.out, group_id, place)
            self._delete_group(group)
        except KafkaError as failure:
            error = failure.code
        self._desk.out.reply(token, {"group_id": group_id, "error_code": error})


def _type_of(group: Group) -> str:
    return "classic" if isinstance(group, ClassicGroup) else "consumer"


def not_described(group_id: str, version: int) -> dict[str, Any]:
    is_error = version >= 6
    return {
        "error_code": ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
        "error_message": f"Group {group_id} not found." if is_error else None,
        "group_id": group_id,
        "group_state": "Dead",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _explanation(group: ClassicGroup) -> str | None:
    """Who holds up a rebalance, and since when."""
    if group.state is State.PREPARING:
        late = [member for member in group.members.values() if member.awaiting_join is None]
        waits_for = "JoinGroup"
    elif group.state is State.COMPLETING:
        late = [group.members[id] for id in group.pending_sync]
        waits_for = "SyncGroup"
    else:
        return None
    return json.dumps(
        {
            "waits_for": waits_for,
            "since_ms": group.state_since_ms,
            "reason": group.rebalance_reason,
            "rebalance_timeout_ms": group.rebalance_timeout_ms,
            "leader": group.leader,
            "late": [
                {"member_id": member.id, "client_id": member.client_id, "heard_ms": member.heard_ms}
                for member in late
            ],
            "pending": list(group.pending),
        }
    )


def _explanation_of_consumers(group: ConsumerGroup) -> str | None:
    """Who holds up the reconciliation, and since when (as far as this coordinator has seen it)."""
    if group.state_name in ("Empty", "Stable"):
        return None
    late = [member for member in group.members.values() if not group.is_reconciled(member)]
    return json.dumps(
        {
            "waits_for": "ConsumerGroupHeartbeat",
            "since_ms": group.epoch_since_ms,
            "late": [
                {
                    "member_id": member.id,
                    "client_id": member.client_id,
                    "state": member.state.name,
                    "member_epoch": member.epoch,
                }
                for member in late
            ],
        }
    )
