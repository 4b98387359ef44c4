"""How far groups are behind, by what the leaders say: this broker looks into its own logs, and asks the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from replicas_world import ME, ReplicasWorld

from ottla.broker.coordination.offset_lag import (
    ASKED_AT_ONCE_MAX,
    TIMEOUT_S,
    LeaderAnswers,
    OffsetLag,
    PartitionLeaders,
    seconds_behind,
)
from ottla.broker.replication.first_unread import offset_in, question_about
from ottla.log.unread import FirstRecord
from ottla.records.record import Record, build
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.types import TopicPartition

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
LATEST = -1


class Others:
    """Leaders of other partitions. Each holds as many records as `ends` says (10, else); those below `decided` are in no
    open transaction."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Mapping[str, Any]]] = []
        self.ends: dict[TopicPartition, int] = {}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.decided = 100
        self.failure: dict[int, Exception] = {}
        self.delay_s: dict[int, float] = {}

    async def request(self, broker: int, key: ApiKey, fields: Any, *, timeout_s: float) -> Any:
        assert key is ApiKey.LIST_OFFSETS and timeout_s == TIMEOUT_S
        assert fields["replica_id"] == -1, "as a consumer"
        self.asked.append((broker, fields))
        await asyncio.sleep(self.delay_s.get(broker, 0))
        if broker in self.failure:
            raise self.failure[broker]
        level = fields["isolation_level"]
        topics = []
        for topic in fields["topics"]:
            rows = [self._row(topic["name"], row, level) for row in topic["partitions"]]
            numbers = [row.partition_index for row in rows]
            assert len(set(numbers)) == len(numbers), "a request names each partition once"
            topics.append(SimpleNamespace(name=topic["name"], partitions=rows))
        return SimpleNamespace(topics=topics)

    def _row(self, topic: str, row: Any, level: int) -> Any:
        key = TopicPartition(topic, row["partition_index"])
        assert row["current_leader_epoch"] == -1
        if row["timestamp"] == LATEST:
            assert level == 0, "the high watermark, as Kafka's tools use it"
            timestamp, offset = -1, self.ends.get(key, 10)
        else:
            asked = offset_in(row["timestamp"])
            assert asked is not None
            end = self.ends.get(key, 10) if level == 0 else self.decided
            timestamp, offset = (asked * 1000, asked) if asked < end else (-1, -1)
        error = self.errors.get(key, ErrorCode.NONE)
        return SimpleNamespace(
            partition_index=key.partition, error_code=error, timestamp=timestamp, offset=offset
        )

    def sizes(self) -> list[int]:
        """Of the requests for the ends of logs."""
        return [
            sum(len(topic["partitions"]) for topic in fields["topics"])
            for _, fields in self.asked
            if fields["topics"][0]["partitions"][0]["timestamp"] == LATEST
        ]


class Asking:
    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world
        self.others = Others()
        peers: Any = self.others
        self.leaders = PartitionLeaders(ME, world.replicas, world.cluster, peers)

    def answers(self, *offsets: tuple[TopicPartition, int]) -> LeaderAnswers:
        asked: dict[TopicPartition, set[int]] = {}
        for key, offset in offsets:
            asked.setdefault(key, set()).add(offset)
        return self.world.complete(self.leaders.ask(asked))

    def lag(self, key: TopicPartition, committed: int) -> OffsetLag | None:
        return self.answers((key, committed)).lag(key, committed)


@pytest.fixture
def asking() -> Iterator[Asking]:
    with ReplicasWorld() as world:
        yield Asking(world)


# -- what it says


def test_a_lag_counts_the_records_that_are_left() -> None:
    assert OffsetLag(T0, 3, 10, None, None).records == 7
    assert OffsetLag(T0, 10, 10, None, None).records == 0
    assert OffsetLag(T0, 12, 10, None, None).records == 0, "the log was cut"


def test_a_group_is_behind_by_the_age_of_the_record_that_is_next() -> None:
    assert seconds_behind(None, 5_000) == 0.0
    assert seconds_behind(FirstRecord(3_500, 7), 5_000) == 1.5
    assert seconds_behind(FirstRecord(0, 7), 5_000) == 5.0
    assert seconds_behind(FirstRecord(9_000, 7), 5_000) == 0.0, "a clock is ahead"
    assert seconds_behind(FirstRecord(-1, 7), 5_000) is None


