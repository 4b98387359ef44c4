"""P49: the design that pushes loses nothing over many seeds of the simulator's faults. Else its figures say nothing."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.broker.node import Node
from ottla.lab.design import design_named
from ottla.sim.engine.world import World
from ottla.sim.run.options import RunOptions
from ottla.sim.run.scenario import Scenario

SEEDS = 200
SHARES = 20


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_P49_push_loses_nothing_over_many_seeds(share: int) -> None:
    acknowledged = 0
    for seed in range(share, SEEDS, SHARES):
        with World(seed) as world:
            scenario = Scenario(world, RunOptions.draw(seed))
            scenario.cluster.make_node = partial(Node, design=design_named("push-with-acks").part)
            with scenario.recorded():
                scenario.run()
            assert not scenario.failures, seed
            acknowledged += len(scenario.workload.history.acknowledged)
    assert acknowledged
