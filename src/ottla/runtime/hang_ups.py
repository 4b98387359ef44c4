"""Tells a connection that its peer is gone, whether or not anybody reads from the connection.

Two things keep a loop from noticing it. A connection that is held back is not read. And uvloop calls a reader once after an
error of its socket, and never again: a reader that takes some bytes then, and would have met the error next, waits for ever
with an open descriptor. So all sockets are also watched by one epoll, which looks for nothing but errors and hang-ups and is
itself watched by the loop. It costs a call when a connection begins. Systems without epoll do without.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from weakref import WeakKeyDictionary

HungUp = Callable[[bool], None]
"""Called once, with whether the connection was reset: then nothing that is sent can arrive. Otherwise the peer has closed it
in good order, and what it sent before can still be read."""


class HangUps:
    """Of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched: dict[int, HungUp] = {}
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._tell)

    def watch(self, fd: int, then: HungUp) -> None:
        self._watched[fd] = then
        self._epoll.register(fd, select.EPOLLET | select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        """Before the descriptor is closed."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _tell(self) -> None:
        for fd, events in self._epoll.poll(0):
            then = self._watched.get(fd)
            if then is not None:  # one of the others may have closed it
                then(bool(events & select.EPOLLERR))


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, HangUps] = WeakKeyDictionary()


def hang_ups_of(loop: asyncio.AbstractEventLoop) -> HangUps | None:
    """None on systems without epoll."""
    if not hasattr(select, "epoll"):
        return None
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = HangUps(loop)
    return found
