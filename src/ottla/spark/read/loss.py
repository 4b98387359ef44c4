"""Records that can no longer be read: which, how many, and why.

Three things make an offset unreadable: its record aged out, the log was cut behind it (an unclean election), or the topic
was deleted, perhaps made anew under the same name. `failOnDataLoss` decides whether that ends the query; told it is always.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ottla.spark.errors import SparkSourceError


class Cause(Enum):
    AGED_OUT = "aged out (retention or DeleteRecords)"
    TRUNCATED = "were cut off by an election of a leader that did not have them"
    RECREATED = "are gone with their topic, which was deleted and made anew"
    BEHIND_THE_END = "are not there"
    DELETED = "are gone with their topic or partition, which was deleted"


class LostRange(NamedTuple):
    topic: str
    partition: int
    cause: Cause
    start: int
    end: int
    """Offsets `start` up to, not including, `end` are meant; equal if nobody can tell where it ended."""
    detail: str = ""

    @property
    def records(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        which = (
            f"{self.records} records, offsets {self.start} to {self.end - 1},"
            if self.records
            else f"records from offset {self.start} on"
        )
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.topic}-{self.partition}: {which} {self.cause.value}{detail}"


class DataLoss(SparkSourceError):
    """Ends a query with failOnDataLoss=true."""

    def __init__(self, losses: Sequence[LostRange]) -> None:
        told = "; ".join(map(str, losses))
        super().__init__(
            f"data was lost: {told}. Set 'failOnDataLoss' to false to go on with what is there; "
            "each loss is then logged and counted"
        )
        self.losses = tuple(losses)


def report(losses: Sequence[LostRange], *, fail: bool) -> None:
    """DataLoss if it shall fail; else a line each, in the log of the process that saw it."""
    if losses and fail:
        raise DataLoss(losses)
    for loss in losses:
        print(f"ottla: data was lost: {loss}", file=sys.stderr, flush=True)
