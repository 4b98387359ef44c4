"""Which rare states of replication a run has met, by the events of its nodes (see `coverage`)."""

from __future__ import annotations

from ottla.events import Event
from ottla.events.replication import (
    DamagedBatchRefused,
    EndNotAvailable,
    FetchSessionEvicted,
    FollowerBelowEpochStart,
    IsrDecided,
    LeaderEpochRefused,
    LogRestarted,
    ProduceNotCommitted,
    ProduceRefused,
    ProduceTimedOut,
    RecordsDeleted,
    Truncated,
    TruncationCause,
)
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.coverage import mark
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

BY_EVENT = {
    LogRestarted: "began anew",
    DamagedBatchRefused: "damage seen by a follower",
    FollowerBelowEpochStart: "below the epoch's start",
    EndNotAvailable: "end not available",
    ProduceRefused: "too few replicas",
    ProduceTimedOut: "parked produce timed out",
    FetchSessionEvicted: "session evicted",
    RecordsDeleted: "records deleted",
}
"""Events that are a rare state whatever they say."""


class ReplicationCoverage:
    """Subscribe one for each run: `cluster.subscribe(ReplicationCoverage())`."""

    def __init__(self) -> None:
        self._last_cut: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
        """(leader epoch, log end) after the last truncation of each replica."""

    def __call__(self, node: SimNode, event: Event) -> None:
        word = BY_EVENT.get(type(event))
        if word is not None:
            mark(word)
        elif isinstance(event, Truncated):
            self._truncated(node, event)
        elif isinstance(event, LeaderEpochRefused):
            older = event.error is ErrorCode.FENCED_LEADER_EPOCH
            mark("older epoch refused" if older else "newer epoch refused")
        elif isinstance(event, IsrDecided):
            if event.error is not ErrorCode.NONE:
                grows = len(event.proposed) > len(event.isr)
                mark("ISR expansion refused" if grows else "ISR shrink refused")
        elif isinstance(event, ProduceNotCommitted):
            left = event.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            mark("parked produce lost its leader" if left else "too few replicas after append")

    def _truncated(self, node: SimNode, event: Truncated) -> None:
        if event.cause is not TruncationCause.DIVERGING:
            return
        mark("truncation")
        who = node.id, event.partition
        if self._last_cut.get(who) == (event.leader_epoch, event.end_offset):
            mark("truncation in two rounds")
        self._last_cut[who] = event.leader_epoch, event.log_end
        if event.log_end < event.high_watermark:
            mark("committed records truncated")
        if event.segments_removed:
            mark("truncation across segments")
