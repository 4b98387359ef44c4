"""The two rules of replication: when a record is committed, and where a follower truncates its log.

They are kept small and named, so that other designs can replace them (`ReplicaConfig`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ottla.log.leader_epochs import LeaderEpochCache

CommitRule: TypeAlias = Callable[[int, Iterable[int]], int]
TruncationRule: TypeAlias = Callable[[LeaderEpochCache, int, tuple[int, int]], int]


def committed_by_isr(leader_end: int, follower_ends: Iterable[int]) -> int:
    """The ISR rule: a record is committed when the leader and every follower that counts have it in their logs.

    Which followers count is decided in `high_watermark.advance`. A follower that has not fetched in this epoch yet has
    the unknown end -1, so nothing is committed before its first fetch.
    """
    return min((leader_end, *follower_ends))


def truncation_by_epoch(epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
    """The leader-epoch rule (KIP-101, KIP-279): the offset down to which this log agrees with the leader's.

    `diverging` is (epoch, end): the leader's largest epoch that is not above our last one, and the end of that epoch in
    the leader's log. If our log has that epoch too, the logs agree up to the smaller of the two ends. If it has not, we
    truncate to the end of our largest epoch below it. The next fetch names that epoch (a second round).
    """
    leader_epoch, leader_epoch_end = diverging
    own_epoch, own_epoch_end = epochs.end_offset_for(leader_epoch, log_end)
    if own_epoch == -1:
        return min(leader_epoch_end, log_end)
    if own_epoch != leader_epoch:
        return min(own_epoch_end, log_end)
    return min(own_epoch_end, leader_epoch_end, log_end)
