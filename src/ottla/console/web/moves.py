"""Moves of replicas: what would balance the cluster, starting and cancelling moves, elections; and how a run goes that was
started here.

A run limits the rate of copying, watches, gives leadership to the preferred replicas and takes the limit off at the end. The
controller keeps what was started: if the visit ends meanwhile, with a logout or the console, these moves go on under their limit,
the rest is not started, and `ottla reassign` ends what is left. A run keeps its visit while nobody looks, not longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ottla.balance.pace import CopyPace
from ottla.balance.plan_json import plan_as_json, tolerance_of
from ottla.balance.planner import Impossible
from ottla.client.admin import Place
from ottla.client.balancing import balance_plan
from ottla.client.client import Client
from ottla.client.move_pace import Throttle
from ottla.client.reassigning import MoveProgress, MoveRefused, Reassigner
from ottla.client.unclean_election import elect_longest, unclean_choices
from ottla.console.web.answers import (
    INT32,
    AnswerRefused,
    fields_of,
    is_of,
    json_response,
    number_in,
    number_of,
    viewer_of,
)

logger = logging.getLogger(__name__)

AT_ONCE = 10
AUTO = "auto"
NONE = "none"
PLACES_MAX = 10_000
CLEAN_UP_S = 2.0
"""The console may be about to end."""


class MoveRun:
    """One run, as a task of its viewer."""

    def __init__(
        self, client: Client, targets: Mapping[Place, Sequence[int]], throttle: Throttle
    ) -> None:
        self._client = client
        self._targets = targets
        self._throttle = throttle
        self.progress: MoveProgress | None = None
        self.trouble: str | None = None
        self.is_over = False

    async def go(self) -> None:
        moves = Reassigner(self._client)
        try:
            async for progress in moves.run(self._targets, self._throttle, at_once=AT_ONCE):
                self.progress = progress
        except Exception as error:
            self.trouble = str(error) or type(error).__name__
        except asyncio.CancelledError:
            await self._stop(moves)
            raise
        finally:
            self.is_over = True

    async def _stop(self, moves: Reassigner) -> None:
        """The visit ends. Of what is being copied the limit stays, as the cluster may need it; of the rest it goes."""
        done = 0 if self.progress is None else self.progress.done
        logger.warning("a run of moves stops with its visit partitions=%d done=%d", len(self._targets), done)  # fmt: skip
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                await moves.remove_left_over()
        except Exception as error:
            logger.warning("the limit of that run stays until ottla reassign ends it why=%s", error)

    def as_json(self) -> dict[str, Any]:
        found = self.progress
        known = {"partitions": len(self._targets), "over": self.is_over, "trouble": self.trouble}
        if found is None:
            return known
        return {
            **known,
            "done": found.done,
            "moved": found.moved,
            "total": found.total,
            "seconds": round(found.seconds, 1),
            "seconds_left": found.seconds_left,
            "rate": found.rate,
            "throttle": found.throttle,
            "latency_s": found.latency_s,
        }


async def plan(request: Request) -> Response:
    """What would move, and the loads before and after. Nothing is changed."""
    percent = number_of(request, "tolerance", 10, least=1, most=100)
    try:
        made = await balance_plan(viewer_of(request).client, tolerance_of(percent))
    except Impossible as error:
        raise AnswerRefused(409, f"There is no plan: {error}.") from None
    return json_response(plan_as_json(made))


async def run(request: Request) -> Response:
    """How the last run goes that was started here; null if there was none."""
    found = viewer_of(request).move_run
    return json_response(None if found is None else found.as_json())


def _targets(given: list[Any]) -> dict[Place, tuple[int, ...]]:
    found: dict[Place, tuple[int, ...]] = {}
    for each in given[:PLACES_MAX]:
        match each:
            case {"topic": str(topic), "partition": number, "replicas": list(replicas)} if all(
                is_of(id, INT32) for id in (number, *replicas)
            ):
                found[topic, number] = tuple(replicas)
            case _:
                raise AnswerRefused(400, "moves is a list of {topic, partition, replicas}.")
    if not found:
        raise AnswerRefused(400, "There is nothing to move.")
    return found


def _places(given: list[Any]) -> set[Place]:
    found: set[Place] = set()
    for each in given:
        match each:
            case [str(topic), number] if is_of(number, INT32):
                found.add((topic, number))
            case _:
                raise AnswerRefused(400, "places is a list of topics with a partition.")
    return found


def _throttle(text: str) -> Throttle:
    if text == AUTO:
        return CopyPace(0.0)
    if text == NONE:
        return None
    return number_in(text, "A throttle that is neither auto nor none", least=1)


async def start(request: Request) -> Response:
    given = await fields_of(request, moves=list, throttle=str)
    viewer = viewer_of(request)
    targets, throttle = _targets(given["moves"]), _throttle(given["throttle"])
    if viewer.move_run is not None and not viewer.move_run.is_over:
        raise AnswerRefused(409, "A run of moves is under way already.")
    client = viewer.connect()
    viewer.move_run = MoveRun(client, targets, throttle)
    viewer.work(viewer.move_run.go(), client)
    viewer.watch.hurry("moves")
    return json_response({"done": True, "partitions": len(targets)})


async def cancel(request: Request) -> Response:
    """Of these partitions; an empty list: of all."""
    given = await fields_of(request, places=list)
    viewer = viewer_of(request)
    moves = Reassigner(viewer.client)
    wanted = _places(given["places"])
    active = set(await moves.active())
    try:
        gone = await moves.cancel(active if not wanted else wanted & active)
    except MoveRefused as refused:
        raise AnswerRefused(409, str(refused)) from None
    viewer.watch.hurry("moves")
    return json_response({"done": True, "partitions": len(gone)})


async def elect(request: Request) -> Response:
    """The preferred replica or, if `unclean`, the longest log of those that live: then records may be lost."""
    given = await fields_of(request, topic=str, partition=INT32, unclean=bool)
    viewer = viewer_of(request)
    client, topic, number = viewer.client, given["topic"], given["partition"]
    if given["unclean"]:
        choices = await unclean_choices(client, topic, [number])
        outcome = await elect_longest(client, topic, choices)
    else:
        elected = await client.elect_leaders({topic: [number]})
        outcome = {partition: why for (_, partition), why in elected.items()}
    viewer.watch.hurry("metadata")
    trouble = outcome.get(number)
    if trouble is not None:
        raise AnswerRefused(409, f"No election: {trouble}.")
    return json_response({"done": True, "needed": bool(outcome)})
