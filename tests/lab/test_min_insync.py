"""acks, min.insync.replicas and unclean elections: what they give and take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ottla.lab.commit.faults import OutageKind, outages
from ottla.lab.experiment import LabOptions
from ottla.lab.experiments.min_insync import (
    AVAILABLE,
    BROKERS,
    DURABLE,
    EXPERIMENT,
    MIX,
    LastReplica,
    RecordTally,
    last_replica_standing,
    strike,
)


@pytest.fixture(scope="module")
def stories() -> dict[tuple[int, bool, bool], LastReplica]:
    """By minimum, unclean election, and whether the leader's disk is kept."""
    return {
        (each.combination.min_insync, each.combination.unclean, each.keeps_disk): each
        for keeps_disk in (True, False)
        for each in last_replica_standing(0, keeps_disk)
    }


def test_P20_acks_all_succeeds_with_an_isr_of_one_and_is_lost_with_its_disk(
    stories: dict[tuple[int, bool, bool], LastReplica],
) -> None:
    story = stories[1, False, False]
    assert story.lost == story.acknowledged_alone > 0


def test_P20_with_a_minimum_of_two_nothing_is_acknowledged_alone(
    stories: dict[tuple[int, bool, bool], LastReplica],
) -> None:
    assert {each.acknowledged_alone for key, each in stories.items() if key[0] == 2} == {0}


def test_P30_a_clean_election_waits_for_the_replica_in_sync_and_loses_nothing(
    stories: dict[tuple[int, bool, bool], LastReplica],
) -> None:
    story = stories[1, False, True]
    assert story.acknowledged_alone > 0
    assert (story.writable_without_leader, story.lost, story.left_offline) == (False, 0, False)


def test_P30_an_unclean_election_goes_on_at_once_and_loses_what_only_the_leader_had(
    stories: dict[tuple[int, bool, bool], LastReplica],
) -> None:
    story = stories[1, True, True]
    assert (story.writable_without_leader, story.readable_without_leader) == (True, 0)
    assert story.lost == story.acknowledged_alone > 0


def test_P31_durability_costs_time_and_availability_costs_records() -> None:
    tallies = [each for seed in (3, 4) for each in strike(seed, "isr", 100.0)]
    of = {
        chosen: [each for each in tallies if each.combination == chosen]
        for chosen in (DURABLE, AVAILABLE)
    }
    acknowledged = {each: sum(t.acknowledged for t in of[each]) for each in of}
    lost = {each: sum(t.lost_unattended for t in of[each]) for each in of}
    assert acknowledged[DURABLE] < acknowledged[AVAILABLE]
    assert lost[DURABLE] == 0 < lost[AVAILABLE]


def test_P31_what_is_lost_after_an_operators_election_is_counted_apart() -> None:
    """Seed 22: the only replica that has everything comes back on an empty disk, and a clean election never ends."""
    of = {each.combination: each for each in strike(22, "isr", 200.0)}
    durable, unclean = of[DURABLE], of[DURABLE._replace(unclean=True)]
    assert durable.left_offline == durable.schedules == 1
    assert durable.lost == durable.lost_by_operator > 0 == durable.lost_unattended
    assert (unclean.left_offline, unclean.lost_by_operator) == (0, 0)
    assert unclean.lost == unclean.lost_unattended > 0


def test_P31_the_finding_has_the_counts_of_the_schedules_whatever_they_are() -> None:
    def summary(durable: RecordTally) -> str:
        available = RecordTally("isr", AVAILABLE, sent=100, acknowledged=90, lost=7, schedules=2)
        return EXPERIMENT.summarize(
            LabOptions(range(2), is_small=True), [[durable, available]]
        ).finding

    one = RecordTally("isr", DURABLE, sent=50, acknowledged=40, schedules=1)
    assert "lost 0 of 80 acknowledged records (schedules with losses: 0);" in summary(one + one)
    ended = replace(one, lost=5, lost_by_operator=5, schedules_with_loss=1, left_offline=1)
    assert (
        "lost 5 of 80 acknowledged records (schedules with losses: 1), 5 of them where an operator"
        in summary(one + ended)
    )
    unattended = replace(one, lost=3, schedules_with_loss=1)
    assert "lost 3 of 80 acknowledged records (schedules with losses: 1);" in summary(
        one + unattended
    )


def test_P31_the_same_seed_gives_the_same_trade() -> None:
    assert strike(1, "isr-without-elr", 20.0) == strike(1, "isr-without-elr", 20.0)


def test_outages_never_exceed_how_many_may_be_out_at_a_time() -> None:
    for at_once_max in (1, 2):
        schedule = outages(Random(7), BROKERS, 500.0, MIX, at_once_max)
        out = [each for each in schedule if each.kind is not OutageKind.SLOW_LINE]
        assert len(out) > 10
        for each in out:
            together = [o for o in out if o.begin_s <= each.begin_s < o.end_s]
            assert len(together) <= at_once_max
            assert len({o.broker for o in together}) == len(together)
