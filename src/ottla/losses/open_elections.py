"""Unclean elections whose cost is not known yet: former in-sync replicas that have not come back.

Their disks may hold committed records that the new leader lacks. When such a broker returns, it truncates its log and keeps
what it cuts off; until then only the event log knows of it. This walks through its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STARTS_MAX = 8
UNCLEAN = ("unclean", "last_known_leader")


@dataclass
class OpenElection:
    partition: str
    at: str
    how: str
    leader: int
    leader_epoch: int
    first_offset: int | None = None
    """Where the new leader's log ended: what the others have from there on is lost. None if that was not recorded."""
    may_be_held_by: tuple[int, ...] = ()
    """Former in-sync replicas that have not been in sync since."""

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "open_election",
            "partition": self.partition,
            "first_offset": self.first_offset,
            "end_offset": None,
            "possible_end_offset": None,
            "at": self.at,
            "cause": self.how,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "may_be_held_by": list(self.may_be_held_by),
        }


def open_elections(entries: Iterable[Mapping[str, Any]]) -> list[OpenElection]:
    """`entries` are those of the event log, oldest first. Those of several nodes may be a little out of order."""
    reader = ElectionReader()
    for entry in entries:
        reader.take(entry)
    return reader.open()


class ElectionReader:
    """For who reads on when there are more entries. What it keeps does not grow with them, but with the partitions."""

    def __init__(self) -> None:
        self._in_sync: dict[str, set[int]] = {}
        """The last members before the partition had none."""
        self._starts: dict[str, dict[int, int | None]] = {}
        """By partition and epoch, the newest ones: an election and the start of its leader come one after the other."""
        self._elections: dict[str, list[OpenElection]] = {}

    def take(self, entry: Mapping[str, Any]) -> None:
        partition, kind = entry.get("partition"), entry.get("kind")
        if not isinstance(partition, str) or not _is_whole(entry):
            return
        if kind == "leader_start":
            self._started(partition, int(entry.get("leader_epoch", -1)), entry.get("log_end"))
        elif kind in ("election", "isr_shrink", "isr_expand"):
            isr = set(entry.get("isr") or ())
            former = self._in_sync.get(partition, set())
            if kind == "election" and entry.get("how") in UNCLEAN:
                former = former | {entry.get("previous_leader", -1)}
                self._elected(_election(partition, entry, former))
            else:
                self._returned(partition, isr)
            self._in_sync[partition] = isr or former

    def _started(self, partition: str, epoch: int, log_end: int | None) -> None:
        starts = self._starts.setdefault(partition, {})
        starts[epoch] = log_end
        if len(starts) > STARTS_MAX:
            del starts[next(iter(starts))]
        for election in self._elections.get(partition, ()):
            if election.leader_epoch == epoch:
                election.first_offset = log_end

    def _elected(self, election: OpenElection) -> None:
        election.first_offset = self._starts.get(election.partition, {}).get(election.leader_epoch)
        if election.may_be_held_by:
            self._elections.setdefault(election.partition, []).append(election)

    def _returned(self, partition: str, isr: set[int]) -> None:
        elections = self._elections.pop(partition, [])
        for election in elections:
            election.may_be_held_by = tuple(
                broker for broker in election.may_be_held_by if broker not in isr
            )
        if still_open := [election for election in elections if election.may_be_held_by]:
            self._elections[partition] = still_open

    def open(self) -> list[OpenElection]:
        return [election for each in self._elections.values() for election in each]


def _is_whole(entry: Mapping[str, Any]) -> bool:
    """Another version may have written it, without these fields or with others in their place."""
    ids, log_end = entry.get("isr") or (), entry.get("log_end")
    numbers = [entry.get(name, -1) for name in ("leader", "previous_leader", "leader_epoch")]
    return (
        isinstance(ids, list | tuple)
        and all(isinstance(number, int) for number in (*numbers, *ids))
        and isinstance(log_end, int | None)
    )


def _election(partition: str, entry: Mapping[str, Any], former: set[int]) -> OpenElection:
    leader = int(entry.get("leader", -1))
    return OpenElection(
        partition,
        str(entry.get("at", "")),
        str(entry["how"]),
        leader,
        int(entry.get("leader_epoch", -1)),
        may_be_held_by=tuple(sorted(former - {leader, -1})),
    )
