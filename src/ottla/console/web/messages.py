"""Records: browsed from the newest backwards or from a place forwards, searched, followed live, counted over time, produced.

What is found comes line by line (JSON, one object a line), with word of how far it is, so that a search through millions of
records shows what it has at once and ends when its page does. In memory is a round of fetches, and what is shown of the records
that come next: `KEPT_BYTES` at most. A page that takes nothing for long is closed.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager, suppress
from heapq import heappop, heappush
from math import ceil
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.cluster_admin import ClusterAdmin
from ottla.client.connections import ConnectionsClosed
from ottla.client.model import FetchedRecords
from ottla.client.opening import Opening
from ottla.client.partitioner import partition_for
from ottla.client.producer import Producer
from ottla.console.web.answers import (
    INT32,
    AnswerRefused,
    fields_of,
    json_response,
    number_in,
    number_of,
    refusal_of,
    text_of,
    viewer_of,
)
from ottla.console.web.viewer import Viewer
from ottla.records.batch import Batch
from ottla.records.record import Record
from ottla.runtime.seams import Clock
from ottla.wire.errors import KafkaError

SHOWN_BYTES = 32 << 10
"""Of a key, of a value, and of all headers; the whole value can be had by itself."""
HEADERS_SHOWN = 100
CLOSED_MAX = 100
"""Batches that are named because they are too much to open."""
LIMIT_MAX = 1000
FORM_BYTES_MAX = 1 << 20
"""Of a whole record that a form is filled with: in base64, too, it is less than what a form may send."""
KEPT_BYTES = 32 << 20
"""Of the records that come next. What has no room comes after them."""
READINGS_MAX = 32
"""Searches and live tails that a viewer has at the same time. A tail has connections of its own."""
STUCK_S = 60.0
"""A page that takes nothing for so long is closed."""
PARTITIONS_MAX = 1000
PARTITION_MAX = (1 << 31) - 1
ROUND_BYTES = 4 << 20
"""Of the answer of each leader to one question."""
SHARE_BYTES_MIN = 64 << 10
"""Of one partition in it, however many there are."""
WINDOW_FIRST, WINDOW_MAX = 100, 20_000
"""Records of each partition that are read at a time while going backwards."""
SCAN_S = 60.0
"""After so long a search pauses, and says where it can go on."""
TAIL_S = 0.25
TAIL_RECORDS_MAX = 100
"""In one step of a live tail: nobody reads more."""
BUCKETS_MAX = 120
TIME_MS_MAX = 1 << 53
"""Later ones have no exact number in a browser."""
MAX_TIMESTAMP = -3
"""Kafka's question for the record with the latest timestamp."""


# What is shown of a record


def shown_bytes(data: bytes | None, most: int = SHOWN_BYTES) -> dict[str, Any] | None:
    """As text if it is text, else in base64."""
    if data is None:
        return None
    cut = bytes(data[:most])
    found: dict[str, Any] = {"size": len(data)}
    try:
        found["text"] = (cut if len(data) <= most else _whole_characters(cut)).decode()
    except UnicodeDecodeError:
        found["base64"] = base64.b64encode(cut).decode()
    return found


def _whole_characters(cut: bytes) -> bytes:
    """Without the beginning of a character at its end."""
    for length in range(1, min(4, len(cut) + 1)):
        last = cut[-length]
        if last >= 0xC0:
            return cut[:-length]
        if last < 0x80:
            return cut
    return cut


def shown_record(partition: int, record: Record, most: int = SHOWN_BYTES) -> dict[str, Any]:
    shown: list[list[Any]] = []
    room = most
    for name, value in record.headers[:HEADERS_SHOWN]:
        if room < 0:
            break
        cut = name if len(name) <= room else f"{name[:room]}…"
        room -= len(name)
        shown.append([cut, shown_bytes(value, max(0, room))])
        room -= len(value or b"")
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown_bytes(record.key, most),
        "value": shown_bytes(record.value, most),
        "headers": shown,
        "headers_left_out": len(record.headers) - len(shown),
    }


