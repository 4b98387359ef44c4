"""What flows through a cluster and lies in it: offsets, rates with an hour of history, sizes, disks.

Rates come from counters (metrics pages), from what brokers tell of themselves, or from the differences of two looks at
offsets and sizes; which of them, the row does not say. A counter that goes back belongs to a new process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.console.model.rows import (
    DiskRow,
    EndsRow,
    EpochRow,
    LogSettingRow,
    OffsetsRow,
    Place,
    ReplicaRow,
    TopicSizeRow,
    place_text,
)
from ottla.console.model.tables import Rings, RowTable, Versions

HOUR_MS = 3_600_000
CLUSTER_STEP_MS = 2_000
BROKER_STEP_MS = 10_000
TOPIC_STEP_MS = 30_000
TOPIC_RINGS_MAX = 300
"""Topics whose history is kept: those with traffic, the first ones that had it."""
OVER_MS = 10_000
"""Rates of records are taken over at least this time: short bursts would jump between zero and a peak."""
AGES_STEP_MS = 5_000
RATE_KEPT_MS = 30_000
"""A rate of what nobody answers for any more is no rate of now. That is two questions of each sort, also where the cluster is so
large that they are asked less often."""
GROWTH_KEPT_MS = 45_000
"""As much for sizes, which are asked for less often."""
CLUSTER = "cluster"


class FlowRates(NamedTuple):
    """Per second. None: nobody tells."""

    records_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    copied_in: float | None = None
    cpu: float | None = None
    """Of one processor."""


class FlowCounters(NamedTuple):
    """Since a broker's start, as `FlowRates`."""

    records_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    copied_in: float | None = None
    cpu: float | None = None


class _Look(NamedTuple):
    at_ms: int
    end: int


