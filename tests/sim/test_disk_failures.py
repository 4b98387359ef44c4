"""Disks that fail under a running cluster: full, broken, or unable to flush; data that rots; disks replaced."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from disk_cluster import FIRST, METADATA, SECOND, SETTINGS, TOPIC, DiskCluster, key

from ottla.client.group_admin import GroupAdmin
from ottla.log.errors import FatalDirectory
from ottla.metadata.records import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, NO_LEADER
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC

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
        cluster.create(*EVERYWHERE, internal_segment_bytes="1000", flush_messages="20")
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
        partition.leadership.append(memoryview(batch), 1, 0.0, 0)  # type: ignore[attr-defined]

    cluster.node(1).host.complete(append())


def test_a_node_whose_last_log_directory_fails_hands_over_and_ends() -> None:
    with World(8) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        for directory in (FIRST, SECOND):
            cluster.node(1).host.disk.fail("write", directory, error=errno.EIO)
        cluster.produce(0, 30)
        cluster.produce(1, 30)
        cluster.wait(lambda: not cluster.is_alive(1))
        cluster.wait(lambda: not cluster.node(1).is_up, 10)
        failure = cluster.failures[1]
        assert isinstance(failure, FatalDirectory) and failure.directory in (FIRST, SECOND)
        assert str(failure).endswith("; look at that disk, then start the node again")
        assert cluster.nothing_is_lost() and world.problems() == []
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))


def test_a_node_ends_when_the_log_directory_with_its_metadata_fails() -> None:
    with World(8) as world:
        cluster = DiskCluster(world, metadata_log_dir=FIRST)
        cluster.create(*EVERYWHERE)
        cluster.node(1).host.disk.fail("write", f"{FIRST}/{TOPIC}-0", error=errno.ENOSPC)
        cluster.produce(0, 30)
        cluster.wait(lambda: not cluster.node(1).is_up, 10)
        assert str(cluster.failures[1]) == (
            f"{FIRST}: No space left on device; free some space there, then start the node again"
        )
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_controller_without_a_broker_ends_when_its_metadata_directory_fails() -> None:
    with World(9) as world:
        cluster = SimCluster(world, 4, controllers=3)
        ended: dict[int, BaseException | None] = {}
        cluster.on_end.append(lambda node, failure: ended.update({node.id: failure}))
        cluster.start()
        assert cluster.wait_ready(30)
        cluster.nodes[2].host.disk.fail("write", "/metadata", error=errno.EIO)
        assert world.run_until(lambda: not cluster.nodes[2].is_up, 20)
        assert isinstance(ended[2], FatalDirectory) and world.problems() == []


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
def test_a_node_whose_metadata_disk_fails_ends_and_the_others_go_on(
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
        cluster.wait(lambda: not cluster.node(victim).is_up)
        cluster.wait(lambda: cluster.decided(0).leader in others)
        cluster.wait(lambda: not cluster.is_alive(victim))
        cluster.produce(0)
        cluster.produce(1)
        assert cluster.nothing_is_lost()
        failure = cluster.failures[victim]
        assert isinstance(failure, FatalDirectory) and failure.directory == METADATA
        assert world.problems() == []
        cluster.node(victim).host.disk.mend()
        cluster.restart(victim)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost()


# -- data that rots


def flushed(cluster: DiskCluster, node: int = 1, partition: int = 0) -> str:
    """Wait until the disk knows that all of the log is flushed; where its one segment lies."""
    disk = cluster.node(node).host.disk
    log = cluster.replicas(node).logs.logs[key(partition)]
    line = f"{TOPIC} {partition} {log.log_end}".encode()
    path = f"{log.directory}/recovery-point-offset-checkpoint"
    cluster.wait(lambda: disk.exists(path) and line in disk.read(path).splitlines())
    return f"{log.path}/00000000000000000000.log"


def rot(cluster: DiskCluster, node: int, path: str) -> None:
    disk = cluster.node(node).host.disk
    disk.rot(path, disk.file_size(path) // 2)


def cut(cluster: DiskCluster, node: int, path: str) -> None:
    file = cluster.node(node).host.disk.open(path)
    file.truncate(file.size // 2)
    file.flush()


@pytest.mark.parametrize("damage", [rot, cut])
def test_a_replica_that_rotted_is_copied_anew_from_its_leader_and_says_so(
    damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with World(11) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, flush_messages="1")
        cluster.produce(0)
        cluster.produce(1)
        path = flushed(cluster)
        cluster.node(1).kill()
        damage(cluster, 1, path)
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert (
            "rebuilding replica partition=t-0 from_broker=" in caplog.text
            and "/a/t-0" in caplog.text
        )
        assert "rebuilding replica partition=t-1" not in caplog.text
        cluster.wait(lambda: "replica is rebuilt and in sync partition=t-0" in caplog.text)
        assert cluster.log_bytes(1, FIRST) == cluster.log_bytes(2, FIRST)
        names = cluster.node(1).host.disk.list_dir(FIRST)
        assert [name for name in names if name.endswith("-stray")], "kept for a human to look at"
        cluster.wait(lambda: DIRECTORY_LOST not in cluster.decided(0).directories)
        assert cluster.nothing_is_lost() and world.problems() == []


@pytest.mark.parametrize(
    ("byte", "why"), [(0, "does not belong where 10 or a later one"), (70, "at offset 10, CRC is")]
)
def test_a_coordinator_whose_log_rotted_leaves_its_groups_to_another_one(
    byte: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with World(14) as world:
        cluster = DiskCluster(world, offsets_topic_num_partitions="1")
        cluster.create(*EVERYWHERE)
        groups = GroupAdmin(cluster.client)
        for offset in range(100, 120):  # all batches are of one size
            cluster.do(groups.commit("g", {(TOPIC, 0): offset}))
        cluster.wait(lambda: cluster.is_whole(topic=GROUP_METADATA_TOPIC))
        first = cluster.decided(topic=GROUP_METADATA_TOPIC).leader
        cluster.stop(first)
        cluster.restart(first)
        cluster.wait(lambda: cluster.is_whole(topic=GROUP_METADATA_TOPIC))
        assert cluster.decided(topic=GROUP_METADATA_TOPIC).leader != first
        log = cluster.replicas(first).partitions[GROUP_METADATA_TOPIC, 0].log
        path = f"{log.path}/00000000000000000000.log"
        disk = cluster.node(first).host.disk
        disk.rot(path, disk.file_size(path) // 2 + byte)  # of the eleventh batch
        election = {
            "election_type": 0,
            "topic_partitions": [{"topic": GROUP_METADATA_TOPIC, "partitions": [0]}],
            "timeout": 3000,
        }
        cluster.do(cluster.client.connections.ask(ApiKey.ELECT_LEADERS, election))
        cluster.wait(lambda: "rebuilding replica partition=__consumer_offsets-0 " in caplog.text)
        assert why in caplog.text
        cluster.wait(lambda: cluster.is_whole(topic=GROUP_METADATA_TOPIC))
        assert cluster.decided(topic=GROUP_METADATA_TOPIC).leader != first
        assert cluster.do(groups.offsets("g")) == {(TOPIC, 0): 119}
        cluster.do(groups.commit("g", {(TOPIC, 0): 120}))
        assert cluster.node(first).is_up and world.problems() == []


@pytest.mark.parametrize("clean", [True, False])
def test_the_only_replica_that_rotted_stays_offline_and_says_so(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with World(12) as world:
        cluster = DiskCluster(world)
        cluster.create([1], [1], flush_messages="1")
        cluster.produce(0)
        cluster.produce(1)
        path = flushed(cluster)
        disk = cluster.node(1).host.disk
        whole = bytes(disk.peek(path))
        if clean:
            cluster.stop(1)
        else:
            cluster.node(1).kill()
        cut(cluster, 1, path)
        left = bytes(disk.peek(path))
        cluster.restart(1)
        world.run_for(10)
        assert cluster.decided(0).leader == NO_LEADER and cluster.decided(1).leader == 1
        assert cluster.error_of(1, 0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.error_of(1, 1) is ErrorCode.NONE
        assert "offline until another broker leads it partition=t-0" in caplog.text
        assert bytes(disk.peek(path)) == left, "nothing is cut, nothing is made anew"
        assert world.problems() == []
        # An operator puts the file back.
        cluster.stop(1)
        file = disk.open(path)
        file.truncate(0)
        file.append(whole)
        cluster.restart(1)
        cluster.wait(lambda: cluster.decided(0).leader == 1)
        assert cluster.nothing_is_lost()


def test_an_eligible_replica_that_rotted_is_not_elected() -> None:
    """Both stopped cleanly and are in the ELR; the one whose log is damaged comes back first."""
    with World(13) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 2], min_insync_replicas="2", flush_messages="1")
        cluster.produce(0)
        path = flushed(cluster)
        cluster.stop(2)
        cluster.stop(1)
        assert set(cluster.decided().elr) == {1, 2}
        cut(cluster, 1, path)
        cluster.restart(1)
        world.run_for(10)
        assert cluster.decided().leader == NO_LEADER and cluster.decided().elr == (2,)
        cluster.restart(2)
        cluster.wait(lambda: cluster.is_whole())
        assert cluster.decided().leader == 2
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_log_that_vanished_is_treated_as_one_that_rotted() -> None:
    with World(14) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 2], min_insync_replicas="2")
        cluster.produce(0)
        cluster.stop(2)
        cluster.stop(1)
        cluster.node(1).host.disk.remove_tree(f"{FIRST}/{TOPIC}-0")
        cluster.restart(1)
        world.run_for(10)
        assert cluster.decided().leader == NO_LEADER and cluster.decided().elr == (2,)
        assert cluster.error_of(1, 0) is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.restart(2)
        cluster.wait(lambda: cluster.is_whole())
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_replica_that_is_being_copied_anew_stays_unelectable_across_restarts() -> None:
    with World(35) as world:
        cluster = DiskCluster(world)
        # The one whose answers are cut must not be the controller.
        rotten, whole = sorted({1, 2, 3} - {cluster.active_controller()})
        cluster.create([rotten, whole], min_insync_replicas="1", flush_messages="1")
        cluster.produce(0, 200)
        path = flushed(cluster, rotten)
        cluster.node(rotten).kill()
        rot(cluster, rotten, path)
        cluster.produce(0)
        world.network.block(f"n{whole}", f"n{rotten}")  # the leader's answers do not arrive
        cluster.restart(rotten, wait=False)
        cluster.wait(lambda: cluster.node(rotten).node.broker is not None)
        cluster.wait(lambda: cluster.decided().directories[0] == DIRECTORY_LOST)
        cluster.node(rotten).kill()
        cluster.node(whole).kill()
        world.network.heal()
        cluster.restart(rotten)
        world.run_for(10)
        assert cluster.decided().leader == NO_LEADER
        cluster.restart(whole)
        cluster.wait(lambda: cluster.is_whole())
        cluster.wait(lambda: DIRECTORY_LOST not in cluster.decided().directories)
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_deleted_topic_takes_its_rotten_replica_with_it() -> None:
    with World(16) as world:
        cluster = DiskCluster(world)
        cluster.create([1], flush_messages="1")
        cluster.produce(0)
        path = flushed(cluster)
        cluster.node(1).kill()
        cut(cluster, 1, path)
        cluster.restart(1)
        cluster.do(cluster.client.delete_topic(TOPIC))
        cluster.acknowledged.clear()
        cluster.wait(lambda: key() not in cluster.replicas(1).placement.lost)
        cluster.create([1])
        assert cluster.decided().leader == 1
        cluster.restart(1)
        cluster.wait(lambda: cluster.decided().leader == 1)
        assert world.problems() == []


# -- disks that are replaced, and ways of stopping


def test_a_replaced_disk_gets_a_new_identity_and_its_replicas_are_copied_to_it() -> None:
    with World(17) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        cluster.produce(1)
        before = cluster.directory_id(1, SECOND)
        cluster.stop(1)
        cluster.node(1).host.disk.remove_tree(SECOND)
        cluster.restart(1)
        after = cluster.directory_id(1, SECOND)
        assert after != before
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        cluster.wait(lambda: cluster.decided(1).directories[0] == after)
        assert cluster.log_bytes(1, SECOND, 1) == cluster.log_bytes(2, SECOND, 1)
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_broker_that_is_the_last_with_a_record_does_not_lead_from_a_replaced_disk() -> None:
    with World(18) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 2], min_insync_replicas="2")
        cluster.produce(0)
        cluster.stop(2)
        cluster.stop(1)
        cluster.node(1).host.disk.remove_tree(FIRST)
        cluster.restart(1)
        world.run_for(10)
        assert cluster.decided().leader == NO_LEADER and cluster.decided().elr == (2,)
        cluster.restart(2)
        cluster.wait(lambda: cluster.is_whole())
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_log_directory_taken_out_of_the_settings_does_not_make_an_empty_leader() -> None:
    with World(19) as world:
        cluster = DiskCluster(world)
        cluster.create([1, 2], [1, 2], min_insync_replicas="2")
        cluster.produce(1)
        cluster.wait(lambda: DIRECTORY_UNASSIGNED not in cluster.decided(1).directories)
        cluster.stop(2)
        cluster.stop(1)
        one_disk = SimCluster(world, 3, {**SETTINGS, "log.dirs": FIRST}).nodes[1].settings
        cluster.node(1).settings = one_disk
        cluster.restart(1)
        world.run_for(10)
        assert cluster.decided(1).leader == NO_LEADER and cluster.decided(0).leader == 1
        cluster.restart(2)
        cluster.wait(lambda: cluster.is_whole(1))
        cluster.wait(lambda: cluster.decided(1).directories[0] == cluster.directory_id(1, FIRST))
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_replica_on_a_disk_that_is_dead_at_the_start_is_not_made_anew_elsewhere() -> None:
    with World(20) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        cluster.produce(1)
        cluster.node(1).kill()
        cluster.node(1).host.disk.fail("read", SECOND)
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(0))
        assert cluster.error_of(1, 1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not cluster.node(1).host.disk.exists(f"{FIRST}/{TOPIC}-1")
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.is_whole(1))
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_controlled_stop_is_remembered_and_a_kill_is_not() -> None:
    with World(21) as world:
        cluster = DiskCluster(world)
        cluster.create([1], [1])
        cluster.produce(0)
        epoch = cluster.node(1).node.broker.lifecycle.broker_epoch
        cluster.stop(1)
        cluster.restart(1)
        assert cluster.replicas(1).logs.previous_broker_epoch == epoch
        assert cluster.decided().leader_recovery_state == 0, "led from the ELR: nothing is missing"
        cluster.restart(1)
        assert cluster.replicas(1).logs.previous_broker_epoch == -1
        cluster.wait(lambda: cluster.decided().leader == 1)
        assert cluster.nothing_is_lost()


def test_a_clean_stop_counts_only_if_all_disks_were_closed_in_order() -> None:
    with World(22) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(1)
        cluster.node(1).host.disk.fail("write", SECOND)
        cluster.produce(1)
        cluster.stop(1)
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        assert cluster.replicas(1).logs.previous_broker_epoch == -1
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost()


@pytest.mark.parametrize("seed", range(23, 31))
def test_a_machine_that_loses_power_comes_back_without_what_was_not_flushed(seed: int) -> None:
    with World(seed) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE, internal_segment_bytes="500", flush_ms="1000")
        for _ in range(3):
            cluster.produce(0)
            cluster.produce(1)
            victim = world.random.choice((1, 2, 3))
            cluster.node(victim).kill(power_loss=True)
            cluster.produce(0)
            cluster.restart(victim)
            cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        for node in (2, 3):
            assert cluster.log_bytes(1, FIRST, 0) == cluster.log_bytes(node, FIRST, 0)
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_voter_on_an_empty_disk_does_not_vote_under_its_old_identity() -> None:
    """With kraft.version 1 a voter is its node id and its directory's: on a new disk it only watches."""
    with World(31) as world:
        cluster = DiskCluster(world, dynamic=True)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        leader = next(id for id in (1, 2, 3) if cluster.node(id).node.quorum.is_leader)
        replaced, other = (id for id in (1, 2, 3) if id != leader)
        cluster.node(replaced).kill()
        cluster.node(replaced).host.disk.wipe()
        cluster.restart(replaced)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        raft = cluster.node(replaced).node.quorum.raft
        assert not raft.is_voter and raft.leader == leader
        # One true voter and the replaced one are no majority.
        cluster.node(other).kill()
        epoch = raft.epoch
        cluster.node(leader).kill()
        world.run_for(20)
        assert raft.epoch == epoch and raft.leader in (None, leader)
        cluster.node(leader).start()
        cluster.node(other).start()
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        assert cluster.nothing_is_lost() and world.problems() == []


