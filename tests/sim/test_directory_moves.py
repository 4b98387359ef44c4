"""Replicas that move between the two disks of their broker: what is written meanwhile, what dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from disk_cluster import FIRST, SECOND, TOPIC, DiskCluster, key

from ottla.metadata.records import DIRECTORY_UNASSIGNED
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

SLOW = {"replica_alter_log_dirs_io_max_bytes_per_second": "500"}
"""A move of a few thousand bytes takes seconds."""


class MovingCluster(DiskCluster):
    """Partition 0 lies on the first disk of its brokers, 1 on the second."""

    def move(self, node: int, directory: str, partition: int = 0, topic: str = TOPIC) -> ErrorCode:
        async def ask() -> Any:
            topics = [{"name": topic, "partitions": [partition]}]
            fields = {"dirs": [{"path": directory, "topics": topics}]}
            return await self.client.connections.ask(
                ApiKey.ALTER_REPLICA_LOG_DIRS, fields, broker=node
            )

        (row,) = self.do(ask()).results
        assert row.topic_name == topic and row.partitions[0].partition_index == partition
        return ErrorCode(int(row.partitions[0].error_code))

    def described(self, node: int) -> dict[tuple[str, int], tuple[bool, int]]:
        """(directory, partition) -> (is it a future one, its lag)"""

        async def ask() -> Any:
            return await self.client.connections.ask(
                ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, broker=node
            )

        return {
            (row.log_dir, each.partition_index): (each.is_future_key, int(each.offset_lag))
            for row in self.do(ask()).results
            for topic in row.topics
            if topic.name == TOPIC
            for each in topic.partitions
        }

    def lies_in(self, node: int, directory: str, partition: int = 0) -> bool:
        """By its files, by what the broker serves, and by the metadata."""
        partitions = self.replicas(node).partitions
        if key(partition) not in partitions or self.replicas(node).logs.futures:
            return False
        decided = self.decided(partition)
        named = decided.directories[decided.replicas.index(node)]
        return (
            partitions[key(partition)].log.directory == directory
            and named == self.directory_id(node, directory)
            and self.copies(node, partition) == [directory]
        )

    def copies(self, node: int, partition: int = 0) -> list[str]:
        name = f"{TOPIC}-{partition}"
        disk = self.node(node).host.disk
        return [each for each in (FIRST, SECOND) if disk.exists(f"{each}/{name}")]

    def futures(self, node: int) -> list[str]:
        disk = self.node(node).host.disk
        return [
            f"{each}/{name}"
            for each in (FIRST, SECOND)
            for name in disk.list_dir(each)
            if name.endswith("-future")
        ]

    def is_moving(self, node: int, partition: int = 0) -> bool:
        return key(partition) in self.replicas(node).logs.futures

    def settled(self) -> None:
        self.wait(
            lambda: all(DIRECTORY_UNASSIGNED not in self.decided(p).directories for p in (0, 1))
        )


def begun(world: World, nodes: int = 3, *assignment: list[int], **settings: str) -> MovingCluster:
    cluster = MovingCluster(world, nodes, **settings)
    replicas = list(range(1, nodes + 1))
    cluster.create(*(assignment or ([replicas] * 2)), internal_segment_bytes="1000")
    cluster.settled()
    cluster.produce(0, 40)
    return cluster


@pytest.mark.parametrize("node", [1, 2], ids=["of the leader", "of a follower"])
def test_a_replica_moves_to_the_other_disk_while_records_come(node: int) -> None:
    with World(1) as world:
        cluster = begun(world, 3, **SLOW)
        assert cluster.lies_in(node, FIRST)
        before = cluster.log_bytes(node, FIRST)
        assert cluster.move(node, SECOND) is ErrorCode.NONE
        cluster.produce(0, 5)
        assert cluster.described(node)[FIRST, 0] == (False, 0)
        is_future, lag = cluster.described(node)[SECOND, 0]
        assert is_future and lag > 0
        assert [each.partition("/t-0.")[0] for each in cluster.futures(node)] == [SECOND]
        cluster.wait(lambda: cluster.lies_in(node, SECOND))
        cluster.produce(0, 5)
        assert cluster.log_bytes(node, SECOND).startswith(before)
        cluster.wait(lambda: cluster.log_bytes(node, SECOND) == cluster.log_bytes(3, FIRST))
        assert cluster.described(node)[SECOND, 0] == (False, 0)
        assert (FIRST, 0) not in cluster.described(node)
        assert cluster.nothing_is_lost() and cluster.is_whole(0)
        cluster.restart(node)
        assert cluster.lies_in(node, SECOND) and cluster.nothing_is_lost()
        assert world.problems() == []


def test_the_rate_of_all_moves_is_limited() -> None:
    with World(2) as world:
        cluster = begun(world, 3, **SLOW)
        size = len(cluster.log_bytes(1, FIRST))
        began = world.loop.time()
        cluster.move(1, SECOND)
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        assert 0.6 * size / 500 < world.loop.time() - began < 2 * size / 500


def test_a_move_is_cancelled_by_a_move_back_and_may_begin_again() -> None:
    with World(3) as world:
        cluster = begun(world, 3, **SLOW)
        cluster.move(1, SECOND)
        world.run_for(0.5)
        assert cluster.is_moving(1)
        assert cluster.move(1, FIRST) is ErrorCode.NONE
        assert not cluster.futures(1)
        cluster.wait(lambda: cluster.lies_in(1, FIRST))
        assert cluster.move(1, SECOND) is ErrorCode.NONE
        assert cluster.move(1, SECOND) is ErrorCode.NONE, "asked for twice"
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        assert cluster.move(1, SECOND) is ErrorCode.NONE, "it is there"
        cluster.move(1, FIRST)
        cluster.wait(lambda: cluster.lies_in(1, FIRST))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_move_that_is_cancelled_when_the_controller_knows_of_it_is_taken_back() -> None:
    with World(4) as world:
        cluster = begun(world)
        moves = cluster.node(1).node.broker.moves
        moves._finish = lambda move: False
        cluster.move(1, SECOND)
        second = cluster.directory_id(1, SECOND)
        cluster.wait(lambda: cluster.decided(0).directories[0] == second)
        cluster.move(1, FIRST)
        cluster.wait(lambda: cluster.lies_in(1, FIRST))
        assert cluster.nothing_is_lost()


def test_records_that_are_deleted_or_expire_meanwhile_are_not_copied() -> None:
    with World(6) as world:
        cluster = begun(world, 3, **SLOW)
        cluster.move(1, SECOND)
        world.run_for(0.3)
        log = cluster.replicas(1).partitions[key(0)].log
        log.advance_log_start(30)
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        assert cluster.replicas(1).partitions[key(0)].log.log_start == 30


def test_a_partition_may_be_deleted_while_it_moves() -> None:
    with World(7) as world:
        cluster = begun(world, 3, **SLOW)
        cluster.move(1, SECOND)
        world.run_for(0.5)
        cluster.do(
            cluster.client.connections.ask(
                ApiKey.DELETE_TOPICS, {"topics": [{"name": TOPIC}], "timeout": 3000}
            )
        )
        cluster.wait(lambda: key(0) not in cluster.replicas(1).partitions)
        assert not cluster.replicas(1).logs.futures and not cluster.futures(1)
        world.run_for(5)
        assert world.problems() == []


def test_a_replica_may_be_reassigned_while_it_moves() -> None:
    with World(8) as world:
        cluster = begun(world, 3, [1, 2], [1, 2], **SLOW)
        cluster.move(1, SECOND)
        world.run_for(0.5)
        row = {"partition_index": 0, "replicas": [2, 3]}
        fields = {"timeout": 5000, "topics": [{"name": TOPIC, "partitions": [row]}]}
        cluster.do(cluster.client.connections.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields))
        cluster.wait(lambda: cluster.decided(0).replicas == (2, 3))
        cluster.wait(lambda: not cluster.futures(1) and not cluster.copies(1))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


@pytest.mark.parametrize("failing", [FIRST, SECOND], ids=["it leaves", "it moves to"])
def test_a_disk_may_fail_while_a_replica_moves(failing: str) -> None:
    with World(9) as world:
        cluster = begun(world, 3, **SLOW)
        cluster.move(1, SECOND)
        world.run_for(1)
        cluster.node(1).host.disk.fail("write", failing)
        cluster.produce(0, 5)
        cluster.produce(1, 5)
        cluster.wait(lambda: failing in cluster.replicas(1).logs.offline_directories)
        assert not cluster.replicas(1).logs.futures
        if failing == SECOND:
            assert cluster.error_of(1, 0) is ErrorCode.NONE
            assert cluster.move(1, SECOND) is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            cluster.wait(lambda: cluster.decided(0).leader in (2, 3))
            assert cluster.move(1, SECOND) is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.produce(0, 5)
        assert cluster.nothing_is_lost()
        cluster.node(1).host.disk.mend()
        cluster.restart(1)
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        cluster.wait(lambda: cluster.is_whole(0))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_move_goes_on_after_a_stop_and_after_a_kill() -> None:
    with World(10) as world:
        cluster = begun(world, 1, **SLOW)
        cluster.move(1, SECOND)
        for end in (cluster.stop, lambda id: cluster.node(id).kill()):
            world.run_for(1)
            copied = cluster.replicas(1).logs.futures[key(0)].log_end
            end(1)
            cluster.restart(1)
            assert cluster.replicas(1).logs.futures[key(0)].log_end >= copied - 5
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        assert cluster.nothing_is_lost()


CRASHES: dict[str, Callable[[], bool]] = {"kill": lambda: False, "power loss": lambda: True}


@pytest.mark.parametrize("how", CRASHES)
@pytest.mark.parametrize("before", range(1, 15))
def test_a_process_that_dies_while_a_log_takes_its_place_leaves_the_old_or_the_new_state(
    how: str, before: int
) -> None:
    """One broker alone: what it loses is lost."""
    with World(11 + before) as world:
        cluster = begun(world, 1, log_flush_interval_messages="1")
        moves = cluster.node(1).node.broker.moves
        host = cluster.node(1).host
        finish, deaths = moves._finish, []

        def dies(change: str, power_loss: bool) -> None:
            deaths.append(change)
            cluster.node(1).kill(power_loss=power_loss)

        def finish_or_die(move: Any) -> bool:
            host.die_before(None, before, CRASHES[how], dies)
            return finish(move)

        moves._finish = finish_or_die
        cluster.move(1, SECOND)
        cluster.wait(lambda: bool(deaths) or cluster.lies_in(1, SECOND))
        host.disk.forget_death()
        cluster.restart(1)
        assert len(cluster.copies(1)) == 1
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_process_that_lost_the_disk_it_left_takes_the_copy_and_the_rest_from_the_leader() -> None:
    with World(40) as world:
        cluster = begun(world)
        moves = cluster.node(2).node.broker.moves
        moves._is_named = lambda move: False  # so it waits, and never swaps
        cluster.move(2, SECOND)
        cluster.wait(lambda: cluster.decided(0).directories[1] == cluster.directory_id(2, SECOND))
        cluster.produce(0, 3)
        cluster.node(2).kill()
        cluster.produce(0, 3)
        disk = cluster.node(2).host.disk
        disk.remove_tree(f"{FIRST}/{TOPIC}-0")
        cluster.restart(2)
        cluster.wait(lambda: cluster.lies_in(2, SECOND))
        cluster.wait(lambda: cluster.is_whole(0))
        assert cluster.log_bytes(2, SECOND) == cluster.log_bytes(1, FIRST)
        assert cluster.nothing_is_lost()


def test_a_copy_of_a_partition_that_is_not_here_any_more_goes_with_it() -> None:
    with World(41) as world:
        cluster = begun(world, 3, **SLOW)
        cluster.move(2, SECOND)
        world.run_for(1)
        cluster.node(2).kill()
        fields = {"topics": [{"name": TOPIC}], "timeout": 3000}
        cluster.do(cluster.client.connections.ask(ApiKey.DELETE_TOPICS, fields))
        cluster.restart(2)
        assert not cluster.futures(2) and not cluster.copies(2)
        assert world.problems() == []


def test_a_replica_that_is_not_here_yet_is_made_where_it_was_wanted() -> None:
    with World(42) as world:
        cluster = begun(world, 3, [1, 2], [1, 2])
        assert cluster.move(3, SECOND) is ErrorCode.REPLICA_NOT_AVAILABLE
        row = {"partition_index": 0, "replicas": [2, 3]}
        fields = {"timeout": 5000, "topics": [{"name": TOPIC, "partitions": [row]}]}
        cluster.do(cluster.client.connections.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields))
        cluster.wait(lambda: cluster.decided(0).replicas == (2, 3))
        cluster.wait(lambda: cluster.lies_in(3, SECOND))
        assert cluster.nothing_is_lost()


def test_what_cannot_be_moved_is_refused_as_in_kafka() -> None:
    with World(43) as world:
        cluster = begun(world, 1, cordoned_log_dirs=SECOND)
        assert cluster.move(1, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert cluster.move(1, SECOND) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert cluster.move(1, FIRST, topic="unknown") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.move(1, FIRST, 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long_name = "x" * 220
        assert cluster.move(1, FIRST, topic=long_name) is ErrorCode.INVALID_TOPIC_EXCEPTION
        cluster.node(1).host.disk.fail("write", FIRST)
        cluster.wait(lambda: FIRST in cluster.replicas(1).logs.offline_directories)
        assert cluster.move(1, FIRST) is ErrorCode.KAFKA_STORAGE_ERROR


class CordonedCluster(MovingCluster):
    def __init__(self, world: World, nodes: int, **settings: str) -> None:
        super().__init__(world, nodes, **settings)
        self.do(self.client.metadata([]))

    def set_cordoned(self, node: int, value: str | None, via: int | None = None) -> ErrorCode:
        async def ask() -> Any:
            config = {
                "name": "cordoned.log.dirs",
                "value": value,
                "config_operation": value is None,
            }
            resource = {"resource_type": 4, "resource_name": str(node or ""), "configs": [config]}
            fields = {"resources": [resource], "validate_only": False}
            return await self.client.connections.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, broker=via or node
            )

        return ErrorCode(int(self.do(ask()).responses[0].error_code))

    def cordoned(self, node: int) -> list[str]:
        async def ask() -> Any:
            return await self.client.connections.ask(
                ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, broker=node
            )

        return [row.log_dir for row in self.do(ask()).results if row.is_cordoned]

    def known_cordoned(self, node: int) -> Any:
        images = [each.node.quorum.image for each in self.cluster.up if each.node is not None]
        return max(images, key=lambda image: image.offset).brokers[node].cordoned

    def try_create(self, name: str, factor: int) -> tuple[ErrorCode, str]:
        topic = {"name": name, "num_partitions": 4, "replication_factor": factor}
        topic |= {"assignments": [], "configs": []}
        fields = {"topics": [topic], "timeout": 3000, "validate_only": False}
        answer = self.do(self.client.connections.ask(ApiKey.CREATE_TOPICS, fields)).topics[0]
        return ErrorCode(int(answer.error_code)), answer.error_message or ""


def test_a_cordoned_directory_gets_no_new_replicas_and_keeps_those_it_has() -> None:
    with World(44) as world:
        cluster = CordonedCluster(world, 3)
        cluster.create([1, 2, 3], [1, 2, 3])
        cluster.settled()
        assert cluster.cordoned(1) == []
        assert cluster.set_cordoned(1, FIRST) is ErrorCode.NONE
        first = cluster.directory_id(1, FIRST)
        cluster.wait(lambda: cluster.known_cordoned(1) == (first,))
        assert cluster.cordoned(1) == [FIRST]
        assert cluster.try_create("more", 3)[0] is ErrorCode.NONE
        partitions = cluster.replicas(1).partitions
        cluster.wait(lambda: sum(each.topic == "more" for each in partitions.values()) == 4)
        more = [each for each in partitions.values() if each.topic == "more"]
        assert [each.log.directory for each in more] == [SECOND] * 4
        cluster.produce(0, 3)
        assert cluster.lies_in(1, FIRST), "it stays, and goes on"
        assert cluster.move(1, SECOND) is ErrorCode.NONE, "and may leave"
        cluster.wait(lambda: cluster.lies_in(1, SECOND))
        cluster.restart(1)
        assert cluster.cordoned(1) == [FIRST]
        assert cluster.set_cordoned(1, None) is ErrorCode.NONE
        cluster.wait(lambda: cluster.known_cordoned(1) == ())
        assert cluster.nothing_is_lost()
        assert world.problems() == []


def test_a_broker_whose_directories_are_all_cordoned_gets_no_replicas() -> None:
    with World(45) as world:
        cluster = CordonedCluster(world, 3)
        for node in (2, 3):
            assert cluster.set_cordoned(node, "*") is ErrorCode.NONE
        cluster.wait(lambda: all(len(cluster.known_cordoned(node) or ()) == 2 for node in (2, 3)))
        code, why = cluster.try_create("three", 2)
        assert code is ErrorCode.INVALID_REPLICATION_FACTOR and "cordoned" in why
        assert cluster.try_create("one", 1)[0] is ErrorCode.NONE
        cluster.wait(lambda: cluster.is_whole(3, "one"))
        assert {cluster.decided(p, "one").replicas for p in range(4)} == {(1,)}


def test_what_a_broker_cannot_cordon_is_refused() -> None:
    with World(46) as world:
        cluster = CordonedCluster(world, 2, cordoned_log_dirs=SECOND)
        assert cluster.cordoned(1) == [SECOND], "as its file says"
        assert cluster.set_cordoned(1, "/nowhere") is ErrorCode.INVALID_CONFIG
        assert cluster.set_cordoned(1, f"*,{FIRST}") is ErrorCode.INVALID_CONFIG
        assert cluster.set_cordoned(1, FIRST, via=2) is ErrorCode.INVALID_REQUEST
        assert cluster.set_cordoned(0, FIRST, via=1) is ErrorCode.INVALID_CONFIG
        assert cluster.cordoned(1) == [SECOND]
