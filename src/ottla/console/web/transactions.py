"""Ending transactions that hold readers back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.transaction_admin import TransactionAdmin
from ottla.console.web.answers import (
    INT32,
    INT64,
    AnswerRefused,
    fields_of,
    json_response,
    viewer_of,
)


async def abort(request: Request) -> Response:
    """By its transactional id: its producer is fenced."""
    given = await fields_of(request, id=str)
    viewer = viewer_of(request)
    await TransactionAdmin(viewer.client).abort(given["id"])
    viewer.watch.hurry("transactions")
    return json_response({"done": True})


async def abort_hanging(request: Request) -> Response:
    """One that no coordinator knows any more: its leader writes the marker."""
    given = await fields_of(request, topic=str, partition=INT32, producer_id=INT64)
    viewer = viewer_of(request)
    transactions = TransactionAdmin(viewer.client)
    place = (given["topic"], given["partition"])
    opened = [
        each
        for each in await transactions.open_in(*place)
        if each.producer_id == given["producer_id"]
    ]
    if not opened:
        raise AnswerRefused(404, "That transaction is not open there any more.")
    cared = await transactions.cared_for(*place, given["producer_id"])
    if cared.answers:
        raise AnswerRefused(
            409, f"Its coordinator knows it as {cared.answers[0].id}: abort it by that name."
        )
    if cared.silent:
        raise AnswerRefused(
            409,
            f"Brokers {', '.join(map(str, cared.silent))} do not answer: one of them may know it. Try again when they do.",
        )
    await transactions.abort_hanging(*place, opened[0])
    viewer.watch.hurry("transactions")
    return json_response({"done": True})
