"""P43: copies that all take reads and writes. What they lose is counted, and one leader loses none of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations

from ottla.lab.design import design_named
from ottla.lab.experiments.leaderless import (
    ALL,
    EXPERIMENT,
    LEADER_ONLY,
    LOSS_RATE,
    PARTITION,
    Agreement,
    Loss,
    agreement,
    inversions,
    loss,
)
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.open_loop import OpenLoopWriter, find_leader
from ottla.lab.runner import options_for, run_experiment

LEADERLESS = design_named("leaderless")


def test_P43_copies_without_a_leader_disagree_and_one_leader_does_not() -> None:
    without, leader = (
        agreement(design, copies=3, rate=1_000, acks=ALL, records=60, seed=0)
        for design in (LEADERLESS.name, "pull")
    )
    assert without.read_differently > 0 and without.inversions > 0
    assert leader.read_differently == leader.inversions == 0
    assert without.lacking == leader.lacking == 0


def test_P43_five_copies_need_ten_links_and_a_leader_four() -> None:
    without, leader = (
        agreement(design, copies=5, rate=1_000, acks=ALL, records=20, seed=0)
        for design in (LEADERLESS.name, "pull")
    )
    assert (without.links, without.connections) == (10, 20)
    assert (leader.links, leader.connections) == (4, 4)
    assert without.messages > leader.messages


def test_P43_a_write_acknowledged_at_once_is_lost_with_its_copy() -> None:
    with _leaderless() as cluster:
        for other in ("n2", "n3"):
            cluster.world.network.conditions.slow_links["n1", other] = 5.0
        writer = _write(cluster, broker=1, acks=LEADER_ONLY)
        assert cluster.run_until(lambda: bool(writer.acknowledged), 1)
        cluster.sim.nodes[1].kill(power_loss=True)
        cluster.run_for(20)
        assert not any(cluster.records_on_disk(broker, PARTITION) for broker in (2, 3))


def test_P43_a_write_acknowledged_by_all_waits_for_a_dead_copy() -> None:
    with _leaderless() as cluster:
        cluster.sim.nodes[3].kill()
        writer = _write(cluster, broker=1, acks=ALL)
        cluster.run_for(20)
        assert not writer.acknowledged
        cluster.sim.nodes[3].start()
        assert cluster.run_until(lambda: bool(writer.acknowledged), 60)
        assert [len(cluster.records_on_disk(broker, PARTITION)) for broker in (1, 2, 3)] == [1] * 3


def test_P43_a_copy_that_was_down_gets_each_record_once() -> None:
    with _leaderless() as cluster:
        writers = [_write(cluster, broker, LEADER_ONLY, records=10) for broker in (1, 2, 3)]
        cluster.run_for(0.05)
        cluster.sim.nodes[2].kill()
        cluster.run_for(5)
        cluster.sim.nodes[2].start()
        cluster.run_for(20)
        logs = [
            [each.value for each in cluster.records_on_disk(broker, PARTITION)]
            for broker in (1, 2, 3)
        ]
        assert len(set(logs[0])) == len(logs[0])
        assert set(logs[0]) == set(logs[1]) == set(logs[2])
        acknowledged = {each.value for writer in writers for each in writer.acknowledged}
        assert acknowledged <= set(logs[0])
        assert not cluster.failures and not cluster.world.problems()


def test_P43_what_the_dead_machine_had_acknowledged_is_told_apart() -> None:
    """A leader has taken all writes; a copy without a leader has taken its share."""
    leader, without = (
        loss(design, copies=3, rate=LOSS_RATE, acks=LEADER_ONLY, records=60, seed=0)
        for design in ("pull", LEADERLESS.name)
    )
    assert leader.by_the_dead == leader.acknowledged >= 30
    assert 0 < without.by_the_dead < 20
    assert without.acknowledged > 40, "the other two writers go on"
    assert all(each.lost <= each.by_the_dead for each in (leader, without))


def test_P43_losses_are_compared_by_what_the_dead_machine_had_acknowledged() -> None:
    agreed = Agreement("", 3, 1_000, ALL, 2, 2, 1.0, 1.0, 1.0, 1.0, 60, 0, 0, 0)
    found = [
        replace(agreed, design="pull"),
        replace(agreed, design=LEADERLESS.name, links=3, read_differently=6),
        Loss("pull", 3, LEADER_ONLY, 90, 90, 9, 8.0),
        Loss("pull", 3, ALL, 90, 90, 0, 8.0),
        Loss(LEADERLESS.name, 3, LEADER_ONLY, 90, 30, 3, 0.1),
        Loss(LEADERLESS.name, 3, ALL, 40, 12, 0, None),
    ]
    options = options_for(EXPERIMENT, small=True)
    result = EXPERIMENT.summarize(options, found)
    _, _, table = result.tables
    shares = {
        (row[1], row[2]): dict(zip(table.columns, row, strict=True))["lost % of the dead copy's"]
        for row in table.rows
    }
    assert shares["pull", "1"] == shares[LEADERLESS.name, "1"] == 10.0
    assert shares["pull", "all"] == shares[LEADERLESS.name, "all"] == 0.0
    assert result.charts[-1].series["pull"][0] == ("3 copies, acks=1", 10.0)
    assert result.finding == (
        "3 copies have 2 links and different records at 0% of the offsets with one leader, and 3 links and different"
        " records at 10% of the offsets without a leader. Of the records that a dead machine had acknowledged with"
        " acks=1, 9 of 90 (10.0%) with one leader, and 3 of 30 (10.0%) without a leader are lost; with acks=all 0"
        " and 0."
    )


def test_P43_pairs_in_another_order_are_counted() -> None:
    chance = random.Random(43)
    for _ in range(50):
        one = [str(number) for number in range(12)]
        other = chance.sample(one, 10)
        pairs = combinations([each for each in one if each in other], 2)
        expected = sum(other.index(a) > other.index(b) for a, b in pairs)
        assert inversions(one, other) == expected


def test_P43_the_experiment_shows_what_it_must() -> None:
    result = run_experiment(EXPERIMENT, options_for(EXPERIMENT, small=True))
    assert not result.failed_expectations
    assert len(result.tables) == 3
    assert all(chart.series for chart in result.charts)


@contextmanager
def _leaderless() -> Iterator[LabCluster]:
    with simulated(
        43, nodes=4, controllers=1, design=LEADERLESS.part, settings=LEADERLESS.settings
    ) as cluster:
        cluster.start()
        cluster.create_topic(PARTITION.topic, 1, 3)
        cluster.run_for(2)
        yield cluster


def _write(cluster: LabCluster, broker: int, acks: int, records: int = 1) -> OpenLoopWriter:
    topic_id, _ = find_leader(cluster, PARTITION)
    writer = OpenLoopWriter(cluster, f"w{broker}", PARTITION, topic_id, broker, acks, broker)
    cluster.clients.run(writer.run([0.01 * number for number in range(records)]))
    return writer
