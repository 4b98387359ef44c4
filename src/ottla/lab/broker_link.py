"""A connection from one broker to another for designs that move records in their own way.

The owner opens it when it has something to send. It is told when the connection is there, and when it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.server.deadlines import DeadlineQueue, Deadlines
from ottla.config.node_settings import Settings
from ottla.runtime import Runtime
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel, OnResponse

BACKOFF_S = 0.05


class BrokerLink:
    """At most one connection to one broker. A broker that does not answer in time loses it."""

    def __init__(
        self,
        broker: int,
        settings: Settings,
        runtime: Runtime,
        cluster: ClusterView,
        client_id: str,
        *,
        port: int | None,
        timeout_ms: int,
        connected: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """`port`: None for that of the broker's own listener."""
        self.broker = broker
        self._listener = settings.inter_broker_listener_name or ""
        self._network = runtime.network
        self._clock = runtime.clock
        self._cluster = cluster
        self._client_id = client_id
        self._port = port
        self._timeout_ms = timeout_ms
        self._connected = connected
        self._lost = lost
        self._deadlines = Deadlines(runtime.clock)
        self._channel: Channel | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unanswered = 0
        self._line: DeadlineQueue | None = None
        self._is_stopped = False

    @property
    def is_open(self) -> bool:
        return self._channel is not None and not self._channel.closed

    def open(self) -> None:
        if self._channel is None and self._opening is None and not self._is_stopped:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def call(self, key: ApiKey, version: int, body: bytes, answered: OnResponse) -> None:
        """`answered` is not called if there is no connection, or if it is lost first: its owner is told of that."""
        channel = self._channel
        if channel is None or channel.closed:
            return

        def on_response(frame: memoryview, start: int) -> None:
            if channel is self._channel:
                self._unanswered -= 1
                self._await_answer()
                answered(frame, start)

        self._unanswered += 1
        if self._line is None:
            self._await_answer()
        channel.call(key, version, body, on_response)

    def stop(self) -> None:
        self._is_stopped = True
        self._await_nothing()
        if self._opening is not None:
            self._opening.cancel()
        if self._channel is not None:
            self._channel.abort()

    def time_is_up(self) -> None:
        self._line = None
        if self._channel is not None:
            self._channel.abort()

    def _await_answer(self) -> None:
        self._await_nothing()
        if self._unanswered:
            self._line = self._deadlines.add(self, self._clock.monotonic(), self._timeout_ms)

    def _await_nothing(self) -> None:
        if self._line is not None:
            self._line.pop(self, None)
            self._line = None

    async def _open(self) -> None:
        try:
            channel = await self._try_to_open()
            while channel is None:
                await asyncio.sleep(BACKOFF_S)
                channel = await self._try_to_open()
        finally:
            self._opening = None
        self._channel = channel
        self._unanswered = 0
        channel.on_close.append(lambda reason: self._closed(channel))
        self._connected()

    async def _try_to_open(self) -> Channel | None:
        address = self._cluster.address(self.broker, self._listener)
        if address is None:
            return None
        port = self._port or address.port
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await Channel.open(self._network, address.host, port, self._client_id)
        except (OSError, TimeoutError):
            return None

    def _closed(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = None
            self._await_nothing()
            if not self._is_stopped:
                self._lost()
