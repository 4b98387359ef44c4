"""What a broker tells clients of itself while it starts again."""

from __future__ import annotations

from typing import Any

from ottla.sim.cluster.nodes import BROKER_PORT, SimCluster
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel

SLOW_S = 1.0


def test_a_broker_that_is_not_unfenced_yet_lists_itself() -> None:
    """If it did not, librdkafka would drop it, and might never find it again as a coordinator."""
    with World(1) as world:
        cluster = SimCluster(world, 3)
        cluster.start()
        assert cluster.wait_ready(30)
        node = cluster.nodes[3]
        node.kill()
        world.run_for(20)
        node.start()

        def is_serving() -> bool:
            server = None if node.node is None else node.node.servers.get("PLAINTEXT")
            return server is not None and int(ApiKey.METADATA) in server.handlers

        assert world.run_until(is_serving, 30)
        for other in ("n1", "n2"):  # it is unfenced no sooner
            world.network.conditions.slow_links["n3", other] = SLOW_S
        clients = world.node("clients")

        async def ask() -> tuple[Any, Any]:
            network = clients.runtime.network
            channel = await Channel.open(network, node.host.name, BROKER_PORT, "client")
            metadata = await channel.request(ApiKey.METADATA, {"topics": []})
            described = await channel.request(
                ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}
            )
            return metadata, described

        metadata, described = clients.complete(ask(), SLOW_S)
        assert node.node is not None and node.node.broker is not None
        assert not node.node.broker.lifecycle.ready.is_set(), "it is fenced"
        assert [broker.node_id for broker in metadata.brokers] == [1, 2, 3]
        assert metadata.controller_id == 3
        assert [broker.broker_id for broker in described.brokers] == [1, 2, 3]
        assert world.run_until(lambda: node.is_ready, 30) and world.problems() == []
