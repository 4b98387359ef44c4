"""What changes, to one open page: server-sent events, each with all that is new since the one before.

The page takes them at its own pace. While it takes none, nothing is written for it, and what it gets next is the state of then.
A page that takes nothing for long is closed; browsers open the stream again by themselves when they come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing
from typing import Final

from starlette.types import Receive, Scope, Send

from ottla.console.model.tables import NOTHING
from ottla.console.web.pages import PageContent
from ottla.console.web.viewer import Viewer

HEARTBEAT_S = 5.0
"""Also when nothing is new a page gets an event after so long: pages do not see a comment. By its absence they notice that the
console has stopped, also where the connection stays open (SILENT_MS in static/store.js); a console whose page is gone notices
it by writing."""
STUCK_S = 60.0
"""A page that takes nothing for so long is closed."""
LEAST_S = 0.1
"""Between two events: nobody sees more than ten pictures a second of figures."""
GZIP: Final = 31
"""zlib's number for the format of gzip."""


class NewsStream:
    """Answers one request, as an ASGI application."""

    def __init__(
        self, viewer: Viewer, content: PageContent, since: int, instance: str, *, compressed: bool
    ) -> None:
        """`since`: the version that the page has, or NOTHING. `instance` tells one viewer and process from the next, whose versions
        begin anew."""
        self._viewer = viewer
        self._content = content
        self._since = since
        self._instance = instance
        self._pack: Callable[[bytes], bytes] = _packer() if compressed else bytes
        self._headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        if compressed:
            self._headers.append((b"content-encoding", b"gzip"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = self._viewer
        viewer.streams += 1
        gone = asyncio.create_task(_until_gone(receive))
        writing = asyncio.create_task(self._write(send))
        ended = asyncio.create_task(viewer.ended.wait())
        try:
            with ExitStack() as looks:
                for interest in self._content.interests:
                    looks.enter_context(viewer.watch.looking(interest))
                tasks = (gone, writing, ended)
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            viewer.streams -= 1
            for task in (gone, writing, ended):
                task.cancel()
            await asyncio.gather(gone, writing, ended, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        async def send_in_time(message: dict[str, object]) -> None:
            async with asyncio.timeout(STUCK_S):
                await send(message)

        await send_in_time({"type": "http.response.start", "status": 200, "headers": self._headers})
        async with aclosing(self._events()) as events:
            async for event in events:
                # A name that somebody chose may hold half of a surrogate pair, which is no UTF-8.
                body = self._pack(event.encode(errors="replace"))
                await send_in_time({"type": "http.response.body", "body": body, "more_body": True})

    async def _events(self) -> AsyncGenerator[str, None]:
        watch = self._viewer.watch
        seen = self._since if self._since <= watch.model.version else NOTHING
        while True:
            seen_before, seen = seen, watch.model.version
            news = watch.model.news(self._content.selections, seen_before)
            now_ms = self._viewer.clock.wall_ms()
            yield f'id: {self._instance}:{seen}\ndata: {{"now":{now_ms},"news":{news}}}\n\n'
            await asyncio.sleep(LEAST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await watch.changed(seen)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _packer() -> Callable[[bytes], bytes]:
    """Each event can be read as soon as it has come."""
    made = zlib.compressobj(6, wbits=GZIP)
    return lambda data: made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)
