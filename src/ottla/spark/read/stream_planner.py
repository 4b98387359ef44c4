"""What the next micro-batch reads, and whether what was read before is still what it was.

It runs in the driver and asks the cluster through `planner.Planner`. The rules are in `survivors` and `StreamPlanner.latest`;
time is passed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.spark.connect.cluster import EpochEnd
from ottla.spark.options import Place, ReadOptions
from ottla.spark.read.loss import Cause, LostRange, report
from ottla.spark.read.offsets import Mark, StreamOffset, rate_limited
from ottla.spark.read.planner import AsksCluster, Extent, Planner, outside
from ottla.spark.read.splits import Range


class Survivor(NamedTuple):
    """Where a partition is to be read on, and what was lost before that."""

    begin: int
    loss: LostRange | None


def survive(
    place: Place, mark: Mark | None, extent: Extent, epoch_end: EpochEnd | None
) -> Survivor:
    """`mark` is None for a partition that the stream has not seen yet: it is read from its beginning."""
    if mark is None:
        loss = LostRange(*place, Cause.AGED_OUT, 0, extent.start, "before this stream first saw it")
        return Survivor(extent.start, loss if extent.start > 0 else None)
    if None not in (mark.topic_id, extent.topic_id) and mark.topic_id != extent.topic_id:
        ids = f"its id was {mark.topic_id} and is {extent.topic_id}"
        loss = LostRange(*place, Cause.RECREATED, mark.offset, mark.offset, ids)
        return Survivor(extent.start, loss)
    if mark.offset < extent.start:
        loss = LostRange(*place, Cause.AGED_OUT, mark.offset, extent.start, extent.told)
        return Survivor(extent.start, loss)
    cut = mark.offset
    if epoch_end is not None and epoch_end.end_offset >= 0:
        cut = min(cut, epoch_end.end_offset)
    elif extent.high_watermark < mark.offset:
        cut = extent.high_watermark
    if cut < mark.offset:
        told = f"read in epoch {mark.epoch}; {extent.told}"
        # What lies there now is new: reading goes on where the logs part.
        return Survivor(
            max(cut, extent.start), LostRange(*place, Cause.TRUNCATED, cut, mark.offset, told)
        )
    return Survivor(mark.offset, None)


class StreamPlanner:
    def __init__(
        self,
        cluster: AsksCluster,
        options: ReadOptions,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._planner = Planner(cluster, options)
        self._pause = pause
        self._told: set[LostRange] = set()
        self._target: dict[Place, Extent] | None = None
        self._last_batch_s: float | None = None
        self.newest: StreamOffset | None = None
        """What there was to read when last asked."""

    def initial(self, group: str) -> StreamOffset:
        extents = self._planner.extents(self._planner.existing_places())
        starts = self._planner.starting(extents)
        losses = [
            loss
            for place, extent in sorted(extents.items())
            for loss in outside(place, starts[place], extent.end, extent)
        ]
        self._report(losses)
        return StreamOffset(
            group,
            {
                place: Mark(
                    extent.topic_id,
                    min(max(starts[place], extent.start), extent.high_watermark),
                    extent.epoch,
                )
                for place, extent in extents.items()
            },
        )

    def only_what_is_there_now(self) -> None:
        """For AvailableNow: whatever comes later is not read."""
        self._target = self._planner.extents(self._planner.places())

    def latest(self, start: StreamOffset, now_s: float, *, limited: bool) -> StreamOffset:
        """Where the next micro-batch ends; `start` if there shall be none. `limited` says whether the options for how
        much to read at once hold."""
        extents = self._target if self._target is not None else self._extents(start)
        if start.marks.keys() - extents.keys() and self._target is not None:
            again = self._extents(start)
            extents = self._target = {p: again[p] for p in start.marks if p in again} | extents
        survivors = self._survivors(start, extents)
        self._report_missing(start, extents)
        ranges = {
            place: (survivor.begin, max(survivor.begin, extents[place].end))
            for place, survivor in survivors.items()
        }
        self.newest = self._offset(
            start, extents, survivors, {p: end for p, (_, end) in ranges.items()}
        )
        if limited:
            if self._target is None and self._too_few(ranges, now_s):
                return start
            if (most := self._options.max_offsets_per_trigger) is not None:
                ends = rate_limited(ranges, most)
                self._last_batch_s = now_s
                return self._offset(start, extents, survivors, ends)
        self._last_batch_s = now_s
        return self.newest

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[Range]:
        """What the micro-batch between the two reads."""
        extents = self._extents(start)
        survivors = self._survivors(start, extents)
        self._report_missing(start, extents)
        ranges = []
        losses = []
        for place, mark in sorted(end.marks.items()):
            extent, survivor = extents.get(place), survivors.get(place)
            if extent is None or survivor is None:
                continue
            if None not in (mark.topic_id, extent.topic_id) and mark.topic_id != extent.topic_id:
                continue  # planned for a topic that is gone since; told above
            last = min(mark.offset, extent.high_watermark)
            if last < mark.offset:
                losses.append(LostRange(*place, Cause.TRUNCATED, last, mark.offset, extent.told))
            ranges.append(Range(place[0], extent.topic_id, place[1], survivor.begin, last))
        self._report(losses)
        return [each for each in ranges if each.size > 0]

    # -- what is there

    def _extents(self, start: StreamOffset) -> dict[Place, Extent]:
        """A partition that seems deleted is looked for again: a broker that has just started may not know all partitions."""
        for _ in range(self._options.offset_retries):
            places = self._planner.places()
            if start.marks.keys() <= places.keys():
                break
            self._pause(self._options.offset_retry_interval_s)
        else:
            places = self._planner.places()
        return self._planner.extents(places, start.marks)

    def _survivors(
        self, start: StreamOffset, extents: Mapping[Place, Extent]
    ) -> dict[Place, Survivor]:
        to_ask = {
            place: mark.epoch
            for place, mark in start.marks.items()
            if place in extents and mark.epoch >= 0 and mark.epoch != extents[place].epoch
        }
        ends = self._cluster.epoch_ends(to_ask) if to_ask else {}
        survivors = {
            place: survive(place, start.marks.get(place), extent, ends.get(place))
            for place, extent in sorted(extents.items())
        }
        self._report([each.loss for each in survivors.values() if each.loss is not None])
        return survivors

    def _report_missing(self, start: StreamOffset, extents: Mapping[Place, Extent]) -> None:
        self._report(
            [
                LostRange(*place, Cause.DELETED, mark.offset, mark.offset)
                for place, mark in sorted(start.marks.items())
                if place not in extents
            ]
        )

    def _report(self, losses: list[LostRange]) -> None:
        """Each loss is reported once, though `latest` and `ranges` both find it."""
        fresh = [loss for loss in losses if loss not in self._told]
        report(fresh, fail=self._options.fail_on_data_loss)
        self._told.update(fresh)

    # -- how much

    def _too_few(self, ranges: Mapping[Place, tuple[int, int]], now_s: float) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._last_batch_s is None:
            return False  # as in Spark's connector, the first micro-batch does not wait
        waited_s = now_s - self._last_batch_s
        there = sum(end - begin for begin, end in ranges.values())
        return there < least and waited_s < self._options.max_trigger_delay_s

    def _offset(
        self,
        start: StreamOffset,
        extents: Mapping[Place, Extent],
        survivors: Mapping[Place, Survivor],
        ends: Mapping[Place, int],
    ) -> StreamOffset:
        """A partition in which nothing moved keeps its mark, whoever leads it now: else there would be a micro-batch of
        nothing after each election."""
        marks = {}
        for place, extent in extents.items():
            before, survivor, end = start.marks.get(place), survivors[place], ends[place]
            if before is not None and survivor.loss is None and end == before.offset:
                marks[place] = before
                continue
            lost = before.lost if before is not None else 0
            if survivor.loss is not None:
                lost += survivor.loss.records
            marks[place] = Mark(extent.topic_id, end, extent.epoch, lost)
        return StreamOffset(start.group, marks)
