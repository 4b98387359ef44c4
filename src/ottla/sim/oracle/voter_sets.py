"""The sets of voters in a metadata log, read from its bytes, and whether two of them may follow one another."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from ottla.raft.control_records import KRaftVoters, decode_control
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import read_batch
from ottla.records.record import ControlType, control_type
from ottla.records.record import records as records_of
from ottla.runtime.seams import Buffer


class SeenVoters(NamedTuple):
    offset: int
    """-1: from formatting, or from the settings."""
    keys: frozenset[ReplicaKey]

    @property
    def are_static(self) -> bool:
        return any(key.directory is None for key in self.keys)

    @property
    def ids(self) -> set[int]:
        return {key.id for key in self.keys}

    def __str__(self) -> str:
        return f"{sorted(str(key) for key in self.keys)} at offset {self.offset}"


def static_voters(ids: Iterable[int]) -> SeenVoters:
    return SeenVoters(-1, frozenset(ReplicaKey(id, None) for id in ids))


def voters_in(data: Buffer) -> list[SeenVoters]:
    """The sets of voters in one batch."""
    batch = read_batch(data, 0)
    if not batch.is_control:
        return []
    return [
        SeenVoters(
            record.offset,
            frozenset(
                ReplicaKey(voter.voter_id, voter.voter_directory_id)
                for voter in decode_control(KRaftVoters, record.value).voters
            ),
        )
        for record in records_of(data, batch)
        if control_type(record) == ControlType.KRAFT_VOTERS
    ]


def overlap(one: Set[ReplicaKey], other: Set[ReplicaKey]) -> bool:
    """Whether every majority of the one has a voter in every majority of the other: as many as fit into both sets without
    sharing one are fewer than two majorities need."""
    together = len(one | other)
    return len(one) // 2 + 1 + len(other) // 2 + 1 > together


def may_follow(before: SeenVoters, found: SeenVoters) -> bool:
    """An upgrade of static voters gives each of them a directory, and changes no voter."""
    if before.are_static:
        return before.ids == found.ids and not found.are_static
    return overlap(before.keys, found.keys)
