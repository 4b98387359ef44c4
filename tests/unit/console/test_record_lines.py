"""The lines of a search or a live tail: whatever ends them, what they held is given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from ottla.console.web import messages
from ottla.console.web.messages import RecordLines

SCOPE: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}


class Page:
    """Takes what is sent to it until it is stuck or gone."""

    def __init__(self) -> None:
        self.viewer: Any = SimpleNamespace(ended=asyncio.Event())
        self.is_gone = asyncio.Event()
        self.took = asyncio.Event()
        self.takes = True
        self.lines: list[Any] = []
        self.is_complete = False
        self.freed: list[str] = []

    async def receive(self) -> Message:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self.takes:
            await asyncio.Event().wait()
        if body := message.get("body"):
            self.lines.append(json.loads(body))
            self.took.set()
        self.is_complete = message["type"] == "http.response.body" and not message["more_body"]

    async def get(self) -> None:
        async def found() -> AsyncGenerator[dict[str, Any], None]:
            try:
                while True:
                    yield {"progress": {}}
                    await asyncio.sleep(0.01)
            finally:
                self.freed.append("what it reads with")

        with ExitStack() as stack:
            stack.callback(self.freed.append, "its place")
            answer = RecordLines(self.viewer, found(), stack.pop_all())
        async with asyncio.timeout(5):
            await answer(SCOPE, self.receive, self.send)


def test_a_page_that_goes_away_ends_it() -> None:
    async def run() -> None:
        page = Page()
        getting = asyncio.create_task(page.get())
        await page.took.wait()
        page.is_gone.set()
        await getting
        assert sorted(page.freed) == ["its place", "what it reads with"]

    asyncio.run(run())


def test_a_page_that_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "STUCK_S", 0.05)

    async def run() -> None:
        page = Page()
        getting = asyncio.create_task(page.get())
        await page.took.wait()
        page.takes = False
        await getting
        assert "its place" in page.freed
        assert not page.is_complete

    asyncio.run(run())


def test_the_end_of_a_visit_is_its_last_line() -> None:
    async def run() -> None:
        page = Page()
        getting = asyncio.create_task(page.get())
        await page.took.wait()
        page.viewer.ended.set()
        await getting
        assert page.lines[-1] == {"error": "This visit is over: log in again."}
        assert page.is_complete
        assert sorted(page.freed) == ["its place", "what it reads with"]

    asyncio.run(run())
