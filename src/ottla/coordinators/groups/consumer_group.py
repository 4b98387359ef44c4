"""A group of the consumer protocol (KIP-848): its members, its epochs, and what each member may own when.

The group's epoch rises when members or topics change. The assignor then makes a target assignment for that epoch. Each
member reconciles with its target on its own: it first revokes the partitions that are no longer its own, and gets a new
partition once the former owner has revoked it. There is no barrier at which all members wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import blake2b
from typing import Any, TypeVar
from uuid import UUID

from ottla.coordinators.groups.assignors import Assignment
from ottla.coordinators.groups.context import Topics
from ottla.coordinators.groups.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    TopicIdPartitions,
    put,
)
from ottla.coordinators.shard import CoordinatorRecord
from ottla.wire.errors import ErrorCode, KafkaError

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Member epochs in requests of members that join or leave; the last one is for static members."""


T = TypeVar("T")
Subscribed = tuple[tuple[str, ...], str | None]
"""What a member subscribes to: topics, and a pattern."""


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions first."""
    UNRELEASED_PARTITIONS = 2
    """Other members still own partitions of its target."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Mapping[UUID, frozenset[int]] = field(default_factory=dict)
    revoking: Mapping[UUID, frozenset[int]] = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol (see `classic_members`)."""

    @property
    def subscribed(self) -> Subscribed:
        return self.topics, self.regex

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def has_arrived(self, epoch: int) -> bool:
        """At its target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=value.subscribed_topic_names,
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def metadata_record(self, group_id: str) -> CoordinatorRecord:
        key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id)
        return put(key, self.metadata())

    def assignment_record(self, group_id: str) -> CoordinatorRecord:
        return put(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.epoch,
                previous_member_epoch=self.previous_epoch,
                state=self.state,
                assigned_partitions=to_record(self.assigned),
                partitions_pending_revocation=to_record(self.revoking),
            ),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=from_record(value.assigned_partitions),
            revoking=from_record(value.partitions_pending_revocation),
        )


def to_record(assignment: Mapping[UUID, frozenset[int]]) -> tuple[TopicIdPartitions, ...]:
    return tuple(
        TopicIdPartitions(topic_id=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in sorted(assignment.items())
    )


def from_record(topics: Iterable[TopicIdPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in topics}


def from_request(topics: Iterable[Any]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def to_response(assignment: Mapping[UUID, frozenset[int]]) -> list[dict[str, Any]]:
    return [
        {"topic_id": topic, "partitions": sorted(numbers)}
        for topic, numbers in sorted(assignment.items())
    ]


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    topics: tuple[str, ...]
    version: int
    timestamp: int


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """Only the replay of records changes it, except for the fields that are not written."""

    id: str
    epoch: int = 0
    assignment_epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    """The member that owns a partition, or has still to revoke it."""
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    subscriptions: dict[Subscribed, int] = field(default_factory=dict)
    """How many members have each subscription. Most groups have one for all, and to look at every member whenever one of
    them comes or goes would make that quadratic."""
    settled: dict[int, int] = field(default_factory=dict)
    """How many members have reached their target of an epoch; kept for the same reason."""
    seen_topics: int = -1
    """Version of the topics at the last check for changes; not written."""
    epoch_since_ms: int = -1
    """When the epoch began; not written."""

    protocol_type = "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def uses_consumer_protocol(self) -> bool:
        return True

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if self.are_all_reconciled else "Reconciling"

    @property
    def are_all_reconciled(self) -> bool:
        return self.settled.get(self.assignment_epoch, 0) == len(self.members)

    def is_reconciled(self, member: ConsumerMember) -> bool:
        return member.has_arrived(self.assignment_epoch)

    def have_all_arrived(self, epoch: int, member: ConsumerMember, replaced: str | None) -> bool:
        """Whether all will be at their target of this epoch with `member` as it is here, in place of what it was
        before and of the one that it replaces."""
        known = [self.members[id] for id in (member.id, replaced) if id in self.members]
        arrived = self.settled.get(epoch, 0) - sum(each.has_arrived(epoch) for each in known)
        return member.has_arrived(epoch) and arrived == len(self.members) - len(known)

    def subscriptions_with(
        self, gone: Iterable[str], come: Iterable[ConsumerMember] = ()
    ) -> list[Subscribed]:
        """All subscriptions that there will be without and with these members."""
        counts = dict(self.subscriptions)
        for id in gone:
            if id in self.members:
                counts[self.members[id].subscribed] -= 1
        for member in come:
            counts[member.subscribed] = counts.get(member.subscribed, 0) + 1
        return [subscribed for subscribed, count in counts.items() if count]

    def is_released_for(self, member: ConsumerMember) -> bool:
        """Whether no other member owns a partition of the member's target."""
        return all(
            self.owners.get((topic, number), member.id) == member.id
            for topic, numbers in self.target.get(member.id, {}).items()
            for number in numbers
        )

    # -- replay

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.id)
        self._count(member, 1)
        if old is not None:
            self._count(old, -1)
            self._disown(old)
            if old.instance_id is not None and self.static.get(old.instance_id) == old.id:
                del self.static[old.instance_id]
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        for slot in _slots(member):
            self.owners[slot] = member.id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self._disown(member)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]

    def _count(self, member: ConsumerMember, by: int) -> None:
        _add(self.subscriptions, member.subscribed, by)
        if member.state is MemberState.STABLE:
            _add(self.settled, member.epoch, by)

    def _disown(self, member: ConsumerMember) -> None:
        for slot in _slots(member):
            if self.owners.get(slot) == member.id:
                del self.owners[slot]

    # -- what members subscribe to

    def subscribed(self) -> frozenset[str]:
        return topics_of_all(self.subscriptions, self.patterns)

    # -- offsets

    def check_epoch(self, member_id: str, epoch: int) -> None:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH
                if member.classic is None
                else ErrorCode.ILLEGAL_GENERATION
            )

    def check_commit(self, member_id: str, epoch: int, version: int | None) -> None:
        """`version` of an OffsetCommit; None in a transaction."""
        if epoch < 0 and self.is_empty:
            return
        member = self.members.get(member_id)
        speaks_new = member is not None and member.classic is None
        if speaks_new and version is not None and version < 9:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        self.check_epoch(member_id, epoch)


