"""How a node reaches the listeners of other nodes: TLS, then a login, and only then is the connection used.

`NodeDialer` is a `Network`. Whoever opens channels to other nodes is given one, and needs to know nothing of security. A
node without security has none: its channels use the network itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.runtime.seams import Connection, FrameReceiver, Identity, Network, Tls
from ottla.runtime.wrapped_network import WrappedNetwork
from ottla.wire.channel import Channel
from ottla.wire.errors import InvalidFrame, KafkaError

NodeLogin: TypeAlias = Callable[[Channel], Awaitable[None]]
"""Logs in with SASL on a channel that nobody uses yet."""


class NodeDialer(WrappedNetwork):
    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.tls: Tls | None = None
        """To be set before the first connection, if the listeners have TLS."""
        self.login: NodeLogin | None = None
        """The same for SASL."""

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        made: list[FrameReceiver] = []

        def receive(connection: Connection) -> FrameReceiver:
            made.append(receiver(connection))
            return made[0]

        connection = await self._network.connect(
            host, port, receive, frame_bytes_max=frame_bytes_max, tls=tls or self.tls
        )
        identity: Identity | None = getattr(connection, "identity", None)
        if self.login is not None and (identity is None or not identity.is_local):
            try:
                channel = made[0]
                assert isinstance(channel, Channel), "nodes talk to each other through channels"
                await self.login(channel)
            except (KafkaError, InvalidFrame) as error:
                connection.abort()
                raise ConnectionError(f"not logged in at {host}:{port}: {error}") from error
            except BaseException:
                connection.abort()
                raise
        return connection
