"""Brokers that leave: only what they have moves, and what cannot be kept is said before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.balance.departures import (
    crowded,
    drain_plan,
    leaving,
    settled,
    succession_plan,
    too_few,
)
from ottla.balance.model import BalancedBroker, BalancedPartition, Standing, Tolerance
from ottla.balance.planner import Impossible, plan

TOLERANCE = Tolerance()


def brokers_in(*racks: str | None) -> list[BalancedBroker]:
    return [BalancedBroker(id, rack) for id, rack in enumerate(racks, 1)]


def partition(number: int, *replicas: int, size: int = 1000) -> BalancedPartition:
    return BalancedPartition("orders", number, replicas, replicas[0], size, 10.0)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BalancedBroker], list[BalancedPartition], int]:
    count = draw(st.integers(2, 7))
    racks = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=count, max_size=count))
    brokers = brokers_in(*racks)
    ids = [each.id for each in brokers]
    down = draw(st.sets(st.sampled_from(ids), max_size=1))
    brokers = [
        each._replace(standing=Standing.ABSENT) if each.id in down else each for each in brokers
    ]
    partitions = []
    for number in range(draw(st.integers(0, 8))):
        replicas = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
        partitions.append(partition(number, *replicas, size=draw(st.integers(0, 5000))))
    return brokers, partitions, draw(st.sampled_from(ids))


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_P39_a_drain_moves_what_the_broker_has_and_nothing_else(
    drawn: tuple[list[BalancedBroker], list[BalancedPartition], int],
) -> None:
    brokers, partitions, leaver = drawn
    members = {each.id for each in brokers if each.standing is Standing.MEMBER} - {leaver}
    stuck = {
        each.place
        for each in partitions
        if leaver in each.replicas and not members - set(each.replicas)
    }
    few = too_few(brokers, partitions, leaver)
    assert set(few.places if few else ()) == stuck
    if stuck or not members:
        return
    made = drain_plan(brokers, partitions, leaver, TOLERANCE)
    mine = {each.place: each for each in partitions if leaver in each.replicas}
    assert {change.place for change in made.changes} == mine.keys()
    for change in made.changes:
        before = mine[change.place]
        assert len(set(change.after)) == len(before.replicas)
        assert set(before.replicas) - {leaver} < set(change.after) or len(before.replicas) == 1
        assert set(change.added) <= members and len(change.added) == 1
    assert made.bytes_moved == sum(each.size for each in mine.values())
    assert set(crowded(brokers, made)) == {
        place for place, each in mine.items() if must_share(brokers, each, leaver)
    }


def must_share(brokers: Sequence[BalancedBroker], each: BalancedPartition, leaver: int) -> bool:
    """Whether every broker that could take the replica is in fewer racks with the others."""
    rack = {broker.id: broker.rack for broker in brokers}
    rest = set(each.replicas) - {leaver}
    before = len({rack[id] for id in each.replicas})
    others = [
        broker.id
        for broker in brokers
        if broker.standing is Standing.MEMBER and broker.id not in each.replicas
    ]
    return all(len({rack[id] for id in rest | {other}}) < before for other in others)


def test_P39_leaders_of_a_drained_broker_are_spread_over_the_others() -> None:
    partitions = [partition(number, 4, 1, 2, 3) for number in range(9)]
    made = drain_plan(brokers_in(*[None] * 5), partitions, 4, TOLERANCE)
    leaders = [change.after[0] for change in made.changes]
    assert {leaders.count(id) for id in (1, 2, 3)} <= {1, 2, 3}
    assert all(5 in change.after for change in made.changes)


def test_P39_a_drain_keeps_the_only_replica_of_a_rack_in_a_rack_of_its_own() -> None:
    brokers = brokers_in("a", "a", "b", "b", "c", "c")
    loaded = [partition(number, 2, 3) for number in range(1, 20)]
    made = drain_plan(brokers, [partition(0, 1, 3, 4, 5), *loaded], 1, TOLERANCE)
    (change,) = made.changes
    assert sorted(change.after) == [2, 3, 4, 5], "not broker 6, which has more room"


def test_P39_a_successor_takes_exactly_the_place_of_the_dead_broker() -> None:
    brokers = brokers_in("a", "b", "c", "c")
    brokers[2] = brokers[2]._replace(standing=Standing.ABSENT)
    partitions = [partition(0, 3, 1, 2), partition(1, 1, 3, 2), partition(2, 1, 2)]
    made = succession_plan(brokers, partitions, 3, 4, TOLERANCE)
    assert {change.place: change.after for change in made.changes} == {
        ("orders", 0): (4, 1, 2),
        ("orders", 1): (1, 4, 2),
    }


def test_P39_a_successor_that_would_share_a_rack_leaves_the_place_to_another() -> None:
    brokers = brokers_in("a", "b", "c", "b", "c")
    brokers[2] = brokers[2]._replace(standing=Standing.ABSENT)
    made = succession_plan(brokers, [partition(0, 3, 1, 2)], 3, 4, TOLERANCE)
    (change,) = made.changes
    assert sorted(change.after) == [1, 2, 5]


def test_moves_that_go_on_count_as_done() -> None:
    partitions = [partition(0, 1, 2, 3), partition(1, 2, 3)]
    assert [each.replicas for each in settled(partitions, {("orders", 0): (1, 2)})] == [
        (1, 2),
        (2, 3),
    ]


def test_a_partition_whose_leader_is_on_its_way_out_can_be_planned() -> None:
    """Its first replica, which will lead, is down at the moment."""
    (moving,) = settled([partition(0, 1, 2, 3)], {("orders", 0): (2, 3)})
    assert (moving.replicas, moving.leader) == ((2, 3), 2)
    brokers = brokers_in("a", "b", "c", "d")
    brokers[1] = brokers[1]._replace(standing=Standing.ABSENT)
    (change,) = plan(leaving(brokers, 3), [moving], TOLERANCE).changes
    assert 3 not in change.after


# Disks, racks and brokers that are gone

GB = 1 << 30


def test_P39_a_drain_for_which_no_disk_has_room_is_refused() -> None:
    brokers = [BalancedBroker(id, None, 100 * GB) for id in (1, 2, 3, 4)]
    partitions = [partition(n, n % 4 + 1, size=8 * GB) for n in range(40)]  # each is 80 % full
    with pytest.raises(Impossible, match="no disk has room for another replica"):
        drain_plan(brokers, partitions, 4, TOLERANCE)


def test_P39_what_a_small_disk_has_no_room_for_goes_where_there_is_room() -> None:
    brokers = [BalancedBroker(id, None, (20 if id == 3 else 1000) * GB) for id in (1, 2, 3, 4)]
    partitions = [partition(n, 1, 2, size=GB) for n in range(100)]
    partitions += [partition(100 + n, 4, 1 + n % 2, size=30 * GB) for n in range(10)]
    found = drain_plan(brokers, partitions, 4, TOLERANCE)
    assert found.after[3].disk <= 18 * GB
    assert found.after[4].replicas == 0


def test_P39_what_a_broker_has_that_is_not_registered_any_more_goes_elsewhere() -> None:
    partitions = [partition(0, 4, 1), partition(1, 2, 4)]
    found = drain_plan(brokers_in("a", "a", "a"), partitions, 4, TOLERANCE)
    assert all(4 not in change.after for change in found.changes)
    assert len(found.changes) == 2