def _size(record: Record) -> int:
    parts = (record.key, record.value, *(part for each in record.headers for part in each))
    return sum(len(part or b"") for part in parts)


class NewestRecords:
    """Of all records that are added, the newest, as they are shown: so many, and as much as there is room for. Of the others only
    their places are known, since what was read is large."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[tuple[tuple[int, int, int], int, dict[str, Any]]] = []
        """A heap of rank, bytes, and what is shown: the oldest is its first."""
        self._bytes = 0
        self._latest: dict[int, int] = {}
        self.left_out: dict[int, int] = {}
        """By partition: the offset below which all records are that were not kept."""

    def add(self, partition: int, record: Record) -> None:
        """Of each partition in the order of its log."""
        # Producers set timestamps, in any order. A record counts as no older than those before it in its partition, so that
        # those which are left out are below those which are kept, and nothing comes twice.
        latest = self._latest[partition] = max(record.timestamp, self._latest.get(partition, 0))
        rank = (latest, -partition, record.offset)
        if len(self._kept) >= self._limit and rank < self._kept[0][0]:
            self._leave_out(rank)
            return
        shown = shown_record(partition, record)
        size = len(json.dumps(shown))
        heappush(self._kept, (rank, size, shown))
        self._bytes += size
        while len(self._kept) > self._limit or (self._bytes > KEPT_BYTES and len(self._kept) > 1):
            oldest, size, _ = heappop(self._kept)
            self._bytes -= size
            self._leave_out(oldest)

    def _leave_out(self, rank: tuple[int, int, int]) -> None:
        _, negated, offset = rank
        self.left_out[-negated] = max(self.left_out.get(-negated, 0), offset + 1)

    def newest_first(self) -> Iterable[dict[str, Any]]:
        for _, _, shown in sorted(self._kept, key=lambda each: each[0], reverse=True):
            yield shown


# What is searched for


class RecordSearch(NamedTuple):
    """A record is found if it contains the text, in whatever case, and if the member of its JSON value is what is asked."""

    text: str = ""
    places: tuple[str, ...] = ("key", "value", "headers")
    member: str = ""
    """`customer.id`"""
    equals: str = ""

    @property
    def takes_all(self) -> bool:
        return not self.text and not self.member

    def finds(self, record: Record) -> bool:
        return self._contains(record) and (not self.member or self._is_equal(record))

    def _contains(self, record: Record) -> bool:
        if not self.text:
            return True
        wanted = self.text.lower()
        return any(
            wanted in bytes(data).decode(errors="replace").lower()
            for data in self._parts(record)
            if data is not None
        )

    def _parts(self, record: Record) -> Iterable[bytes | None]:
        if "key" in self.places:
            yield record.key
        if "value" in self.places:
            yield record.value
        if "headers" in self.places:
            for name, value in record.headers:
                yield name.encode(errors="replace")
                yield value

    def _is_equal(self, record: Record) -> bool:
        try:
            value = json.loads(record.value or b"")
            for name in self.member.split("."):
                if isinstance(value, list):
                    value = value[int(name)] if name.isdecimal() else _ABSENT
                else:
                    value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
            return value is not _ABSENT and (value == self.equals or _plain(value) == self.equals)
        except (ValueError, IndexError, RecursionError):
            return False  # no JSON, or a place that no list has


_ABSENT = object()


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Reading


Bounds = Mapping[int, tuple[int, int]]
"""By partition: where it begins and ends."""


class ClosedBatches:
    """Those that were too much to open, the first ones of a search: who looks for a record must know where it may be."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Batch] = {}

    def add(self, partition: int, found: Iterable[Batch]) -> None:
        for batch in found:
            if len(self._found) < CLOSED_MAX:
                self._found[partition, batch.base_offset] = batch

    def as_json(self) -> list[dict[str, int]]:
        return [
            {"partition": p, "first": first, "last": batch.last_offset, "size": batch.size}
            for (p, first), batch in self._found.items()
        ]


