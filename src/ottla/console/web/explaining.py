"""Why something is as it is: the words of `ottla explain`, with links instead of a terminal."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.web.answers import (
    AnswerRefused,
    console_of,
    json_response,
    text_of,
    viewer_of,
)
from ottla.diagnosis.explaining import Subject, explained, situation


async def explain(request: Request) -> Response:
    """`about`: partition:orders-0, topic:orders, group:billing or broker:2."""
    about = text_of(request, "about")
    subject = Subject.of(about)
    if subject is None:
        raise AnswerRefused(400, "about is partition:NAME, topic:NAME, group:NAME or broker:ID.")
    viewer, console = viewer_of(request), console_of(request)
    here, commands = console.told_of_it(viewer.is_open)
    found = await explained(
        subject,
        await situation(viewer.client, viewer.clock, console.bootstrap, here),
        commands,
    )
    if not found:
        raise AnswerRefused(404, f"There is no {about.replace(':', ' ', 1)}.")
    return json_response([each.as_json() for each in found])
