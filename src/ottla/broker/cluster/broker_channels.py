"""Requests from broker to broker outside of replication: one connection to each, opened when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.broker.cluster.metadata_cache import BrokerAddress, ClusterView
from ottla.broker.cluster.node_channels import open_channel
from ottla.metadata.image import MetadataImage
from ottla.runtime import Network
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel

CONNECT_TIMEOUT_S = 5.0


class BrokerChannels:
    def __init__(
        self, network: Network, cluster: ClusterView, listener: str, client_id: str
    ) -> None:
        self._network = network
        self._cluster = cluster
        self._listener = listener
        self._client_id = client_id
        self._channels: dict[int, tuple[BrokerAddress, Channel]] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def request(
        self, broker: int, key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float
    ) -> Any:
        """OSError (TimeoutError too), InvalidFrame or KafkaError if there is no answer."""
        async with asyncio.timeout(timeout_s):
            channel = await self._channel(broker)
            return await channel.request(key, fields, timeout_s=timeout_s)

    async def _channel(self, broker: int) -> Channel:
        async with self._opening.setdefault(broker, asyncio.Lock()):
            address = self._cluster.address(broker, self._listener)
            if address is None:
                raise ConnectionError(f"broker {broker} has no address")
            known = self._channels.get(broker)
            if known is not None and known[0] == address and not known[1].closed:
                return known[1]
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                channel = await open_channel(
                    self._network, broker, address.host, address.port, self._client_id
                )
                try:
                    await channel.negotiate(CONNECT_TIMEOUT_S)
                except BaseException:
                    channel.abort()
                    raise
            self._channels[broker] = address, channel
            return channel

    def brokers_changed(self, image: MetadataImage) -> None:
        """Requests to a broker that is fenced or gone fail at once, instead of waiting for their timeout."""
        for id, (_, channel) in list(self._channels.items()):
            broker = image.brokers.get(id)
            if broker is None or broker.fenced:
                del self._channels[id]
                channel.abort(f"broker {id} is fenced")

    def stop(self) -> None:
        for _, channel in self._channels.values():
            channel.abort()
        self._channels.clear()
