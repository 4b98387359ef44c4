"""Real sockets on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from socketkit import Play, Server

from ottla.runtime.sockets import RealNetwork


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.SelectorEventLoop

    def on_loop(scenario: Callable[[Server], Awaitable[None]]) -> None:
        async def main() -> None:
            problems: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, context: problems.append(context))
            server = Server(RealNetwork(loop))
            await server.start()
            try:
                await scenario(server)
            finally:
                server.listener.close()
                for peer in server.peers:
                    peer.connection.abort()
            assert problems == []

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return on_loop
