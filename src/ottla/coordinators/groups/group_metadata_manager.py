"""The groups of one shard: made from records, found for requests, and led from one protocol to the other.

The state of a consumer group is what its records say. The state of a classic group leads and its record follows: records
make classic groups only while the shard is loaded. From then on the requests of its members change such a group, and the
result is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from ottla.coordinators.groups.classic_group import ClassicGroup, ClassicGroupState
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
from ottla.coordinators.groups.context import GroupContext, GroupRequest
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
    delete,
)
from ottla.coordinators.groups.migration import can_be_classic, downgraded, records_of, upgraded
from ottla.coordinators.shard import Token
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_codec import CoordinatorKey, CoordinatorValue

logger = logging.getLogger(__name__)

Group = ClassicGroup | ConsumerGroup


class GroupMetadataManager:
    """All groups of a shard, and the protocols that their members speak: classic, consumer, and a mixture of both."""

    def __init__(self, context: GroupContext) -> None:
        self.groups: dict[str, Group] = {}
        self._context = context
        self._is_loaded = False
        self._classic = ClassicProtocol(context, self._classic_group)
        self.consumer = ConsumerProtocol(context, self._consumer_group, self._downgrade)
        self._mixed = MixedProtocol(context, self.consumer)

    # -- replay -------------------------------------------------------------------------------------------

    def replay_offset(self, id: str) -> None:
        """A group that commits offsets and has no members is an empty classic one."""
        if id not in self.groups:
            self.groups[id] = ClassicGroup(id)

    def replay_classic(self, id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            group = self.groups.get(id)
            if isinstance(group, ClassicGroup):
                del self.groups[id]
                self._classic.forget(group)
        elif not self._is_loaded:
            self.groups[id] = ClassicGroup.from_record(id, value)

    def replay_consumer(self, id: str, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        group = self.groups.get(id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # of a deleted group
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

    # -- life ---------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        self._is_loaded = True
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self.consumer.restart_timers(group)
            elif group.awaits_first_rebalance:
                self._classic.take(group, "it was a consumer group")
            else:
                self._classic.restart_sessions(group)

    def rebalancing(self) -> int:
        """How many groups are in a rebalance."""
        return sum(map(_is_rebalancing, self.groups.values()))

    def delete(self, group: Group) -> None:
        if isinstance(group, ClassicGroup):
            self._context.out.records.append(delete(GroupMetadataKey(group=group.id)))
        else:
            self.consumer.delete(group)

    def heard_of(self, group: ClassicGroup, member_id: str) -> None:
        """A commit, too, shows that a member is alive."""
        member = group.members.get(member_id)
        if member is not None and group.state in (
            ClassicGroupState.STABLE,
            ClassicGroupState.PREPARING_REBALANCE,
        ):
            self._classic.heard_of(group, member)

    # -- finding ------------------------------------------------------------------------------------------

    def find(self, id: str) -> Group:
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
            self.consumer.delete(group)
        created = self.groups[id] = ClassicGroup(id)
        return created

    def _consumer_group(self, id: str, create: bool) -> ConsumerGroup:
        """A new group is in `groups` from the replay of its first record on."""
        group = self.groups.get(id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None and not create:
            # This error tells the member to join again.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {id} not found.")
        if group is not None:
            if create and not group.is_empty and self._can_upgrade(group):
                return self._upgrade(group)
            if not create or not group.is_empty:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {id} is not a consumer group."
                )
            self._context.out.records.append(delete(GroupMetadataKey(group=id)))
        return ConsumerGroup(id)

    # -- from one protocol to the other (`migration`). The state changes at once and the records follow; their replay
    # changes nothing any more.

    def _can_upgrade(self, group: ClassicGroup) -> bool:
        config = self._context.config
        return (
            config.can_upgrade
            and group.uses_consumer_protocol
            and len(group.members) < config.consumer_max_size
        )

    def _upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        new = upgraded(group, self._context.topics)
        logger.info("upgrading group to the consumer protocol group=%s", group.id)
        self._classic.give_away(group)
        self.groups[group.id] = new
        self._context.out.records.append(delete(GroupMetadataKey(group=group.id)))
        self._context.out.records.extend(records_of(new))
        self.consumer.restart_timers(new)
        return new

    def _downgrade(self, group: ConsumerGroup, gone: Collection[str]) -> bool:
        config = self._context.config
        if (
            not config.can_downgrade
            or not can_be_classic(group, gone)
            or len(group.members) - len(gone) > config.max_size
        ):
            return False
        logger.info("downgrading group to the classic protocol group=%s", group.id)
        new = downgraded(group, gone, self._context.topics, self._context.out.now_ms)
        self.consumer.delete(group)
        self._context.out.records.append(new.record())
        self.groups[group.id] = new
        self._classic.take(new, "its last member of the consumer protocol left")
        return True

    # -- membership ---------------------------------------------------------------------------------------

    def _mixed_group(self, id: str) -> ConsumerGroup | None:
        """A consumer group that may have members of the classic protocol."""
        group = self.groups.get(id)
        return group if isinstance(group, ConsumerGroup) and not group.is_empty else None

    def join(self, version: int, request: GroupRequest, token: Token) -> None:
        """JoinGroup 0-9."""
        if (group := self._mixed_group(request.message.group_id)) is not None:
            self._mixed.join(group, version, request, token)
        else:
            self._classic.join(version, request, token)

    def sync(self, version: int, request: GroupRequest, token: Token) -> None:
        """SyncGroup 0-5."""
        if (group := self._mixed_group(request.message.group_id)) is not None:
            self._mixed.sync(group, request, token)
        else:
            self._classic.sync(version, request, token)

    def heartbeat(self, version: int, request: GroupRequest, token: Token) -> None:
        """Heartbeat 0-4."""
        if (group := self._mixed_group(request.message.group_id)) is not None:
            self._mixed.heartbeat(group, request, token)
        else:
            self._classic.heartbeat(request, token)

    def leave(self, version: int, request: GroupRequest, token: Token) -> None:
        """LeaveGroup 0-5."""
        if (group := self._mixed_group(request.message.group_id)) is not None:
            self._mixed.leave(group, version, request, token)
        else:
            self._classic.leave(version, request, token)

    def reads(self, group: Group) -> Callable[[str], bool]:
        """Whether some member of the group reads a topic."""
        if group.is_empty:
            return lambda _: False
        if isinstance(group, ClassicGroup):
            return group.is_subscribed_to
        return group.subscribed().__contains__


def _is_rebalancing(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state in (
            ClassicGroupState.PREPARING_REBALANCE,
            ClassicGroupState.COMPLETING_REBALANCE,
        )
    return not group.are_all_reconciled
