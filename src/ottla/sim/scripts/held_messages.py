"""Requests between nodes that travel only when they are told to.

A `PostOffice` lies between a node and its network and knows every connection that the node opens. What a
connection carries is whole requests and answers: one that is held waits, and everything behind it on the same
connection and in the same direction waits with it, because TCP keeps the order. Losing a message is losing its
connection; there is no other way in which a request gets lost between two live processes.
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
)
from ottla.runtime.seams import Listener
from ottla.sim.engine.loop import SimLoop
from ottla.sim.engine.process import current_process
from ottla.wire.apis import ApiKey
from ottla.wire.headers import RequestHeader, read_request_header

SIZE_BYTES = 4


class Kind(NamedTuple):
    """What messages a script tells apart: Fetch means one thing to a broker, another to a controller."""

    api: ApiKey
    port: int


@dataclass(eq=False)
class Message:
    """A request, or the answer to one."""

    link: Link
    kind: Kind
    header: RequestHeader
    frame: bytes
    """Without its size."""
    request: Message | None = None
    """What it answers; None for a request."""


class PostOffice:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.links: list[Link] = []
        self._held: dict[tuple[Kind, str], None] = {}

    def between(self, name: str, runtime: Runtime) -> Runtime:
        """The runtime of the host of that name, with the post office between it and its network."""
        network = PostedNetwork(self, name, runtime.network)
        return replace(runtime, network=network)

    def hold(self, kind: Kind, asker: str) -> None:
        """From now on such requests of that host, and the answers to them, wait."""
        self._held[kind, asker] = None

    def release(self, kind: Kind, asker: str) -> None:
        """They no longer wait; those that did go on."""
        self._held.pop((kind, asker), None)
        for link in self.living():
            link.let_through()

    def living(self) -> list[Link]:
        """Connections whose process lives: a killed one says good-bye to nobody."""
        self.links = [link for link in self.links if link.is_alive]
        return self.links

    def is_held(self, message: Message) -> bool:
        return (message.kind, message.link.asker) in self._held

    def waiting(self, kind: Kind, asker: str, *, answers: bool) -> list[Message]:
        """The messages of that kind that wait to be let through, the oldest first, one of a connection."""
        queues = [
            link.answers if answers else link.requests
            for link in self.living()
            if link.asker == asker
        ]
        return [queue[0] for queue in queues if queue and queue[0].kind == kind]


@dataclass(eq=False)
class Link:
    """One connection as the host sees it that opened it."""

    office: PostOffice
    asker: str
    asked: str
    port: int
    connection: Connection = field(init=False)
    receiver: FrameReceiver = field(init=False)
    requests: deque[Message] = field(default_factory=deque)
    answers: deque[Message] = field(default_factory=deque)
    _outstanding: deque[Message] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._process = current_process.get()
        self._context = copy_context()

    @property
    def is_alive(self) -> bool:
        return self._process is None or self._process.alive

    def let_through(self, message: Message | None = None) -> None:
        """`message`, which is the first in its queue; and then whatever is not held."""
        for queue, forward in ((self.requests, self._forward), (self.answers, self._hand_over)):
            while queue and (queue[0] is message or not self.office.is_held(queue[0])):
                first = queue.popleft()
                self._as_owner(lambda first=first, forward=forward: forward(first))  # type: ignore[misc]

    def lose(self) -> None:
        """The connection breaks, with everything that is on it."""
        self._as_owner(self.connection.abort)

    def _as_owner(self, work: Callable[[], None]) -> None:
        self.office.loop.run_as(self._process, self._context, work)

    # The connection, to the program that opened it

    @property
    def peer(self) -> tuple[str, int]:
        return self.connection.peer

    @property
    def local(self) -> tuple[str, int]:
        return self.connection.local

    @property
    def closed(self) -> bool:
        return self.connection.closed

    @property
    def queued_bytes(self) -> int:
        return self.connection.queued_bytes

    def pause_reading(self) -> None:
        self.connection.pause_reading()

    def resume_reading(self) -> None:
        self.connection.resume_reading()

    def close(self) -> None:
        self.connection.close()

    def abort(self) -> None:
        self.connection.abort()

    def send(self, chunks: Sequence[Chunk]) -> None:
        frame = b"".join(c.read() if isinstance(c, FileRange) else bytes(c) for c in chunks)
        assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES, "one request"
        frame = frame[SIZE_BYTES:]
        header = read_request_header(memoryview(frame))
        kind = Kind(ApiKey(header.api_key), self.port)
        message = Message(self, kind, header, frame)
        if self.requests or self.office.is_held(message):
            self.requests.append(message)
        else:
            self._forward(message)

    def _forward(self, message: Message) -> None:
        self._outstanding.append(message)
        size = len(message.frame).to_bytes(SIZE_BYTES, "big")
        self.connection.send([size, message.frame])

    # The receiver, to the network

    def frame_received(self, frame: memoryview) -> None:
        request = self._outstanding.popleft()
        message = Message(self, request.kind, request.header, bytes(frame), request)
        if self.answers or self.office.is_held(message):
            self.answers.append(message)
        else:
            self._hand_over(message)

    def _hand_over(self, message: Message) -> None:
        if not self.closed:
            self.receiver.frame_received(memoryview(bytearray(message.frame)))

    def connection_lost(self, reason: str) -> None:
        self.requests.clear()
        self.answers.clear()
        self.office.links.remove(self)
        self.receiver.connection_lost(reason)


class PostedNetwork:
    """A host's network; only what it asks others goes through the post office."""

    def __init__(self, office: PostOffice, name: str, network: Network) -> None:
        self._office = office
        self._name = name
        self._network = network

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[AcceptedConnection], FrameReceiver],
        *,
        frame_bytes_max: int,
    ) -> Listener:
        return await self._network.listen(host, port, accept, frame_bytes_max=frame_bytes_max)

    async def connect(
        self,
        host: str,
        port: int,
        receiver: Callable[[Connection], FrameReceiver],
        *,
        frame_bytes_max: int = 1 << 30,
    ) -> Connection:
        link = Link(self._office, self._name, host, port)

        def connected(connection: Connection) -> FrameReceiver:
            link.connection = connection
            link.receiver = receiver(link)
            self._office.links.append(link)
            return link

        await self._network.connect(host, port, connected, frame_bytes_max=frame_bytes_max)
        return link
