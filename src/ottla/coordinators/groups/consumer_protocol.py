"""The consumer protocol (KIP-848): the heartbeat is the only request.

A member sends what has changed about it. The coordinator answers with the member's epoch and, when it has changed, with
the member's assignment. The coordinator makes the assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any
from uuid import UUID

from ottla.coordinators.groups.assignors import ASSIGNORS, Assignment, Subscriber
from ottla.coordinators.groups.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedPattern,
    Subscribed,
    from_request,
    is_part_of,
    reconcile,
    to_record,
    to_response,
    topics_hash,
    topics_of,
    topics_of_all,
)
from ottla.coordinators.groups.context import (
    GroupContext,
    GroupRequest,
    Sees,
    milliseconds,
    sees_all,
)
from ottla.coordinators.groups.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    delete,
    put,
)
from ottla.coordinators.shard import CoordinatorRecord, Token
from ottla.events.coordination import GroupRebalanced, MemberExpired, StaticMemberReplaced
from ottla.patterns.pace import TooManyPatterns
from ottla.patterns.re2 import BadPattern, compiled
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field

logger = logging.getLogger(__name__)

# Settings of single groups.
SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"

OTHER_PATTERNS_MAX = 4
"""A request matches at most so many patterns of other members again. Each may take milliseconds, and a group has room for
hundreds; the others' turn comes with the next heartbeats."""

FindGroup = Callable[[str, bool], ConsumerGroup]
"""(group id, create it if it does not exist); KafkaError if it does not exist or has another protocol."""
GoClassic = Callable[[ConsumerGroup, Collection[str]], bool]
"""(group, members that leave): whether the remaining members have become a classic group."""


