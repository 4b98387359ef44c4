"""Counts of what a ZooKeeper does, made where its messages arrive and leave.

A read is one message pair with a client. A write is two: with the client, and with the follower. A watch event is one
message. Each of these is an RPC as the documents count them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KEEPING = ("create_session", "close_session", "follow")


@dataclass
class ZooKeeperCounts:
    """By the name of the operation, `get_data`, or of the event, `deleted`."""

    reads: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    """From clients, also those that failed."""
    replications: Counter[str] = field(default_factory=Counter)
    """From the leader to the follower."""
    watch_events: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    """From clients, to keep their sessions: connect, ping, set_watches, close_session."""
    expired: int = 0
    """Sessions that timed out."""

    @property
    def rpcs(self) -> Counter[str]:
        """All of them, by operation."""
        return self.reads + self.writes + self.replications + self.watch_events + self.sessions

    @property
    def operation_rpcs(self) -> int:
        """Those of reads, writes and watches: without those that keep sessions, and leader and follower together."""
        kept = sum(self.replications[label] for label in KEEPING)
        return self.rpcs.total() - self.sessions.total() - kept

    def copy(self) -> ZooKeeperCounts:
        return ZooKeeperCounts(
            self.reads.copy(),
            self.writes.copy(),
            self.replications.copy(),
            self.watch_events.copy(),
            self.sessions.copy(),
            self.expired,
        )

    def since(self, before: ZooKeeperCounts) -> ZooKeeperCounts:
        """What was counted after `before` was copied."""
        return ZooKeeperCounts(
            self.reads - before.reads,
            self.writes - before.writes,
            self.replications - before.replications,
            self.watch_events - before.watch_events,
            self.sessions - before.sessions,
            self.expired - before.expired,
        )
