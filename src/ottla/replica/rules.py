"""The rules of replication: when a record is committed, where a follower truncates, and which role a replica takes.

They are small and named, so that another design can replace them (`ReplicationRules`); `ottla.lab` has such designs. The
commit rule of the product is `high_watermark.committed_by_isr`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log import Log
from ottla.wire.fetch_messages import FetchPartition

if TYPE_CHECKING:
    from ottla.replica.leader import Leadership
    from ottla.replica.partition import LeaderAndIsr

CommitRule: TypeAlias = Callable[["Leadership", float], int]
"""(the leadership, now) -> the offset below which everything is committed. It may be below the high watermark, which
then stays."""

RoleRule: TypeAlias = Callable[["LeaderAndIsr", int], "LeaderAndIsr"]
"""(the controller's decision, this broker) -> the decision as the replica on this broker takes it."""


def as_decided(decision: LeaderAndIsr, broker: int) -> LeaderAndIsr:
    """The rule of the product: the replica that the controller names leads, and all others follow it."""
    return decision


class TruncationRule(Protocol):
    """How a follower finds the point up to which its log agrees with its leader's."""

    def written_epoch(self, leader_epoch: int) -> int:
        """The epoch that the leader of this leader epoch writes into its batches and its epoch checkpoint."""
        ...

    def start_of_following(self, log: Log) -> int:
        """The offset to which a replica truncates when it begins to follow a leader in a new epoch; its log end for
        nothing."""
        ...

    def diverging(self, log: Log, fetch: FetchPartition) -> tuple[int, int] | None:
        """At the leader: None if its log agrees with the fetcher's log up to the fetcher's end. Otherwise (epoch, end) up
        to which they may agree."""
        ...

    def target(self, epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
        """At the follower: the offset to which it truncates after such an answer."""
        ...


class LeaderEpochTruncation:
    """The rule of the product: leader epochs, compared by fetches (KIP-101, KIP-279, KIP-595)."""

    def written_epoch(self, leader_epoch: int) -> int:
        """Its own (P23)."""
        return leader_epoch

    def start_of_following(self, log: Log) -> int:
        """Nothing is truncated: the fetches reconcile the logs (S1)."""
        return log.log_end

    def diverging(self, log: Log, fetch: FetchPartition) -> tuple[int, int] | None:
        """Our largest epoch not above the last one that the fetcher fetched, and where that ends here."""
        if fetch.last_fetched_epoch < 0:
            return None
        epoch, end = log.epochs.end_offset_for(fetch.last_fetched_epoch, log.log_end)
        if epoch == -1:
            # There is nothing to compare: our log has no epochs, or only older ones. If the fetch offset is
            # beyond our end, it is out of range, and the follower then asks where our log starts and ends.
            return None
        if epoch < fetch.last_fetched_epoch or end < fetch.fetch_offset:
            return epoch, end
        return None

    def target(self, epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
        """The offset down to which this log agrees with the leader's.

        `diverging` is the leader's largest epoch that is not above our last one, and the end of that epoch in the
        leader's log. If our log has that epoch too, the logs agree up to the smaller of the two ends. If it has not, we
        truncate to the end of our largest epoch below it. The next fetch names that epoch (a second round).
        """
        leader_epoch, leader_epoch_end = diverging
        own_epoch, own_epoch_end = epochs.end_offset_for(leader_epoch, log_end)
        if own_epoch == -1:
            return min(leader_epoch_end, log_end)
        if own_epoch != leader_epoch:
            return min(own_epoch_end, log_end)
        return min(own_epoch_end, leader_epoch_end, log_end)


BY_LEADER_EPOCHS: Final = LeaderEpochTruncation()
