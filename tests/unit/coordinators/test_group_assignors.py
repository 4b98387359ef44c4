"""Server-side assignors: every partition has one owner, evenly, and moves as little as it can."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_ranges,
    assign_uniformly,
)

TOPICS = [UUID(int=number) for number in range(1, 5)]


def member(
    *topics: int, instance: str | None = None, target: Assignment | None = None
) -> Subscriber:
    return Subscriber(instance, frozenset(TOPICS[topic] for topic in topics), target or {})


def test_ranges_keep_the_same_partitions_of_several_topics_together() -> None:
    members = {"a": member(0, 1), "b": member(0, 1), "c": member(0, 1)}
    shares = assign_ranges(members, {TOPICS[0]: 4, TOPICS[1]: 4})
    assert shares["a"] == {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0, 1})}
    assert shares["b"] == {TOPICS[0]: frozenset({2}), TOPICS[1]: frozenset({2})}
    assert shares["c"] == {TOPICS[0]: frozenset({3}), TOPICS[1]: frozenset({3})}


def test_ranges_go_by_instance_ids_so_that_static_members_keep_theirs() -> None:
    members = {"z": member(0, instance="1"), "a": member(0, instance="2"), "b": member(0)}
    shares = assign_ranges(members, {TOPICS[0]: 3})
    assert [shares[id][TOPICS[0]] for id in "zab"] == [{0}, {1}, {2}]


def test_a_new_member_takes_only_what_it_needs() -> None:
    shares = assign_uniformly({"a": member(0), "b": member(0)}, {TOPICS[0]: 6})
    kept = {id: member(0, target=share) for id, share in shares.items()}
    after = assign_uniformly({**kept, "c": member(0)}, {TOPICS[0]: 6})
    assert all(after[id][TOPICS[0]] <= shares[id][TOPICS[0]] for id in "ab")
    assert [len(after[id][TOPICS[0]]) for id in "abc"] == [2, 2, 2]


def test_nothing_is_assigned_to_nobody() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor({}, {}) == {}


counts = st.lists(st.integers(1, 12), min_size=4, max_size=4)
subscriptions = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=8
)


def check(
    members: dict[str, Subscriber], partitions: dict[UUID, int], shares: dict[str, Assignment]
) -> None:
    assert shares.keys() == members.keys()
    owned = [
        (topic, number)
        for id, share in shares.items()
        for topic, numbers in share.items()
        for number in numbers
        if topic in members[id].topics
    ]
    wanted = {
        (topic, number)
        for topic in {topic for each in members.values() for topic in each.topics}
        for number in range(partitions[topic])
    }
    assert (
        len(owned)
        == len(set(owned))
        == sum(len(numbers) for share in shares.values() for numbers in share.values())
    )
    assert set(owned) == wanted


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@settings(max_examples=150, deadline=None)
@given(subscriptions, subscriptions, counts)
def test_each_partition_of_each_subscribed_topic_has_exactly_one_owner(
    name: str,
    first: dict[str, frozenset[UUID]],
    second: dict[str, frozenset[UUID]],
    counts: list[int],
) -> None:
    partitions = dict(zip(TOPICS, counts, strict=True))
    members = {id: Subscriber(None, topics, {}) for id, topics in first.items()}
    shares = ASSIGNORS[name](members, partitions)
    check(members, partitions, shares)
    # Members come and go and subscribe to other topics, and topics grow.
    partitions = {topic: count + 1 for topic, count in partitions.items()}
    members = {id: Subscriber(None, topics, shares.get(id, {})) for id, topics in second.items()}
    again = ASSIGNORS[name](members, partitions)
    check(members, partitions, again)


@settings(max_examples=150, deadline=None)
@given(subscriptions, counts)
def test_no_partition_could_go_to_a_member_with_two_fewer(
    subscribed: dict[str, frozenset[UUID]], counts: list[int]
) -> None:
    partitions = dict(zip(TOPICS, counts, strict=True))
    members = {id: Subscriber(None, topics, {}) for id, topics in subscribed.items()}
    shares = assign_uniformly(members, partitions)
    load = {id: sum(map(len, share.values())) for id, share in shares.items()}
    for id, share in shares.items():
        for topic in share:
            for other, topics in subscribed.items():
                assert topic not in topics or load[id] - load[other] <= 1


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 8), st.integers(0, 8), counts)
def test_equal_members_differ_by_one_and_move_no_more_than_they_must(
    before: int, change: int, counts: list[int]
) -> None:
    partitions = dict(zip(TOPICS, counts, strict=True))
    everything = frozenset(TOPICS)
    names = [f"m{number}" for number in range(16)]
    members = {id: Subscriber(None, everything, {}) for id in names[:before]}
    shares = assign_uniformly(members, partitions)
    later = {
        id: Subscriber(None, everything, shares.get(id, {})) for id in names[: before + change]
    }
    again = assign_uniformly(later, partitions)
    loads = sorted(sum(map(len, share.values())) for share in again.values())
    assert loads[-1] - loads[0] <= 1
    moved = sum(
        len(numbers - shares.get(id, {}).get(topic, frozenset()))
        for id, share in again.items()
        for topic, numbers in share.items()
    )
    newcomers = sum(sum(map(len, again[id].values())) for id in names[before : before + change])
    assert moved == newcomers
