"""What a page gets from its stream while nothing happens."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.rows import EventRow
from ottla.console.web import stream as module
from ottla.console.web.pages import content_of
from ottla.console.web.stream import NewsStream


class StillWatch:
    """Of a cluster in which nothing happens."""

    def __init__(self) -> None:
        self.model = ClusterModel()

    async def changed(self, since: int) -> int:
        await asyncio.Event().wait()
        raise AssertionError


def viewer_of(watch: Any) -> Any:
    return SimpleNamespace(watch=watch, clock=SimpleNamespace(wall_ms=lambda: 1_700_000_000_000))


def chunks_of(watch: Any, number: int) -> list[str]:
    """What it sends first, as browsers read it."""

    async def take() -> list[str]:
        content = content_of("timeline", {})
        written = NewsStream(viewer_of(watch), content, -1, "one", compressed=False)
        found: list[str] = []

        async def send(message: Any) -> None:
            found.append(message.get("body", b"").decode())
            if len(found) > number:
                raise EOFError

        with pytest.raises(EOFError):
            await written._write(send)
        return found[1:]

    return asyncio.run(asyncio.wait_for(take(), 10))


def test_a_page_hears_of_the_console_also_when_nothing_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An event, since pages see no comments."""
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    for chunk in chunks_of(StillWatch(), 3):
        lines = dict(line.split(": ", 1) for line in chunk.strip().splitlines())
        assert lines["id"].startswith("one:")
        assert json.loads(lines["data"])["now"] == 1_700_000_000_000


def test_half_of_a_surrogate_pair_does_not_end_a_stream() -> None:
    watch = StillWatch()
    watch.model.event(EventRow("1", 1, "rebalance", 0, 1, "group:\ud800", None, None, "\ud800", {}))
    (chunk,) = chunks_of(watch, 1)
    news = json.loads(chunk.partition("data: ")[2])["news"]
    assert news["tables"]["newest"]["new"]["all"][0][5] == "group:?"
