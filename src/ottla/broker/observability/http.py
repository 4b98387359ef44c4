"""A small HTTP/1.1 server for a few pages that are read by machines: GET and HEAD, nothing else.

It shares its event loop with a broker, and must not be able to harm it. So connections, the size of a request and the
time for one are limited. When there are too many connections, the one that has waited longest without a request gives way:
whoever only holds connections keeps nobody out. Who makes a page that takes long gives the broker its turns meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from ottla.runtime.seams import Clock

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 10.0
"""Until the first request begins, for the whole head of a request once its first byte came, and for taking the answer."""
IDLE_MAX_S = 120.0
"""A connection that is kept alive for the next scrape. Prometheus scrapes once a minute at the least."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class HttpRequest(NamedTuple):
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By names in lower case."""
    keep_alive: bool


class Page(NamedTuple):
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class Refused(Exception):
    """A request that gets an error for an answer, and whose connection is closed then."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


Pages: TypeAlias = Mapping[str, Callable[[HttpRequest], Awaitable[Page]]]
"""By path."""


class HttpServer:
    """One listener. `pages` may change while it serves."""

    def __init__(self, pages: Pages, clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self._idle: dict[asyncio.Task[None], None] = {}
        """Those without a whole request, the longest one first."""

    async def listen(self, host: str, port: int) -> int:
        """The port that it has."""
        self._server = await asyncio.start_server(
            self._connected, host or None, port, limit=REQUEST_BYTES_MAX
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(list(self._connections))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            if len(self._connections) <= CONNECTIONS_MAX or self._drop_idle():
                await self._serve(task, reader, writer)
            else:
                logger.info("refusing connection, too many connections listener=HTTP")
                refusal = Page(b"too many connections\n", status=503)
                await self._send(writer, refusal, with_body=True, keep_alive=False)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # gone, too slow, or we stop
        finally:
            del self._connections[task]
            self._idle.pop(task, None)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _drop_idle(self) -> bool:
        """Whether there was one to drop."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        del self._idle[oldest]
        oldest.cancel()
        return True

    async def _serve(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        goes_on = True
        patience_s = REQUEST_TIMEOUT_S
        while goes_on:
            with_body = True
            try:
                self._idle[task] = None
                request = await _read_request(reader, patience_s)
                del self._idle[task]
                patience_s = IDLE_MAX_S
                goes_on, with_body = request.keep_alive, request.method != "HEAD"
                page = await self._page(request)
            except Refused as refused:
                goes_on = False
                page = Page(f"{refused}\n".encode(), status=refused.status)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._send(writer, page, with_body=with_body, keep_alive=goes_on)

    async def _send(
        self, writer: asyncio.StreamWriter, page: Page, *, with_body: bool, keep_alive: bool
    ) -> None:
        head = (
            f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\n"
            f"Date: {http_date(self._clock.wall_ms())}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            + ("Allow: GET, HEAD\r\n" if page.status == 405 else "")
            + f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n\r\n"
        )
        writer.write(head.encode())
        if with_body:
            writer.write(page.body)
        await writer.drain()

    async def _page(self, request: HttpRequest) -> Page:
        make = self._pages.get(request.path)
        if make is None:
            known = " ".join(self._pages)
            return Page(f"there is no {request.path}; there is {known}\n".encode(), status=404)
        try:
            return await make(request)
        except Exception:
            logger.exception("page failed path=%s", request.path)
            return Page(b"failed; the node's log says why\n", status=500)


async def _read_request(reader: asyncio.StreamReader, patience_s: float) -> HttpRequest:
    async with asyncio.timeout(patience_s):
        first = await reader.readexactly(1)
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            head = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(431, f"the request is longer than {REQUEST_BYTES_MAX} bytes") from None
    return parse_request(head)


def parse_request(head: bytes) -> HttpRequest:
    """`head` ends with the empty line. A request with a body is refused: none of ours has one."""
    try:
        lines = head.decode("ascii").split("\r\n")[:-2]
    except UnicodeDecodeError:
        raise Refused(400, "the request is not ASCII") from None
    words = lines[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        raise Refused(400, "the first line is not METHOD PATH VERSION")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refused(505, "only HTTP/1.0 and HTTP/1.1 are served")
    if method not in ("GET", "HEAD"):
        raise Refused(405, f"{method} is not served; use GET or HEAD")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header is not NAME: VALUE")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise Refused(400, "a request has no body here")
    if version == "HTTP/1.1" and "host" not in headers:
        raise Refused(400, "the header Host is missing")
    path, _, query = target.partition("?")
    wants = headers.get("connection", "").lower()
    keep_alive = wants != "close" if version == "HTTP/1.1" else wants == "keep-alive"
    return HttpRequest(method, path, query, headers, keep_alive)


def http_date(wall_ms: int) -> str:
    """The node's time, as HTTP writes it: whoever asks can compare clocks."""
    moment = datetime.fromtimestamp(wall_ms // 1000, UTC)
    day, month = DAYS[moment.weekday()], MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02d} {month} {moment.year:04d} {moment:%H:%M:%S} GMT"