class Flow:
    def __init__(self, versions: Versions) -> None:
        self.rates: Rings[str] = Rings(versions, HOUR_MS // CLUSTER_STEP_MS, str)
        """Of `cluster`: (time, records in, bytes in, bytes out, copied in, cpu)."""
        self.broker_rates: Rings[int] = Rings(versions, HOUR_MS // BROKER_STEP_MS, str)
        self.topic_rates: Rings[str] = Rings(versions, HOUR_MS // TOPIC_STEP_MS, str)
        """By topic: (time, records in, bytes in, bytes out)."""
        self.offsets: RowTable[Place, OffsetsRow] = RowTable(versions, place_text)
        self.topic_sizes: RowTable[str, TopicSizeRow] = RowTable(versions, str)
        self.disks: RowTable[int, DiskRow] = RowTable(versions, str)
        self.replicas: RowTable[tuple[Place, int], ReplicaRow] = RowTable(
            versions, lambda key: f"{place_text(key[0])}/{key[1]}"
        )
        """Only of partitions that somebody looks at, as the next."""
        self.epochs: RowTable[Place, EpochRow] = RowTable(versions, place_text)
        self.ends: RowTable[Place, EndsRow] = RowTable(versions, place_text)
        """Only of partitions that somebody has in a list."""
        self.settings: RowTable[str, LogSettingRow] = RowTable(versions, str)
        """Of topics about which somebody needs to know them."""
        self._counters: dict[int, tuple[int, FlowCounters]] = {}
        self._topic_counters: dict[int, tuple[int, dict[str, FlowCounters]]] = {}
        self._topic_bytes: dict[int, dict[str, FlowRates]] = {}
        """By broker: the rates of the topics that it leads partitions of."""
        self._now: dict[int, FlowRates] = {}
        """By broker, lately."""
        self._heard_ms: dict[int, int] = {}
        """When the rates of a broker were known last."""
        self._looks: dict[Place, deque[_Look]] = {}
        self._leader_sizes: dict[str, tuple[int, int]] = {}
        """By topic: when it was told, and the bytes."""
        self._growth: dict[str, float] = {}
        """By topic: bytes in per second, as they follow from sizes."""
        self._stepped: dict[str, int] = {}

    # Rates

    def counters(self, broker: int, at_ms: int, now: FlowCounters) -> None:
        before = self._counters.get(broker)
        self._counters[broker] = (at_ms, now)
        if before is not None and at_ms > before[0]:
            found = _between(before[1], now, (at_ms - before[0]) / 1000)
            if found is not None:
                self.told(broker, at_ms, found)

    def topic_counters(self, broker: int, at_ms: int, now: Mapping[str, FlowCounters]) -> None:
        """Of the topics that the broker names."""
        before = self._topic_counters.get(broker)
        self._topic_counters[broker] = (at_ms, dict(now))
        if before is None or at_ms <= before[0]:
            return
        seconds = (at_ms - before[0]) / 1000
        found = {}
        for topic, counters in now.items():
            former = before[1].get(topic)
            rates = None if former is None else _between(former, counters, seconds)
            if rates is not None:
                found[topic] = rates
        self._topic_bytes[broker] = found

    def told(self, broker: int, at_ms: int, now: FlowRates) -> None:
        """As a broker tells it, which serves no counters."""
        self._now[broker] = now
        self._heard_ms[broker] = at_ms

    def without(self, brokers: Iterable[int]) -> None:
        """They do not answer: nothing flows there as far as we know."""
        for broker in brokers:
            self._now.pop(broker, None)
            self._heard_ms.pop(broker, None)
            self._topic_bytes.pop(broker, None)

    def leaderless(self, places: Iterable[Place]) -> None:
        """Nobody leads these partitions, so nothing flows there."""
        for place in places:
            row = self.offsets.get(place)
            if row is not None and row.rate is not None:
                self.offsets.put(place, row._replace(rate=None))

    def retain(self, brokers: Iterable[int]) -> None:
        """Forget all other brokers: they left the cluster."""
        kept = set(brokers)
        self._counters = {id: each for id, each in self._counters.items() if id in kept}
        self._topic_counters = {id: each for id, each in self._topic_counters.items() if id in kept}
        self.without(set(self._now) - kept)
        self.broker_rates.retain(kept.__contains__)
        self.disks.retain(kept.__contains__)

    @property
    def now(self) -> FlowRates:
        """Of the whole cluster. Records come from offsets where no broker counts them."""
        whole = _sum(self._now.values())
        if whole.records_in is None:
            rates = [row.rate for row in self.offsets.values() if row.rate is not None]
            whole = whole._replace(records_in=round(sum(rates), 1) if rates else None)
        if whole.bytes_in is None:
            sizes = [row.bytes_in for row in self.topic_sizes.values() if row.bytes_in is not None]
            whole = whole._replace(bytes_in=round(sum(sizes), 1) if sizes else None)
        return whole

    def of_broker(self, broker: int) -> FlowRates | None:
        return self._now.get(broker)

    def step(self, now_ms: int) -> None:
        """Add points to the histories whose time has come. To be called at least every CLUSTER_STEP_MS."""
        if self._is_due("ages", now_ms, AGES_STEP_MS):
            self._drop_old(now_ms)
        if self._is_due(CLUSTER, now_ms, CLUSTER_STEP_MS):
            self.rates.add(CLUSTER, (now_ms, *self.now))
        if self._is_due("brokers", now_ms, BROKER_STEP_MS):
            for broker, rates in self._now.items():
                self.broker_rates.add(broker, (now_ms, *rates))
        if self._is_due("topics", now_ms, TOPIC_STEP_MS):
            self._step_topics(now_ms)

    def _drop_old(self, now_ms: int) -> None:
        """What nobody answered for lately."""
        oldest_ms = now_ms - RATE_KEPT_MS
        self.without([id for id in self._now if self._heard_ms[id] < oldest_ms])
        self.leaderless(
            [place for place, looks in self._looks.items() if looks[-1].at_ms < oldest_ms]
        )
        for topic in list(self._growth):
            at_ms, _ = self._leader_sizes.get(topic, (0, 0))
            if at_ms < now_ms - GROWTH_KEPT_MS:
                del self._growth[topic]
                row = self.topic_sizes.get(topic)
                if row is not None and not any(
                    topic in each for each in self._topic_bytes.values()
                ):
                    self.topic_sizes.put(topic, row._replace(bytes_in=None))

    def forget_rates(self) -> None:
        """We may not know them: what brokers told, and its history."""
        self._now.clear()
        self._heard_ms.clear()
        self._topic_bytes.clear()
        self.rates.retain(lambda _: False)
        self.broker_rates.retain(lambda _: False)

    def _step_topics(self, now_ms: int) -> None:
        for name, row in self.topic_sizes.items():
            if name in self.topic_rates or (
                row.records_in and len(self.topic_rates) < TOPIC_RINGS_MAX
            ):
                point = (now_ms, row.records_in, row.bytes_in, row.bytes_out)
                self.topic_rates.add(name, point)
        self.topic_rates.retain(lambda name: any(p[1] for p in self.topic_rates.points(name)))

    def _is_due(self, what: str, now_ms: int, step_ms: int) -> bool:
        if now_ms - self._stepped.get(what, -step_ms) < step_ms:
            return False
        self._stepped[what] = now_ms
        return True

    # Offsets and sizes

    def offsets_told(
        self,
        at_ms: int,
        ends: Mapping[Place, int],
        starts: Mapping[Place, int] | None = None,
        stable: Mapping[Place, int] | None = None,
    ) -> None:
        """What leaders say. Starts and stable offsets that are not told stay as they were."""
        for place, end in ends.items():
            before = self.offsets.get(place)
            start = None if starts is None else starts.get(place)
            lso = None if stable is None else stable.get(place)
            if before is not None:
                start = before.start if start is None else start
                lso = before.stable if lso is None else lso
            self.offsets.put(place, OffsetsRow(start, end, lso, self._rate(place, at_ms, end)))

    def _rate(self, place: Place, at_ms: int, end: int) -> float | None:
        looks = self._looks.setdefault(place, deque())
        if looks and end < looks[-1].end:
            looks.clear()  # deleted and made again, or records were lost
        looks.append(_Look(at_ms, end))
        while len(looks) > 2 and looks[1].at_ms <= at_ms - OVER_MS:
            looks.popleft()
        first = looks[0]
        if at_ms <= first.at_ms:
            return None
        return round((end - first.end) * 1000 / (at_ms - first.at_ms), 2)

    def sizes_told(self, at_ms: int, sizes: Mapping[str, int]) -> None:
        """Bytes of the leaders' logs by topic. Where no broker counts bytes, their growth is what came in."""
        counted = any(self._topic_bytes.values())
        for topic, size in sizes.items():
            row = self.topic_sizes.get(topic) or TopicSizeRow()
            before_ms, before = self._leader_sizes.get(topic, (at_ms, size))
            bytes_in = row.bytes_in
            if not counted and at_ms > before_ms:
                bytes_in = round(max(0, size - before) * 1000 / (at_ms - before_ms), 1)
                self._growth[topic] = bytes_in
            self._leader_sizes[topic] = (at_ms, size)
            self.topic_sizes.put(topic, row._replace(bytes=size, bytes_in=bytes_in))

    def sum_topics(self, partitions_of: Mapping[str, int]) -> None:
        """After a round of observations. `partitions_of` has all topics there are."""
        self.offsets.retain(lambda place: place[0] in partitions_of)
        self.topic_sizes.retain(partitions_of.__contains__)
        self.settings.retain(partitions_of.__contains__)
        self._looks = {place: each for place, each in self._looks.items() if place in self.offsets}
        self._leader_sizes = {
            topic: told for topic, told in self._leader_sizes.items() if topic in partitions_of
        }
        self._growth = {
            topic: each for topic, each in self._growth.items() if topic in partitions_of
        }
        for topic, partitions in partitions_of.items():
            rows = [self.offsets.get((topic, number)) for number in range(partitions)]
            known = [row for row in rows if row is not None]
            if not known:
                continue
            held = [row.end - row.start for row in known if row.start is not None]
            rates = [row.rate for row in known if row.rate is not None]
            of_brokers = [each[topic] for each in self._topic_bytes.values() if topic in each]
            counted = _sum(of_brokers)
            row = self.topic_sizes.get(topic) or TopicSizeRow()
            self.topic_sizes.put(
                topic,
                row._replace(
                    records=sum(held) if held else None,
                    records_in=round(sum(rates), 2) if rates else None,
                    bytes_in=counted.bytes_in if of_brokers else self._growth.get(topic),
                    bytes_out=counted.bytes_out,
                ),
            )

    def replicas_told(self, place: Place, rows: Mapping[int, ReplicaRow]) -> None:
        """The logs of all replicas of a partition that somebody looks at."""
        self.replicas.retain(lambda key: key[0] != place or key[1] in rows)
        for broker, row in rows.items():
            self.replicas.put((place, broker), row)

    def unwatched(self, place: Place) -> None:
        """Nobody looks at this partition any more."""
        self.replicas_told(place, {})
        self.epochs.drop(place)

    def ends_told(self, rows: Mapping[Place, EndsRow]) -> None:
        """Of all partitions that somebody has in a list."""
        self.ends.replace(rows)

    def disk_told(self, broker: int, row: DiskRow) -> None:
        self.disks.put(broker, row)

    def forget_disks(self) -> None:
        """We may not know them, nor the sizes of what lies there."""
        self.disks.replace({})
        self._leader_sizes.clear()
        self._growth.clear()
        for topic, row in list(self.topic_sizes.items()):
            self.topic_sizes.put(topic, row._replace(bytes=None, bytes_in=None))


def _between(before: FlowCounters, now: FlowCounters, seconds: float) -> FlowRates | None:
    """None if the counters began anew."""
    rates: list[float | None] = []
    for old, new in zip(before, now, strict=True):
        if old is None or new is None:
            rates.append(None)
        elif new < old:
            return None
        else:
            rates.append(round((new - old) / seconds, 3))
    return FlowRates(*rates)


def _sum(each: Iterable[FlowRates]) -> FlowRates:
    columns = list(zip(*each, strict=True))
    if not columns:
        return FlowRates()
    sums = []
    for column in columns:
        known = [value for value in column if value is not None]
        sums.append(round(sum(known), 3) if known else None)
    return FlowRates(*sums)