def test_what_no_leader_told_is_not_known() -> None:
    answers = LeaderAnswers()
    assert answers.lag(T0, 3) is None
    answers.ends[T0] = 4
    assert answers.lag(T0, 3) is None
    found = FirstRecord(3_000, 3)
    answers.firsts[0, T0, 3] = found
    assert answers.lag(T0, 3) is None, "that is one of two isolation levels"
    answers.firsts[1, T0, 3] = None
    assert answers.lag(T0, 3) == OffsetLag(T0, 3, 4, found, None)
    for committed in (4, 5):
        assert answers.lag(T0, committed) == OffsetLag(T0, committed, 4, None, None)


# -- logs of this broker


def test_the_logs_here_are_looked_into(asking: Asking) -> None:
    asking.world.topic("t", (ME,))
    asking.world.produce("t", records=3)
    next_one = FirstRecord(1001, 1)
    assert asking.lag(T0, 1) == OffsetLag(T0, 1, 3, next_one, next_one)
    assert asking.lag(T0, 3) == OffsetLag(T0, 3, 3, None, None)
    assert asking.others.asked == []


def test_several_groups_are_answered_at_once(asking: Asking) -> None:
    asking.world.topic("t", (ME,))
    asking.world.produce("t", records=3)
    answers = asking.answers((T0, 0), (T0, 2), (T0, 3))
    assert answers.firsts == {
        (level, T0, offset): FirstRecord(1000 + offset, offset)
        for level in (0, 1)
        for offset in (0, 2)
    }, "where nothing is unread, nothing is looked for"


def test_what_is_not_committed_by_the_replicas_is_not_there_yet(asking: Asking) -> None:
    asking.world.topic("t", (ME, 2))
    asking.world.produce("t", records=2)
    assert asking.lag(T0, 0) == OffsetLag(T0, 0, 0, None, None)
    asking.world.replicate("t")
    found = FirstRecord(1000, 0)
    assert asking.lag(T0, 0) == OffsetLag(T0, 0, 2, found, found)


