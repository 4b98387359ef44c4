"""Disks that fail under a running cluster: full, broken, or unable to flush; data that rots; disks replaced."""

from __future__ import annotations

import errno

import pytest
from disk_cluster import FIRST, METADATA, SECOND, TOPIC, DiskCluster, key

from ottla.metadata.records import DIRECTORY_UNASSIGNED, NO_LEADER
from ottla.sim.world import World
from ottla.wire.errors import ErrorCode

EVERYWHERE = ([1, 2, 3], [1, 2, 3])
"""Two partitions led by broker 1, one on each of its disks."""


# -- which disk a replica lies on


def test_brokers_with_two_disks_tell_the_controller_where_their_replicas_lie() -> None:
    with World(1) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.wait(lambda: DIRECTORY_UNASSIGNED not in cluster.decided(1).directories)
        for partition, directory in enumerate((FIRST, SECOND)):
            assert cluster.decided(partition).directories == tuple(
                cluster.directory_id(node, directory) for node in (1, 2, 3)
            )
        assert world.problems() == []


def test_a_broker_tells_where_it_made_replicas_that_were_placed_while_it_was_down() -> None:
    with World(2) as world:
        cluster = DiskCluster(world)
        cluster.node(3).kill()
        cluster.wait(lambda: not cluster.is_alive(3))
        cluster.create([1, 3], [1, 3], wait=False)
        cluster.restart(3)
        cluster.wait(lambda: DIRECTORY_UNASSIGNED not in cluster.decided(1).directories)
        assert cluster.decided(1).directories[1] == cluster.directory_id(3, SECOND)
        cluster.wait(lambda: cluster.is_whole(1))


def test_a_broker_killed_before_it_could_tell_does_so_in_its_next_life() -> None:
    with World(2) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 3], [1, 3], wait=False)
        cluster.wait(lambda: key(1) in cluster.replicas(3).partitions)
        cluster.node(3).kill()
        assert cluster.decided(1).directories[1] == DIRECTORY_UNASSIGNED
        cluster.restart(3)
        cluster.wait(lambda: DIRECTORY_UNASSIGNED not in cluster.decided(1).directories)
        assert cluster.decided(1).directories[1] == cluster.directory_id(3, SECOND)


# -- a disk that fails


FAULTS = {
    "append, no space": ("write", errno.ENOSPC),
    "append, broken": ("write", errno.EIO),
    "flush": ("flush", errno.EIO),
    "checkpoint": ("rename", errno.EIO),
    "directory flush": ("flush_dir", errno.EIO),
    "roll": ("open", errno.ENOSPC),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_goes_offline_and_only_its_leaders_move(fault: str) -> None:
    operation, error = FAULTS[fault]
    with World(3) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, segment_bytes="1000", flush_messages="20")
        cluster.produce(0)
        cluster.produce(1)
        cluster.node(1).host.disk.fail(operation, SECOND, error=error)
        cluster.produce(1, 40)
        cluster.produce(0, 40)
        cluster.wait(lambda: cluster.decided(1).leader not in (1, NO_LEADER))
        assert cluster.decided(0).leader == 1, "its other disk works"
        assert cluster.decided(1).isr == (2, 3) and cluster.is_whole(0)
        assert cluster.error_of(1, 1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.error_of(1, 0) is ErrorCode.NONE
        assert cluster.log_dirs(1) == {
            FIRST: ErrorCode.NONE,
            SECOND: ErrorCode.KAFKA_STORAGE_ERROR,
        }
        assert cluster.nothing_is_lost()
        assert cluster.node(1).is_up and cluster.is_alive(1), "the process lives, unfenced"
        assert world.problems() == []
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(1))
        assert cluster.log_bytes(1, SECOND, 1) == cluster.log_bytes(2, SECOND, 1)
        assert cluster.nothing_is_lost()


def test_a_failed_flush_is_never_tried_again() -> None:
    """After a failed fsync the next one succeeds without having written anything."""
    with World(4) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, flush_messages="1")
        cluster.produce(1, 5)
        disk = cluster.node(1).host.disk
        cluster.wait(lambda: disk.exists(f"{SECOND}/recovery-point-offset-checkpoint"))
        disk.fail("flush", SECOND, times=1)
        cluster.produce(1, 5)
        cluster.wait(lambda: cluster.decided(1).isr == (2, 3))
        written = disk.read(f"{SECOND}/recovery-point-offset-checkpoint")
        cluster.produce(1, 5)
        world.run_for(5)
        assert disk.read(f"{SECOND}/recovery-point-offset-checkpoint") == written
        assert cluster.error_of(1, 1) is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.node(1).kill(power_loss=True)
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(1))
        assert cluster.nothing_is_lost()


