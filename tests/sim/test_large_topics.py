"""A topic of many partitions does not silence its brokers while they make it."""

from __future__ import annotations

from uuid import UUID

import pytest
from disk_cluster import DiskCluster

from ottla.broker.replication import replica_manager
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.replica.partition import Partition
from ottla.sim.engine.world import World

PARTITIONS = 10
AT_ONCE = 3


def test_replicas_of_a_large_topic_are_made_a_few_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    make = ReplicaManager._make

    def counted(self: ReplicaManager, replicas: list[tuple[UUID, int]]) -> None:
        before = len(self.partitions)
        make(self, replicas)
        made.append(len(self.partitions) - before)

    monkeypatch.setattr(replica_manager, "MADE_IN_A_TURN_MAX", AT_ONCE)
    monkeypatch.setattr(ReplicaManager, "_make", counted)
    with World(5) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1, 2, 3]] * PARTITIONS)
        cluster.wait(lambda: sum(made) == 3 * PARTITIONS)
        assert max(made) == AT_ONCE
        for partition in range(PARTITIONS):
            cluster.produce(partition, count=1)
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_broker_that_stops_while_it_makes_them_makes_the_rest_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_manager, "MADE_IN_A_TURN_MAX", 1)
    with World(6) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1, 2, 3]] * PARTITIONS, wait=False)
        cluster.stop(3)
        cluster.restart(3)
        cluster.wait(lambda: all(cluster.is_whole(p) for p in range(PARTITIONS)))
        cluster.produce(PARTITIONS - 1, count=1)
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_replica_that_cannot_be_made_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = PARTITIONS // 2
    host = ReplicaManager._host

    def fail_for_one(self: ReplicaManager, topic: TopicImage, number: int) -> Partition | None:
        if number == broken:
            raise RuntimeError("cannot be made")
        return host(self, topic, number)

    monkeypatch.setattr(replica_manager, "MADE_IN_A_TURN_MAX", 1)
    monkeypatch.setattr(ReplicaManager, "_host", fail_for_one)
    with World(7) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1, 2, 3]] * PARTITIONS, wait=False)
        others = [number for number in range(PARTITIONS) if number != broken]
        cluster.wait(lambda: all(cluster.is_whole(number) for number in others))
        for number in others:
            cluster.produce(number, count=1)
        problems = world.problems()
        assert problems and all("cannot be made" in problem for problem in problems)


def test_a_replica_that_cannot_take_its_role_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_role = ReplicaManager._take_role
    with World(8) as world:
        cluster = DiskCluster(world)
        cluster.create(*[[1, 2, 3]] * PARTITIONS)

        def fail_for_the_first(
            self: ReplicaManager, partition: Partition, decided: PartitionImage
        ) -> None:
            if partition.partition == 0:
                raise RuntimeError("cannot lead")
            take_role(self, partition, decided)

        monkeypatch.setattr(ReplicaManager, "_take_role", fail_for_the_first)
        cluster.node(1).kill()
        for number in range(1, PARTITIONS):
            cluster.produce(number, count=1)
        problems = world.problems()
        assert problems and all("cannot lead" in problem for problem in problems)
