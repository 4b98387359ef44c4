"""Tells systemd how the node is (sd_notify): READY=1, STATUS=, STOPPING=1, and WATCHDOG=1 if it asks for signs of life.

Only a node with NOTIFY_SOCKET in its environment imports this: systemd sets it for services of Type=notify.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

STATUS_EVERY_S = 1.0


def watchdog_s(environment: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life of this process; None if it does not wait for any."""
    interval = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(interval) / 1e6 if interval.isdigit() and int(interval) else None


class Systemd:
    """`words` describes the node; `is_alive` says whether the watchdog may be fed."""

    def __init__(
        self,
        environment: Mapping[str, str],
        words: Callable[[], str],
        is_alive: Callable[[], bool],
    ) -> None:
        self._address = environment["NOTIFY_SOCKET"]
        self._words = words
        self._is_alive = is_alive
        self._told = ""
        watchdog = watchdog_s(environment)
        self._feeds_watchdog = watchdog is not None
        self._every_s = STATUS_EVERY_S if watchdog is None else min(STATUS_EVERY_S, watchdog / 3)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Once on the event loop: a loop that stands still feeds no watchdog."""
        self._look()

    def ready(self) -> None:
        self._say(f"READY=1\nSTATUS={self._words()}")

    def stopping(self) -> None:
        """The watchdog is still fed: a clean stop may take longer than its interval."""
        self._say("STOPPING=1\nSTATUS=stopping: leaderships are handed over, logs are closed")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        said = []
        if self._feeds_watchdog and self._is_alive():
            said.append("WATCHDOG=1")
        words = self._words()
        if words != self._told:
            self._told = words
            said.append(f"STATUS={words}")
        if said:
            self._say("\n".join(said))
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def _say(self, text: str) -> None:
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]  # a name that is no file
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(), address)
        except OSError as error:
            logger.warning("systemd was not told address=%s error=%s", self._address, error)
