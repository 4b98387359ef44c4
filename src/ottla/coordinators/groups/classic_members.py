"""Classic members of a consumer group: they join, sync and send heartbeats as before, and follow the group's epochs.

A generation is the member's epoch. A heartbeat is answered with REBALANCE_IN_PROGRESS when there is a new target for the
member. JoinGroup reports the partitions that the member owns, and the response to SyncGroup has those it may own. A member
does not wait for others, and no member is the leader.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from ottla.coordinators.groups.classic_protocol import (
    join_failure,
    leave_reply,
    leaving_members,
    sync_failure,
)
from ottla.coordinators.groups.consumer_group import (
    JOINING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from ottla.coordinators.groups.consumer_protocol import ConsumerProtocol, join_timer, sync_timer
from ottla.coordinators.groups.context import GroupContext, GroupRequest, milliseconds
from ottla.coordinators.groups.group_records import ClassicMemberMetadata, SupportedProtocol
from ottla.coordinators.groups.migration import assignment_for, by_id, protocols_of
from ottla.coordinators.groups.subscription import PROTOCOL_TYPE, Subscription, read_subscription
from ottla.coordinators.shard import Token
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field


class MixedProtocol:
    """The classic protocol, spoken by members of a consumer group."""

    def __init__(self, context: GroupContext, consumer: ConsumerProtocol) -> None:
        self._context = context
        self._consumer = consumer

    # -- JoinGroup

    def join(self, group: ConsumerGroup, version: int, request: GroupRequest, token: Token) -> None:
        message = request.message
        member_id = message.member_id or f"{request.client_id}-{self._context.new_id()}"
        try:
            self._check_join(group, member_id, message)
            instance_id = field(message, "group_instance_id", None)
            if not message.member_id and instance_id is None and version >= 4:
                raise KafkaError(ErrorCode.MEMBER_ID_REQUIRED)
            subscription = read_subscription(bytes(message.protocols[0].metadata))
            if subscription is None:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            before, replaced = self._known(group, member_id, bool(message.member_id), instance_id)
            if replaced is not None and self._consumer.go_classic(group, [replaced]):
                # It was the last member of the consumer protocol: it must join the classic group like the others.
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
            member = _updated(before, request, subscription)
            owned = by_id(subscription.owned, self._context.topics)
            member = self._consumer.advance(group, before, member, replaced, owned, request.sees)
        except KafkaError as error:
            self._context.out.reply(token, join_failure(error.code, member_id))
            return
        self._context.timers.cancel(join_timer(group, member_id))
        self._expire(group, member, sync_timer(group, member_id), "did not sync in time")
        self._context.out.reply(
            token,
            {
                "error_code": ErrorCode.NONE,
                "generation_id": member.epoch,
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": message.protocols[0].name,
                "leader": "",
                "skip_assignment": False,
                "member_id": member_id,
                "members": (),
            },
        )

    def _check_join(self, group: ConsumerGroup, member_id: str, message: Any) -> None:
        config = self._context.config
        session_ms = milliseconds(message.session_timeout)
        if not config.min_session_timeout_ms <= session_ms <= config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if member_id not in group.members and len(group.members) >= config.consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = frozenset(protocol.name for protocol in message.protocols)
        others = [
            protocols_of(member.classic)
            for id, member in group.members.items()
            if member.classic is not None and id != member_id
        ]
        # All classic members need a protocol in common, for when the group becomes a classic one again.
        if message.protocol_type != PROTOCOL_TYPE or not names.intersection(*others):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _known(
        self, group: ConsumerGroup, member_id: str, has_id: bool, instance_id: str | None
    ) -> tuple[ConsumerMember, str | None]:
        """The member in its present state, and the id that it replaces if it is a static member that came back."""
        holder = None if instance_id is None else group.static.get(instance_id)
        if holder is not None and holder != member_id:
            if has_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            return self._consumer.take_over(group, group.members[holder], member_id), holder
        if instance_id is not None and holder is None and has_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        known = group.members.get(member_id)
        return (ConsumerMember(member_id) if known is None else known), None

    # -- SyncGroup, Heartbeat, LeaveGroup

    def sync(self, group: ConsumerGroup, request: GroupRequest, token: Token) -> None:
        message = request.message
        try:
            member = self._check(group, message)
            assert member.classic is not None
            name = member.classic.supported_protocols[0].name
            for theirs, ours in (
                (field(message, "protocol_type", None), PROTOCOL_TYPE),
                (field(message, "protocol_name", None), name),
            ):
                if theirs is not None and theirs != ours:
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if (
                self._consumer.epoch_to_reach(group) > member.epoch
                and member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                self._await_join(group, member)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            self._context.out.reply(token, sync_failure(error.code))
            return
        self._context.timers.cancel(sync_timer(group, member.id))
        self._consumer.restart_session(group, member)
        self._context.out.reply(
            token,
            {
                "error_code": ErrorCode.NONE,
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": name,
                "assignment": assignment_for(member, self._context.topics),
            },
        )

    def heartbeat(self, group: ConsumerGroup, request: GroupRequest, token: Token) -> None:
        error = ErrorCode.NONE
        try:
            member = self._check(group, request.message)
            self._consumer.restart_session(group, member)
            if (
                member.epoch < self._consumer.epoch_to_reach(group)
                or member.state is MemberState.UNREVOKED_PARTITIONS
                or (
                    member.state is MemberState.UNRELEASED_PARTITIONS
                    and group.is_released_for(member)
                )
            ):
                self._await_join(group, member)
                error = ErrorCode.REBALANCE_IN_PROGRESS
        except KafkaError as failure:
            error = failure.code
        self._context.out.reply(token, {"error_code": error})

    def leave(
        self, group: ConsumerGroup, version: int, request: GroupRequest, token: Token
    ) -> None:
        results = []
        gone: list[str] = []
        for member_id, instance_id in leaving_members(version, request.message):
            error = ErrorCode.NONE
            try:
                known_id = member_id or group.static.get(instance_id or "", "")
                self._member(group, known_id, instance_id)
                gone.append(known_id)
            except KafkaError as failure:
                error = failure.code
            results.append(
                {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            )
        if gone:
            self._consumer.remove(group, gone)
        self._context.out.reply(token, leave_reply(version, results))

    def _check(self, group: ConsumerGroup, message: Any) -> ConsumerMember:
        instance_id = field(message, "group_instance_id", None)
        member = self._member(group, message.member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if message.generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is not None:
            holder = group.static.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = group.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member must join. Its rebalance timeout counts from the first response that says so."""
        key = join_timer(group, member.id)
        if self._context.timers.at(key) == inf:
            self._expire(group, member, key, "did not join in time")

    def _expire(
        self, group: ConsumerGroup, member: ConsumerMember, key: tuple[str, ...], why: str
    ) -> None:
        self._context.after(
            key,
            member.rebalance_timeout_ms,
            partial(self._consumer.expired, group.id, member.id, None, why),
        )


def _updated(
    member: ConsumerMember, request: GroupRequest, subscription: Subscription
) -> ConsumerMember:
    """The member with the fields of its JoinGroup."""
    message = request.message
    session_ms = milliseconds(message.session_timeout)
    rebalance = field(message, "rebalance_timeout", message.session_timeout)
    return replace(
        member,
        instance_id=field(message, "group_instance_id", None),
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=milliseconds(rebalance),
        topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        regex=None,
        assignor=None,
        epoch=member.epoch if member.epoch >= JOINING else JOINING,
        classic=ClassicMemberMetadata(
            session_timeout_ms=session_ms,
            supported_protocols=tuple(
                SupportedProtocol(name=each.name, metadata=bytes(each.metadata))
                for each in message.protocols
            ),
        ),
    )
