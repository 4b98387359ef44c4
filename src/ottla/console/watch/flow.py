"""Asks what flows through a cluster and lies in it: metrics pages where brokers serve them, else offsets and sizes."""

from __future__ import annotations

import asyncio

from ottla.balance.load import MINUTE
from ottla.client.admin import BROKER
from ottla.client.client import EARLIEST, LATEST
from ottla.client.http_pages import http_page, metrics_address
from ottla.client.loads import cluster_loads
from ottla.client.model import ReplicaOffsets
from ottla.console.model.flow import CLUSTER, FlowRates
from ottla.console.model.rows import DiskRow, EndsRow, EpochRow, Place, ReplicaRow
from ottla.console.watch.asking import AT_ONCE_MAX, TOPICS, Asking, PlaceTurns
from ottla.console.watch.metrics_page import read_page
from ottla.console.watch.polling import LOST, Poll, lacks_right
from ottla.wire.errors import KafkaError

METRICS_S = 2.0
METRICS_PATIENCE_S = 5.0
LISTENERS = "metrics.listeners"
LISTENERS_KNOWN_MS = 60_000
LOOKED_AT_S = 0.25
"""How often the replicas of a partition are asked that somebody looks at."""
PLACES_MAX = 8
"""Partitions whose replicas are asked so often; of more, each has its turn."""
LISTED_S = 2.0
LISTED_MAX = 500
"""Partitions in lists whose replicas are asked: a screen shows fewer."""
EPOCHS_MAX = 24


