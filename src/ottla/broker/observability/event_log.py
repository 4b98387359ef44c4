"""The writer of a node's event log: from the node's typed events to records of `__ottla_events`. The same writer keeps
the audit, in another topic.

An event waits in a bounded queue, in memory. A task takes what has come, makes entries of it and sends them in one batch,
as an ordinary Produce request, to whichever broker leads the topic. Without a leader, and after an error, it tries again;
what no longer fits meanwhile is dropped and counted, and an entry `events_dropped` says how many were. Nothing else in
the node waits for the writer, except its stop, for a moment.

The topic is created once there is something to write and the cluster has come up. Events about the topic itself are
written like all others. That cannot go on for ever, because writing causes no event: the one event that it could cause,
a quota that the writer exceeds, is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ottla.broker.cluster.node_channels import open_channel
from ottla.config import Settings
from ottla.event_log.audit import AUDIT_TELLERS
from ottla.event_log.entry import EventEntry, Told
from ottla.event_log.mapping import TELLERS
from ottla.events import Event
from ottla.events.node import EventsDropped
from ottla.events.requests import QuotaExceeded
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.records.record import Record, build
from ottla.runtime import Runtime
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import ADMIN_CLIENT_ID, AUDIT_TOPIC, EVENT_LOG_TOPIC
from ottla.wire.produce import PartitionData, ProduceRequest

logger = logging.getLogger(__name__)

QUEUE_BYTES_MAX = 8 << 20
"""Entries that wait, at most."""
BATCH_BYTES = 256 << 10
ENTRIES_PER_TURN = 100
"""Entries that are made in one turn of the loop, so that a thousand elections at once delay no request."""
LINGER_S = 0.02
RETRY_S = 0.1
RETRY_DOUBLINGS = 3
TIMEOUT_S = 5.0
START_S = 1.0
"""No broker has come or gone for so long before the topic is created: whoever waits for the cluster comes first."""
SETTLE_S = 2.0
"""The same with fewer brokers than replicas: others may be about to start."""
TURN_S = 0.5
"""One node creates the topic; the next one tries if it has not by then."""
REPLICAS_MAX = 3
QUOTA_PAUSE_MS = 60_000
"""A client above its quota is told once in this time."""
QUOTAS_REMEMBERED = 1_000
SEGMENTS = 8
"""The log is deleted by whole segments: it has so many when it is full."""
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 1 << 20, 1 << 30
PRODUCE_VERSION = 9

HOPELESS = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
)
"""The same batch would be refused again."""


class ImageSource(Protocol):
    @property
    def image(self) -> MetadataImage: ...


class ToController(Protocol):
    async def request(
        self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float
    ) -> Any: ...


class _Waiting:
    """An entry that is not known to be in the log."""

    __slots__ = ("at_ms", "key", "value")

    def __init__(self, entry: EventEntry) -> None:
        self.at_ms = entry.at_ms
        self.key, self.value = entry.encode()

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value) + 32


class EventJournal(NamedTuple):
    """A topic that nodes write, and what they write there."""

    topic: str
    tellers: Mapping[type[Event], Callable[[Any, int], Told]]
    queue_max: int
    retention_ms: int
    retention_bytes: int
    unclean_election: bool


def event_journal(settings: Settings) -> EventJournal:
    return EventJournal(
        EVENT_LOG_TOPIC,
        TELLERS,
        settings.ottla_event_log_queue_max,
        settings.ottla_event_log_retention_ms,
        settings.ottla_event_log_retention_bytes,
        # An event log that lost its end is of more use than one that cannot be written.
        unclean_election=True,
    )


def audit_journal(settings: Settings) -> EventJournal:
    return EventJournal(
        AUDIT_TOPIC,
        AUDIT_TELLERS,
        settings.ottla_audit_queue_max,
        settings.ottla_audit_retention_ms,
        settings.ottla_audit_retention_bytes,
        unclean_election=False,
    )


class EventLogWriter:
    def __init__(
        self, settings: Settings, runtime: Runtime, journal: EventJournal | None = None
    ) -> None:
        """It hears events from now on, and writes them after `start`. `journal`: what, if not the event log."""
        self.journal = journal or event_journal(settings)
        self.written = 0
        self.dropped = 0
        self._settings = settings
        self._runtime = runtime
        self._node = settings.node_id
        self.incarnation = f"{runtime.random.getrandbits(32):08x}"
        self._sequence = 0
        self._events: deque[tuple[int, Event]] = deque()
        self._entries: deque[_Waiting] = deque()
        self._entries_bytes = 0
        self._dropped_now = 0
        """Dropped since the last entry about it."""
        self._news: asyncio.Event | None = None
        self._quotas_told: dict[tuple[str | None, str, str], int] = {}
        self._metadata: ImageSource | None = None
        self._controller: Callable[[], ToController | None] = lambda: None
        self._channel: tuple[int, Channel] | None = None
        self._brokers: tuple[int, ...] = ()
        self._brokers_since = runtime.clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        runtime.events.subscribe(self._happened, *self.journal.tellers)

    @property
    def waiting(self) -> int:
        """Events that are not known to be in the log."""
        return len(self._events) + len(self._entries)

    @property
    def _is_full(self) -> bool:
        return self.waiting >= self.journal.queue_max or self._entries_bytes >= QUEUE_BYTES_MAX

    # Hearing

    def _happened(self, event: Event) -> None:
        """Called within whatever the node does just now: it only puts the event aside."""
        now_ms = self._runtime.clock.wall_ms()
        if isinstance(event, QuotaExceeded) and not self._tells_quota(event, now_ms):
            return
        if self._is_full:
            self._drop(1)
            return
        self._tell_dropped(now_ms)
        self._events.append((now_ms, event))
        if self._news is not None:
            self._news.set()

    def _tells_quota(self, event: QuotaExceeded, now_ms: int) -> bool:
        """A client above its quota exceeds it with every request."""
        key = event.user, event.client_id, event.quota
        if event.client_id == ADMIN_CLIENT_ID:
            return False  # it may be this writer
        last = self._quotas_told.get(key)
        if last is not None and now_ms - last < QUOTA_PAUSE_MS:
            return False
        if len(self._quotas_told) >= QUOTAS_REMEMBERED:
            self._quotas_told.clear()
        self._quotas_told[key] = now_ms
        return True

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._dropped_now += count

    def _tell_dropped(self, now_ms: int) -> None:
        if self._dropped_now and not self._is_full:
            count, self._dropped_now = self._dropped_now, 0
            why = f"the topic {self.journal.topic} could not be written"
            self._events.append((now_ms, EventsDropped(count, why)))

    # Starting and stopping

    def start(self, metadata: ImageSource, controller: Callable[[], ToController | None]) -> None:
        """Begin to write. `controller` gives the way to the active controller."""
        self._metadata = metadata
        self._controller = controller
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"writer of {self.journal.topic}"
        )

    async def flush(self, timeout_s: float) -> None:
        """Write what waits, if it can be written at once: the node is about to stop."""
        if self._task is None:
            return
        await self._end_task()
        self._controller = lambda: None  # no topic is created any more
        try:
            async with asyncio.timeout(timeout_s):
                while (self.waiting or self._dropped_now) and await self._write():
                    pass
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """What waits is lost."""
        self._runtime.events.unsubscribe(self._happened)
        await self._end_task()
        self._close_channel()

    async def _end_task(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    # Writing

    async def _run(self) -> None:
        assert self._news is not None
        failures = 0
        while True:
            if not (self.waiting or self._dropped_now):
                self._news.clear()
                await self._news.wait()
            await asyncio.sleep(LINGER_S)
            if await self._write():
                failures = 0
            else:
                await asyncio.sleep(RETRY_S * 2 ** min(failures, RETRY_DOUBLINGS))
                failures += 1

    async def _write(self) -> bool:
        """Write one batch; whether that succeeded."""
        await self._make_entries()
        batch: list[_Waiting] = []
        size = 0
        for waiting in self._entries:
            size += waiting.size
            if batch and size > BATCH_BYTES:
                break
            batch.append(waiting)
        if not batch:
            return True
        try:
            async with asyncio.timeout(TIMEOUT_S):
                error = await self._send(batch)
        except (OSError, TimeoutError, InvalidFrame, KafkaError) as failure:
            logger.debug(
                "event log is not written now topic=%s error=%s", self.journal.topic, failure
            )
            self._close_channel()
            return False
        if error in HOPELESS:
            logger.warning(
                "entries of the event log were refused topic=%s error=%s",
                self.journal.topic,
                error.name,
            )
            self._drop(len(batch))
        elif error != ErrorCode.NONE:
            return False
        else:
            self.written += len(batch)
        for waiting in batch:
            self._entries.popleft()
            self._entries_bytes -= waiting.size
        return True

    async def _make_entries(self) -> None:
        """Each entry gets its id once, however often it is sent."""
        self._tell_dropped(self._runtime.clock.wall_ms())
        made = 0
        while self._events and self._entries_bytes < QUEUE_BYTES_MAX:
            at_ms, event = self._events.popleft()
            self._sequence += 1
            id = f"{self._node}-{self.incarnation}-{self._sequence}"
            told = self.journal.tellers[type(event)](event, self._node)
            waiting = _Waiting(EventEntry(at_ms, self._node, id, told))
            self._entries.append(waiting)
            self._entries_bytes += waiting.size
            made += 1
            if made % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _send(self, batch: list[_Waiting]) -> ErrorCode:
        channel = await self._leader()
        records = [
            Record(offset, waiting.at_ms, waiting.key, waiting.value)
            for offset, waiting in enumerate(batch)
        ]
        data = PartitionData(self.journal.topic, None, 0, memoryview(build(records)))
        request = ProduceRequest(None, -1, int(TIMEOUT_S * 1000), [data])

        def read(frame: memoryview, start: int) -> ErrorCode:
            return ErrorCode(produce.read_response(PRODUCE_VERSION, frame, start).results[0].error)

        return await channel.answer(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            produce.write_request(PRODUCE_VERSION, request),
            read,
            timeout_s=TIMEOUT_S,
        )

    async def _leader(self) -> Channel:
        """A connection to the topic's leader. ConnectionError while there is none."""
        image = self._image
        name = self.journal.topic
        topic = image.topics.get(name)
        if topic is None:
            await self._create()
            raise ConnectionError(f"{name} is not created yet")
        leader = topic.partitions[0].leader
        broker = image.brokers.get(leader)
        if broker is None or broker.fenced:
            raise ConnectionError(f"{name} has no leader")
        if self._channel is not None:
            connected_to, channel = self._channel
            if connected_to == broker.epoch and not channel.closed:
                return channel
        self._close_channel()
        host, port = self._address(broker)
        channel = await open_channel(self._runtime.network, leader, host, port, ADMIN_CLIENT_ID)
        # The epoch names the broker and its incarnation.
        self._channel = broker.epoch, channel
        return channel

    @property
    def _image(self) -> MetadataImage:
        assert self._metadata is not None
        return self._metadata.image

    def _address(self, broker: BrokerImage) -> tuple[str, int]:
        """Of the listener for brokers. A node that is only a controller may not know its name: any listener will do."""
        name = self._settings.inter_broker_listener_name
        named = [at for at in broker.endpoints if at.name == name]
        if not named:
            # The one that speaks as the controllers' listener does, since our certificate is for that.
            spoken = self._settings.security[self._settings.controller_listener_names[0]].number
            named = [at for at in broker.endpoints if at.security_protocol == spoken]
        for at in named or broker.endpoints:
            return at.host, at.port
        raise ConnectionError(f"broker {broker.id} has no address")

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel[1].abort()
            self._channel = None

    # The topic

    async def _create(self) -> None:
        controller = self._controller()
        if controller is None or not self._is_due():
            return
        topic = {
            "name": self.journal.topic,
            "num_partitions": 1,
            "replication_factor": min(REPLICAS_MAX, len(self._brokers)),
            "configs": [
                {"name": name, "value": value}
                for name, value in topic_settings(self.journal).items()
            ],
        }
        request = {
            "topics": [topic],
            "timeout": int(TIMEOUT_S * 1000),
            "validate_only": False,
        }
        answer = await controller.request(ApiKey.CREATE_TOPICS, request, timeout_s=TIMEOUT_S)
        error = ErrorCode(int(answer.topics[0].error_code))
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("could not create the event log topic=%s error=%s", topic["name"], error)

    def _is_due(self) -> bool:
        """Whether this node should create the topic now. A cluster that is just starting gets more brokers soon."""
        image, now = self._image, self._runtime.clock.monotonic()
        alive = tuple(id for id in sorted(image.brokers) if image.is_alive(id))
        if alive != self._brokers:
            self._brokers, self._brokers_since = alive, now
        if not alive:
            return False
        turn = alive.index(self._node) if self._node in alive else len(alive)
        settle_s = START_S if len(alive) >= REPLICAS_MAX else SETTLE_S
        return now - self._brokers_since >= settle_s + turn * TURN_S


def topic_settings(journal: EventJournal) -> dict[str, str]:
    retention_bytes = journal.retention_bytes
    segment_bytes = SEGMENT_BYTES_MAX if retention_bytes < 0 else retention_bytes // SEGMENTS
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(journal.retention_ms),
        "retention.bytes": str(retention_bytes),
        "segment.bytes": str(min(max(segment_bytes, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)),
        "min.insync.replicas": "1",
        # A node whose clock is wrong has something to tell, too.
        "message.timestamp.before.max.ms": str(2**63 - 1),
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "unclean.leader.election.enable": str(journal.unclean_election).lower(),
    }
