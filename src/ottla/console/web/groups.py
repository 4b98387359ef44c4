"""What people do with consumer groups: move their offsets, after a look at what that changes, and delete them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.group_admin import GroupAdmin
from ottla.client.offset_reset import ResetRefused, WhyNot, planned_resets, reset_offsets
from ottla.console.web.answers import AnswerRefused, fields_of, json_response, viewer_of

STATUS = {WhyNot.WRONG_WORD: 400, WhyNot.ABSENT: 404, WhyNot.HAS_MEMBERS: 409}


async def preview_reset(request: Request) -> Response:
    """What a reset would change. Nothing is changed."""
    return await _reset(request, apply=False)


async def reset(request: Request) -> Response:
    return await _reset(request, apply=True)


async def _reset(request: Request, *, apply: bool) -> Response:
    given = await fields_of(request, group=str, to=str, topics=list)
    viewer = viewer_of(request)
    topics = [each for each in given["topics"] if isinstance(each, str)]
    try:
        resets = await planned_resets(viewer.client, given["group"], given["to"].strip(), topics)
    except ResetRefused as refused:
        text = str(refused).replace("name a --topic", "name a topic").replace("--to ", "")
        raise AnswerRefused(STATUS[refused.why], f"{text[:1].upper()}{text[1:]}.") from None
    if apply:
        await reset_offsets(viewer.client, given["group"], resets)
        viewer.watch.hurry("groups")
    return json_response({"done": apply, "partitions": [each._asdict() for each in resets]})


async def delete(request: Request) -> Response:
    given = await fields_of(request, group=str)
    viewer = viewer_of(request)
    await GroupAdmin(viewer.client).delete(given["group"])
    viewer.watch.hurry("groups")
    return json_response({"done": True})
