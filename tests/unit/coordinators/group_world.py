"""A group coordinator's shard with a log, a clock and topics of the test's making.

Every request is written and read in its wire version, and every answer too: a test that passes has also
shown that the version's schema can say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.coordinators.groups.context import GroupConfig, GroupRequest
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp
from ottla.events import Events
from ottla.wire import messages
from ottla.wire.apis import ApiKey

START_MS = 1_700_000_000_000


class FakeTopics:
    def __init__(self, **partitions: int) -> None:
        self.counts = dict(partitions)
        self.settings: dict[tuple[str, str], int] = {}
        self.version = 1

    def names(self) -> Iterable[str]:
        return list(self.counts)

    def id_of(self, name: str) -> UUID | None:
        return topic_id(name) if name in self.counts else None

    def name_of(self, id: UUID) -> str | None:
        return next((name for name in self.counts if topic_id(name) == id), None)

    def partitions(self, name: str) -> int:
        return self.counts.get(name, 0)

    def group_setting(self, group_id: str, name: str) -> int | None:
        return self.settings.get((group_id, name))


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"-"))


class Call:
    """A request at the shard: the token that stands for it."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.key = key
        self.version = version
        self.reply: Any = None

    @property
    def is_answered(self) -> bool:
        return self.reply is not None

    @property
    def error(self) -> int:
        assert self.is_answered, "no answer yet"
        return int(self.reply.error_code)


PARTS = {
    ApiKey.OFFSET_FETCH: "groups",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups",
    ApiKey.DELETE_GROUPS: "results",
}
"""APIs of which a shard answers the part about one group, and where that goes."""


class GroupWorld:
    def __init__(self, topics: FakeTopics | None = None, **config: Any) -> None:
        """A consumer group is assigned anew whenever something changes, unless `config` says otherwise."""
        self.topics = topics or FakeTopics(t=4, u=2)
        self.config = GroupConfig(**{"consumer_assignment_interval_ms": 0, **config})
        self.now = 100.0
        self.log: list[tuple[CoordinatorRecord, ProducerStamp | None] | tuple[int, bool]] = []
        self._ids = 0
        self.seen_by: dict[str, set[str]] | None = None
        """The topics that each member may know of. None: nobody's rights are asked about."""
        self.changed_request: Callable[[GroupRequest], GroupRequest] = lambda request: request
        self.events = Events()
        self.shard = self._new_shard()
        self.shard.loaded(self.now)

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now * 1000)

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.config, self.topics, self._new_id, self.events)

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def reload(self) -> None:
        """The coordinator fails over: another broker builds the shard from the log."""
        self.shard = self._new_shard()
        for offset, entry in enumerate(self.log):
            if isinstance(entry[0], CoordinatorRecord):
                record, stamp = entry
                assert not isinstance(stamp, bool)
                self.shard.replay(offset, record, stamp, self.now_ms)
            else:
                self._replay_marker(*entry)
        self.apply(self.shard.loaded(self.now))

    def _replay_marker(self, producer_id: int, committed: Any) -> None:
        self.shard.replay_marker(ProducerStamp(producer_id, 0), bool(committed))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self._replay_marker(producer_id, committed)

    def apply(self, effects: Effects) -> None:
        for record in effects.records:
            self.log.append((record, effects.producer))
            self.shard.replay(len(self.log) - 1, record, effects.producer, self.now_ms)
        for token, fields in effects.replies:
            assert isinstance(token, Call)
            assert not token.is_answered, "answered twice"
            token.reply = self._over_the_wire(token, fields)

    def _over_the_wire(self, call: Call, fields: Mapping[str, Any]) -> Any:
        part = PARTS.get(call.key)
        if call.key is ApiKey.OFFSET_FETCH and call.version < 8:
            part = None
            fields = {name: value for name, value in fields.items() if name != "group_id"}
        if call.key is ApiKey.JOIN_GROUP and call.version < 7 and fields["protocol_name"] is None:
            fields = {**fields, "protocol_name": ""}
        whole = {part: [fields]} if part else fields
        raw = messages.write_response(call.key, call.version, whole)
        read = messages.read_response(call.key, call.version, memoryview(raw), 0)
        return getattr(read, part)[0] if part else read

    def ask(self, key: ApiKey, version: int, client: str = "c", **fields: Any) -> Call:
        call = Call(key, version)
        raw = messages.write_request(key, version, fields)
        message = messages.read_request(key, version, memoryview(raw), 0)
        if key is ApiKey.OFFSET_FETCH:
            entry = message.groups[0] if version >= 8 else message
            message = (entry, messages.field(message, "require_stable", False))
        elif key is ApiKey.DESCRIBE_GROUPS:
            message = message.groups[0]
        elif key is ApiKey.CONSUMER_GROUP_DESCRIBE:
            message = message.group_ids[0]
        elif key is ApiKey.DELETE_GROUPS:
            message = message.groups_names[0]
        request = GroupRequest(message, client, "/10.0.0.1")
        if self.seen_by is not None:
            seen = self.seen_by[fields["member_id"]]
            request = replace(request, sees=lambda topic: topic in seen)
        request = self.changed_request(request)
        self.apply(self.shard.handle(key, version, request, call, self.now, self.now_ms))
        return call

    def sleep(self, seconds: float) -> None:
        """Time passes; whatever is due meanwhile happens at its time."""
        end = self.now + seconds
        while (deadline := self.shard.next_deadline()) <= end:
            self.now = max(self.now, deadline)
            self.apply(self.shard.tick(self.now, self.now_ms))
        self.now = end

    # -- shorthands

    def join(self, group: str = "g", member: str = "", version: int = 9, **more: Any) -> Call:
        fields = {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 30_000,
            "member_id": member,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
            **more,
        }
        return self.ask(ApiKey.JOIN_GROUP, version, **fields)

    def sync(self, group: str, member: str, generation: int, **more: Any) -> Call:
        fields = {"group_id": group, "generation_id": generation, "member_id": member, **more}
        version = fields.pop("version", 5)
        return self.ask(ApiKey.SYNC_GROUP, version, **fields)

    def heartbeat(self, group: str, member: str, generation: int, **more: Any) -> int:
        fields = {"group_id": group, "generation_id": generation, "member_id": member, **more}
        return self.ask(ApiKey.HEARTBEAT, 4, **fields).error

    def new_member(self, group: str = "g", **more: Any) -> Call:
        """Both steps of a new dynamic member; the second may wait for the others."""
        required = self.join(group, **more)
        assert required.error == 79
        return self.join(group, required.reply.member_id, **more)

    def stable(self, group: str = "g", size: int = 1, **more: Any) -> list[str]:
        """A group with members, assigned; the ids, the leader first."""
        joins = [self.new_member(group, **more) for _ in range(size)]
        self.sleep(6.5)
        ids = [call.reply.member_id for call in joins]
        leader = joins[0].reply.leader
        generation = joins[0].reply.generation_id
        assignments = [{"member_id": id, "assignment": id.encode()} for id in ids]
        followers = [self.sync(group, id, generation) for id in ids if id != leader]
        self.sync(group, leader, generation, assignments=assignments)
        assert all(call.error == 0 for call in followers)
        return [leader, *(id for id in ids if id != leader)]

    def commit(
        self, group: str, offset: int, partition: int = 0, topic: str = "t", **more: Any
    ) -> int:
        version = more.pop("version", 9)
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [_topic(version, topic, [_offset(partition, offset, more.pop("note", ""))])],
            **more,
        }
        reply = self.ask(ApiKey.OFFSET_COMMIT, version, **fields).reply
        return int(reply.topics[0].partitions[0].error_code)

    def committed(self, group: str, partition: int = 0, topic: str = "t", **more: Any) -> Any:
        """The partition's entry in an OffsetFetch answer."""
        entry = {
            "group_id": group,
            "member_id": more.get("member_id"),
            "member_epoch": more.get("member_epoch", -1),
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        stable = more.get("require_stable", False)
        reply = self.ask(ApiKey.OFFSET_FETCH, 9, groups=[entry], require_stable=stable).reply
        if int(reply.error_code):
            return SimpleNamespace(error_code=reply.error_code, committed_offset=-1)
        return reply.topics[0].partitions[0]

    def state(self, group: str) -> str:
        return str(self.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).reply.group_state)


