"""The `Network` seam for the real machine: listeners and connections on raw non-blocking sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ottla.runtime import unix_sockets
from ottla.runtime.frame_memory import ReceiveMemory
from ottla.runtime.hang_ups import hang_ups_of
from ottla.runtime.seams import AcceptedConnection, Connection, Door, FrameReceiver, Identity, Tls
from ottla.runtime.socket_connection import SocketConnection, address_of, prepare

if TYPE_CHECKING:
    from ottla.runtime.tls import RealTls

logger = logging.getLogger(__name__)

BACKLOG = 1024
REFUSED_MAX = 1000
"""Refused connections that are kept for a while, unread. More of them are closed at once."""
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.2
LOCAL = Identity(is_local=True)
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketListener:
    """Accepts connections on one port, and on the Unix socket that nodes of this machine use instead of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        memory: ReceiveMemory,
        sockets: Sequence[socket.socket],
        accept: Callable[[AcceptedConnection], FrameReceiver],
        frame_bytes_max: int,
        tls: RealTls | None,
        door: Door | None = None,
    ) -> None:
        """`sockets`: all that it listens on. The first gives the listener its address."""
        self._door = door
        self._wait: asyncio.TimerHandle | None = None
        """While the door lets nobody in: until when."""
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes = None if tls is None else tls.handshakes(loop)
        self._loop = loop
        self._memory = memory
        self._sockets = sockets
        self._accept = accept
        self._frame_bytes_max = frame_bytes_max
        self._address = address_of(sockets[0].getsockname())
        self._closed = False
        self._resume: asyncio.TimerHandle | None = None
        self._add_readers()

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._resume is not None:
            self._resume.cancel()
        else:
            self._remove_readers()
        if self._wait is not None:
            self._wait.cancel()
        for refused, timer in self._refused.items():
            timer.cancel()
            refused.close()
        self._refused.clear()
        for listening in self._sockets:
            listening.close()
        if self._handshakes is not None:
            self._handshakes.close()

    def _add_readers(self) -> None:
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._acceptable, listening)

    def _remove_readers(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())

    def _acceptable(self, listening: socket.socket) -> None:
        door = None if listening.family == socket.AF_UNIX else self._door
        for _ in range(ACCEPTS_PER_TURN):
            if self._closed:
                return
            if door is not None and (wait_s := door.wait_s()) > 0:
                self._loop.remove_reader(listening.fileno())
                self._wait = self._loop.call_later(wait_s, self._waited, listening)
                return
            try:
                connected, _peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                if problem.errno in OUT_OF_RESOURCES:
                    self._pause(problem)
                    return
                # The peer gave up between its connect and our accept. Others may still wait.
                logger.debug("accept failed address=%s error=%s", self._address, problem)
                continue
            self._accepted(connected)

    def _waited(self, listening: socket.socket) -> None:
        self._wait = None
        if self._resume is None:
            self._loop.add_reader(listening.fileno(), self._acceptable, listening)

    def _refuse(self, connected: socket.socket, delay_s: float) -> None:
        if delay_s <= 0 or len(self._refused) >= REFUSED_MAX:
            connected.close()
            return

        def close() -> None:
            del self._refused[connected]
            connected.close()

        self._refused[connected] = self._loop.call_later(delay_s, close)

    def _pause(self, problem: OSError) -> None:
        """Out of descriptors: the listener would stay readable, and the loop would spin until one is free."""
        logger.error(
            "accept paused address=%s seconds=%s error=%s", self._address, ACCEPT_PAUSE_S, problem
        )
        self._remove_readers()
        self._resume = self._loop.call_later(ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume = None
        self._add_readers()

    def _accepted(self, connected: socket.socket) -> None:
        try:
            prepare(connected)
            if connected.family == socket.AF_UNIX:
                if not unix_sockets.is_of_our_user(connected):
                    raise PermissionError(errno.EPERM, "a process of another user")
            elif self._door is not None and (
                (delay_s := self._door.refusal(address_of(connected.getpeername())[0])) is not None
            ):
                self._refuse(connected, delay_s)
                return
            elif self._handshakes is not None:
                self._handshakes.accepted(
                    connected, self._memory, self._frame_bytes_max, self._accept
                )
                return
            connection = SocketConnection(
                self._loop, self._memory, connected, self._frame_bytes_max, accepted=True
            )
            if connected.family == socket.AF_UNIX:
                connection.identity = LOCAL
        except OSError as problem:  # already gone again
            logger.debug("accept failed address=%s error=%s", self._address, problem)
            connected.close()
            return
        connection.start_accepted(self._accept)


class RealNetwork:
    """TCP on this machine, for one event loop. `near`: nodes of this machine use Unix sockets between them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, near: bool = False) -> None:
        self._loop = loop
        self._near = near
        self.memory = ReceiveMemory(loop.time)
        hang_ups_of(loop)  # its descriptor is taken now, not when there are none left

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> SocketListener:
        problems: list[OSError] = []
        for family, address in await self._resolve(host, port, passive=True):
            listening = socket.socket(family, socket.SOCK_STREAM)
            try:
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    # No host: both families, on every address. A given host: only its own family.
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ""))
                listening.bind(address)
                listening.listen(BACKLOG)
            except OSError as problem:
                listening.close()
                problems.append(problem)
                continue
            sockets = [listening]
            if self._near:
                second = unix_sockets.listen(listening, BACKLOG)
                sockets += [second] if second is not None else []
            secured = cast("RealTls | None", tls)
            return SocketListener(
                self._loop, self.memory, sockets, accept, frame_bytes_max, secured, door
            )
        raise _with_place(problems, "listen on", host, port)

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> SocketConnection:
        problems: list[OSError] = []
        for family, address in await self._resolve(host, port, passive=False):
            found = unix_sockets.connect(address[0], address[1]) if self._near else None
            connecting = found or socket.socket(family, socket.SOCK_STREAM)
            try:
                prepare(connecting)
                if found is None:
                    await self._loop.sock_connect(connecting, address)
                connection: SocketConnection
                if found is None and tls is not None:
                    connection = await cast("RealTls", tls).connect(
                        self._loop, self.memory, connecting, host, frame_bytes_max
                    )
                else:
                    connection = SocketConnection(
                        self._loop, self.memory, connecting, frame_bytes_max, accepted=False
                    )
                    connection.identity = None if found is None else LOCAL
                if connection.local == connection.peer:
                    # When nothing listens on a port of the ephemeral range, TCP may pick that same port for our side,
                    # and connect us to ourselves.
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
            except OSError as problem:
                connecting.close()
                problems.append(problem)
                continue
            except BaseException:  # cancelled, by the caller's time limit
                connecting.close()
                raise
            connection.start_opened(receiver)
            return connection
        raise _with_place(problems, "connect to", host, port)

    async def _resolve(
        self, host: str, port: int, *, passive: bool
    ) -> list[tuple[socket.AddressFamily, Any]]:
        """Addresses to try. IPv4 comes first, so that both sides resolve "localhost" to the same one."""
        if not host and passive and socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]
        try:  # a numeric address needs no thread
            found = socket.getaddrinfo(
                host or "0.0.0.0",
                port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        except socket.gaierror:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(family, address) for family, _type, _protocol, _name, address in found]
        return sorted(addresses, key=lambda found: found[0] != socket.AF_INET)


def _with_place(problems: list[OSError], verb: str, host: str, port: int) -> OSError:
    """The last problem, of the same type, with a text that says what was tried."""
    problem = problems[-1] if problems else OSError(errno.EADDRNOTAVAIL, "no address found")
    return type(problem)(problem.errno, f"cannot {verb} {host}:{port}: {problem.strerror}")
