"""TCP between simulated hosts: streams that are delayed, cut, stalled and reset, but never reordered.

This is the operating system's part. It outlives the processes that use it: the host closes the sockets of a killed
process, and a host without power sends nothing. Lost packets are not modelled, because TCP repairs them: a program sees
only delay. In a partition a program sees a stream that stalls, until the partition heals or the connection times out.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.sim.engine.process import SimProcess, current_process

if TYPE_CHECKING:
    from ottla.sim.engine.loop import SimLoop

WINDOW_BYTES = 256 * 1024
"""How much one side may send before the other side reads."""
SEGMENT_BYTES_MAX = 64 * 1024
EPHEMERAL_PORT = 40_000
SYN_RETRY_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""As on Linux: a connect without an answer fails after 127 seconds."""


@dataclass
class NetworkConditions:
    """The behaviour of the network. It may be changed at any time."""

    latency_s: float = 0.0002
    jitter_s: float = 0.0003
    """The mean of an additional delay, which is exponentially distributed."""
    loopback_s: float = 0.00002
    spike_rate: float = 0.0
    """Share of segments that are late by up to `spike_s`, as after a lost packet."""
    spike_s: float = 0.3
    cut_rate: float = 0.1
    """Share of writes that arrive in several segments."""
    reset_rate: float = 0.0
    """Share of segments that reset the connection."""
    refuse_rate: float = 0.0
    """Share of connects that are refused although the port is open."""
    give_up_s: float = 900.0
    """How long the system tries to send data before it fails a connection."""
    slow_links: dict[tuple[str, str], float] = field(default_factory=dict)
    """(from, to) → seconds added to every segment."""


Way: TypeAlias = tuple[str, str]
"""A direction: from one host to another, by their names."""


class SegmentKind(Enum):
    DATA = "data"
    END = "end"
    RESET = "reset"


class SocketUser(Protocol):
    """The program that uses a socket. Its methods are called in its own context."""

    def readable(self) -> None: ...

    def writable(self) -> None: ...


class Host:
    """A machine on the network: a name, an address, and whether it has power."""

    __slots__ = ("address", "listeners", "name", "next_port", "up")

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = True
        self.listeners: dict[int, TcpListener] = {}
        self.next_port = EPHEMERAL_PORT

    def ephemeral_port(self) -> int:
        self.next_port += 1
        return self.next_port


