"""A leader asks the transaction's coordinator, and its answer counts only while no marker of the producer has come between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from replicas_world import ME, ReplicasWorld

from ottla.broker.coordination.verification import (
    QUESTIONS_MAX,
    TRY_AGAIN,
    Beginning,
    Verdicts,
    Verifier,
    client_error,
)
from ottla.coordinators.shard import partition_of
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.replica.partition import Partition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

ID = "my-id"
PRODUCER, EPOCH = 7, 2
TIMEOUT_S = 3.0
SHARDS = 3
COORDINATORS = (2, 0, 3)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Coordinator:
    """Says yes to everything but what `errors` names, after whatever happens meanwhile."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.whole = ErrorCode.NONE
        self.failure: Exception | None = None
        self.meanwhile: Callable[[], object] = lambda: None

    async def request(self, broker: int, key: ApiKey, fields: Any, *, timeout_s: float) -> Any:
        assert key is ApiKey.ADD_PARTITIONS_TO_TXN and timeout_s == TIMEOUT_S
        (transaction,) = fields["transactions"]
        self.asked.append((broker, transaction))
        self.meanwhile()
        if self.failure is not None:
            raise self.failure
        topics = [
            SimpleNamespace(
                name=topic["name"],
                results_by_partition=[
                    SimpleNamespace(
                        partition_index=number,
                        partition_error_code=self.errors.get(
                            TopicPartition(topic["name"], number), ErrorCode.NONE
                        ),
                    )
                    for number in topic["partitions"]
                ],
            )
            for topic in transaction["topics"]
        ]
        results = [] if self.whole else [SimpleNamespace(topic_results=topics)]
        return SimpleNamespace(error_code=self.whole, results_by_transaction=results)


class Asking:
    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world
        world.topic("t", (ME, 2), (ME, 2))
        world.topic("u", (ME, 2))
        world.topic(TRANSACTION_STATE_TOPIC, *[(broker,) for broker in COORDINATORS])
        self.coordinator = Coordinator()
        peers: Any = self.coordinator
        self.verifier = Verifier(world.host.clock, world.cluster, peers, TIMEOUT_S)

    def beginning(self, key: TopicPartition, *, epoch: int = EPOCH) -> Beginning:
        partition = self.world[key]
        verified = partition.leading().begin_verification_of(PRODUCER, epoch, 0, 1000)
        assert verified is not None
        return Beginning(partition, verified)

    def verdicts(self, *beginnings: Beginning, add: bool = True, id: str = ID) -> Verdicts:
        numbered = dict(enumerate(beginnings))
        return self.world.complete(self.verifier.verify(id, numbered, add=add))

    def end_transaction(self, partition: Partition) -> None:
        """The marker of the producer's last transaction arrives."""
        batch = control_batch(
            [(ControlType.COMMIT, b"\0\0\0\0\0\1")],
            timestamp=1000,
            producer_id=PRODUCER,
            producer_epoch=EPOCH,
            transactional=True,
        )
        partition.leading().append_marker(batch, self.world.now, 1000, bumps_epoch=False)


@pytest.fixture
def asking() -> Iterator[Asking]:
    with ReplicasWorld() as world:
        yield Asking(world)


def is_valid(beginning: Beginning, verdicts: Verdicts, index: int = 0) -> bool:
    return beginning.partition.leading().is_verified(verdicts.verified[index])


@pytest.mark.parametrize("add", [True, False])
def test_the_coordinator_is_asked_once_for_all_partitions(asking: Asking, add: bool) -> None:
    beginnings = [asking.beginning(key) for key in (U0, T1, T0)]
    verdicts = asking.verdicts(*beginnings, add=add)
    assert verdicts == Verdicts({n: each.verified for n, each in enumerate(beginnings)}, {})
    assert asking.coordinator.asked == [
        (
            COORDINATORS[partition_of(ID, SHARDS)],
            {
                "transactional_id": ID,
                "producer_id": PRODUCER,
                "producer_epoch": EPOCH,
                "verify_only": not add,
                "topics": [
                    {"name": "t", "partitions": [0, 1]},
                    {"name": "u", "partitions": [0]},
                ],
            },
        )
    ]


def test_each_transaction_has_its_own_coordinator(asking: Asking) -> None:
    ids = [f"id{number}" for number in range(20)]
    for id in ids:
        asking.verdicts(asking.beginning(T0), id=id)
    expected = [COORDINATORS[partition_of(id, SHARDS)] for id in ids]
    assert [broker for broker, _ in asking.coordinator.asked] == expected
    assert set(expected) == set(COORDINATORS), "broker 0 as well as any other"


def test_what_the_coordinator_refuses_is_refused_and_the_rest_is_not(asking: Asking) -> None:
    first, second = asking.beginning(T0), asking.beginning(T1)
    asking.coordinator.errors[T1] = ErrorCode.INVALID_TXN_STATE
    verdicts = asking.verdicts(first, second)
    assert verdicts == Verdicts({0: first.verified}, {1: ErrorCode.INVALID_TXN_STATE})


