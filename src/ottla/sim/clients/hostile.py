"""Somebody who talks nonsense to the cluster, or repeats what others said long ago.

Garbage: bytes at random, sizes that are negative or huge, frames that end too soon, headers with a body that cannot be
read, requests and versions that nobody knows. A node closes that connection, and nobody else notices.

Replay: a request as it was sent earlier by somebody else, once more on another connection, to any node. A batch of an
idempotent producer is in the log already, or its producer is fenced; what a broker asked of the controllers in a former
life carries an epoch that is over. The checkers of everything else judge whether it did any harm.
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
"""Of the seeds, that have a vandal."""
KEPT = 200
"""Requests of each kind, to be repeated."""
PATIENCE_S = 1.0
OF_BROKERS = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
)
"""Repeated only when the process that sent them is gone."""
FRAME_SIZE_MAX = 2**31 - 1


@dataclass
class HostilePlan:
    pause_s: float
    replay: float
    """How many of its deeds are replays."""

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


class _Answers:
    """The vandal's end of a connection: whatever it is told, it only hears that there was something."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def frame_received(self, frame: memoryview) -> None:
        self.heard.set()

    def connection_lost(self, reason: str) -> None:
        self.heard.set()


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
        """`records_expire`: then replicas may know nothing of a producer whose batches have, and take one of them for
        its first; as Kafka's do."""
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
        """Records requests, as long as this lasts."""
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
                deed: Callable[[], bytes] = self._random.choice(
                    (
                        self._noise,
                        self._impossible_size,
                        self._broken_body,
                        self._cut_short,
                        self._unknown_request,
                    )
                )
                await self._send(
                    self._random.choice((BROKER_PORT, CONTROLLER_PORT)), [deed()], "garbage sent"
                )

    async def _send(self, port: int, frames: Sequence[bytes], word: str) -> None:
        ear = _Answers()
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection: Connection = await self._network.connect(
                    self._random.choice(self._nodes), port, lambda _: ear
                )
        except (OSError, TimeoutError):
            return
        connection.send(frames)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await ear.heard.wait()
            mark(word)
        except TimeoutError:
            pass  # it waits for the rest of a frame, or for others
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
        """Also of what nobody knows."""
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
        """A request without its end: the size says that there is more, or agrees with what there is."""
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
    """A batch that nobody has acknowledged may come before those that its producer sent earlier, and be taken for its
    first, as Kafka's brokers do: they are refused then."""

    def heard(frame: memoryview, at: int) -> None:
        if not any(
            each.error for each in produce.read_response(request.version, frame, at).results
        ):
            keep(request)
        answered(frame, at)

    return heard


def _may_be_repeated(key: ApiKey, version: int, body: bytes) -> bool:
    """Nothing keeps a broker from writing a batch twice that has no producer id."""
    if key is not ApiKey.PRODUCE:
        return True
    request = produce.read_request(version, memoryview(bytearray(body)), 0)
    return all(
        part.records is not None
        and all(batch.producer_id != NO_PRODUCER_ID for batch in batches(part.records))
        for part in request.partitions
    )
