"""A network around another one, for what comes between a program and the connections that it opens."""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime.seams import (
    AcceptedConnection,
    Connection,
    Door,
    FrameReceiver,
    Listener,
    Network,
    Tls,
)


class WrappedNetwork:
    """Passes everything on. Subclasses open connections in their own way."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> Listener:
        return await self._network.listen(
            host, port, accept, frame_bytes_max=frame_bytes_max, tls=tls, door=door
        )

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        return await self._network.connect(
            host, port, receiver, frame_bytes_max=frame_bytes_max, tls=tls
        )