def test_a_marker_that_comes_meanwhile_makes_the_leader_ask_again(asking: Asking) -> None:
    """The answer may be about the transaction that it has ended."""
    first, second = asking.beginning(T0), asking.beginning(T1)

    def marker() -> None:
        asking.end_transaction(first.partition)
        asking.coordinator.meanwhile = lambda: None

    asking.coordinator.meanwhile = marker
    verdicts = asking.verdicts(first, second)
    assert [transaction["topics"] for _, transaction in asking.coordinator.asked] == [
        [{"name": "t", "partitions": [0, 1]}],
        [{"name": "t", "partitions": [0]}],
    ]
    assert verdicts.refused == {} and verdicts.verified[1] == second.verified
    assert verdicts.verified[0] != first.verified and is_valid(first, verdicts)


def test_it_is_not_asked_for_ever(asking: Asking) -> None:
    first = asking.beginning(T0)
    asking.coordinator.meanwhile = lambda: asking.end_transaction(first.partition)
    verdicts = asking.verdicts(first)
    assert verdicts == Verdicts({}, {0: ErrorCode.CONCURRENT_TRANSACTIONS})
    assert len(asking.coordinator.asked) == QUESTIONS_MAX == 5


def test_the_last_answer_counts_as_well(asking: Asking) -> None:
    first = asking.beginning(T0)

    def all_but_the_last() -> None:
        if len(asking.coordinator.asked) < QUESTIONS_MAX:
            asking.end_transaction(first.partition)

    asking.coordinator.meanwhile = all_but_the_last
    verdicts = asking.verdicts(first)
    assert verdicts.refused == {} and is_valid(first, verdicts)


def test_whoever_leads_no_more_has_no_verdict(asking: Asking) -> None:
    first, second = asking.beginning(T0), asking.beginning(T1)
    delta = asking.world.learn(asking.world.changed("t", 0, leader=2))
    asking.coordinator.meanwhile = lambda: asking.world.publish(delta)
    assert asking.verdicts(first, second) == Verdicts({1: second.verified}, {})


def test_whoever_leads_anew_asks_again(asking: Asking) -> None:
    first = asking.beginning(T0)
    delta = asking.world.learn(asking.world.changed("t", 0, leader=ME))

    def meanwhile() -> None:
        asking.world.publish(delta)
        asking.coordinator.meanwhile = lambda: None

    asking.coordinator.meanwhile = meanwhile
    verdicts = asking.verdicts(first)
    assert len(asking.coordinator.asked) == 2 and is_valid(first, verdicts)
    assert verdicts.verified[0].epoch == first.verified.epoch + 1


def test_a_transaction_that_has_begun_meanwhile_needs_no_verdict(asking: Asking) -> None:
    first = asking.beginning(T0)
    batch = build(
        [Record(0, 1000, None, b"v")],
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=0,
        transactional=True,
    )
    log = first.partition.log
    asking.coordinator.meanwhile = lambda: log.append_as_leader(memoryview(batch), 5, 1000)
    assert asking.verdicts(first) == Verdicts({}, {})
    assert len(asking.coordinator.asked) == 1


def test_a_request_with_batches_of_two_producers_is_refused(asking: Asking) -> None:
    beginnings = asking.beginning(T0), asking.beginning(T1, epoch=EPOCH + 1)
    refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert asking.verdicts(*beginnings) == Verdicts({}, {0: refused, 1: refused})
    assert asking.coordinator.asked == []


def test_without_a_coordinator_nobody_is_asked(asking: Asking) -> None:
    first = asking.beginning(T0)
    asking.world.change(TRANSACTION_STATE_TOPIC, partition_of(ID, SHARDS), leader=-1)
    refused = Verdicts({}, {0: ErrorCode.COORDINATOR_NOT_AVAILABLE})
    assert asking.verdicts(first) == refused
    asking.world.delete(TRANSACTION_STATE_TOPIC)
    assert asking.verdicts(first) == refused
    assert asking.coordinator.asked == []


@pytest.mark.parametrize(
    "failure",
    [OSError("gone"), InvalidFrame("nonsense"), KafkaError(ErrorCode.UNSUPPORTED_VERSION)],
    ids=lambda failure: type(failure).__name__,
)
def test_a_coordinator_that_does_not_answer_refuses_all(asking: Asking, failure: Exception) -> None:
    asking.coordinator.failure = failure
    verdicts = asking.verdicts(asking.beginning(T0), asking.beginning(T1))
    lost = ErrorCode.NETWORK_EXCEPTION
    assert verdicts == Verdicts({}, {0: lost, 1: lost})


@pytest.mark.parametrize(
    ("whole", "each"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        # It is this broker that lacks a right, and its client could do nothing about that.
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_an_error_of_the_whole_answer_counts_for_each_partition(
    asking: Asking, whole: ErrorCode, each: ErrorCode
) -> None:
    asking.coordinator.whole = whole
    verdicts = asking.verdicts(asking.beginning(T0), asking.beginning(T1))
    assert verdicts == Verdicts({}, {0: each, 1: each})


@pytest.mark.parametrize(
    ("error", "knows_abortable", "told"),
    [
        *((error, True, ErrorCode.NOT_ENOUGH_REPLICAS) for error in sorted(TRY_AGAIN)),
        (ErrorCode.PRODUCER_FENCED, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, True, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_clients_get_errors_that_they_handle(
    error: ErrorCode, knows_abortable: bool, told: ErrorCode
) -> None:
    found = client_error(
        error, knows_abortable=knows_abortable, try_again=ErrorCode.NOT_ENOUGH_REPLICAS
    )
    assert found.code is told
