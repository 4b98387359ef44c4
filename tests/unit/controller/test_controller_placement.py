"""Where new partitions go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import PlaceableBroker, check_assignment, place, start_after
from ottla.wire.errors import ErrorCode, KafkaError

ids = st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True)


def live(brokers: list[int], racks: dict[int, str] | None = None) -> list[PlaceableBroker]:
    return [PlaceableBroker(broker, (racks or {}).get(broker), True) for broker in brokers]


@given(ids, st.integers(1, 40), st.data())
def test_P36_partition_i_replica_j_is_on_broker_i_plus_j_mod_n_of_the_sorted_brokers(
    brokers: list[int], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(live(brokers), partitions, factor)
    order, n = sorted(brokers), len(brokers)
    assert placed == [tuple(order[(i + j) % n] for j in range(factor)) for i in range(partitions)]


@given(ids, st.integers(1, 40), st.integers(0, 1000), st.data())
def test_P36_no_broker_holds_two_replicas_and_P37_leaders_are_spread_evenly(
    brokers: list[int], partitions: int, start: int, data: st.DataObject
) -> None:
    racks = {b: data.draw(st.sampled_from(["a", "b", "c"])) for b in brokers}
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(live(brokers, racks), partitions, factor, start)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker] for broker in brokers]
    assert max(counts) - min(counts) <= 1


@given(ids, st.integers(1, 40), st.integers(0, 1000), st.data())
def test_P36_replicas_lie_on_different_racks_while_racks_last(
    brokers: list[int], partitions: int, start: int, data: st.DataObject
) -> None:
    racks = {b: data.draw(st.sampled_from(["a", "b", "c", "d"])) for b in brokers}
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in place(live(brokers, racks), partitions, factor, start):
        used = [racks[replica] for replica in replicas]
        distinct = min(factor, len(set(racks.values())))
        assert len(set(used[:distinct])) == distinct


@given(ids, ids, st.integers(1, 10), st.data())
def test_fenced_brokers_are_used_only_where_live_ones_are_too_few_and_never_lead(
    alive: list[int], fenced: list[int], partitions: int, data: st.DataObject
) -> None:
    fenced = [broker + 1000 for broker in fenced]
    brokers = live(alive) + [PlaceableBroker(broker, None, False) for broker in fenced]
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in place(brokers, partitions, factor):
        assert replicas[0] in alive
        assert len([r for r in replicas if r in fenced]) == max(0, factor - len(alive))


def test_topics_of_one_partition_begin_one_after_the_other() -> None:
    firsts = [place(live([1, 2, 3]), 1, 1, start)[0][0] for start in range(6)]
    assert firsts == [1, 2, 3, 1, 2, 3]


def test_an_enlarged_topic_goes_on_where_it_stopped() -> None:
    brokers = live([1, 2, 3])
    first = place(brokers, 2, 2, start=1)
    more = place(brokers, 2, 2, start_after(brokers, first[0][0]) + 2)
    assert first + more == place(brokers, 4, 2, start=1)


@pytest.mark.parametrize(
    ("brokers", "factor"),
    [(live([1, 2]), 3), (live([1]), 0), (live([1]), -2), ([PlaceableBroker(1, None, False)], 1)],
)
def test_a_factor_that_cannot_be_reached_is_refused(
    brokers: list[PlaceableBroker], factor: int
) -> None:
    with pytest.raises(KafkaError) as refused:
        place(brokers, 1, factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ({0: [1, 1]}, "more than once"),
        ({0: [1, 9]}, "no such broker"),
        ({0: [1], 2: [2]}, "consecutive"),
        ({1: [1]}, "consecutive"),
        ({0: [1, 2], 1: [1]}, "not consistent"),
        ({0: []}, "empty replica list"),
        ({0: [3]}, "fenced or in controlled shutdown"),
    ],
)
def test_an_assignment_by_hand_is_refused_with_its_fault_named(
    assignment: dict[int, list[int]], why: str
) -> None:
    brokers = [*live([1, 2]), PlaceableBroker(3, None, False)]
    with pytest.raises(KafkaError, match=why) as refused:
        check_assignment(assignment, brokers)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_by_hand_is_taken_as_it_is() -> None:
    assert check_assignment({1: [1, 2], 0: [2, 1]}, live([1, 2])) == [(2, 1), (1, 2)]
