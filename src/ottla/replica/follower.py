"""What a replica does while it follows: fetch from its log end, apply the answers, truncate what diverges.

A follower has no state of its own beside its log. Which partitions are fetched, and when, is in `fetcher`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.events.replication import (
    DamagedBatchRefused,
    LogRestarted,
    Truncated,
    TruncationCause,
)
from ottla.log.kept_records import CutRecords
from ottla.log.log import Log
from ottla.records.batch import CorruptBatch
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.wire.fetch_messages import FetchedPartition

logger = logging.getLogger(__name__)

NO_EPOCH = -1


def begin_following(partition: Partition) -> None:
    """There is another leader, or a new epoch: drop what the truncation rule drops before the first fetch. The
    product's rule drops nothing."""
    end = partition.log.log_end
    target = partition.rules.truncation.start_of_following(partition.log)
    if target < end:
        _cut(
            partition,
            target,
            target,
            (NO_EPOCH, target),
            TruncationCause.START_OF_FOLLOWING,
            keeps_some=True,
        )


def next_fetch_position(partition: Partition) -> tuple[int, int]:
    """(offset, last fetched epoch) that the next fetch names (P25)."""
    latest = partition.log.epochs.latest
    return partition.log.log_end, -1 if latest is None else latest


def apply_fetch_answer(partition: Partition, answer: FetchedPartition, leader_epoch: int) -> int:
    """Apply the leader's answer to a fetch made in `leader_epoch`. Returns how many bytes were appended.

    An answer to a fetch of another epoch changes nothing (D8). If the logs diverge, our log is truncated. The high
    watermark of that answer does not count, because it may cover records that we are about to drop (KAFKA-14704).
    Otherwise our high watermark rises to the leader's, as far as our log reaches."""
    if partition.role is not Role.FOLLOWER or leader_epoch != partition.leader_epoch:
        return 0
    log = partition.log
    if answer.diverging is not None:
        _truncate(partition, answer.diverging, answer.log_start_offset)
        return 0
    if answer.log_start_offset < log.log_end:
        partition.agreed_epoch = leader_epoch
    elif (loss := _loss_below_start(partition)) is not None:
        # What was in our log goes out of both.
        _restart(partition, log.log_end, loss)
    appended = 0
    records = answer.records
    if records is not None:
        assert isinstance(records, memoryview)
        if len(records):
            before = log.log_end
            try:
                log.append_as_follower(records, leader_epoch)
            except CorruptBatch as damage:
                if DamagedBatchRefused in partition.events:
                    partition.events.emit(
                        DamagedBatchRefused(
                            partition.key, partition.leader, leader_epoch, before, damage.message
                        )
                    )
                raise
            partition.flush_if_asked()
            appended = len(records)
            partition.copied_in += appended
            partition.traffic.every.replication_bytes_in += appended
            if log.log_end > before:
                partition.observer.partition_changed(partition, News.LOG_END)
    if answer.log_start_offset > log.log_start:
        log.advance_log_start(min(answer.log_start_offset, log.log_end))
    partition.leader_high_watermark = answer.high_watermark
    high_watermark = min(answer.high_watermark, log.log_end)
    if high_watermark > log.high_watermark:
        log.advance_high_watermark(high_watermark)
        partition.observer.partition_changed(partition, News.HIGH_WATERMARK)
    return appended


def _truncate(partition: Partition, diverging: tuple[int, int], leader_log_start: int) -> None:
    """Truncate where our log stops agreeing with the leader's. If that is below our log start, we drop everything:
    nothing that we still have agrees with the leader's log. We then begin again at the leader's log start, or at the
    point of agreement if that is lower, because the leader may have records there that we had deleted, and a member of
    the ISR must have all records of the leader."""
    log = partition.log
    target = partition.rules.truncation.target(log.epochs, log.log_end, diverging)
    if target < log.log_start:
        restart_at = min(target, leader_log_start)
        _cut(partition, restart_at, target, diverging, TruncationCause.DIVERGING, keeps_some=False)
    elif target < log.log_end:
        _cut(partition, target, target, diverging, TruncationCause.DIVERGING, keeps_some=True)
    else:
        # No record goes, but an epoch that began at our end and got no record must be forgotten.
        log.truncate_to(target)


def restart_within(partition: Partition, leader_log_start: int, leader_log_end: int) -> None:
    """Our log end lies outside of the leader's log, and the leader answered OFFSET_OUT_OF_RANGE.

    - Our end is above the leader's end: we truncate to the leader's end. A fetch answer did not tell us to, because an
      emptied log knows no epoch that could diverge. If our log starts at or above the leader's end, nothing is left,
      and we begin again at the leader's log start.
    - Our end is below the leader's start: we begin again at the leader's log start."""
    if partition.role is not Role.FOLLOWER:
        return
    log = partition.log
    end = log.log_end
    is_above = end > leader_log_end
    keeps_some = log.log_start < leader_log_end
    if is_above and (keeps_some or leader_log_start < end):
        target = leader_log_end if keeps_some else leader_log_start
        diverging = (NO_EPOCH, leader_log_end)
        cause = TruncationCause.BEYOND_LEADERS_END
        _cut(partition, target, target, diverging, cause, keeps_some=keeps_some)
    elif is_above or end < leader_log_start:
        # Also if both hold: the leader's end and start are two answers, and the log may have moved on in between.
        _restart(partition, leader_log_start, _loss_below_start(partition))


