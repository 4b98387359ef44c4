"""Messages between nodes that a golden script holds back and releases.

A `MessageInterceptor` is between a host and its network, and knows every connection that the host opens. A connection
carries whole requests and responses. If one is held, everything behind it on the same connection and in the same
direction waits with it, because TCP keeps the order. A message is lost only with its connection: there is no other way
in which a request gets lost between two live processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.runtime import Network, Runtime
from ottla.sim.engine.loop import SimLoop
from ottla.sim.engine.process import current_process
from ottla.sim.engine.watched_connection import WatchedConnection, WatchedNetwork
from ottla.wire.apis import ApiKey
from ottla.wire.headers import RequestHeader, read_request_header


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


class InterceptedConnection(WatchedConnection):
    def __init__(
        self, interceptor: MessageInterceptor, client: str, server: str, port: int
    ) -> None:
        self.interceptor = interceptor
        self.client = client
        self.server = server
        self.port = port
        self.requests: deque[InterceptedMessage] = deque()
        self.answers: deque[InterceptedMessage] = deque()
        self._outstanding: deque[InterceptedMessage] = deque()
        self._process = current_process.get()
        self._context = copy_context()

    def opened(self) -> None:
        self.interceptor.connections.append(self)

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

    # Towards the network

    def request_sent(self, frame: bytes) -> None:
        header = read_request_header(memoryview(frame))
        kind = MessageKind(ApiKey(header.api_key), self.port)
        message = InterceptedMessage(self, kind, header, frame)
        if self.requests or self.interceptor.is_held(message):
            self.requests.append(message)
        else:
            self._forward(message)

    def _forward(self, message: InterceptedMessage) -> None:
        self._outstanding.append(message)
        super().request_sent(message.frame)

    # Towards the program

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


class InterceptedNetwork(WatchedNetwork):
    def __init__(self, interceptor: MessageInterceptor, name: str, network: Network) -> None:
        super().__init__(network)
        self._interceptor = interceptor
        self._name = name

    def watch(self, host: str, port: int) -> InterceptedConnection:
        return InterceptedConnection(self._interceptor, self._name, host, port)
