"""Truncation to the high watermark, as in Kafka before KIP-101 (P44).

A record that is committed may still lie above the high watermark of a follower, because the follower learns the high
watermark one fetch later. This rule drops such a record. And two logs of the same length count as equal, whatever is
in them.
"""

from __future__ import annotations

from ottla.broker.design import NodeDesign
from ottla.lab.design import Design, Seam
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log import Log
from ottla.replica.partition import ReplicationRules
from ottla.wire.fetch_messages import FetchPartition

ONE_EPOCH = 0


class HighWatermarkTruncation:
    def written_epoch(self, leader_epoch: int) -> int:
        """The same in every batch: batches had no epoch, so nothing could be compared or refused by it."""
        return ONE_EPOCH

    def start_of_following(self, log: Log) -> int:
        """Its own high watermark; after a restart that is the checkpointed one."""
        return log.high_watermark

    def diverging(self, log: Log, fetch: FetchPartition) -> tuple[int, int] | None:
        """Never. A fetch beyond the leader's end is out of range, and the follower then truncates to that end."""
        return None

    def target(self, epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
        raise AssertionError("a leader of this design never answers that logs diverge")


DESIGN = Design(
    name="hw-truncation",
    seam=Seam.TRUNCATION,
    promise="P44",
    summary="A replica that begins to follow truncates to its own high watermark (before KIP-101).",
    part=NodeDesign(ReplicationRules(truncation=HighWatermarkTruncation())),
)
