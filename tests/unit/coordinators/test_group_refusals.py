"""What is refused changes nothing, and what one group gets wrong is no other group's trouble."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from group_world import FakeTopics, GroupWorld, Member, protocols, subscription

from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_protocol import ConsumerProtocol
from ottla.coordinators.groups.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    put,
)
from ottla.patterns.pace import BURST, PatternPace
from ottla.patterns.re2 import WORK_MAX
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

COSTLY = "t|.*a.{150}a.*"


def world_of_long_names(**config: Any) -> GroupWorld:
    """In which COSTLY, which is a pattern, takes too long to match."""
    draw = random.Random(1)
    names = {"z" + "".join(draw.choices("ab", k=200)): 1 for _ in range(400)}
    return GroupWorld(FakeTopics(t=4, **names), **config)


def test_a_join_that_is_refused_for_its_costly_pattern_leaves_no_trace() -> None:
    world = world_of_long_names()
    first = Member(world, "m1")
    first.join()
    written = len(world.log)
    evil = Member(world, "evil", topics=[], subscribed_topic_regex=COSTLY)
    assert evil.join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(world.log) == written
    assert list(world.shard.groups["g"].members) == ["m1"]
    assert Member(world, "m2").join().error_code == 0
    assert first.leave().error_code == 0


def test_who_brings_one_costly_pattern_after_the_other_has_to_come_again_later() -> None:
    world = world_of_long_names()
    pace = PatternPace()

    def bring(number: int, owner: str = "mallory") -> int:
        select = partial(pace.select, owner)
        world.changed_request = partial(replace, select=select)
        evil = Member(world, "evil", topics=[], subscribed_topic_regex=f"{COSTLY}{number}")
        return int(evil.join().error_code)

    codes = [bring(number) for number in range(100)]
    assert set(codes) == {
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    paid = codes.count(ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert paid * WORK_MAX <= BURST + 2 * WORK_MAX
    assert bring(0, "alice") == ErrorCode.INVALID_REGULAR_EXPRESSION, "she has her own share"
    world.sleep(1)
    assert bring(0) == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_static_member_that_is_refused_may_still_come_back_to_what_it_had() -> None:
    world = world_of_long_names()
    former = Member(world, "m1", instance_id="i")
    former.join()
    owned = former.owned
    former.leave(-2)
    costly = Member(world, "m2", topics=[], instance_id="i", subscribed_topic_regex=COSTLY)
    assert costly.join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    later = Member(world, "m3", instance_id="i")
    assert later.join().error_code == 0
    assert later.owned == owned


def test_a_refused_join_does_not_change_the_kind_of_an_empty_group() -> None:
    world = world_of_long_names()
    world.commit("g", 42)
    costly = Member(world, "m1", topics=[], subscribed_topic_regex=COSTLY)
    assert costly.join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert isinstance(world.shard.groups["g"], ClassicGroup)
    assert world.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).error == 0


def test_a_member_whose_pattern_cannot_be_matched_any_more_holds_nobody_up() -> None:
    """As when many topics with long names are made at once, or the log has such a member."""
    world = world_of_long_names()
    costly, world.topics.counts = world.topics.counts, {"t": 4}
    ghost = Member(world, "ghost", topics=[], subscribed_topic_regex=COSTLY)
    assert ghost.join().error_code == 0
    assert ghost.count == 4
    world.topics.counts, world.topics.version = costly, 2
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    group.patterns.clear()
    other = Member(world, "m1")
    assert other.join().error_code == 0
    assert other.leave().error_code == 0
    world.sleep(100)
    assert world.shard.groups["g"].is_empty


def test_a_pattern_that_has_become_too_costly_is_tried_and_logged_once_for_each_change_of_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of_long_names()
    costly, world.topics.counts = world.topics.counts, {"t": 4}
    reader = Member(world, "m1", topics=[], subscribed_topic_regex=COSTLY)
    reader.join()
    world.topics.counts, world.topics.version = costly, 2
    for number in range(3):
        assert Member(world, f"other{number}").join().error_code == 0
    assert reader.join().error_code == 0
    assert caplog.text.count("is not matched again") == 1


def classic_join(world: GroupWorld, *names: str) -> Any:
    """Both steps of a classic member that comes to a group with members of the consumer protocol."""
    offer = protocols(*names, metadata=subscription("t"))
    member_id = world.join(protocols=offer).reply.member_id
    return world.join(member=member_id, protocols=offer)


def test_classic_members_of_a_mixed_group_need_one_protocol_that_all_of_them_have() -> None:
    """In pairs they may have one each, and yet no classic group could be made of all of them."""
    world = GroupWorld()
    last_consumer = Member(world, "m1")
    last_consumer.join()
    assert classic_join(world, "x", "y").error == 0
    assert classic_join(world, "y", "z").error == 0
    join = world.join(protocols=protocols("x", "z", metadata=subscription("t")))
    assert join.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert last_consumer.leave().error_code == 0
    group = world.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (len(group.members), group.protocol) == (2, "y")


def test_classic_members_without_a_protocol_in_common_stay_a_consumer_group() -> None:
    """As a log may have them that was written by somebody else."""
    world = GroupWorld()
    last_consumer = Member(world, "m1")
    last_consumer.join()
    ids = [classic_join(world, "x").reply.member_id for _ in range(2)]
    group = world.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    odd = group.members[ids[1]]
    assert odd.classic is not None
    (offered,) = odd.classic.supported_protocols
    foreign = replace(odd.classic, supported_protocols=(replace(offered, name="y"),))
    group.put_member(replace(odd, classic=foreign))
    assert last_consumer.leave().error_code == 0
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
    assert sorted(world.shard.groups["g"].members) == sorted(ids)


def test_a_timer_that_fails_takes_no_other_group_with_it_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupWorld()
    for group in ("bad", "good"):
        Member(world, "m1").beat(
            group_id=group, subscribed_topic_names=["t"], rebalance_timeout=30_000
        )
    remove = ConsumerProtocol.remove

    def failing(self: ConsumerProtocol, group: ConsumerGroup, gone: list[str]) -> None:
        remove(self, group, gone)
        if group.id == "bad":
            raise ValueError("a mistake of ours")

    monkeypatch.setattr(ConsumerProtocol, "remove", failing)
    world.sleep(50)
    assert not world.shard.groups["bad"].is_empty, "nothing is half decided"
    assert world.shard.groups["good"].is_empty
    monkeypatch.undo()
    world.sleep(50)
    assert world.shard.groups["bad"].is_empty


def test_a_record_that_makes_no_sense_is_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = GroupWorld()
    world.commit("other", 42)
    odd_state = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=9,
        assigned_partitions=(),
        partitions_pending_revocation=(),
    )
    odd_key = ConsumerGroupCurrentMemberAssignmentKey(group_id="odd", member_id="m1")
    world.log.append((put(odd_key, odd_state), None))
    twin = MemberMetadata(
        member_id="m1",
        group_instance_id="i",
        client_id="c",
        client_host="h",
        rebalance_timeout=1,
        session_timeout=1,
        subscription=b"",
        assignment=b"",
    )
    twins = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m1",
        current_state_timestamp=1,
        members=(twin, replace(twin, member_id="m2")),
    )
    world.log.append((put(GroupMetadataKey(group="twins"), twins), None))
    world.reload()
    assert world.committed("other").committed_offset == 42
    assert "twins" not in world.shard.groups
    assert all(f"'{name}'" in caplog.text for name in ("odd", "twins"))
