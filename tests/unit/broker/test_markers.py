"""Transaction markers: the coordinator repeats each until its partition has it, and a leader answers when it is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from replicas_world import Asked, ReplicasWorld

from ottla.broker.coordination.markers import (
    MARKERS_AT_ONCE_MAX,
    RETRY_S,
    MarkerHandler,
    MarkerSender,
)
from ottla.coordinators.shard import ProducerStamp
from ottla.coordinators.transactions.transaction_shard import MarkersWritten, SendMarkers
from ottla.records.batch import batches
from ottla.records.record import ControlType, control_type, records
from ottla.replica.partition import Partition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.types import TopicPartition

NONE = ErrorCode.NONE
TIMEOUT_S = 3.0
A0, A1, A2, B0 = (
    TopicPartition("a", 0),
    TopicPartition("a", 1),
    TopicPartition("a", 2),
    TopicPartition("b", 0),
)
LEADERS = {A0: 2, A1: 3, A2: 2, B0: 2}


class Coordinator:
    """The shard that decided, as far as the sender of its markers sees it."""

    def __init__(self) -> None:
        self.is_current = True
        self.is_loaded = True
        self.partition = SimpleNamespace(leader_epoch=7)
        self.told: list[Any] = []
        self.answers: list[ErrorCode] = []
        """To the next reports; NONE when they are used up."""

    def ask(self, key: ApiKey, version: int, message: Any, reply: Any) -> None:
        assert key is ApiKey.WRITE_TXN_MARKERS and version == 0
        self.told.append(message)
        reply({"error": self.answers.pop(0) if self.answers else NONE})


class Peers:
    """Other brokers: each request waits for the test's answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any, asyncio.Future[Any]]] = []

    async def request(self, broker: int, key: ApiKey, fields: Any, *, timeout_s: float) -> Any:
        assert key is ApiKey.WRITE_TXN_MARKERS and timeout_s == TIMEOUT_S
        future = asyncio.get_running_loop().create_future()
        self.asked.append((broker, fields, future))
        return await future


def partitions_of(fields: Any) -> list[set[TopicPartition]]:
    """Of each marker in a request."""
    return [
        {
            TopicPartition(topic["name"], number)
            for topic in marker["topics"]
            for number in topic["partition_indexes"]
        }
        for marker in fields["markers"]
    ]


class Sending:
    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world
        world.topic("a", (2, 3), (3, 2), (2, 3))
        world.topic("b", (2, 3))
        self.peers = Peers()
        self.sender = MarkerSender(world.cluster, self.peers, TIMEOUT_S)  # type: ignore[arg-type]
        self.coordinator = Coordinator()

    def send(
        self,
        *partitions: TopicPartition,
        producer_id: int = 10,
        coordinator: Coordinator | None = None,
    ) -> None:
        markers = SendMarkers(f"x{producer_id}", producer_id, 4, True, frozenset(partitions), 2)
        live: Any = coordinator or self.coordinator
        self.world.run(lambda: self.sender.send(live, markers))

    def taken(self) -> list[tuple[int, Any, asyncio.Future[Any]]]:
        asked, self.peers.asked = self.peers.asked, []
        return asked

    def sent(self) -> list[tuple[int, list[set[TopicPartition]]]]:
        """Which brokers were asked since, and for which partitions of each transaction. They answer that all is written."""
        asked = self.taken()
        for _, fields, future in asked:
            self.answer(fields, future)
        return [(broker, partitions_of(fields)) for broker, fields, _ in asked]

    def answer(self, fields: Any, future: asyncio.Future[Any], **errors: ErrorCode | None) -> None:
        """`a_0=…`: the error of that partition; None leaves it out."""
        markers = []
        for marker in fields["markers"]:
            topics = []
            for topic in marker["topics"]:
                rows = [
                    SimpleNamespace(partition_index=number, error_code=error)
                    for number in topic["partition_indexes"]
                    if (error := errors.get(f"{topic['name']}_{number}", NONE)) is not None
                ]
                topics.append(SimpleNamespace(name=topic["name"], partitions=rows))
            markers.append(SimpleNamespace(producer_id=marker["producer_id"], topics=topics))
        self.world.run(lambda: future.set_result(SimpleNamespace(markers=markers)))

    def refuse(self, error: Exception | None = None, **errors: ErrorCode | None) -> None:
        """The answer to the one request that is under way."""
        ((_, fields, future),) = self.taken()
        if error is None:
            self.answer(fields, future, **errors)
        else:
            self.world.run(lambda: future.set_exception(error))

    def wait_for_retry(self) -> None:
        self.world.wait(RETRY_S)


