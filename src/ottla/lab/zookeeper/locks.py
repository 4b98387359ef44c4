"""What a lock recipe is, and what the recipes share: a wait for a znode that ends with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.errors import ConnectionLoss, NoNode, SessionExpired
from ottla.lab.zookeeper.model import SessionState, Stat, WatchEvent

T = TypeVar("T")


class Lock(Protocol):
    """A lock as one client sees it."""

    @property
    def wakes(self) -> int:
        """How often a watch woke this client while it waited."""

    async def acquire(self) -> None:
        """SessionExpired if the session ends first."""

    async def release(self) -> None: ...

    async def fencing_token(self) -> int:
        """Of a holder: a number that is higher than that of every holder before."""


LockRecipe = Callable[[ZooKeeperClient, str], Lock]
"""Makes the lock of a client below that path, which exists."""


async def answered(read: Callable[[], Awaitable[T]]) -> T:
    """The answer to a read, which may be sent again if a connection is lost."""
    while True:
        with suppress(ConnectionLoss):
            return await read()


async def delete_surely(client: ZooKeeperClient, path: str) -> None:
    """Also if a connection is lost. Only for a znode whose path is not used again before this returns."""
    with suppress(NoNode):
        await answered(lambda: client.delete(path))


class ZnodeGone:
    """A watch on one znode, and the wait for it."""

    def __init__(self, client: ZooKeeperClient, path: str) -> None:
        self._client = client
        self._path = path
        self._changed = asyncio.Event()

    async def stat(self) -> Stat | None:
        """None if it is gone already. Else `wait` returns when it changes."""
        return await answered(lambda: self._client.exists(self._path, self._fired))

    def _fired(self, event: WatchEvent) -> None:
        self._changed.set()

    async def wait(self) -> None:
        """Nothing fires any more when the session has ended."""
        self._client.on_state.append(self._state_changed)
        try:
            await self._changed.wait()
        finally:
            self._client.on_state.remove(self._state_changed)
        if self._client.is_over:
            raise SessionExpired(self._client.name)

    def _state_changed(self, state: SessionState) -> None:
        if self._client.is_over:
            self._changed.set()
