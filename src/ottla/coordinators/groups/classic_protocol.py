"""The classic rebalance protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timeouts of members.

All members join. The coordinator selects a protocol that all of them support and makes one of them the leader. The leader
computes the assignment and sends it with its SyncGroup. The others get their part in the responses to theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.coordinators.groups.classic_group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
    Protocols,
)
from ottla.coordinators.groups.context import NO_MEMBER, GroupContext, GroupRequest, milliseconds
from ottla.coordinators.shard import Token
from ottla.events.coordination import (
    GroupRebalanced,
    MemberExpired,
    MemberMissedRebalance,
    StaticMemberReplaced,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member is kept while its first rebalance goes on."""

FindGroup = Callable[[str, bool], ClassicGroup]
"""(group id, create it if it does not exist); KafkaError GROUP_ID_NOT_FOUND."""


def _session(group: ClassicGroup, member_id: str) -> tuple[str, ...]:
    return ("session", group.id, member_id)


def _join_timer(group: ClassicGroup) -> tuple[str, ...]:
    return ("join", group.id)


def _sync_timer(group: ClassicGroup) -> tuple[str, ...]:
    return ("sync", group.id)


def join_failure(error: ErrorCode, member_id: str = NO_MEMBER) -> dict[str, Any]:
    return {
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": (),
    }


def sync_failure(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "protocol_type": None, "protocol_name": None, "assignment": b""}


def leaving_members(version: int, message: Any) -> list[tuple[str, str | None]]:
    """(member id, instance id) of each member that LeaveGroup names."""
    if version < 3:
        return [(message.member_id, None)]
    return [(each.member_id, each.group_instance_id) for each in message.members]


