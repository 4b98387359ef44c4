"""Brokers whose disks are nearly full: leaders move where there is room, and come back when there is."""

from __future__ import annotations

from uuid import UUID

from controller_world import World, directory

from ottla.broker.cluster import short_log_dirs
from ottla.controller.draft import NOBODY_SHORT, ShortOfRoom
from ottla.controller.partitions import ElectionType
from ottla.log.room import Level
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.errors import ErrorCode


def scarce(*brokers: int) -> ShortOfRoom:
    return ShortOfRoom(frozenset(map(directory, brokers)))


def full(*brokers: int) -> ShortOfRoom:
    return ShortOfRoom(frozenset(map(directory, brokers)), frozenset(map(directory, brokers)))


def test_leaders_on_a_disk_without_room_move_and_all_stay_in_sync() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=6)
    led_by_1 = [i for i in range(6) if world.partition(index=i).leader == 1]
    decision = world.beat(1, short=scarce(1))
    changes = [each for each in decision.records if isinstance(each, PartitionChangeRecord)]
    assert [each.partition_id for each in changes] == led_by_1
    for index in range(6):
        assert world.partition(index=index).leader in (2, 3)
        assert len(world.partition(index=index).isr) == 3
    assert not world.beat(1, short=scarce(1)).records, "once"


def test_where_nobody_has_room_nothing_changes() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=3)
    before = world.image.topics["t"]
    for broker in (3, 2):
        world.controller._sessions.note_short(broker, full(broker))
    world.beat(1, short=full(1))
    assert world.image.topics["t"] == before


def test_a_follower_that_can_copy_nothing_leaves_the_isr_and_is_not_taken_back_until_it_can() -> (
    None
):
    world = World(1, 2, 3)
    world.topic(assignments=((0, (1, 2, 3)),), partitions=-1, factor=-1)
    world.beat(3, short=scarce(3))
    assert world.partition().isr == (1, 2, 3), "it still copies"
    world.beat(3, short=full(3))
    assert world.partition().isr == (1, 2) and world.partition().leader == 1
    assert world.propose([1, 2, 3])["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    world.beat(3)
    assert world.propose([1, 2, 3])["error_code"] == ErrorCode.NONE
    assert world.partition().isr == (1, 2, 3)


def test_elections_prefer_a_replica_with_room_but_take_one_without() -> None:
    world = World(1, 2, 3)
    world.topic(assignments=((0, (1, 2, 3)),), partitions=-1, factor=-1)
    world.beat(2, short=scarce(2))
    world.kill(1)
    assert world.partition().leader == 3
    world.kill(3)
    assert world.partition().leader == 2, "records can be read there"


def test_a_preferred_election_waits_for_room() -> None:
    world = World(1, 2, 3)
    world.topic(assignments=((0, (1, 2, 3)),), partitions=-1, factor=-1)
    world.beat(1, short=scarce(1))
    assert world.partition().leader != 1
    wished = [("t", 0)]
    rows = world.controller.elect_leaders(ElectionType.PREFERRED, wished).response
    (row,) = rows["replica_election_results"][0]["partition_result"]
    assert row["error_code"] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.beat(1)
    world.controller.elect_leaders(ElectionType.PREFERRED, wished)
    assert world.partition().leader == 1


def test_a_broker_speaks_of_its_own_directories_only() -> None:
    world = World(1, 2, 3)
    world.topic(partitions=3)
    before = world.image.topics["t"]
    assert not world.beat(1, short=full(2, 3)).records
    assert world.image.topics["t"] == before


def test_what_a_heartbeat_says_of_room_is_read_as_it_was_written() -> None:
    a, b, c = UUID(int=1000), UUID(int=1001), UUID(int=1002)
    text = short_log_dirs.written([(a, Level.NONE), (b, Level.AMPLE), (c, Level.SCARCE)])
    assert short_log_dirs.read(text) == ShortOfRoom(frozenset({a, c}), frozenset({a}))
    assert short_log_dirs.written([(b, Level.AMPLE)]) == b""
    for odd in (b"", b"nonsense", b"a b c", b"x full", b"\xff full"):
        assert short_log_dirs.read(odd) == NOBODY_SHORT
