"""What to read: from options and the state of the cluster to offsets. It runs in the driver.

Everything that can be wrong with a query is found here, before a task starts: topics that do not exist, partitions that
were forgotten in an option, offsets that are not there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.client.model import Metadata, Topic
from ottla.spark.connect.cluster import EpochEnd, Found
from ottla.spark.errors import OptionError
from ottla.spark.options import (
    EARLIEST,
    LATEST,
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Edge,
    Place,
    ReadOptions,
    Subscribe,
)
from ottla.spark.read.loss import Cause, LostRange, report
from ottla.spark.read.offsets import Mark
from ottla.spark.read.splits import Range
from ottla.wire.errors import KafkaError


class AsksCluster(Protocol):
    """The part of `cluster.KafkaCluster` that planning needs."""

    def metadata(self, topics: Iterable[str] | None) -> tuple[Metadata, dict[str, KafkaError]]: ...

    def topics(self, names: list[str]) -> list[Topic]: ...

    def offsets(
        self, times: Mapping[Place, int], *, read_committed: bool = False
    ) -> dict[Place, Found | None]: ...

    def epoch_ends(self, epochs: Mapping[Place, int]) -> dict[Place, EpochEnd]: ...


class Extent(NamedTuple):
    """What is there of one partition."""

    topic_id: str | None
    start: int
    end: int
    """Of what can be read."""
    epoch: int
    """Of the leader that told the end."""
    high_watermark: int
    """Of what is there: with read_committed open transactions lie between the two."""

    @property
    def told(self) -> str:
        return f"the log begins at {self.start} and ends at {self.high_watermark}"


class Planner:
    def __init__(self, cluster: AsksCluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options

    def places(self) -> dict[Place, str | None]:
        """Every partition that is subscribed to and exists now, with its topic's id."""
        wanted = self._options.subscription
        if isinstance(wanted, Assign):
            topics = self._cluster.topics(sorted({topic for topic, _ in wanted.places}))
            assigned = set(wanted.places)
            return {place: id for place, id in _places(topics) if place in assigned}
        if isinstance(wanted, Subscribe):
            return dict(_places(self._cluster.topics(sorted(wanted.topics))))
        found, _ = self._cluster.metadata(None)
        return dict(
            _places(
                each for each in found.topics if not each.internal and wanted.matches(each.name)
            )
        )

    def existing_places(self) -> dict[Place, str | None]:
        """The same, and an error if something that was named does not exist."""
        found = self.places()
        wanted = self._options.subscription
        if isinstance(wanted, Assign):
            name, missing = "assign", [f"{t}-{p}" for t, p in wanted.places if (t, p) not in found]
            what = "partition"
        elif isinstance(wanted, Subscribe):
            there = {topic for topic, _ in found}
            name, missing = "subscribe", [topic for topic in wanted.topics if topic not in there]
            what = "topic"
        else:
            if not found:
                raise OptionError("subscribePattern", f"no topic matches '{wanted.pattern}'")
            return found
        if missing:
            hint = self._hint(what, missing[0])
            raise OptionError(name, f"{what} {', '.join(missing)} does not exist{hint}")
        return found

    def _hint(self, what: str, missing: str) -> str:
        """What may have been meant by a topic or a partition that is not there."""
        known = {topic.name: topic for topic in self._cluster.metadata(None)[0].topics}
        topic = known.get(missing.rpartition("-")[0])
        if what == "partition" and topic is not None:
            return f"; topic {topic.name} has {len(topic.partitions)} of them, numbered from 0"
        close = difflib.get_close_matches(missing, known, n=1)
        return f"; did you mean '{close[0]}'?" if close else ""

    def extents(
        self, places: Mapping[Place, str | None], read: Mapping[Place, Mark] | None = None
    ) -> dict[Place, Extent]:
        """What is there of each. With read_committed a log ends where the first open transaction begins. A log that ends where it
        was read up to, under the same leader, is not asked for its beginning, and told as an empty one: while nothing happens, a
        stream asks every few milliseconds."""
        # The end first: a beginning that moves meanwhile makes an empty extent, not a wrong one.
        ends = self.at_edge(places, LATEST)
        behind = ends
        if self._options.read_committed:
            behind = _found(self._cluster.offsets(dict.fromkeys(places, LATEST)))
        moved = [
            place
            for place, id in places.items()
            if read is None or not _is_at(read.get(place), id, ends[place])
        ]
        starts = ends | self.at_edge(moved, EARLIEST)
        return {
            place: Extent(
                id,
                starts[place].offset,
                ends[place].offset,
                ends[place].epoch,
                max(behind[place].offset, ends[place].offset),
            )
            for place, id in places.items()
        }

    def at_edge(self, places: Iterable[Place], edge: int) -> dict[Place, Found]:
        return _found(
            self._cluster.offsets(
                dict.fromkeys(places, edge), read_committed=self._options.read_committed
            )
        )

    def starting(self, extents: Mapping[Place, Extent]) -> dict[Place, int]:
        return self._resolve(self._options.starting, "starting", extents)

    def ending(self, extents: Mapping[Place, Extent]) -> dict[Place, int]:
        return self._resolve(self._options.ending, "ending", extents)

    def batch_ranges(self) -> list[Range]:
        """All that a batch query reads."""
        places = self.existing_places()
        extents = self.extents(places)
        starts, ends = self.starting(extents), self.ending(extents)
        losses = []
        ranges = []
        for place, extent in sorted(extents.items()):
            start, end = starts[place], ends[place]
            losses += outside(place, start, end, extent)
            start, end = max(start, extent.start), min(end, extent.high_watermark)
            ranges.append(Range(place[0], extent.topic_id, place[1], start, max(start, end)))
        report(losses, fail=self._options.fail_on_data_loss)
        return ranges

    def since(self, ranges: list[Range], time_ms: int) -> list[Range]:
        """Each without what lies before its first record of that time or later."""
        times = {(each.topic, each.partition): time_ms for each in ranges}
        found = self._cluster.offsets(times)
        narrowed = []
        for each in ranges:
            first = found[each.topic, each.partition]
            if first is not None and first.offset < each.end:
                narrowed.append(each._replace(start=max(each.start, first.offset)))
        return narrowed

    def _resolve(
        self, bound: Bound, side: str, extents: Mapping[Place, Extent]
    ) -> dict[Place, int]:
        match bound:
            case Edge(edge):
                return {place: _at(edge, extent) for place, extent in extents.items()}
            case AtOffsets(offsets):
                _check_all_named(f"{side}Offsets", offsets, extents)
                return {place: _at(offsets[place], extent) for place, extent in extents.items()}
            case AtTimes(times):
                _check_all_named(f"{side}OffsetsByTimestamp", times, extents)
                return self._at_times(f"{side}OffsetsByTimestamp", side, times, extents)
            case AtTime(time):
                times = dict.fromkeys(extents, time)
                return self._at_times(f"{side}Timestamp", side, times, extents)

    def _at_times(
        self, name: str, side: str, times: Mapping[Place, int], extents: Mapping[Place, Extent]
    ) -> dict[Place, int]:
        found = self._cluster.offsets(times, read_committed=self._options.read_committed)
        result = {}
        for place, extent in extents.items():
            at = found[place]
            if at is None and side == "starting" and not self._options.latest_if_no_time_matches:
                raise OptionError(
                    name,
                    f"{place[0]}-{place[1]} has no record at or after {times[place]}; set "
                    "'startingOffsetsByTimestampStrategy' to latest to begin at its end",
                )
            # What was written since the end was asked for is not read.
            result[place] = extent.end if at is None else min(at.offset, extent.end)
        return result


