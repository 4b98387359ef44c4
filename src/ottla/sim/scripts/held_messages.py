"""Messages between nodes that a golden script holds back and releases.

A `MessageInterceptor` is between a host and its network, and knows every connection that the host opens. A connection
carries whole requests and responses. If one is held, everything behind it on the same connection and in the same
direction waits with it, because TCP keeps the order. A message is lost only with its connection: there is no other way
in which a request gets lost between two live processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.runtime import (
    AcceptedConnection,
    Chunk,
    Connection,
    FileRange,
    FrameReceiver,
    Network,
    Runtime,
    Tls,
)
from ottla.runtime.seams import Door, Listener
from ottla.sim.engine.loop import SimLoop
from ottla.sim.engine.process import current_process
from ottla.wire.apis import ApiKey
from ottla.wire.headers import RequestHeader, read_request_header

SIZE_BYTES = 4


class MessageKind(NamedTuple):
    """How a script names messages. The port tells a Fetch to a broker from a Fetch to a controller."""

    api: ApiKey
    port: int


@dataclass(eq=False)
class InterceptedMessage:
    """A request, or the response to one."""

    connection: InterceptedConnection
    kind: MessageKind
    header: RequestHeader
    frame: bytes
    """Without its size."""
    request: InterceptedMessage | None = None
    """The request of a response; None for a request."""


class MessageInterceptor:
    """Which messages are held, on all connections that the hosts open."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.connections: list[InterceptedConnection] = []
        self._held: dict[tuple[MessageKind, str], None] = {}

    def between(self, name: str, runtime: Runtime) -> Runtime:
        """The runtime of the host of that name, with this between the host and its network."""
        network = InterceptedNetwork(self, name, runtime.network)
        return replace(runtime, network=network)

    def hold(self, kind: MessageKind, client: str) -> None:
        """From now on requests of this kind from that host wait, and so do their responses."""
        self._held[kind, client] = None

    def release(self, kind: MessageKind, client: str) -> None:
        """They no longer wait, and those that wait are sent."""
        self._held.pop((kind, client), None)
        for connection in self.living():
            connection.release()

    def living(self) -> list[InterceptedConnection]:
        """Connections whose process lives: a killed process does not close them."""
        self.connections = [connection for connection in self.connections if connection.is_alive]
        return self.connections

    def is_held(self, message: InterceptedMessage) -> bool:
        return (message.kind, message.connection.client) in self._held

    def waiting(self, kind: MessageKind, client: str, *, answers: bool) -> list[InterceptedMessage]:
        """The first waiting message of each connection, if it is of that kind; the oldest connection first."""
        queues = [
            connection.answers if answers else connection.requests
            for connection in self.living()
            if connection.client == client
        ]
        return [queue[0] for queue in queues if queue and queue[0].kind == kind]


@dataclass(eq=False)
class InterceptedConnection:
    """One connection, on the side that opened it: a `Connection` to its program, a `FrameReceiver` to the network."""

    interceptor: MessageInterceptor
    client: str
    server: str
    port: int
    inner: Connection = field(init=False)
    receiver: FrameReceiver = field(init=False)
    requests: deque[InterceptedMessage] = field(default_factory=deque)
    answers: deque[InterceptedMessage] = field(default_factory=deque)
    _outstanding: deque[InterceptedMessage] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._process = current_process.get()
        self._context = copy_context()

    @property
    def is_alive(self) -> bool:
        return self._process is None or self._process.alive

    def release(self, message: InterceptedMessage | None = None) -> None:
        """Send `message`, the first of its queue, and then everything that is not held."""
        for queue, forward in ((self.requests, self._forward), (self.answers, self._deliver)):
            while queue and (queue[0] is message or not self.interceptor.is_held(queue[0])):
                first = queue.popleft()
                self._run_as_owner(lambda first=first, forward=forward: forward(first))  # type: ignore[misc]

    def lose(self) -> None:
        """The connection breaks; everything on it is lost."""
        self._run_as_owner(self.inner.abort)

    def _run_as_owner(self, work: Callable[[], None]) -> None:
        self.interceptor.loop.run_as(self._process, self._context, work)

    # Towards the program: Connection

    @property
    def peer(self) -> tuple[str, int]:
        return self.inner.peer

    @property
    def local(self) -> tuple[str, int]:
        return self.inner.local

    @property
    def closed(self) -> bool:
        return self.inner.closed

    @property
    def queued_bytes(self) -> int:
        return self.inner.queued_bytes

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def send(self, chunks: Sequence[Chunk]) -> None:
        frame = b"".join(c.read() if isinstance(c, FileRange) else bytes(c) for c in chunks)
        assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES, "one request"
        frame = frame[SIZE_BYTES:]
        header = read_request_header(memoryview(frame))
        kind = MessageKind(ApiKey(header.api_key), self.port)
        message = InterceptedMessage(self, kind, header, frame)
        if self.requests or self.interceptor.is_held(message):
            self.requests.append(message)
        else:
            self._forward(message)

    def _forward(self, message: InterceptedMessage) -> None:
        self._outstanding.append(message)
        size = len(message.frame).to_bytes(SIZE_BYTES, "big")
        self.inner.send([size, message.frame])

    # Towards the network: FrameReceiver

    def frame_received(self, frame: memoryview) -> None:
        request = self._outstanding.popleft()
        message = InterceptedMessage(self, request.kind, request.header, bytes(frame), request)
        if self.answers or self.interceptor.is_held(message):
            self.answers.append(message)
        else:
            self._deliver(message)

    def _deliver(self, message: InterceptedMessage) -> None:
        if not self.closed:
            self.receiver.frame_received(memoryview(bytearray(message.frame)))

    def connection_lost(self, reason: str) -> None:
        self.requests.clear()
        self.answers.clear()
        self.interceptor.connections.remove(self)
        self.receiver.connection_lost(reason)


class InterceptedNetwork:
    """The network of a host; only connections that the host opens are intercepted."""

    def __init__(self, interceptor: MessageInterceptor, name: str, network: Network) -> None:
        self._interceptor = interceptor
        self._name = name
        self._network = network

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
        tls: Tls | None = None,
        door: Door | None = None,
    ) -> Listener:
        return await self._network.listen(
            host, port, accept, frame_bytes_max=frame_bytes_max, tls=tls, door=door
        )

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
        tls: Tls | None = None,
    ) -> Connection:
        intercepted = InterceptedConnection(self._interceptor, self._name, host, port)

        def connected(connection: Connection) -> FrameReceiver:
            intercepted.inner = connection
            intercepted.receiver = receiver(intercepted)
            self._interceptor.connections.append(intercepted)
            return intercepted

        await self._network.connect(host, port, connected, frame_bytes_max=frame_bytes_max, tls=tls)
        return intercepted
