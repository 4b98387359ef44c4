"""The two rules of replication that the lab replaces by the other designs: when is a record committed,
and where does a follower cut its log before it follows a new leader.

They are plain functions so that each can be read, tested and exchanged on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ottla.log.leader_epochs import LeaderEpochCache

CommitRule: TypeAlias = Callable[[int, Iterable[int]], int]
TruncationRule: TypeAlias = Callable[[LeaderEpochCache, int, tuple[int, int]], int]


def committed_by_isr(leader_end: int, follower_ends: Iterable[int]) -> int:
    """The ISR rule: committed is what the leader and every follower that counts have in their logs.

    A follower that has not fetched in this epoch yet has the unknown end -1 and holds everything back.
    """
    return min((leader_end, *follower_ends))


def truncation_by_epoch(epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
    """The leader-epoch rule (KIP-101, KIP-279): the offset down to which this log agrees with the leader's.

    `diverging` is the leader's largest epoch not above ours, and where it ends there. If we know that
    epoch too, we agree up to the smaller of the two ends. If we do not, our own largest epoch below it
    ends where agreement may end; the next fetch then asks about that one (a second round).
    """
    leader_epoch, leader_epoch_end = diverging
    own_epoch, own_epoch_end = epochs.end_offset_for(leader_epoch, log_end)
    if own_epoch == -1:
        return min(leader_epoch_end, log_end)
    if own_epoch != leader_epoch:
        return min(own_epoch_end, log_end)
    return min(own_epoch_end, leader_epoch_end, log_end)
