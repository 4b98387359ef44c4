"""The first rule of KIP-101, before KIP-279 corrected it (P44, P27).

The leader answers with an offset only: where its next larger epoch begins. If it never had the follower's last epoch, the
records below that offset may be others than the follower's, and the follower keeps them. If the leader's next records are
of an older epoch than those, the follower's log refuses them (D6), and the follower is stuck.
"""

from __future__ import annotations

from ottla.broker.design import NodeDesign
from ottla.lab.design import Design, Seam
from ottla.log.leader_epochs import LeaderEpochCache
from ottla.log.log import Log
from ottla.replica.partition import ReplicationRules
from ottla.replica.rules import LeaderEpochTruncation
from ottla.wire.fetch_messages import FetchPartition


class NextEpochTruncation(LeaderEpochTruncation):
    def diverging(self, log: Log, fetch: FetchPartition) -> tuple[int, int] | None:
        """Where the first epoch above the follower's last one begins; our end if there is none."""
        asked = fetch.last_fetched_epoch
        if asked < 0:
            return None
        end = next((start for epoch, start in log.epochs.entries if epoch > asked), log.log_end)
        return (asked, end) if end < fetch.fetch_offset else None

    def target(self, epochs: LeaderEpochCache, log_end: int, diverging: tuple[int, int]) -> int:
        _, end = diverging
        return min(end, log_end)


DESIGN = Design(
    name="kip101-first",
    seam=Seam.TRUNCATION,
    promise="P44",
    summary="The leader answers where its next larger epoch begins, and the follower truncates there (before KIP-279).",
    part=NodeDesign(ReplicationRules(truncation=NextEpochTruncation())),
)
