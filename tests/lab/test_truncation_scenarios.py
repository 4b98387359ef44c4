"""The scripted scenarios of the lab under each truncation design, and the timelines that they leave."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from ottla.lab.design import Seam, design_named, designs_of
from ottla.lab.results import ExperimentResult, LogEntry, ReplicaMoment, Step, result_from_json
from ottla.lab.truncation.agreement import differences, first_difference_text
from ottla.lab.truncation.scenarios import all_scenarios, commands_of
from ottla.lab.truncation.timelines import PlayedScenario, TimelineRecorder, play
from ottla.records.batch import batches
from ottla.sim.engine.world import World
from ottla.sim.scripts.commands import ScriptCommands
from ottla.sim.scripts.script import SEED, run_line
from ottla.sim.scripts.script_cluster import ScriptCluster, log_content

DESIGNS = [design.name for design in designs_of(Seam.TRUNCATION)]
WITH_EPOCHS = ["leader-epochs", "kip101-first"]


@cache
def played(scenario: str, design: str) -> PlayedScenario:
    return play(all_scenarios()[scenario], design_named(design))


def steps(scenario: str, design: str) -> list[Step]:
    return list(played(scenario, design).timeline.steps)


def replica(step: Step, broker: int) -> ReplicaMoment:
    return next(each for each in step.replicas if each.broker == broker)


def stored(moment: ReplicaMoment) -> list[str]:
    return [entry.value for entry in moment.log if not entry.is_lost]


# Loss


def test_P29_P44_truncating_to_the_high_watermark_loses_an_acknowledged_record() -> None:
    found = played("loss", "hw-truncation")
    assert found.lost == ["m1"]
    last = found.timeline.steps[-1]
    assert [stored(each) for each in last.replicas] == [["m0", "m2"], ["m0", "m2"]]


@pytest.mark.parametrize("design", WITH_EPOCHS)
def test_P29_with_epochs_the_loss_scenario_loses_nothing(design: str) -> None:
    found = played("loss", design)
    assert (found.lost, found.differing) == ([], [])
    last = found.timeline.steps[-1]
    assert [stored(each) for each in last.replicas] == [["m0", "m1", "m2"]] * 2


def test_P44_the_timeline_shows_the_truncation_that_loses_the_record() -> None:
    """It was acknowledged before, only the follower drops it, and it stays marked until another takes its place."""
    found = steps("loss", "hw-truncation")
    before, after = next(
        (before, after)
        for before, after in pairwise(found)
        if any("truncates its log from 2 to 1" in event for event in after.events)
    )
    assert stored(replica(before, 1)) == ["m0", "m1"]
    follower, leader = replica(after, 1), replica(after, 2)
    assert list(follower.log) == [LogEntry(0, 0, "m0"), LogEntry(1, 0, "m1", is_lost=True)]
    assert (follower.log_end, follower.high_watermark, follower.changed) == (1, 1, True)
    assert stored(leader) == ["m0", "m1"]
    assert not any(entry.is_lost for each in found[-1].replicas for entry in each.log)


def test_P44_a_follower_that_is_elected_at_once_truncates_nothing() -> None:
    """The documents' telling has no restart and no new epoch: then even the old rule loses nothing."""
    assert [played("promotion", design).lost for design in DESIGNS] == [[]] * len(DESIGNS)


# Divergence


def test_P29_P44_without_epochs_logs_of_equal_length_diverge() -> None:
    found = played("divergence", "hw-truncation")
    assert found.differing == [1]
    last = found.timeline.steps[-1]
    assert [stored(each) for each in last.replicas] == [["m0", "m1", "y"], ["m0", "x", "y"]]
    assert [each.high_watermark for each in last.replicas] == [3, 3]
    assert "offset 1 is m1 on broker 1 and x on broker 2" in found.timeline.verdict


@pytest.mark.parametrize("design", WITH_EPOCHS)
def test_P29_with_epochs_the_divergence_scenario_ends_with_equal_logs(design: str) -> None:
    found = played("divergence", design)
    assert found.differing == []
    assert {tuple(stored(each)) for each in found.timeline.steps[-1].replicas} == {("m0", "x", "y")}


def test_P30_what_an_unclean_election_loses_is_excused_and_said() -> None:
    found = played("divergence", "leader-epochs")
    assert found.lost == []
    assert "m1 is lost, by the unclean election" in found.timeline.verdict


def test_P27_the_first_rule_of_kip_101_diverges_after_a_fast_failover() -> None:
    found = played("fast-failover", "kip101-first")
    assert found.differing == [1, 2]
    logs = [stored(each) for each in found.timeline.steps[-1].replicas]
    assert logs == [["a0", "a1", "a2", "c3", "d4"], ["a0", "b1", "b2", "c3", "d4"]]


@pytest.mark.parametrize("design", ["leader-epochs", "hw-truncation"])
def test_P27_the_other_rules_agree_after_a_fast_failover(design: str) -> None:
    assert played("fast-failover", design).differing == []


# Timelines


@pytest.mark.parametrize("scenario", all_scenarios())
def test_P24_a_timeline_has_the_epochs_that_the_batches_have(scenario: str) -> None:
    """The recorder finds them by itself, because not every design writes them into the batches."""
    with World(SEED) as world:
        cluster = ScriptCluster(world)
        commands, recorder = ScriptCommands(world, cluster), TimelineRecorder(cluster)
        compared = 0
        for block in all_scenarios()[scenario].blocks:
            for line in commands_of(block):
                run_line(commands, line)
                recorder.look()
            step = recorder.step("", [])
            for node in cluster.brokers:
                written = [
                    (batch.base_offset, batch.leader_epoch)
                    for batch in batches(log_content(node.host), allow_partial=True)
                ]
                log = replica(step, node.id).log
                assert [(each.offset, each.epoch) for each in log if not each.is_lost] == written
                compared += len(written)
        assert compared


def test_P44_a_leader_without_epochs_writes_the_same_one_into_every_batch() -> None:
    rule = design_named("hw-truncation").part.rules.truncation
    assert {rule.written_epoch(epoch) for epoch in range(5)} == {0}
    assert design_named("leader-epochs").part.rules.truncation.written_epoch(7) == 7


def test_timelines_survive_the_results_file() -> None:
    timelines = [played("loss", design).timeline for design in DESIGNS]
    result = ExperimentResult("loss", "?", DESIGNS, ".", "0..0", "ottla", timelines=timelines)
    assert result_from_json(result.to_json()).timelines == timelines


def test_only_a_replica_that_changed_is_marked() -> None:
    for scenario in all_scenarios():
        found = steps(scenario, "leader-epochs")
        for before, after in pairwise(found):
            for old, new in zip(before.replicas, after.replicas, strict=True):
                same = (old.role, old.epoch, old.log, old.high_watermark, old.log_end) == (
                    (new.role, new.epoch, new.log, new.high_watermark, new.log_end)
                )
                assert new.changed is not same, (scenario, after.what)


def test_every_step_says_what_happens_in_it() -> None:
    for scenario in all_scenarios().values():
        assert scenario.title
        assert all(step.what.endswith(".") for step in steps(scenario.name, "leader-epochs"))


# Agreement


def test_replicas_are_compared_below_their_lowest_high_watermark_only() -> None:
    logs = {1: (3, {0: "a", 1: "b", 2: "c"}), 2: (2, {0: "a", 1: "x", 2: "y"})}
    assert differences(logs) == [1]
    assert first_difference_text(logs) == "offset 1 is b on broker 1 and x on broker 2"
    assert differences({1: (1, {0: "a"}), 2: (1, {})}) == [0]
    assert differences({}) == []
