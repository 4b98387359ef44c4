"""A client that was closed stays closed. The network is a fake at its own seam: `connect`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.client import Client
from ottla.client.connections import ConnectionsClosed


class SlowNetwork:
    """Connects when it is let, and nobody ever answers."""

    def __init__(self) -> None:
        self.begins = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.opened = 0

    async def connect(self, host: str, port: int, receive: Any) -> Any:
        self.begins.set()
        await self.goes_on.wait()
        self.opened += 1
        raise ConnectionRefusedError


def test_a_closed_client_opens_no_connection() -> None:
    async def run() -> None:
        network: Any = SlowNetwork()
        client = Client(network, [("broker", 1)], patient=True)
        client.connections.close()
        for asking in (client.metadata(), client.connections.to_any()):
            async with asyncio.timeout(5):  # a client that is patient does not try again either
                with pytest.raises(ConnectionsClosed):
                    await asking
        assert not network.begins.is_set()

    asyncio.run(run())


def test_whoever_is_connecting_when_it_is_closed_is_not_let_try_again() -> None:
    async def run() -> None:
        network: Any = SlowNetwork()
        client = Client(network, [("broker", 1)], patient=True)
        asking = asyncio.create_task(client.metadata())
        await network.begins.wait()
        client.connections.close()
        network.goes_on.set()
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionsClosed):
                await asking
        assert network.opened == 1

    asyncio.run(run())
