"""v2: one brain decides, and each state change goes to a broker through its queue in ZooKeeper (P46).

A broker's queue is a znode with a child for each state change. The brain creates the child and sets the queue's data to
the same state change, in one multi. The broker's watch of the data fires, it reads the data, does what it says, and
deletes the child. That is the cheapest queue that ZooKeeper's watches allow: a delete does not fire the watch of the
data, so that the read that takes one state change also watches for the next. A broker that finds the number of its last
state change followed by more than one new one reads the children that it missed.

Each state change of a partition is one entry. What a broker must know at its start, and a new topic, are one entry too.
"""

from __future__ import annotations

import json
from contextlib import suppress

from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.propagation.member import SerialWork
from ottla.lab.propagation.notification import Notification, notification_of
from ottla.lab.propagation.znodes import RegisteredBroker, encoded, queue_path
from ottla.lab.zookeeper.errors import NodeExists, NoNode
from ottla.lab.zookeeper.model import CreateNode, SetData

NO_ENTRY = 0


def entry_path(broker: int, number: int) -> str:
    return f"{queue_path(broker)}/{number:010d}"


class QueueMember(ControlledMember):
    """The thread that handles state changes is not the one that decides, if both are in one broker."""

    notifies_at_once = True
    handled = NO_ENTRY
    """The number of the last state change that we did."""
    _taking: SerialWork | None = None

    # -- as a broker -------------------------------------------------------------------------------

    async def begin_receiving(self) -> None:
        self.close()
        self._taking = SerialWork(self._is_connected)
        with suppress(NodeExists):
            await self.client.create(queue_path(self.id), encoded([NO_ENTRY, ""]))
        await self._take()

    def close(self) -> None:
        if self._taking is not None:
            self._taking.stop()

    async def _take(self) -> None:
        data, _ = await self.client.get(queue_path(self.id), self.when(self._take, by=self._taking))
        newest, content = json.loads(data)
        if newest == self.handled + 1:
            await self._handle(newest, content.encode())
            return
        for name in await self.client.children(queue_path(self.id)):
            number = int(name)
            if number <= newest:
                with suppress(NoNode):
                    entry, _ = await self.client.get(entry_path(self.id, number))
                    await self._handle(number, entry)
        self.handled = newest

    async def _handle(self, number: int, data: bytes) -> None:
        if number > self.handled:
            self.receive(notification_of(data))
            self.handled = number
        with suppress(NoNode):
            await self.client.delete(entry_path(self.id, number))

    # -- as the brain ------------------------------------------------------------------------------

    async def begin_sending(self) -> None:
        self._newest: dict[int, int] = {}

    async def notify(self, broker: RegisteredBroker, notification: Notification) -> None:
        queue, data = queue_path(broker.id), notification.data()
        if broker.id not in self._newest:
            found, _ = await self.client.get(queue)
            self._newest[broker.id] = json.loads(found)[0]
        while True:
            number = self._newest[broker.id] = self._newest[broker.id] + 1
            with suppress(NodeExists):  # ours, and its answer was lost
                await self.client.multi(
                    [
                        CreateNode(entry_path(broker.id, number), data),
                        SetData(queue, encoded([number, data.decode()])),
                    ]
                )
                return


class RecipeQueueMember(QueueMember):
    """The queue of ZooKeeper's recipes: a broker watches the children, lists them, and reads and deletes each. The delete
    fires the watch again, so a broker lists its queue once more for each entry that it has taken."""

    async def _take(self) -> None:
        watch = self.when(self._take, by=self._taking)
        for name in await self.client.children(queue_path(self.id), watch):
            path = f"{queue_path(self.id)}/{name}"
            with suppress(NoNode):
                entry, _ = await self.client.get(path)
                self.receive(notification_of(entry))
                await self.client.delete(path)

    async def notify(self, broker: RegisteredBroker, notification: Notification) -> None:
        entry = f"{queue_path(broker.id)}/entry-"
        await self.client.create(entry, notification.data(), sequential=True)