def test_a_disk_that_cannot_be_read_goes_offline_too() -> None:
    with World(5) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, index_interval_bytes="1000000")
        cluster.produce(1, 30)
        cluster.node(1).host.disk.fail("read", f"{SECOND}/{TOPIC}-1", error=errno.EIO)
        assert cluster.do(cluster.client.offset(TOPIC, 1, 0)) == 0
        cluster.wait(lambda: cluster.decided(1).isr == (2, 3))
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_followers_failing_disk_leaves_the_leaders_alone() -> None:
    with World(6) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.node(2).host.disk.fail("write", SECOND, error=errno.ENOSPC)
        cluster.produce(1)
        cluster.wait(lambda: cluster.decided(1).isr == (1, 3))
        assert cluster.decided(1).leader == 1 and cluster.is_whole(0)
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_disk_that_fails_while_the_follower_truncates() -> None:
    with World(7) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 2, 3], [1, 2, 3])
        cluster.produce(1)
        world.network.isolate("n1")
        partition = cluster.replicas(1).partitions[key(1)]
        append_alone(cluster, partition)
        cluster.wait(lambda: cluster.decided(1).leader in (2, 3))
        cluster.node(1).host.disk.fail("write", SECOND, error=errno.EIO)
        world.network.heal()
        cluster.wait(lambda: cluster.error_of(1, 1) is ErrorCode.KAFKA_STORAGE_ERROR)
        cluster.wait(lambda: cluster.is_whole(0))
        assert 1 not in cluster.decided(1).isr
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(1))
        assert cluster.log_bytes(1, SECOND, 1) == cluster.log_bytes(2, SECOND, 1)
        assert cluster.nothing_is_lost()


def append_alone(cluster: DiskCluster, partition: object) -> None:
    """A record that a cut-off leader takes with acks=1 and nobody else ever sees."""
    from ottla.records.record import Record, build

    async def append() -> None:
        batch = build([Record(0, 0, None, b"doomed")])
        partition.append(memoryview(batch), 1, 0.0, 0)  # type: ignore[attr-defined]

    cluster.node(1).host.complete(append())


def test_a_broker_whose_last_disk_fails_is_fenced_and_its_process_lives() -> None:
    with World(8) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        for directory in (FIRST, SECOND):
            cluster.node(1).host.disk.fail("write", directory, error=errno.EIO)
        cluster.produce(0, 30)
        cluster.produce(1, 30)
        cluster.wait(lambda: not cluster.is_alive(1))
        offset = cluster.node(2).node.quorum.image.offset
        world.run_for(10)
        assert not cluster.is_alive(1) and cluster.node(1).is_up
        assert cluster.node(2).node.quorum.image.offset - offset < 40, "no flapping"
        assert cluster.node(1).node.quorum.failed is None, "it still votes"
        assert cluster.nothing_is_lost() and world.problems() == []
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))


def test_two_failing_disks_of_three_leave_everything_acknowledged_readable() -> None:
    with World(9) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, min_insync_replicas="1")
        cluster.produce(1)
        for node in (1, 2):
            cluster.node(node).host.disk.fail("write", SECOND, error=errno.ENOSPC)
            cluster.produce(1)
        cluster.wait(lambda: cluster.decided(1).isr == (3,))
        assert cluster.nothing_is_lost() and world.problems() == []


# -- the disk of the metadata


@pytest.mark.parametrize("operation", ["write", "flush"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_whose_metadata_disk_fails_leaves_the_quorum_and_the_others_go_on(
    operation: str, role: str
) -> None:
    with World(10) as world:
        cluster = DiskCluster(world)
        leader = next(id for id in (1, 2, 3) if cluster.node(id).node.quorum.is_leader)
        victim = leader if role == "leader" else leader % 3 + 1
        others = [id for id in (1, 2, 3) if id != victim]
        cluster.create([victim, *others], [others[0], victim, others[1]])
        cluster.produce(0)
        cluster.node(victim).host.disk.fail(operation, METADATA, error=errno.EIO)
        cluster.wait(lambda: cluster.node(victim).node.quorum.failed is not None)
        cluster.wait(lambda: cluster.decided(0).leader in others)
        cluster.wait(lambda: not cluster.is_alive(victim))
        cluster.produce(0)
        cluster.produce(1)
        assert cluster.nothing_is_lost()
        assert cluster.node(victim).is_up and victim not in cluster.failures
        assert world.problems() == []
        cluster.node(victim).host.disk.mend()
        cluster.stop(victim)
        cluster.restart(victim)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost()