class TcpSocket:
    """One end of a connection."""

    def __init__(
        self,
        network: TcpNetwork,
        process: SimProcess | None,
        context: Context,
        local: tuple[str, int],
        peer: tuple[str, int],
        host: Host,
    ) -> None:
        self._network = network
        self._process = process
        self._context = context
        self.number = network.loop.next_number()
        self.local = local
        self.peer = peer
        self.host = host
        self.other: TcpSocket
        self.user: SocketUser | None = None
        self.inbox: deque[bytes] = deque()
        self.inbox_bytes = 0
        self.ended = False
        """The other side's end of stream has arrived."""
        self.error: OSError | None = None
        self.gone = False
        """Closed by its program, failed, or lost with its host."""
        self._end_sent = False
        self._in_flight: deque[tuple[SegmentKind, bytes]] = deque()
        self._last_arrival_ns = 0
        self._unread_by_peer = 0
        self._wants_room = False
        self._stalled = 0
        """Arrivals that were due while the direction was blocked."""
        self._stall_number = 0
        self._withheld_acknowledgement = 0
        if process is not None:
            process.sockets[self.number] = self

    # Called by the program

    @property
    def room(self) -> int:
        return WINDOW_BYTES - self._unread_by_peer

    def write(self, data: bytes) -> int:
        """Accept as much as the window allows. Returns the number of bytes."""
        assert not self.gone and not self._end_sent
        taken = min(len(data), self.room)
        self._unread_by_peer += taken
        for piece in self._network.cut(data[:taken]):
            if self.gone:
                break  # reset by the network in between
            self._transmit(SegmentKind.DATA, piece)
        return taken

    def wait_for_room(self) -> None:
        """Call `writable` when the other side has read more."""
        self._wants_room = True
        if self.room > 0:
            self._network.loop.after_s(0, self._has_room)

    def read(self) -> bytes:
        """Everything that has arrived."""
        data = b"".join(self.inbox)
        self.inbox.clear()
        self.inbox_bytes = 0
        if data:
            self._acknowledge(len(data))
        return data

    def end(self) -> None:
        """Send the end of the stream."""
        if not self.gone and not self._end_sent:
            self._end_sent = True
            self._transmit(SegmentKind.END, b"")

    def close(self) -> None:
        """As the operating system does it: an orderly end, or a reset if data is unread."""
        if self.gone:
            return
        self._network.loop.trace("close", self.number)
        if self.inbox:
            self._transmit(SegmentKind.RESET, b"")
        elif not self._end_sent:
            self._end_sent = True
            self._transmit(SegmentKind.END, b"")
        self._leave()

    # Events of the network

    def vanish(self) -> None:
        """The host lost its power: the other side receives nothing."""
        self._leave()
        self._in_flight.clear()
        self._stalled = 0

    def fail(self, error: OSError) -> None:
        if self.gone:
            return
        self.error = error
        self._network.loop.trace("fail", self.number, type(error).__name__)
        self._leave()
        self._wake()

    def reset_by_network(self) -> None:
        """Segments in flight are lost, and both ends get a reset."""
        other = self.other
        for end in (self, other):
            end._in_flight.clear()
            end._stalled = 0
        self.fail(_reset_error())
        other.fail(_reset_error())

    @property
    def _is_blocked(self) -> bool:
        """Nothing that this end sends arrives."""
        network = self._network
        return self.number in network.frozen or network.is_blocked(self.host, self.other.host)

    def _leave(self) -> None:
        self.gone = True
        if self._process is not None:
            self._process.sockets.pop(self.number, None)

    def _wake(self) -> None:
        user = self.user
        if user is not None:
            self._network.loop.run_as(self._process, self._context, user.readable)

    def _transmit(self, kind: SegmentKind, data: bytes) -> None:
        network = self._network
        if kind is SegmentKind.DATA and network.draw(network.conditions.reset_rate):
            self.reset_by_network()
            return
        delay_ns = network.delay_ns(self.host, self.other.host)
        self._last_arrival_ns = max(self._last_arrival_ns, network.loop.now_ns + delay_ns)
        self._in_flight.append((kind, data))
        network.loop.at_ns(self._last_arrival_ns, self._arrive)

    def _arrive(self) -> None:
        """The oldest segment in flight reaches the other side, unless the direction is blocked."""
        if not self._in_flight:
            return  # lost with a reset
        network = self._network
        if self._stalled or self._is_blocked:
            self._stall()
            return
        kind, data = self._in_flight.popleft()
        receiver = self.other
        network.loop.trace(kind.value, self.number, len(data), zlib.crc32(data))
        if receiver.gone:
            # The program is dead or has closed the socket: the operating system answers with a reset.
            if kind is SegmentKind.DATA and not self.gone:
                network.loop.after_s(
                    network.delay_ns(receiver.host, self.host) / 1e9, self._refused
                )
            return
        if kind is SegmentKind.RESET:
            receiver.fail(_reset_error())
        elif kind is SegmentKind.END:
            receiver.ended = True
            receiver._wake()
        else:
            receiver.inbox.append(data)
            receiver.inbox_bytes += len(data)
            receiver._wake()

    def _refused(self) -> None:
        network = self._network
        if self.other._is_blocked:
            network.loop.after_s(SYN_RETRY_S[0], self._refused)
        else:
            self.fail(_reset_error())

    def _stall(self) -> None:
        if not self._stalled:
            self._stall_number += 1
            self._network.stalled[self.number] = self
            give_up = self._network.conditions.give_up_s
            self._network.loop.after_s(give_up, self._give_up, self._stall_number)
        self._stalled += 1

    def _give_up(self, stall_number: int) -> None:
        if self._stalled and self._stall_number == stall_number:
            self.fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def try_again(self) -> None:
        """The direction may be free again: send what stalled, in order."""
        network = self._network
        if self._withheld_acknowledgement and not self._is_blocked:
            withheld, self._withheld_acknowledgement = self._withheld_acknowledgement, 0
            self._acknowledge(withheld)
        if self._stalled and not self._is_blocked:
            count, self._stalled = self._stalled, 0
            self._last_arrival_ns = max(
                self._last_arrival_ns, network.loop.now_ns + network.resend_delay_ns()
            )
            for _ in range(count):
                network.loop.at_ns(self._last_arrival_ns, self._arrive)
        if self._stalled or self._withheld_acknowledgement:
            network.stalled[self.number] = self

    def _acknowledge(self, count: int) -> None:
        """Let the other side send this much more. Its program is called only if it waits for room."""
        network, sender = self._network, self.other
        if self._is_blocked:
            self._withheld_acknowledgement += count
            network.stalled[self.number] = self
            return
        sender._unread_by_peer -= count
        assert sender._unread_by_peer >= 0
        if sender._wants_room and not sender.gone:
            network.loop.after_s(network.delay_ns(self.host, sender.host) / 1e9, sender._has_room)

    def _has_room(self) -> None:
        if self._wants_room and self.user is not None and not self.gone:
            self._wants_room = False
            self._network.loop.run_as(self._process, self._context, self.user.writable)


