"""The consumer protocol (KIP-848), a sentence at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from group_world import FakeTopics, GroupWorld, Member
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.consumer_group import ConsumerGroup, MemberState
from ottla.coordinators.groups.consumer_protocol import OTHER_PATTERNS_MAX
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def joined(world: GroupWorld, *ids: str, **more: Any) -> list[Member]:
    members = [Member(world, id, **more) for id in ids]
    for member in members:
        assert int(member.join().error_code) == 0
    settle(members)
    return members


def settle(members: list[Member], rounds: int = 6) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()


def test_a_single_member_gets_everything_at_once() -> None:
    world = GroupWorld()
    member = Member(world, "m")
    reply = member.join()
    assert (reply.member_epoch, reply.member_id) == (1, "m")
    assert reply.heartbeat_interval.total_seconds() == 5
    assert member.owned == {"t": {0, 1, 2, 3}}


def test_version_0_gives_ids_out() -> None:
    world = GroupWorld()
    reply = Member(world, "").beat(
        version=0, subscribed_topic_names=["t"], rebalance_timeout=30_000
    )
    assert reply.member_id == "id1"


def test_a_second_member_gets_its_share_when_the_first_has_let_go() -> None:
    world = GroupWorld()
    (first,) = joined(world, "a")
    second = Member(world, "b")
    second.join()
    assert (second.epoch, second.count) == (2, 0)
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    before = dict(first.owned)
    told = first.beat()  # owns all, is told to keep half
    assert first.count == 2
    assert told.member_epoch == 1
    second.beat()
    assert second.count == 0  # the first has not confirmed
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert first.owned["t"] | second.owned["t"] == before["t"]
    assert (
        world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).reply.group_state == "Stable"
    )


def test_a_heartbeat_without_news_writes_nothing_and_answers_shortly() -> None:
    world = GroupWorld()
    (member,) = joined(world, "a")
    written = len(world.log)
    reply = member.beat(topic_partitions=None)
    assert reply.assignment is None
    assert len(world.log) == written


def test_partitions_of_one_that_left_go_to_the_others() -> None:
    world = GroupWorld()
    first, second = joined(world, "a", "b")
    assert int(second.leave().error_code) == 0
    settle([first])
    assert first.owned == {"t": {0, 1, 2, 3}}


def test_partitions_of_one_that_fell_silent_go_to_the_others() -> None:
    world = GroupWorld()
    first, second = joined(world, "a", "b")
    for _ in range(10):
        world.sleep(5)
        first.beat()
    assert first.count == 4
    assert int(second.beat().error_code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_may_have_a_session_and_an_interval_of_its_own() -> None:
    world = GroupWorld()
    world.topics.settings = {
        ("g", "consumer.session.timeout.ms"): 8_000,
        ("g", "consumer.heartbeat.interval.ms"): 2_000,
        ("another", "consumer.session.timeout.ms"): 1,
    }
    first, second = joined(world, "a", "b")
    assert first.beat().heartbeat_interval.total_seconds() == 2.0
    for _ in range(5):
        world.sleep(2)
        first.beat()
    assert first.count == 4
    assert int(second.beat().error_code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_does_not_let_go_in_time_is_out() -> None:
    world = GroupWorld()
    first, second = joined(world, "a")[0], Member(world, "b")
    second.join()
    stubborn = dict(first.owned)
    for _ in range(7):
        first.owned = stubborn
        first.beat()
        world.sleep(5)
        second.beat()
    assert int(first.beat().error_code) == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.count == 4


def test_another_subscription_starts_a_new_epoch() -> None:
    world = GroupWorld()
    (member,) = joined(world, "a")
    member.beat(subscribed_topic_names=["t", "u"])
    settle([member])
    assert member.owned == {"t": {0, 1, 2, 3}, "u": {0, 1}}
    assert member.epoch == 2


def test_new_partitions_and_topics_are_noticed() -> None:
    world = GroupWorld(FakeTopics(t=2))
    (member,) = joined(world, "a", topics=["t", "later"])
    world.topics.counts["t"] = 3
    world.topics.version += 1
    settle([member])
    assert member.owned == {"t": {0, 1, 2}}
    world.topics.counts["later"] = 1
    world.topics.version += 1
    settle([member])
    assert member.owned == {"t": {0, 1, 2}, "later": {0}}
    epoch = member.epoch
    world.topics.counts["strange"] = 1
    world.topics.version += 1
    settle([member])
    assert member.epoch == epoch


def test_a_pattern_follows_the_topics_there_are() -> None:
    world = GroupWorld(FakeTopics(**{"a-1": 1, "b-1": 1}))
    (member,) = joined(world, "m", topics=[], subscribed_topic_regex="a-.*")
    assert member.owned == {"a-1": {0}}
    world.topics.counts["a-2"] = 2
    world.topics.version += 1
    settle([member])
    assert member.owned == {"a-1": {0}, "a-2": {0, 1}}
    world.reload()
    settle([member])
    assert member.owned == {"a-1": {0}, "a-2": {0, 1}}
    member.beat(subscribed_topic_regex="b-1")
    settle([member])
    assert member.owned == {"b-1": {0}}
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert list(group.patterns) == ["b-1"]


def test_a_pattern_matches_what_its_member_may_know_of_whoever_asks_first() -> None:
    world = GroupWorld(FakeTopics(**{"a-1": 1, "a-2": 1}))
    world.seen_by = {"blind": {"a-1"}, "wise": {"a-1", "a-2", "a-3"}}
    (blind,) = joined(world, "blind", topics=[], subscribed_topic_regex="a-.*")
    (wise,) = joined(world, "wise", topics=[], subscribed_topic_regex="a-[0-9]")
    settle([blind, wise])
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)

    def matched() -> dict[str, tuple[str, ...]]:
        return {regex: found.topics for regex, found in group.patterns.items()}

    assert matched() == {"a-.*": ("a-1",), "a-[0-9]": ("a-1", "a-2")}
    world.topics.counts["a-3"] = 1
    world.topics.version += 1
    blind.beat()
    assert matched() == {"a-.*": ("a-1",), "a-[0-9]": ("a-1", "a-2")}, "nobody asked for the other"
    wise.beat()
    assert matched() == {"a-.*": ("a-1",), "a-[0-9]": ("a-1", "a-2", "a-3")}
    settle([blind, wise])
    assert set(blind.owned) <= {"a-1"} and set(wise.owned) >= {"a-2", "a-3"}


def test_one_request_matches_few_patterns_again_and_all_have_their_turn() -> None:
    world = GroupWorld(FakeTopics(**{"a-1": 1}))
    members = [
        joined(world, f"m{number}", topics=[], subscribed_topic_regex=f"a-.*|{number}")[0]
        for number in range(3 * OTHER_PATTERNS_MAX)
    ]
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    world.topics.counts["a-2"] = 1
    world.topics.version += 1

    def matched() -> int:
        return sum(found.topics == ("a-1", "a-2") for found in group.patterns.values())

    members[-1].beat()
    assert matched() == 1 + OTHER_PATTERNS_MAX
    settle(members)
    assert matched() == len(members)


def test_a_pattern_sees_no_more_when_another_member_is_gone() -> None:
    world = GroupWorld(FakeTopics(**{"a-1": 1, "a-2": 1}))
    world.seen_by = {"blind": {"a-1"}, "wise": {"a-1", "a-2"}}
    (blind,) = joined(world, "blind", topics=[], subscribed_topic_regex="a-.*")
    (wise,) = joined(world, "wise", topics=["a-1"])
    world.topics.version += 1
    wise.leave()
    settle([blind])
    assert blind.owned == {"a-1": {0}}
    world.seen_by["blind"].add("a-2")
    world.topics.version += 1  # the image has another ACL
    settle([blind])
    assert blind.owned == {"a-1": {0}, "a-2": {0}}


def test_the_assignor_is_the_one_that_members_ask_for() -> None:
    world = GroupWorld(FakeTopics(t=2, u=2))
    members = joined(world, "a", "b", topics=["t", "u"], server_assignor="range")
    assert [member.owned for member in members] == [{"t": {0}, "u": {0}}, {"t": {1}, "u": {1}}]
    described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=["g"]).reply
    assert described.assignor_name == "range"


BAD_REQUESTS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
    ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"subscribed_topic_regex": "(a"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"subscribed_topic_regex": r"(a)\1"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("fields", "error"), BAD_REQUESTS)
def test_a_heartbeat_that_makes_no_sense_is_refused(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    world = GroupWorld()
    request = {"subscribed_topic_names": ["t"], "rebalance_timeout": 30_000, **fields}
    reply = Member(world, "m").beat(**request)
    assert int(reply.error_code) == error
    assert not world.log


def test_a_wrong_epoch_is_fenced_but_a_lost_answer_is_repeated() -> None:
    world = GroupWorld()
    first, second = joined(world, "a", "b")
    first.beat(subscribed_topic_names=["t", "u"])
    settle([first, second])
    assert first.epoch == 3
    assert int(first.beat(member_epoch=4).error_code) == ErrorCode.FENCED_MEMBER_EPOCH
    assert int(first.beat(member_epoch=1).error_code) == ErrorCode.FENCED_MEMBER_EPOCH
    assert int(first.beat(member_epoch=2).error_code) == 0


def test_a_fenced_member_begins_anew_under_its_id() -> None:
    world = GroupWorld()
    first, second = joined(world, "a", "b")
    assert int(first.beat(member_epoch=9).error_code) == ErrorCode.FENCED_MEMBER_EPOCH
    assert int(first.join().error_code) == 0
    settle([first, second])
    assert (first.count, second.count) == (2, 2)


def test_a_full_group_takes_nobody_else() -> None:
    world = GroupWorld(consumer_max_size=1)
    joined(world, "a")
    reply = Member(world, "b").join()
    assert int(reply.error_code) == ErrorCode.GROUP_MAX_SIZE_REACHED


# -- static members ---------------------------------------------------------------------------------------


def static(world: GroupWorld, id: str, instance: str) -> Member:
    return Member(world, id, instance_id=instance)


def test_a_static_member_that_left_for_a_while_finds_its_partitions_again() -> None:
    world = GroupWorld()
    one, two = static(world, "a", "one"), static(world, "b", "two")
    one.join()
    two.join()
    settle([one, two])
    kept, epoch = dict(two.owned), one.epoch
    assert int(two.leave(-2).error_code) == 0
    settle([one])
    assert one.count == 2  # nobody takes them
    back = static(world, "c", "two")
    back.join()
    settle([one, back])
    assert back.owned == kept
    assert one.epoch == epoch  # nobody else noticed
    two.epoch = epoch
    assert int(two.beat().error_code) == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_loses_them() -> None:
    world = GroupWorld()
    one, two = static(world, "a", "one"), static(world, "b", "two")
    one.join()
    two.join()
    settle([one, two])
    two.leave(-2)
    for _ in range(10):
        world.sleep(5)
        one.beat()
    assert one.count == 4


def test_an_instance_that_is_still_there_is_not_replaced() -> None:
    world = GroupWorld()
    static(world, "a", "one").join()
    reply = static(world, "b", "one").join()
    assert int(reply.error_code) == ErrorCode.UNRELEASED_INSTANCE_ID
    stranger = static(world, "b", "one")
    assert int(stranger.leave().error_code) == ErrorCode.FENCED_INSTANCE_ID
    unknown = static(world, "a", "two")
    unknown.epoch = 1
    assert int(unknown.beat().error_code) == ErrorCode.UNKNOWN_MEMBER_ID


# -- with offsets and the other protocol ------------------------------------------------------------------


def test_members_commit_and_fetch_with_their_epoch() -> None:
    world = GroupWorld()
    (member,) = joined(world, "a")

    def commit(id: str, epoch: int, version: int = 9) -> int:
        return world.commit(
            "g", 5, member_id=id, generation_id_or_member_epoch=epoch, version=version
        )

    assert commit("a", 1) == 0
    assert commit("a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed("g", member_id="a", member_epoch=1).committed_offset == 5
    stale = world.committed("g", member_id="a", member_epoch=3)
    assert int(stale.error_code) == ErrorCode.STALE_MEMBER_EPOCH
    unknown = world.committed("g", member_id="x", member_epoch=1)
    assert int(unknown.error_code) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed("g").committed_offset == 5
    member.leave()
    assert commit("", -1) == 0


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    world = GroupWorld()
    world.commit("g", 5)
    (member,) = joined(world, "a")
    assert int(world.join(version=3).error) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.leave()
    (classic,) = world.stable("g")
    assert world.state("g") == "Stable"
    reply = Member(world, "b").join()
    assert int(reply.error_code) == ErrorCode.GROUP_ID_NOT_FOUND
    world.reload()
    assert world.state("g") == "Stable"
    assert world.committed("g").committed_offset == 5
    world.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": classic}])
    joined(world, "c")
    world.reload()
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
    assert world.committed("g").committed_offset == 5


def test_it_is_listed_described_and_deleted_as_what_it_is() -> None:
    world = GroupWorld()
    (member,) = joined(world, "a")
    (listed,) = world.ask(ApiKey.LIST_GROUPS, 5, types_filter=["consumer"]).reply.groups
    assert (listed.group_state, listed.group_type, listed.protocol_type) == (
        "Stable",
        "consumer",
        "consumer",
    )
    for version in (0, 1):
        described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=["g"]).reply
        (shown,) = described.members
        assert (described.group_epoch, shown.member_epoch, shown.client_id) == (1, 1, "c")
        (assigned,) = shown.assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("t", (0, 1, 2, 3))
        assert shown.target_assignment == shown.assignment
    assert world.state("g") == "Dead"  # to those who know only the classic protocol
    unknown = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["x"])
    assert unknown.error == ErrorCode.GROUP_ID_NOT_FOUND
    classic = world.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]).reply
    assert classic.error_message == "Group g is not a classic group."
    delete = ApiKey.DELETE_GROUPS
    assert world.ask(delete, 2, groups_names=["g"]).error == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert world.ask(delete, 2, groups_names=["g"]).error == 0
    world.reload()
    assert "g" not in world.shard.groups


def test_a_reconciliation_says_who_holds_it_up() -> None:
    world = GroupWorld()
    joined(world, "a")
    Member(world, "b").join()
    described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).reply
    assert described.group_state == "Reconciling"
    told = json.loads(described.error_message)
    assert [late["member_id"] for late in told["late"]] == ["a", "b"]
    assert told["since_ms"] == world.now_ms


# -- C4: one owner per partition -----------------------------------------------------------------------------

step = st.one_of(
    st.tuples(st.sampled_from(["join", "beat", "beat", "beat", "leave"]), st.sampled_from("abcd")),
    st.tuples(st.just("sleep"), st.integers(1, 40)),
    st.tuples(st.just("grow"), st.just(0)),
    st.tuples(st.just("reload"), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=60), st.sampled_from(["uniform", "range"]))
def test_C4_no_partition_has_two_owners_and_in_the_end_each_has_one(
    steps: list[tuple[str, Any]], assignor: str
) -> None:
    world = GroupWorld(FakeTopics(t=3, u=2))
    members = {
        id: Member(world, id, ["t"] if id == "d" else ["t", "u"], server_assignor=assignor)
        for id in "abcd"
    }
    active: dict[str, float] = {}
    for kind, what in steps:
        if kind == "sleep":
            world.sleep(what)
        elif kind == "grow":
            world.topics.counts["u"] += 1
            world.topics.version += 1
        elif kind == "reload":
            world.reload()
        elif kind == "join" and what not in active:
            assert int(members[what].join().error_code) == 0
            active[what] = world.now
        elif kind == "beat" and what in active:
            if int(members[what].beat().error_code) != 0:
                del active[what]
                members[what].owned = {}
        elif kind == "leave" and what in active:
            members[what].leave()
            del active[what]
            members[what].owned = {}
        living = [id for id, heard in active.items() if id in group_members(world)]
        owned = [slot for id in living for slot in slots(members[id])]
        assert len(owned) == len(set(owned))
    for _ in range(12):
        for id in list(active):
            if int(members[id].beat().error_code) != 0:
                del active[id]
        world.sleep(5)
    if active:
        wanted = {("t", n) for n in range(3)}
        if set(active) - {"d"}:
            wanted |= {("u", n) for n in range(world.topics.counts["u"])}
        assert sorted(slot for id in active for slot in slots(members[id])) == sorted(wanted)


def group_members(world: GroupWorld) -> dict[str, Any]:
    group = world.shard.groups.get("g")
    return dict(group.members) if group is not None else {}


def slots(member: Member) -> list[tuple[str, int]]:
    return [(topic, number) for topic, numbers in member.owned.items() for number in numbers]