class RecordScan:
    """Reads partitions of one topic until enough is found. `lines` gives what it finds, and how far it is."""

    def __init__(
        self,
        client: Client,
        topic: str,
        bounds: Bounds,
        search: RecordSearch,
        limit: int,
        clock: Clock,
        *,
        committed: bool,
    ) -> None:
        self._client = client
        self._topic = topic
        self._bounds = bounds
        self._search = search
        self._limit = limit
        self._clock = clock
        self._committed = committed
        self._scanned = 0
        self._bytes = 0
        self._found = 0
        self._closed = ClosedBatches()

    async def forwards(self, starts: Mapping[int, int]) -> AsyncGenerator[dict[str, Any], None]:
        """From these offsets on, up to the ends as they are now."""
        began = self._clock.monotonic()
        positions = {
            partition: offset
            for partition, offset in starts.items()
            if offset < self._bounds[partition][1]
        }
        while positions:
            for partition, records, following in await self._round(
                positions, self._ends(positions)
            ):
                for record in records:
                    if self._search.finds(record):
                        self._found += 1
                        yield {"record": shown_record(partition, record)}
                        if self._found >= self._limit:
                            positions[partition] = record.offset + 1
                            yield self._end(positions)
                            return
                _go_on(positions, partition, following, self._bounds[partition][1])
            yield self._progress(sum(self._bounds[p][1] - o for p, o in positions.items()))
            if self._clock.monotonic() - began > SCAN_S:
                break
        yield self._end(positions)

    async def backwards(self, ends: Mapping[int, int]) -> AsyncGenerator[dict[str, Any], None]:
        """What is older than these offsets, in rounds of windows: each is older than the one before."""
        began = self._clock.monotonic()
        tops = {p: end for p, end in ends.items() if end > self._bounds[p][0]}
        window = WINDOW_FIRST
        if self._search.takes_all:
            share = self._limit if len(tops) <= 20 else ceil(4 * self._limit / len(tops))
            window = max(10, share)
        while tops and self._found < self._limit:
            lows = {p: max(self._bounds[p][0], top - window) for p, top in tops.items()}
            newest = NewestRecords(self._limit - self._found)
            positions = dict(lows)
            while positions:
                for partition, records, following in await self._round(positions, tops):
                    for record in records:
                        if self._search.finds(record):
                            newest.add(partition, record)
                    _go_on(positions, partition, following, tops[partition])
                yield self._progress(sum(top - self._bounds[p][0] for p, top in tops.items()))
            for shown in newest.newest_first():
                self._found += 1
                yield {"record": shown}
            # What was read and not shown comes again, now or if somebody wants more.
            for partition, offset in newest.left_out.items():
                lows[partition] = max(lows[partition], offset)
            tops = {p: low for p, low in lows.items() if low > self._bounds[p][0]}
            yield self._progress(sum(top - self._bounds[p][0] for p, top in tops.items()))
            window = min(window * 2, WINDOW_MAX)
            if self._clock.monotonic() - began > SCAN_S:
                break
        yield self._end(tops)

    def _ends(self, positions: Mapping[int, int]) -> dict[int, int]:
        return {partition: self._bounds[partition][1] for partition in positions}

    async def _round(
        self, positions: dict[int, int], ends: Mapping[int, int]
    ) -> list[tuple[int, list[Record], int]]:
        """One fetch of the partitions: what those have below their ends for which the answers had room, and where each of
        these goes on. The others are asked first the next time."""
        asked = dict(list(positions.items())[:PARTITIONS_MAX])
        answers = await fetch_in_shares(self._client, self._topic, asked, committed=self._committed)
        fetched = {}
        for partition, answer in answers.items():
            if not isinstance(answer, KafkaError):
                fetched[partition] = answer
            elif not answer.retriable:
                raise answer
        if not fetched:
            raise TimeoutError
        if not any(answer.next_offset > asked[p] for p, answer in fetched.items()):
            # Each leader gives at least one batch if there is any. So nothing is left below these ends: what is above them now
            # is of an open transaction, or is gone.
            return [(partition, [], ends[partition]) for partition in fetched]
        found = []
        for partition, answer in fetched.items():
            self._closed.add(
                partition, (b for b in answer.closed if b.base_offset < ends[partition])
            )
            if answer.next_offset > asked[partition]:
                records = [each for each in answer.records if each.offset < ends[partition]]
                self._scanned += len(records)
                self._bytes += sum(len(each.value or b"") for each in records)
                found.append((partition, records, answer.next_offset))
        return found

    def _progress(self, left: int) -> dict[str, Any]:
        return {"progress": {**self._so_far(), "left": left}}

    def _so_far(self) -> dict[str, Any]:
        return {"scanned": self._scanned, "bytes": self._bytes, "closed": self._closed.as_json()}

    def _end(self, positions: Mapping[int, int]) -> dict[str, Any]:
        return {
            "done": {
                **self._so_far(),
                "found": self._found,
                "next": {str(partition): offset for partition, offset in positions.items()},
            }
        }


