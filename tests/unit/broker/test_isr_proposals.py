"""What a leader makes of the controller's answer to its proposal of an ISR."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.cluster import isr_reasons
from ottla.broker.replication.alter_partition import IsrProposals
from ottla.events import Event, Events
from ottla.events.replication import IsrCause, IsrDecided, IsrReason, Lag
from ottla.replica.isr import Proposal
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

TOPIC_ID = UUID(int=7)


class Partition:
    """As much of a leader as its proposal concerns."""

    key = TopicPartition("t", 0)
    topic_id = TOPIC_ID
    partition = 0
    replicas = (1, 2)

    def __init__(self) -> None:
        self.isr: tuple[int, ...] = (1,)
        self.proposal: Proposal | None = Proposal(
            3, 9, (1,), ((1, -1), (2, 20)), "broker 2 caught up"
        )
        self.partition_epoch = 9

    @property
    def leadership(self) -> Any:
        return SimpleNamespace(
            isr_changes=SimpleNamespace(withdraw=self._withdraw, refused=self._withdraw)
        )

    def _withdraw(self, proposal: Proposal, now: float) -> None:
        self.proposal = None


@dataclass
class Answering:
    """A controller with prepared answers, one for each request."""

    errors: list[ErrorCode]
    requests: list[Mapping[str, Any]] = field(default_factory=list)

    async def request(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float) -> Any:
        assert api_key is ApiKey.ALTER_PARTITION
        self.requests.append(fields)
        row = SimpleNamespace(
            partition_index=0,
            error_code=self.errors.pop(0),
            isr=(1, 2),
            leader_id=1,
            leader_epoch=3,
            partition_epoch=10,
        )
        topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=[row])
        return SimpleNamespace(error_code=0, topics=[topic])


class Agreeing:
    """A controller that takes every proposal."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []

    async def request(self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float) -> Any:
        messages.write_request(api_key, 3, fields)
        self.requests.append(fields)
        topics = [
            SimpleNamespace(
                topic_id=topic["topic_id"],
                partitions=[
                    SimpleNamespace(
                        partition_index=row["partition_index"],
                        error_code=0,
                        isr=(1, 2),
                        partition_epoch=10,
                    )
                    for row in topic["partitions"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(error_code=0, topics=topics)


@pytest.mark.parametrize("tells_reasons", [False, True])
def test_P40_thousands_of_proposals_are_sent_in_few_requests(tells_reasons: bool) -> None:
    """A broker that comes back joins the ISRs of all its partitions at once. A text that is too long for one message
    would lose all of them, for good."""
    controller = Agreeing()
    clock = SimpleNamespace(monotonic=lambda: 5.0)
    replicas: Any = SimpleNamespace(listeners=[], clock=clock, events=Events())
    longest = IsrReason(IsrCause.CAUGHT_UP, Lag(2**63 - 1, 2**63 - 1, 999_999_999.999))

    async def run() -> None:
        proposals = IsrProposals(
            1, replicas, controller, lambda: 10, 1.0, tells_reasons=tells_reasons
        )
        for number in range(2000):
            partition = Partition()
            partition.partition = number
            assert partition.proposal is not None
            reasons = {2**31 - 1: longest, 2: longest}
            partition.proposal = partition.proposal._replace(reasons=reasons)
            proposals.isr_proposed(partition)  # type: ignore[arg-type]
        assert proposals._sender is not None
        await proposals._sender

    asyncio.run(run())
    sent = [
        row["partition_index"]
        for fields in controller.requests
        for topic in fields["topics"]
        for row in topic["partitions"]
    ]
    assert sorted(sent) == list(range(2000))
    assert len(controller.requests) == 1 if not tells_reasons else len(controller.requests) < 20
    for fields in controller.requests:
        if tells_reasons:
            told = isr_reasons.read(fields["ottla_isr_reasons"])
            assert len(told) == len(fields["topics"][0]["partitions"]), "each has its reason"


def proposed(
    *errors: ErrorCode, partition_epoch: int = 9, events: Events | None = None
) -> tuple[Partition, Answering]:
    """The partition after the controller gave these answers, and what it was asked."""
    partition, controller = Partition(), Answering(list(errors))
    if partition_epoch > partition.partition_epoch:
        partition.partition_epoch, partition.isr = partition_epoch, (1, 2)
    clock = SimpleNamespace(monotonic=lambda: 5.0)
    replicas: Any = SimpleNamespace(listeners=[], clock=clock, events=events or Events())

    async def run() -> None:
        proposals = IsrProposals(1, replicas, controller, lambda: 10, 1.0)
        (listener,) = replicas.listeners
        listener.isr_proposed(partition)
        assert proposals._sender is not None
        await proposals._sender

    asyncio.run(run())
    assert not controller.errors
    return partition, controller


def test_P13_an_accepted_proposal_stands_until_the_metadata_brings_it() -> None:
    """In order with all else that was decided: a higher minimum, say, that came before it."""
    partition, controller = proposed(ErrorCode.NONE)
    assert partition.proposal is not None
    assert len(controller.requests) == 1


def test_P13_an_accepted_proposal_that_the_metadata_brought_already_is_done() -> None:
    partition, _ = proposed(ErrorCode.NONE, partition_epoch=10)
    assert partition.proposal is None


@pytest.mark.parametrize("partition_epoch", [9, 10])
def test_the_event_names_the_isr_before_even_if_the_metadata_was_first(
    partition_epoch: int,
) -> None:
    """Otherwise nobody can tell whether the ISR shrank or grew."""
    heard: list[Event] = []
    events = Events()
    events.subscribe(heard.append)
    proposed(ErrorCode.NONE, partition_epoch=partition_epoch, events=events)
    (decided,) = heard
    assert isinstance(decided, IsrDecided)
    assert (decided.isr, decided.proposed) == ((1,), (1, 2))


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_P13_what_was_surely_not_done_is_forgotten(error: ErrorCode) -> None:
    partition, _ = proposed(error)
    assert partition.proposal is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_P13_P33_what_may_have_been_done_stands_until_the_metadata_says_what_became_of_it(
    error: ErrorCode,
) -> None:
    """A reassignment that this proposal completed may have given the leadership to the new member: what
    that one has not got must not be committed by the old members alone."""
    partition, controller = proposed(error)
    assert partition.proposal is not None
    assert len(controller.requests) == 1


def test_P35_a_controller_that_is_none_any_more_is_not_the_last_that_is_asked() -> None:
    _, controller = proposed(ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)
    assert not controller.errors
    assert controller.requests[0] == controller.requests[1]
