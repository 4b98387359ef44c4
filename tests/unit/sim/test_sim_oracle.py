"""What the oracle takes for the same log, and what it does not."""

from __future__ import annotations

import random
from uuid import UUID

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.batch import assign, batches
from ottla.records.record import Record, build
from ottla.sim.engine.disk import SimDisk
from ottla.sim.oracle.ledger import Ledger, LogCopy, SeenBatch
from ottla.wire.types import TopicPartition


def committed() -> Ledger:
    """Batches of offsets 0 to 4, 5 to 9 and 10 to 14."""
    ledger, copy = Ledger(TopicPartition("t", 0)), LogCopy()
    for base in (0, 5, 10):
        copy.add(SeenBatch(base, base + 5, 0, b"up to %d" % (base + 5), 0, base, 1))
    assert ledger.commit(copy, 15) is None
    return ledger


def test_a_log_begun_anew_within_a_batch_holds_nothing_and_contradicts_nothing() -> None:
    ledger, begun_anew = committed(), LogCopy(7)
    assert ledger.commit(begun_anew, 7) is None
    assert not ledger.holds_all(begun_anew)
    assert ledger.end == 15


def test_a_log_that_goes_on_within_a_batch_is_not_what_was_committed() -> None:
    ledger, other = committed(), LogCopy(7)
    other.add(SeenBatch(7, 9, 0, b"another", 0, 0, 1))
    assert "differs from what is committed" in (ledger.commit(other, 9) or "")
    other.add(SeenBatch(9, 10, 0, b"another yet", 0, 1, 1))
    assert "differs from what is committed" in (ledger.commit(other, 10) or "")


def test_a_log_begun_anew_between_batches_must_rest_on_what_was_committed() -> None:
    ledger = committed()
    assert ledger.commit(LogCopy(5, b"up to 5"), 5) is None
    assert "differs from what is committed" in (ledger.commit(LogCopy(5, b"another"), 5) or "")


def test_what_is_missing_is_told_batch_by_batch_whatever_counts_as_lying_below() -> None:
    disk = SimDisk(random.Random(0))
    disk.make_dirs("/data")
    config = LogConfig()
    log = Log.create(LogResources(disk), "/data", "t", 0, config, topic_id=UUID(int=1), now_ms=0)

    def append(value: bytes) -> None:
        log.append_as_leader(memoryview(build([Record(0, 0, None, value)])), 0, 0)

    for value in (b"a", b"b", b"c"):
        append(value)
    before, now = LogCopy(), LogCopy(base_hash=b"another history below")
    before.follow(disk, log)
    now.follow(disk, log)
    assert now.hash_at(3) != before.hash_at(3)
    assert now.missing(before, disk, log) == []
    log.truncate_to(1)
    append(b"B")
    now = LogCopy(base_hash=b"another history below")
    now.follow(disk, log)
    assert [batch.base for batch in now.missing(before, disk, log)] == [1, 2]


def test_a_leader_that_begins_above_all_that_was_committed_lost_what_is_newer_than_its_epochs() -> (
    None
):
    """Two histories, by unclean elections: the other one's beginning has expired (seed 57)."""
    ledger, copy = committed(), LogCopy()
    for batch in ledger.copy.batches:
        copy.add(batch)
    copy.add(SeenBatch(15, 16, 1, b"of epoch 1", 0, 15, 1))
    assert ledger.commit(copy, 16) is None
    other = LogCopy(25)
    other.add(SeenBatch(25, 27, 0, b"of epoch 0", 0, 0, 1))
    ledger.lose_from(ledger.copy.floor(27), 3, other)
    assert [(loss.first, loss.end, loss.epoch) for loss in ledger.losses] == [(15, 16, 3)]
    assert ledger.excuses(15, 1) and not ledger.excuses(14, 0)


def test_a_log_that_was_emptied_and_begins_within_a_batch_of_its_leader_has_nothing_of_before() -> (
    None
):
    """Its own start is where its old end was, and the batch reaches below (seed 91)."""
    disk = SimDisk(random.Random(0))
    disk.make_dirs("/data")
    log = Log.create(
        LogResources(disk), "/data", "t", 0, LogConfig(), topic_id=UUID(int=1), now_ms=0
    )
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(memoryview(build([Record(0, 0, None, value)])), 4, 0)
    copy = LogCopy()
    copy.follow(disk, log)
    log.truncate_fully(3)
    assert copy.cut_like(disk, log) == []
    batch = build([Record(offset, 0, None, b"another") for offset in range(3)])
    given = memoryview(bytearray(batch))
    assign(given, next(batches(given)), 1, 0)
    log.append_as_follower(given, 5)
    assert (log.log_start, log.log_end, log.segment_bases) == (3, 4, [1])
    assert [gone.base for gone in copy.cut_like(disk, log)] == [0, 1, 2] and not copy.batches