class TcpListener:
    """A port that a program listens on. `accept` is called in that program's context."""

    def __init__(
        self,
        network: TcpNetwork,
        process: SimProcess | None,
        host: Host,
        port: int,
        accept: Callable[[TcpSocket], None],
    ) -> None:
        self.network = network
        self.process = process
        self.context = copy_context()
        self.host = host
        self.port = port
        self.accept = accept
        host.listeners[port] = self
        if process is not None:
            process.listeners[port] = self

    def close(self) -> None:
        if self.host.listeners.get(self.port) is self:
            del self.host.listeners[self.port]
        if self.process is not None:
            self.process.listeners.pop(self.port, None)


class TcpNetwork:
    """All hosts, and the network between them."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.conditions = NetworkConditions()
        self.stalled: dict[int, TcpSocket] = {}
        self._random = loop.random_for("network")
        self._hosts: dict[str, Host] = {}
        self._blocked: Counter[Way] = Counter()
        """The number of faults that block each direction."""
        self.frozen: Counter[int] = Counter()
        """The number of faults that freeze each connection, by the socket of either end."""

    # Hosts

    def host(self, name: str) -> Host:
        """The host of that name, created if it is new."""
        found = self._hosts.get(name)
        if found is None:
            count = len(self._hosts) + 1
            found = self._hosts[name] = Host(name, f"10.0.{count >> 8}.{count & 255}")
        return found

    def resolve(self, name: str, asking: Host) -> Host:
        if name in ("localhost", "127.0.0.1", "::1"):
            return asking
        for host in self._hosts.values():
            if name in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, f"no simulated host is called {name}")

    def getaddrinfo(self, name: str, port: int | str | None) -> list[tuple[object, ...]]:
        host = self.resolve(name, self.here())
        place = (host.address, int(port or 0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]

    def here(self) -> Host:
        """The host of the code that is running."""
        process = current_process.get()
        if process is None:
            raise RuntimeError("only a node has a network: run this with host.run(...)")
        return self._hosts[process.host]

    # Partitions

    def block(self, source: str, target: str) -> None:
        """Block everything from `source` to `target`, but not the other direction."""
        assert source in self._hosts and target in self._hosts, (source, target)
        self._blocked[source, target] += 1
        self.loop.trace("block", source, target)

    def unblock(self, ways: Iterable[Way]) -> None:
        """Remove one block from each direction. A direction is free when no block is left."""
        for way in ways:
            if self._blocked[way] > 1:
                self._blocked[way] -= 1
            else:
                del self._blocked[way]
            self.loop.trace("unblock", *way)
        self.release_stalled()

    def partition(self, *groups: Iterable[str]) -> list[Way]:
        """Hosts of different groups cannot reach each other. A host in no group reaches all. Returns the blocked
        directions.

        Halves: `partition(["a", "b"], ["c", "d"])`. A bridge: `partition(["a"], ["c"])` leaves b between.
        """
        sides = [sorted(group) for group in groups]
        ways = [
            (source, target)
            for side in sides
            for other in sides
            if side is not other
            for source in side
            for target in other
        ]
        for source, target in ways:
            self.block(source, target)
        return ways

    def isolate(self, name: str) -> None:
        """Cut off one host from all others."""
        self.partition([name], [other for other in self._hosts if other != name])

    def heal(self) -> None:
        """Free every direction and connection. What stalled arrives late."""
        self._blocked.clear()
        self.frozen.clear()
        self.loop.trace("heal")
        self.release_stalled()

    def freeze(self, end: TcpSocket) -> None:
        """Nothing passes on this connection, either way; other connections of the same hosts go on. New ones, too."""
        self.frozen.update((end.number, end.other.number))
        self.loop.trace("freeze", end.number, end.other.number)

    def thaw(self, end: TcpSocket) -> None:
        """Take back one `freeze`. The connection is free when none is left."""
        self.frozen.subtract((end.number, end.other.number))
        self.frozen = +self.frozen
        self.loop.trace("thaw", end.number, end.other.number)
        self.release_stalled()

    def is_blocked(self, source: Host, target: Host) -> bool:
        if source.up and target.up and not self._blocked:
            return False
        return not (source.up and target.up) or (source.name, target.name) in self._blocked

    def release_stalled(self) -> None:
        stalled, self.stalled = self.stalled, {}
        for _number, tcp_socket in sorted(stalled.items()):
            tcp_socket.try_again()

    def reset_connections(self, processes: Iterable[SimProcess], peer: str | None = None) -> int:
        """Reset the connections of these processes (only those to `peer`, if given). Returns how many."""
        count = 0
        for process in processes:
            for _number, tcp_socket in sorted(process.sockets.items()):
                if peer is None or tcp_socket.other.host.name == peer:
                    tcp_socket.reset_by_network()
                    count += 1
        return count

    # Randomness

    def draw(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate

    def delay_ns(self, source: Host, target: Host) -> int:
        conditions = self.conditions
        if source is target:
            return int(conditions.loopback_s * 1e9)
        delay = conditions.latency_s
        if conditions.jitter_s:
            delay += self._random.expovariate(1 / conditions.jitter_s)
        if self.draw(conditions.spike_rate):
            delay += self._random.uniform(0, conditions.spike_s)
        if conditions.slow_links:
            delay += conditions.slow_links.get((source.name, target.name), 0.0)
        return int(delay * 1e9)

    def resend_delay_ns(self) -> int:
        return int(self._random.uniform(0.0, 0.4) * 1e9)

    def cut(self, data: bytes) -> list[bytes]:
        """The segments of a write."""
        if not data:
            return []
        cuts = list(range(SEGMENT_BYTES_MAX, len(data), SEGMENT_BYTES_MAX))
        if len(data) > 1 and self.draw(self.conditions.cut_rate):
            cuts += [
                self._random.randrange(1, len(data)) for _ in range(self._random.randint(1, 4))
            ]
        if not cuts:
            return [data]
        edges = [0, *sorted(set(cuts)), len(data)]
        return [data[start:end] for start, end in pairwise(edges)]

    # Connections

    def listen(self, host: Host, port: int, accept: Callable[[TcpSocket], None]) -> TcpListener:
        port = port or host.ephemeral_port()
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {host.name} is in use")
        self.loop.trace("listen", host.name, port)
        return TcpListener(self, current_process.get(), host, port, accept)

    async def connect(self, source: Host, name: str, port: int) -> TcpSocket:
        target = self.resolve(name, source)
        answer: asyncio.Future[TcpSocket] = self.loop.create_future()
        attempt = ConnectAttempt(self, source, target, port, answer)
        self.loop.after_s(self.delay_ns(source, target) / 1e9, attempt.arrive)
        try:
            return await answer
        except asyncio.CancelledError:
            attempt.abandon()
            raise


class ConnectAttempt:
    """A handshake: sends a SYN, repeats it while there is no answer, and finally gives up."""

    def __init__(
        self,
        network: TcpNetwork,
        source: Host,
        target: Host,
        port: int,
        answer: asyncio.Future[TcpSocket],
    ) -> None:
        self._network = network
        self._process = current_process.get()
        self._context = copy_context()
        self._source = source
        self._target = target
        self._port = port
        self._answer = answer
        self._retries = iter(SYN_RETRY_S)
        self._socket: TcpSocket | None = None

    def arrive(self) -> None:
        network, source, target = self._network, self._source, self._target
        if self._answer.done() or (self._process is not None and not self._process.alive):
            return
        if network.is_blocked(source, target) or network.is_blocked(target, source):
            wait = next(self._retries, None)
            if wait is None:
                self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            else:
                network.loop.after_s(wait, self.arrive)
            return
        back_s = network.delay_ns(target, source) / 1e9
        listener = target.listeners.get(self._port)
        if listener is None or network.draw(network.conditions.refuse_rate):
            error = ConnectionRefusedError(
                errno.ECONNREFUSED, f"nothing listens on {target.name}:{self._port}"
            )
            network.loop.after_s(back_s, self._fail, error)
            return
        here = (source.address, source.ephemeral_port())
        there = (target.address, self._port)
        ours = TcpSocket(network, self._process, self._context, here, there, source)
        theirs = TcpSocket(network, listener.process, listener.context, there, here, target)
        ours.other, theirs.other = theirs, ours
        self._socket = ours
        network.loop.trace("connect", ours.number, theirs.number, source.name, target.name)
        network.loop.run_as(listener.process, listener.context, lambda: listener.accept(theirs))
        network.loop.after_s(back_s, self._succeed, ours)

    def abandon(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _succeed(self, ours: TcpSocket) -> None:
        self._complete(lambda: self._answer.set_result(ours))

    def _fail(self, error: OSError) -> None:
        self._complete(lambda: self._answer.set_exception(error))

    def _complete(self, set_answer: Callable[[], None]) -> None:
        if not self._answer.done():
            self._network.loop.run_as(
                self._process, self._context, lambda: None if self._answer.done() else set_answer()
            )


def _reset_error() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