def _add(counts: dict[T, int], key: T, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def topics_of(subscribed: Subscribed, patterns: Mapping[str, ResolvedPattern]) -> list[str]:
    topics, regex = subscribed
    names = dict.fromkeys(topics)
    if regex and regex in patterns:
        names.update(dict.fromkeys(patterns[regex].topics))
    return sorted(names)


def topics_of_all(
    subscriptions: Iterable[Subscribed], patterns: Mapping[str, ResolvedPattern]
) -> frozenset[str]:
    return frozenset(name for each in subscriptions for name in topics_of(each, patterns))


def _slots(member: ConsumerMember) -> list[tuple[UUID, int]]:
    return [
        (topic, number)
        for part in (member.assigned, member.revoking)
        for topic, numbers in part.items()
        for number in sorted(numbers)
    ]


def topics_hash(topics: Topics, names: Iterable[str]) -> int:
    """Of the topics that an assignment depends on; never 0, which stands for no hash."""
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        topic_id = topics.id_of(name)
        if topic_id is not None:
            digest.update(topic_id.bytes + topics.partitions(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) or 1


# -- reconciliation -----------------------------------------------------------------------------------------


def reconcile(
    owners: Mapping[tuple[UUID, int], str],
    member: ConsumerMember,
    target_epoch: int,
    target: Mapping[UUID, frozenset[int]],
    owned: Mapping[UUID, frozenset[int]] | None,
) -> ConsumerMember:
    """The member one step closer to its target. `owners`: the present owner of each partition; `owned`: the partitions
    that the member reports, if it does."""
    if (
        member.state is MemberState.STABLE
        and member.epoch == target_epoch
        and all(topic in target for topic in member.assigned)
    ):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or _overlap(owned, member.revoking):
            return member
        epoch = min(epoch + 1, target_epoch)  # it has revoked what it had to for that epoch
    keeps: Assignment = {}
    gives_up: Assignment = {}
    gets: Assignment = {}
    has_unreleased = False
    for topic in sorted({*target, *member.assigned}):
        wanted = target.get(topic, frozenset())
        has = member.assigned.get(topic, frozenset())
        released = frozenset(
            number for number in wanted - has if owners.get((topic, number), member.id) == member.id
        )
        has_unreleased |= released != wanted - has
        for part, numbers in ((keeps, has & wanted), (gives_up, has - wanted), (gets, released)):
            if numbers:
                part[topic] = numbers
    if gives_up and (owned is None or _overlap(owned, gives_up)):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, keeps, gives_up)
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    together = {
        topic: keeps.get(topic, frozenset()) | gets.get(topic, frozenset())
        for topic in sorted({*keeps, *gets})
    }
    return _moved(member, target_epoch, state, together, {})


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    revoking: Assignment,
) -> ConsumerMember:
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _overlap(left: Mapping[UUID, frozenset[int]], right: Mapping[UUID, frozenset[int]]) -> bool:
    return any(numbers & right.get(topic, frozenset()) for topic, numbers in left.items())


def is_part_of(part: Mapping[UUID, frozenset[int]], whole: Mapping[UUID, frozenset[int]]) -> bool:
    return all(numbers <= whole.get(topic, frozenset()) for topic, numbers in part.items())
