"""The rules of commit and election that the product's ISR is compared with. All of them are pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.controller.elections import (
    Election,
    PartitionAssignment,
    PartitionTarget,
    Rules,
    change_record,
    elect,
)
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    DIRECTORY_LOST,
    NO_LEADER,
    RECOVERED,
    PartitionChangeRecord,
)
from ottla.replica.follower_progress import UNKNOWN_OFFSET
from ottla.replica.leader import Leadership


def majority_of(replicas: int) -> int:
    return replicas // 2 + 1


def committed_by_majority(leadership: Leadership, now: float) -> int:
    """The largest offset up to which a majority of all replicas has the leader's log, the leader included.

    A leader counts copies only of records of its own epoch (Raft, 5.4.2). A record of an earlier epoch may be on a
    majority, and a replica with a shorter log and a later last epoch may still win the next election and remove it. With
    a record of this epoch on a majority no such replica can win any more. So older records are committed together with
    the first record of this epoch."""
    ends = [leadership.log.log_end, *(each.log_end for each in leadership.followers.values())]
    on_a_majority = sorted(ends, reverse=True)[majority_of(len(ends)) - 1]
    return on_a_majority if on_a_majority > leadership.epoch_start else UNKNOWN_OFFSET


class Completeness(NamedTuple):
    """How complete a log is. Of two logs the larger one has all committed records that the other has."""

    last_epoch: int
    log_end: int


def most_complete(
    replicas: Sequence[int], logs: Mapping[int, Completeness], may_lead: Callable[[int], bool]
) -> int:
    """The winner of a vote among the replicas that answered; NO_LEADER without a majority, or if none of the most complete
    ones is alive. Among equals the first in the order of assignment."""
    answered = [replica for replica in replicas if replica in logs]
    if len(answered) < majority_of(len(replicas)):
        return NO_LEADER
    best = max(logs[replica] for replica in answered)
    return next((r for r in answered if logs[r] == best and may_lead(r)), NO_LEADER)


def voters_of(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas whose logs have kept what they ever acknowledged."""
    return (*partition.isr, *partition.elr)


def change_by_majority(
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
    """A leader that may lead stays. Otherwise the partition has no leader, in a new epoch. That is the first half of an
    election. From then on no replica fetches from the old leader, so its log end cannot rise before the vote
    (`majority.MajorityElections`).

    The ISR plays no part in commits. Whoever leaves it goes to the ELR and stays a voter (`voters_of`), unless its disk was
    replaced. Such a replica has lost copies that were counted. It joins the ISR again, and votes again, when the leader
    proposes it: it then has all that the leader has committed and all of earlier epochs.

    An unclean election asks nobody. Its leader is the only voter until others have caught up with it. The preferred leader
    plays no part, and replicas are not reassigned in this design."""
    wanted = assignment or PartitionAssignment.of(partition)
    assert not wanted.is_reassignment, "this design does not reassign replicas"
    places = dict(zip(wanted.replicas, wanted.directories, strict=True))
    without_data = {*emptied, *(r for r in lost if places[r] == DIRECTORY_LOST)}
    members = partition.isr if isr is None else isr
    voters = {*partition.isr, *partition.elr, *members} - without_data
    in_sync = {*members} - {*lost, *without_data}
    leader = NO_LEADER
    if partition.leader != NO_LEADER and rules.may_lead(partition.leader):
        leader = partition.leader
    elif rules.election is Election.UNCLEAN:
        likeliest_first = sorted(wanted.replicas, key=lambda replica: replica not in voters)
        leader = next((r for r in likeliest_first if rules.may_lead(r)), NO_LEADER)
        if leader != NO_LEADER:
            voters = in_sync = {leader}
    after = PartitionTarget(
        assignment=wanted,
        isr=tuple(r for r in wanted.replicas if r in in_sync),
        elr=tuple(r for r in wanted.replicas if r in voters - in_sync),
        last_known=(),
        leader=leader,
        recovery=RECOVERED,
    )
    return change_record(topic_id, index, partition, after)


def elected_by_majority(
    topic_id: UUID,
    index: int,
    partition: PartitionImage,
    logs: Mapping[int, Completeness],
    may_lead: Callable[[int], bool],
) -> PartitionChangeRecord | None:
    """The second half of an election: the winner of the vote, if there is one. The answers of replicas that may not vote
    (any more) do not count."""
    assert partition.leader == NO_LEADER, f"a vote without a vacancy: {partition}"
    voters = voters_of(partition)
    votes = {replica: log for replica, log in logs.items() if replica in voters}
    winner = most_complete(partition.replicas, votes, may_lead)
    after = PartitionTarget(
        assignment=PartitionAssignment.of(partition),
        isr=tuple(r for r in partition.replicas if r in partition.isr or r == winner),
        elr=tuple(r for r in partition.elr if r != winner),
        last_known=(),
        leader=winner,
        recovery=RECOVERED,
    )
    return change_record(topic_id, index, partition, after)


def change_without_elr(
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
    """As before KIP-966: only members of the ISR are electable. The last of them are never taken out of it, and the
    partition waits for them. They lead again as soon as one is alive, whatever its disk has lost."""
    wanted = assignment or PartitionAssignment.of(partition)
    assert not wanted.is_reassignment, "this design does not reassign replicas"
    gone = {*lost, *emptied}
    members = partition.isr if isr is None else tuple(isr)
    after = PartitionTarget(
        assignment=wanted,
        isr=tuple(replica for replica in members if replica not in gone) or partition.isr,
        elr=(),
        last_known=(),
        leader=partition.leader,
        recovery=partition.leader_recovery_state if recovery is None else recovery,
    )
    elect(partition, rules, after)
    return change_record(topic_id, index, partition, after)