def test_a_static_voter_on_an_empty_disk_is_a_follower_like_any_other() -> None:
    """With controller.quorum.voters (kraft.version 0) a voter is its node id: the others cannot tell that
    it forgot its votes and its log. That is safe only while a majority of the others lives, as here."""
    with World(32) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        cluster.node(3).kill()
        cluster.node(3).host.disk.wipe()
        cluster.restart(3)
        cluster.wait(lambda: cluster.is_whole(0) and cluster.is_whole(1))
        images = [cluster.node(id).node.quorum for id in (1, 2, 3)]
        cluster.wait(lambda: len({quorum.image.offset for quorum in images}) == 1)
        assert len({quorum.image.digest() for quorum in images}) == 1
        assert cluster.nothing_is_lost() and world.problems() == []


# -- a static voter whose disk was replaced


def test_a_replaced_disk_and_a_node_that_was_away_do_not_make_the_cluster_forget(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with World(31) as world:
        cluster = DiskCluster(world)
        cluster.stop(3)
        cluster.create([1, 2], min_insync_replicas="2")
        cluster.produce(0)
        cluster.stop(2)
        cluster.stop(1)
        cluster.node(2).host.disk.wipe()
        cluster.restart(2, wait=False)
        cluster.restart(3, wait=False)
        assert not world.run_until(lambda: cluster.node(3).is_ready, 30), "they know too little"
        told = [line for line in caplog.messages if "waits_for=" in line and "node=2" in line]
        assert told[0].endswith("waits_for=an answer of voter 1 or 3")
        assert told[-1].endswith("waits_for=an answer of voter 1"), "it is told whom it lacks"
        assert len(told) > 10, "again and again"
        cluster.restart(1)
        cluster.wait(cluster.is_whole)
        assert cluster.nothing_is_lost() and world.problems() == []
        node = cluster.node(2).node
        assert node is not None and node.quorum is not None
        assert node.quorum.raft.has_vote, "it has caught up"


def test_a_log_of_which_the_metadata_knows_nothing_is_set_aside_and_not_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(32) as world:
        cluster = DiskCluster(world)
        cluster.create(*EVERYWHERE)
        cluster.produce(0)
        kept = cluster.log_bytes(1, FIRST)
        cluster.stop(1)
        fields = {"topics": [{"name": TOPIC}], "timeout": 3000}
        cluster.do(cluster.client.connections.ask(ApiKey.DELETE_TOPICS, fields))
        cluster.restart(1)
        disk = cluster.node(1).host.disk
        (stray,) = [name for name in disk.list_dir(FIRST) if name.endswith("-stray")]
        assert disk.read(f"{FIRST}/{stray}/00000000000000000000.log") == kept
        assert (
            f"stray log set aside, for you to remove partition=t-0 path={FIRST}/{stray}"
            in caplog.text
        )