def _restart(partition: Partition, start: int, loss: CutRecords | None) -> None:
    log = partition.log
    end = log.log_end
    kept = log.truncate_fully(start, loss)
    if loss is not None:
        logger.warning(
            "restarted log, records may be lost partition=%s-%d first_offset=%d last_offset=%d log_start=%d leader=%d"
            " leader_epoch=%d kept=%s",
            *partition.key,
            loss.first_offset,
            end - 1,
            start,
            partition.leader,
            partition.leader_epoch,
            kept,
        )
    if LogRestarted in partition.events:
        partition.events.emit(LogRestarted(partition.key, partition.leader_epoch, end, start))


def _cut(
    partition: Partition,
    restart_at: int,
    target: int,
    diverging: tuple[int, int],
    cause: TruncationCause,
    *,
    keeps_some: bool,
) -> None:
    """Drop the records from `target` on, or all of them, and report what was dropped (D7)."""
    assert partition.role is Role.FOLLOWER, f"only followers truncate (D7): {partition}"
    log = partition.log
    end, high_watermark, committed_end = log.log_end, log.high_watermark, log.committed_end
    assert target < end, f"truncation to {target}: {partition}"
    segments, size = len(log.segment_bases), log.size_bytes
    loss = _loss(partition, target, cause)
    epochs = tuple(epoch for epoch, until in _epoch_ends(log) if until > target)
    if keeps_some:
        kept = log.truncate_to(target, loss)
    else:
        kept = log.truncate_fully(restart_at, loss)
    assert log.high_watermark <= max(high_watermark, log.log_start), f"D8: {partition}"
    committed = max(committed_end - target, 0)
    logger.warning(
        "truncated log partition=%s-%d first_offset=%d last_offset=%d committed_offsets=%d leader=%d"
        " leader_epoch=%d diverging_epoch=%d diverging_end=%d kept=%s",
        *partition.key,
        target,
        end - 1,
        committed,
        partition.leader,
        partition.leader_epoch,
        *diverging,
        kept,
    )
    if Truncated in partition.events:
        partition.events.emit(
            Truncated(
                partition.key,
                cause,
                target,
                end,
                high_watermark,
                log.log_end,
                segments - len(log.segment_bases),
                partition.leader,
                partition.leader_epoch,
                diverging,
                committed_end,
                size - log.size_bytes,
                epochs,
                kept,
            )
        )


def _loss(partition: Partition, target: int, cause: TruncationCause) -> CutRecords | None:
    """What is lost if everything from `target` on is dropped; None if that is only an uncommitted tail.

    A clean election loses nothing that is committed. So what this replica knew to be committed and must drop is lost. If
    the leader's epoch, or one before it, began with an unclean election, then the older records above that may be lost
    too: another replica may have known more."""
    log = partition.log
    first = max(target, log.log_start)
    written_in = log.epochs.epoch_for_offset(first)
    may_be_lost = written_in is not None and written_in < partition.unclean_epoch
    if first >= log.log_end or not (first < log.committed_end or may_be_lost):
        return None
    how = "an unclean election" if may_be_lost else "a leader that lacks committed records"
    return CutRecords(
        first,
        log.committed_end,
        f"{how}: {cause.value}",
        partition.leader,
        partition.leader_epoch,
    )


def _loss_below_start(partition: Partition) -> CutRecords | None:
    """What may be lost if the leader's log begins at or above our end, and ours is emptied; None if it is only what retention
    or DeleteRecords deleted.

    If the leader's epoch, or one before it, began with an unclean election, and our log has not been compared with a leader's
    since, then it may have records that this leader never had. The leader has deleted the place where they ceased to agree,
    so none of them is lost for certain."""
    log = partition.log
    latest = log.epochs.latest
    if latest is None or log.log_start == log.log_end:
        return None
    if max(latest, partition.agreed_epoch) >= partition.unclean_epoch:
        return None
    return CutRecords(
        log.log_start,
        log.log_start,
        "an unclean election: the leader's log begins after these records, and may never have had them",
        partition.leader,
        partition.leader_epoch,
        restarts=True,
    )


def _epoch_ends(log: Log) -> Iterator[tuple[int, int]]:
    entries = log.epochs.entries
    starts = [*(start for _, start in entries[1:]), log.log_end]
    return zip((epoch for epoch, _ in entries), starts, strict=False)
