"""A hostile client: it sends garbage, and repeats requests of other clients.

Garbage: random bytes, negative or huge sizes, frames that end too soon, bodies that cannot be parsed, unknown requests and
versions. A node closes that connection, and no other connection is affected.

Replay: a request that another client or broker sent earlier, sent again on another connection to any node. A batch of an
idempotent producer is in the log already, or its producer is fenced. A request of a broker to the controllers from before
its restart carries a former epoch. The other checkers find out whether it did any harm.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.records.batch import NO_PRODUCER_ID, batches
from ottla.runtime import Connection
from ottla.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.engine.process import SimProcess, current_process
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.coverage import mark
from ottla.wire import produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.headers import request_frame

RATE = 0.3
"""The share of seeds that have a hostile client."""
KEPT = 200
"""The last requests of each kind that are kept to be repeated."""
PATIENCE_S = 1.0
OF_BROKERS = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
)
"""Repeated only after the process that sent them has ended."""
FRAME_SIZE_MAX = 2**31 - 1


@dataclass
class HostilePlan:
    pause_s: float
    replay: float
    """The share of replays."""

    @staticmethod
    def draw(seed: int) -> HostilePlan | None:
        chance = random.Random(f"{seed}/vandal")
        if chance.random() >= RATE:
            return None
        return HostilePlan(chance.choice((0.1, 0.5, 2.0)), chance.choice((0.0, 0.5, 1.0)))

    def describe(self) -> str:
        return f"every {self.pause_s} s, {self.replay:.0%} of it replays"


class Recorded(NamedTuple):
    key: ApiKey
    version: int
    body: bytes
    client_id: str
    sender: SimProcess | None


class _AnswerReceiver:
    """The receiver of a connection: it only notes that there was an answer, or that the connection was closed."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def frame_received(self, frame: memoryview) -> None:
        self.answered.set()

    def connection_lost(self, reason: str) -> None:
        self.answered.set()


