"""By which rule the high watermark moves.

On the leader: `advance`, below, and nothing else. On a follower: `follower.follow` takes over the leader's, as far
as its own log reaches. The minimum itself is the commit rule in `rules`, which a lab may exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replica.followers import UNKNOWN_OFFSET, Follower
from ottla.replica.observer import News

if TYPE_CHECKING:
    from ottla.replica.leader import Leadership


def advance(leadership: Leadership, now: float) -> None:
    """Raise the leader's high watermark to what is committed (P07, D9): the smallest log end over

    - the leader itself,
    - the ISR,
    - while a proposal is under way, the replicas that it would add (P13): `IsrChanges.maximal_isr`,
    - the replicas outside of the ISR that are about to join it. This is Kafka's rule: else a busy leader that is
      alone in its ISR could never be caught up with.

    Only fetches of this leader epoch count: a follower that has not fetched in it has the end UNKNOWN_OFFSET, and
    holds everything back while it is in the ISR. Below min.insync.replicas nothing is committed (P19). Within a
    leader epoch the high watermark never goes back (D4)."""
    partition = leadership.partition
    assert partition.leadership is leadership, "an earlier leadership commits nothing (D9)"
    if partition.is_under_min_isr:
        return
    changes = leadership.isr_changes
    members = partition.isr if changes.proposal is None else changes.maximal_isr
    waited_for = [
        follower.log_end
        for follower in leadership.followers.values()
        if follower.id in members or is_about_to_join(leadership, follower, now)
    ]
    log = leadership.log
    committed = partition.config.commit_rule(log.log_end, waited_for)
    if committed > log.high_watermark:
        assert committed <= log.log_end, f"commits what is not written (D5): {committed}"
        log.advance_high_watermark(committed)
        partition.observer.partition_changed(partition, News.HIGH_WATERMARK)


def is_about_to_join(leadership: Leadership, follower: Follower, now: float) -> bool:
    """Whether a replica outside of the ISR has caught up lately, and may be a member."""
    partition = leadership.partition
    return (
        follower.log_end != UNKNOWN_OFFSET
        and now - follower.caught_up_at <= partition.config.lag_time_max_s
        and partition.eligible_broker_epoch(follower.id) == follower.broker_epoch
    )
