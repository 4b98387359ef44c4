"""Committed offsets: a register per group and partition that survives its coordinator."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from group_world import FakeTopics, GroupWorld, protocols, subscription, topic_id
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.shard import CoordinatorRecord, ProducerStamp
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

DAY_S = 24 * 60 * 60.0


def test_what_was_committed_is_fetched_also_after_a_failover() -> None:
    world = GroupWorld()
    for version in range(2, 11):
        assert world.commit("g", version, version=version, note=f"v{version}") == 0
        world.reload()
        found = world.committed("g")
        assert (found.committed_offset, found.metadata) == (version, f"v{version}")
        assert found.committed_leader_epoch == (3 if version >= 6 else -1)


def test_every_version_of_a_fetch_is_answered() -> None:
    world = GroupWorld()
    world.commit("g", 7)
    for version in range(1, 11):
        topic: dict[str, Any] = {
            "name": "t",
            "topic_id": topic_id("t"),
            "partition_indexes": [0, 1],
        }
        named = {name: topic[name] for name in topic if (name == "topic_id") <= (version >= 10)}
        if version >= 10:
            del named["name"]
        entry = {"group_id": "g", "topics": [named]}
        fields = {"groups": [entry]} if version >= 8 else entry
        reply = world.ask(ApiKey.OFFSET_FETCH, version, **fields).reply
        offsets = [partition.committed_offset for partition in reply.topics[0].partitions]
        assert offsets == [7, -1], version


def test_all_offsets_of_a_group_are_fetched_without_naming_them() -> None:
    world = GroupWorld()
    world.commit("g", 1, partition=2)
    world.commit("g", 2, topic="u")
    reply = world.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}]).reply
    found = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in reply.topics
        for partition in topic.partitions
    }
    assert found == {("t", 2): 1, ("u", 0): 2}
    reply = world.ask(ApiKey.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": None}]).reply
    assert [topic.topic_id for topic in reply.topics] == [topic_id("t"), topic_id("u")]


def test_a_commit_for_nothing_that_exists_is_refused() -> None:
    world = GroupWorld()
    assert world.commit("g", 1, topic="x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit("g", 1, partition=4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit("g", 1, partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit("g", 1, topic="x", version=10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert world.state("g") == "Dead"


def test_a_note_may_not_be_too_long() -> None:
    world = GroupWorld()
    assert world.commit("g", 1, note="x" * 4096) == 0
    assert world.commit("g", 2, note="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.committed("g").committed_offset == 1


def test_while_a_group_has_members_only_they_commit() -> None:
    world = GroupWorld()
    (member,) = world.stable()

    def commit(member_id: str, generation: int, **more: Any) -> int:
        return world.commit(
            "g", 1, member_id=member_id, generation_id_or_member_epoch=generation, **more
        )

    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit(member, 1) == 0
    world.new_member()
    assert commit(member, 1) == 0  # it may still say how far it came
    world.join(member=member)
    assert commit(member, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_generation_of_a_group_that_is_not_there() -> None:
    world = GroupWorld()
    fields = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert world.commit("g", 1, version=8, **fields) == ErrorCode.ILLEGAL_GENERATION
    assert world.commit("g", 1, version=9, **fields) == ErrorCode.GROUP_ID_NOT_FOUND


# -- transactions -----------------------------------------------------------------------------------------


def txn_commit(world: GroupWorld, offset: int, producer: int = 7, **more: Any) -> int:
    version = more.pop("version", 3)
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
    fields = {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": producer,
        "producer_epoch": 0,
        "topics": [{"name": "t", "partitions": [partition]}],
        **more,
    }
    reply = world.ask(ApiKey.TXN_OFFSET_COMMIT, version, **fields).reply
    return int(reply.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_count_once_it_commits(version: int) -> None:
    world = GroupWorld()
    world.commit("g", 1)
    assert txn_commit(world, 5, version=version) == 0
    assert world.committed("g").committed_offset == 1
    unstable = world.committed("g", require_stable=True)
    assert int(unstable.error_code) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.reload()
    assert world.committed("g").committed_offset == 1
    world.end_transaction(7, True)
    assert world.committed("g", require_stable=True).committed_offset == 5
    world.reload()
    assert world.committed("g", require_stable=True).committed_offset == 5


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    world = GroupWorld()
    txn_commit(world, 5)
    world.end_transaction(7, False)
    assert world.committed("g", require_stable=True).committed_offset == -1


@pytest.mark.parametrize("nobody", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_offsets_of_nobodys_transaction_are_refused(nobody: dict[str, int]) -> None:
    world = GroupWorld()
    world.commit("g", 1)
    assert txn_commit(world, 5, **nobody) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.committed("g", require_stable=True).committed_offset == 1


def test_offsets_that_were_written_in_nobodys_transaction_hold_up_no_one() -> None:
    world = GroupWorld()
    world.commit("g", 1)
    txn_commit(world, 5)
    record, _ = world.log[-1]
    assert isinstance(record, CoordinatorRecord)
    world.log[-1] = record, ProducerStamp(-1, -1)
    world.reload()
    assert world.committed("g", require_stable=True).committed_offset == 1


def test_of_two_commits_the_later_written_counts() -> None:
    world = GroupWorld()
    txn_commit(world, 5)
    world.commit("g", 9)
    world.end_transaction(7, True)
    assert world.committed("g").committed_offset == 9


def test_a_transaction_of_a_member_that_is_no_longer_one_is_refused() -> None:
    world = GroupWorld()
    (member,) = world.stable()
    assert txn_commit(world, 1, member_id=member, generation_id=1) == 0
    assert txn_commit(world, 1, member_id=member, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(world, 1, member_id="x", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    fenced = txn_commit(world, 1, member_id="x", generation_id=1, group_instance_id="i")
    assert fenced == ErrorCode.UNKNOWN_MEMBER_ID
    assert txn_commit(world, 1, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert txn_commit(world, 1, group_id="h", generation_id=3) == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(world, 1) == 0  # older clients say nothing of members


# -- deletion and expiry ------------------------------------------------------------------------------------


def delete_offset(world: GroupWorld, topic: str = "t", group: str = "g") -> tuple[int, int]:
    """(error for all, error of the partition)"""
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    reply = world.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics).reply
    inner = int(reply.topics[0].partitions[0].error_code) if reply.topics else 0
    return int(reply.error_code), inner


def test_offsets_are_deleted_unless_somebody_reads_the_topic() -> None:
    world = GroupWorld()
    world.commit("g", 5)
    assert delete_offset(world) == (0, 0)
    assert world.committed("g").committed_offset == -1
    assert delete_offset(world, topic="x") == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete_offset(world, group="x") == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    assert delete_offset(world, group="") == (ErrorCode.INVALID_GROUP_ID, 0)
    world.stable("h", protocols=protocols("range", metadata=subscription("t")))
    assert delete_offset(world, group="h") == (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert delete_offset(world, group="h", topic="u") == (0, 0)
    world.stable("k", protocol_type="connect")
    assert delete_offset(world, group="k") == (ErrorCode.NON_EMPTY_GROUP, 0)


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    world = GroupWorld()
    world.commit("g", 5)
    world.commit("g", 6, topic="u")
    world.apply(world.shard.topics_deleted(["t"], world.now, world.now_ms))
    assert world.committed("g").committed_offset == -1
    assert world.committed("g", topic="u").committed_offset == 6


class RecreatedTopics(FakeTopics):
    """In which `t` was deleted and made again."""

    def id_of(self, name: str) -> UUID | None:
        return RECREATED if name == "t" else super().id_of(name)

    def name_of(self, id: UUID) -> str | None:
        return "t" if id == RECREATED else super().name_of(id)


RECREATED = UUID(int=12345)


def recreate(world: GroupWorld) -> None:
    world.topics.__class__ = RecreatedTopics


def by_new_id(world: GroupWorld) -> int:
    entry = {
        "group_id": "g",
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"topic_id": RECREATED, "partition_indexes": [0]}],
    }
    reply = world.ask(ApiKey.OFFSET_FETCH, 10, groups=[entry], require_stable=True).reply
    return int(reply.topics[0].partitions[0].committed_offset)


def test_a_topic_of_the_same_name_begins_without_offsets() -> None:
    world = GroupWorld()
    world.commit("g", 77)
    recreate(world)
    assert world.committed("g").committed_offset == -1
    assert by_new_id(world) == -1
    world.commit("g", 5)
    assert world.committed("g").committed_offset == 5
    assert by_new_id(world) == 5


def test_offsets_of_topics_that_were_deleted_while_nobody_coordinated_go_with_the_loading() -> None:
    world = GroupWorld()
    world.commit("g", 77)
    world.commit("g", 78, topic="u")
    txn_commit(world, 55, group_id="h")
    recreate(world)
    world.reload()
    assert list(world.shard.offsets.of("g")) == [("u", 0)]
    world.end_transaction(7, True)
    assert not world.shard.offsets.of("h")


def test_what_is_left_of_a_deleted_topic_goes_when_offsets_expire() -> None:
    world = GroupWorld()
    world.commit("g", 77)
    world.commit("g", 78, topic="u")
    recreate(world)
    world.sleep(601)
    assert list(world.shard.offsets.of("g")) == [("u", 0)]


def test_a_transaction_brings_no_offsets_of_a_deleted_topic_back() -> None:
    world = GroupWorld()
    txn_commit(world, 55)
    world.apply(world.shard.topics_deleted(["t"], world.now, world.now_ms))
    world.end_transaction(7, True)
    assert world.committed("g").committed_offset == -1


def test_an_offset_that_does_not_say_of_which_topic_it_is_counts_for_its_name() -> None:
    """Records of version 1, and of Kafka before topics had ids."""
    world = GroupWorld()
    world.commit("g", 77, version=4, retention_time=10**9)
    recreate(world)
    assert world.committed("g").committed_offset == 77


def test_offsets_without_members_expire_and_the_group_with_them() -> None:
    world = GroupWorld()
    world.commit("g", 5)
    world.sleep(6.9 * DAY_S)
    world.commit("g", 6, partition=1)
    world.sleep(0.2 * DAY_S)
    assert world.committed("g").committed_offset == -1
    assert world.committed("g", partition=1).committed_offset == 6
    world.sleep(7 * DAY_S)
    assert world.state("g") == "Dead"
    world.reload()
    assert world.state("g") == "Dead"


def test_offsets_of_a_consumer_group_expire_from_when_it_became_empty() -> None:
    world = GroupWorld()
    (member,) = world.stable(session_timeout=1_800_000)
    world.commit("g", 5, member_id=member, generation_id_or_member_epoch=1)
    for _ in range(10 * 48):
        world.sleep(1_790)
        world.heartbeat("g", member, 1)
    assert world.committed("g").committed_offset == 5
    world.sleep(6.9 * DAY_S)
    assert world.committed("g").committed_offset == 5
    world.sleep(0.2 * DAY_S)
    assert world.committed("g").committed_offset == -1


def test_offsets_of_topics_that_members_no_longer_read_expire() -> None:
    world = GroupWorld(offsets_retention_ms=30_000, offsets_retention_check_interval_ms=1_000)
    offer = protocols("range", metadata=subscription("t"))
    (member,) = world.stable(protocols=offer)
    for topic in ("t", "u"):
        world.commit("g", 5, topic=topic, member_id=member, generation_id_or_member_epoch=1)
    for _ in range(8):
        world.sleep(5)
        world.heartbeat("g", member, 1)
    assert world.committed("g", topic="t").committed_offset == 5
    assert world.committed("g", topic="u").committed_offset == -1


def test_an_old_client_says_how_long_its_offset_lives() -> None:
    world = GroupWorld()
    world.commit("g", 5, version=3, retention_time=3_600_000)
    world.reload()
    world.sleep(0.99 * 3_600)
    assert world.committed("g").committed_offset == 5
    world.sleep(700)
    assert world.committed("g").committed_offset == -1


def test_many_offsets_expire_in_batches() -> None:
    world = GroupWorld()
    for number in range(1500):
        world.commit(f"g{number}", 1)
    before = len(world.log)
    world.sleep(7.1 * DAY_S)
    assert len(world.log) - before == 3000  # an offset and a group each
    assert not world.shard.groups


# -- C4: a linearizable register -------------------------------------------------------------------------------

step = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 99)),
    st.tuples(st.just("txn"), st.integers(0, 99), st.integers(1, 2)),
    st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("reload")),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(step, max_size=25))
def test_C4_an_acknowledged_commit_is_what_is_read_whatever_happens(
    steps: list[tuple[Any, ...]],
) -> None:
    world = GroupWorld()
    value, written = -1, -1
    pending: dict[int, tuple[int, int]] = {}
    for number, (kind, *details) in enumerate(steps):
        if kind == "commit":
            assert world.commit("g", details[0]) == 0
            value, written = details[0], number
        elif kind == "txn":
            assert txn_commit(world, details[0], details[1]) == 0
            pending[details[1]] = (details[0], number)
        elif kind == "end":
            world.end_transaction(*details)
            if (ended := pending.pop(details[0], None)) and details[1] and ended[1] > written:
                value, written = ended
        else:
            world.reload()
        assert world.committed("g").committed_offset == value
        stable = world.committed("g", require_stable=True)
        assert int(stable.error_code) == (ErrorCode.UNSTABLE_OFFSET_COMMIT if pending else 0)