@pytest.fixture
def world() -> Iterator[ReplicasWorld]:
    with ReplicasWorld() as made:
        yield made


@pytest.fixture
def sending(world: ReplicasWorld) -> Sending:
    return Sending(world)


REPORT = MarkersWritten("x10", 10, 4)


def test_each_leader_is_asked_once_for_all_of_its_partitions(sending: Sending) -> None:
    sending.send(B0, A2, A1, A0)
    (first, fields, _), (second, others, _) = sending.peers.asked
    assert (first, second) == (2, 3)
    assert fields == {
        "markers": [
            {
                "producer_id": 10,
                "producer_epoch": 4,
                "transaction_result": True,
                "topics": [
                    {"name": "a", "partition_indexes": [0, 2]},
                    {"name": "b", "partition_indexes": [0]},
                ],
                "coordinator_epoch": 7,
                "transaction_version": 2,
            }
        ]
    }
    assert partitions_of(others) == [{A1}]


def test_the_coordinator_hears_of_it_when_the_last_partition_has_its_marker(
    sending: Sending,
) -> None:
    sending.send(A0, A1)
    (_, first, answer_first), (_, second, answer_second) = sending.taken()
    sending.answer(first, answer_first)
    assert sending.coordinator.told == []
    sending.answer(second, answer_second)
    assert sending.coordinator.told == [REPORT]
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == [REPORT]


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
def test_a_marker_that_is_there_already_is_not_sent_again(
    sending: Sending, error: ErrorCode
) -> None:
    sending.send(A0)
    sending.refuse(a_0=error)
    assert sending.coordinator.told == [REPORT]
    sending.wait_for_retry()
    assert sending.sent() == []


