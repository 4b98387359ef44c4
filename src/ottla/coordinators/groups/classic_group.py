"""A group of the classic protocol: its members, its generation, and its states.

Empty ──join──▶ PreparingRebalance ──all have joined──▶ CompletingRebalance ──leader's sync──▶ Stable
  ▲                    ▲   │                                   │                                │
  └──no member is left─┼───┘◀──────── a member joins, leaves or changes its metadata ───────────┘
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from ottla.coordinators.groups.context import NO_GENERATION
from ottla.coordinators.groups.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    put,
)
from ottla.coordinators.groups.subscription import PROTOCOL_TYPE, subscribed_topics
from ottla.coordinators.shard import CoordinatorRecord, Token
from ottla.wire.errors import ErrorCode, KafkaError

Protocols = tuple[tuple[str, bytes], ...]
"""(name, the member's metadata for it), the member's favourite first."""


class ClassicGroupState(Enum):
    """Values are Kafka's names of the states."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for all members to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; waits for the leader's assignment."""
    STABLE = "Stable"
    """The assignment is there for every member."""


_FOLLOWS: dict[ClassicGroupState, tuple[ClassicGroupState, ...]] = {
    ClassicGroupState.EMPTY: (ClassicGroupState.PREPARING_REBALANCE,),
    ClassicGroupState.PREPARING_REBALANCE: (
        ClassicGroupState.EMPTY,
        ClassicGroupState.COMPLETING_REBALANCE,
        ClassicGroupState.STABLE,
    ),
    ClassicGroupState.COMPLETING_REBALANCE: (ClassicGroupState.PREPARING_REBALANCE,),
    ClassicGroupState.STABLE: (ClassicGroupState.COMPLETING_REBALANCE,),
}
"""The states that each state may follow."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Its first rebalance has not ended yet."""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    heard_ms: int = 0
    """Wall time of its last request."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that all members have."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member that waits for a response does not send heartbeats. A new member is not exempt: its timer grants it
        more time instead."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


@dataclass(slots=True, eq=False)
class ClassicGroup:
    id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    previous_state: ClassicGroupState = ClassicGroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_since_ms: int = -1
    rebalance_reason: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by group.instance.id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that were assigned (KIP-394) and have not joined yet."""
    joining: dict[str, None] = field(default_factory=dict)
    """Members whose JoinGroup waits. Kept beside `ClassicMember.awaiting_join`: to look through all members whenever
    one joins would make a rebalance quadratic."""
    supported: dict[str, int] = field(default_factory=dict)
    """How many members have each protocol; kept for the same reason."""
    pending_sync: dict[str, None] = field(default_factory=dict)
    """Members that have not sent SyncGroup yet."""
    new_member_added: bool = False
    """While a new group waits for more members: one joined since the last check."""
    subscribed: frozenset[str] | None = None
    """Topics that some member reads; None if that is not known."""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def awaits_first_rebalance(self) -> bool:
        """It was a consumer group, and its first generation as a classic one has not begun."""
        return bool(self.members) and self.leader is None

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count_protocols(member, 1)
        self.pending.pop(member.id, None)

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name, _ in member.protocols:
            self.supported[name] = self.supported.get(name, 0) + by
            if not self.supported[name]:
                del self.supported[name]

    def change_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def await_join(self, member: ClassicMember, token: Token) -> None:
        member.awaiting_join = token
        self.joining[member.id] = None

    def take_join(self, member: ClassicMember) -> Token | None:
        """The JoinGroup that waits, if there is one. It is answered now."""
        token, member.awaiting_join = member.awaiting_join, None
        self.joining.pop(member.id, None)
        return token

    def remove(self, member_id: str) -> ClassicMember | None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.joining.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> tuple[ClassicMember, ClassicMember]:
        """The instance came back under a new id: (the former member, the new member)."""
        old_id = self.static[instance_id]
        old = self.members.pop(old_id)
        new = ClassicMember(
            new_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_id] = new
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self.joining.pop(old_id, None)
        self.pending_sync.pop(old_id, None)
        return old, new

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join: there must be one that all members have."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        candidates = self._candidates()
        return any(name in candidates for name in names)

    def _candidates(self) -> dict[str, None]:
        """Protocols that every member has."""
        return {name: None for name, count in self.supported.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        candidates = self._candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # -- steps

    def go(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in _FOLLOWS[state], f"{self.id}: {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def elect_joined_leader(self) -> bool:
        """The leader must have joined. False if no member has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.id
                return True
        return False

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.go(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.go(ClassicGroupState.EMPTY, now_ms)
        self.note_subscriptions()

    def note_subscriptions(self) -> None:
        self.subscribed = None
        if not self.uses_consumer_protocol:
            return
        names: dict[str, None] = {}
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol))
            if topics is None:
                return
            names.update(dict.fromkeys(topics))
        self.subscribed = frozenset(names)

    # -- as a record

    def record(self) -> CoordinatorRecord:
        return put(
            GroupMetadataKey(group=self.id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=self.leader,
                current_state_timestamp=self.state_since_ms,
                members=tuple(
                    MemberMetadata(
                        member_id=member.id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.metadata(self.protocol),
                        assignment=member.assignment,
                    )
                    for member in self.members.values()
                ),
            ),
        )

    @classmethod
    def from_record(cls, id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(
            id,
            state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol=value.protocol,
            leader=value.leader,
            state_since_ms=value.current_state_timestamp,
        )
        for member in value.members:
            timeout = member.rebalance_timeout
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if timeout < 0 else timeout,
                    member.session_timeout,
                    ((value.protocol or "", member.subscription),),
                    member.assignment,
                ),
                value.protocol_type or "",
            )
        group.leader = value.leader
        group.note_subscriptions()
        return group

    # -- offsets

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool
    ) -> None:
        """Any client may commit while the group is empty; otherwise only a member of this generation."""
        if generation <= NO_GENERATION and self.is_empty:
            return
        if generation > NO_GENERATION or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
