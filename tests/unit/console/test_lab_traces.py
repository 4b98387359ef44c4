"""A trace that is sent to the console: one at a time is in memory."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from ottla.console.web import answers, lab
from ottla.console.web.answers import AnswerRefused
from support.uploads import Upload
from unit.console.test_trace import TRACE as LINES

TRACE = "\n".join(LINES)


def upload_to(labs: lab.LabProcesses, partition: str | None = None) -> Upload:
    query = "" if partition is None else f"partition={partition}"
    return Upload(query, app=SimpleNamespace(state=SimpleNamespace(lab=labs)))


def test_a_trace_is_read_in_whatever_parts_it_comes() -> None:
    async def run() -> None:
        data = TRACE.encode()
        for size in (1, 7, len(data)):
            upload = upload_to(lab.LabProcesses())
            upload.send(*(data[at : at + size] for at in range(0, len(data), size)))
            answer = await lab.trace(upload.request)
            assert json.loads(bytes(answer.body)) == {"partitions": {"in-0": 9, "other-3": 1}}
            upload = upload_to(lab.LabProcesses(), "in-0")
            upload.send(data)
            answer = await lab.trace(upload.request)
            assert json.loads(bytes(answer.body))["steps"]

    asyncio.run(run())


def test_the_second_is_not_read_before_the_first_is_done() -> None:
    async def run() -> None:
        labs = lab.LabProcesses()
        first, second = upload_to(labs), upload_to(labs)
        asked = [asyncio.create_task(lab.trace(each.request)) for each in (first, second)]
        second.send(TRACE.encode())
        for _ in range(10):
            await asyncio.sleep(0)
        assert second.taken == 0
        first.send(TRACE.encode())
        answers = await asyncio.gather(*asked)
        assert answers[0].body == answers[1].body

    asyncio.run(run())


def test_one_that_is_too_large_or_too_slow_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "TRACE_BYTES_MAX", 1000)
    monkeypatch.setattr(answers, "UPLOAD_S", 0.05)

    async def run() -> None:
        labs = lab.LabProcesses()
        large, slow, none = upload_to(labs), upload_to(labs), upload_to(labs)
        large.send(bytes(600), bytes(600), bytes(600))
        with pytest.raises(AnswerRefused) as refused:
            await lab.trace(large.request)
        assert refused.value.status == 413
        with pytest.raises(AnswerRefused) as refused:
            await lab.trace(slow.request)
        assert refused.value.status == 408
        none.send(b"nothing\n")
        with pytest.raises(AnswerRefused) as refused:
            await lab.trace(none.request)
        assert refused.value.status == 400

    asyncio.run(run())
