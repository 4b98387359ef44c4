"""A group goes from the classic to the consumer protocol and back while it is in use, member by member."""

from __future__ import annotations

from typing import Any

import pytest
from group_world import FakeTopics, GroupWorld, Member, protocols

from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.subscription import (
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def subscription(topics: list[str], owned: dict[str, set[int]]) -> bytes:
    """Version 1: with what the member owns."""
    data = b"\x00\x01" + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    data += b"\xff\xff\xff\xff"
    places = write_assignment(1, {topic: frozenset(numbers) for topic, numbers in owned.items()})
    return data + places[2:-4]


class OldMember:
    """A classic consumer that does as it is told. An eager one gives up all before it joins."""

    def __init__(self, world: GroupWorld, *, eager: bool, **more: Any) -> None:
        self.world = world
        self.eager = eager
        self.more = more
        self.id = ""
        self.generation = -1
        self.owned: dict[str, set[int]] = {}
        self._joining: Any = None
        self._syncing: Any = None
        self.must_join = True

    def step(self) -> None:
        """Its next request, or a look at the answer to the last one."""
        if self._joining is not None:
            if self._joining.is_answered:
                self._joined()
        elif self._syncing is not None:
            if self._syncing.is_answered:
                self._synced()
        elif self.must_join:
            if self.eager:
                self.owned = {}
            metadata = subscription(["t"], self.owned)
            name = "range" if self.eager else "cooperative-sticky"
            self._joining = self.world.join(
                "g", self.id, protocols=protocols(name, metadata=metadata), **self.more
            )
        else:
            error = self.world.heartbeat("g", self.id, self.generation, **self._instance())
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.owned = {}
                self.id = self.id if error == ErrorCode.ILLEGAL_GENERATION else ""
            else:
                assert error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), error
            self.must_join = error != ErrorCode.NONE

    def _instance(self) -> dict[str, Any]:
        return {name: it for name, it in self.more.items() if name == "group_instance_id"}

    def _joined(self) -> None:
        call, self._joining = self._joining, None
        reply = call.reply
        if call.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = reply.member_id
            return
        if call.error:
            assert call.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
            self.id = "" if call.error == ErrorCode.UNKNOWN_MEMBER_ID else self.id
            return
        self.id, self.generation = reply.member_id, reply.generation_id
        self.must_join = False
        assignments = []
        if reply.leader == self.id:
            ids = sorted(each.member_id for each in reply.members)
            owners: dict[int, str] = {}
            for each in reply.members:
                subscription = read_subscription(bytes(each.metadata))
                assert subscription is not None, each
                owners |= dict.fromkeys(subscription.owned.get("t", ()), each.member_id)
            shares: dict[str, set[int]] = {id: set() for id in ids}
            for number in range(self.world.topics.partitions("t")):
                id = ids[number % len(ids)]
                if owners.get(number, id) == id:  # else its owner has to let go first
                    shares[id].add(number)
            assignments = [
                {
                    "member_id": id,
                    "assignment": write_assignment(1, {"t": frozenset(share)}),
                }
                for id, share in shares.items()
            ]
        self._syncing = self.world.sync(
            "g", self.id, self.generation, assignments=assignments, **self._instance()
        )

    def _synced(self) -> None:
        call, self._syncing = self._syncing, None
        if call.error:
            assert call.error == ErrorCode.REBALANCE_IN_PROGRESS, call.error
            self.must_join = True
            return
        places = read_assignment(bytes(call.reply.assignment))
        assert places is not None
        had = self.owned
        self.owned = {topic: set(numbers) for topic, numbers in places.items() if numbers}
        gave_up = any(numbers - self.owned.get(topic, set()) for topic, numbers in had.items())
        self.must_join = gave_up and not self.eager

    def beat(self) -> None:
        self.step()

    def leave(self) -> None:
        fields = [{"member_id": self.id}]
        reply = self.world.ask(ApiKey.LEAVE_GROUP, 5, group_id="g", members=fields).reply
        assert int(reply.members[0].error_code) == 0
        self.owned = {}


def settle(world: GroupWorld, members: list[Any], rounds: int = 40) -> None:
    """All of them talk until nothing changes; no partition ever has two owners."""
    for _ in range(rounds):
        for member in members:
            member.beat()
            owned = [(t, n) for m in members for t, numbers in m.owned.items() for n in numbers]
            assert len(owned) == len(set(owned)), [m.owned for m in members]
        world.sleep(0.2)


