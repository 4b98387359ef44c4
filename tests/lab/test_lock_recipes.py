"""The two lock recipes, and the experiment that compares them."""

from __future__ import annotations

import asyncio

import pytest

from ottla.lab.design import design_named
from ottla.lab.experiments.lock_recipes import (
    EXPERIMENT,
    HANDOVERS,
    HandoverRun,
    LockBench,
    failed_expectations,
    measure_handovers,
    pause_the_holder,
)
from ottla.lab.runner import options_for, run_experiment
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.errors import ConnectionLoss, SessionExpired
from ottla.sim.engine.world import SimHost, World

UNIQUE, SEQUENTIAL = "unique-name-lock", "ephemeral-sequential-lock"
both = pytest.mark.parametrize("design", [UNIQUE, SEQUENTIAL])


@pytest.mark.parametrize("clients", [2, 5, 12])
def test_P50_a_unique_name_wakes_all_that_wait_and_sequential_znodes_wake_one(clients: int) -> None:
    herd = measure_handovers(UNIQUE, clients, 3)
    queue = measure_handovers(SEQUENTIAL, clients, 3)
    waiting = clients - 1
    assert {each.woken for each in herd.handovers} == {waiting}
    assert {each.watch_events for each in herd.handovers} == {waiting}
    assert {each.woken for each in queue.handovers} == {1}
    assert {each.watch_events for each in queue.handovers} == {1}
    for handover in herd.handovers:
        # Each that is woken creates (2), all but one look again (1); a release is a delete (2).
        release = 0 if handover.is_death else 2
        assert handover.rpcs == waiting + 2 * waiting + (waiting - 1) + release
    for handover in queue.handovers:
        assert handover.rpcs == (2 if handover.is_death else 4)


def test_P50_sequential_znodes_are_fair_and_a_unique_name_is_not() -> None:
    herd = measure_handovers(UNIQUE, 12, 1)
    queue = measure_handovers(SEQUENTIAL, 12, 1)
    assert all(each.overtaken == 0 for each in queue.handovers)
    assert sum(each.overtaken for each in herd.handovers) > HANDOVERS


@both
def test_P50_a_dead_holder_loses_the_lock_when_its_session_times_out(design: str) -> None:
    for handover in measure_handovers(design, 3, 5).handovers:
        assert (1.0 < handover.seconds < 6.5) == handover.is_death


@both
def test_P50_a_holder_paused_beyond_its_session_writes_unless_it_is_fenced(design: str) -> None:
    careless = pause_the_holder(design, False, 2)
    fenced = pause_the_holder(design, True, 2)
    assert careless.stale_accepted > 0
    assert fenced.stale_accepted == 0 < fenced.stale_refused
    assert careless.known_s < 1.0


@both
@pytest.mark.parametrize("seed", range(3))
def test_P50_there_are_never_two_holders_whatever_connections_are_lost(
    design: str, seed: int
) -> None:
    """What ZooKeeper says counts: a client whose session is over is no holder, whether it knows or not."""
    with World(seed) as world:
        bench = LockBench(world, design_named(design).part)
        inside: list[str] = []
        rounds = dict.fromkeys([f"n{number}" for number in range(5)], 0)

        async def contend(host: SimHost) -> None:
            client = await ZooKeeperClient.connect(
                host.runtime.network, bench.ensemble.addresses, host.name
            )
            lock = bench.recipe(client, "/lock")
            while True:
                await lock.acquire()
                inside.append(host.name)
                assert inside == [host.name], "two holders"
                await asyncio.sleep(0.02)
                inside.remove(host.name)
                rounds[host.name] += 1
                await lock.release()

        hosts = [world.node(name) for name in rounds]
        for host in hosts:
            host.run(contend(host))
        for _ in range(30):
            world.run_for(world.random.uniform(0.1, 0.5))
            world.random.choice([*hosts, bench.ensemble.leader]).reset_connections()
        assert world.run_until(lambda: min(rounds.values()) >= 3, 60), rounds
        assert world.problems() == []


@both
def test_P50_a_client_whose_session_ends_does_not_wait_for_ever(design: str) -> None:
    with World(1) as world:
        bench = LockBench(world, design_named(design).part)
        bench.arrive()
        waiting = bench.arrive()
        task = waiting.host.started[-1]
        waiting.host.pause()
        world.run_for(20)
        waiting.host.resume()
        assert world.run_until(task.done, 5)
        assert isinstance(task.exception(), SessionExpired | ConnectionLoss)


def test_P50_the_experiment_says_so_itself() -> None:
    result = run_experiment(EXPERIMENT, options_for(EXPERIMENT, small=True))
    assert result.failed_expectations == []
    assert f"7 with {UNIQUE}" in result.finding and f"1 with {SEQUENTIAL}" in result.finding
    assert {len(points) for chart in result.charts for points in chart.series.values()} == {3}
    again = run_experiment(EXPERIMENT, options_for(EXPERIMENT, small=True))
    assert again == result


def test_P50_the_experiment_fails_if_a_queue_wakes_a_herd() -> None:
    run = measure_handovers(UNIQUE, 4, 0)
    wrong = HandoverRun(SEQUENTIAL, run.clients, run.handovers)
    assert failed_expectations([run], []) == []
    assert any("not 1" in each for each in failed_expectations([wrong], []))
