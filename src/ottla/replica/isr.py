"""How the set of in-sync replicas changes: the leader proposes, the controller decides (P11 to P13).

The ISR that counts is `Partition.isr`, and only a decision of the controller changes it. This module holds when a
leader proposes another ISR, and which replicas may be in the ISR while its proposal is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.events.replication import (
    FollowerBelowEpochStart,
    IsrCause,
    IsrProposed,
    IsrReason,
    Lag,
)
from ottla.replica import high_watermark
from ottla.replica.follower_progress import FollowerProgress

if TYPE_CHECKING:
    from ottla.replica.leader import Leadership

UNKNOWN_BROKER_EPOCH = -1


class Proposal(NamedTuple):
    """An ISR that the leader asks the controller for. It counts once the controller has committed it. Until then the high
    watermark waits for the members of both sets, the old and the proposed one (P13)."""

    leader_epoch: int
    partition_epoch: int
    replaces: tuple[int, ...]
    """The ISR of that epoch. The metadata may bring the proposed one before the controller's answer comes."""
    isr: tuple[tuple[int, int], ...]
    """(replica id, broker epoch) pairs, so that a broker that restarted meanwhile is refused (KIP-903)."""
    cause: str
    reasons: Mapping[int, IsrReason] = MappingProxyType({})
    """Of each replica that would leave or join."""


