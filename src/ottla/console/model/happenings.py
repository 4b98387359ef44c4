"""What happened in a cluster: the newest entries of its event log, and records that it lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ottla.console.model.rows import EventRow
from ottla.console.model.tables import Rings, RowTable, Versions
from ottla.event_log.entry import EventEntry
from ottla.event_log.kinds import severity
from ottla.event_log.words import sentence

EVENTS_MAX = 20_000
NEWEST_MAX = 200
"""That every display gets; more of them are asked for."""
ALL = "all"


class LossRow(NamedTuple):
    """Records that are lost, or may be: `losses.merge.NamedLoss` or `losses.open_elections.OpenElection` as JSON."""

    loss: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return dict(self.loss)


class Happenings:
    def __init__(self, versions: Versions) -> None:
        self.newest: Rings[str] = Rings(versions, NEWEST_MAX, str)
        self.losses: RowTable[str, LossRow] = RowTable(versions, str)
        self.events: deque[EventRow] = deque(maxlen=EVENTS_MAX)
        """In the order of the log."""
        self._whole = False
        """Nothing older is in the log."""

    def begin(self, *, whole: bool) -> None:
        """Entries come, from the beginning of the log on if that is `whole`."""
        self._whole = whole and not self.events

    def add(self, event: EventRow) -> None:
        self._whole = self._whole and len(self.events) < EVENTS_MAX
        self.events.append(event)
        self.newest.add(ALL, tuple(event))

    def forget(self) -> None:
        self.events.clear()
        self.newest.retain(lambda _: False)

    def since(self, at_ms: int) -> list[EventRow]:
        """Those that are known, in the order of the log."""
        return [each for each in self.events if each.at_ms >= at_ms]

    @property
    def known_since_ms(self) -> int | None:
        """All entries since then are known."""
        if not self.events:
            return None
        return 0 if self._whole else self.events[0].at_ms

    def last_of(self, partition: str, limit: int) -> list[EventRow]:
        """Of one partition, oldest first."""
        found = (each for each in reversed(self.events) if each.partition == partition)
        return list(islice(found, limit))[::-1]

    def losses_told(self, found: Iterable[Mapping[str, Any]]) -> None:
        """All that are known now."""
        self.losses.replace({_loss_key(each): LossRow(each) for each in found})


def _loss_key(loss: Mapping[str, Any]) -> str:
    return f"{loss['partition']}/{loss['kind']}/{loss['at']}/{loss['first_offset']}"


def event_row(entry: EventEntry) -> EventRow:
    members = entry.members()
    return EventRow(
        entry.id,
        entry.at_ms,
        entry.kind,
        int(severity(entry)),
        entry.node,
        entry.told.about,
        members["partition"],
        entry.told.cause,
        sentence(entry),
        dict(entry.told.fields),
    )
