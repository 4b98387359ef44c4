"""Unclean elections whose cost is not known yet: former in-sync replicas that have not come back.

Their disks may hold committed records that the new leader lacks. When such a broker returns, it truncates its log and keeps
what it cuts off; until then only the event log knows of it. This walks through its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
    in_sync: dict[str, set[int]] = {}
    """The last members before the partition had none."""
    starts: dict[tuple[str, Any], int | None] = {}
    elections: dict[str, list[OpenElection]] = {}
    for entry in entries:
        partition, kind = entry.get("partition"), entry.get("kind")
        if not isinstance(partition, str) or not _is_whole(entry):
            continue
        if kind == "leader_start":
            starts[partition, entry.get("leader_epoch")] = entry.get("log_end")
        elif kind in ("election", "isr_shrink", "isr_expand"):
            isr = set(entry.get("isr") or ())
            former = in_sync.get(partition, set())
            if kind == "election" and entry.get("how") in UNCLEAN:
                former = former | {entry.get("previous_leader", -1)}
                elections.setdefault(partition, []).append(_election(partition, entry, former))
            else:
                for election in elections.get(partition, ()):
                    election.may_be_held_by = tuple(
                        broker for broker in election.may_be_held_by if broker not in isr
                    )
            in_sync[partition] = isr or former
    found = [election for each in elections.values() for election in each]
    for election in found:
        election.first_offset = starts.get((election.partition, election.leader_epoch))
    return [election for election in found if election.may_be_held_by]


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
