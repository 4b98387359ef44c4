"""The classic group protocol, a sentence at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from group_world import GroupWorld, protocols, subscription

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def test_a_new_member_is_first_given_its_id() -> None:
    world = GroupWorld()
    call = world.join()
    assert call.error == ErrorCode.MEMBER_ID_REQUIRED
    assert call.reply.member_id == "c-id1"


def test_an_old_client_joins_without_an_id() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0)
    for version in range(4):
        call = world.join(f"g{version}", version=version)
        assert (call.error, call.reply.generation_id) == (0, 1)


def test_a_new_group_waits_for_more_members_and_a_little_longer_for_each() -> None:
    world = GroupWorld()
    first = world.new_member()
    world.sleep(2.9)
    second = world.new_member()
    world.sleep(2.9)
    assert not first.is_answered
    world.sleep(0.3)
    assert first.error == second.error == 0
    assert len(first.reply.members) == 2
    assert second.reply.members == ()


def test_the_leader_assigns_and_the_others_wait_for_it() -> None:
    world = GroupWorld()
    calls = [world.new_member(), world.new_member()]
    world.sleep(6.1)
    leader, follower = (call.reply.member_id for call in calls)
    assert calls[0].reply.leader == leader
    waiting = world.sync("g", follower, 1)
    assert not waiting.is_answered
    assert world.state("g") == "CompletingRebalance"
    assignments = [{"member_id": follower, "assignment": b"all"}]
    assert world.sync("g", leader, 1, assignments=assignments).reply.assignment == b""
    assert waiting.reply.assignment == b"all"
    assert waiting.reply.protocol_name == "range"
    assert world.state("g") == "Stable"


def test_the_protocol_is_one_that_all_have_and_most_prefer() -> None:
    world = GroupWorld()
    offers = (("sticky", "range"), ("range", "sticky", "mine"), ("range", "sticky"))
    calls = [world.new_member(protocols=protocols(*names)) for names in offers]
    world.sleep(10)
    assert {call.reply.protocol_name for call in calls} == {"range"}


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    world = GroupWorld()
    calls = [world.new_member(protocols=protocols("range", "range")) for _ in range(2)]
    world.sleep(10)
    assert [(call.error, call.reply.protocol_name) for call in calls] == [(0, "range")] * 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(fields: dict[str, object], error: int) -> None:
    for version in range(10):
        assert GroupWorld().join(version=version, **fields).error == error


def test_a_member_without_a_common_protocol_is_refused() -> None:
    world = GroupWorld()
    world.stable()
    for offer in ({"protocols": protocols("other")}, {"protocol_type": "connect"}):
        assert world.join(**offer).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody_else() -> None:
    world = GroupWorld(max_size=2)
    world.stable(size=2)
    assert world.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_no_more_than_the_maximum_get_through_a_rebalance() -> None:
    world = GroupWorld(max_size=2)
    ids = [world.join().reply.member_id for _ in range(3)]
    calls = [world.join(member=id) for id in ids]
    world.sleep(8)
    assert [call.error for call in calls] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_member_that_joins_later_makes_all_others_rejoin() -> None:
    world = GroupWorld()
    (old,) = world.stable()
    new = world.new_member()
    assert world.state("g") == "PreparingRebalance"
    assert world.heartbeat("g", old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(member=old)
    assert again.reply.generation_id == new.reply.generation_id == 2
    assert again.reply.leader == old
    assert len(again.reply.members) == 2


def test_who_does_not_rejoin_in_time_is_out() -> None:
    world = GroupWorld()
    (old,) = world.stable()
    new = world.new_member()
    for _ in range(6):
        world.sleep(5)
        world.heartbeat("g", old, 1)
    assert new.reply.leader == new.reply.member_id
    assert world.heartbeat("g", old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_out() -> None:
    world = GroupWorld()
    calls = [world.new_member(), world.new_member()]
    world.sleep(6.1)
    leader, lazy = (call.reply.member_id for call in calls)
    world.sync("g", leader, 1)
    for _ in range(8):
        world.sleep(4)
        world.heartbeat("g", leader, 1)
        world.heartbeat("g", lazy, 1)
    assert world.heartbeat("g", lazy, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_out_after_its_session() -> None:
    world = GroupWorld()
    leader, silent = world.stable(size=2)
    world.sleep(0.1)
    for _ in range(3):
        world.heartbeat("g", leader, 1)
        world.sleep(4)
    assert world.heartbeat("g", leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = world.join(member=leader)
    assert [member.member_id for member in rejoined.reply.members] == [leader]
    assert world.join(member=silent).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    for offset in range(5):
        world.sleep(8)
        fields = {"member_id": member, "generation_id_or_member_epoch": 1}
        assert world.commit("g", offset, **fields) == 0
    assert world.heartbeat("g", member, 1) == 0


def test_the_last_member_leaves_an_empty_group() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    reply = world.ask(
        ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member, "reason": "done"}]
    ).reply
    assert [int(each.error_code) for each in reply.members] == [0]
    assert world.state("g") == "Empty"
    world.reload()
    assert world.state("g") == "Empty"
    call = world.new_member()
    world.sleep(4)
    assert call.reply.generation_id == 3  # the empty generation counted too


def test_a_leaving_member_starts_a_rebalance() -> None:
    world = GroupWorld()
    leader, other = world.stable(size=2)
    for version in range(3):
        call = world.ask(ApiKey.LEAVE_GROUP, version, group_id="g", member_id="nobody")
        assert call.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.ask(ApiKey.LEAVE_GROUP, 2, group_id="g", member_id=leader).error == 0
    assert world.heartbeat("g", other, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(member=other).reply.leader == other


def test_leaving_a_group_that_is_not_there_or_has_no_name() -> None:
    world = GroupWorld()
    reply = world.ask(ApiKey.LEAVE_GROUP, 3, group_id="g", members=[{"member_id": "m"}]).reply
    assert int(reply.members[0].error_code) == ErrorCode.UNKNOWN_MEMBER_ID
    call = world.ask(ApiKey.LEAVE_GROUP, 3, group_id="", members=[])
    assert call.error == ErrorCode.INVALID_GROUP_ID


def test_a_pending_member_may_leave_or_expire() -> None:
    world = GroupWorld()
    first, second = (world.join().reply.member_id for _ in range(2))
    reply = world.ask(ApiKey.LEAVE_GROUP, 3, group_id="g", members=[{"member_id": first}]).reply
    assert int(reply.members[0].error_code) == 0
    world.sleep(11)
    assert world.join(member=first).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(member=second).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    world = GroupWorld()
    (old,) = world.stable()
    pending = world.join().reply.member_id
    changed = world.join(member=old, protocols=protocols("range", metadata=b"new"))
    assert not changed.is_answered
    call = world.join(member=pending)
    assert call.error == changed.error == 0


def test_joining_again_changes_nothing_for_a_follower_but_starts_over_for_the_leader() -> None:
    world = GroupWorld()
    leader, follower = world.stable(size=2)
    again = world.join(member=follower)
    assert (again.error, again.reply.generation_id, again.reply.leader) == (0, 1, leader)
    assert not world.join(member=leader).is_answered
    assert world.state("g") == "PreparingRebalance"


def test_a_member_that_lost_its_answer_gets_it_again() -> None:
    world = GroupWorld()
    first = world.new_member()
    world.sleep(4)
    leader = first.reply.member_id
    again = world.join(member=leader)
    assert again.reply.generation_id == 1
    assert len(again.reply.members) == 1
    assert world.state("g") == "CompletingRebalance"


def test_syncing_members_are_sent_back_when_a_rebalance_begins() -> None:
    world = GroupWorld()
    calls = [world.new_member(), world.new_member()]
    world.sleep(6.1)
    follower = calls[1].reply.member_id
    waiting = world.sync("g", follower, 1)
    world.new_member()
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync("g", follower, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_only_members_of_this_generation_and_protocol_sync_and_beat() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert world.sync("", member, 1).error == ErrorCode.INVALID_GROUP_ID
    assert world.sync("other", member, 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", "nobody", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("g", member, 2).error == ErrorCode.ILLEGAL_GENERATION
    wrong = world.sync("g", member, 1, protocol_name="sticky")
    assert wrong.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = world.sync("g", member, 1, protocol_type="connect")
    assert wrong.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("g", member, 1).reply.assignment == member.encode()
    assert world.heartbeat("", member, 1) == ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat("other", member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("g", member, 1) == 0


def test_every_version_of_every_request_is_answered() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    for version in range(5):
        fields = {"group_id": "g", "generation_id": 1, "member_id": member}
        assert world.ask(ApiKey.HEARTBEAT, version, **fields).error == 0
        assert world.sync("g", member, 1, version=version).reply.assignment == member.encode()


# -- static members -------------------------------------------------------------------------------------


def static_group(world: GroupWorld) -> tuple[str, str]:
    calls = [world.join(group_instance_id=name) for name in ("one", "two")]
    world.sleep(6.1)
    leader, other = (call.reply.member_id for call in calls)
    assert leader.startswith("one-")
    assignments = [{"member_id": id, "assignment": id.encode()} for id in (leader, other)]
    world.sync("g", leader, 1, assignments=assignments)
    assert world.sync("g", other, 1).error == 0
    return leader, other


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = GroupWorld()
    _, other = static_group(world)
    back = world.join(group_instance_id="two")
    assert (back.error, back.reply.generation_id) == (0, 1)
    assert back.reply.member_id != other
    assert world.state("g") == "Stable"
    assert world.sync("g", back.reply.member_id, 1).reply.assignment == other.encode()


def test_its_former_self_is_fenced_everywhere() -> None:
    world = GroupWorld()
    _, other = static_group(world)
    world.join(group_instance_id="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat("g", other, 1, group_instance_id="two") == fenced
    assert world.join(member=other, group_instance_id="two").error == fenced
    assert world.sync("g", other, 1, group_instance_id="two").error == fenced
    identity = {"member_id": other, "generation_id_or_member_epoch": 1, "group_instance_id": "two"}
    assert world.commit("g", 1, **identity) == fenced
    reply = world.ask(
        ApiKey.LEAVE_GROUP,
        5,
        group_id="g",
        members=[{"member_id": other, "group_instance_id": "two"}],
    ).reply
    assert int(reply.members[0].error_code) == fenced


def test_a_static_leader_that_came_back_keeps_the_assignment() -> None:
    world = GroupWorld()
    leader, _ = static_group(world)
    back = world.join(group_instance_id="one")
    assert back.reply.skip_assignment
    assert back.reply.leader == back.reply.member_id
    assert len(back.reply.members) == 2
    older = world.join(group_instance_id="one", version=8)
    assert older.reply.leader == back.reply.member_id  # not itself: it must not assign
    assert older.reply.members == ()
    assert leader not in (older.reply.member_id, older.reply.leader)


def test_a_static_member_that_is_replaced_while_it_joins_is_told() -> None:
    world = GroupWorld()
    waiting = world.join(group_instance_id="one")
    newer = world.join(group_instance_id="one")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    world.sleep(6.1)
    assert newer.error == 0


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    world = GroupWorld()
    world.join(group_instance_id="one", protocols=protocols("range", "sticky"))
    world.sleep(4)
    back = world.join(group_instance_id="one", protocols=protocols("sticky"))
    if not back.is_answered:
        world.sleep(4)
    assert back.reply.protocol_name == "sticky"
    assert back.reply.generation_id == 2


def test_static_members_are_kept_when_they_miss_a_rebalance() -> None:
    world = GroupWorld()
    leader, other = static_group(world)
    world.new_member()
    rejoined = world.join(member=leader, group_instance_id="one")
    for _ in range(8):
        world.sleep(4)
        world.heartbeat("g", other, 1, group_instance_id="two")
    assert "two" in {member.group_instance_id for member in rejoined.reply.members}


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    world = GroupWorld()
    static_group(world)
    members = [{"member_id": "", "group_instance_id": name} for name in ("two", "three")]
    reply = world.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members).reply
    errors = [int(each.error_code) for each in reply.members]
    assert errors == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state("g") == "PreparingRebalance"


def test_an_unknown_instance_is_an_unknown_member() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", member, 1, group_instance_id="x") == unknown


# -- failover ---------------------------------------------------------------------------------------------


def test_a_stable_group_lives_on_at_the_next_coordinator() -> None:
    world = GroupWorld()
    leader, other = world.stable(size=2)
    world.reload()
    assert world.state("g") == "Stable"
    assert world.heartbeat("g", leader, 1) == 0
    assert world.sync("g", other, 1).reply.assignment == other.encode()


def test_members_that_do_not_find_the_next_coordinator_expire_there() -> None:
    world = GroupWorld()
    world.stable(size=2)
    world.reload()
    world.sleep(10.1)
    assert world.state("g") == "Empty"


def test_a_rebalance_that_was_under_way_begins_again() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    lost = world.new_member()
    world.reload()
    assert not lost.is_answered
    assert world.heartbeat("g", member, 1) == 0
    assert world.join(member="c-id9").error == ErrorCode.UNKNOWN_MEMBER_ID


# -- about groups -------------------------------------------------------------------------------------------


def test_a_stable_group_is_described_in_full_and_another_without_its_metadata() -> None:
    world = GroupWorld()
    (member,) = world.stable(protocols=protocols("range", metadata=b"me"))
    for version in range(7):
        described = world.ask(ApiKey.DESCRIBE_GROUPS, version, groups=["g"]).reply
        assert described.group_state == "Stable"
        assert described.protocol_data == "range"
        assert described.members[0].member_metadata == b"me"
        assert described.members[0].member_assignment == member.encode()
        assert described.members[0].client_host == "/10.0.0.1"
    world.new_member()
    described = world.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]).reply
    assert described.members[0].member_metadata == b""
    assert described.members[0].member_assignment == member.encode()


def test_a_rebalance_says_who_holds_it_up_and_since_when() -> None:
    world = GroupWorld()
    (late,) = world.stable()
    began_ms = world.now_ms
    world.new_member()
    world.sleep(2)
    described = world.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]).reply
    assert int(described.error_code) == 0
    told = json.loads(described.error_message)
    assert told["waits_for"] == "JoinGroup"
    assert told["since_ms"] == began_ms
    assert [member["member_id"] for member in told["late"]] == [late]
    assert told["rebalance_timeout_ms"] == 30_000


def test_an_unknown_group_is_dead_and_since_v6_an_error() -> None:
    world = GroupWorld()
    assert world.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["x"]).reply.group_state == "Dead"
    newer = world.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["x"])
    assert newer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert newer.reply.error_message == "Group x not found."


def test_tools_tell_a_group_of_another_kind_from_none() -> None:
    """They show the message of ConsumerGroupDescribe, which they ask first."""
    world = GroupWorld()
    world.stable("old")
    for name, message in (
        ("x", "Group x not found."),
        ("old", "Group old is not a consumer group."),
    ):
        answer = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[name])
        assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.reply.error_message == message


def test_groups_are_listed_by_state_and_type() -> None:
    world = GroupWorld()
    world.stable("busy")
    world.commit("simple", 1)
    assert [group.group_id for group in listed(world)] == ["busy", "simple"]
    assert [group.group_id for group in listed(world, states_filter=["empty"])] == ["simple"]
    assert [group.protocol_type for group in listed(world)] == ["consumer", ""]
    assert listed(world, types_filter=["consumer"]) == ()
    assert len(listed(world, types_filter=["Classic"])) == 2


def listed(world: GroupWorld, **filters: list[str]) -> tuple[Any, ...]:
    return world.ask(ApiKey.LIST_GROUPS, 5, **filters).reply.groups


def test_only_an_empty_group_can_be_deleted_and_its_offsets_go_with_it() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    world.commit("g", 5, member_id=member, generation_id_or_member_epoch=1)
    delete = ApiKey.DELETE_GROUPS
    assert world.ask(delete, 2, groups_names=["g"]).error == ErrorCode.NON_EMPTY_GROUP
    assert world.ask(delete, 2, groups_names=["x"]).error == ErrorCode.GROUP_ID_NOT_FOUND
    world.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member}])
    assert world.ask(delete, 0, groups_names=["g"]).error == 0
    world.reload()
    assert world.state("g") == "Dead"
    assert world.committed("g").committed_offset == -1


def test_subscribed_topics_are_read_from_what_consumers_say() -> None:
    world = GroupWorld()
    world.stable(protocols=protocols("range", metadata=subscription("t", "u")))
    assert world.shard.groups["g"].subscribed == {"t", "u"}
    world.reload()
    assert world.shard.groups["g"].subscribed == {"t", "u"}
