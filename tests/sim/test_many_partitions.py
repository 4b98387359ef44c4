"""What a broker's death costs when it had many partitions: counted, and timed only as a ratio."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pytest
from disk_cluster import DiskCluster

from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import DIRECTORY_UNASSIGNED
from ottla.raft import replication
from ottla.raft.replication import LeaderState, size_max
from ottla.sim.engine.world import World
from support.counting import counted

PARTITIONS = 300
FEW, MANY = 100, 400
CALLS_PER_PARTITION_MAX = 420
"""Of the controller and both brokers that live on together, for a partition that loses a replica and, each third, its
leader. Whoever makes it cheaper lowers it."""
TIMED = 3


def test_P40_a_broker_that_dies_costs_one_metadata_batch_and_one_notification_of_each_broker() -> (
    None
):
    with World(40) as world:
        cluster = DiskCluster(world, 4)
        cluster.create(*[[1 + (number + i) % 4 for i in range(3)] for number in range(PARTITIONS)])
        # Brokers with two disks tell where their replicas lie.
        cluster.wait(
            lambda: all(
                DIRECTORY_UNASSIGNED not in cluster.decided(p).directories
                for p in range(PARTITIONS)
            )
        )
        world.run_for(1.0)  # and all have heard of it
        controller = cluster.active_controller()
        victim = next(id for id in cluster.cluster.nodes if id != controller)
        told: Counter[int] = Counter()
        images: set[int] = set()
        for id, node in cluster.cluster.nodes.items():
            if id != victim:
                assert node.node is not None and node.node.quorum is not None

                def note(image: MetadataImage, delta: Delta, id: int = id) -> None:
                    if delta.changed_partitions:
                        told[id] += 1
                        images.add(image.offset)

                node.node.quorum.on_image.append(note)
        held = [p for p in range(PARTITIONS) if victim in cluster.decided(p).replicas]
        cluster.node(victim).kill()
        cluster.wait(lambda: all(cluster.decided(p).leader != victim for p in held))
        world.run_for(1.0)
        assert told == dict.fromkeys(told, 1) and len(told) == 3, "each is told once"
        assert len(images) == 1, "of one batch"
        assert all(victim not in cluster.decided(p).isr for p in held)
        assert world.problems() == []


def test_P40_a_controller_that_stops_resigns_before_it_closes_its_logs() -> None:
    with World(41) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1, 2, 3]] * 10)
        controller = cluster.active_controller()
        node = cluster.node(controller).node
        assert node is not None and node.logs is not None
        logs, close = node.logs, node.logs.close
        others: list[bool] = []

        def noted(*, clean: bool, broker_epoch: int = -1) -> None:
            quorum = node.quorum
            assert quorum is not None
            others.append(quorum.is_leader)
            close(clean=clean, broker_epoch=broker_epoch)

        logs.close = noted
        cluster.stop(controller)
        assert others == [False]
        assert cluster.active_controller() != controller
        cluster.restart(controller)
        assert cluster.replicas(controller).logs.previous_broker_epoch >= 0, "it stopped cleanly"
        assert world.problems() == []


class Failover(NamedTuple):
    processor_s: float
    seen: Any


def failover(partitions: int, watching: AbstractContextManager[Any]) -> Failover:
    """Kill a broker that is not the active controller, until all that live know the new leaders."""
    with World(42) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1 + (number + i) % 3 for i in range(3)] for number in range(partitions)])
        world.run_for(2.0)
        controller = cluster.active_controller()
        victim = next(id for id in cluster.cluster.nodes if id != controller)
        survivors = [cluster.replicas(id) for id in cluster.cluster.nodes if id != victim]

        def is_known() -> bool:
            """To look at one partition is enough: they come with one image."""
            return all(each.image.topics["t"].partitions[0].isr.count(victim) == 0 for each in survivors)  # fmt: skip

        with watching as seen:
            began = time.process_time()
            cluster.node(victim).kill()
            cluster.wait(is_known)
            taken = time.process_time() - began
        for each in survivors:
            for partition in each.image.topics["t"].partitions:
                assert partition.leader not in (-1, victim) and victim not in partition.isr
        assert world.problems() == []
        return Failover(taken, seen)


def test_P40_the_work_of_a_failover_grows_with_the_partitions_and_no_faster() -> None:
    few, many = (failover(partitions, counted()).seen for partitions in (FEW, MANY))
    more = sum(many.by_host.values()) - sum(few.by_host.values())
    assert more <= (MANY - FEW) * CALLS_PER_PARTITION_MAX, many.most(None)


def test_P40_the_time_of_a_failover_grows_with_the_partitions_and_no_faster() -> None:
    """The best of several, as this machine does other things too."""
    few, many = (
        min(failover(partitions, nullcontext()).processor_s for _ in range(TIMED))
        for partitions in (FEW, MANY)
    )
    assert many <= few * (MANY / FEW) * 1.5, (few, many)


def test_P40_a_death_that_one_batch_cannot_hold_takes_as_few_as_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    append = LeaderState.append

    def noted(self: LeaderState, values: Sequence[bytes]) -> tuple[int, int]:
        written.append(sum(map(size_max, values)))
        return append(self, values)

    with World(43) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1 + (number + i) % 3 for i in range(3)] for number in range(PARTITIONS)])
        for number in range(3):
            cluster.produce(number, count=1)
        world.run_for(1.0)
        controller = cluster.active_controller()
        victim = next(id for id in cluster.cluster.nodes if id != controller)
        limit = 8_000
        monkeypatch.setattr(replication, "BATCH_BYTES_MAX", limit)
        monkeypatch.setattr(LeaderState, "append", noted)
        cluster.node(victim).kill()
        cluster.wait(lambda: all(victim not in cluster.decided(p).isr for p in range(PARTITIONS)))
        deaths = [size for size in written if size > limit // 4]  # and what else happened
        assert len(deaths) > 1 and max(deaths) <= limit
        assert len(deaths) <= -(-sum(deaths) // limit) + 1, "as few as can hold it"
        assert all(cluster.decided(p).leader not in (-1, victim) for p in range(PARTITIONS))
        assert cluster.active_controller() == controller
        cluster.restart(victim)
        cluster.wait(lambda: all(cluster.is_whole(p) for p in range(PARTITIONS)))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_request_for_more_than_a_batch_holds_is_refused_and_the_controller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(44) as world:
        cluster = DiskCluster(world)
        controller = cluster.active_controller()
        monkeypatch.setattr(replication, "BATCH_BYTES_MAX", 4_000)
        with pytest.raises(AssertionError, match="record_list_too_large"):
            cluster.create(*[[1, 2, 3]] * 100)
        cluster.create(*[[1, 2, 3]] * 10)
        assert cluster.active_controller() == controller
        cluster.produce(9, count=1)
        assert cluster.nothing_is_lost()
        assert world.problems() == []
