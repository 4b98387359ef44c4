"""Watches one cluster: all questions, each at its pace, and the model that they fill."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from ottla.client.client import Client
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.structure import THE
from ottla.console.model.tables import Versions
from ottla.console.watch.asking import Asking, Interest, Interests
from ottla.console.watch.events import EventTail
from ottla.console.watch.flow import FlowQuestions
from ottla.console.watch.groups import GroupQuestions
from ottla.console.watch.losses import LossQuestions
from ottla.console.watch.structure import StructureQuestions
from ottla.runtime.seams import Clock

logger = logging.getLogger(__name__)

SETTLE_S = 0.05
"""What is observed within this time is shown together."""
SETTLE_REST = 10.0
"""A second of settling is followed by so many seconds without."""
REFUSALS_MAX = 3
"""In a row: a broker that is starting may not know its users yet."""
STEP_S = 1.0
"""Histories get points, and what has been wrong for long is said to be, also while nothing is observed."""


class ClusterWatch:
    """`async with ClusterWatch(connect, clock) as watch:`; see `ottla.console` for its use."""

    def __init__(
        self, connect: Callable[[], Client], clock: Clock, *, reads_pages: bool = True
    ) -> None:
        """`connect` makes a client with connections of its own; this needs three, and closes them. `reads_pages`: whether the
        brokers' metrics pages are read, which ask nobody who he is."""
        self._versions = Versions()
        self.interests = Interests(clock)
        self.client = connect()
        self._clients = [self.client, connect(), connect()]
        self._clock = clock
        self._reads_pages = reads_pages
        self._dirty = asyncio.Event()
        self._news = asyncio.Event()
        self.settled = 0
        """The version of the model that is complete: what follows from observations has been worked out."""
        self._failure = ""
        """Of the last round; empty if there was none."""
        self._another = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._begin()
        self.interests.on_new.append(self._begin_to_look)

    def _begin(self) -> None:
        """Of the cluster nothing is known yet."""
        self._another.clear()
        self.model = ClusterModel(self._versions)
        asking = Asking(self.client, self._clock, self.model, self.interests, self.hurry)
        self._structure = StructureQuestions(asking, self._clients[1], self._another.set)
        themes = (
            self._structure,
            FlowQuestions(asking, reads_pages=self._reads_pages),
            GroupQuestions(asking),
            LossQuestions(asking),
        )
        self.polls = {poll.what: poll for theme in themes for poll in theme.polls()}
        tail_client = self._clients[2]
        self._tail = EventTail(tail_client, self.model, self.hurry, self._dirty.set, asking.known)
        self.known = asking.known
        """Set when the topics of the cluster are known."""

    async def _run(self) -> None:
        """For ever. When another cluster is at the addresses of the one before, nothing of that one is left."""
        while True:
            works: list[Coroutine[Any, Any, None]] = [
                *(poll.run(self._dirty.set) for poll in self.polls.values()),
                self._tail.run(),
                self._settle(),
            ]
            tasks = [asyncio.create_task(work) for work in works]
            try:
                await self._another.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            logger.info("another cluster answers")
            self._begin()
            self._dirty.set()

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        for client in self._clients:
            client.connections.close()

    def looking(self, interest: Interest) -> AbstractContextManager[None]:
        """Somebody looks at this as long as the context lasts: it is asked for more often."""
        return self.interests.looking(interest)

    @property
    def is_refused(self) -> bool:
        """The cluster does not let this client in any more: its user is gone, or has another password."""
        return self._structure.refusals >= REFUSALS_MAX

    def hurry(self, what: str) -> None:
        """The answer to this question may have changed."""
        self.polls[what].hurry()

    async def history(self) -> None:
        """Returns when the event log has been read, if there is one."""
        if self.model.cluster[THE].has_event_log:
            await self._tail.is_read.wait()

    async def changed(self, since: int) -> int:
        """The version of the model, when it is later than `since`."""
        while self.settled <= since:
            await self._news.wait()
        return self.settled

    def _begin_to_look(self, interest: Interest) -> None:
        wanted = {
            "topics": ("offsets", "disks"),
            "topic": ("offsets",),
            "partition": ("replicas",),
            "listed": ("ends",),
            "groups": ("groups",),
            "group": ("groups",),
            "moves": ("moves",),
            "transactions": ("transactions",),
        }
        for what in wanted[interest.what]:
            self.hurry(what)

    def _settle_once(self) -> None:
        """A bug here must not be the end of all displays: it is told as what is wrong, and tried again."""
        try:
            self.model.settle(self._clock.wall_ms())
            self._failure = ""
        except Exception as error:
            self.model.failed_to_settle(error)
            if self._failure != repr(error):  # once a second the same would fill the log
                logger.exception("what is wrong was not worked out")
            self._failure = repr(error)

    async def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(STEP_S):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(SETTLE_S)
            self._dirty.clear()
            began = loop.time()
            self._settle_once()
            if self.model.version > self.settled:
                self.settled = self.model.version
                news, self._news = self._news, asyncio.Event()
                news.set()
            await asyncio.sleep((loop.time() - began) * SETTLE_REST)
