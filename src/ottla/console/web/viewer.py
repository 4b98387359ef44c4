"""Who looks at the console: clients with the rights of one user, and a watch of what this user may see.

The console has no rights of its own. On an open cluster everybody is the same viewer; on a secured one each login is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from ottla.client.client import Client
from ottla.console.watch.cluster_watch import ClusterWatch
from ottla.runtime.seams import Clock

if TYPE_CHECKING:
    from ottla.console.web.moves import MoveRun

STREAMS_MAX = 64
"""Pages that a viewer has open at the same time."""
QUESTIONS_MAX = 16
"""What people ask for at the same time: scans of messages, explanations."""
UPLOADS_MAX = 16
"""Questions with a body, from its first byte on."""


class Viewer:
    def __init__(
        self,
        connect: Callable[[], Client],
        clock: Clock,
        token: str,
        *,
        user: str | None = None,
        is_open: bool = True,
    ) -> None:
        """`connect` makes a client with this user's rights. `token`: whoever changes something must show it. `is_open`: the
        cluster trusts everybody, so that everybody may see what this machine knows of it."""
        self.clock = clock
        self.token = token
        self.user = user
        self.is_open = is_open
        self.ended = asyncio.Event()
        """Set when nobody is let in as this viewer any more: open streams and whatever else comes bit by bit ends."""
        self.watch = ClusterWatch(connect, clock, reads_pages=is_open)
        self.streams = 0
        self.readings = 0
        """Searches and live tails of messages that are under way."""
        self.questions = asyncio.Semaphore(QUESTIONS_MAX)
        self.uploads = asyncio.Semaphore(UPLOADS_MAX)
        self.past = asyncio.Lock()
        """The event log is read for one question at a time: it may be long."""
        self.move_run: MoveRun | None = None
        """The last one that was started here."""
        self._connect = connect
        self._client: Client | None = None
        self._clients: WeakSet[Client] = WeakSet()
        """To be closed as soon as nobody is let in any more."""
        self._works: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    @property
    def client(self) -> Client:
        """For what people ask: apart from the connections on which the watch asks."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self) -> Client:
        """A client of its own, for whoever closes it. It is closed with the viewer at the latest: what is under way with it
        fails then, and nothing begins with it."""
        client = self._connect()
        if self.ended.is_set():
            client.connections.close()
        self._clients.add(client)
        return client

    def work(self, doing: Coroutine[Any, Any, None], client: Client) -> None:
        """Something that goes on after its request was answered, with a client of its own, which it has until it is over."""
        self._clients.discard(client)

        async def do() -> None:
            try:
                await doing
            finally:
                client.connections.close()

        task = asyncio.create_task(do())
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.watch)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended.set()
        for client in list(self._clients):
            client.connections.close()
        for task in list(self._works):
            task.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        await self._stack.aclose()
