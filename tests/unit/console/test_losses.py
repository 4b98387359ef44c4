"""What the console tells of losses: elections are read from the whole event log, and gaps in it are told."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from ottla.client.client import EARLIEST
from ottla.client.model import FetchedRecords
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.watch.losses import LossQuestions
from ottla.console.web import past
from ottla.console.web.viewer import Viewer
from ottla.event_log.entry import EventEntry, Told
from ottla.records.record import Record
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition
from unit.console.test_model_structure import an_event
from unit.console.test_visits import SetClock, connect

STEP = 1000
"""Records of one answer."""


class LogClient:
    """Of a cluster with this event log."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.first = 0
        self.denied = False
        self.fetched = 0

    def add(self, kind: str, partition: str | None = None, **fields: Any) -> None:
        number = len(self.log)
        place = None if partition is None else TopicPartition(partition, 0)
        about = f"partition:{partition}-0" if partition else "group:g"
        entry = EventEntry(1000 + number, 1, str(number), Told(kind, about, None, fields, place))
        key, value = entry.encode()
        self.log.append(Record(number, 1000 + number, key, value, ()))

    async def offset(self, topic: str, partition: int, timestamp: int) -> int:
        self._check()
        return self.first if timestamp in (EARLIEST, 0) else len(self.log)

    async def fetch(self, topic: str, partition: int, offset: int, **_: Any) -> FetchedRecords:
        self._check()
        if not self.first <= offset <= len(self.log):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "")
        self.fetched += 1
        records = self.log[offset : offset + STEP]
        return FetchedRecords(records, offset + len(records), len(self.log), self.first)

    def _check(self) -> None:
        if self.denied:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")


class Asked:
    def __init__(self) -> None:
        self.client = LogClient()
        self.model = ClusterModel()
        self.model.structure.kind(is_ottla=True, has_event_log=True)
        asking: Any = SimpleNamespace(
            client=self.client, model=self.model, living=list, known=asyncio.Event()
        )
        self._questions = LossQuestions(asking)

    def losses(self) -> list[tuple[str, int | None, list[int]]]:
        """After one more question: where, from which offset on, and who may still have it."""
        asyncio.run(self._questions._ask_losses())
        told = [row.as_json() for row in self.model.happenings.losses.values()]
        return [(each["partition"], each["first_offset"], each["may_be_held_by"]) for each in told]


@pytest.fixture
def asked() -> Asked:
    """An unclean election whose cost nobody knows, and much that happened since."""
    made = Asked()
    add = made.client.add
    add("isr_shrink", "ledger", leader=2, leader_epoch=4, isr=[2], previous_isr=[1, 2], brokers=[1])
    add("election", "ledger", leader=1, leader_epoch=5, previous_leader=2, isr=[1], how="unclean")
    add("leader_start", "ledger", leader=1, leader_epoch=5, log_end=70, high_watermark=70)
    for number in range(6000):
        add("rebalance", group="g", epoch=number, members=1)
    return made


def test_an_election_is_open_however_much_has_happened_since(asked: Asked) -> None:
    assert asked.losses() == [("ledger-0", 70, [2])]


def test_the_log_is_read_once_and_then_read_on(asked: Asked) -> None:
    asked.losses()
    before = asked.client.fetched
    assert asked.losses() == [("ledger-0", 70, [2])]
    assert asked.client.fetched == before
    asked.client.add("isr_expand", "ledger", leader=1, leader_epoch=5, isr=[1, 2], brokers=[2])
    assert asked.losses() == []
    assert asked.client.fetched == before + 1


def test_who_may_not_read_the_log_any_more_is_told_nothing_from_it(asked: Asked) -> None:
    asked.losses()
    asked.client.denied = True
    assert asked.losses() == []
    asked.client.denied = False
    assert asked.losses() == [("ledger-0", 70, [2])]


def test_a_log_that_begins_later_is_read_from_there(asked: Asked) -> None:
    asked.losses()
    asked.client.first = len(asked.client.log) + 100
    asked.client.log += asked.client.log[3:203]
    asked.losses()
    assert asked.losses() == [], "as `ottla losses` would say now"


def test_of_a_log_that_is_shorter_than_before_nothing_is_known(asked: Asked) -> None:
    asked.losses()
    asked.client.log = asked.client.log[3:203]
    assert asked.losses() == []


def a_viewer(*kinds: str) -> Viewer:
    viewer = Viewer(connect, SetClock(), "token")
    viewer.watch.model.structure.kind(has_event_log=True)
    for each in kinds:
        viewer.watch.model.event(an_event(each, None))
    return viewer


async def events(viewer: Viewer, query: str) -> Any:
    head = {"type": "http", "query_string": query.encode(), "headers": [], "viewer": viewer}
    return json.loads(bytes((await past.events(Request(head))).body))


def test_a_log_that_is_known_as_a_whole_is_not_read_again() -> None:
    async def ask() -> Any:
        viewer = a_viewer()
        viewer._client = None
        viewer.watch.model.happenings.begin(whole=True)
        viewer.watch.model.event(an_event("rebalance", None))
        return await events(viewer, f"from=0&until={1 << 50}")

    told = asyncio.run(ask())
    assert (len(told["events"]), told["complete"]) == (1, True)


def test_a_long_log_is_read_for_one_question_at_a_time_and_only_what_is_asked_is_kept() -> None:
    client = LogClient()
    for number in range(5000):
        client.add("rebalance", group="g", epoch=number, members=1)
        client.add("isr_shrink", "ledger", leader=2, leader_epoch=4, isr=[2], previous_isr=[1, 2], brokers=[1])  # fmt: skip
    reading: list[int] = []
    most: list[int] = []
    fetch = client.fetch

    async def counted(*place: Any, **options: Any) -> FetchedRecords:
        reading.append(1)
        most.append(len(reading))
        await asyncio.sleep(0)
        reading.pop()
        return await fetch(*place, **options)

    client.fetch = counted  # type: ignore[method-assign]

    async def ask() -> Any:
        viewer = a_viewer()
        viewer._client = client  # type: ignore[assignment]
        query = f"from=0&until={1 << 50}&topic=ledger&limit=10"
        return await asyncio.gather(*(events(viewer, query) for _ in range(4)))

    for told in asyncio.run(ask()):
        assert [each["kind"] for each in told["events"]] == ["isr_shrink"] * 10
        assert told["left_out"] == 4990
        assert told["events"][0]["at_ms"] > told["events"][-1]["at_ms"]
    assert max(most) == 1


@pytest.mark.parametrize("kind", ["rebalance", "events_dropped"])
def test_a_gap_in_the_log_is_not_told_as_all_of_it(kind: str) -> None:
    async def ask(name: str) -> Any:
        viewer = Viewer(connect, SetClock(), "token")
        viewer.watch.model.structure.kind(has_event_log=True)
        for each in ("rebalance", kind):
            viewer.watch.model.event(an_event(each, None, count=3))
        now_ms = an_event(kind).at_ms
        query = f"from={now_ms}&until={now_ms + 1}&at={now_ms}".encode()
        head = {"type": "http", "query_string": query, "headers": [], "viewer": viewer}
        answer = await getattr(past, name)(Request(head))
        return json.loads(answer.body)

    events = asyncio.run(ask("events"))
    assert len(events["events"]) == 2
    assert events["complete"] is (kind == "rebalance")
    assert events["dropped"] is (kind != "rebalance")
