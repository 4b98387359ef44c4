"""How far a stream has read: offsets that can be trusted later, as they lie in Spark's checkpoint.

Beside each offset stand its topic's id and the epoch of the leader that told it. By these a restarted query can tell a log that
merely grew from one that was cut or replaced. The group that shows the stream's progress is noted there too: it is drawn once,
when the query first starts, and must be the same ever after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.spark.errors import SparkSourceError
from ottla.spark.options import Place


class Mark(NamedTuple):
    """How far one partition was read."""

    topic_id: str | None
    offset: int
    epoch: int
    lost: int = 0
    """Records of this partition that were lost to this stream so far."""


@dataclass(frozen=True)
class StreamOffset:
    group: str
    marks: Mapping[Place, Mark]

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for (topic, partition), mark in sorted(self.marks.items()):
            entry = topics.setdefault(topic, {"partitions": {}})
            if mark.topic_id is not None:
                entry["id"] = mark.topic_id
            told = {"offset": mark.offset, "epoch": mark.epoch}
            if mark.lost:
                told["lost"] = mark.lost
            entry["partitions"][str(partition)] = told
        return {"group": self.group, "topics": topics}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> StreamOffset:
        try:
            marks = {
                (topic, int(partition)): Mark(
                    entry.get("id"), int(mark["offset"]), int(mark["epoch"]), int(mark.get("lost", 0))
                )
                for topic, entry in told["topics"].items()
                for partition, mark in entry["partitions"].items()
            }  # fmt: skip
            return cls(str(told["group"]), marks)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SparkSourceError(
                "the checkpoint holds an offset that this source did not write: start with another checkpointLocation, "
                f"and to go on from there with startingOffsets={json.dumps(told)}"
            ) from None


def rate_limited(ranges: Mapping[Place, tuple[int, int]], most: int) -> dict[Place, int]:
    """Where each partition ends if `most` records are to be read, shared out by how much each has. As in Spark's connector
    every partition gets at least one, so that none starves, and the sum may be a little more than `most`."""
    sizes = {place: max(0, end - start) for place, (start, end) in ranges.items()}
    total = sum(sizes.values())
    if total <= most:
        return {place: end for place, (_, end) in ranges.items()}
    return {
        place: min(end, start + max(1, most * sizes[place] // total)) if sizes[place] else end
        for place, (start, end) in ranges.items()
    }
