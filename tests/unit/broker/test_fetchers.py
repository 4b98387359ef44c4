"""A follower's conversations with its leaders: when it fetches, what it does with an answer, and how it leaves a leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from replicas_world import ME, ReplicasWorld, address_of, broker_epoch

from ottla.broker.replication.fetchers import (
    EARLIEST,
    LATEST,
    UNDER_WAY_MAX,
    Replication,
)
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import handlers_of, serves
from ottla.broker.server.server import Server
from ottla.records.record import Record, build
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition

SESSION = 99
LEADER_EPOCH = 5


class Asked:
    """A fetch that waits at the leader for the test's answer."""

    def __init__(self, leader: Leader, request: Request) -> None:
        self._leader = leader
        self._request = request
        self.came_at = leader.world.now
        self.fetch = codec.read_request(request.version, request.frame, request.header.body)

    @property
    def named(self) -> list[tuple[str, int]]:
        """Topic and partition number of each."""
        topics = self._leader.world.image.topics_by_id
        return [(topics[each.topic_id].name, each.partition) for each in self.fetch.partitions]

    @property
    def offsets(self) -> list[int]:
        return [each.fetch_offset for each in self.fetch.partitions]

    def answer(self, *partitions: FetchedPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        session = SESSION if error is ErrorCode.NONE else 0
        version = self._request.version
        body = codec.write_response(version, error, session, partitions)
        self._leader.world.run(lambda: self._request.respond_chunks(body))
        self._leader.world.wait(0.005)

    def answer_frame(self, body: bytes) -> None:
        self._leader.world.run(lambda: self._request.respond_chunks([body]))
        self._leader.world.wait(0.005)


class Leader:
    """Another broker, whose answers are the test's."""

    def __init__(self, world: ReplicasWorld, broker: int) -> None:
        self.world = world
        self.broker = broker
        self.host = world.world.node(address_of(broker))
        self._asked: list[Asked] = []
        self.lookups: list[Any] = []
        self.bounds: dict[int, int | ErrorCode] = {}
        """What ListOffsets answers, by the timestamp that is asked for."""
        self.before_bounds: Any = lambda: None
        self.start()

    def start(self) -> None:
        self.server = Server(
            "PLAINTEXT", handlers_of(self), frame_bytes_max=1 << 20, idle_max_s=600
        )
        self.host.complete(self.server.listen(self.host.runtime.network, self.host.address, 9092))

    @serves(ApiKey.FETCH)
    def fetch(self, request: Request) -> None:
        assert request.version == 18
        self._asked.append(Asked(self, request))

    @serves(ApiKey.LIST_OFFSETS)
    def list_offsets(self, request: Request) -> None:
        assert request.version == 9
        message = request.message()
        self.lookups.append(message)
        ((topic,),) = (message.topics,)
        (asked,) = topic.partitions
        self.before_bounds()
        found = self.bounds[asked.timestamp]
        row = {
            "partition_index": asked.partition_index,
            "error_code": found if isinstance(found, ErrorCode) else 0,
            "timestamp": -1,
            "offset": -1 if isinstance(found, ErrorCode) else found,
            "leader_epoch": LEADER_EPOCH,
        }
        request.respond({"topics": [{"name": topic.name, "partitions": [row]}]})

    @property
    def connections(self) -> int:
        return len(self.server.connections)

    def taken(self) -> list[Asked]:
        asked, self._asked = self._asked, []
        return asked

    def next(self) -> Asked:
        """The one fetch that came since."""
        (asked,) = self.taken()
        return asked

    def cut(self) -> None:
        """Its connections end."""

        def abort() -> None:
            for connection in list(self.server.connections):
                connection._connection.abort()

        self.host.complete(_called(abort))
        self.world.wait(0.005)


async def _called(work: Any) -> None:
    work()


class Following:
    def __init__(self, **settings: str) -> None:
        self.world = ReplicasWorld(**settings)
        self.world.__enter__()
        self.throttle = ReplicationThrottle(self.world.settings)
        self.replication = Replication(
            self.world.settings,
            self.world.host.runtime,
            self.world.replicas,
            self.world.cluster,
            lambda: broker_epoch(ME),
            self.throttle,
        )
        self.leader = Leader(self.world, 2)
        self.other = Leader(self.world, 3)

    @property
    def backoff_s(self) -> float:
        return 0.05

    def close(self) -> None:
        self.world.run(self.replication.stop)
        self.world.__exit__()

    def follow(self, name: str, count: int = 1, *, leader: int = 2) -> UUID:
        """A topic whose partitions another broker leads."""
        others = [broker for broker in (2, 3) if broker != leader]
        id = self.world.topic(name, *[(leader, ME, *others)] * count)
        self.world.wait(0.01)
        return id

    def change(self, name: str, number: int = 0, **changes: Any) -> None:
        self.world.change(name, number, **changes)
        self.world.wait(0.01)

    def end(self, name: str, number: int = 0) -> int:
        return self.world[name, number].log.log_end

    def records(self, name: str, offset: int, number: int = 0, **changes: Any) -> FetchedPartition:
        batch = build([Record(offset, 1000, None, b"value")], base_offset=offset, leader_epoch=5)
        return self.found(name, number, records=memoryview(batch), **changes)

    def found(self, name: str, number: int = 0, **changes: Any) -> FetchedPartition:
        fields: dict[str, Any] = {
            "topic": None,
            "topic_id": self.world.image.topics[name].id,
            "partition": number,
            "error": 0,
            "high_watermark": 0,
            "log_start_offset": 0,
            "records": memoryview(b""),
        }
        return FetchedPartition(**{**fields, **changes})


@pytest.fixture
def following() -> Iterator[Following]:
    made = Following()
    yield made
    made.close()


# -- fetching


def test_a_follower_asks_its_leader_from_its_own_end(following: Following) -> None:
    id = following.follow("t")
    (asked,) = following.leader.taken()
    settings = following.world.settings
    fetch = asked.fetch
    assert fetch.partitions == [
        FetchPartition(None, id, 0, LEADER_EPOCH, 0, -1, 0, settings.replica_fetch_max_bytes)
    ]
    assert (fetch.replica_id, fetch.replica_epoch) == (ME, broker_epoch(ME))
    assert (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (
        settings.replica_fetch_wait_max_ms,
        settings.replica_fetch_min_bytes,
        settings.replica_fetch_response_max_bytes,
    )
    assert following.other.connections == 0


def test_each_leader_is_asked_once_for_all_that_it_leads(following: Following) -> None:
    following.world.decide(
        *following.world.topic_records("t", *[(2, ME)] * 3),
        *following.world.topic_records("u", (3, ME), (2, ME)),
    )
    following.world.wait(0.01)
    assert following.leader.next().named == [("t", 0), ("t", 1), ("t", 2), ("u", 1)]
    assert following.other.next().named == [("u", 0)]


def test_an_answer_is_applied_and_the_next_fetch_follows_at_once(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.records("t", 0))
    assert following.end("t") == 1
    asked = following.leader.next()
    assert asked.offsets == [1] and asked.fetch.session_id == SESSION
    asked.answer()
    asked = following.leader.next()
    assert asked.named == [], "the leader knows its place"
    asked.answer(following.records("t", 1, high_watermark=1))
    assert following.end("t") == 2 and following.world["t", 0].log.high_watermark == 1


def test_a_new_partition_does_not_wait_for_the_end_of_a_long_poll(following: Following) -> None:
    following.follow("a")
    following.leader.next().answer(following.found("a"))
    first = following.leader.next()
    following.follow("b")
    second = following.leader.next()
    assert second.named == [("b", 0)]
    following.follow("c")
    assert following.leader.taken() == [] and UNDER_WAY_MAX == 2, "one may overtake, not two"
    first.answer()
    assert following.leader.next().named == [("c", 0)]
    second.answer()
    assert following.leader.taken() == [], "one is parked at the leader, that is enough"


def test_one_fetch_is_under_way_while_there_is_no_news(following: Following) -> None:
    following.follow("a")
    following.leader.next().answer(following.found("a"))
    assert len(following.leader.taken()) == 1
    following.world.wait(1)
    assert following.leader.taken() == []


def test_a_partition_with_an_error_rests_and_the_others_go_on(following: Following) -> None:
    following.follow("t", 2)
    asked = following.leader.next()
    asked.answer(
        following.found("t", 0, error=ErrorCode.KAFKA_STORAGE_ERROR), following.records("t", 0, 1)
    )
    asked = following.leader.next()
    assert asked.named == [("t", 1)] and asked.fetch.forgotten == [
        (following.world["t", 0].topic_id, 0)
    ]
    following.world.wait(following.backoff_s * 0.8)
    assert following.leader.taken() == []
    following.world.wait(following.backoff_s * 0.3)
    assert following.leader.next().named == [("t", 0)]


def test_while_all_partitions_rest_the_leader_is_left_alone(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.found("t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    following.world.wait(following.backoff_s * 0.8)
    assert following.leader.taken() == []
    following.world.wait(following.backoff_s * 0.3)
    assert following.leader.next().named == [("t", 0)]


def test_a_short_backoff_is_kept_as_it_is_set() -> None:
    following = Following(replica_fetch_backoff_ms="20")
    following.follow("t")
    following.leader.next().answer(following.found("t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    following.world.wait(0.01)
    assert following.leader.taken() == []
    following.world.wait(0.01)
    assert following.leader.next().named == [("t", 0)]
    following.close()


def test_a_partition_that_is_throttled_rests(following: Following) -> None:
    following.follow("t")
    following.world.configure(2, "t", "follower.replication.throttled.replicas", "*")
    following.world.change("t", isr=(2,))
    following.throttle.set_rates(2**63 - 1, 10)
    following.leader.next().answer(following.records("t", 0, high_watermark=5))
    following.world.wait(0.9)
    assert following.leader.taken() == []
    following.world.wait(0.2)
    assert following.end("t") == 1


def test_P39_a_follower_that_joins_the_isr_rests_no_longer(following: Following) -> None:
    following.follow("t")
    following.world.configure(2, "t", "follower.replication.throttled.replicas", "*")
    following.change("t", isr=(2,))
    following.throttle.set_rates(2**63 - 1, 10)
    behind = following.records("t", 0, high_watermark=5)
    following.leader.next().answer(behind)
    following.world.wait(0.1)
    assert following.leader.taken() == []
    following.change("t", isr=(2, ME))
    assert following.leader.next().named == [("t", 0)]


def test_the_leader_hears_where_the_log_begins_after_retention(following: Following) -> None:
    """It takes nobody into the ISR who keeps what it has deleted (D10)."""
    following.follow("t")
    following.leader.next().answer(
        following.records("t", 0),
    )
    following.leader.next().answer()
    parked = following.leader.next()
    partition = following.world["t", 0]
    following.world.run(lambda: following.replication.records_expired(partition))
    following.world.wait(0.01)
    assert following.leader.next().named == [("t", 0)]
    parked.answer()


def test_what_is_not_followed_has_no_leader_to_tell(following: Following) -> None:
    following.follow("t")
    following.leader.taken()
    following.world.topic("mine", (ME, 2))
    following.world.run(lambda: following.replication.records_expired(following.world["mine", 0]))
    following.world.wait(0.01)
    assert following.leader.taken() == []


def test_a_disk_that_fails_takes_its_replicas_offline(following: Following) -> None:
    following.follow("t")
    following.world.host.disk.fail("write", "/data/t-0")
    following.leader.next().answer(following.records("t", 0))
    assert list(following.world.logs.offline_directories) == ["/data"]
    assert following.leader.connections == 0, "there is nothing left to follow"


# -- leaders come and go


def test_a_follower_whose_leader_changes_leaves_the_former_one(following: Following) -> None:
    following.follow("t")
    late = following.leader.next()
    following.change("t", leader=3)
    assert following.leader.connections == 0
    assert following.other.next().named == [("t", 0)]
    late.answer(following.records("t", 0))
    assert following.end("t") == 0 and following.leader.taken() == []


def test_a_fetcher_stays_while_it_has_others_to_follow(following: Following) -> None:
    following.follow("t", 2)
    following.leader.next().answer(following.found("t"), following.found("t", 1))
    parked = following.leader.next()
    following.change("t", 0, leader=3)
    assert following.leader.connections == 1 and following.other.next().named == [("t", 0)]
    parked.answer()
    asked = following.leader.next()
    assert asked.named == [] and asked.fetch.forgotten == [(following.world["t", 0].topic_id, 0)]


def test_a_new_epoch_of_the_same_leader_is_fetched_in_that_epoch(following: Following) -> None:
    following.follow("t")
    stale = following.leader.next()
    following.change("t", leader=2)
    asked = following.leader.next()
    assert [each.current_leader_epoch for each in asked.fetch.partitions] == [LEADER_EPOCH + 1]
    assert following.leader.connections == 1
    stale.answer(following.records("t", 0))
    assert following.end("t") == 0, "it answers a question of the former epoch"


def test_while_nobody_leads_nobody_is_asked(following: Following) -> None:
    following.follow("t")
    following.change("t", leader=-1)
    assert following.leader.connections == 0
    following.leader.taken()
    following.change("t", leader=2)
    assert following.leader.next().named == [("t", 0)]


def test_whoever_becomes_leader_follows_nobody(following: Following) -> None:
    following.follow("t")
    following.change("t", leader=ME)
    assert following.leader.connections == 0
    following.leader.taken()
    following.change("t", leader=2)
    assert following.leader.next().named == [("t", 0)]


def test_a_replica_that_is_removed_is_followed_no_more(following: Following) -> None:
    following.follow("t")
    following.follow("u")
    following.change("t", replicas=(2, 3), isr=(2, 3))
    assert following.leader.connections == 1
    following.world.delete("u")
    following.world.wait(0.01)
    assert following.leader.connections == 0


def test_a_broker_that_stops_leaves_all_leaders_and_returns_to_none(following: Following) -> None:
    following.follow("t")
    following.follow("u", leader=3)
    following.world.run(following.replication.stop)
    following.world.wait(0.01)
    assert (following.leader.connections, following.other.connections) == (0, 0)
    following.leader.taken(), following.other.taken()
    following.change("t", leader=3)
    following.world.wait(5)
    assert following.leader.taken() == following.other.taken() == []
    assert (following.leader.connections, following.other.connections) == (0, 0)


# -- connections


def test_a_lost_connection_is_made_again_after_a_pause(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.records("t", 0))
    following.leader.taken()
    lost_at = following.world.now
    following.leader.cut()
    assert following.leader.connections == 0
    following.world.wait(following.backoff_s + 0.02)
    asked = following.leader.next()
    assert asked.offsets == [1] and asked.fetch.session_id == 0, "it begins a session anew"
    assert asked.came_at - lost_at >= following.backoff_s
    asked.answer()
    assert len(following.leader.taken()) == 1


def test_a_partition_whose_rest_is_over_does_not_shorten_that_pause(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.found("t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    following.world.wait(following.backoff_s * 0.6)
    following.leader.cut()
    following.world.wait(following.backoff_s * 0.8)
    assert following.leader.connections == 0
    following.world.wait(following.backoff_s * 0.5)
    assert following.leader.next().named == [("t", 0)]


def test_a_leader_that_cannot_be_reached_is_tried_again_and_again(following: Following) -> None:
    following.world.run(following.leader.server.close)
    following.follow("t")
    following.world.wait(3)
    following.leader.start()
    following.world.wait(following.backoff_s + 0.05)
    assert following.leader.next().named == [("t", 0)]
    assert following.leader.connections == 1


def test_a_leader_without_an_address_is_waited_for(following: Following) -> None:
    world = following.world
    world.decide(world.registered(2, end_points=()))
    following.follow("t")
    world.wait(1)
    assert following.leader.connections == 0
    world.decide(world.registered(2))
    world.wait(following.backoff_s + 0.05)
    assert following.leader.next().named == [("t", 0)]


def test_a_leader_that_does_not_answer_in_time_is_connected_anew(following: Following) -> None:
    settings = following.world.settings
    limit_s = (settings.replica_fetch_wait_max_ms + settings.replica_socket_timeout_ms) / 1000
    following.follow("t")
    (silent,) = following.leader.taken()
    following.world.wait(limit_s - 0.1)
    assert following.leader.taken() == []
    following.world.wait(0.1 + following.backoff_s + 0.05)
    asked = following.leader.next()
    assert asked.named == [("t", 0)] and following.leader.connections == 1
    assert asked.came_at - silent.came_at >= limit_s


def test_an_answer_in_time_is_the_end_of_the_waiting(following: Following) -> None:
    settings = following.world.settings
    limit_s = (settings.replica_fetch_wait_max_ms + settings.replica_socket_timeout_ms) / 1000
    following.follow("t")
    for _ in range(3):
        following.world.wait(limit_s * 0.8)
        following.leader.next().answer()
    assert following.leader.connections == 1
    following.leader.next().answer(following.found("t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_a_leader_that_has_nothing_to_answer_is_not_late() -> None:
    """All partitions rest for longer than a request may take."""
    following = Following(replica_socket_timeout_ms="1000", replica_fetch_wait_max_ms="100")
    following.follow("t")
    following.world.configure(2, "t", "follower.replication.throttled.replicas", "*")
    following.world.change("t", isr=(2,))
    following.throttle.set_rates(2**63 - 1, 1)
    (connection,) = following.leader.server.connections
    following.leader.next().answer(following.records("t", 0, high_watermark=5))
    following.world.wait(5)
    assert list(following.leader.server.connections) == [connection]
    assert following.leader.taken() == []
    following.close()


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\xff" * 40])
def test_an_answer_that_cannot_be_read_ends_the_connection(
    following: Following, body: bytes
) -> None:
    following.follow("t")
    following.leader.next().answer_frame(body)
    assert following.leader.connections == 0
    following.world.wait(following.backoff_s + 0.05)
    assert following.leader.next().named == [("t", 0)]


def test_an_error_of_the_whole_answer_ends_the_connection(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert following.leader.connections == 0
    following.world.wait(following.backoff_s + 0.05)
    assert following.leader.next().named == [("t", 0)]


def test_a_session_that_the_leader_has_dropped_is_begun_anew_at_once(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.found("t"))
    following.leader.next().answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    asked = following.leader.next()
    assert asked.fetch.session_id == 0 and asked.named == [("t", 0)]
    assert following.leader.connections == 1


# -- outside of the leader's log


def out_of_range(following: Following, start: int, end: int) -> None:
    following.leader.bounds = {EARLIEST: start, LATEST: end}
    following.leader.next().answer(following.found("t", error=ErrorCode.OFFSET_OUT_OF_RANGE))


def test_a_follower_below_the_leaders_log_begins_again_at_its_start(following: Following) -> None:
    following.follow("t")
    out_of_range(following, 40, 50)
    following.world.wait(following.backoff_s)
    asked = following.leader.next()
    assert asked.offsets == [40] and following.world["t", 0].log.log_start == 40
    following.leader.lookups.sort(key=lambda each: each.topics[0].partitions[0].timestamp)
    for lookup, timestamp in zip(following.leader.lookups, (EARLIEST, LATEST), strict=True):
        assert (lookup.replica_id, lookup.isolation_level) == (ME, 0)
        (row,) = lookup.topics[0].partitions
        assert lookup.topics[0].name == "t"
        assert (row.partition_index, row.current_leader_epoch) == (0, LEADER_EPOCH)
        assert row.timestamp == timestamp


def test_a_follower_above_the_leaders_log_is_cut_at_its_end(following: Following) -> None:
    following.follow("t")
    for offset in range(3):
        following.leader.next().answer(following.records("t", offset))
    out_of_range(following, 0, 2)
    assert following.end("t") == 2
    following.world.wait(following.backoff_s)
    assert following.leader.next().offsets == [2]


def test_bounds_that_cannot_be_looked_up_are_asked_for_again(following: Following) -> None:
    following.follow("t")
    following.leader.bounds = {LATEST: 50, EARLIEST: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    following.leader.next().answer(following.found("t", error=ErrorCode.OFFSET_OUT_OF_RANGE))
    following.world.wait(0.01)
    assert following.end("t") == 0 and following.leader.taken() == []
    following.world.wait(following.backoff_s)
    out_of_range(following, 40, 50)
    following.world.wait(following.backoff_s)
    assert following.leader.next().offsets == [40]


def test_bounds_that_come_after_the_connection_are_not_looked_up(following: Following) -> None:
    following.follow("t")
    following.leader.before_bounds = following.leader.taken
    asked = following.leader.next()
    following.leader.bounds = {LATEST: 50, EARLIEST: 40}

    def cut() -> None:
        for connection in list(following.leader.server.connections):
            connection._connection.abort()

    following.leader.before_bounds = cut
    asked.answer(following.found("t", error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert following.end("t") == 0
    following.leader.before_bounds = lambda: None
    following.world.wait(following.backoff_s + 0.05)
    assert following.leader.next().offsets == [0]


def test_bounds_that_are_older_than_our_end_change_nothing(following: Following) -> None:
    """Our log may hold records above the end that the leader reported, and it counts on them."""
    following.follow("t")
    partition = following.world["t", 0]

    def append() -> None:
        batch = build([Record(0, 1000, None, b"value")], leader_epoch=LEADER_EPOCH)
        if partition.log.log_end == 0:
            partition.log.append_as_follower(memoryview(batch), LEADER_EPOCH)

    following.leader.before_bounds = append
    following.leader.bounds = {LATEST: 50, EARLIEST: 40}
    following.leader.next().answer(following.found("t", error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert (partition.log.log_start, partition.log.log_end) == (0, 1)


def test_bounds_of_a_former_leader_change_nothing(following: Following) -> None:
    following.follow("t")
    partition = following.world["t", 0]

    def depose() -> None:
        delta = following.world.learn(following.world.changed("t", leader=2))
        following.world.replicas.apply(following.world.image, delta)
        following.leader.before_bounds = lambda: None

    following.leader.before_bounds = depose
    following.leader.bounds = {LATEST: 50, EARLIEST: 40}
    following.leader.next().answer(following.found("t", error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert partition.leader_epoch == LEADER_EPOCH + 1 and partition.log.log_start == 0


def test_a_disk_that_fails_when_a_log_begins_again_goes_offline(following: Following) -> None:
    following.follow("t")
    following.leader.next().answer(following.records("t", 0))
    following.world.host.disk.fail("rename", "/data/t-0")
    following.world.host.disk.fail("write", "/data/t-0")
    following.world.host.disk.fail("open", "/data/t-0")
    out_of_range(following, 40, 50)
    assert list(following.world.logs.offline_directories) == ["/data"]