class IsrChanges:
    """The changes of the ISR that a leader proposes, one at a time."""

    __slots__ = ("_leadership", "_refused", "proposal")

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self.proposal: Proposal | None = None
        """Sent to the controller, or about to be, and not decided yet."""
        self._refused: dict[int, None] = {}
        """Replicas that the controller did not let join, alone or with others: the one that was refused first comes first."""

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR and the replicas that the proposal under way would add (Kafka's maximal ISR). Whatever the controller
        decides, every member of the ISR is in this set."""
        isr = self._leadership.partition.isr
        if self.proposal is None:
            return isr
        return (*isr, *(id for id, _ in self.proposal.isr if id not in isr))

    def maybe_expand(self, now: float, fetching: FollowerProgress | None = None) -> None:
        """Propose the followers that may join (D10). Such a follower

        - has a log that reaches the high watermark, and the start of this epoch (KAFKA-7128), because the high watermark
          of a new leader may still lag behind what an earlier leader committed;
        - has a log start that is not below ours. Below our log start nobody can compare the records any more, and this
          follower would show them again if it became the leader;
        - is `fetching` just now, or counts as caught up. The latter matters for an idle follower: it sends no fetch that
          names the partition, and an earlier proposal may have been refused;
        - belongs to a broker that may be in an ISR, in the incarnation that fetched (KIP-903).

        The controller may know why one of them may not join (its disk is full), and then refuses all. So those that were
        refused together are proposed one by one."""
        leadership = self._leadership
        partition, log = leadership.partition, leadership.log
        if (
            log.high_watermark < leadership.epoch_start
            and FollowerBelowEpochStart in partition.events
        ):
            self._report_held_back()
        if self.proposal is not None:
            return
        log_end = log.log_end
        joining = [
            follower.id
            for follower in leadership.followers.values()
            if follower.id not in partition.isr
            and follower.log_end >= log.high_watermark
            and follower.log_end >= leadership.epoch_start
            and follower.log_start >= log.log_start
            and (
                follower is fetching
                or follower.is_caught_up(log_end, now, partition.config.lag_time_max_s)
            )
            and partition.eligible_broker_epoch(follower.id) == follower.broker_epoch
        ]
        if self._refused:
            joining = self._one_by_one(joining)
        if joining:
            reasons = {id: IsrReason(IsrCause.CAUGHT_UP, self._lag(id, now)) for id in joining}
            self._propose((*partition.isr, *joining), f"brokers {joining} caught up", reasons)

    def _report_held_back(self) -> None:
        leadership = self._leadership
        partition, log = leadership.partition, leadership.log
        held_back = tuple(
            follower.id
            for follower in leadership.followers.values()
            if follower.id not in partition.isr
            and log.high_watermark <= follower.log_end < leadership.epoch_start
            and partition.eligible_broker_epoch(follower.id) == follower.broker_epoch
        )
        if held_back:
            partition.events.emit(
                FollowerBelowEpochStart(
                    partition.key,
                    leadership.epoch,
                    held_back,
                    log.high_watermark,
                    leadership.epoch_start,
                )
            )

    def review(self, now: float) -> None:
        """Called by the clock, for what changes by time alone.

        - Advance the high watermark: a replica that it waited for may not count as caught up any more.
        - Propose an ISR without the members that have not caught up within replica.lag.time.max.ms (P12).
        - If there are none, propose the followers that may join."""
        leadership = self._leadership
        partition = leadership.partition
        high_watermark.advance(leadership, now)
        if self.proposal is not None:
            return
        log_end = leadership.log.log_end
        lagging = [
            id
            for id in partition.isr
            if (follower := leadership.followers.get(id)) is not None
            and not follower.is_caught_up(log_end, now, partition.config.lag_time_max_s)
        ]
        if not lagging:
            self.maybe_expand(now)
        else:
            stay = tuple(id for id in partition.isr if id not in lagging)
            reasons = {
                id: IsrReason(self._why_lagging(id, now), self._lag(id, now)) for id in lagging
            }
            self._propose(stay, f"brokers {lagging} lag behind offset {log_end}", reasons)

    def _why_lagging(self, id: int, now: float) -> IsrCause:
        silent_s = now - self._leadership.followers[id].fetched_at
        lag_max_s = self._leadership.partition.config.lag_time_max_s
        return IsrCause.SILENT if silent_s > lag_max_s else IsrCause.SLOW

    def _one_by_one(self, joining: list[int]) -> list[int]:
        """All that were not refused before; if there is none, the one whose refusal is the oldest."""
        others = [id for id in joining if id not in self._refused]
        return others or [id for id in self._refused if id in joining][:1]

    def _lag(self, id: int, now: float) -> Lag:
        follower, log = self._leadership.followers[id], self._leadership.log
        # Of a follower that has not fetched in this epoch nothing is known: all records of the log count.
        its_end = max(follower.log_end, log.log_start)
        since = follower.caught_up_at
        return Lag(
            log.log_end - its_end,
            log.bytes_from(its_end),
            None if since == -inf else round(now - since, 3),
        )

    def _propose(self, isr: tuple[int, ...], cause: str, reasons: Mapping[int, IsrReason]) -> None:
        partition = self._leadership.partition
        assert partition.leadership is self._leadership, "only the leader of this epoch proposes"
        assert self.proposal is None, "one proposal at a time (P13)"
        assert partition.config.node_id in isr, "a leader is in its ISR"
        assert set(isr) <= set(partition.replicas), f"{isr} are not all replicas (M8)"
        self.proposal = Proposal(
            partition.leader_epoch,
            partition.partition_epoch,
            partition.isr,
            tuple((id, self._broker_epoch_of(id)) for id in isr),
            cause,
            reasons,
        )
        if IsrProposed in partition.events:
            partition.events.emit(
                IsrProposed(
                    partition.key,
                    partition.leader_epoch,
                    partition.partition_epoch,
                    partition.isr,
                    isr,
                    cause,
                )
            )
        partition.observer.isr_proposed(partition)

    def _broker_epoch_of(self, id: int) -> int:
        """The broker epoch that its fetches named, so that it belongs to the same incarnation as the progress that is known
        (KAFKA-15221)."""
        follower = self._leadership.followers.get(id)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def decided(self, partition_epoch: int) -> None:
        """The controller decided about the partition in `partition_epoch`. A proposal made before that is over."""
        isr = self._leadership.partition.isr
        self._refused = {id: None for id in self._refused if id not in isr}
        if self.proposal is not None and partition_epoch > self.proposal.partition_epoch:
            self.proposal = None

    def withdraw(self, proposal: Proposal, now: float) -> None:
        """Nothing comes of the proposal. It is forgotten, and the high watermark no longer waits for the replicas that it
        would have added."""
        if self.proposal is proposal:
            self.proposal = None
            high_watermark.advance(self._leadership, now)

    def refused(self, proposal: Proposal, now: float) -> None:
        """The controller says that one of those that would join may not."""
        if self.proposal is not proposal:
            return
        followers = self._leadership.followers
        for id, _ in proposal.isr:
            if id in followers and id not in proposal.replaces:
                self._refused.pop(id, None)
                self._refused[id] = None
                followers[id].forget_proofs()
        self.withdraw(proposal, now)
