"""How the set of in-sync replicas changes: the leader proposes, the controller decides (P11 to P13).

The ISR that counts is `Partition.isr`, and only a decision of the controller changes it. Here is when a leader
proposes another one, and which replicas may be in the ISR while its proposal is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.events.replication import FollowerBelowEpochStart, IsrProposed
from ottla.replica import high_watermark
from ottla.replica.followers import Follower

if TYPE_CHECKING:
    from ottla.replica.leader import Leadership

UNKNOWN_BROKER_EPOCH = -1


class Proposal(NamedTuple):
    """An ISR that the leader asks the controller for. It counts only once the controller committed it;
    until then the larger of the old and new sets holds the high watermark back (P13)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(replica id, broker epoch) pairs, so that a broker that restarted meanwhile is refused (KIP-903)."""
    cause: str


class IsrChanges:
    """The changes of the ISR that a leader proposes, one at a time."""

    __slots__ = ("_leadership", "proposal")

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self.proposal: Proposal | None = None
        """Sent to the controller, or about to be, and not decided yet."""

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that is in the ISR or may be, whichever way the proposal under way ends (Kafka's maximal
        ISR)."""
        isr = self._leadership.partition.isr
        if self.proposal is None:
            return isr
        return (*isr, *(id for id, _ in self.proposal.isr if id not in isr))

    def maybe_expand(self, now: float, fetching: Follower | None = None) -> None:
        """Propose the followers that may join (D10): those that

        - hold everything committed, and everything before this epoch's start (KAFKA-7128): the high watermark of
          a new leader may still lag behind what an earlier leader committed;
        - have deleted what we have deleted. Nobody can tell any more whether they had the same records there, and
          as leaders they would show them again;
        - fetch just now, or were caught up all the time: an idle follower sends no news, and may have been refused
          before;
        - are alive, in the incarnation that fetched (KIP-903)."""
        leadership = self._leadership
        partition, log = leadership.partition, leadership.log
        if log.high_watermark < leadership.epoch_start and partition.events:
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
        if joining:
            self._propose((*partition.isr, *joining), f"brokers {joining} caught up")

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

    def shrink(self, now: float) -> None:
        """P12: members that have not caught up within replica.lag.time.max.ms are proposed to leave."""
        leadership = self._leadership
        partition = leadership.partition
        high_watermark.advance(
            leadership, now
        )  # a replica that was about to join may be late by now
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
            self._propose(stay, f"brokers {lagging} lag behind offset {log_end}")

    def _propose(self, isr: tuple[int, ...], cause: str) -> None:
        partition = self._leadership.partition
        assert partition.leadership is self._leadership, "only the leader of this epoch proposes"
        assert self.proposal is None, "one proposal at a time (P13)"
        assert partition.config.node_id in isr, "a leader is in its ISR"
        assert set(isr) <= set(partition.replicas), f"{isr} are not all replicas (M8)"
        self.proposal = Proposal(
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((id, self._broker_epoch_of(id)) for id in isr),
            cause,
        )
        if partition.events:
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
        """As its fetches named it: one atomic view with its progress (KAFKA-15221)."""
        follower = self._leadership.followers.get(id)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def decided(self, partition_epoch: int) -> None:
        """The controller decided about the partition in this epoch: a proposal made before it is over."""
        if self.proposal is not None and partition_epoch > self.proposal.partition_epoch:
            self.proposal = None

    def withdraw(self, proposal: Proposal, now: float) -> None:
        """Not accepted: what was proposed is forgotten, and the rules decide anew what to propose."""
        if self.proposal is proposal:
            self.proposal = None
            high_watermark.advance(self._leadership, now)
