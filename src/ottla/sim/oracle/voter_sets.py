"""The sets of voters in a metadata log, read from its bytes, and whether two of them may follow one another."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ottla.raft.control_records import KRaftVoters, decode_control
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import read_batch
from ottla.records.record import ControlType, control_type
from ottla.records.record import records as records_of
from ottla.runtime.seams import Buffer


class SeenVoters(NamedTuple):
    offset: int
    """-1: from formatting."""
    keys: frozenset[ReplicaKey]

    def __str__(self) -> str:
        return f"{sorted(str(key) for key in self.keys)} at offset {self.offset}"


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