class HostileClient:
    def __init__(
        self,
        plan: HostilePlan,
        host: SimHost,
        nodes: Sequence[str],
        chance: random.Random,
        *,
        records_expire: bool,
    ) -> None:
        """`records_expire`: then a replica may have forgotten a producer, and take any of its batches for the first, as
        Kafka does; so Produce requests are not repeated."""
        self.is_stopping = False
        self._plan = plan
        self._network = host.runtime.network
        self._nodes = nodes
        self._random = chance
        self._recorded: dict[ApiKey, deque[Recorded]] = {
            key: deque(maxlen=KEPT)
            for key in (*OF_BROKERS, *(() if records_expire else (ApiKey.PRODUCE,)))
        }

    def listening(self) -> AbstractContextManager[None]:
        """Record the requests of all clients and nodes, as long as this lasts."""
        call = Channel.call

        def called(
            self_: Channel, key: int, version: int, body: bytes, answered: Any, **more: Any
        ) -> None:
            if key in self._recorded and _may_be_repeated(ApiKey(key), version, body):
                sender = current_process.get()
                request = Recorded(ApiKey(key), version, bytes(body), self_.client_id, sender)
                keep = self._recorded[request.key].append
                if request.key is not ApiKey.PRODUCE:
                    keep(request)
                elif answered is not None:
                    answered = _if_written(request, answered, keep)
            call(self_, key, version, body, answered, **more)

        return patched([Patch(Channel, "call", called)])

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._plan.pause_s))
            replays = self._random.random() < self._plan.replay
            request = self._former_request() if replays else None
            if request is not None:
                at = BROKER_PORT if request.key is ApiKey.PRODUCE else CONTROLLER_PORT
                number = self._random.getrandbits(31)
                frame = request_frame(
                    request.key, request.version, number, request.client_id, request.body
                )
                await self._send(at, [frame], "request replayed")
            elif not replays:
                garbage: Callable[[], bytes] = self._random.choice(
                    (
                        self._noise,
                        self._impossible_size,
                        self._broken_body,
                        self._cut_short,
                        self._unknown_request,
                    )
                )
                await self._send(
                    self._random.choice((BROKER_PORT, CONTROLLER_PORT)), [garbage()], "garbage sent"
                )

    async def _send(self, port: int, frames: Sequence[bytes], word: str) -> None:
        receiver = _AnswerReceiver()
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection: Connection = await self._network.connect(
                    self._random.choice(self._nodes), port, lambda _: receiver
                )
        except (OSError, TimeoutError):
            return
        connection.send(frames)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await receiver.answered.wait()
            mark(word)
        except TimeoutError:
            pass  # it waits for the rest of the frame
        if self._random.random() < 0.5:
            connection.abort()
        else:
            connection.close()

    def _former_request(self) -> Recorded | None:
        known = [
            request
            for requests in self._recorded.values()
            for request in requests
            if request.key not in OF_BROKERS
            or (request.sender is not None and not request.sender.alive)
        ]
        return self._random.choice(known) if known else None

    # Garbage

    def _noise(self, longest: int = 300) -> bytes:
        return self._random.randbytes(self._random.randint(1, longest))

    def _impossible_size(self) -> bytes:
        size = self._random.choice((-1, -(2**31), FRAME_SIZE_MAX, self._random.getrandbits(31)))
        return size.to_bytes(4, "big", signed=True) + self._noise()

    def _frame(self, key: int, version: int, body: bytes) -> bytes:
        """A frame with a request header, also for unknown requests and versions."""
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + self._random.randbytes(4)
        content = head + b"\xff\xff" + self._random.choice((b"", b"\x00")) + body
        return len(content).to_bytes(4, "big") + content

    def _some_api(self) -> tuple[int, int]:
        key = self._random.choice(list(APIS))
        return key, self._random.randint(APIS[key].min_version, APIS[key].max_version)

    def _broken_body(self) -> bytes:
        key, version = self._some_api()
        return self._frame(key, version, self._random.choice((b"", self._noise())))

    def _cut_short(self) -> bytes:
        """A request without its end; its size field is that of the whole request, or of what is sent."""
        known = [each for requests in self._recorded.values() for each in requests]
        if not known:
            return self._broken_body()
        request = self._random.choice(known)
        if self._random.random() < 0.5:
            frame = request_frame(request.key, request.version, 0, "vandal", request.body)
            return frame[: self._random.randrange(1, len(frame))]
        body = request.body[: self._random.randrange(len(request.body))]
        return request_frame(request.key, request.version, 0, "vandal", body)

    def _unknown_request(self) -> bytes:
        key, version = self._some_api()
        if self._random.random() < 0.5:
            key = self._random.randint(max(APIS) + 1, 2**15 - 1)
        else:
            version = self._random.randint(APIS[ApiKey(key)].max_version + 1, 2**15 - 1)
        return self._frame(key, version, self._noise())


def _if_written(
    request: Recorded, answered: Callable[[memoryview, int], None], keep: Callable[[Recorded], None]
) -> Callable[[memoryview, int], None]:
    """Keep a Produce request only if it was acknowledged. Otherwise it might arrive before earlier batches of its producer
    and be taken for the first one, as Kafka does; the earlier ones would be refused then."""

    def keep_if_written(frame: memoryview, at: int) -> None:
        if not any(
            each.error for each in produce.read_response(request.version, frame, at).results
        ):
            keep(request)
        answered(frame, at)

    return keep_if_written


def _may_be_repeated(key: ApiKey, version: int, body: bytes) -> bool:
    """Not a batch without producer id: a broker would write it twice."""
    if key is not ApiKey.PRODUCE:
        return True
    request = produce.read_request(version, memoryview(bytearray(body)), 0)
    return all(
        part.records is not None
        and all(batch.producer_id != NO_PRODUCER_ID for batch in batches(part.records))
        for part in request.partitions
    )