def _go_on(positions: dict[int, int], partition: int, following: int, end: int) -> None:
    """What has brought something is asked last the next time, if it is not at its end: so that each has its turn."""
    del positions[partition]
    if following < end:
        positions[partition] = following


async def fetch_in_shares(
    client: Client, topic: str, positions: Mapping[int, int], *, committed: bool = False
) -> dict[int, FetchedRecords | KafkaError]:
    """One fetch, in which no partition takes all of the room. It may be too little for the last ones all the same."""
    share = max(SHARE_BYTES_MIN, ROUND_BYTES // max(1, len(positions)))
    return await client.fetch_many(
        topic,
        positions,
        max_bytes=ROUND_BYTES,
        partition_max_bytes=share,
        committed=committed,
        opening=Opening(),
    )


async def _bounds(
    client: Client, topic: str, partitions: Iterable[int] | None
) -> dict[int, tuple[int, int]]:
    """Of these partitions, or of all that have a leader."""
    described = await client.topic(topic, fresh=True)
    wanted = None if partitions is None else set(partitions)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for each in described.partitions:
        if (wanted is None or each.partition in wanted) and each.leader >= 0:
            by_leader.setdefault(each.leader, []).append((topic, each.partition))
    if wanted is not None:
        missing = wanted - {each.partition for each in described.partitions}
        if missing:
            raise AnswerRefused(404, f"Topic {topic} has no partition {min(missing)}.")
    admin = ClusterAdmin(client)
    found: dict[int, tuple[int, int]] = {}
    for leader, places in by_leader.items():
        starts = await admin.offsets(leader, places, EARLIEST)
        ends = await admin.offsets(leader, places, LATEST)
        found |= {place[1]: (starts[place], ends[place]) for place in starts.keys() & ends.keys()}
    return found


async def _offsets_at(client: Client, topic: str, bounds: Bounds, timestamp: int) -> dict[int, int]:
    """The first offset at or after a time; the end where there is none."""
    described = await client.topic(topic)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for each in described.partitions:
        if each.partition in bounds and each.leader >= 0:
            by_leader.setdefault(each.leader, []).append((topic, each.partition))
    found = {partition: end for partition, (_, end) in bounds.items()}
    for leader, places in by_leader.items():
        for (_, partition), offset in (
            await ClusterAdmin(client).offsets(leader, places, timestamp)
        ).items():
            if offset >= 0:
                found[partition] = offset
    return found


def _partitions(request: Request) -> list[int] | None:
    text = request.query_params.get("partition", "")
    if not text:
        return None
    return [number_in(each, "A partition", most=PARTITION_MAX) for each in text.split(",")]


async def browse(request: Request) -> Response:
    """`from`: newest, earliest, an offset, or time with `time` (ms). `next` (forwards) and `before` (backwards) go on where an
    answer ended."""
    viewer = viewer_of(request)
    with ExitStack() as stack:
        stack.enter_context(_reading(viewer))
        found = await _scan_of(request, viewer)
        return RecordLines(viewer, found, stack.pop_all())


async def _scan_of(request: Request, viewer: Viewer) -> AsyncGenerator[dict[str, Any], None]:
    client, topic = viewer.client, text_of(request, "topic")
    query = request.query_params
    limit = number_of(request, "limit", 100, least=1, most=LIMIT_MAX)
    places = tuple(each for each in query.get("in", "key,value,headers").split(",") if each)
    search = RecordSearch(
        query.get("search", ""), places, query.get("member", ""), query.get("equals", "")
    )
    bounds = await _bounds(client, topic, _partitions(request))
    upper = number_of(request, "until", 0, most=TIME_MS_MAX)
    if upper:
        ends = await _offsets_at(client, topic, bounds, upper)
        bounds = {p: (start, max(start, min(end, ends[p]))) for p, (start, end) in bounds.items()}
    scan = RecordScan(
        client,
        topic,
        bounds,
        search,
        limit,
        viewer.clock,
        committed=query.get("committed") == "true",
    )
    where = query.get("from", "newest")
    if where == "newest":
        return scan.backwards({p: end for p, (_, end) in bounds.items()})
    if where == "before":
        return scan.backwards(_positions(query.get("next", ""), bounds))
    if where == "earliest":
        return scan.forwards({p: start for p, (start, _) in bounds.items()})
    if where == "time":
        return scan.forwards(
            await _offsets_at(client, topic, bounds, number_of(request, "time", most=TIME_MS_MAX))
        )
    if where == "next":
        return scan.forwards(_positions(query.get("next", ""), bounds))
    if where.isdecimal():
        offset = number_in(where, "from")
        return scan.forwards(
            {p: min(max(offset, start), end) for p, (start, end) in bounds.items()}
        )
    raise AnswerRefused(400, "from is newest, earliest, time, next, before or an offset.")


def _positions(text: str, bounds: Bounds) -> dict[int, int]:
    """`0:123,1:77`"""
    found = {}
    for each in text.split(","):
        number, _, place = each.partition(":")
        partition = number_in(number, "A partition of next", most=PARTITION_MAX)
        offset = number_in(place, "An offset of next")
        if partition in bounds:
            start, end = bounds[partition]
            found[partition] = min(max(offset, start), end)
    return found


async def tail(request: Request) -> Response:
    """What is written from now on, as it comes."""
    viewer = viewer_of(request)
    topic = text_of(request, "topic")
    query = request.query_params
    search = RecordSearch(
        query.get("search", ""),
        member=query.get("member", ""),
        equals=query.get("equals", ""),
    )
    with ExitStack() as stack:
        stack.enter_context(_reading(viewer))
        # Of its own: a broker that waits for records answers nothing else on that connection.
        client = viewer.connect()
        stack.callback(client.connections.close)
        bounds = await _bounds(client, topic, _partitions(request))
        committed = query.get("committed") == "true"
        found = _follow(client, topic, bounds, search, viewer.clock, committed=committed)
        return RecordLines(viewer, found, stack.pop_all())


async def _follow(
    client: Client,
    topic: str,
    bounds: Bounds,
    search: RecordSearch,
    clock: Clock,
    *,
    committed: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    positions = {partition: end for partition, (_, end) in bounds.items()}
    seen = 0
    closed = ClosedBatches()
    while True:
        answers = await client.fetch_many(
            topic,
            positions,
            max_wait_ms=round(TAIL_S * 1000),
            committed=committed,
            opening=Opening(),
        )
        matched: list[tuple[int, Record]] = []
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                if not answer.retriable:
                    raise answer
                continue
            seen += len(answer.records)
            closed.add(partition, answer.closed)
            if answer.next_offset > positions[partition]:
                # It is asked last now: a partition that is always busy leaves room for the others.
                del positions[partition]
                positions[partition] = answer.next_offset
            matched += ((partition, each) for each in answer.records if search.finds(each))
        matched.sort(key=lambda each: each[1].timestamp)
        skipped = max(0, len(matched) - TAIL_RECORDS_MAX)
        if skipped:
            yield {"skipped": skipped}
        for partition, record in matched[skipped:]:
            yield {"record": shown_record(partition, record)}
        now_ms = clock.wall_ms()
        yield {"progress": {"scanned": seen, "at": now_ms, "closed": closed.as_json()}}
        if not answers:
            raise TimeoutError


# Lines, as they come


@contextmanager
def _reading(viewer: Viewer) -> Iterator[None]:
    """A search or a live tail, from its question to its last line. AnswerRefused if there are too many."""
    if viewer.readings >= READINGS_MAX:
        raise AnswerRefused(503, "Too many searches and live tails are under way: end one of them.")
    viewer.readings += 1
    try:
        yield
    finally:
        viewer.readings -= 1


class RecordLines(StreamingResponse):
    """Until all is found, or nobody is let in as this viewer any more: the user's rights last no longer than the visit."""

    def __init__(
        self, viewer: Viewer, found: AsyncGenerator[dict[str, Any], None], held: ExitStack
    ) -> None:
        """`held` is given back when the last line was taken, or the page is gone."""
        super().__init__(
            _lines(viewer, found),
            media_type="application/x-ndjson",
            headers={"cache-control": "no-store"},
        )
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(STUCK_S):
                await send(message)

        with self._held, suppress(TimeoutError):
            await super().__call__(scope, receive, send_in_time)


async def _lines(
    viewer: Viewer, found: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(found):
            async for each in found:
                if viewer.ended.is_set():
                    raise ConnectionsClosed
                yield (json.dumps(each, ensure_ascii=False) + "\n").encode(errors="replace")
    except Exception as error:
        # An end of the visit closes the connections, which looks like a failure of the cluster.
        refusal = refusal_of(ConnectionsClosed() if viewer.ended.is_set() else error)
        if refusal is None:
            raise
        yield (json.dumps({"error": refusal.text}) + "\n").encode(errors="replace")


async def whole(request: Request) -> Response:
    """The value of one record, as it is, to keep as a file."""
    topic, partition, record = await _record_at(request)
    name = f"{topic}-{partition}-{record.offset}.bin"
    return Response(
        bytes(record.value or b""),
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "cache-control": "no-store",
        },
        media_type="application/octet-stream",
    )


async def one(request: Request) -> Response:
    """One record with nothing cut off, to produce it again."""
    _, partition, record = await _record_at(request)
    if (size := _size(record)) > FORM_BYTES_MAX or len(record.headers) > HEADERS_SHOWN:
        raise AnswerRefused(
            413,
            f"This record has {size} bytes and {len(record.headers)} headers, and a form takes {FORM_BYTES_MAX} and"
            f" {HEADERS_SHOWN}. Keep its value as a file, and use ottla produce.",
        )
    return json_response(shown_record(partition, record, FORM_BYTES_MAX))


async def _record_at(request: Request) -> tuple[str, int, Record]:
    viewer = viewer_of(request)
    topic = text_of(request, "topic")
    partition = number_of(request, "partition", most=PARTITION_MAX)
    offset = number_of(request, "offset")
    # The batch that has it comes however large it is, and no other is wanted.
    one = Opening(kept_bytes=1)
    found = await viewer.client.fetch(
        topic, partition, offset, max_bytes=1, max_wait_ms=0, opening=one
    )
    if found.closed:
        raise AnswerRefused(
            413, "This record is in a batch that is too much to open here. ottla consume reads it."
        )
    for record in found.records:
        if record.offset == offset:
            return topic, partition, record
    raise AnswerRefused(404, f"There is no record at offset {offset} of {topic}-{partition}.")


async def histogram(request: Request) -> Response:
    """How many records were written in each part of a time, by offsets: nothing is read but indexes. Without `from` and
    `until` it is all the time that the records have."""
    viewer = viewer_of(request)
    client, topic = viewer.client, text_of(request, "topic")
    buckets = number_of(request, "buckets", 60, least=1, most=BUCKETS_MAX)
    bounds = await _bounds(client, topic, _partitions(request))
    bounds = {p: each for p, each in bounds.items() if each[1] > each[0]}
    first = number_of(request, "from", 0, most=TIME_MS_MAX)
    last = number_of(request, "until", 0, most=TIME_MS_MAX)
    if bounds and not first:
        first = await _first_time(client, topic, bounds)
    if not last:
        last = viewer.clock.wall_ms() + 1
    last = max(last, first + buckets)
    edges = [first + round((last - first) * each / buckets) for each in range(buckets + 1)]
    counts: list[int] = []
    before: dict[int, int] = {}
    for edge in edges if bounds else ():
        offsets = await _offsets_at(client, topic, bounds, edge)
        if before:
            counts.append(sum(max(0, offsets[p] - before[p]) for p in offsets))
        before = offsets
    return json_response(
        {"edges": edges, "counts": counts, "records": sum(e - s for s, e in bounds.values())}
    )


async def _first_time(client: Client, topic: str, bounds: Bounds) -> int:
    """Of the oldest records of the partitions."""
    times: list[int] = []
    missing = {p: start for p, (start, _) in list(bounds.items())[:PARTITIONS_MAX]}
    while missing:
        answers = await fetch_in_shares(client, topic, missing)
        came = {
            partition: answer
            for partition, answer in answers.items()
            if not isinstance(answer, KafkaError) and answer.next_offset > missing[partition]
        }
        if not came:
            break
        first = (answer.first_timestamp for answer in came.values())
        times += (each for each in first if each is not None)
        missing = {p: start for p, start in missing.items() if p not in came}
    return max(0, min(times, default=0))


# Writing


DECODERS: Mapping[str, Callable[[str], bytes]] = {
    "text": lambda text: text.encode(),
    "json": lambda text: _checked_json(text).encode(),
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def _checked_json(text: str) -> str:
    """As it was written: its numbers are not read, since 1.10 would become 1.1. ValueError if it is no JSON."""
    json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_json)
    return text


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def headers_of(given: list[Any]) -> tuple[tuple[str, bytes | None], ...]:
    """`[name, value, format]` each. AnswerRefused if it is something else."""
    found = []
    for each in given:
        match each:
            case [str(name), str() | None as value, str(format)]:
                decoded(name, "text")
                found.append((name, decoded(value, format)))
            case _:
                raise AnswerRefused(400, "headers is a list of name, value and format.")
    return tuple(found)


def decoded(text: str | None, format: str) -> bytes | None:
    """None is null. AnswerRefused if the text is not what it is said to be."""
    if text is None:
        return None
    if format not in DECODERS:
        raise AnswerRefused(400, f"A format is one of {', '.join(DECODERS)}.")
    try:
        return DECODERS[format](text)
    except (ValueError, RecursionError) as error:
        raise AnswerRefused(400, f"This is no {format}: {error}.") from None


async def produce(request: Request) -> Response:
    """One record. Without a partition: that of its key, as Kafka's clients choose it, or any."""
    text = (str, type(None))
    given = await fields_of(
        request,
        topic=str,
        partition=(INT32, type(None)),
        key=text,
        key_format=str,
        value=text,
        value_format=str,
        headers=list,
    )
    headers = headers_of(given["headers"])
    viewer = viewer_of(request)
    key = decoded(given["key"], given["key_format"])
    described = await viewer.client.topic(given["topic"], fresh=True)
    now_ms = viewer.clock.wall_ms()
    partition = given["partition"]
    if partition is None:
        number = len(described.partitions)
        partition = now_ms % number if key is None else partition_for(key, number)
    value = decoded(given["value"], given["value_format"])
    record = Record(0, now_ms, key, value, headers)
    offset = await Producer(viewer.client).send(given["topic"], partition, [record])
    return json_response({"partition": partition, "offset": offset, "timestamp": now_ms})
