"""The leader's state of each follower, taken only from the follower's fetches."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class FollowerProgress:
    """A follower in the current leader epoch. Its end is the offset of its latest fetch (P07): a fetch
    from an offset means that everything below it has been appended."""

    id: int
    broker_epoch: int = -1
    log_start: int = UNKNOWN_OFFSET
    log_end: int = UNKNOWN_OFFSET
    caught_up_at: float = float("-inf")
    """The latest time at which it is known to have had all of the leader's records (P11)."""
    fetched_at: float = float("-inf")
    leader_end_at_fetch: int = 0

    def fetched(
        self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now: float
    ) -> None:
        """A fetch from the leader's end proves that the follower is caught up now. A fetch from where the end
        was at the previous fetch proves that it was caught up then. So a follower that is always slightly
        behind a busy leader stays in sync."""
        if broker_epoch != self.broker_epoch:
            self.forget_proofs()  # of another process, and perhaps of another disk
        if offset >= leader_end:
            proof = now
        elif offset >= self.leader_end_at_fetch:
            proof = self.fetched_at
        else:
            proof = self.caught_up_at
        if proof > self.caught_up_at:
            self.caught_up_at = proof
        self.log_end = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.fetched_at = now
        self.leader_end_at_fetch = leader_end

    def forget_proofs(self) -> None:
        """It left the ISR, was refused there, or its broker has registered again: whether it keeps up must be proved by a
        fetch. Kafka's leader remembers; there a replica that comes back with an empty disk within replica.lag.time.max.ms
        holds the high watermark back until it has copied everything."""
        self.caught_up_at = self.fetched_at = float("-inf")

    def leader_appended(self, end_before: int, now: float) -> None:
        """Up to this append the follower had everything. A fetch session does not name idle partitions, so
        an idle follower must not count as late when the first record comes."""
        if self.log_end == end_before and self.fetched_at != float("-inf"):
            self.caught_up_at = now

    def is_caught_up(self, leader_end: int, now: float, lag_max_s: float) -> bool:
        return self.log_end == leader_end or now - self.caught_up_at <= lag_max_s
