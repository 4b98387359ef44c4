"""The lock of document 004's second way: each client has an ephemeral sequential znode, and the lowest number holds the lock.

Each of the others watches the znode with the next lower number only. When that goes, one client is woken. It looks
whether its own number is the lowest now: the znode before it may have gone because its client died while it waited.
"""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.errors import ConnectionLoss
from ottla.lab.zookeeper.locks import ZnodeGone, answered, delete_surely


def number_of(name: str) -> int:
    """The number that ZooKeeper appended."""
    return int(name.rpartition("-")[2])


class EphemeralSequentialLock:
    def __init__(self, client: ZooKeeperClient, path: str) -> None:
        self._client = client
        self._path = path
        self._name: str | None = None
        self.wakes = 0

    @property
    def _prefix(self) -> str:
        """Of this client alone, so that it recognizes its znode."""
        return f"{self._client.session:x}-"

    async def acquire(self) -> None:
        self._name = await self._join()
        while True:
            queue = sorted(await self._queue(), key=number_of)
            place = queue.index(self._name)
            if place == 0:
                return
            before = ZnodeGone(self._client, f"{self._path}/{queue[place - 1]}")
            if await before.stat() is not None:
                await before.wait()
                self.wakes += 1

    async def _queue(self) -> list[str]:
        return await answered(lambda: self._client.children(self._path))

    async def _join(self) -> str:
        try:
            path = await self._client.create(
                f"{self._path}/{self._prefix}", ephemeral=True, sequential=True
            )
            return path.rpartition("/")[2]
        except ConnectionLoss:
            # It may have been created all the same. A second one would wait behind the first for ever.
            for name in await self._queue():
                if name.startswith(self._prefix):
                    return name
            return await self._join()

    async def release(self) -> None:
        await delete_surely(self._client, f"{self._path}/{self._name}")
        self._name = None

    async def fencing_token(self) -> int:
        assert self._name is not None, "only a holder has a token"
        return number_of(self._name)


DESIGN = Design(
    name="ephemeral-sequential-lock",
    seam=Seam.LOCK,
    promise="P50",
    summary="Each client has an ephemeral sequential znode and watches the one before it; the lowest holds the lock.",
    part=EphemeralSequentialLock,
)
