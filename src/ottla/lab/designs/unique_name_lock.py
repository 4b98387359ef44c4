"""The lock of document 004's first way: a znode whose name is unique. Whoever creates it holds the lock.

All others watch that one znode. When it goes, each of them is woken and tries to create it, and one succeeds.
"""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.errors import ConnectionLoss, NodeExists
from ottla.lab.zookeeper.locks import ZnodeGone, answered

NAME = "lock"


class UniqueNameLock:
    def __init__(self, client: ZooKeeperClient, path: str) -> None:
        self._client = client
        self._path = f"{path}/{NAME}"
        self.wakes = 0

    async def acquire(self) -> None:
        while True:
            gone = ZnodeGone(self._client, self._path)
            try:
                await self._client.create(self._path, ephemeral=True)
                return
            except (NodeExists, ConnectionLoss):
                holder = await gone.stat()
            if holder is not None and holder.ephemeral_owner == self._client.session:
                return  # it was created before the connection was lost
            if holder is not None:
                await gone.wait()
                self.wakes += 1

    async def release(self) -> None:
        while True:
            try:
                await self._client.delete(self._path)
                return
            except ConnectionLoss:
                # It may have been deleted all the same, and be there again for another client.
                stat = await answered(lambda: self._client.exists(self._path))
                if stat is None or stat.ephemeral_owner != self._client.session:
                    return

    async def fencing_token(self) -> int:
        _, stat = await self._client.get(self._path)
        assert stat.ephemeral_owner == self._client.session, "only a holder has a token"
        return stat.czxid


DESIGN = Design(
    name="unique-name-lock",
    seam=Seam.LOCK,
    promise="P50",
    summary="Whoever creates the one ephemeral znode holds the lock; all others watch it.",
    part=UniqueNameLock,
)
