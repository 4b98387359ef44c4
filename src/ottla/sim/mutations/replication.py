"""Bugs between a leader, its followers and their clients."""

from __future__ import annotations

from typing import Any

from ottla.broker.apis.fetch import SessionWatch
from ottla.broker.apis.produce import ParkedProduce
from ottla.broker.replication.purgatory import Purgatory, Sleeper
from ottla.broker.server.deadlines import Deadlines
from ottla.log.log import Log, ReadResult
from ottla.replica import follower, high_watermark
from ottla.replica.fetcher import AppliedAnswer, FetchConversation, Followed
from ottla.replica.follower_progress import FollowerProgress
from ottla.replica.isr import IsrChanges
from ottla.replica.leader import Leadership
from ottla.replica.observer import News
from ottla.replica.partition import LeaderAndIsr, Partition
from ottla.replica.roles import Role
from ottla.replica.rules import LeaderEpochTruncation
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import AMBUSH, MANY_PARTITIONS, TUG
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition

# Truncation


@mutation("S1 (KIP-101)")
def truncates_to_its_high_watermark() -> list[Patch]:
    """A new follower truncates its log to its own high watermark, which may lag behind the committed end."""

    def start_of_following(self: LeaderEpochTruncation, log: Log) -> int:
        return log.high_watermark

    return [Patch(LeaderEpochTruncation, "start_of_following", start_of_following)]


@mutation("S2 (KIP-101)")
def compares_only_lengths() -> list[Patch]:
    """A follower whose log is not longer than the leader's counts as consistent with it, whatever the epochs."""
    original = LeaderEpochTruncation.diverging

    def diverging(
        self: LeaderEpochTruncation, log: Log, fetch: FetchPartition
    ) -> tuple[int, int] | None:
        return None if fetch.fetch_offset <= log.log_end else original(self, log, fetch)

    return [Patch(LeaderEpochTruncation, "diverging", diverging)]


@mutation("S3 (KIP-279)", likely=TUG)
def answers_with_the_next_epochs_start() -> list[Patch]:
    """The leader answers where the next larger epoch begins, not which epoch it has: a follower keeps records of
    an epoch that the leader never had."""

    def diverging(
        self: LeaderEpochTruncation, log: Log, fetch: FetchPartition
    ) -> tuple[int, int] | None:
        if fetch.last_fetched_epoch < 0:
            return None
        later = [start for epoch, start in log.epochs.entries if epoch > fetch.last_fetched_epoch]
        end = later[0] if later else log.log_end
        return (fetch.last_fetched_epoch, end) if end < fetch.fetch_offset else None

    return [Patch(LeaderEpochTruncation, "diverging", diverging)]


@mutation("KAFKA-14704")
def moves_its_high_watermark_before_it_truncates() -> list[Patch]:
    """The high watermark of a diverging answer is applied before the truncation: records that are about to be
    truncated count as committed."""
    original = follower.apply_fetch_answer

    def apply_fetch_answer(
        partition: Partition, answer: FetchedPartition, leader_epoch: int
    ) -> int:
        if (
            answer.diverging is not None
            and partition.role is Role.FOLLOWER
            and leader_epoch == partition.leader_epoch
        ):
            log = partition.log
            log.advance_high_watermark(min(answer.high_watermark, log.log_end))
        return original(partition, answer, leader_epoch)

    return [Patch(follower, "apply_fetch_answer", apply_fetch_answer)]


@mutation("KAFKA-7415")
def leader_does_not_note_its_epoch() -> list[Patch]:
    """A new leader records the start of its epoch only with its first record: until then followers cannot find out
    that they diverge."""
    original = Partition.become_leader

    def become_leader(self: Partition, decision: LeaderAndIsr, now: float) -> None:
        entries = list(self.log.epochs.entries)
        original(self, decision, now)
        self.log.epochs.entries = entries

    return [Patch(Partition, "become_leader", become_leader)]


@mutation("own")
def epochs_are_not_compared() -> list[Patch]:
    """Requests with another leader epoch are served."""

    def check_epoch(self: Partition, named_epoch: int) -> ErrorCode | None:
        return None

    return [Patch(Partition, "check_epoch", check_epoch)]


# In-sync replicas and the high watermark


@mutation("KAFKA-7128")
def joins_the_isr_below_the_epochs_start() -> list[Patch]:
    """A follower joins the ISR at the high watermark, which on a new leader may lag behind the committed end."""
    original = IsrChanges.maybe_expand

    def maybe_expand(
        self: IsrChanges, now: float, fetching: FollowerProgress | None = None
    ) -> None:
        leadership = self._leadership
        start, leadership.epoch_start = leadership.epoch_start, 0
        try:
            original(self, now, fetching)
        finally:
            leadership.epoch_start = start

    return [Patch(IsrChanges, "maybe_expand", maybe_expand)]


@mutation("KAFKA-15221", likely=AMBUSH)
def proposes_a_newer_life_than_it_saw() -> list[Patch]:
    """A broker's progress from before its restart is proposed with its epoch from after: two reads of the broker epoch
    instead of one."""
    original = IsrChanges.maybe_expand

    def maybe_expand(
        self: IsrChanges, now: float, fetching: FollowerProgress | None = None
    ) -> None:
        partition = self._leadership.partition
        for each in self._leadership.followers.values():
            each.broker_epoch = partition.eligible_broker_epoch(each.id) or each.broker_epoch
        original(self, now, fetching)

    return [Patch(IsrChanges, "maybe_expand", maybe_expand)]