def _found(told: Mapping[Place, Found | None]) -> dict[Place, Found]:
    return {place: each for place, each in told.items() if each is not None}


def _is_at(mark: Mark | None, topic_id: str | None, end: Found) -> bool:
    return mark is not None and (mark.topic_id, mark.offset, mark.epoch) == (topic_id, *end)


def _places(topics: Iterable[Topic]) -> Iterable[tuple[Place, str | None]]:
    for topic in topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition), None if topic.id is None else topic.id.hex


def _at(offset: int, extent: Extent) -> int:
    if offset == EARLIEST:
        return extent.start
    return extent.end if offset == LATEST else offset


def _check_all_named(
    name: str, given: Mapping[Place, int], extents: Mapping[Place, Extent]
) -> None:
    for what, places in (
        ("does not name", sorted(extents.keys() - given.keys())),
        ("names, but nobody subscribes to,", sorted(given.keys() - extents.keys())),
    ):
        if places:
            told = ", ".join(f"{topic}-{partition}" for topic, partition in places)
            raise OptionError(
                name, f"{what} {told}; it must name every partition (-2 is earliest, -1 latest)"
            )


def outside(place: Place, start: int, end: int, extent: Extent) -> list[LostRange]:
    """What was asked for by its offset and is not there."""
    there = extent.told
    losses = []
    if start < min(end, extent.start):
        losses.append(LostRange(*place, Cause.AGED_OUT, start, min(end, extent.start), there))
    behind = max(start, end)
    if behind > extent.high_watermark:
        losses.append(LostRange(*place, Cause.BEHIND_THE_END, extent.high_watermark, behind, there))
    return losses
