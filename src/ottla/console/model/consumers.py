"""Consumer groups: how far they are behind, in records and seconds, since when, and who reads what. And transactions, for which
some of them wait."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence

from ottla.client.group_admin import GroupDescription, ListedGroup
from ottla.client.group_lag import PartitionLag, most_seconds
from ottla.console.model.rows import (
    GroupRow,
    HoldRow,
    LagRow,
    MemberRow,
    Place,
    TransactionRow,
    place_text,
)
from ottla.console.model.tables import Rings, RowTable, Versions

LATE_S = 10.0
"""A group whose oldest unread record is older than this is late."""
STEP_MS = 10_000
HOUR_MS = 3_600_000
RINGS_MAX = 500
"""Groups whose history is kept: the first ones that were behind."""


class Consumers:
    def __init__(self, versions: Versions) -> None:
        self.groups: RowTable[str, GroupRow] = RowTable(versions, str)
        self.lags: RowTable[tuple[str, Place], LagRow] = RowTable(
            versions, lambda key: f"{key[0]}/{place_text(key[1])}"
        )
        self.members: RowTable[tuple[str, str], MemberRow] = RowTable(versions, json.dumps)
        """Both names may hold any character, so no character could part them."""
        self.group_lags: Rings[str] = Rings(versions, HOUR_MS // STEP_MS, str)
        """By group: (time, records, seconds)."""
        self.transactions: RowTable[str, TransactionRow] = RowTable(versions, str)
        self.holds: RowTable[tuple[Place, int], HoldRow] = RowTable(
            versions, lambda key: f"{place_text(key[0])}/{key[1]}"
        )
        self._committed: dict[str, dict[Place, int]] = {}
        self._stepped_ms = 0

    # Groups

    def listed(self, found: Iterable[ListedGroup], silent: Container[int] = ()) -> None:
        """All groups there are, as far as coordinators answer: of those of the silent ones only the state is not known."""
        rows = {
            id: row._replace(state="")
            for id, row in self.groups.items()
            if row.coordinator in silent
        }
        for each in found:
            before = self.groups.get(each.id) or GroupRow(each.id, "", "", "", -1)
            rows[each.id] = before._replace(
                state=each.state or before.state,
                type=each.type or before.type,
                protocol=each.protocol,
                coordinator=each.coordinator,
            )
        self.groups.replace(rows)
        self.lags.retain(lambda key: key[0] in rows)
        self.members.retain(lambda key: key[0] in rows)
        self.group_lags.retain(rows.__contains__)
        self._committed = {id: each for id, each in self._committed.items() if id in rows}

    def described(self, found: GroupDescription) -> None:
        row = self.groups.get(found.id)
        if row is None:
            return
        hold_up = None if found.hold_up is None else dict(found.hold_up)
        self.groups.put(
            found.id,
            row._replace(
                state=found.state, type=found.type, members=len(found.members), hold_up=hold_up
            ),
        )
        rows = {
            (found.id, each.id): MemberRow(
                found.id, each.id, each.instance_id, each.client_id, each.host, each.assigned
            )
            for each in found.members
        }
        self.members.retain(lambda key: key[0] != found.id or key in rows)
        for key, member in rows.items():
            self.members.put(key, member)

    def forget(self, group: str) -> None:
        """We may see that there is such a group, and not what it does."""
        row = self.groups.get(group)
        if row is not None:
            self.groups.put(
                group, GroupRow(row.id, row.state, row.type, row.protocol, row.coordinator)
            )
        self.members.retain(lambda key: key[0] != group)
        self.lags.retain(lambda key: key[0] != group)
        self.group_lags.drop(group)
        self._committed.pop(group, None)

    def lag_told(self, group: str, lags: Sequence[PartitionLag], now_ms: int) -> None:
        """Of all partitions that the group has committed."""
        row = self.groups.get(group)
        if row is None:
            return
        owners = {
            place: member.id
            for (of, _), member in self.members.items()
            if of == group
            for place in member.assigned
        }
        rows = {}
        for each in lags:
            place = (each.topic, each.partition)
            rows[group, place] = LagRow(
                group,
                *place,
                each.committed,
                each.log_start,
                each.log_end,
                each.lag,
                _tenths(each.seconds(now_ms)),
                owners.get(place),
            )
        self.lags.retain(lambda key: key[0] != group or key in rows)
        for key, lag in rows.items():
            self.lags.put(key, lag)
        seconds = _tenths(most_seconds(lags, now_ms))
        self.groups.put(
            group,
            _since(row, seconds, now_ms)._replace(
                topics=tuple(sorted({each.topic for each in rows.values()})),
                lag=sum(each.lag for each in rows.values()),
                seconds=seconds,
                moved_ms=self._moved(row, rows.values(), now_ms),
            ),
        )

    def _moved(self, row: GroupRow, lags: Iterable[LagRow], now_ms: int) -> int | None:
        now = {
            (each.topic, each.partition): each.committed
            for each in lags
            if each.committed is not None
        }
        before = self._committed.get(row.id)
        self._committed[row.id] = now
        if before is None or before == now:
            return row.moved_ms
        return now_ms

    def step(self, now_ms: int) -> None:
        """Add points to the histories whose time has come."""
        if now_ms - self._stepped_ms < STEP_MS:
            return
        self._stepped_ms = now_ms
        for id, row in self.groups.items():
            if row.lag is None:
                continue
            if id in self.group_lags or (row.lag and len(self.group_lags) < RINGS_MAX):
                self.group_lags.add(id, (now_ms, row.lag, row.seconds))
        self.group_lags.retain(lambda id: any(p[1] for p in self.group_lags.points(id)))

    # Transactions

    def transactions_told(
        self, found: Iterable[TransactionRow], silent: Container[int] = ()
    ) -> None:
        """All that are open, or about to be ended, as far as coordinators answer, as with groups."""
        rows = {key: row for key, row in self.transactions.items() if row.coordinator in silent}
        self.transactions.replace(rows | {_key(each): each for each in found})

    def holds_told(self, found: Mapping[tuple[Place, int], HoldRow]) -> None:
        """Of all partitions where somebody is held back, by partition and producer."""
        self.holds.replace(found)


def _key(row: TransactionRow) -> str:
    """An id may be any text, also that of a producer."""
    return f"producer {row.producer_id}" if row.id is None else f"id {row.id}"


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _since(row: GroupRow, seconds: float | None, now_ms: int) -> GroupRow:
    """Since when it is late. Its oldest unread record became LATE_S old at some moment: at the latest then it was late."""
    if seconds is None or seconds < LATE_S:
        return row._replace(late_since_ms=None, late_at_least=False)
    if row.late_since_ms is not None:
        return row
    began = now_ms - round((seconds - LATE_S) * 1000)
    return row._replace(late_since_ms=began, late_at_least=row.seconds is None)