def owned_by_all(members: list[Any]) -> list[int]:
    return sorted(number for member in members for number in member.owned.get("t", ()))


def kind(world: GroupWorld) -> type:
    return type(world.shard.groups["g"])


@pytest.fixture(params=["eager", "cooperative"])
def eager(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "eager")


def test_a_classic_member_joins_again_when_there_is_something_for_it(eager: bool) -> None:
    """Between two assignments it would join, be told the same, and join again for as long as that takes."""
    world = GroupWorld(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=1_000)
    old = OldMember(world, eager=eager)
    members: list[Any] = [old]
    settle(world, members)
    members.append(Member(world, "first"))
    members[-1].join()
    settle(world, members)
    world.sleep(1.1)
    for name in ("second", "third"):  # the second one is assigned at once, the third one later
        members.append(Member(world, name))
        members[-1].join()
        for _ in range(6):
            old.step()
    assert world.heartbeat("g", old.id, old.generation) == ErrorCode.NONE
    world.sleep(1.1)
    assert world.heartbeat("g", old.id, old.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    settle(world, members)
    assert owned_by_all(members) == [0, 1, 2, 3] and all(member.owned for member in members)


@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_members_go_over_one_by_one_and_back(
    eager: bool, fails_over: bool, interval_ms: int
) -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=interval_ms)
    members: list[Any] = [OldMember(world, eager=eager) for _ in range(2)]
    settle(world, members)
    assert owned_by_all(members) == [0, 1, 2, 3] and kind(world) is ClassicGroup
    assert (
        world.commit(
            "g", 7, generation_id_or_member_epoch=members[0].generation, member_id=members[0].id
        )
        == 0
    )

    def next_step() -> None:
        if fails_over:
            world.reload()
        settle(world, members)
        assert owned_by_all(members) == [0, 1, 2, 3]
        assert all(member.owned for member in members)
        assert world.committed("g").committed_offset == 7

    for number in range(2):
        new = Member(world, f"new-{number}")
        members.append(new)
        assert int(new.join().error_code) == 0
        next_step()
        assert kind(world) is ConsumerGroup
        members.pop(0).leave()
        next_step()
    assert kind(world) is ConsumerGroup
    for _ in range(2):
        members.append(OldMember(world, eager=eager))
        next_step()
        members.pop(0).leave()
        next_step()
    assert kind(world) is ClassicGroup
    assert world.state("g") == "Stable"


def test_each_member_of_a_mixed_group_is_told_with_its_protocol_and_commits_as_it_is_used_to() -> (
    None
):
    world = GroupWorld(initial_rebalance_delay_ms=0)
    old, new = OldMember(world, eager=False), Member(world, "new")
    settle(world, [old])
    new.join()
    settle(world, [old, new])
    described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).reply
    assert {each.member_id: each.member_type for each in described.members} == {old.id: 0, "new": 1}

    def commit(member_id: str, epoch: int, version: int) -> int:
        of = {"member_id": member_id, "generation_id_or_member_epoch": epoch, "version": version}
        return world.commit("g", 1, **of)

    assert commit(old.id, old.generation, 8) == 0
    assert commit(old.id, old.generation - 1, 8) == ErrorCode.ILLEGAL_GENERATION
    assert commit("new", new.epoch, 9) == 0
    assert commit("new", new.epoch, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("new", new.epoch - 1, 9) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_silent_member_of_either_protocol_is_given_up_after_its_own_timeout() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=45_000)
    old, new = OldMember(world, eager=True, session_timeout=8_000), Member(world, "new")
    settle(world, [old])
    new.join()
    settle(world, [old, new])
    for _ in range(3):
        world.sleep(3)
        new.beat()
    settle(world, [new])
    assert owned_by_all([new]) == [0, 1, 2, 3] and kind(world) is ConsumerGroup
    old = OldMember(world, eager=True, session_timeout=8_000)
    settle(world, [old, new])
    for _ in range(16):
        world.sleep(3)
        old.beat()
    settle(world, [old])
    assert owned_by_all([old]) == [0, 1, 2, 3] and kind(world) is ClassicGroup


