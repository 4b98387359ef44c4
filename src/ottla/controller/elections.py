"""What becomes of one partition when the controller wishes something of it: one change record, or none.

All the rules of leadership stand here and nowhere else (compare Kafka's PartitionChangeBuilder):

- Clean: the leader comes from the ISR; when the ISR is empty, from the eligible leader replicas (ELR,
  KIP-966). The present leader stays if it may; else the preferred replica; else, among equals, whoever
  leads least, so that a dead broker's partitions spread over the survivors (P37).
- ELR: members that leave the ISR while it is (or thereby becomes) smaller than the minimum hold every
  committed record, because the high watermark stands still from then on; they stay electable until they
  come back from an unclean shutdown or the ISR reaches the minimum again.
- The last known leader: when ISR and ELR are both empty it may lead again, being the replica most likely
  to hold everything; `RECOVERING` marks that something may be lost. Nobody else may, unless the election
  is unclean (`unclean.leader.election.enable`, or asked for by an operator).
- A new leader is always alive (KAFKA-19522: an absent last known leader is never elected).

The minimum is min(`min.insync.replicas`, number of replicas). ELR is always on: the feature
`eligible.leader.replicas.version` is finalized at 1 in every cluster of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERING,
    PartitionChangeRecord,
)


class Election(Enum):
    CLEAN = "elect only if the present leader cannot stay"
    PREFERRED = "move leadership to the preferred replica if it may lead"
    UNCLEAN = "elect from outside ISR and ELR rather than have no leader"


@dataclass(frozen=True, slots=True)
class Rules:
    """What an election needs to know of the cluster around the partition."""

    may_lead: Callable[[int], bool]
    """Whether a replica is alive: unfenced, not shutting down, its log directory online."""
    min_isr: int
    """`min.insync.replicas` as configured; more than the replicas counts as all of them."""
    election: Election = Election.CLEAN
    leads: Callable[[int], int] = lambda replica: 0
    """How many partitions a broker leads now."""


@dataclass(slots=True)
class _State:
    """The part of a partition that an election may change."""

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
    directories: tuple[UUID, ...] | None = None,
) -> PartitionChangeRecord | None:
    """The record that brings the partition to the wished state, or None if it is there already.

    `isr` is the ISR to have (default: the present one). `lost` came back from an unclean shutdown and may
    miss a tail: they leave ISR and ELR. `emptied` came back on another disk and have nothing: they may
    not even be the last known leader. `recovery` is the leader recovery state that the leader reports."""
    gone = {*lost, *emptied}
    target = tuple(isr if isr is not None else partition.isr)
    target = tuple(replica for replica in target if replica not in gone)
    assert set(target) <= set(partition.replicas), "the ISR is part of the assigned replicas"
    minimum = min(rules.min_isr, len(partition.replicas))

    after = _State(
        isr=target,
        elr=_outside(partition, target, gone),
        last_known=tuple(r for r in partition.last_known_elr if r not in emptied),
        leader=partition.leader,
        recovery=partition.leader_recovery_state if recovery is None else recovery,
    )
    _elect(partition, rules, after)
    if len(after.isr) >= minimum:
        after.elr = ()
    if after.leader != NO_LEADER:
        after.last_known = ()
    elif partition.leader != NO_LEADER and partition.leader not in emptied:
        after.last_known = (partition.leader,)
    return _record(topic_id, index, partition, after, directories)


def _outside(
    partition: PartitionImage, isr: tuple[int, ...], gone: Collection[int]
) -> tuple[int, ...]:
    """Those who are or were in ISR or ELR and are not in the new ISR: the ELR, should that be too small."""
    return tuple(
        replica
        for replica in partition.replicas
        if (replica in partition.elr or replica in partition.isr)
        and replica not in isr
        and replica not in gone
    )


def _elect(partition: PartitionImage, rules: Rules, after: _State) -> None:
    """Set the leader, and with it ISR, ELR and recovery state where the leader is not of the ISR."""
    entitled = after.isr or after.elr
    candidates = [r for r in partition.replicas if r in entitled and rules.may_lead(r)]
    if candidates:
        after.leader = _best(partition, rules, candidates)
        if after.leader not in after.isr:
            after.isr = (after.leader,)
            after.elr = tuple(replica for replica in after.elr if replica != after.leader)
        return
    after.leader = _leader_that_may_lack_records(partition, rules, after)
    if after.leader != NO_LEADER:
        after.isr, after.elr, after.recovery = (after.leader,), (), RECOVERING


def _best(partition: PartitionImage, rules: Rules, candidates: list[int]) -> int:
    preferred = partition.replicas[0]
    if rules.election is Election.PREFERRED and preferred in candidates:
        return preferred
    if partition.leader in candidates:
        return partition.leader
    if preferred in candidates:
        return preferred
    return min(candidates, key=rules.leads)


def _leader_that_may_lack_records(partition: PartitionImage, rules: Rules, after: _State) -> int:
    if not after.isr and not after.elr and len(after.last_known) == 1:
        last = after.last_known[0]
        if last in partition.replicas and rules.may_lead(last):
            return last
    if rules.election is Election.UNCLEAN:
        return next((r for r in partition.replicas if rules.may_lead(r)), NO_LEADER)
    return NO_LEADER


def _record(
    topic_id: UUID,
    index: int,
    partition: PartitionImage,
    after: _State,
    directories: tuple[UUID, ...] | None,
) -> PartitionChangeRecord | None:
    """Only what differs, so that a leader that stays keeps its epoch."""
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=after.isr if after.isr != partition.isr else None,
        leader=after.leader if after.leader != partition.leader else LEADER_UNCHANGED,
        leader_recovery_state=(
            after.recovery if after.recovery != partition.leader_recovery_state else -1
        ),
        eligible_leader_replicas=after.elr if after.elr != partition.elr else None,
        last_known_elr=after.last_known if after.last_known != partition.last_known_elr else None,
        directories=directories if directories not in (None, partition.directories) else None,
    )
    unchanged = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    return None if record == unchanged else record
