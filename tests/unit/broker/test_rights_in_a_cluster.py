"""Rights on three brokers, in simulated time: followers follow, and a right that is taken away at one broker is gone at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from guarded_node import ANN, TOPIC, fetch_request, fetched, partition, produced
from one_node import create

from ottla.broker.server.connections import ServerConnection
from ottla.config.values import STANDARD_AUTHORIZER
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.sim.cluster.nodes import BROKER_PORT, SimCluster
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
LEADER = 2
LONG_MS = 20_000
REVOKED_WITHIN_S = 0.1


class Rig:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimCluster(world, overrides=SETTINGS)
        self.cluster.start()
        assert self.cluster.wait_ready(30)
        self.host = world.node("client")
        self.operator = self.host.complete(self.open(1))
        self.host.complete(create(self.operator, TOPIC, [[LEADER, 1, 3]]))

    async def open(self, broker: int) -> Channel:
        network = self.host.runtime.network
        channel = await Channel.open(network, f"n{broker}", BROKER_PORT, "client")
        await channel.negotiate()
        return channel

    def connection_of(self, channel: Channel) -> ServerConnection:
        node = self.cluster.nodes[LEADER].node
        assert node is not None
        host, port = channel.local
        (found,) = [
            connection
            for server in node.servers.values()
            for connection in server.connections
            if connection.peer == f"{host}:{port}"
        ]
        return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    with World(1) as world:
        yield Rig(world)
        assert world.problems() == []


async def grant_reading(channel: Channel) -> None:
    entry = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": str(ANN),
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": Permission.ALLOW,
    }
    answer = await channel.request(ApiKey.CREATE_ACLS, {"creations": [entry]}, version=3)
    assert int(answer.results[0].error_code) == 0


async def revoke_everything(channel: Channel) -> None:
    anything = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": Permission.ANY,
    }
    answer = await channel.request(ApiKey.DELETE_ACLS, {"filters": [anything]}, version=3)
    assert len(answer.filter_results[0].matching_acls) == 1


def test_a_right_taken_away_at_one_broker_is_gone_at_all_of_them(rig: Rig) -> None:
    async def run() -> tuple[int, bool, float]:
        clock = rig.host.runtime.clock
        reader = await rig.open(LEADER)
        connection = rig.connection_of(reader)
        connection.authenticated(ANN)
        await grant_reading(rig.operator)
        while True:  # until the leader knows
            first = await fetched(reader, fetch_request([partition()]))
            if first.partitions[0].error == 0:
                break
        waiting = asyncio.ensure_future(
            fetched(reader, fetch_request([partition()], wait_ms=LONG_MS))
        )
        while connection.parked_fetch is None:  # noqa: ASYNC110  # the broker's doing
            await asyncio.sleep(0.001)
        await revoke_everything(rig.operator)
        began = clock.monotonic()
        answer = await waiting
        return (
            answer.partitions[0].error,
            bool(answer.partitions[0].records),
            clock.monotonic() - began,
        )

    error, has_records, took_s = rig.host.complete(run(), 60)
    assert (error, has_records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    assert took_s <= REVOKED_WITHIN_S


def test_brokers_replicate_to_each_other_with_an_authorizer(rig: Rig) -> None:
    async def run() -> list[int]:
        writer = await rig.open(LEADER)
        return await produced(writer, TOPIC)

    assert rig.host.complete(run(), 60) == [0]
    for number in (1, 2, 3):
        node = rig.cluster.nodes[number].node
        assert node is not None and node.broker is not None
        assert node.broker.replicas.get(TOPIC, 0).log.log_end == 1