class FlowQuestions:
    def __init__(self, asking: Asking, *, reads_pages: bool) -> None:
        self._reads_pages = reads_pages
        self._asking = asking
        self._client = asking.client
        self._model = asking.model
        self._flow = asking.model.flow
        self._pages: dict[int, tuple[str, int] | None] = {}
        """Where brokers serve metrics; None: nowhere."""
        self._pages_ms: dict[int, int] = {}
        self._looked_at: set[Place] = set()
        self._turns = PlaceTurns(PLACES_MAX)
        self._epochs_of: dict[Place, tuple[int, int]] = {}
        """Leader and leader epoch for which the epochs of a partition were asked."""

    def polls(self) -> list[Poll]:
        return [
            Poll(
                "metrics",
                self._ask_metrics,
                lambda: METRICS_S,
                after=self._asking.known,
                forget=self._flow.forget_rates,
            ),
            Poll("offsets", self._ask_offsets, self._offsets_s, after=self._asking.known),
            Poll(
                "disks",
                self._ask_disks,
                lambda: 15.0,
                after=self._asking.known,
                forget=self._flow.forget_disks,
            ),
            Poll("ends", self._ask_ends, self._ends_s, after=self._asking.known),
            Poll(
                "replicas", self._ask_replicas, self._replicas_s, rest=2, after=self._asking.known
            ),
        ]

    # Rates

    async def _ask_metrics(self) -> None:
        living = self._asking.living()
        self._flow.retain(self._model.brokers)
        if self._reads_pages:
            await self._find_pages(living)
        served = {id: page for id in living if (page := self._pages.get(id)) is not None}
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def ask(broker: int, page: tuple[str, int]) -> None:
            try:
                async with turns, asyncio.timeout(METRICS_PATIENCE_S):
                    _, body = await http_page(*page, "/metrics?format=json")
            except OSError:
                self._pages_ms.pop(broker, None)
                return
            found = read_page(body)
            if found is not None:
                now_ms = self._asking.now_ms
                self._flow.counters(broker, now_ms, found.broker)
                self._flow.topic_counters(broker, now_ms, found.topics)

        await asyncio.gather(*(ask(id, page) for id, page in served.items()))
        if len(served) < len(living) and self._model.cluster[CLUSTER].is_ottla:
            for broker, load in (await cluster_loads(self._client)).items():
                if broker not in served and broker in living:
                    rates = load.rates[MINUTE]
                    told = FlowRates(
                        None, rates.bytes_in, rates.bytes_out, rates.copied_in, rates.cpu
                    )
                    self._flow.told(broker, self._asking.now_ms, told)
        self._model.structure.kind(has_metrics=bool(served))

    async def _find_pages(self, brokers: list[int]) -> None:
        now_ms = self._asking.now_ms
        for broker in brokers:
            if now_ms - self._pages_ms.get(broker, -LISTENERS_KNOWN_MS) < LISTENERS_KNOWN_MS:
                continue
            self._pages_ms[broker] = now_ms
            resource = (BROKER, str(broker))
            try:
                found = await self._asking.admin.describe_configs([resource], keys=[LISTENERS])
            except KafkaError:
                self._pages[broker] = None
                continue
            host = self._client.connections.addresses.get(broker, ("", 0))[0]
            value = next((each.value for each in found[resource] if each.name == LISTENERS), None)
            self._pages[broker] = metrics_address(value, host)

    # Offsets

    def _offsets_s(self) -> float:
        return (
            2.0 if TOPICS in self._asking.interests or self._asking.interests.of("topic") else 5.0
        )

    async def _ask_offsets(self) -> None:
        """Where every partition begins and ends, of its leader."""
        admin = self._asking.cluster_admin
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def ask(leader: int, places: list[Place]) -> None:
            try:
                async with turns:
                    ends = await admin.offsets(leader, places, LATEST)
                    starts = await admin.offsets(leader, places, EARLIEST)
            except LOST:
                return  # it has died just now
            self._flow.offsets_told(self._asking.now_ms, ends, starts)

        await asyncio.gather(*(ask(*each) for each in self._asking.by_leader().items()))
        self._flow.sum_topics({name: row.partitions for name, row in self._model.topics.items()})

    # Disks

    async def _ask_disks(self) -> None:
        sizes: dict[tuple[int, Place], int] = {}
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def ask(broker: int) -> None:
            async with turns:
                found = await self._asking.cluster_admin.log_dirs(broker)
            for directory in found:
                for each in directory.replicas:
                    if not each.is_future:
                        sizes[broker, (each.topic, each.partition)] = each.size_bytes
            totals = [each.total_bytes for each in found if each.error is None]
            frees = [each.usable_bytes for each in found if each.error is None]
            self._flow.disk_told(
                broker,
                DiskRow(
                    len(found),
                    tuple(each.path for each in found if each.error is not None),
                    tuple(each.path for each in found if each.refuses_records),
                    sum(r.size_bytes for each in found for r in each.replicas),
                    sum(t for t in totals if t is not None) if None not in totals else None,
                    sum(f for f in frees if f is not None) if None not in frees else None,
                ),
            )

        answers = await asyncio.gather(
            *(ask(broker) for broker in self._asking.living()), return_exceptions=True
        )
        failures = [each for each in answers if isinstance(each, BaseException)]
        for failure in failures:
            if not isinstance(failure, LOST):
                raise failure
        if failures and len(failures) == len(answers):
            raise next(filter(lacks_right, failures), failures[0])
        now_ms = self._asking.now_ms
        by_topic: dict[str, int] = {}
        for place, row in self._model.partitions.items():
            size = sizes.get((row.leader, place))
            if size is not None:
                by_topic[place[0]] = by_topic.get(place[0], 0) + size
        self._flow.sizes_told(now_ms, by_topic)

    # Partitions that somebody has in a list

    def _ends_s(self) -> float:
        return LISTED_S if self._asking.interests.of("listed") else 5.0

    async def _ask_ends(self) -> None:
        """How far each replica is: one question to each broker for its replicas, one for the partitions that it leads."""
        partitions = self._model.partitions
        wanted = self._asking.interests.of("listed")[:LISTED_MAX]
        rows = {
            place: row
            for each in wanted
            if (row := partitions.get(place := (each.name, each.partition))) is not None
        }
        admin = self._asking.cluster_admin
        found: dict[tuple[Place, int], int] = {}

        async def ask(broker: int) -> None:
            held = [place for place, row in rows.items() if broker in row.replicas]
            led = [place for place in held if rows[place].leader == broker]
            try:
                for place, end in (await admin.log_ends(broker, held)).items() if held else ():
                    found[place, broker] = end
                if led:
                    ends = await admin.offsets(broker, led, LATEST)
                    self._flow.offsets_told(self._asking.now_ms, ends)
            except LOST:
                return  # it has died just now

        await asyncio.gather(*map(ask, self._asking.living()))
        self._flow.ends_told(
            {
                place: EndsRow(tuple((id, found.get((place, id))) for id in row.replicas))
                for place, row in rows.items()
            }
        )

    # Partitions that somebody looks at

    def _replicas_s(self) -> float:
        return LOOKED_AT_S if self._asking.interests.of("partition") else 5.0

    async def _ask_replicas(self) -> None:
        partitions = self._model.partitions
        interests = self._asking.interests.of("partition")
        # One that was deleted, or that nobody may see any more, is not among them.
        places = [place for e in interests if (place := (e.name, e.partition)) in partitions]
        for place in self._looked_at.difference(places):
            self._flow.unwatched(place)
            self._epochs_of.pop(place, None)
        self._looked_at = set(places)
        await asyncio.gather(*map(self._ask_replicas_of, self._turns.next(places)))

    async def _ask_replicas_of(self, place: Place) -> None:
        row = self._model.partitions.get(place)
        if row is None:
            return
        topic = await self._client.topic(place[0])
        living = set(self._asking.living())

        async def ask(broker: int) -> ReplicaOffsets | None:
            if broker not in living:
                return None
            found = await self._client.replica_offsets(topic, broker, [place[1]])
            return found.get(place[1])

        answers = await asyncio.gather(*map(ask, row.replicas))
        rows = {}
        for broker, found in zip(row.replicas, answers, strict=True):
            if found is None:
                rows[broker] = ReplicaRow(broker, None, None, None)
            else:
                rows[broker] = ReplicaRow(
                    broker, found.log_start, found.log_end, found.high_watermark
                )
        self._flow.replicas_told(place, rows)
        leader = rows.get(row.leader)
        if leader is not None and leader.end is not None and leader.high_watermark is not None:
            self._flow.offsets_told(self._asking.now_ms, {place: leader.high_watermark})
            if self._epochs_of.get(place) != (row.leader, row.epoch):
                try:
                    epochs = await self._asking.cluster_admin.leader_epochs(
                        row.leader, place, row.epoch, leader.end, EPOCHS_MAX
                    )
                except KafkaError as error:
                    if lacks_right(error):
                        self._flow.epochs.drop(place)
                        self._epochs_of.pop(place, None)
                    raise
                self._epochs_of[place] = (row.leader, row.epoch)
                self._flow.epochs.put(place, EpochRow(tuple(epochs)))
