"""A Metadata response waits for the election if its leader is dead, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.broker.cluster import leader_liveness
from ottla.broker.cluster.leader_liveness import ELECTION_TIMEOUT_S, LeaderLiveness
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import Endpoint
from ottla.runtime.sockets import RealNetwork

LISTENER = "PLAINTEXT"


async def seconds_waited(serve: Callable[[asyncio.StreamWriter, int], bool]) -> float:
    """How long a response waits for leader 2, whose listener hands each connection and its number to `serve`, and closes
    when that returns False."""
    connections = 0

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if not serve(writer, connections):
            server.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    broker = BrokerImage(
        id=2,
        epoch=1,
        incarnation=UUID(int=1),
        endpoints=(Endpoint(name=LISTENER, host="127.0.0.1", port=port),),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(),
        cordoned=None,
    )
    cluster = ClusterView(1, 0)
    cluster.update(MetadataImage(brokers={2: broker}), changed=False)
    loop = asyncio.get_running_loop()
    liveness = LeaderLiveness(1, RealNetwork(loop), cluster, LISTENER)
    before = loop.time()
    await liveness.wait_for_elections([2])
    server.close()
    return loop.time() - before


@pytest.fixture(autouse=True)
def _compiled_codec() -> None:
    """The first request of a process compiles its codec, which takes longer than a probe may."""
    asyncio.run(seconds_waited(lambda writer, number: True))


def test_a_leader_whose_process_is_dying_may_still_accept_a_connection_and_lose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine three connections take longer than a probe usually may.
    monkeypatch.setattr(leader_liveness, "PROBE_TIMEOUT_S", 10.0)

    def dying(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.transport.abort()
        return number < 3

    assert asyncio.run(seconds_waited(dying)) >= ELECTION_TIMEOUT_S


def test_a_leader_that_answers_late_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_liveness, "ELECTION_TIMEOUT_S", 60.0)

    assert asyncio.run(seconds_waited(lambda writer, number: True)) < 30


def test_a_leader_that_closes_connections_and_still_listens_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_liveness, "ELECTION_TIMEOUT_S", 60.0)

    def full(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.transport.abort()
        return True

    assert asyncio.run(seconds_waited(full)) < 30
