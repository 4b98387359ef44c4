"""What a broker's death costs when it had many partitions: counted, not timed."""

from __future__ import annotations

from collections import Counter

from disk_cluster import DiskCluster

from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import DIRECTORY_UNASSIGNED
from ottla.sim.engine.world import World

PARTITIONS = 300


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


def test_a_controller_that_stops_resigns_before_it_closes_its_logs() -> None:
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