def test_what_a_leader_refuses_is_sent_to_the_next_leader_and_nothing_else_is(
    sending: Sending,
) -> None:
    sending.send(A0, A2, B0)
    sending.refuse(a_0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sending.sent() == [], "there is a pause"
    sending.world.change("a", 0, leader=3)
    sending.wait_for_retry()
    assert sending.sent() == [(3, [{A0}])]
    assert sending.coordinator.told == [REPORT]


def test_a_marker_that_a_leader_says_nothing_about_is_sent_again(sending: Sending) -> None:
    sending.send(A0, A2)
    sending.refuse(a_2=None)
    sending.wait_for_retry()
    assert sending.sent() == [(2, [{A2}])]


@pytest.mark.parametrize(
    "error",
    [OSError("gone"), InvalidFrame("nonsense"), KafkaError(ErrorCode.UNSUPPORTED_VERSION)],
    ids=lambda error: type(error).__name__,
)
def test_a_broker_that_does_not_answer_is_asked_again(sending: Sending, error: Exception) -> None:
    sending.send(A0, B0)
    sending.refuse(error)
    sending.world.wait(RETRY_S * 0.9)
    assert sending.sent() == []
    sending.wait_for_retry()
    assert sending.sent() == [(2, [{A0, B0}])]
    assert sending.coordinator.told == [REPORT]
    sending.wait_for_retry()
    assert sending.sent() == []


def test_it_is_tried_for_as_long_as_it_takes(sending: Sending) -> None:
    sending.send(A0)
    for _ in range(20):
        sending.refuse(a_0=ErrorCode.NOT_ENOUGH_REPLICAS)
        sending.wait_for_retry()
    assert sending.sent() == [(2, [{A0}])]
    assert sending.coordinator.told == [REPORT]


def test_what_failed_at_several_brokers_is_sent_again_together(sending: Sending) -> None:
    sending.send(A0, A1)
    (_, first, answer_first), (_, second, answer_second) = sending.taken()
    sending.answer(first, answer_first, a_0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sending.world.wait(RETRY_S / 2)
    sending.answer(second, answer_second, a_1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sending.world.wait(RETRY_S / 2)
    assert sending.sent() == [(2, [{A0}]), (3, [{A1}])]
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == [REPORT]


def test_a_marker_that_a_newer_coordinator_has_fenced_is_not_sent_again(sending: Sending) -> None:
    sending.send(A0)
    sending.refuse(a_0=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == []


def test_a_deleted_partition_needs_no_marker(sending: Sending) -> None:
    sending.send(A0, B0)
    sending.refuse(a_0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b_0=NONE)
    sending.world.delete("a")
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == [REPORT]


def test_a_transaction_all_of_whose_partitions_are_deleted_has_ended(sending: Sending) -> None:
    sending.send(TopicPartition("nowhere", 0), TopicPartition("a", 3))
    assert sending.sent() == [] and sending.coordinator.told == [REPORT]


def test_a_partition_without_a_leader_is_waited_for(sending: Sending) -> None:
    sending.world.change("a", 0, leader=-1)
    sending.send(A0)
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == []
    sending.world.change("a", 0, leader=3)
    sending.wait_for_retry()
    assert sending.sent() == [(3, [{A0}])]


def test_broker_0_leads_as_well_as_any_other(sending: Sending) -> None:
    sending.world.topic("zero", (0, 2))
    sending.send(TopicPartition("zero", 0))
    assert sending.sent() == [(0, [{TopicPartition("zero", 0)}])]


def test_what_comes_while_a_broker_is_asked_goes_into_its_next_request(sending: Sending) -> None:
    sending.send(A0)
    for producer_id in (11, 12):
        sending.send(A0, A1, producer_id=producer_id)
    assert [broker for broker, *_ in sending.peers.asked] == [2, 3], "one request to each"
    assert sending.sent() == [(2, [{A0}]), (3, [{A1}])]
    assert sending.sent() == [(2, [{A0}, {A0}]), (3, [{A1}])]
    assert {told.producer_id for told in sending.coordinator.told} == {10, 11, 12}
    sending.send(B0, producer_id=13)
    assert sending.sent() == [(2, [{B0}])], "also after a rest"


@pytest.mark.parametrize(
    ("transactions", "requests"),
    [
        (MARKERS_AT_ONCE_MAX, [MARKERS_AT_ONCE_MAX]),
        (MARKERS_AT_ONCE_MAX + 1, [MARKERS_AT_ONCE_MAX, 1]),
    ],
)
def test_a_request_ends_so_many_transactions_and_no_more(
    sending: Sending, transactions: int, requests: list[int]
) -> None:
    live: Any = sending.coordinator

    def all_at_once() -> None:
        for producer_id in range(transactions):
            markers = SendMarkers("x", producer_id, 0, False, frozenset({A0}), 2)
            sending.sender.send(live, markers)

    sending.world.run(all_at_once)
    sizes = []
    while asked := sending.sent():
        sizes += [len(markers) for _, markers in asked]
    assert sizes == requests
    assert len(sending.coordinator.told) == transactions


def test_an_error_concerns_the_transaction_of_its_producer_only(sending: Sending) -> None:
    live: Any = sending.coordinator

    def both() -> None:
        for producer_id in (10, 11):
            markers = SendMarkers(f"x{producer_id}", producer_id, 4, True, frozenset({A0}), 2)
            sending.sender.send(live, markers)

    sending.world.run(both)
    ((_, _, future),) = sending.taken()
    rows = [
        SimpleNamespace(
            producer_id=producer_id,
            topics=[
                SimpleNamespace(
                    name="a", partitions=[SimpleNamespace(partition_index=0, error_code=error)]
                )
            ],
        )
        for producer_id, error in ((10, NONE), (11, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    ]
    sending.world.run(lambda: future.set_result(SimpleNamespace(markers=rows)))
    assert sending.coordinator.told == [REPORT]
    sending.wait_for_retry()
    sending.sent()
    assert sending.coordinator.told == [REPORT, MarkersWritten("x11", 11, 4)]


def test_a_former_coordinator_sends_nothing_more(sending: Sending) -> None:
    """Its successor sends all of them."""
    former = Coordinator()
    sending.send(A0)
    sending.send(A0, producer_id=11, coordinator=former)
    sending.send(A1, producer_id=12, coordinator=former)
    (_, own, answer_own), (_, other, answer_other) = sending.taken()
    sending.answer(other, answer_other, a_1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    former.is_current = False
    sending.answer(own, answer_own)
    assert sending.sent() == [], "it was not sent yet"
    sending.wait_for_retry()
    assert sending.sent() == [], "it would be sent again"
    assert former.told == [] and sending.coordinator.told == [REPORT]


def test_a_former_coordinator_reports_nothing(sending: Sending) -> None:
    sending.send(A0)
    sending.coordinator.is_current = False
    assert sending.sent() == [(2, [{A0}])]
    assert sending.coordinator.told == []


def test_a_report_that_could_not_be_written_is_repeated(sending: Sending) -> None:
    sending.coordinator.answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    sending.send(A0)
    assert sending.sent() == [(2, [{A0}])] and sending.coordinator.told == [REPORT]
    sending.wait_for_retry()
    assert sending.coordinator.told == [REPORT] * 2
    sending.wait_for_retry()
    sending.wait_for_retry()
    assert sending.sent() == [] and sending.coordinator.told == [REPORT] * 3


def test_a_coordinator_that_loads_again_sends_its_markers_itself(sending: Sending) -> None:
    sending.coordinator.answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    sending.coordinator.is_loaded = False
    sending.send(A0)
    sending.sent()
    sending.wait_for_retry()
    assert sending.coordinator.told == [REPORT]


def test_a_report_that_is_refused_otherwise_is_not_repeated(sending: Sending) -> None:
    sending.coordinator.answers = [ErrorCode.INVALID_PRODUCER_EPOCH]
    sending.send(A0)
    sending.sent()
    sending.wait_for_retry()
    assert sending.coordinator.told == [REPORT]


def test_a_broker_that_stops_sends_nothing_more(sending: Sending) -> None:
    sending.send(A0, A1)
    (_, first, answer_first), (_, _, answer_second) = sending.taken()
    sending.answer(first, answer_first, a_0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sending.world.run(sending.sender.stop)
    sending.wait_for_retry()
    assert sending.sent() == [] and answer_second.cancelled()


# -- the leaders' side


class Led:
    """Broker 1 leads t-0 alone, and t-1 with a follower that has to fetch each marker."""

    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world
        self.ended: list[tuple[Partition, ProducerStamp, bool]] = []
        coordination: Any = SimpleNamespace(marker_appended=lambda *what: self.ended.append(what))
        self.handler = MarkerHandler(world.replicas, coordination, TIMEOUT_S)
        world.topic("t", (1,), (1, 2), (2, 1))

    def marker(self, *numbers: int, producer_id: int = 10, **changes: Any) -> dict[str, Any]:
        return {
            "producer_id": producer_id,
            "producer_epoch": 4,
            "transaction_result": True,
            "topics": [{"name": "t", "partition_indexes": list(numbers)}],
            "coordinator_epoch": 7,
            **changes,
        }

    def ask(self, *markers: dict[str, Any], version: int = 1, rights: Any = None) -> Asked:
        asked = Asked(ApiKey.WRITE_TXN_MARKERS, version, {"markers": list(markers)})
        asked.rights = rights
        request: Any = asked
        self.world.run(lambda: self.handler(request))
        return asked

    def in_log(self, number: int) -> list[tuple[int, int, ControlType, bytes | None, int]]:
        """Producer id and epoch, what became of the transaction, the value, and the time."""
        log = self.world["t", number].log
        found = log.read(0, max_bytes=1 << 20, end_offset=log.log_end)
        if found.range is None:
            return []
        data = found.range.read()
        return [
            (
                batch.producer_id,
                batch.producer_epoch,
                ControlType(control_type(record)),
                record.value,
                record.timestamp,
            )
            for batch in batches(data)
            for record in records(data, batch)
            if batch.is_control and batch.is_transactional
        ]


def errors_in(asked: Asked) -> list[tuple[int, dict[TopicPartition, ErrorCode]]]:
    """Of each producer in the one answer."""
    (answer,) = asked.answers
    return [
        (
            marker.producer_id,
            {
                TopicPartition(topic.name, row.partition_index): ErrorCode(int(row.error_code))
                for topic in marker.topics
                for row in topic.partitions
            },
        )
        for marker in answer.markers
    ]


def only_error_in(asked: Asked) -> ErrorCode:
    ((_, errors),) = errors_in(asked)
    (error,) = errors.values()
    return error


@pytest.fixture
def led(world: ReplicasWorld) -> Led:
    return Led(world)


@pytest.mark.parametrize(
    ("committed", "kind"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)]
)
def test_a_marker_says_who_decided_and_what(led: Led, committed: bool, kind: ControlType) -> None:
    asked = led.ask(led.marker(0, transaction_result=committed))
    assert errors_in(asked) == [(10, {TopicPartition("t", 0): NONE})]
    now_ms = led.world.host.clock.wall_ms()
    assert led.in_log(0) == [(10, 4, kind, b"\0\0\0\0\0\7", now_ms)]
    assert led.ended == [(led.world["t", 0], ProducerStamp(10, 4), committed)]


def test_a_request_is_answered_when_its_last_marker_is_committed(led: Led) -> None:
    asked = led.ask(led.marker(0, 1), led.marker(1, producer_id=11))
    assert asked.answers == [] and led.world["t", 1].log.log_end == 2
    led.world.replicate("t", 1)
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert errors_in(asked) == [(10, {t0: NONE, t1: NONE}), (11, {t1: NONE})]
    led.world.wait(2 * TIMEOUT_S)
    assert len(asked.answers) == 1, "and no second time"


def test_markers_that_are_not_committed_in_time_are_told_apart_from_the_others(led: Led) -> None:
    asked = led.ask(led.marker(0, 1))
    led.world.wait(TIMEOUT_S * 0.99)
    assert asked.answers == []
    led.world.wait(TIMEOUT_S * 0.02)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert errors_in(asked) == [(10, {TopicPartition("t", 0): NONE, TopicPartition("t", 1): late})]
    led.world.replicate("t", 1)
    assert len(asked.answers) == 1, "what is committed later is answered no second time"
    assert led.world.replicas.purgatory.waiting_for_commits == 0


def test_a_leader_that_is_deposed_before_the_commit_says_so(led: Led) -> None:
    asked = led.ask(led.marker(1))
    led.world.change("t", 1, leader=2)
    assert only_error_in(asked) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_is_not_led_here_is_refused_and_the_rest_is_written(led: Led) -> None:
    asked = led.ask(led.marker(2, 0, 9))
    assert errors_in(asked) == [
        (
            10,
            {
                TopicPartition("t", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER,
                TopicPartition("t", 0): NONE,
                TopicPartition("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
    ]
    assert len(led.in_log(0)) == 1 and len(led.ended) == 1


def test_a_marker_that_came_before_counts_once_it_is_committed(led: Led) -> None:
    """Until then this leader may lose it."""
    first = led.ask(led.marker(1, producer_epoch=5))
    again = led.ask(led.marker(1, producer_epoch=4))
    assert first.answers == again.answers == []
    assert len(led.in_log(1)) == 1 and len(led.ended) == 1
    led.world.replicate("t", 1)
    assert only_error_in(first) is only_error_in(again) is NONE
    third = led.ask(led.marker(1, producer_epoch=4))
    assert only_error_in(third) is ErrorCode.INVALID_PRODUCER_EPOCH, "which says the same"


def test_a_follower_that_does_not_fetch_a_marker_leaves_the_isr(led: Led) -> None:
    led.world.replicate("t", 1)
    led.ask(led.marker(1))
    lag_s = led.world.settings.replica_lag_time_max_ms / 1000
    led.world.wait(lag_s * 0.9)
    led.world.run(led.world.replicas.review_isrs)
    assert led.world["t", 1].proposal is None
    led.world.wait(lag_s * 0.2)
    led.world.run(led.world.replicas.review_isrs)
    proposal = led.world["t", 1].proposal
    assert proposal is not None and [member for member, _ in proposal.isr] == [1]


def test_of_two_markers_the_second_waits_for_its_own_commit(led: Led) -> None:
    first = led.ask(led.marker(1))
    led.world.replicate("t", 1)
    second = led.ask(led.marker(1, producer_id=11))
    assert only_error_in(first) is NONE and second.answers == []
    led.world.replicate("t", 1)
    assert only_error_in(second) is NONE


def test_where_each_transaction_has_an_epoch_of_its_own_a_marker_is_written_once(led: Led) -> None:
    """Else one that comes twice would end the transaction that follows (KIP-890)."""
    for version, written in ((1, 2), (2, 1)):
        producer = 20 + version
        for _ in range(2):
            marker = led.marker(0, producer_id=producer, transaction_version=version)
            led.ask(marker, version=2)
        assert [entry[0] for entry in led.in_log(0)].count(producer) == written


def test_before_there_were_such_epochs_a_marker_may_come_twice(led: Led) -> None:
    assert [only_error_in(led.ask(led.marker(0))) for _ in range(2)] == [NONE, NONE]
    assert len(led.in_log(0)) == 2, "without effect"


def test_a_marker_of_a_former_coordinator_is_refused(led: Led) -> None:
    led.ask(led.marker(0))
    late = led.ask(led.marker(0, coordinator_epoch=6))
    assert only_error_in(late) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert len(led.in_log(0)) == 1


def test_a_disk_that_fails_takes_its_partitions_with_it(led: Led) -> None:
    led.world.host.disk.fail("write", "/data/t-0")
    asked = led.ask(led.marker(0))
    assert only_error_in(asked) is ErrorCode.KAFKA_STORAGE_ERROR
    assert led.world.logs.offline_directories and led.ended == []


def test_who_may_not_write_markers_writes_none(led: Led) -> None:
    stranger: Any = SimpleNamespace(may=lambda *_: False, sees=lambda *_: False)
    asked = led.ask(led.marker(0, 1), led.marker(0, producer_id=11), rights=stranger)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert errors_in(asked) == [(10, {t0: denied, t1: denied}), (11, {t0: denied})]
    assert led.in_log(0) == [] and led.ended == []


def test_nobody_is_answered_whose_connection_is_closed(led: Led) -> None:
    asked = led.ask(led.marker(1))
    asked.connection.closed = True
    led.world.replicate("t", 1)
    assert asked.answers == []


def test_a_request_for_nothing_is_answered_with_nothing(led: Led) -> None:
    assert errors_in(led.ask()) == []
