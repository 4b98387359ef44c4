"""Requests to a handler of the console whose bodies come in parts, as somebody sends them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request


class Upload:
    """`Upload(viewer=…).request` is what a handler gets."""

    def __init__(self, query: str = "", *, method: str = "POST", **scope: Any) -> None:
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_asked = False
        """Somebody waits for a part, or has had one."""
        self.taken = 0
        known = {"type": "http", "method": method, "path": "/", "headers": []}
        self.request = Request(
            {**known, "query_string": query.encode(), **scope},
            self._receive,
        )

    async def _receive(self) -> Any:
        self.is_asked = True
        part = await self.parts.get()
        self.taken += 1
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    def send(self, *parts: bytes) -> None:
        """All of it."""
        for each in (*parts, None):
            self.parts.put_nowait(each)

    def send_json(self, **fields: Any) -> None:
        self.send(json.dumps(fields).encode())
