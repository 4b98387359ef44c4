"""ListGroups, DescribeGroups and ConsumerGroupDescribe: groups as tools show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ottla.coordinators.groups.classic_group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinators.groups.context import GroupContext, GroupRequest
from ottla.coordinators.groups.group_metadata_manager import Group, GroupMetadataManager
from ottla.coordinators.shard import Token
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import field

UNKNOWN_OPERATIONS = -(2**31)
ALL_GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, Delete, Describe, DescribeConfigs, AlterConfigs: without ACLs, all of them."""

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Which protocol a member speaks, in ConsumerGroupDescribe."""


class GroupDescriber:
    """Answers questions about the groups of a shard. It changes nothing."""

    def __init__(self, context: GroupContext, manager: GroupMetadataManager) -> None:
        self._context = context
        self._manager = manager
        self._groups = manager.groups

    def list_groups(self, version: int, request: GroupRequest, token: Token) -> None:
        """ListGroups 0-5, this shard's part. v4: by state (KIP-518). v5: by type (KIP-848)."""
        states = {state.lower() for state in field(request.message, "states_filter", ())}
        types = {kind.lower() for kind in field(request.message, "types_filter", ())}
        groups = [
            {
                "group_id": group.id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state_name,
                "group_type": type_of(group),
            }
            for group in self._groups.values()
            if (not states or group.state_name.lower() in states)
            and (not types or type_of(group) in types)
        ]
        self._context.out.reply(token, {"error_code": ErrorCode.NONE, "groups": groups})

    def describe(self, version: int, request: GroupRequest, token: Token) -> None:
        """DescribeGroups 0-6, one group. v6: an unknown group is an error (KIP-1043). While a rebalance
        goes on, `error_message` names (without an error) the members it waits for."""
        group = self._groups.get(request.message)
        if not isinstance(group, ClassicGroup):
            self._context.out.reply(
                token, not_described(request.message, version, exists=group is not None)
            )
            return
        is_stable = group.state is ClassicGroupState.STABLE
        self._context.out.reply(
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
                        "member_assignment": member.assignment,
                    }
                    for member in group.members.values()
                ],
            },
        )

    def describe_consumers(self, version: int, request: GroupRequest, token: Token) -> None:
        """ConsumerGroupDescribe 0-1, one group. v1: which protocol each member speaks."""
        group = self._groups.get(request.message)
        if not isinstance(group, ConsumerGroup):
            unnamed, unknown = ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND
            failure = {
                "group_id": request.message,
                "error_code": unknown if request.message else unnamed,
                "error_message": _not_found(request.message, "consumer", group is not None),
            }
            self._context.out.reply(token, failure)
            return
        self._context.out.reply(
            token,
            {
                "error_code": ErrorCode.NONE,
                "error_message": _explanation_of_consumers(group),
                "group_id": group.id,
                "group_state": group.state_name,
                "group_epoch": group.epoch,
                "assignment_epoch": group.assignment_epoch,
                "assignor_name": self._manager.consumer.assignor_of(group),
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
            if (name := self._context.topics.name_of(id)) is not None
        ]


def type_of(group: Group) -> str:
    return "classic" if isinstance(group, ClassicGroup) else "consumer"


def _not_found(group_id: str, kind: str, exists: bool) -> str:
    return f"Group {group_id} is not a {kind} group." if exists else f"Group {group_id} not found."


def not_described(group_id: str, version: int, *, exists: bool = False) -> dict[str, Any]:
    """`exists`: as a group of another kind."""
    is_error = version >= 6
    return {
        "error_code": ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
        "error_message": _not_found(group_id, "classic", exists) if is_error else None,
        "group_id": group_id,
        "group_state": "Dead",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _explanation(group: ClassicGroup) -> str | None:
    """The members that a rebalance waits for, and since when."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        late = [member for member in group.members.values() if member.awaiting_join is None]
        waits_for = "JoinGroup"
    elif group.state is ClassicGroupState.COMPLETING_REBALANCE:
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
    """The members that have not reconciled, and since when, as far as this coordinator has seen it."""
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
