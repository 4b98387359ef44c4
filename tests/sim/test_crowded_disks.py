"""Disks that others fill up under a running cluster, and free again."""

from __future__ import annotations

from disk_cluster import FIRST, SECOND, DiskCluster, key

from ottla.log.room import Level
from ottla.sim.engine.world import World
from ottla.sim.faults.crowding import LogSpan, grew
from ottla.wire.errors import ErrorCode

HEADROOM = 400_000
WATERMARK = {
    "ottla_disk_watermark_percent": "90",
    "ottla_disk_headroom_max_bytes": str(HEADROOM),
}


def take(cluster: DiskCluster, node_id: int, left: int | None) -> None:
    disk = cluster.node(node_id).host.disk
    disk.taken_bytes = 0 if left is None else disk.capacity_bytes - disk.used_bytes - left


def level(cluster: DiskCluster, node_id: int) -> Level:
    found: Level = cluster.replicas(node_id).logs.rooms[FIRST].level
    return found


def test_leaders_leave_a_full_disk_nobody_leaves_the_cluster_and_all_is_whole_with_room() -> None:
    with World(21) as world:
        cluster = DiskCluster(world, **WATERMARK)
        cluster.create([1, 2, 3], [1, 2, 3])
        cluster.produce(0)
        take(cluster, 1, HEADROOM // 4)
        cluster.wait(lambda: cluster.decided(0).leader != 1 and cluster.decided(1).leader != 1)
        cluster.produce(0, 20)
        cluster.produce(1, 20)
        cluster.wait(lambda: 1 not in cluster.decided(0).isr)
        assert cluster.replicas(1).partitions[key(0)].log.log_end == 10, "it copied nothing"
        assert cluster.is_alive(1) and not cluster.failures
        assert cluster.log_dirs(1) == {FIRST: ErrorCode.NONE, SECOND: ErrorCode.NONE}
        take(cluster, 1, None)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_disk_that_all_share_leaves_all_in_sync_and_they_go_on_with_room() -> None:
    with World(22) as world:
        cluster = DiskCluster(world, **WATERMARK)
        cluster.create([1, 2, 3])
        cluster.produce(0)
        for id in (1, 2, 3):
            take(cluster, id, HEADROOM * 3 // 4)
        cluster.wait(lambda: all(level(cluster, id) is Level.SCARCE for id in (1, 2, 3)))
        decided = cluster.decided(0)
        world.run_for(40)  # longer than replica.lag.time.max.ms
        assert cluster.decided(0) == decided, "nobody takes records, so nobody falls behind"
        for id in (1, 2, 3):
            take(cluster, id, None)
        cluster.produce(0, 5)
        assert cluster.nothing_is_lost() and cluster.is_whole(0)
        assert world.problems() == []


def test_a_new_controller_hears_of_full_disks_with_the_next_heartbeats() -> None:
    with World(23) as world:
        cluster = DiskCluster(world, **WATERMARK)
        cluster.create([1, 2, 3])
        controller = cluster.active_controller()
        crowded = next(id for id in (1, 2, 3) if id != controller)
        take(cluster, crowded, HEADROOM // 2)
        cluster.wait(lambda: level(cluster, crowded) is not Level.AMPLE)
        cluster.node(controller).kill()
        cluster.wait(lambda: cluster.decided(0).leader not in (controller, crowded))
        cluster.produce(0, 5)
        assert cluster.nothing_is_lost() and world.problems() == []


def test_D13_a_log_that_begins_anew_at_its_leaders_start_has_not_grown() -> None:
    assert grew(LogSpan(0, 222), LogSpan(0, 224))
    assert grew(LogSpan(222, 222), LogSpan(223, 224))
    assert not grew(LogSpan(222, 222), LogSpan(224, 224)), "seed 100276"
    assert not grew(LogSpan(0, 222), LogSpan(0, 200))
