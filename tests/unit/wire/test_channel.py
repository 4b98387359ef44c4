"""The client channel against a scripted other side, over connections in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from ottla.runtime.seams import Chunk, Connection, FileRange, FrameReceiver
from ottla.runtime.sockets import RealNetwork
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.headers import RequestHeader, read_request_header, response_chunks, response_header


class Peer:
    """A connection whose other end is the test."""

    peer = ("broker", 9092)
    local = ("client", 1)
    queued_bytes = 0

    def __init__(self) -> None:
        self.closed = False
        self.sent: list[bytes] = []
        self.receiver: FrameReceiver | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        whole = b"".join(c.read() if isinstance(c, FileRange) else bytes(c) for c in chunks)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4
        self.sent.append(whole[4:])

    def headers(self) -> list[RequestHeader]:
        return [read_request_header(memoryview(frame)) for frame in self.sent]

    def receive(self, frame: bytes) -> None:
        assert self.receiver is not None
        self.receiver.frame_received(memoryview(bytearray(frame)))

    def answer(self, request: int, fields: dict[str, Any], version: int | None = None) -> None:
        header = self.headers()[request]
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        body_version = header.api_version if version is None else version
        self.receive(head + messages.write_response(header.api_key, body_version, fields))

    def lose(self, reason: str) -> None:
        self.closed = True
        assert self.receiver is not None
        self.receiver.connection_lost(reason)

    def close(self) -> None:
        if not self.closed:
            self.lose("closed by us")

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class OneConnection:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def connect(
        self, host: str, port: int, receiver: Callable[[Connection], FrameReceiver], **_: Any
    ) -> Connection:
        self.peer.receiver = receiver(self.peer)
        return self.peer

    async def listen(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


def conversation(
    talk: Callable[[Channel, Peer], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> None:
        peer = Peer()
        channel = await Channel.open(OneConnection(peer), "broker", 9092, "tester")
        await talk(channel, peer)

    asyncio.run(main())


async def started(request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    return task


def test_pipelined_requests_get_their_own_answers() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        first = await started(channel.request(ApiKey.METADATA, {"topics": None}))
        second = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}, version=1))
        assert [(header.api_key, header.api_version) for header in peer.headers()] == [
            (ApiKey.METADATA, 13),
            (ApiKey.DESCRIBE_CLUSTER, 1),
        ]
        assert {header.client_id for header in peer.headers()} == {"tester"}
        peer.answer(0, {"cluster_id": "one", "controller_id": 4})
        peer.answer(1, {"cluster_id": "two"})
        assert (await first).controller_id == 4
        assert (await second).cluster_id == "two"

    conversation(talk)


def test_a_call_is_handled_in_place() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        bodies: list[bytes] = []
        channel.call(
            ApiKey.FETCH, 18, b"ask", lambda frame, body: bodies.append(bytes(frame[body:]))
        )
        header = peer.headers()[0]
        assert peer.sent[0][header.body :] == b"ask"
        peer.receive(response_header(ApiKey.FETCH, 18, header.correlation_id) + b"answer")
        assert bodies == [b"answer"]

    conversation(talk)


def test_a_request_without_answer_leaves_nothing_outstanding() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        channel.call(ApiKey.PRODUCE, 9, b"acks=0", None)
        asked = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}))
        peer.answer(1, {"cluster_id": "c"})
        assert (await asked).cluster_id == "c"

    conversation(talk)


def test_outstanding_requests_fail_when_the_connection_is_lost() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        reasons: list[str] = []
        channel.on_close.append(reasons.append)
        asked = [await started(channel.request(ApiKey.METADATA, {})) for _ in range(3)]
        peer.lose("reset by peer")
        for request in asked:
            with pytest.raises(ConnectionError, match="broker:9092: reset by peer"):
                await request
        assert reasons == ["reset by peer"]
        assert channel.closed
        with pytest.raises(ConnectionError):
            await channel.request(ApiKey.METADATA, {})

    conversation(talk)


def test_an_answer_that_comes_too_late_is_dropped_and_the_next_one_still_fits() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        with pytest.raises(TimeoutError):
            await channel.request(ApiKey.DESCRIBE_CLUSTER, {}, timeout_s=0)
        asked = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}))
        peer.answer(0, {"cluster_id": "late"})
        peer.answer(1, {"cluster_id": "in time"})
        assert (await asked).cluster_id == "in time"

    conversation(talk)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\x00\x00\x00\x05\x00", "another correlation id"),
        (b"\x00\x00\x00\x00\x00garbage", "a body that is none"),
        (b"\x00\x00", "a header cut short"),
    ],
)
def test_a_wrong_answer_ends_the_connection(frame: bytes, why: str) -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        asked = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}))
        behind = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}))
        peer.receive(frame)
        with pytest.raises(InvalidFrame):
            await asked
        with pytest.raises(ConnectionError):
            await behind
        assert channel.closed

    conversation(talk)


def test_an_answer_to_nothing_ends_the_connection() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        reasons: list[str] = []
        channel.on_close.append(reasons.append)
        peer.receive(b"\x00\x00\x00\x00\x00")
        assert channel.closed
        assert reasons == ["a response without a request"]

    conversation(talk)


def offered(*ranges: tuple[int, int, int]) -> dict[str, Any]:
    return {
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges
        ]
    }


def test_negotiation_chooses_the_newest_version_that_both_speak() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        asked = await started(channel.negotiate())
        header = peer.headers()[0]
        assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, 4)
        request = messages.read_request(18, 4, memoryview(peer.sent[0]), header.body)
        assert request.client_software_name == "ottla"
        peer.answer(0, offered((3, 0, 9), (1, 4, 99), (0, 14, 20)))
        await asked
        assert channel.version_for(ApiKey.METADATA) == 9
        assert channel.version_for(ApiKey.FETCH) == 18
        for unspoken in (ApiKey.PRODUCE, ApiKey.VOTE):
            with pytest.raises(KafkaError) as raised:
                channel.version_for(unspoken)
            assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION

    conversation(talk)


@pytest.mark.parametrize(("listed", "again"), [((), 0), (((18, 0, 2),), 2)])
def test_negotiation_falls_back_when_its_version_is_refused(
    listed: tuple[tuple[int, int, int], ...], again: int
) -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        asked = await started(channel.negotiate())
        peer.answer(0, {"error_code": 35, **offered(*listed)}, version=0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert peer.headers()[1].api_version == again
        peer.answer(1, offered((3, 0, 5)))
        await asked
        assert channel.version_for(ApiKey.METADATA) == 5

    conversation(talk)


def test_negotiation_that_fails_says_why() -> None:
    async def talk(channel: Channel, peer: Peer) -> None:
        asked = await started(channel.negotiate())
        peer.answer(0, {"error_code": 58})
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
            await asked

    conversation(talk)


def test_a_channel_talks_over_real_sockets() -> None:
    class Server:
        def __init__(self, connection: Connection) -> None:
            self.connection = connection

        def frame_received(self, frame: memoryview) -> None:
            header = read_request_header(frame)
            head = response_header(header.api_key, header.api_version, header.correlation_id)
            fields = offered((ApiKey.METADATA, 0, 7))
            body = messages.write_response(header.api_key, header.api_version, fields)
            self.connection.send(response_chunks(head, [body]))

        def connection_lost(self, reason: str) -> None: ...

    async def main() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        listener = await network.listen("127.0.0.1", 0, Server, frame_bytes_max=1 << 20)
        channel = await Channel.open(network, *listener.address, "tester")
        await channel.negotiate()
        assert channel.version_for(ApiKey.METADATA) == 7
        lost = asyncio.get_running_loop().create_future()
        channel.on_close.append(lost.set_result)
        channel.close()
        await asyncio.wait_for(lost, 5)
        assert channel.closed
        listener.close()

    asyncio.run(main())


class Token:
    mechanism = "PLAIN"

    def first(self) -> bytes:
        return b"token"

    def answer(self, message: bytes) -> bytes | None:
        return None


def test_a_login_that_is_due_comes_before_the_next_request_if_the_loop_stood_still() -> None:
    async def until_sent(peer: Peer, count: int) -> None:
        async with asyncio.timeout(10):
            while len(peer.sent) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def log_in(peer: Peer, first: int, session_ms: int) -> None:
        await until_sent(peer, first + 1)
        peer.answer(first, {"mechanisms": ("PLAIN",)})
        await until_sent(peer, first + 2)
        peer.answer(first + 1, {"session_lifetime": session_ms})

    async def talk(channel: Channel, peer: Peer) -> None:
        logged_in = await started(channel.log_in(Token))
        await log_in(peer, 0, 60_000)
        await logged_in
        asked = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}, version=1))
        peer.answer(2, {"cluster_id": "before"})
        assert (await asked).cluster_id == "before"
        loop = asyncio.get_running_loop()
        later = loop.time() + 100
        loop.time = lambda: later  # type: ignore[method-assign]
        asked = await started(channel.request(ApiKey.DESCRIBE_CLUSTER, {}, version=1))
        await log_in(peer, 3, 60_000)
        await until_sent(peer, 6)
        peer.answer(5, {"cluster_id": "after"})
        assert (await asked).cluster_id == "after"
        assert [header.api_key for header in peer.headers()[3:]] == [
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.DESCRIBE_CLUSTER,
        ]

    conversation(talk)
