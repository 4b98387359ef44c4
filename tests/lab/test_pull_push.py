"""P49: push with an acknowledgement for each message, against pull: the design works, and the figures are counted."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from ottla.broker.node import Node
from ottla.lab.design import design_named
from ottla.lab.designs.push_with_acks import PUSH_PORT
from ottla.lab.experiments.pull_push import (
    ALL,
    EXPERIMENT,
    PARTITION,
    count_records,
    measure,
    replication,
)
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.open_loop import OpenLoopWriter, find_leader, poisson
from ottla.lab.runner import options_for, run_experiment
from ottla.lab.wire_counts import WireCounts
from ottla.replica.partition import Partition
from ottla.sim.engine.world import World
from ottla.sim.run.options import RunOptions
from ottla.sim.run.scenario import Scenario

PUSH = design_named("push-with-acks")
RECORDS = 50


@pytest.mark.parametrize("seed", (1, 3, 62))
def test_P49_push_keeps_what_was_acknowledged_under_random_faults(seed: int) -> None:
    """The simulator's own faults and checkers, over nodes that push. In seed 62 a disk of the leader rots."""
    with World(seed) as world:
        scenario = Scenario(world, RunOptions.draw(seed))
        scenario.cluster.make_node = partial(Node, design=PUSH.part)
        with scenario.recorded():
            scenario.run()
        assert scenario.workload.history.acknowledged
        assert not scenario.failures


def test_P49_push_sends_each_record_to_each_follower_and_gets_an_ack_for_each() -> None:
    found = measure(PUSH.name, followers=2, rate=10_000, records=RECORDS, seed=0)
    assert found.messages == pytest.approx(4, abs=0.05)
    assert found.leader_receives == pytest.approx(2, abs=0.05)
    assert found.lacking == 0


def test_P49_a_pulling_follower_batches_by_itself_as_the_rate_rises() -> None:
    slow, fast = (
        measure("pull", followers=2, rate=rate, records=RECORDS, seed=0) for rate in (10, 10_000)
    )
    assert slow.records_per_message == pytest.approx(1, abs=0.1)
    assert fast.records_per_message > 3
    assert fast.messages < slow.messages / 3
    assert slow.lacking == fast.lacking == 0


@pytest.mark.parametrize("design", ("pull", PUSH.name))
def test_P49_messages_without_records_are_not_among_those_that_carry_records(design: str) -> None:
    """At this rate most messages carry none: polls with pull, news of commits with push."""
    rare = measure(design, followers=2, rate=1, records=10, seed=0)
    assert rare.messages > 6
    assert rare.records_per_message == 1


@pytest.mark.parametrize("design", ("pull", PUSH.name))
def test_P49_each_record_is_counted_once_for_each_follower(design: str) -> None:
    with simulated(9, nodes=4, controllers=1, design=design_named(design).part) as cluster:
        count_records(cluster.counts)
        writer, leader = _started(cluster)
        _write(cluster, writer, 5)
        cluster.run_for(1)
        before = cluster.counts.copy()
        _write(cluster, writer, 20)
        found = replication(cluster.counts.since(before))
        followers = {cluster.sim.nodes[each].host.name for each in (1, 2, 3) if each != leader}
        carried = Counter[str]()
        for line, records in found.records.items():
            carried[line.server if line.port == PUSH_PORT else line.client] += records
        assert carried == dict.fromkeys(followers, 20)
        assert found.carriers.total() <= found.records.total()


def test_P49_without_records_pull_polls_and_push_is_silent() -> None:
    pull, push = (
        measure(design, followers=1, rate=100, records=5, seed=0) for design in ("pull", PUSH.name)
    )
    assert pull.idle_messages == pytest.approx(
        4, abs=0.2
    )  # a request and an answer each half second
    assert push.idle_messages == 0


def test_P49_a_follower_that_was_killed_fetches_until_it_is_pushed_to_again() -> None:
    with simulated(7, nodes=4, controllers=1, design=PUSH.part) as cluster:
        writer, leader = _started(cluster)
        follower = 1 + leader % 3
        host = cluster.sim.nodes[follower].host.name
        _write(cluster, writer, 20)
        cluster.sim.nodes[follower].kill()
        _write(cluster, writer, 20)
        cluster.sim.nodes[follower].start()
        assert cluster.run_until(lambda: _isr(cluster, leader) == {1, 2, 3}, 60)
        _write(cluster, writer, 5)
        cluster.run_for(1)
        before = cluster.counts.copy()
        _write(cluster, writer, 20)
        used = replication(cluster.counts.since(before))
        assert _lines(used, host) == {PUSH_PORT}
        cluster.run_for(2)
        for broker in (1, 2, 3):
            values = [each.value for each in cluster.records_on_disk(broker, PARTITION)]
            assert values == [each.value for each in writer.sent]
        assert not cluster.failures and not cluster.world.problems()


def test_P49_followers_learn_of_the_last_commit_without_another_record() -> None:
    with simulated(8, nodes=4, controllers=1, design=PUSH.part) as cluster:
        writer, _ = _started(cluster)
        _write(cluster, writer, 10)

        def all_know() -> bool:
            return all(_replica(cluster, each).log.high_watermark == 10 for each in (1, 2, 3))

        assert not all_know()
        assert cluster.run_until(all_know, 2)


def test_P49_the_experiment_shows_what_it_must() -> None:
    result = run_experiment(EXPERIMENT, options_for(EXPERIMENT, small=True))
    assert not result.failed_expectations
    assert {name for chart in result.charts for name in chart.series} >= {"pull", PUSH.name}
    assert any("latency" in each for each in result.contradictions)


def _started(cluster: LabCluster) -> tuple[OpenLoopWriter, int]:
    cluster.start()
    cluster.create_topic(PARTITION.topic, 1, 3)
    topic_id, leader = find_leader(cluster, PARTITION)
    return OpenLoopWriter(cluster, "w", PARTITION, topic_id, leader, ALL, 1), leader


def _write(cluster: LabCluster, writer: OpenLoopWriter, count: int) -> None:
    writing = cluster.clients.run(writer.run(poisson(random.Random(count), 100, count)))
    assert cluster.run_until(lambda: writing.done() and writer.is_answered, 60)
    assert not writer.failed


def _replica(cluster: LabCluster, broker: int) -> Partition:
    found = cluster.replica(broker, PARTITION)
    assert found is not None
    return found


def _isr(cluster: LabCluster, leader: int) -> set[int]:
    return set(_replica(cluster, leader).isr)


def _lines(counts: WireCounts, host: str) -> set[int]:
    """The ports over which records went to this host."""
    return {line.port for line in counts.requests if host in (line.client, line.server)}
