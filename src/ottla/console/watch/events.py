"""Tails the event log: what happened is known within milliseconds, and nothing needs to be asked for meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.opening import Opening
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.flow import CLUSTER
from ottla.console.model.happenings import event_row
from ottla.console.model.rows import EventRow
from ottla.console.watch.polling import BACKOFF_MAX_S, BACKOFF_S, LOST, lacks_right
from ottla.event_log.entry import EntryReader
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

logger = logging.getLogger(__name__)

HISTORY_MAX = 5_000
"""Entries that are read at first; older ones are read when somebody wants to see them."""
STEP_BYTES = 1 << 17
"""Of older entries that are read at a time: others wait while they are decoded."""
LONG_POLL_MS = 500
LOOK_AGAIN_S = 1.0
HURRIES = {
    "election": ("metadata",),
    "offline": ("metadata",),
    "leader_start": ("metadata",),
    "fenced": ("cluster", "metadata", "quorum"),
    "unfenced": ("cluster", "metadata"),
    "isr_shrink": ("metadata",),
    "isr_expand": ("metadata",),
    "reassignment": ("moves", "metadata"),
    "controller_change": ("quorum",),
    "truncation": ("losses",),
    "log_dir_failure": ("disks", "metadata"),
    "log_dir_room": ("disks",),
    "rebalance": ("groups",),
    "member_expired": ("groups",),
    "transaction_aborted": ("transactions",),
}
"""What is worth asking anew after an entry."""


class EventTail:
    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        hurry: Callable[[str], None],
        noted: Callable[[], None],
        known: asyncio.Event,
    ) -> None:
        """`client`: one of its own, since a broker that waits for the next entry answers nothing else on that connection. `known`:
        set when there is metadata, to which entries can be applied."""
        self._client = client
        self._model = model
        self._hurry = hurry
        self._noted = noted
        self._known = known
        self._reader = EntryReader()
        self._position: int | None = None
        self._failures = 0
        self.is_read = asyncio.Event()
        """Set when all entries are known that there were."""

    async def run(self) -> None:
        await self._known.wait()
        while True:
            if not self._model.cluster[CLUSTER].has_event_log:
                if not self._model.happenings.events:  # it may be that they were forgotten
                    self._begin_anew()
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            try:
                await self._take_more()
                self._failures = 0
            except LOST as error:
                self._failures += 1
                if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._position = None
                if lacks_right(error):
                    self._model.forget_event_log()
                    self._noted()
                    self.is_read.set()  # as far as it ever will be
                logger.debug("the event log was not read error=%s", error)
                await asyncio.sleep(min(BACKOFF_S * 2 ** min(self._failures, 8), BACKOFF_MAX_S))
            except Exception:
                logger.exception("the event log was not read")
                await asyncio.sleep(BACKOFF_MAX_S)

    def _begin_anew(self) -> None:
        self._position = None
        self._reader = EntryReader()

    async def _take_more(self) -> None:
        if self._position is None:
            self._position = await self._start()
        fetched = await self._client.fetch(
            EVENT_LOG_TOPIC, 0, self._position, max_wait_ms=LONG_POLL_MS, opening=Opening()
        )
        is_new = fetched.next_offset >= fetched.high_watermark
        hurried: set[str] = set()
        for entry in self._reader.entries(fetched.records):
            row = event_row(entry)
            self._model.event(row)
            hurried.update(HURRIES.get(row.kind, ()))
        self._position = fetched.next_offset
        if fetched.records:
            self._noted()
        if is_new:  # the past is known to everybody
            self.is_read.set()
            for what in sorted(hurried):
                self._hurry(what)

    async def _start(self) -> int:
        first = await self._client.offset(EVENT_LOG_TOPIC, 0, EARLIEST)
        end = await self._client.offset(EVENT_LOG_TOPIC, 0, LATEST)
        self._model.happenings.begin(whole=end - first <= HISTORY_MAX)
        return max(first, end - HISTORY_MAX)


async def read_events(
    client: Client, from_ms: int, until_ms: int, limit: int, take: Callable[[EventRow], None]
) -> bool:
    """Entries of that time in the order of the log, the newest `limit` of them, one by one: a log may be long. Returns whether
    these are all."""
    start = await client.offset(EVENT_LOG_TOPIC, 0, from_ms)
    end = await client.offset(EVENT_LOG_TOPIC, 0, until_ms)
    offset, reader = max(start, end - limit), EntryReader()
    while offset < end:
        fetched = await client.fetch(
            EVENT_LOG_TOPIC, 0, offset, max_bytes=STEP_BYTES, max_wait_ms=0, opening=Opening()
        )
        for entry in reader.entries(fetched.records):
            if from_ms <= entry.at_ms < until_ms:
                take(event_row(entry))
        if fetched.next_offset <= offset:
            break
        offset = fetched.next_offset
        await asyncio.sleep(0)
    return end - start <= limit