def test_an_open_transaction_is_unread_by_those_only_who_do_not_wait_for_its_end(
    asking: Asking,
) -> None:
    asking.world.topic("t", (ME,))
    batch = build(
        [Record(0, 1000, None, b"value")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition = asking.world["t", 0]
    asking.world.run(lambda: partition.log.append_as_leader(memoryview(batch), 5, 1000))
    asking.world.run(lambda: partition.log.set_high_watermark(1))
    assert asking.lag(T0, 0) == OffsetLag(T0, 0, 1, FirstRecord(1000, 0), None)


def test_a_leader_that_is_deposed_meanwhile_tells_nothing_and_the_rest_is_told(
    asking: Asking,
) -> None:
    world = asking.world
    world.topic("t", (ME, 2))
    world.topic("u", (ME,))
    world.learn(world.changed("t", leader=2))
    world.run(lambda: world.replicas.partitions[T0].become_follower(world.decision("t")))
    answers = asking.answers((T0, 0), (U0, 0))
    assert answers.lag(T0, 0) is None and answers.lag(U0, 0) == OffsetLag(U0, 0, 0, None, None)


def test_a_disk_that_cannot_be_read_goes_offline_and_the_rest_is_told(asking: Asking) -> None:
    world = asking.world
    world.topic("t", (ME,))
    for _ in range(2):
        world.produce("t")
    world.host.disk.fail("read", "/data/t-0")
    answers = asking.answers((T0, 0))
    assert answers.lag(T0, 0) is None
    assert list(world.logs.offline_directories) == ["/data"]


# -- logs of other brokers


def test_another_leader_is_asked_for_the_end_and_for_the_next_record(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    asking.others.decided = 4
    found = FirstRecord(4000, 4)
    assert asking.lag(T0, 4) == OffsetLag(T0, 4, 10, found, None)
    questions = [
        (broker, fields["isolation_level"], fields["topics"])
        for broker, fields in asking.others.asked
    ]

    def row(timestamp: int) -> list[dict[str, Any]]:
        row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        return [{"name": "t", "partitions": [row]}]

    assert questions == [
        (2, 0, row(LATEST)),
        (2, 0, row(question_about(4))),
        (2, 1, row(question_about(4))),
    ]


def test_who_has_read_all_there_is_needs_no_second_question(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    assert asking.lag(T0, 10) == OffsetLag(T0, 10, 10, None, None)
    assert len(asking.others.asked) == 1
    found = FirstRecord(9000, 9)
    assert asking.lag(T0, 9) == OffsetLag(T0, 9, 10, found, found)


def test_each_of_several_groups_in_a_partition_gets_its_own_record(asking: Asking) -> None:
    asking.world.topic("t", (2, 3), (2, 3))
    t1 = TopicPartition("t", 1)
    answers = asking.answers((T0, 1), (T0, 5), (t1, 7), (t1, 99))
    for key, offset in ((T0, 1), (T0, 5), (t1, 7)):
        found = FirstRecord(offset * 1000, offset)
        assert answers.lag(key, offset) == OffsetLag(key, offset, 10, found, found)
    assert answers.lag(t1, 99) == OffsetLag(t1, 99, 10, None, None)


def test_the_first_record_of_a_log_may_be_unread(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    asking.others.ends[T0] = 1
    assert asking.lag(T0, 0) == OffsetLag(T0, 0, 1, FirstRecord(0, 0), FirstRecord(0, 0))


def test_each_leader_is_asked_for_its_own_partitions(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    asking.world.topic("u", (0, 3))
    answers = asking.answers((T0, 10), (U0, 10))
    assert answers.ends == {T0: 10, U0: 10}
    assert {(broker, fields["topics"][0]["name"]) for broker, fields in asking.others.asked} == {
        (2, "t"),
        (0, "u"),
    }


@pytest.mark.parametrize(
    ("partitions", "requests"),
    [(ASKED_AT_ONCE_MAX, [ASKED_AT_ONCE_MAX]), (ASKED_AT_ONCE_MAX + 1, [ASKED_AT_ONCE_MAX, 1])],
)
def test_a_request_names_so_many_partitions_and_no_more(
    asking: Asking, partitions: int, requests: list[int]
) -> None:
    asking.world.topic("t", *[(2, 3)] * partitions)
    asked = [(TopicPartition("t", number), 10) for number in range(partitions)]
    assert len(asking.answers(*asked).ends) == partitions
    assert asking.others.sizes() == requests


def test_what_nobody_leads_and_what_is_not_there_is_asked_of_nobody(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    asking.world.change("t", leader=-1)
    answers = asking.answers((T0, 0), (TopicPartition("nowhere", 0), 0))
    assert answers.ends == {} and asking.others.asked == []


def test_a_partition_that_a_leader_refuses_is_not_known_and_the_others_are(
    asking: Asking,
) -> None:
    asking.world.topic("t", (2, 3), (2, 3))
    t1 = TopicPartition("t", 1)
    asking.others.errors[t1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answers = asking.answers((T0, 4), (t1, 4))
    assert answers.lag(T0, 4) is not None and answers.lag(t1, 4) is None
    asking.others.asked.clear()
    asking.answers((t1, 0))
    assert len(asking.others.asked) == 1, "without an end there is nothing to look for"


@pytest.mark.parametrize(
    "failure",
    [OSError("gone"), InvalidFrame("nonsense"), KafkaError(ErrorCode.UNSUPPORTED_VERSION)],
    ids=lambda failure: type(failure).__name__,
)
def test_a_leader_that_does_not_answer_does_not_keep_the_others_from_it(
    asking: Asking, failure: Exception
) -> None:
    asking.world.topic("t", (2, 3))
    asking.world.topic("u", (3, 2))
    asking.others.failure[2] = failure
    answers = asking.answers((T0, 4), (U0, 4))
    assert answers.lag(T0, 4) is None and answers.lag(U0, 4) is not None


def test_whatever_is_answered_in_time_counts(asking: Asking) -> None:
    asking.world.topic("t", (2, 3))
    asking.world.topic("u", (3, 2))
    asking.others.delay_s = {2: TIMEOUT_S * 0.4, 3: TIMEOUT_S * 0.3}
    before = asking.world.now
    answers = asking.answers((T0, 4), (U0, 4))
    assert answers.ends == {T0: 10, U0: 10}
    assert answers.lag(T0, 4) is None, "the third answer would have come too late"
    assert answers.lag(U0, 4) is not None
    assert TIMEOUT_S <= asking.world.now - before < TIMEOUT_S * 1.1, "they are asked side by side"
