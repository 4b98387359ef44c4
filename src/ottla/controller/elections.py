"""How the controller changes one partition: one change record, or none if nothing changes.

This module holds all the rules of leadership (compare Kafka's PartitionChangeBuilder):

- Clean: the leader comes from the ISR, or from the eligible leader replicas (ELR, KIP-966) if the ISR is empty.
  The present leader stays if it may lead. Otherwise the preferred replica is elected. Otherwise, among equal
  candidates, the one that leads the fewest partitions, so that a dead broker's partitions spread over the
  survivors (P37). Replicas whose disks have room come before those that would refuse records.
- ELR: members that leave the ISR while it is (or thereby becomes) smaller than the minimum hold every
  committed record, because the high watermark does not move from then on. They stay electable until they
  restart after an unclean shutdown or the ISR reaches the minimum again.
- Last known leader: when ISR and ELR are both empty it may lead again, because it is the replica most likely
  to hold everything. `RECOVERING` marks that records may be lost. No other replica may lead, unless the election
  is unclean (`unclean.leader.election.enable`, or an operator's request).
- A new leader is always alive (KAFKA-19522: an absent last known leader is never elected).
- Reassignment (P33): while it is in progress, the replicas are the target's and those being removed. The change
  that brings the last target replica into the ISR, whatever its cause, also removes the others in the same
  record. The leader stays if it is a target replica; otherwise a target replica is elected. The leader epoch
  rises in both cases, so that the removed replicas no longer count as followers.

The minimum is min(`min.insync.replicas`, number of replicas). ELR is always on: the feature
`eligible.leader.replicas.version` is finalized at 1 in every ottla cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERING, PartitionChangeRecord


class Election(Enum):
    CLEAN = "elect only if the present leader cannot stay"
    PREFERRED = "move leadership to the preferred replica if it may lead"
    WITH_ROOM = "move leadership to a replica with room on its disk"
    UNCLEAN = "elect from outside ISR and ELR rather than have no leader"


@dataclass(frozen=True, slots=True)
class Rules:
    """The facts about the cluster that an election depends on."""

    may_lead: Callable[[int], bool]
    """Whether a replica is alive: unfenced, not shutting down, its log directory online."""
    min_isr: int
    """`min.insync.replicas` as configured; a value above the number of replicas means all of them."""
    election: Election = Election.CLEAN
    leads: Callable[[int], int] = lambda replica: 0
    """The number of partitions that a broker leads now."""
    has_room: Callable[[int], bool] = lambda replica: True
    """Whether the disk of a replica takes records."""


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The replicas of a partition with their directories and, during a reassignment, the replicas being added
    and removed. A replica can be both: one reassignment added it, and another replaced that reassignment. Such a
    replica belongs neither to the target nor to the original replicas."""

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionImage) -> PartitionAssignment:
        return cls(partition.replicas, partition.directories, partition.adding, partition.removing)

    @property
    def is_reassignment(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment is complete."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas after the reassignment is cancelled."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def moved(self, replica: int, directory: UUID) -> PartitionAssignment:
        """The assignment with this replica in another directory."""
        place = self.replicas.index(replica)
        return replace(
            self,
            directories=(*self.directories[:place], directory, *self.directories[place + 1 :]),
        )

    def settled(self, replicas: tuple[int, ...]) -> PartitionAssignment:
        """The assignment with only these replicas, and no reassignment."""
        places = dict(zip(self.replicas, self.directories, strict=True))
        return PartitionAssignment(replicas, tuple(places[replica] for replica in replicas))


class ChangeRule(Protocol):
    """How a partition changes. `change` is the product's rule; other designs have others (`ControllerConfig`)."""

    def __call__(
        self,
        topic_id: UUID,
        index: int,
        partition: PartitionImage,
        rules: Rules,
        *,
        isr: Sequence[int] | None = None,
        lost: Collection[int] = (),
        emptied: Collection[int] = (),
        recovery: int | None = None,
        assignment: PartitionAssignment | None = None,
    ) -> PartitionChangeRecord | None: ...


@dataclass(slots=True)
class PartitionTarget:
    """The part of a partition that an election may change."""

    assignment: PartitionAssignment
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    leader: int
    recovery: int


def change(
    topic_id: UUID,
    index: int,
    partition: PartitionImage,
    rules: Rules,
    *,
    isr: Sequence[int] | None = None,
    lost: Collection[int] = (),
    emptied: Collection[int] = (),
    recovery: int | None = None,
    assignment: PartitionAssignment | None = None,
) -> PartitionChangeRecord | None:
    """The record that brings the partition to the requested state, or None if it is in that state already.

    `isr` is the requested ISR (default: the present one). `lost` are replicas that restarted after an unclean
    shutdown and may miss the tail of their logs: they leave ISR and ELR. `emptied` are replicas that restarted on
    another disk without data: they cannot be the last known leader either. `recovery` is the leader recovery state
    that the leader reports. `assignment` is the requested assignment (default: the present one)."""
    gone = {*lost, *emptied}
    members = tuple(isr if isr is not None else partition.isr)
    last_known = partition.last_known_elr
    after = PartitionTarget(
        assignment=assignment or PartitionAssignment.of(partition),
        isr=tuple(replica for replica in members if replica not in gone) if gone else members,
        elr=(),
        last_known=tuple(r for r in last_known if r not in emptied) if emptied else last_known,
        leader=partition.leader,
        recovery=partition.leader_recovery_state if recovery is None else recovery,
    )
    _complete_reassignment(rules, after)
    replicas = after.assignment.replicas
    assert set(after.isr) <= set(replicas), "the ISR is part of the assigned replicas"
    after.elr = _outside(partition, after, gone)
    elect(partition, rules, after)
    if len(after.isr) >= min(rules.min_isr, len(replicas)):
        after.elr = ()
    if after.leader != NO_LEADER:
        after.last_known = ()
    elif partition.leader != NO_LEADER and partition.leader not in emptied:
        after.last_known = (partition.leader,)
    elif not after.elr and not after.last_known:
        # Those that left the ELR last may miss a tail, as a last leader may. They have all other records.
        after.last_known = tuple(r for r in partition.elr if r not in emptied)
    if after.last_known:
        after.last_known = tuple(replica for replica in after.last_known if replica in replicas)
    return change_record(topic_id, index, partition, after)


def _complete_reassignment(rules: Rules, after: PartitionTarget) -> None:
    """All target replicas are in sync and one of them may lead, so the others are removed."""
    if not after.assignment.is_reassignment:
        return
    target = after.assignment.target
    if set(target) <= set(after.isr) and any(rules.may_lead(replica) for replica in target):
        after.assignment = after.assignment.settled(target)
        after.isr = tuple(replica for replica in after.isr if replica in target)


def _outside(
    partition: PartitionImage, after: PartitionTarget, gone: Collection[int]
) -> tuple[int, ...]:
    """The replicas that are or were in ISR or ELR and are not in the new ISR. If that is too small they are the ELR."""
    return tuple(
        replica
        for replica in after.assignment.replicas
        if (replica in partition.elr or replica in partition.isr)
        and replica not in after.isr
        and replica not in gone
    )


def elect(partition: PartitionImage, rules: Rules, after: PartitionTarget) -> None:
    """Set the leader. If it is outside the ISR, also set ISR, ELR and recovery state."""
    entitled = after.isr or after.elr
    candidates = [r for r in after.assignment.replicas if r in entitled and rules.may_lead(r)]
    if candidates:
        after.leader = _best(partition, rules, after, candidates)
        if after.leader not in after.isr:
            after.isr = (after.leader,)
            after.elr = tuple(replica for replica in after.elr if replica != after.leader)
        return
    after.leader = _leader_that_may_lack_records(rules, after)
    if after.leader != NO_LEADER:
        after.isr, after.elr, after.recovery = (after.leader,), (), RECOVERING


def _best(
    partition: PartitionImage, rules: Rules, after: PartitionTarget, candidates: list[int]
) -> int:
    preferred = after.assignment.replicas[0]
    with_room = [replica for replica in candidates if rules.has_room(replica)]
    if rules.election is Election.PREFERRED and preferred in with_room:
        return preferred
    if partition.leader in candidates and (
        rules.election is not Election.WITH_ROOM or not with_room
    ):
        return partition.leader
    candidates = with_room or candidates
    if preferred in candidates:
        return preferred
    return min(candidates, key=rules.leads)


def _leader_that_may_lack_records(rules: Rules, after: PartitionTarget) -> int:
    replicas, adding = after.assignment.replicas, after.assignment.adding
    if not after.isr and not after.elr and len(after.last_known) == 1:
        last = after.last_known[0]
        if last in replicas and rules.may_lead(last):
            return last
    if rules.election is Election.UNCLEAN:
        # A replica that is being added may have no records at all.
        likeliest_first = sorted(replicas, key=lambda replica: replica in adding)
        return next((r for r in likeliest_first if rules.may_lead(r)), NO_LEADER)
    return NO_LEADER


def change_record(
    topic_id: UUID, index: int, partition: PartitionImage, after: PartitionTarget
) -> PartitionChangeRecord | None:
    """Only the fields that differ. A leader that stays thus keeps its epoch, unless a replica is removed."""
    assignment = after.assignment
    differing: dict[str, Any] = {}
    if assignment.replicas != partition.replicas:
        differing["replicas"] = assignment.replicas
    if after.leader != partition.leader or (
        "replicas" in differing and not set(partition.replicas) <= set(assignment.replicas)
    ):
        differing["leader"] = after.leader
    if after.isr != partition.isr:
        differing["isr"] = after.isr
    if assignment.removing != partition.removing:
        differing["removing_replicas"] = assignment.removing
    if assignment.adding != partition.adding:
        differing["adding_replicas"] = assignment.adding
    if after.recovery != partition.leader_recovery_state:
        differing["leader_recovery_state"] = after.recovery
    if after.elr != partition.elr:
        differing["eligible_leader_replicas"] = after.elr
    if after.last_known != partition.last_known_elr:
        differing["last_known_elr"] = after.last_known
    if assignment.directories != partition.directories:
        differing["directories"] = assignment.directories
    if not differing:
        return None
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, **differing)
