"""The HTTP endpoint of a node over real sockets: what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime

import pytest

from ottla.broker.observability import http
from ottla.broker.observability.http import HttpRequest, HttpServer, Page, Refused, parse_request
from ottla.runtime.real import RealClock

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def hello(request: HttpRequest) -> Page:
    return Page(f"hello {request.query}\n".encode())


async def broken(request: HttpRequest) -> Page:
    raise RuntimeError("on purpose")


def served(
    talk: Callable[[HttpServer, Callable[[], Awaitable[Client]]], Awaitable[None]],
    **more: Callable[[HttpRequest], Awaitable[Page]],
) -> None:
    async def run() -> None:
        pages = {"/hello": hello, "/broken": broken, **{f"/{name}": more[name] for name in more}}
        server = HttpServer(pages, RealClock())
        port = await server.listen("127.0.0.1", 0)

        async def connect() -> Client:
            return await asyncio.open_connection("127.0.0.1", port)

        try:
            await talk(server, connect)
        finally:
            await server.close()

    asyncio.run(run())


async def ask(client: Client, request: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body)"""
    reader, writer = client
    writer.write(request.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
    wanted = 0 if request.startswith("HEAD") else int(headers["content-length"])
    return int(head[0].split()[1]), headers, await reader.readexactly(wanted)


def test_a_connection_serves_one_request_after_the_other() -> None:
    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for number in range(3):
            answer = await ask(client, f"GET /hello?{number} HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer[0] == 200 and answer[2] == f"hello {number}\n".encode()
        status, headers, body = await ask(client, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, headers["content-length"], body) == (200, "7", b"")
        last = await ask(client, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert last[1]["connection"] == "close"
        assert await client[0].read() == b""

    served(talk)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("GET /broken HTTP/1.1\r\nHost: x\r\n\r\n", 500),
        ("POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 400),
        ("GET /hello HTTP/1.1\r\n\r\n", 400),
        ("GET hello HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        ("nonsense\r\n\r\n", 400),
        ("GET /hello HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        ("GET /hello HTTP/1.1\r\nHost: x\r\nX: " + "y" * http.REQUEST_BYTES_MAX + "\r\n\r\n", 431),
    ],
)
def test_what_is_wrong_is_answered_with_its_status(request_text: str, status: int) -> None:
    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        answer = await ask(await connect(), request_text)
        assert answer[0] == status
        assert answer[2].endswith(b"\n")

    served(talk)


def test_a_request_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(Refused, match="ASCII"):
        parse_request("GET /hellö HTTP/1.1\r\n\r\n".encode())


def test_connections_that_ask_nothing_give_way_to_one_that_asks() -> None:
    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        silent = [await connect() for _ in range(http.CONNECTIONS_MAX)]
        silent[1][1].write(b"GET /hello HT")  # and no more of it
        kept = await connect()
        for _ in range(2):
            assert (await ask(kept, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        async with asyncio.timeout(5):
            assert await silent[0][0].read() == b""
        await connect()
        async with asyncio.timeout(5):
            assert await silent[1][0].read() == b""  # the longest first, and none that asks
        assert (await ask(kept, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200

    served(talk)


def test_a_connection_is_refused_if_all_others_are_being_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    goes_on = asyncio.Event()
    asked: asyncio.Queue[HttpRequest] = asyncio.Queue()

    async def slow(request: HttpRequest) -> Page:
        asked.put_nowait(request)
        await goes_on.wait()
        return Page(b"slow\n")

    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        question = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
        asking = [asyncio.ensure_future(ask(await connect(), question)) for _ in range(2)]
        for _ in asking:
            await asked.get()
        refused = await connect()
        assert b"503" in await refused[0].read()
        goes_on.set()
        assert [(await each)[0] for each in asking] == [200, 200]
        assert (await ask(await connect(), question))[0] == 200

    served(talk, slow=slow)


def test_a_connection_without_a_first_request_is_dropped_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.05)

    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        reader, _ = await connect()
        async with asyncio.timeout(5):
            assert await reader.read() == b""

    served(talk)


def test_a_client_that_does_not_finish_its_request_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.05)

    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        reader, writer = await connect()
        writer.write(b"GET /hello HT")
        async with asyncio.timeout(5):
            assert await reader.read() == b""

    served(talk)


def test_the_server_ends_although_clients_stay() -> None:
    async def talk(server: HttpServer, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        assert (await ask(client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        await server.close()
        assert await client[0].read() == b""

    served(talk)


def test_an_answer_tells_the_time_of_the_node_as_http_writes_it() -> None:
    assert http.http_date(0) == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert parsedate_to_datetime(http.http_date(1_794_852_409_882)).timestamp() == 1_794_852_409