def heartbeat_failure(error: KafkaError) -> dict[str, Any]:
    return {
        "error_code": error.code,
        "error_message": error.message or None,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


def _session(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("consumer session", group.id, member_id)


def _revocation(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("consumer revocation", group.id, member_id)


def _assignment(group: ConsumerGroup) -> tuple[str, ...]:
    """Set while it is too early for another assignment."""
    return ("consumer assignment", group.id)


def join_timer(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    """Of a classic member that must join."""
    return ("consumer join", group.id, member_id)


def sync_timer(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    """Of a classic member that has joined."""
    return ("consumer sync", group.id, member_id)


class ConsumerProtocol:
    """Members, epochs, target assignments and their reconciliation. They stay in one class because one heartbeat may
    change all of them, and its records must be written as one batch."""

    def __init__(self, context: GroupContext, find: FindGroup, go_classic: GoClassic) -> None:
        self._context = context
        self._find = find
        self.go_classic = go_classic

    def heartbeat(self, version: int, request: GroupRequest, token: Token) -> None:
        """ConsumerGroupHeartbeat 0-1. v1: regular expressions; the member makes its own id (KIP-1082)."""
        message = request.message
        try:
            self._check(version, request)
            if message.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                reply = self._leave(message)
            else:
                reply = self._beat(request)
        except KafkaError as error:
            reply = heartbeat_failure(error)
        self._context.out.reply(token, reply)

    def _check(self, version: int, request: GroupRequest) -> None:
        message = request.message

        def insist(holds: bool, why: str) -> None:
            if not holds:
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)

        epoch = message.member_epoch
        regex = field(message, "subscribed_topic_regex", None)
        insist(bool(message.group_id), "GroupId can't be empty.")
        insist(message.instance_id != "", "InstanceId can't be empty.")
        insist(message.rack_id != "", "RackId can't be empty.")
        insist(epoch >= LEAVING_FOR_A_WHILE, "MemberEpoch is invalid.")
        if epoch != JOINING or version >= 1:
            insist(bool(message.member_id), "MemberId can't be empty.")
        if epoch == LEAVING_FOR_A_WHILE:
            insist(message.instance_id is not None, "InstanceId can't be null.")
        if epoch == JOINING:
            insist(
                milliseconds(message.rebalance_timeout) != -1,
                "RebalanceTimeoutMs must be provided in first request.",
            )
            insist(
                message.topic_partitions is not None and not message.topic_partitions,
                "TopicPartitions must be empty when (re-)joining.",
            )
            insist(
                bool(message.subscribed_topic_names) or bool(regex),
                "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
            )
        assignors = self._context.config.consumer_assignors
        if message.server_assignor is not None and message.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {message.server_assignor} is not supported."
                f" Supported assignors: {', '.join(assignors)}.",
            )
        if regex:
            self._check_pattern(message.group_id, regex, request)

    def _check_pattern(self, group_id: str, regex: str, request: GroupRequest) -> None:
        """Whether the pattern can be matched against the present topics, unless the group has done so before. It is checked
        before anything changes: a refused request must leave no trace."""
        try:
            if regex in self._find(group_id, False).patterns:
                return
        except KafkaError:
            pass  # a group that is not a consumer group yet has no patterns
        try:
            request.select(regex, self._seen(request.sees), self._context.now)
        except TooManyPatterns as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error  # try again later
        except BadPattern as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{regex[:200]}` is not a valid regular expression: {error}.",
            ) from error

    # -- a heartbeat ----------------------------------------------------------------------------------------

    def _beat(self, request: GroupRequest) -> dict[str, Any]:
        message = request.message
        group = self._find(message.group_id, message.member_epoch == JOINING)
        owned = None if message.topic_partitions is None else from_request(message.topic_partitions)
        member_id = message.member_id or self._context.new_id()
        before, replaced = self._known(group, member_id, message, owned)
        updated = self._updated(before, request)
        member = self.advance(group, before, updated, replaced, owned, request.sees)
        reply: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "member_id": member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": self._context.topics.group_setting(group.id, HEARTBEAT_INTERVAL)
            or self._context.config.consumer_heartbeat_interval_ms,
            "assignment": None,
        }
        is_full = message.member_epoch == JOINING or (
            milliseconds(message.rebalance_timeout) != -1
            and message.subscribed_topic_names is not None
            and owned is not None
        )
        if is_full or member.assigned != before.assigned:
            reply["assignment"] = {"topic_partitions": to_response(member.assigned)}
        return reply

    def advance(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        replaced: str | None,
        owned: Assignment | None,
        sees: Sees,
    ) -> ConsumerMember:
        """Apply what a member reports about itself, make new targets if that changes something, and bring the member one
        step closer to its own target."""
        member_id = member.id
        is_new_to_group = member_id not in group.members
        if is_new_to_group or member.metadata() != before.metadata():
            self._context.out.records.append(member.metadata_record(group.id))
        changed = (is_new_to_group and replaced is None) or (
            (member.topics, member.regex, member.assignor)
            != (before.topics, before.regex, before.assignor)
        )
        epoch, patterns = self._group_epoch(group, member, replaced, changed, sees)
        size = len(group.members) + is_new_to_group - (replaced is not None)
        if epoch > group.assignment_epoch and self._may_assign(group):
            members = {id: each for id, each in group.members.items() if id != replaced}
            members[member_id] = member
            target = self._new_targets(group, members, patterns, epoch, replaced)[member_id]
            target_epoch = epoch
        else:
            target = group.target.get(replaced or member_id, {})
            target_epoch = group.assignment_epoch
            if replaced is not None:
                self._put_target(group, member_id, target)
            if epoch > target_epoch:
                # The next target has to wait. Until then nobody is given what he no longer subscribes to.
                wanted = self._ids_of(member.subscribed, patterns)
                target = {id: numbers for id, numbers in target.items() if id in wanted}
        if is_new_to_group and replaced is None:
            logger.info(
                "member joined group=%s protocol=consumer member=%s members=%d host=%s",
                group.id,
                member_id,
                size,
                member.client_host,
            )
        member = self._reconciled(group, member, replaced, target_epoch, target, owned)
        if not before.has_arrived(target_epoch) and (
            # The last member that has reached its target ends the rebalance.
            epoch == target_epoch and group.have_all_arrived(epoch, member, replaced)
        ):
            logger.info(
                "group is stable group=%s protocol=consumer epoch=%d members=%d",
                group.id,
                epoch,
                size,
            )
        self.restart_session(group, member)
        return member

    def _known(
        self, group: ConsumerGroup, member_id: str, message: Any, owned: Assignment | None
    ) -> tuple[ConsumerMember, str | None]:
        """The member in its present state, and the id that it replaces if it is a static member that came back."""
        epoch, instance_id = message.member_epoch, message.instance_id
        known = group.members.get(member_id)
        if instance_id is not None:
            holder = group.static.get(instance_id)
            if holder is not None and holder != member_id:
                if epoch != JOINING:
                    raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
                former = group.members[holder]
                if former.classic is None and former.epoch != LEAVING_FOR_A_WHILE:
                    raise KafkaError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {former.id} with instance id {instance_id} is still a member.",
                    )
                return self.take_over(group, former, member_id), holder
            if holder is None and epoch != JOINING:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if known is None:
            if epoch != JOINING:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if len(group.members) >= self._context.config.consumer_max_size:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The consumer group has reached its maximum capacity of"
                    f" {self._context.config.consumer_max_size} members.",
                )
            return ConsumerMember(member_id), None
        if epoch == JOINING:
            # The member starts again and owns nothing: its partitions are free.
            return replace(
                known, epoch=JOINING, state=MemberState.STABLE, assigned={}, revoking={}
            ), None
        # An answer with a new epoch may be lost. Then the member says again all that it has.
        is_repeated = (
            epoch == known.previous_epoch
            and owned is not None
            and is_part_of(owned, known.assigned)
        )
        if epoch != known.epoch and not (epoch < known.epoch and is_repeated):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member epoch is {known.epoch}, not {epoch}. The member must abandon all its"
                " partitions and rejoin.",
            )
        return known, None

    def take_over(
        self, group: ConsumerGroup, former: ConsumerMember, member_id: str
    ) -> ConsumerMember:
        """A static member comes back under another id and keeps its assignment."""
        assert former.instance_id is not None
        if StaticMemberReplaced in self._context.events:
            replaced = StaticMemberReplaced(group.id, former.instance_id, former.id, member_id)
            self._context.events.emit(replaced)
        self._forget_timers(group, former.id)
        self._delete_member(group, former.id)
        return replace(
            former,
            id=member_id,
            epoch=JOINING,
            previous_epoch=JOINING,
            state=MemberState.STABLE,
            revoking={},
        )

    def _updated(self, member: ConsumerMember, request: GroupRequest) -> ConsumerMember:
        """The member with the fields of the heartbeat; those that are absent stay as they were."""
        message = request.message
        changes: dict[str, Any] = {
            "client_id": request.client_id,
            "client_host": request.client_host,
            "classic": None,
        }
        if message.instance_id is not None:
            changes["instance_id"] = message.instance_id
        if message.rack_id is not None:
            changes["rack_id"] = message.rack_id
        if milliseconds(message.rebalance_timeout) != -1:
            changes["rebalance_timeout_ms"] = milliseconds(message.rebalance_timeout)
        if message.server_assignor is not None:
            changes["assignor"] = message.server_assignor
        if message.subscribed_topic_names is not None:
            changes["topics"] = tuple(sorted(dict.fromkeys(message.subscribed_topic_names)))
        if (regex := field(message, "subscribed_topic_regex", None)) is not None:
            changes["regex"] = regex or None
        return replace(member, **changes)

    # -- epochs and targets -----------------------------------------------------------------------------------

    def _group_epoch(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        replaced: str | None,
        changed: bool,
        sees: Sees,
    ) -> tuple[int, Mapping[str, ResolvedPattern]]:
        """The group's epoch, which rises if its members or their topics changed, and the topics that match the patterns
        of its members. `sees` says which topics the member that asks may know of."""
        topics = self._context.topics
        if not changed and group.seen_topics == topics.version:
            return group.epoch, group.patterns
        gone = [member.id] if replaced is None else [member.id, replaced]
        subscriptions = group.subscriptions_with(gone, [member])
        patterns = self._resolve(group, subscriptions, member.regex, sees)
        hashed = topics_hash(topics, topics_of_all(subscriptions, patterns))
        if all(
            regex in patterns and patterns[regex].version == topics.version
            for _, regex in subscriptions
            if regex
        ):
            group.seen_topics = topics.version
        if not changed and hashed == group.metadata_hash:
            return group.epoch, patterns
        cause = "members changed" if changed else "topics changed"
        size = len(group.members) + (member.id not in group.members) - (replaced is not None)
        return self._bump(group, hashed, cause, size), patterns

    def _bump(self, group: ConsumerGroup, hashed: int, cause: str, members: int) -> int:
        logger.info(
            "group rebalances group=%s protocol=consumer epoch=%d members=%d cause=%s",
            group.id,
            group.epoch + 1,
            members,
            cause,
        )
        if GroupRebalanced in self._context.events:
            rebalanced = GroupRebalanced(group.id, group.epoch + 1, cause, members)
            self._context.events.emit(rebalanced)
        group.epoch_since_ms = self._context.out.now_ms
        self._context.out.records.append(
            put(
                ConsumerGroupMetadataKey(group_id=group.id),
                ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=hashed),
            )
        )
        return group.epoch + 1

    def _resolve(
        self,
        group: ConsumerGroup,
        subscriptions: Iterable[Subscribed],
        own_regex: str | None = None,
        sees: Sees | None = None,
    ) -> dict[str, ResolvedPattern]:
        """Every pattern in use, matched against the present topics. Where rights are asked about, a pattern is matched only
        when a member that has it asks, with what that member may know of; until then it keeps its result. So it is
        when nobody asks (`sees` is None), and with all but a few others' patterns."""
        topics = self._context.topics
        resolved: dict[str, ResolvedPattern] = {}
        others = OTHER_PATTERNS_MAX if sees is sees_all else 0
        for regex in sorted({regex for _, regex in subscriptions if regex}):
            known = group.patterns.get(regex)
            is_old = known is None or known.version != topics.version
            if is_old and sees is not None and (others or regex == own_regex):
                others -= regex != own_regex
                known_names = None if known is None else known.topics
                names = self._matching(regex, known_names, sees)
                known = ResolvedPattern(names, topics.version, self._context.out.now_ms)
                if names != known_names:
                    self._context.out.records.append(_pattern_record(group, regex, known))
                else:
                    group.patterns[regex] = (
                        known  # only the version changed: match once for each version
                    )
            if known is not None:
                resolved[regex] = known
        for regex in group.patterns:
            if regex not in resolved:
                key = ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex)
                self._context.out.records.append(delete(key))
        return resolved

    def _seen(self, sees: Sees) -> Iterable[str]:
        names = self._context.topics.names()
        return names if sees is sees_all else [name for name in names if sees(name)]

    def _matching(self, regex: str, known: tuple[str, ...] | None, sees: Sees) -> tuple[str, ...]:
        """A pattern that has become too costly keeps its former result (at first: no topics). One member's pattern must not
        keep others from joining and leaving."""
        try:
            return compiled(regex).select(self._seen(sees))
        except BadPattern as error:
            logger.warning("pattern is not matched again pattern=%.200s error=%s", regex, error)
            return known or ()

    def _ids_of(
        self, subscribed: Subscribed, patterns: Mapping[str, ResolvedPattern]
    ) -> dict[UUID, str]:
        """The topics that there are, with their names."""
        names = topics_of(subscribed, patterns)
        ids = ((self._context.topics.id_of(name), name) for name in names)
        return {id: name for id, name in ids if id is not None}

    def _new_targets(
        self,
        group: ConsumerGroup,
        members: Mapping[str, ConsumerMember],
        patterns: Mapping[str, ResolvedPattern],
        epoch: int,
        replaced: str | None,
    ) -> dict[str, Assignment]:
        topics = self._context.topics
        partitions: dict[UUID, int] = {}
        ids_of: dict[Subscribed, frozenset[UUID]] = {}
        for subscribed in dict.fromkeys(member.subscribed for member in members.values()):
            ids = self._ids_of(subscribed, patterns)
            partitions |= {id: topics.partitions(name) for id, name in ids.items()}
            ids_of[subscribed] = frozenset(ids)
        subscribers: dict[str, Subscriber] = {}
        for id, member in members.items():
            target = group.target.get(id, {})
            if replaced is not None and id not in group.members:
                target = group.target.get(replaced, {})
            subscribers[id] = Subscriber(member.instance_id, ids_of[member.subscribed], target)
        targets = ASSIGNORS[self._assignor(members)](subscribers, partitions)
        for id in sorted(targets):
            if targets[id] != group.target.get(id):
                self._put_target(group, id, targets[id])
        self._context.out.records.append(
            put(
                ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id),
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
            )
        )
        interval_ms = self._assignment_interval_ms(group)
        if interval_ms:
            self._context.after(
                _assignment(group), interval_ms, partial(self._assign_again, group.id)
            )
        return targets

    def _assignment_interval_ms(self, group: ConsumerGroup) -> int:
        own = self._context.topics.group_setting(group.id, ASSIGNMENT_INTERVAL)
        return self._context.config.consumer_assignment_interval_ms if own is None else own

    def _may_assign(self, group: ConsumerGroup) -> bool:
        """Not again for a while after an assignment (KIP-1263). Members of a group come and go together, and the work
        for each of them grows with their number: once for all of them is enough."""
        return group.assignment_epoch == 0 or self._context.timers.at(_assignment(group)) == inf

    def epoch_to_reach(self, group: ConsumerGroup) -> int:
        """The epoch whose target a member gets that asks now."""
        return group.epoch if self._may_assign(group) else group.assignment_epoch

    def _assign_again(self, group_id: str) -> None:
        """For those who came or went meanwhile."""
        try:
            group = self._find(group_id, False)
        except KafkaError:
            return
        if group.members and group.epoch > group.assignment_epoch:
            self._new_targets(group, group.members, group.patterns, group.epoch, None)

    def _assignor(self, members: Mapping[str, ConsumerMember]) -> str:
        """The assignor that most members ask for; the first of the configured ones if no member does."""
        votes: dict[str, int] = {}
        for member in members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        if not votes:
            return self._context.config.consumer_assignors[0]
        return max(sorted(votes), key=lambda name: votes[name])

    def assignor_of(self, group: ConsumerGroup) -> str:
        return self._assignor(group.members)

    def _put_target(self, group: ConsumerGroup, member_id: str, target: Assignment) -> None:
        self._context.out.records.append(
            put(
                ConsumerGroupTargetAssignmentMemberKey(group_id=group.id, member_id=member_id),
                ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(target)),
            )
        )

    def _reconciled(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        replaced: str | None,
        target_epoch: int,
        target: Assignment,
        owned: Assignment | None,
    ) -> ConsumerMember:
        before = group.members.get(member.id)
        owners: Mapping[tuple[UUID, int], str] = group.owners
        if replaced is not None:  # it takes over the partitions of the former member
            owners = {slot: owner for slot, owner in owners.items() if owner != replaced}
        member = reconcile(owners, member, target_epoch, target, owned)
        if before is None or _position(member) != _position(before):
            self._context.out.records.append(member.assignment_record(group.id))
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._await_revocation(group.id, member)
            else:
                self._context.timers.cancel(_revocation(group, member.id))
        return member

    # -- leaving and expiry ---------------------------------------------------------------------------------------

    def _leave(self, message: Any) -> dict[str, Any]:
        group = self._find(message.group_id, False)
        member_id = message.member_id
        if message.instance_id is not None:
            holder = group.static.get(message.instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = group.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if message.member_epoch == LEAVING_FOR_A_WHILE:
            # Its partitions are kept for it until its session expires.
            gone = replace(member, epoch=LEAVING_FOR_A_WHILE, state=MemberState.STABLE, revoking={})
            logger.info(
                "static member left for a while, its partitions are kept group=%s protocol=consumer"
                " member=%s",
                group.id,
                member_id,
            )
            self._context.out.records.append(gone.assignment_record(group.id))
            self._context.timers.cancel(_revocation(group, member_id))
        else:
            logger.info(
                "member left group=%s protocol=consumer member=%s members=%d",
                group.id,
                member_id,
                len(group.members) - 1,
            )
            self.remove(group, [member_id])
        return {
            "error_code": ErrorCode.NONE,
            "member_id": member_id,
            "member_epoch": message.member_epoch,
            "heartbeat_interval": 0,
            "assignment": None,
        }

    def remove(self, group: ConsumerGroup, gone: Collection[str]) -> None:
        if self.go_classic(group, gone):
            return
        for member_id in gone:
            self._forget_timers(group, member_id)
            self._delete_member(group, member_id)
        subscriptions = group.subscriptions_with(dict.fromkeys(gone))
        patterns = self._resolve(group, subscriptions)
        hashed = topics_hash(self._context.topics, topics_of_all(subscriptions, patterns))
        left = len(group.members) - len(set(gone) & group.members.keys())
        self._bump(group, hashed, "members left", left)
        if not left:
            logger.info("group is empty group=%s protocol=consumer", group.id)

    def _delete_member(self, group: ConsumerGroup, member_id: str) -> None:
        ids = {"group_id": group.id, "member_id": member_id}
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey(**ids),
            ConsumerGroupTargetAssignmentMemberKey(**ids),
            ConsumerGroupMemberMetadataKey(**ids),
        ):
            self._context.out.records.append(delete(key))

    def restart_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._context.after(
            _session(group, member.id),
            self._session_timeout_ms(group, member),
            partial(self.expired, group.id, member.id, None, "session timeout"),
        )

    def _session_timeout_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        own = self._context.topics.group_setting(group.id, SESSION_TIMEOUT)
        return own or self._context.config.consumer_session_timeout_ms

    def _await_revocation(self, group_id: str, member: ConsumerMember) -> None:
        self._context.after(
            ("consumer revocation", group_id, member.id),
            member.rebalance_timeout_ms,
            partial(
                self.expired,
                group_id,
                member.id,
                member.epoch,
                "did not revoke its partitions in time",
            ),
        )

    def expired(self, group_id: str, member_id: str, epoch: int | None, why: str) -> None:
        try:
            group = self._find(group_id, False)
        except KafkaError:
            return
        member = group.members.get(member_id)
        if member is None or epoch not in (None, member.epoch):
            return
        logger.info(
            "member expired group=%s protocol=consumer member=%s cause=%s", group_id, member_id, why
        )
        if MemberExpired in self._context.events:
            self._context.events.emit(MemberExpired(group_id, member_id, why))
        self.remove(group, [member_id])

    def restart_timers(self, group: ConsumerGroup) -> None:
        """After loading, and after an upgrade from a classic group."""
        for member in group.members.values():
            self.restart_session(group, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._await_revocation(group.id, member)

    def _forget_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for timer in (_session, _revocation, join_timer, sync_timer):
            self._context.timers.cancel(timer(group, member_id))

    def delete(self, group: ConsumerGroup) -> None:
        """Write the records that delete a group with all its members."""
        self._context.timers.cancel(_assignment(group))
        for member_id in group.members:
            self._forget_timers(group, member_id)
            self._delete_member(group, member_id)
        for regex in group.patterns:
            key = ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex)
            self._context.out.records.append(delete(key))
        self._context.out.records.append(
            delete(ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id))
        )
        self._context.out.records.append(delete(ConsumerGroupMetadataKey(group_id=group.id)))


def _position(member: ConsumerMember) -> tuple[Any, ...]:
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def _pattern_record(group: ConsumerGroup, regex: str, found: ResolvedPattern) -> CoordinatorRecord:
    return put(
        ConsumerGroupRegularExpressionKey(group_id=group.id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=found.topics, version=found.version, timestamp=found.timestamp
        ),
    )
