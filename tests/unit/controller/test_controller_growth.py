"""What one broker costs the controller does not grow with the number of brokers: instructions are counted."""

from __future__ import annotations

from controller_world import World

from support.counting import stepped


def steps_of_a_heartbeat(brokers: int) -> int:
    world = World(*range(1, brokers + 1), idle_interval=0.0)
    world.beat(1)
    with stepped() as steps:
        world.beat(1)
    return steps.count


def test_a_heartbeat_looks_at_no_other_broker() -> None:
    assert steps_of_a_heartbeat(80) == steps_of_a_heartbeat(20)


def test_an_election_costs_as_much_as_the_partitions_it_changes() -> None:
    """Twice the brokers and twice the partitions: a broker has as many of them as before. What grows is one look at each
    partition of the cluster, which is a tenth of what one change takes."""

    def steps(brokers: int) -> int:
        world = World(*range(1, brokers + 1), idle_interval=0.0)
        world.topic("t", partitions=20 * brokers, factor=3)
        with stepped() as counted:
            world.kill(1)
        return counted.count

    assert steps(20) < 1.5 * steps(10)
