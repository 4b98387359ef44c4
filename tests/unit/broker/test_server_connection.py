"""How a listener deals with clients that ask faster than they can be answered, or do not take their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from socket import SO_RCVBUF, SOL_SOCKET, socket

from ottla.broker.server.connections import (
    EARLY_BYTES_MAX,
    UNANSWERED_MAX,
    Request,
    ServerConnection,
)
from ottla.broker.server.server import Server
from ottla.runtime import QUEUED_BYTES_MAX, Chunk
from ottla.runtime.sockets import RealNetwork
from ottla.wire.apis import ApiKey
from ottla.wire.headers import request_frame

API = ApiKey.API_VERSIONS


def frame(correlation_id: int) -> bytes:
    return request_frame(API, 0, correlation_id, "client", b"")


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.01)


class Kept:
    """Handles nothing: keeps the requests, to be answered when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> None:
        self.requests.append(request)


def server_with(handler: Callable[[Request], None], idle_max_s: float = 600) -> Server:
    return Server(
        "PLAINTEXT",
        {API: handler},
        frame_bytes_max=1 << 20,
        idle_max_s=idle_max_s,
    )


class FakeConnection:
    """The seam's connection; counts what is sent and knows whether it is read."""

    def __init__(self) -> None:
        self.peer = ("10.0.0.9", 4242)
        self.local = ("10.0.0.1", 9092)
        self.closed = False
        self.queued_bytes = 0
        self.frame_bytes_max = 1 << 30
        self.identity = None
        self.idle_s = 0.0
        self.sent: list[Sequence[Chunk]] = []
        self.is_read = True

    def send(self, chunks: Sequence[Chunk]) -> None:
        self.sent.append(chunks)

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.closed = True


class Asked:
    """A connection on which requests came that wait for their answers."""

    def __init__(self, count: int) -> None:
        self.waiting = Kept()
        self.connection = FakeConnection()
        self.served = ServerConnection(server_with(self.waiting), self.connection)
        for number in range(count):
            self.ask(number)

    def ask(self, number: int) -> None:
        self.served.frame_received(memoryview(bytearray(frame(number)[4:])))

    def answer(self, number: int, size: int = 10) -> None:
        self.waiting.requests[number].respond_chunks([bytes(size)])


def test_a_connection_with_many_unanswered_requests_is_read_again_when_half_are_answered() -> None:
    asked = Asked(UNANSWERED_MAX)
    assert not asked.connection.is_read
    for number in range(UNANSWERED_MAX // 2):
        asked.answer(number)
    assert not asked.connection.is_read
    asked.answer(UNANSWERED_MAX // 2)
    assert asked.connection.is_read


def test_answers_that_wait_for_an_earlier_one_are_bounded_in_bytes() -> None:
    asked = Asked(10)
    quarter = EARLY_BYTES_MAX // 4
    for number in range(1, 5):
        asked.answer(number, quarter)
    assert not asked.connection.is_read, "with its headers it is more than may wait"
    assert asked.connection.sent == []
    asked.answer(0)
    assert len(asked.connection.sent) == 5
    assert asked.connection.is_read, "now the connection has them"
    asked.answer(5, EARLY_BYTES_MAX * 2)
    assert asked.connection.is_read, "the first in line waits for nobody"


def test_what_waits_behind_a_second_slow_answer_still_counts() -> None:
    asked = Asked(10)
    asked.answer(1, EARLY_BYTES_MAX)
    asked.answer(3, EARLY_BYTES_MAX)
    asked.answer(0)
    assert len(asked.connection.sent) == 2 and not asked.connection.is_read
    asked.answer(2)
    assert len(asked.connection.sent) == 4 and asked.connection.is_read


def test_a_held_connection_stays_unread_whatever_is_answered() -> None:
    asked = Asked(2)
    asked.served.hold()
    asked.answer(1, EARLY_BYTES_MAX + 1)
    asked.answer(0)
    assert not asked.connection.is_read
    asked.served.release()
    assert asked.connection.is_read


def test_answers_to_a_connection_that_is_gone_go_nowhere() -> None:
    asked = Asked(3)
    asked.answer(1)
    asked.connection.closed = True
    asked.served.connection_lost("gone")
    asked.answer(0)
    asked.answer(2)
    assert asked.connection.sent == []


def test_who_waits_for_us_is_not_idle_unless_it_leaves_what_it_has_untaken() -> None:
    asked = Asked(1)
    asked.connection.idle_s = 1000.0
    assert asked.served.idle_s == 0, "a fetch may wait as long as it asked for"
    asked.connection.queued_bytes = 1
    assert asked.served.idle_s == 1000
    asked.answer(0)
    asked.connection.queued_bytes = 0
    assert asked.served.idle_s == 1000


Address = tuple[str, int]


def served(handler: Callable[[Request], None], talk: Callable[[Address], Awaitable[None]]) -> None:
    """A real listener, for as long as `talk` takes."""

    async def main() -> None:
        server = server_with(handler)
        network = RealNetwork(asyncio.get_running_loop())
        address = await server.listen(network, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await talk(address)
        finally:
            server.close()

    asyncio.run(main())


def test_a_wait_that_ends_with_more_than_may_be_queued_ends_for_all_that_follow() -> None:
    """The answer to the first request comes last, and what it held back is more than the client takes at
    once: the connection is unread for two reasons, one after the other."""
    size = 2 * QUEUED_BYTES_MAX // UNANSWERED_MAX
    count = UNANSWERED_MAX + 200
    seen: list[Request] = []

    def handler(request: Request) -> None:
        seen.append(request)
        if len(seen) > 1:
            request.respond_chunks([bytes(size)])
        if len(seen) == EARLY_BYTES_MAX // size + 1:  # no further one is read
            asyncio.get_running_loop().call_soon(seen[0].respond_chunks, [bytes(size)])

    async def talk(address: Address) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"".join(frame(number) for number in range(count)))
        for _ in range(count):
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length)
        writer.close()

    served(handler, talk)


def test_who_never_reads_loses_its_connection_when_it_has_been_idle_for_long_enough() -> None:
    async def scenario() -> None:
        server = server_with(
            lambda request: request.respond_chunks([bytes(1 << 20)]), idle_max_s=0.2
        )
        network = RealNetwork(asyncio.get_running_loop())
        address = await server.listen(network, "127.0.0.1", 0)
        with socket() as deaf:
            deaf.setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
            deaf.connect(address)
            deaf.sendall(b"".join(frame(number) for number in range(30)))
            await until(lambda: len(server.connections) == 1)
            await until(lambda: len(server.connections) == 0)
        server.close()

    asyncio.run(scenario())


def test_a_request_is_described_on_one_short_line() -> None:
    """Before any login: a client id of 32 KB of control characters became a line of 188 KB."""
    asked = Asked(0)
    body = request_frame(API, 3, 1, "\x01" * 32_000, b"")[4:]
    asked.served.frame_received(memoryview(bytearray(body)))
    told = asked.waiting.requests[0].describe()
    assert told.isprintable() and len(told) < 2000
