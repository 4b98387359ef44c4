"""What a viewer's requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.client import Client
from ottla.console.web.answers import answering, fields_of, in_turn, json_response
from ottla.console.web.viewer import QUESTIONS_MAX, UPLOADS_MAX, Viewer
from support.uploads import Upload


class NoNetwork:
    async def connect(self, *_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError


class StillClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0


def a_viewer() -> Viewer:
    network: Any = NoNetwork()
    return Viewer(lambda: Client(network, [("nowhere", 1)]), StillClock(), "token")


@contextmanager
def all_tasks_ended(tasks: Sequence[asyncio.Future[Response]]) -> Iterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


@answering
@in_turn
async def echo(request: Request) -> Response:
    if request.method == "GET":
        return json_response("nothing")
    return json_response(await fields_of(request, word=str))


def test_slow_uploads_keep_nobody_waiting_who_only_looks() -> None:
    async def run() -> None:
        viewer = a_viewer()
        slow = [Upload(viewer=viewer) for _ in range(UPLOADS_MAX + QUESTIONS_MAX)]
        tasks = [asyncio.ensure_future(echo(each.request)) for each in slow]
        with all_tasks_ended(tasks):
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                answer = await echo(Upload(method="GET", viewer=viewer).request)
                assert bytes(answer.body) == b'"nothing"'
                slow[0].send_json(word="x")
                answer = await tasks[0]
                assert bytes(answer.body) == b'{"word":"x"}'
            assert sum(each.is_asked for each in slow) <= UPLOADS_MAX + 1, "the others wait outside"

    asyncio.run(run())