def _topic(version: int, name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    if version >= 10:
        return {"topic_id": topic_id(name), "partitions": partitions}
    return {"name": name, "partitions": partitions}


def _offset(partition: int, offset: int, note: str) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": note,
    }


def protocols(*names: str, metadata: bytes = b"") -> list[dict[str, Any]]:
    return [{"name": name, "metadata": metadata} for name in names]


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    data = b"\x00\x00" + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + b"\xff\xff\xff\xff"


Owned = dict[str, set[int]]


class Member:
    """A consumer that does as it is told."""

    def __init__(
        self, world: GroupWorld, id: str, topics: list[str] | None = None, **more: Any
    ) -> None:
        self.world = world
        self.id = id
        self.epoch = 0
        self.owned: Owned = {}
        self.asks = {"subscribed_topic_names": ["t"] if topics is None else topics, **more}

    def join(self) -> Any:
        self.owned, self.epoch = {}, 0
        return self.beat(**self.asks, rebalance_timeout=30_000)

    def beat(self, **more: Any) -> Any:
        """A heartbeat that says what the member owns; the answer is obeyed."""
        fields = {
            "group_id": "g",
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.asks.get("instance_id"),
            "rebalance_timeout": -1,
            "topic_partitions": [
                {"topic_id": topic_id(topic), "partitions": sorted(numbers)}
                for topic, numbers in sorted(self.owned.items())
            ],
            **more,
        }
        version = fields.pop("version", 1)
        reply = self.world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **fields).reply
        if int(reply.error_code) == 0:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = {
                    self.world.topics.name_of(each.topic_id) or "?": set(each.partitions)
                    for each in reply.assignment.topic_partitions
                }
        return reply

    def leave(self, epoch: int = -1) -> Any:
        self.epoch = epoch
        return self.beat(topic_partitions=None)

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))