def test_a_classic_member_that_does_not_join_when_it_is_told_to_is_out() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0)
    old, new = OldMember(world, eager=True, rebalance_timeout=5_000), Member(world, "new")
    settle(world, [old])
    new.join()
    for _ in range(8):
        world.sleep(1)
        error = world.heartbeat("g", old.id, old.generation)
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            break
        assert error == ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
    settle(world, [new])
    assert owned_by_all([new]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "config", [{"can_upgrade": False}, {"consumer_max_size": 1}], ids=["policy", "size"]
)
def test_a_classic_group_that_may_not_go_over_stays(config: dict[str, Any]) -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0, **config)
    members = [OldMember(world, eager=True)]
    settle(world, members)
    assert int(Member(world, "new").join().error_code) == ErrorCode.GROUP_ID_NOT_FOUND
    settle(world, members)
    assert owned_by_all(members) == [0, 1, 2, 3] and kind(world) is ClassicGroup


def test_a_group_that_may_not_go_back_serves_its_classic_members_as_a_consumer_group() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0, can_downgrade=False)
    old, new = OldMember(world, eager=True), Member(world, "new")
    settle(world, [old])
    new.join()
    settle(world, [old, new])
    new.leave()
    settle(world, [old])
    assert owned_by_all([old]) == [0, 1, 2, 3] and kind(world) is ConsumerGroup


def test_a_group_of_something_else_does_not_go_over() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0)
    world.stable("g", protocol_type="connect")
    assert int(Member(world, "new").join().error_code) == ErrorCode.GROUP_ID_NOT_FOUND
    world.stable("h", protocols=protocols("range", metadata=b"\x00"))
    new = Member(world, "new").asks | {"group_id": "h", "member_id": "n", "member_epoch": 0}
    call = world.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, rebalance_timeout=1000, topic_partitions=[], **new
    )
    assert call.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state("h") == "Stable"


def test_what_a_classic_member_says_wrong_in_a_consumer_group_is_refused() -> None:
    world = GroupWorld(initial_rebalance_delay_ms=0)
    Member(world, "new").join()
    required = world.join("g", protocols=protocols("range", metadata=subscription(["t"], {})))
    assert required.error == ErrorCode.MEMBER_ID_REQUIRED
    wrong = world.join("g", "x", protocols=protocols("range", metadata=b"?"))
    assert wrong.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("g", "x", protocol_type="connect").error == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert world.sync("g", "new", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", "new", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    old = OldMember(world, eager=True)
    for _ in range(6):
        old.step()
    assert world.heartbeat("g", old.id, old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.sync("g", old.id, old.generation, protocol_name="sticky").error == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    world = GroupWorld(FakeTopics(t=4), initial_rebalance_delay_ms=0)
    old = OldMember(world, eager=True, group_instance_id="i")
    other = OldMember(world, eager=True)
    settle(world, [old, other])
    had = old.owned
    new = Member(world, "new", instance_id="i")
    assert int(new.join().error_code) == 0
    settle(world, [new, other])
    assert new.owned == had and kind(world) is ConsumerGroup
    assert world.heartbeat("g", old.id, old.generation, group_instance_id="i") == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    back = OldMember(world, eager=True, group_instance_id="i")
    settle(world, [back, other])
    assert kind(world) is ClassicGroup and owned_by_all([back, other]) == [0, 1, 2, 3]


def test_words_of_consumers_are_read_in_every_version_and_refused_when_cut_short() -> None:
    for version, tail in (
        (0, b""),
        (1, write_assignment(1, {"t": frozenset({1, 2})})[2:-4]),
        (2, write_assignment(1, {"t": frozenset({1, 2})})[2:-4] + b"\x00\x00\x00\x07"),
        (
            3,
            write_assignment(1, {"t": frozenset({1, 2})})[2:-4] + b"\x00\x00\x00\x07\x00\x02r1",
        ),
    ):
        head = version.to_bytes(2, "big") + b"\x00\x00\x00\x01\x00\x01t" + b"\x00\x00\x00\x01u"
        read = read_subscription(head + tail)
        assert read is not None and read.topics == ("t",)
        assert read.owned == ({} if version == 0 else {"t": frozenset({1, 2})})
        assert read.rack_id == ("r1" if version == 3 else None)
        for end in range(len(head + tail)):
            cut = read_subscription((head + tail)[:end])
            assert cut is None, (version, end)
    assert subscribed_topics(b"\x00\x00\x7f\xff\xff\xff") is None
    assert read_assignment(b"") == {} and read_assignment(b"\x00\x00\x00") is None
