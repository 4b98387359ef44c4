"""The ISR against a majority quorum for the same number of failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.lab.experiment import LabOptions
from ottla.lab.experiments.f_failures import (
    BACKUP,
    EXPERIMENT,
    PRACTICE,
    QUORUM,
    SLOW_S,
    Costs,
    Removal,
    measure_costs,
    remove_brokers,
    variants,
    with_one_replica_less,
)

F = 1
BY_LABEL = {each.label: each for each in [*variants(F), *with_one_replica_less(F)]}


@pytest.fixture(scope="module")
def costs() -> dict[str, Costs]:
    return {label: measure_costs(0, F, BY_LABEL[label], 0.5) for label in (BACKUP, QUORUM)}


def test_P42_primary_backup_needs_f_plus_1_replicas_and_a_majority_2f_plus_1(
    costs: dict[str, Costs],
) -> None:
    assert {label: each.variant.replicas for label, each in costs.items()} == {BACKUP: 2, QUORUM: 3}
    assert costs[BACKUP].disk_bytes_per_byte == pytest.approx(2)
    assert costs[QUORUM].disk_bytes_per_byte == pytest.approx(3)
    assert costs[QUORUM].wire_bytes_per_record > 1.5 * costs[BACKUP].wire_bytes_per_record


def test_P42_bytes_between_brokers_are_those_of_requests_and_responses(
    costs: dict[str, Costs],
) -> None:
    """Exact: the same run every time. Neither direction alone has so many."""
    backup = costs[BACKUP]
    assert backup.healthy.acknowledged == 50
    assert backup.wire_bytes_per_record == 63_887 / 50


def test_P42_both_wait_for_the_same_number_of_copies(costs: dict[str, Costs]) -> None:
    assert {label: each.copies_healthy[0] for label, each in costs.items()} == {
        BACKUP: F + 1,
        QUORUM: F + 1,
    }


def test_P41_a_majority_does_not_wait_for_a_slow_replica(costs: dict[str, Costs]) -> None:
    slow_ms = SLOW_S * 1000
    isr, quorum = costs[BACKUP], costs[QUORUM]
    assert isr.slow.p50_ms is not None and isr.slow.p50_ms > slow_ms
    assert quorum.slow.p99_ms is not None and quorum.slow.p99_ms < slow_ms


def test_P41_the_isr_goes_on_without_a_replica_that_is_cut_off_and_a_majority_never_stops(
    costs: dict[str, Costs],
) -> None:
    isr, quorum = costs[BACKUP], costs[QUORUM]
    assert isr.cut_off.longest_pause_s > 30 > 1 > quorum.cut_off.longest_pause_s
    assert isr.after.p99_ms is not None and isr.after.p99_ms < SLOW_S * 1000


def removal(
    label: str, removed: int, *, lagging: bool = False, keep_disks: bool = False
) -> Removal:
    return remove_brokers(0, F, BY_LABEL[label], removed, lagging, keep_disks)


def test_P42_primary_backup_survives_f_lost_disks_and_not_one_more() -> None:
    after_f = removal(BACKUP, F)
    assert (after_f.readable, after_f.writable, after_f.lost) == (after_f.acknowledged, True, 0)
    one_more = removal(BACKUP, F + 1)
    assert (one_more.readable, one_more.writable) == (0, False)
    assert one_more.lost == one_more.acknowledged > 0


def test_P41_a_majority_survives_f_lost_disks_and_stops_at_one_more() -> None:
    after_f = removal(QUORUM, F, lagging=True)
    assert (after_f.readable, after_f.writable, after_f.lost) == (after_f.acknowledged, True, 0)
    stopped = removal(QUORUM, F + 1, lagging=True, keep_disks=True)
    assert (stopped.readable, stopped.writable) == (0, False)
    assert (stopped.readable_after_return, stopped.lost) == (stopped.acknowledged, 0)
    assert removal(QUORUM, F + 1, lagging=True).lost > 0


def test_P41_a_new_leader_of_a_majority_shows_its_last_records_only_after_a_write() -> None:
    """It commits nothing before a record of its own. A new leader of the ISR does not wait for one."""
    quorum, isr = removal(QUORUM, F), removal(PRACTICE, F)
    assert quorum.readable_before_write < quorum.acknowledged == quorum.readable
    assert isr.readable_before_write == isr.acknowledged


def test_P41_a_majority_that_lost_f_plus_1_disks_waits_for_an_operator() -> None:
    lost, kept = removal(QUORUM, F + 1), removal(QUORUM, F + 1, keep_disks=True)
    assert (lost.needs_operator, lost.writable_after_return) == (True, True)
    assert (kept.needs_operator, kept.writable_after_return) == (False, True)


def test_P42_every_seed_is_run_and_named_in_every_row(costs: dict[str, Costs]) -> None:
    options = LabOptions(range(2, 4), is_small=True)
    runs = EXPERIMENT.runs(options)
    for function in (measure_costs, remove_brokers):
        assert {run.arguments[0] for run in runs if run.function is function} == {2, 3}
    of = [replace(costs[BACKUP], seed=seed) for seed in options.seeds]
    tables = EXPERIMENT.summarize(options, [*of, removal(BACKUP, F)]).tables
    assert {table.columns[0] for table in tables} == {"seed"}
    assert [row[0] for row in tables[0].rows] == [2, 3]


def test_P41_a_majority_of_2f_replicas_does_not_survive_f_failures() -> None:
    assert not removal("majority, 2f", F).writable


def test_P20_an_isr_that_has_shrunk_to_one_loses_with_one_disk_and_a_minimum_does_not() -> None:
    assert removal(BACKUP, F, lagging=True).lost > 0
    with_minimum = removal(PRACTICE, F, lagging=True)
    assert (with_minimum.readable, with_minimum.writable) == (with_minimum.acknowledged, True)


def test_P42_the_experiment_reports_figures_that_do_not_show_it(costs: dict[str, Costs]) -> None:
    options = LabOptions(range(1), is_small=True)
    removals = [removal(label, count) for label in (BACKUP, QUORUM) for count in (F, F + 1)]
    found = [*costs.values(), *removals]
    assert EXPERIMENT.summarize(options, found).failed_expectations == []
    false = [
        replace(each, writable=not each.writable) if isinstance(each, Removal) else each
        for each in found
    ]
    assert len(EXPERIMENT.summarize(options, false).failed_expectations) == len(removals)
