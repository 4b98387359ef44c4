"""Browsing and searching records: what is found, in which order, and where it goes on. The client is a fake at its own seam:
`fetch_many`, over logs in memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.connections import Unreachable
from ottla.client.model import FetchedRecords
from ottla.console.web import messages
from ottla.console.web.answers import AnswerRefused
from ottla.console.web.messages import (
    HEADERS_SHOWN,
    SHOWN_BYTES,
    NewestRecords,
    RecordScan,
    RecordSearch,
    decoded,
    headers_of,
    shown_bytes,
    shown_record,
)
from ottla.records.record import Record
from ottla.wire.errors import InvalidFrame


class StillClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0


class Logs:
    """Partitions in memory, on as many leaders. A fetch gives a few records, as one that is limited in bytes: of each partition,
    and of the whole answer of a leader, which the first partitions use up. At least one record is given if there is any."""

    def __init__(
        self,
        logs: Mapping[int, list[Record]],
        at_once: int = 7,
        *,
        in_all: int = 1000,
        leaders: int = 1,
    ) -> None:
        self.logs = logs
        self.at_once = at_once
        self.in_all = in_all
        self.leaders = leaders
        self.read = 0

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        return {
            p: (log[0].offset, log[-1].offset + 1) if log else (0, 0)
            for p, log in self.logs.items()
        }

    async def fetch_many(self, topic: str, offsets: Mapping[int, int], **_: Any) -> dict[int, Any]:
        found = {}
        room = dict.fromkeys(range(self.leaders), self.in_all)
        for partition, offset in offsets.items():
            log = self.logs[partition]
            most = min(self.at_once, room[partition % self.leaders])
            batch = [each for each in log if each.offset >= offset][:most]
            room[partition % self.leaders] -= len(batch)
            self.read += len(batch)
            following = batch[-1].offset + 1 if batch else offset
            found[partition] = FetchedRecords(batch, following, log[-1].offset + 1 if log else 0, 0)
        return found


def a_log(count: int, every: int = 1, first: int = 0) -> list[Record]:
    return [
        Record(
            first + n, 1000 + n * every, b"k%d" % n, b'{"n": %d, "who": {"id": %d}}' % (n, n % 3)
        )
        for n in range(count)
    ]


def scan(logs: Logs, search: RecordSearch = RecordSearch(), limit: int = 10) -> RecordScan:  # noqa: B008
    client: Any = logs
    return RecordScan(client, "t", logs.bounds, search, limit, StillClock(), committed=False)


def told(lines: AsyncIterator[dict[str, Any]]) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """(partition, offset) of what was found, and the last word."""

    async def read() -> list[dict[str, Any]]:
        return [each async for each in lines]

    found = asyncio.run(read())
    places = [(e["record"]["partition"], e["record"]["offset"]) for e in found if "record" in e]
    return places, found[-1]["done"]


def ends(logs: Logs) -> dict[int, int]:
    return {p: end for p, (_, end) in logs.bounds.items()}


def test_the_newest_of_all_partitions_come_first() -> None:
    logs = Logs({0: a_log(50, 10), 1: a_log(50, 10, first=500)})
    places, _ = told(scan(logs, limit=6).backwards(ends(logs)))
    assert places == [(0, 49), (1, 549), (0, 48), (1, 548), (0, 47), (1, 547)]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(1, 25),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 2),
)
def test_page_after_page_backwards_gives_everything_once(
    sizes: list[int], limit: int, at_once: int, in_all: int, leaders: int
) -> None:
    logs = Logs(
        {p: a_log(size, every=p + 1) for p, size in enumerate(sizes)},
        at_once,
        in_all=in_all,
        leaders=leaders,
    )
    seen: list[tuple[int, int]] = []
    tops = ends(logs)
    for _ in range(200):
        places, done = told(scan(logs, limit=limit).backwards(tops))
        assert len(places) <= limit
        seen += places
        tops = {int(p): offset for p, offset in done["next"].items()}
        if not tops:
            break
    assert sorted(seen) == sorted((p, each.offset) for p, log in logs.logs.items() for each in log)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 20), max_size=30), min_size=1, max_size=3),
    st.integers(1, 10),
)
def test_so_it_does_when_timestamps_go_back_and_forth(times: list[list[int]], limit: int) -> None:
    logs = Logs(
        {p: [Record(n, at, b"", b"") for n, at in enumerate(each)] for p, each in enumerate(times)}
    )
    seen: list[tuple[int, int]] = []
    tops = ends(logs)
    while tops:
        places, done = told(scan(logs, limit=limit).backwards(tops))
        seen += places
        next_tops = {int(p): offset for p, offset in done["next"].items()}
        assert next_tops != tops, "it comes nearer to the beginning"
        tops = next_tops
    assert sorted(seen) == sorted((p, each.offset) for p, log in logs.logs.items() for each in log)


class LargeLogs(Logs):
    """Values of a megabyte, which are there only while somebody has them."""

    async def fetch_many(self, topic: str, offsets: Mapping[int, int], **_: Any) -> dict[int, Any]:
        found = await super().fetch_many(topic, offsets)
        return {
            partition: answer._replace(
                records=[each._replace(value=bytes(1 << 20)) for each in answer.records]
            )
            for partition, answer in found.items()
        }


@pytest.mark.parametrize("kept_bytes", [1 << 20, 1 << 30])
def test_of_large_records_only_what_is_shown_is_kept(
    kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "KEPT_BYTES", kept_bytes)
    logs = LargeLogs({p: a_log(100) for p in range(4)}, in_all=8)
    tracemalloc.start()
    places, done = told(scan(logs, limit=200).backwards(ends(logs)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sorted(places) == [(p, n) for p in range(4) for n in range(50, 100)]
    assert done["found"] == 200
    assert most < 50 << 20, f"{most >> 20} MB for 400 MB of records"


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(1, 25),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 2),
)
def test_page_after_page_forwards_gives_everything_once(
    sizes: list[int], limit: int, at_once: int, in_all: int, leaders: int
) -> None:
    logs = Logs(
        {p: a_log(size) for p, size in enumerate(sizes)}, at_once, in_all=in_all, leaders=leaders
    )
    seen: list[tuple[int, int]] = []
    positions = {p: start for p, (start, _) in logs.bounds.items()}
    for _ in range(200):
        places, done = told(scan(logs, limit=limit).forwards(positions))
        seen += places
        positions = {int(p): offset for p, offset in done["next"].items()}
        if not positions:
            break
    assert sorted(seen) == sorted((p, each.offset) for p, log in logs.logs.items() for each in log)


@pytest.mark.parametrize("leaders", [1, 3])
def test_what_an_answer_has_no_room_for_is_asked_again(leaders: int) -> None:
    """Twelve partitions, and room for the records of two in each answer of a leader."""
    logs = Logs({p: a_log(10) for p in range(12)}, 5, in_all=10, leaders=leaders)
    everything = sorted((p, each.offset) for p, log in logs.logs.items() for each in log)
    starts = {p: start for p, (start, _) in logs.bounds.items()}
    for lines in (
        scan(logs, limit=1000).forwards(starts),
        scan(logs, limit=1000).backwards(ends(logs)),
    ):
        places, done = told(lines)
        assert sorted(places) == everything
        assert (done["scanned"], done["next"]) == (120, {})
    places, _ = told(scan(logs, RecordSearch("k7"), limit=1000).forwards(starts))
    assert sorted(places) == [(p, 7) for p in range(12)]


def test_no_partition_waits_until_the_others_are_read() -> None:
    logs = Logs({p: a_log(60) for p in range(3)}, 5, in_all=5)
    places, done = told(scan(logs, limit=20).forwards(dict.fromkeys(range(3), 0)))
    assert {p for p, _ in places} == {0, 1, 2}
    assert set(done["next"]) == {"0", "1", "2"}


def test_what_is_not_committed_yet_does_not_keep_a_scan_waiting() -> None:
    logs = Logs({0: a_log(10), 1: a_log(10)}, 5)
    bounds = {0: (0, 10), 1: (0, 15)}  # nobody gives what is above 10
    client: Any = logs
    asked = RecordScan(client, "t", bounds, RecordSearch(), 100, StillClock(), committed=True)
    places, done = told(asked.forwards({0: 0, 1: 0}))
    assert (len(places), done["next"]) == (20, {})


def test_a_search_reads_as_far_as_it_must_and_says_how_far_that_was() -> None:
    logs = Logs({0: a_log(500)})
    places, done = told(scan(logs, RecordSearch("k423"), limit=1).backwards(ends(logs)))
    assert places == [(0, 423)]
    assert done["scanned"] == 100
    places, done = told(scan(logs, RecordSearch("nobody"), limit=1).backwards(ends(logs)))
    assert (places, done["scanned"], done["next"]) == ([], 500, {})


class Bombs(Logs):
    """The records from 20 to 29 are one batch that is too much to open."""

    async def fetch_many(self, topic: str, offsets: Mapping[int, int], **_: Any) -> dict[int, Any]:
        found = await super().fetch_many(topic, offsets)
        batch: Any = SimpleNamespace(base_offset=20, last_offset=29, size=900)
        for partition, answer in found.items():
            kept = [each for each in answer.records if not 20 <= each.offset < 30]
            closed = (batch,) if len(kept) < len(answer.records) else ()
            found[partition] = answer._replace(records=kept, closed=closed)
        return found


@pytest.mark.parametrize("limit", [10, 100])
def test_a_search_names_once_what_it_could_not_open(limit: int) -> None:
    bomb = {"partition": 0, "first": 20, "last": 29, "size": 900}
    logs = Bombs({0: a_log(50)})
    for lines in (
        scan(logs, RecordSearch("k"), limit).backwards(ends(logs)),
        scan(logs, RecordSearch("nobody"), limit).forwards({0: 0}),
    ):
        _, done = told(lines)
        assert done["closed"] == [bomb]


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ((("", b""),) * 400_000, HEADERS_SHOWN),
        ((("a" * 900_000, b"v"),), 1),
        ((("a", b"v" * 900_000),) * 50, 1),
        ((("a", b"v"), ("b", None)), 2),
    ],
)
def test_a_record_is_shown_in_bounds_whatever_its_headers_are(
    headers: tuple[tuple[str, bytes | None], ...], shown: int
) -> None:
    found = shown_record(0, a_record(headers=headers))
    assert len(found["headers"]) == shown
    assert found["headers_left_out"] == len(headers) - shown
    assert len(json.dumps(found)) < 3 * SHOWN_BYTES


def test_of_records_with_long_names_no_more_is_kept_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "KEPT_BYTES", 1 << 20)
    newest = NewestRecords(1000)
    for number in range(100):
        newest.add(0, Record(number, number, None, None, (("n" * 30_000, b""),)))
    assert sum(len(json.dumps(each)) for each in newest.newest_first()) < 1 << 20
    assert newest.left_out


def a_record(**parts: Any) -> Record:
    return Record(0, 0, **parts)


@pytest.mark.parametrize(
    ("search", "record", "found"),
    [
        (RecordSearch("SHOP"), a_record(value=b"the shop"), True),
        (RecordSearch("shop", ("key",)), a_record(value=b"the shop"), False),
        (RecordSearch("trace"), a_record(headers=(("Trace", b"1"),)), True),
        (RecordSearch("x"), a_record(headers=(("a", None),)), False),
        (RecordSearch(member="who.id", equals="17"), a_record(value=b'{"who": {"id": 17}}'), True),
        (RecordSearch(member="who.id", equals="17"), a_record(value=b'{"who": {"id": "17"}}'), True),
        (RecordSearch(member="who.id", equals="1"), a_record(value=b'{"who": {"id": 17}}'), False),
        (RecordSearch(member="items.1", equals="b"), a_record(value=b'{"items": ["a", "b"]}'), True),
        (RecordSearch(member="a", equals="true"), a_record(value=b'{"a": true}'), True),
        (RecordSearch(member="a", equals="1"), a_record(value=b"not json"), False),
        (RecordSearch(member="a", equals="1"), a_record(value=None), False),
        (RecordSearch("b", member="a", equals="b"), a_record(value=b'{"a": "b"}'), True),
        (RecordSearch(member="9" * 5000, equals="1"), a_record(value=b"[1]"), False),
        (RecordSearch(member="1", equals="1"), a_record(value=b"[1]"), False),
        (RecordSearch(member="1", equals="x"), a_record(value=b'{"1": "x"}'), True),
        (RecordSearch(member="a.b", equals="1"), a_record(value=b'{"a": 1}'), False),
        (RecordSearch(member="a", equals="null"), a_record(value=b'{"a": null}'), True),
        (RecordSearch(member="a", equals="[]"), a_record(value=b"[" * 9000 + b"]" * 9000), False),
    ],
)  # fmt: skip
def test_what_a_search_finds(search: RecordSearch, record: Record, found: bool) -> None:
    assert search.finds(record) is found


@given(st.binary(max_size=200))
def test_bytes_are_shown_as_text_or_in_base64_without_loss(data: bytes) -> None:
    import base64

    shown = shown_bytes(data)
    assert shown is not None
    assert shown["size"] == len(data)
    back = shown["text"].encode() if "text" in shown else base64.b64decode(shown["base64"])
    assert back == data
    json.dumps(shown)


@given(st.integers(0, 3), st.sampled_from(["é", "€", "😀", "a"]))
def test_a_long_text_is_cut_between_characters(shift: int, letter: str) -> None:
    data = ("." * shift + letter * SHOWN_BYTES).encode()
    shown = shown_bytes(data)
    assert shown is not None
    assert "text" in shown
    assert len(shown["text"].encode()) > SHOWN_BYTES - 8
    assert data.startswith(shown["text"].encode())


def test_what_is_written_is_checked_to_be_what_it_is_said_to_be() -> None:
    assert decoded("68 69", "hex") == b"hi"
    assert decoded('{"a":  1.10}', "json") == b'{"a":  1.10}', "as it was written"
    assert decoded("aGk=", "base64") == b"hi"
    assert decoded(None, "text") is None
    for text, format in (("{", "json"), ("NaN", "json"), ("zz", "hex"), ("%", "base64"), ("x", "yaml"), ("\ud800", "text")):  # fmt: skip
        with pytest.raises(AnswerRefused):
            decoded(text, format)


@pytest.mark.parametrize(
    "error", [Unreachable("no broker answers"), InvalidFrame("odd"), ConnectionResetError(), TimeoutError()]
)  # fmt: skip
def test_a_search_that_fails_says_so_in_its_last_line(error: Exception) -> None:
    viewer: Any = SimpleNamespace(ended=asyncio.Event())

    async def found() -> AsyncIterator[dict[str, Any]]:
        yield {"record": 1}
        raise error

    async def read() -> list[Any]:
        lines: Any = found()
        return [json.loads(each) async for each in messages._lines(viewer, lines)]

    first, last = asyncio.run(read())
    assert first == {"record": 1}
    assert "did not answer" in last["error"] or "does not answer" in last["error"]


def test_headers_are_written_as_they_are() -> None:
    given = [["a", " spaced ", "text"], ["a", "/w==", "base64"], ["", None, "text"]]
    assert headers_of(given) == (("a", b" spaced "), ("a", b"\xff"), ("", None))
    for wrong in (["a", "b"], ["a", 1, "text"], [None, "b", "text"], "abc", ["\ud800", "", "text"]):
        with pytest.raises(AnswerRefused):
            headers_of([wrong])
