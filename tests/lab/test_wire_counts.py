"""What is counted on the wire is what was sent: every frame and every byte, in both directions (P46, P49)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ottla.lab.wire_counts import Line, WireCounts, WireProtocol
from ottla.runtime import Connection
from ottla.sim.engine.world import SimHost, World
from ottla.wire.apis import ApiKey
from ottla.wire.headers import request_frame, response_header

PORT, KAFKA_PORT = 7, 9092
EVENT = b"!"
PROTOCOL = WireProtocol(
    request_kind=lambda frame: bytes(frame).split(b" ")[0].decode(),
    event_kind=lambda frame: "news" if bytes(frame[:1]) == EVENT else None,
    records_in_request=lambda kind, frame: bytes(frame).count(b"r"),
    records_in_response=lambda kind, frame: bytes(frame).count(b"R") if kind == "get" else 0,
)
SIZE_BYTES = 4


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(SIZE_BYTES, "big") + content


class Server:
    """Answers each frame with the next of its answers: a frame or several."""

    def __init__(self, connection: Connection, answers: Iterator[list[bytes]]) -> None:
        self._connection = connection
        self._answers = answers

    def frame_received(self, frame: memoryview) -> None:
        for answer in next(self._answers):
            self._connection.send([answer])

    def connection_lost(self, reason: str) -> None:
        pass


class Client:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.received: list[bytes] = []

    def frame_received(self, frame: memoryview) -> None:
        self.received.append(framed(bytes(frame)))

    def connection_lost(self, reason: str) -> None:
        pass


@dataclass
class Bench:
    world: World
    counts: WireCounts
    host: SimHost

    def talk(self, server: str, port: int, talk: list[tuple[bytes, list[bytes]]]) -> None:
        """Each frame and its answers, one after the other, over a connection of its own."""
        answering = self.world.node(server)
        answers = iter([each for _, each in talk])
        answering.complete(
            answering.runtime.network.listen(
                server, port, lambda c: Server(c, answers), frame_bytes_max=1000
            )
        )
        clients: list[Client] = []

        def connected(connection: Connection) -> Client:
            clients.append(Client(connection))
            return clients[0]

        self.host.complete(self.host.runtime.network.connect(server, port, connected))
        (client,) = clients
        expected: list[bytes] = []
        for frame, answered in talk:
            # In two chunks: what is counted is the whole.
            client.connection.send([frame[:3], memoryview(frame)[3:]])
            expected.extend(answered)
            assert self.world.run_until(lambda: len(client.received) == len(expected), 5)
        assert client.received == expected, "the counter changes nothing"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with World(1) as world:
        counts = WireCounts(protocols={PORT: PROTOCOL})
        host = world.node("a")
        host.runtime = counts.counted("a", host.runtime)
        yield Bench(world, counts, host)


GET = Line("get", "a", "b", PORT)
PUT = Line("put", "a", "b", PORT)
NEWS = Line("news", "a", "b", PORT)
TALK = [
    (framed(b"get x"), [framed(b"RR and more")]),
    (framed(b"put rrr"), [framed(b"R")]),
    (framed(b"get nothing"), [framed(b"")]),
    (framed(b"get late"), [framed(b"!changed"), framed(b"R"), framed(b"!")]),
]


def test_P49_every_frame_and_every_byte_of_a_conversation_is_counted(bench: Bench) -> None:
    bench.talk("b", PORT, TALK)
    counts = bench.counts
    assert counts.requests == {GET: 3, PUT: 1}
    assert counts.responses == {GET: 3, PUT: 1}
    # A size and the content: 4 + 5, 4 + 11 and 4 + 8; 4 + 7.
    assert counts.request_bytes == {GET: 9 + 15 + 12, PUT: 11}
    # 4 + 11, 4 + 0 and 4 + 1; 4 + 1.
    assert counts.response_bytes == {GET: 15 + 4 + 5, PUT: 5}
    assert counts.events == {NEWS: 2}
    assert counts.event_bytes == {NEWS: 12 + 5}
    assert counts.carriers == {GET: 2, PUT: 1}
    assert counts.records == {GET: 2 + 1, PUT: 3}
    frames = [frame for asked, answered in TALK for frame in (asked, *answered)]
    assert counts.messages == len(frames)
    assert counts.bytes == sum(map(len, frames))


def test_P46_a_request_of_kafka_is_counted_by_its_name_and_with_its_header(bench: Bench) -> None:
    asked = request_frame(ApiKey.FETCH, 18, 5, "a", b"body")
    answered = framed(response_header(ApiKey.FETCH, 18, 5) + b"answer")
    bench.talk("c", KAFKA_PORT, [(asked, [answered])])
    line = Line("fetch", "a", "c", KAFKA_PORT)
    counts = bench.counts
    # Size 4, key 2, version 2, correlation id 4, client id 2 + 1, no tagged fields 1, body 4.
    assert (counts.requests, counts.request_bytes) == ({line: 1}, {line: 20})
    # Size 4, correlation id 4, no tagged fields 1, body 6.
    assert (counts.responses, counts.response_bytes) == ({line: 1}, {line: 15})
    assert not counts.events and not counts.event_bytes
    assert not counts.carriers and not counts.records, "nobody asked for them"
    assert (counts.number_of("fetch"), counts.number_of("fetch", PORT)) == (1, 0)


def test_P46_only_what_was_sent_since_a_copy_is_in_the_difference(bench: Bench) -> None:
    bench.talk("b", PORT, TALK)
    before = bench.counts.copy()
    bench.talk("c", PORT, TALK[1:2])
    since, line = bench.counts.since(before), Line("put", "a", "c", PORT)
    assert since == WireCounts(
        requests=Counter({line: 1}),
        responses=Counter({line: 1}),
        request_bytes=Counter({line: 11}),
        response_bytes=Counter({line: 5}),
        carriers=Counter({line: 1}),
        records=Counter({line: 3}),
        protocols={PORT: PROTOCOL},
    )
    assert before == bench.counts.where(lambda each: each.server == "b"), "a copy stays as it was"
    assert before.events == {NEWS: 2} and before.event_bytes == {NEWS: 17}
