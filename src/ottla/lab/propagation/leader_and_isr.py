"""v3: the elected controller sends its decisions to the brokers itself, all of an event in one request (P47).

The request is LeaderAndIsr, which Kafka 4 does not have any more. Brokers take it on a port of its own. One that comes from
an older controller than the newest known is refused. The controller sends a broker one request at a time, and repeats it
until it is answered or the broker's znode is gone.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence

from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.propagation.notification import Notification, notification_of
from ottla.lab.propagation.znodes import RegisteredBroker
from ottla.lab.wire_counts import WireProtocol
from ottla.runtime import Chunk, Connection, FrameReceiver
from ottla.runtime.seams import Listener, Network
from ottla.wire.errors import ErrorCode

LEADER_AND_ISR_PORT = 9094
LEADER_AND_ISR = 4
FRAME_BYTES_MAX = 1 << 26
RETRY_S = 0.1
TIMEOUT_S = 30.0

_REQUEST = struct.Struct(">hhi")
"""api key, version, correlation id: the beginning of every request of Kafka's protocol."""
_RESPONSE = struct.Struct(">ih")
"""correlation id, error code"""

PROTOCOL = WireProtocol(lambda frame: "leader_and_isr", lambda frame: None)


def framed(head: bytes, body: bytes = b"") -> Sequence[Chunk]:
    return [(len(head) + len(body)).to_bytes(4, "big"), head, body]


class DirectMember(ControlledMember):
    _listener: Listener | None = None
    _lines: dict[int, LineToBroker]

    async def begin_receiving(self) -> None:
        if self._listener is None:
            self._lines = {}
            self._listener = await self.runtime.network.listen(
                "",
                LEADER_AND_ISR_PORT,
                lambda connection: RequestReceiver(self, connection),
                frame_bytes_max=FRAME_BYTES_MAX,
            )

    async def begin_sending(self) -> None:
        """Lines are opened when there is something to say."""

    async def notify(self, broker: RegisteredBroker, notification: Notification) -> None:
        line = self._lines.get(broker.id)
        if line is None or line.broker != broker:
            if line is not None:
                line.stop()
            line = self._lines[broker.id] = LineToBroker(self.runtime.network, broker)
        line.send(notification.data())

    def broker_gone(self, broker: int) -> None:
        line = self._lines.pop(broker, None)
        if line is not None:
            line.stop()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            for line in self._lines.values():
                line.stop()


class RequestReceiver:
    """A controller's connection, at the broker."""

    def __init__(self, member: ControlledMember, connection: Connection) -> None:
        self._member = member
        self._connection = connection

    def frame_received(self, frame: memoryview) -> None:
        key, _, correlation_id = _REQUEST.unpack_from(frame)
        assert key == LEADER_AND_ISR, f"request {key}"
        obeyed = self._member.receive(notification_of(bytes(frame[_REQUEST.size :])))
        error = ErrorCode.NONE if obeyed else ErrorCode.STALE_CONTROLLER_EPOCH
        self._connection.send(framed(_RESPONSE.pack(correlation_id, error)))

    def connection_lost(self, reason: str) -> None:
        pass


class LineToBroker:
    """What the controller has to say to one broker, in order."""

    def __init__(self, network: Network, broker: RegisteredBroker) -> None:
        self.broker = broker
        self._network = network
        self._waiting: deque[bytes] = deque()
        self._connection: Connection | None = None
        self._answer: asyncio.Future[None] | None = None
        self._correlation_id = 0
        self._sender: asyncio.Task[None] | None = None

    def send(self, data: bytes) -> None:
        self._waiting.append(data)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    def stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _send_all(self) -> None:
        while self._waiting:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._send(self._waiting[0])
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            else:
                self._waiting.popleft()
        self._sender = None

    async def _send(self, data: bytes) -> None:
        if self._connection is None or self._connection.closed:
            _, host, _ = self.broker.endpoints[0]
            self._connection = await self._network.connect(
                host, LEADER_AND_ISR_PORT, self._received_by
            )
        self._correlation_id += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(framed(_REQUEST.pack(LEADER_AND_ISR, 0, self._correlation_id), data))
        await self._answer

    def _received_by(self, connection: Connection) -> FrameReceiver:
        return self

    def frame_received(self, frame: memoryview) -> None:
        """A broker that knows a newer controller refuses the request. Then there is nothing to repeat."""
        correlation_id, _ = _RESPONSE.unpack(frame)
        answer = self._answer
        if correlation_id == self._correlation_id and answer is not None and not answer.done():
            answer.set_result(None)

    def connection_lost(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))
