"""Scenarios of the lab and traces of the simulator, to be stepped through in the drawing of a live partition."""

from __future__ import annotations

import asyncio
import json
import sys
from io import BytesIO, TextIOWrapper
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.model.trace import TraceStep, partitions_in, steps_of
from ottla.console.web.answers import AnswerRefused, file_of, json_response, text_of, text_response

PLAY_S = 60.0
TRACE_BYTES_MAX = 32 << 20
"""A seed's has one or two."""


class LabProcesses:
    """One at a time. What was played once is the same for ever."""

    def __init__(self) -> None:
        self._played: dict[tuple[str, ...], Any] = {}
        self._turn = asyncio.Lock()
        self.tracing = asyncio.Lock()
        """A trace takes memory and seconds of a processor: one at a time is in memory."""

    async def told(self, *words: str) -> Any:
        async with self._turn:
            if words not in self._played:
                self._played[words] = await self._run(words)
            return self._played[words]

    async def _run(self, words: tuple[str, ...]) -> Any:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-P", "-m", "ottla.console.web.lab_player"],
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PLAY_S):
                out, errors = await process.communicate()
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            words_of = errors.decode(errors="replace").strip().splitlines()
            raise AnswerRefused(
                500, f"The lab failed: {words_of[-1] if words_of else 'no reason'}."
            )
        return json.loads(out)


async def scenarios(request: Request) -> Response:
    return json_response(await _lab(request).told())


async def play(request: Request) -> Response:
    """A scenario under a design: every step, with all replicas."""
    scenario, design = text_of(request, "scenario"), text_of(request, "design")
    known = await _lab(request).told()
    for what, name in (("scenarios", scenario), ("designs", design)):
        if all(each["name"] != name for each in known[what]):
            raise AnswerRefused(404, f"There is no {name} among the {what} of the lab.")
    return json_response(await _lab(request).told(scenario, design))


def _lab(request: Request) -> LabProcesses:
    lab = request.app.state.lab
    assert isinstance(lab, LabProcesses)
    return lab


async def trace(request: Request) -> Response:
    """The body is a trace. Without `partition`: which partitions it tells of; with one: its steps."""
    # Who waits here has not sent more than the network holds.
    async with _lab(request).tracing:
        body = await file_of(request, TRACE_BYTES_MAX)
        # In a thread: a long trace takes seconds, in which the streams of all pages would stand still.
        told = await asyncio.to_thread(_told_of, body, request.query_params.get("partition"))
    if told is None:
        raise AnswerRefused(
            400, "This is no trace of the simulator (ottla sim --seed N --trace FILE)."
        )
    return text_response(told)


def _told_of(trace: BytesIO, partition: str | None) -> str | None:
    """As JSON. None if it tells of no partition."""
    lines = TextIOWrapper(trace, "utf-8", errors="replace")
    if partition is None:
        found = partitions_in(lines)
        return json.dumps({"partitions": found}) if found else None
    told = steps_of(lines, partition)
    # Step by step: as dicts all steps together would be ten times their text.
    steps = ",".join(json.dumps(_as_json(step)) for step in told.steps)
    partition = json.dumps(told.name)
    return f'{{"partition":{partition},"left_out":{told.left_out},"steps":[{steps}]}}'


def _as_json(step: TraceStep) -> dict[str, Any]:
    replicas = [
        {**each._asdict(), "spans": [span._asdict() for span in each.spans]}
        for each in step.replicas
    ]
    return {**step._asdict(), "replicas": replicas}
