"""A batch that begins a transaction, and a partition whose leader changes while the coordinator is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.apis.produce import ProduceHandler
from ottla.broker.coordination.verification import Verdicts
from ottla.records.record import Record, build
from ottla.replica.traffic import Traffic
from ottla.wire import produce
from ottla.wire.errors import ErrorCode
from support.replica_world import TOPIC_ID, World

VERSION = 12
FIRST, SECOND = 0, 1


class Asked:
    """A coordinator that says yes, after whatever happens meanwhile."""

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile

    async def verify(self, transactional_id: str, beginnings: Any, *, add: bool) -> Verdicts:
        self._meanwhile()
        return Verdicts({index: each.verified for index, each in beginnings.items()}, {})


def answers(partitions: list[World], meanwhile: Any) -> list[ErrorCode]:
    """Broker 1's, to the first batch of a transaction in each partition."""
    batch = build(
        [Record(0, 1000, None, b"v", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    asked = produce.ProduceRequest(
        "id",
        1,
        1000,
        [
            produce.PartitionData("t", TOPIC_ID, number, memoryview(bytearray(batch)))
            for number in range(len(partitions))
        ],
    )
    answered: list[produce.PartitionResult] = []

    async def ask() -> None:
        work: list[Any] = []
        connection = SimpleNamespace(
            hold=lambda: None,
            release=lambda: None,
            closed=False,
            rights=None,
            listener="",
            server=SimpleNamespace(spawn=work.append),
        )
        body = memoryview(bytearray(produce.write_request(VERSION, asked)))
        request: Any = SimpleNamespace(
            version=VERSION,
            frame=body,
            header=SimpleNamespace(body=0, client_id="c"),
            connection=connection,
            throttle_ms=0,
            respond_chunks=lambda chunks: answered.extend(
                produce.read_response(VERSION, memoryview(b"".join(chunks)), 0).results
            ),
        )
        replicas: Any = SimpleNamespace(
            clock=SimpleNamespace(wall_ms=lambda: 1000, monotonic=lambda: 1000.0),
            find=lambda topic, id, number: partitions[number][1],
            traffic=Traffic(),
        )
        nobody: Any = SimpleNamespace(leader_of=lambda *_: None)
        verifier: Any = Asked(meanwhile)
        ProduceHandler(replicas, nobody, verifier)(request)
        for each in work:
            await each

    asyncio.run(ask())
    return [ErrorCode(result.error) for result in answered]


@pytest.fixture
def partitions(tmp_path: Path) -> list[World]:
    worlds = []
    for number in (FIRST, SECOND):
        path = tmp_path / str(number)
        path.mkdir()
        worlds.append(World(path))
    return worlds


def test_what_the_coordinator_agreed_to_is_written(partitions: list[World]) -> None:
    assert answers(partitions, lambda: None) == [ErrorCode.NONE, ErrorCode.NONE]


def test_who_leads_only_since_the_coordinator_was_asked_lets_the_producer_try_again(
    partitions: list[World],
) -> None:
    second = partitions[SECOND]
    second.decide(leader=2)
    codes = answers(partitions, lambda: second.decide(leader=1))
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert second.values(1) == []


def test_a_yes_for_an_earlier_term_as_leader_does_not_count(partitions: list[World]) -> None:
    first = partitions[FIRST]

    def meanwhile() -> None:
        first.decide(leader=2)
        first.decide(leader=1)

    codes = answers(partitions, meanwhile)
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
    assert first.values(1) == []