def _commit(partition: Partition, waited_for: list[int]) -> None:
    committed = min([partition.log.log_end, *waited_for])
    if committed > partition.log.high_watermark:
        partition.log.advance_high_watermark(committed)
        partition.observer.partition_changed(partition, News.HIGH_WATERMARK)


@mutation("own")
def commits_below_min_insync_replicas() -> list[Patch]:
    """The high watermark advances while the ISR is smaller than the minimum."""

    def advance(leadership: Leadership, now: float) -> None:
        members = leadership.isr_changes.maximal_isr
        _commit(
            leadership.partition,
            [
                each.log_end
                for each in leadership.followers.values()
                if each.id in members or high_watermark.was_caught_up_lately(leadership, each, now)
            ],
        )

    return [Patch(high_watermark, "advance", advance)]


@mutation("own")
def does_not_wait_for_pending_members() -> list[Patch]:
    """Replicas proposed for the ISR do not count for the high watermark before the controller's answer."""

    def advance(leadership: Leadership, now: float) -> None:
        partition = leadership.partition
        if not partition.is_under_min_isr:
            _commit(
                partition,
                [
                    each.log_end
                    for each in leadership.followers.values()
                    if each.id in partition.isr
                    or high_watermark.was_caught_up_lately(leadership, each, now)
                ],
            )

    return [Patch(high_watermark, "advance", advance)]


@mutation("own")
def shrinks_before_the_controller_agrees() -> list[Patch]:
    """The high watermark ignores a member proposed to leave the ISR, though the controller may still elect
    it."""

    def maximal_isr(self: IsrChanges) -> tuple[int, ...]:
        if self.proposal is None:
            return self._leadership.partition.isr
        return tuple(id for id, _ in self.proposal.isr)

    return [Patch(IsrChanges, "maximal_isr", property(maximal_isr))]


# Clients


@mutation("own")
def answers_acks_all_at_append() -> list[Patch]:
    """acks=all is answered as soon as the leader has the records."""

    def wait_for(self: ParkedProduce, partition: Partition, offset: int) -> None:
        pass

    def park(self: Any, deadlines: Deadlines, now: float, timeout_ms: int) -> None:
        self._finish(self._results)

    return [Patch(ParkedProduce, "wait_for", wait_for), Patch(ParkedProduce, "park", park)]


@mutation("own")
def answers_a_produce_of_an_earlier_leadership() -> list[Patch]:
    """A parked produce survives the end of its leadership, and is answered when the high watermark passes its offset:
    other records may be there."""
    original = Purgatory.complete_awaiting

    def complete_awaiting(self: Purgatory, partition: Partition, news: int) -> None:
        original(self, partition, news & ~News.DEPOSED)

    return [Patch(Purgatory, "complete_awaiting", complete_awaiting)]


@mutation("own")
def shows_uncommitted_records() -> list[Patch]:
    """Consumers read up to the log end."""
    original = Partition.read

    def read(
        self: Partition, offset: int, max_bytes: int, at_least_one: bool, end: int, *more: Any
    ) -> ReadResult:
        return original(self, offset, max_bytes, at_least_one, self.log.log_end, *more)

    return [Patch(Partition, "read", read)]


@mutation("own (P26)")
def new_leader_tells_an_old_end() -> list[Patch]:
    """A new leader returns its high watermark as the end, though it may be below the end that its predecessor
    returned."""

    def latest_offset(self: Partition, read_committed: bool) -> int:
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    return [Patch(Partition, "latest_offset", latest_offset)]


@mutation("own", likely=MANY_PARTITIONS)
def session_forgets_news_between_requests() -> list[Patch]:
    """A fetch session registers a partition's changes only while a request is parked."""
    original = SessionWatch.partition_changed

    def partition_changed(self: SessionWatch, partition: Partition, news: int) -> Sleeper | None:
        if self._parked is not None or partition.role is Role.OFFLINE:
            return original(self, partition, news)
        return None

    return [Patch(SessionWatch, "partition_changed", partition_changed)]


@mutation("own (found by a seed)")
def records_that_came_twice_tell_nothing_else() -> list[Patch]:
    """Two fetches are under way, and the answer to the second repeats the records of the first: its high watermark is dropped with
    them, though the leader does not tell it again."""
    original = FetchConversation._apply

    def _apply(
        self: FetchConversation,
        followed: Followed,
        answer: FetchedPartition,
        outcome: AppliedAnswer,
        now: float,
    ) -> None:
        if self._is_repeated(answer.records, followed.partition.log.log_end):
            self._changed[followed.partition.topic_id, followed.partition.partition] = None
        else:
            original(self, followed, answer, outcome, now)

    return [Patch(FetchConversation, "_apply", _apply)]


@mutation("own")
def refuses_producers_after_a_change_of_leader() -> list[Patch]:
    """Only the first leader of a partition accepts acks=all produces."""
    original = Leadership.append

    def append(self: Leadership, records: memoryview, acks: int, *rest: Any, **more: Any) -> Any:
        if acks == -1 and self.epoch > 0:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return original(self, records, acks, *rest, **more)

    return [Patch(Leadership, "append", append)]


@mutation("own")
def followers_show_uncommitted_records() -> list[Patch]:
    """A follower serves consumers records above its high watermark."""
    original = Partition.serve_consumer

    def serve_consumer(self: Partition, *what: Any, **more: Any) -> FetchedPartition:
        log = self.log
        high_watermark = log.high_watermark
        if self.role is Role.FOLLOWER:
            log.high_watermark = log.log_end
        try:
            return original(self, *what, **more)
        finally:
            log.high_watermark = high_watermark

    return [Patch(Partition, "serve_consumer", serve_consumer)]