def leave_reply(version: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    if version < 3:
        return {"error_code": results[0]["error_code"]}
    return {"error_code": ErrorCode.NONE, "members": results}


class ClassicProtocol:
    """The rebalance of classic groups. One class, since each request and each timeout may begin or end a rebalance, and
    both answer requests that wait for it."""

    def __init__(self, context: GroupContext, find: FindGroup) -> None:
        self._context = context
        self._find = find

    # -- JoinGroup ----------------------------------------------------------------------------------------

    def join(self, version: int, request: GroupRequest, token: Token) -> None:
        """JoinGroup 0-9. v4: a new member is first given its id (KIP-394). v5: static members (KIP-345).
        v9: a static leader that came back may keep the assignment it has (KIP-814)."""
        message = request.message
        member_id = message.member_id
        try:
            self._check_join(message)
            group = self._find(message.group_id, not member_id)
            if not self._has_room(group, member_id):
                group.remove(member_id)
                self._context.timers.cancel(_session(group, member_id))
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            names = [protocol.name for protocol in message.protocols]
            if not group.supports(message.protocol_type, names):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member_id:
                self._join_known(group, request, token)
            else:
                self._join_new(group, version, request, token)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if error.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
                member_id = NO_MEMBER
            self._context.out.reply(token, join_failure(error.code, member_id))

    def _check_join(self, message: Any) -> None:
        if not message.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        config = self._context.config
        session_ms = milliseconds(message.session_timeout)
        if not config.min_session_timeout_ms <= session_ms <= config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._context.config.max_size
        member = group.members.get(member_id)
        if group.is_empty:
            return True
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or len(group.joining) < size_max
        return member is not None or len(group.members) < size_max

    def _join_new(
        self, group: ClassicGroup, version: int, request: GroupRequest, token: Token
    ) -> None:
        instance_id = field(request.message, "group_instance_id", None)
        new_id = f"{instance_id or request.client_id}-{self._context.new_id()}"
        if instance_id is not None and instance_id in group.static:
            self._replace_static(group, version, instance_id, new_id, request, token)
        elif instance_id is None and version >= 4:
            group.pending[new_id] = None
            self._context.after(
                _session(group, new_id),
                milliseconds(request.message.session_timeout),
                partial(self._pending_expired, group, new_id),
            )
            self._context.out.reply(token, join_failure(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add(group, new_id, request, token)

    def _add(
        self, group: ClassicGroup, member_id: str, request: GroupRequest, token: Token
    ) -> None:
        message = request.message
        instance_id = field(message, "group_instance_id", None)
        member = ClassicMember(
            member_id,
            instance_id,
            request.client_id,
            request.client_host,
            _rebalance_timeout_ms(message),
            milliseconds(message.session_timeout),
            _protocols(message),
            is_new=True,
            heard_ms=self._context.out.now_ms,
        )
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is ClassicGroupState.EMPTY
        ):
            group.new_member_added = True
        group.add(member, message.protocol_type)
        group.await_join(member, token)
        logger.info(
            "member joined group=%s protocol=classic member=%s members=%d host=%s",
            group.id,
            member_id,
            len(group.members),
            request.client_host,
        )
        self._context.after(
            _session(group, member_id),
            NEW_MEMBER_JOIN_TIMEOUT_MS,
            partial(self._session_expired, group, member),
        )
        self._rebalance_or_complete(group, f"member {member_id} joined{_reason(message)}")

    def _join_known(self, group: ClassicGroup, request: GroupRequest, token: Token) -> None:
        message = request.message
        member_id = message.member_id
        instance_id = field(message, "group_instance_id", None)
        if member_id in group.pending and instance_id is None:
            self._add(group, member_id, request, token)
            return
        member = group.check_member(member_id, instance_id)
        member.heard_ms = self._context.out.now_ms
        if group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        protocols = _protocols(message)
        is_leader = group.leader == member_id
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            why = "joined"
        elif protocols != member.protocols:
            why = "changed its metadata"
        elif group.state is ClassicGroupState.STABLE and is_leader:
            why = "leads and asked for a rebalance"
        else:
            # The response was lost, or the member joined although nothing has changed.
            members = self._joined_members(group) if is_leader else ()
            self._context.out.reply(token, self._joined(group, member, members))
            return
        self._update(group, member, message, protocols)
        self._answer_join(group, member, join_failure(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        group.await_join(member, token)  # only its latest request gets the result
        self._rebalance_or_complete(group, f"member {member_id} {why}{_reason(message)}")

    def _update(
        self, group: ClassicGroup, member: ClassicMember, message: Any, protocols: Protocols
    ) -> None:
        group.change_protocols(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(message)
        member.session_timeout_ms = milliseconds(message.session_timeout)

    def _replace_static(
        self,
        group: ClassicGroup,
        version: int,
        instance_id: str,
        new_id: str,
        request: GroupRequest,
        token: Token,
    ) -> None:
        """A static member came back without its member id. The former member is fenced. The others rebalance only if
        something changes for them."""
        leader_before = group.leader
        old, member = group.replace_static(instance_id, new_id)
        if StaticMemberReplaced in self._context.events:
            replaced = StaticMemberReplaced(group.id, instance_id, old.id, new_id)
            self._context.events.emit(replaced)
        self._answer_join(group, old, join_failure(ErrorCode.FENCED_INSTANCE_ID, old.id))
        self._answer_sync(old, sync_failure(ErrorCode.FENCED_INSTANCE_ID))
        self._context.timers.cancel(_session(group, old.id))
        member.client_id, member.client_host = request.client_id, request.client_host
        member.heard_ms = self._context.out.now_ms
        self._update(group, member, request.message, _protocols(request.message))
        group.await_join(member, token)
        self._restart_session(group, member)
        if group.state is ClassicGroupState.STABLE:
            if group.select_protocol() != group.protocol:
                self._prepare(group, f"static member {instance_id} changed the protocol")
                return
            self._context.out.records.append(group.record())
            is_leader = group.leader == new_id
            if version >= 9:
                members = self._joined_members(group) if is_leader else ()
                reply = self._joined(group, member, members)
                reply["skip_assignment"] = is_leader
            else:
                # It must not take itself for the leader: its assignment would be ignored.
                reply = self._joined(group, member, ())
                reply["leader"] = leader_before
            self._answer_join(group, member, reply)
        elif group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._prepare(group, f"static member {instance_id} came back")
        else:
            self._complete_if_all_joined(group)

    # -- the rebalance --------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group)
        else:
            self._prepare(group, reason)

    def _prepare(self, group: ClassicGroup, reason: str) -> None:
        generation = group.generation + 1
        logger.info(
            "group rebalances group=%s protocol=classic generation=%d members=%d cause=%s",
            group.id,
            generation,
            len(group.members),
            reason,
        )
        if GroupRebalanced in self._context.events:
            rebalanced = GroupRebalanced(group.id, generation, reason, len(group.members))
            self._context.events.emit(rebalanced)
        group.rebalance_reason = reason
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if self._answer_sync(member, sync_failure(ErrorCode.REBALANCE_IN_PROGRESS)):
                    self._restart_session(group, member)
        group.pending_sync.clear()
        self._context.timers.cancel(_sync_timer(group))
        was_empty = group.is_empty
        group.go(ClassicGroupState.PREPARING_REBALANCE, self._context.out.now_ms)
        if was_empty:
            # Members of a new group join one by one: without a pause each would cause a rebalance.
            group.new_member_added = False
            delay_ms = self._context.config.initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_joined:
            self._complete_join(group)
        else:
            self._await_all(group)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def look() -> None:
            if group.new_member_added and remaining_ms > 0:
                group.new_member_added = False
                next_ms = min(self._context.config.initial_rebalance_delay_ms, remaining_ms)
                self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        if delay_ms == 0:
            look()
        else:
            self._context.after(_join_timer(group), delay_ms, look)

    def _await_all(self, group: ClassicGroup) -> None:
        self._context.after(
            _join_timer(group), group.rebalance_timeout_ms, partial(self._complete_join, group)
        )

    def _complete_if_all_joined(self, group: ClassicGroup) -> None:
        assert group.state is ClassicGroupState.PREPARING_REBALANCE
        if group.previous_state is not ClassicGroupState.EMPTY and group.has_all_joined:
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        """All have joined, or the time is over. Members that did not join are removed, except static ones."""
        self._context.timers.cancel(_join_timer(group))
        late = [
            member
            for member in group.members.values()
            if member.awaiting_join is None and member.instance_id is None
        ]
        for member in late:
            self._missed_rebalance(group, member.id, "JoinGroup")
            group.remove(member.id)
            self._context.timers.cancel(_session(group, member.id))
        if group.members and not group.elect_joined_leader():
            self._await_all(group)
            return
        group.begin_generation(self._context.out.now_ms)
        if group.is_empty:
            logger.info("group is empty group=%s protocol=classic", group.id)
            self._context.out.records.append(group.record())
            return
        everyone = self._joined_members(group)
        for member in group.members.values():
            members = everyone if member.id == group.leader else ()
            self._answer_join(group, member, self._joined(group, member, members))
            member.is_new = False
            self._restart_session(group, member)
            group.pending_sync[member.id] = None
        self._context.after(
            _sync_timer(group), group.rebalance_timeout_ms, partial(self._sync_expired, group)
        )

    def _joined_members(self, group: ClassicGroup) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "member_id": member.id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata(group.protocol),
            }
            for member in group.members.values()
        )

    def _joined(
        self, group: ClassicGroup, member: ClassicMember, members: tuple[dict[str, Any], ...]
    ) -> dict[str, Any]:
        return {
            "error_code": ErrorCode.NONE,
            "generation_id": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "leader": group.leader or "",
            "skip_assignment": False,
            "member_id": member.id,
            "members": members,
        }

    def _answer_join(
        self, group: ClassicGroup, member: ClassicMember, fields: dict[str, Any]
    ) -> None:
        token = group.take_join(member)
        if token is not None:
            self._context.out.reply(token, fields)

    def _answer_sync(self, member: ClassicMember, fields: dict[str, Any]) -> bool:
        if member.awaiting_sync is None:
            return False
        self._context.out.reply(member.awaiting_sync, fields)
        member.awaiting_sync = None
        return True

    # -- SyncGroup --------------------------------------------------------------------------------------------

    def sync(self, version: int, request: GroupRequest, token: Token) -> None:
        """SyncGroup 0-5. v5: the protocol must be the one that was chosen (KIP-559)."""
        try:
            group, member = self._check_sync(request.message)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._context.out.reply(token, sync_failure(error.code))
            return
        member.heard_ms = self._context.out.now_ms
        group.pending_sync.pop(member.id, None)
        if group.state is ClassicGroupState.STABLE:
            self._forget_sync_timer(group)
            self._context.out.reply(token, self._synced(group, member))
            return
        assert group.state is ClassicGroupState.COMPLETING_REBALANCE
        self._answer_sync(member, sync_failure(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = token
        if member.id == group.leader:
            self._assign(group, request.message)

    def _check_sync(self, message: Any) -> tuple[ClassicGroup, ClassicMember]:
        if not message.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._find(message.group_id, False)
        if group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(message.member_id, field(message, "group_instance_id", None))
        if message.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        for theirs, ours in (
            (field(message, "protocol_type", None), group.protocol_type),
            (field(message, "protocol_name", None), group.protocol),
        ):
            if theirs is not None and ours is not None and theirs != ours:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return group, member

    def _assign(self, group: ClassicGroup, message: Any) -> None:
        assigned = {each.member_id: bytes(each.assignment) for each in message.assignments}
        for member in group.members.values():
            member.assignment = assigned.get(member.id, b"")
        group.go(ClassicGroupState.STABLE, self._context.out.now_ms)
        logger.info(
            "group is stable group=%s protocol=classic generation=%d members=%d assignor=%s cause=%s",
            group.id,
            group.generation,
            len(group.members),
            group.protocol,
            group.rebalance_reason,
        )
        group.rebalance_reason = ""
        self._context.out.records.append(group.record())
        for member in group.members.values():
            if self._answer_sync(member, self._synced(group, member)):
                self._restart_session(group, member)
        self._forget_sync_timer(group)

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> dict[str, Any]:
        return {
            "error_code": ErrorCode.NONE,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "assignment": member.assignment,
        }

    def _forget_sync_timer(self, group: ClassicGroup) -> None:
        if not group.pending_sync:
            self._context.timers.cancel(_sync_timer(group))

    def _sync_expired(self, group: ClassicGroup) -> None:
        """Members that joined and did not send SyncGroup in time are removed."""
        late = list(group.pending_sync)
        for member_id in late:
            self._missed_rebalance(group, member_id, "SyncGroup")
            self._context.timers.cancel(_session(group, member_id))
            group.remove(member_id)
        if late:
            self._prepare(group, f"members {late} did not sync in time")

    # -- Heartbeat ----------------------------------------------------------------------------------------------

    def heartbeat(self, request: GroupRequest, token: Token) -> None:
        """Heartbeat 0-4."""
        message = request.message
        error = ErrorCode.NONE
        try:
            if not message.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._find(message.group_id, False)
            member = group.check_member(
                message.member_id, field(message, "group_instance_id", None)
            )
            if message.generation_id != group.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            self.heard_of(group, member)
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        except KafkaError as failure:
            error = failure.code
            if error is ErrorCode.GROUP_ID_NOT_FOUND:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        self._context.out.reply(token, {"error_code": error})

    def heard_of(self, group: ClassicGroup, member: ClassicMember) -> None:
        member.heard_ms = self._context.out.now_ms
        self._restart_session(group, member)

    def _restart_session(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._context.after(
            _session(group, member.id),
            member.session_timeout_ms,
            partial(self._session_expired, group, member),
        )

    def restart_sessions(self, group: ClassicGroup) -> None:
        """After loading: each member gets its full session timeout, since it could not reach this coordinator before."""
        for member in group.members.values():
            self._restart_session(group, member)

    def _session_expired(self, group: ClassicGroup, member: ClassicMember) -> None:
        if member.has_satisfied_heartbeat:
            return  # its session starts with the response that it waits for
        logger.info(
            "member expired group=%s protocol=classic member=%s cause=session timeout_ms=%d",
            group.id,
            member.id,
            member.session_timeout_ms,
        )
        if MemberExpired in self._context.events:
            self._context.events.emit(MemberExpired(group.id, member.id, "session timeout"))
        self._remove(group, member)
        self._after_removal(group, f"the session of member {member.id} expired")

    def _missed_rebalance(self, group: ClassicGroup, member_id: str, request: str) -> None:
        logger.info(
            "member expired group=%s protocol=classic member=%s cause=rebalance waited_for=%s",
            group.id,
            member_id,
            request,
        )
        if MemberMissedRebalance in self._context.events:
            missed = MemberMissedRebalance(group.id, member_id, group.generation, request)
            self._context.events.emit(missed)

    def _pending_expired(self, group: ClassicGroup, member_id: str) -> None:
        group.pending.pop(member_id, None)
        self._after_removal(group, "")

    def _remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._answer_join(group, member, join_failure(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, sync_failure(ErrorCode.UNKNOWN_MEMBER_ID))
        self._context.timers.cancel(_session(group, member.id))
        group.remove(member.id)

    def _after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Without a reason only a pending member was removed, which causes no rebalance."""
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group)
        elif reason and not group.is_empty:
            self._prepare(group, reason)

    # -- LeaveGroup -----------------------------------------------------------------------------------------------

    def leave(self, version: int, request: GroupRequest, token: Token) -> None:
        """LeaveGroup 0-5. v3: several members at once, also by their instance ids (KIP-345)."""
        message = request.message
        if not message.group_id:
            self._context.out.reply(
                token, {"error_code": ErrorCode.INVALID_GROUP_ID, "members": ()}
            )
            return
        results = []
        group: ClassicGroup | None
        try:
            group = self._find(message.group_id, False)
        except KafkaError:
            group = None
        gone = []
        for member_id, instance_id in leaving_members(version, message):
            error = ErrorCode.NONE
            try:
                if group is None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._leave_one(group, member_id, instance_id)
                gone.append(instance_id or member_id)
            except KafkaError as failure:
                error = failure.code
            results.append(
                {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            )
        self._context.out.reply(token, leave_reply(version, results))
        if group is not None and gone:
            for member_id in gone:
                logger.info(
                    "member left group=%s protocol=classic member=%s members=%d",
                    group.id,
                    member_id,
                    len(group.members),
                )
            self._after_removal(group, f"{', '.join(gone)} left")

    def _leave_one(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> None:
        if not member_id:
            known = group.static.get(instance_id or "")
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = known
        if member_id in group.pending:
            del group.pending[member_id]
            self._context.timers.cancel(_session(group, member_id))
            return
        self._remove(group, group.check_member(member_id, instance_id))

    def take(self, group: ClassicGroup, why: str) -> None:
        """A consumer group has become this classic group: it rebalances at once."""
        self.restart_sessions(group)
        self._prepare(group, why)

    def give_away(self, group: ClassicGroup) -> None:
        """The group becomes a consumer group: members that wait for a response are told to join again."""
        for member in group.members.values():
            self._answer_join(
                group, member, join_failure(ErrorCode.REBALANCE_IN_PROGRESS, member.id)
            )
            self._answer_sync(member, sync_failure(ErrorCode.REBALANCE_IN_PROGRESS))
        self.forget(group)

    def forget(self, group: ClassicGroup) -> None:
        """The group is deleted: cancel its timers."""
        for member_id in (*group.members, *group.pending):
            self._context.timers.cancel(_session(group, member_id))
        self._context.timers.cancel(_join_timer(group))
        self._context.timers.cancel(_sync_timer(group))


def _protocols(message: Any) -> Protocols:
    """One that is named twice counts once: more members would seem to have it than there are, and none could be chosen."""
    named: dict[str, bytes] = {}
    for protocol in message.protocols:
        named.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(named.items())


def _rebalance_timeout_ms(message: Any) -> int:
    """JoinGroup v0 has none: the session timeout serves for both."""
    return milliseconds(field(message, "rebalance_timeout", message.session_timeout))


def _reason(message: Any) -> str:
    """The client's reason for joining (KIP-800)."""
    reason = field(message, "reason", None)
    return f": {reason[:255]}" if reason else ""
