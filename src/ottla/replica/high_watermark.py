"""By which rule the high watermark (HW) of a leader moves (D9).

These move the HW of a partition in use, and nothing else does (a copy of a log in another directory takes over the HW of the log
that it copies: `log.future_logs`):

- `advance`, below, on the leader;
- `follower.apply_fetch_answer` on a follower, to the leader's HW as far as the follower's log reaches;
- `Log.advance_log_start`: what is deleted was committed, so the HW is never below the log start;
- truncation, on a follower: `Log.truncate_to` keeps the HW at or below the log end, `Log.truncate_fully` sets it to the new
  log start;
- a restart: `LogManager` reads the HW from its checkpoint and keeps it within the log (P08).

What is committed is decided by the commit rule, `committed_by_isr`. Other designs replace it (`rules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replica.follower_progress import UNKNOWN_OFFSET, FollowerProgress
from ottla.replica.observer import News

if TYPE_CHECKING:
    from ottla.replica.leader import Leadership


def advance(leadership: Leadership, now: float) -> None:
    """Raise the leader's high watermark to what is committed (P07, D9). Within a leader epoch it never goes back (D4)."""
    partition = leadership.partition
    assert partition.leadership is leadership, "an earlier leadership commits nothing (D9)"
    committed = partition.rules.commit(leadership, now)
    log = leadership.log
    if committed > log.high_watermark:
        assert committed <= log.log_end, f"commits what is not written (D5): {committed}"
        log.advance_high_watermark(committed)
        partition.observer.partition_changed(partition, News.HIGH_WATERMARK)


def committed_by_isr(leadership: Leadership, now: float) -> int:
    """The ISR rule: a record is committed when it is in the logs of all that count. That is the smallest log end of

    - the leader itself,
    - the members of the ISR,
    - while a proposal is under way, the replicas that it would add (P13): `IsrChanges.maximal_isr`,
    - the replicas outside of the ISR that were caught up within replica.lag.time.max.ms, since they left it and since
      their broker registered, and may join it. Otherwise the HW of a leader that is alone in its ISR moves with every
      append, and no follower could reach it. (Kafka also counts what was before: see `FollowerProgress.forget_proofs`.)

    A log end is known from fetches to this leadership. `Leadership.serve_follower` refuses a fetch that names another leader
    epoch, diverges, is out of range, or comes from an earlier incarnation of its broker. Like Kafka, it accepts one that
    names no epoch (ANY_EPOCH). A follower that has not fetched yet has the end UNKNOWN_OFFSET, and
    the HW does not move while it is in the ISR.

    Nothing more is committed while the ISR is smaller than min(min.insync.replicas, number of replicas) (P19)."""
    partition = leadership.partition
    if partition.is_under_min_isr:
        return UNKNOWN_OFFSET
    changes = leadership.isr_changes
    # `maximal_isr` alone would do. The condition spares a call in each append and fetch.
    members = partition.isr if changes.proposal is None else changes.maximal_isr
    return min(
        [
            leadership.log.log_end,
            *[
                follower.log_end
                for follower in leadership.followers.values()
                if follower.id in members or was_caught_up_lately(leadership, follower, now)
            ],
        ]
    )


def was_caught_up_lately(leadership: Leadership, follower: FollowerProgress, now: float) -> bool:
    """Whether a follower was caught up within replica.lag.time.max.ms, and its broker may be in an ISR. The high
    watermark waits for such a follower also outside of the ISR (Kafka's shouldWaitForReplicaToJoinIsr)."""
    partition = leadership.partition
    return (
        follower.log_end != UNKNOWN_OFFSET
        and now - follower.caught_up_at <= partition.config.lag_time_max_s
        and partition.eligible_broker_epoch(follower.id) == follower.broker_epoch
    )
