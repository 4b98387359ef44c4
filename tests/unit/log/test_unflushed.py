"""What a power loss may still take of a log, while flushes are planned and carried out."""

from __future__ import annotations

from ottla.log.config import LogConfig
from ottla.log.unflushed import Unflushed

CONFIG = LogConfig()


def clean() -> Unflushed:
    return Unflushed(everything=False)


def test_a_log_that_was_closed_cleanly_has_nothing_to_flush() -> None:
    unflushed = clean()
    assert unflushed.is_settled(CONFIG, finished=False)
    assert not unflushed.is_due(0, CONFIG, records=0, finished=False)


def test_nobody_knows_what_was_flushed_before_a_crash() -> None:
    unflushed = Unflushed(everything=True)
    assert not unflushed.is_settled(CONFIG, finished=False)
    assert unflushed.is_due(0, CONFIG, records=0, finished=False)
    unflushed.plan_all()
    assert unflushed.flushed(7) == 7
    assert unflushed.is_settled(CONFIG, finished=False)


def test_a_finished_segment_is_due_at_once_and_records_in_the_newest_after_their_time() -> None:
    unflushed = clean()
    config = LogConfig(flush_ms=100)
    assert unflushed.is_due(0, config, records=1, finished=True)
    assert not unflushed.is_due(50, config, records=1, finished=False)
    assert unflushed.is_due(100, config, records=1, finished=False)
    assert not unflushed.is_due(110, config, records=0, finished=False)
    assert not unflushed.is_due(200, config, records=1, finished=False)


def test_a_flush_covers_nothing_above_what_was_cut_while_it_ran() -> None:
    unflushed = clean()
    unflushed.plan_all()
    unflushed.was_cut(5)
    unflushed.was_cut(8)
    assert unflushed.flushed(10) == 5
    assert unflushed.cut and unflushed.cut_may_come_back
    unflushed.plan_all()
    assert unflushed.flushed(10) == 10
    assert not unflushed.cut_may_come_back


def test_a_cut_before_the_flush_is_part_of_it() -> None:
    unflushed = clean()
    unflushed.was_cut(5)
    unflushed.plan_all()
    assert unflushed.flushed(5) == 5
    assert not unflushed.cut and not unflushed.cut_may_come_back


def test_a_cut_is_remembered_until_the_last_of_several_plans_has_ended() -> None:
    unflushed = clean()
    unflushed.plan_identity()
    unflushed.plan_all()
    unflushed.was_cut(3)
    unflushed.carried_out()
    assert unflushed.is_planned
    assert unflushed.flushed(10) == 3


def test_while_a_plan_is_under_way_no_other_is_due() -> None:
    unflushed = clean()
    unflushed.was_cut(0)
    unflushed.plan_nothing_of_this()
    assert not unflushed.is_due(10**9, CONFIG, records=10, finished=True)
    assert not unflushed.is_settled(CONFIG, finished=False)
    unflushed.carried_out()
    assert unflushed.is_due(0, CONFIG, records=0, finished=False)


def test_the_plan_of_the_identity_leaves_everything_else_to_be_flushed() -> None:
    unflushed = Unflushed(everything=True)
    unflushed.plan_identity()
    unflushed.carried_out()
    assert not unflushed.identity
    assert unflushed.names and unflushed.cut and unflushed.cut_may_come_back
