"""The voters of the quorum, each identified by its id and the directory of its log.

The directory id keeps a voter whose disk was replaced from voting under its old identity. Such a node has the same
node id and a new directory id, so it is a different replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.raft import control_records
from ottla.wire.types import ZERO_UUID, uuid_to_text


class ReplicaKey(NamedTuple):
    """A replica of the metadata log. `directory` None: unknown (static voters, old protocol versions)."""

    id: int
    directory: UUID | None

    def __str__(self) -> str:
        if self.directory is None:
            return str(self.id)
        return f"{self.id}({uuid_to_text(self.directory)})"


class QuorumEndpoint(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    id: int
    directory: UUID | None
    endpoints: tuple[QuorumEndpoint, ...]
    kraft_versions: tuple[int, int] = (0, 1)
    """The lowest and the highest kraft.version that it supports."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory)

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.id == key.id and self.directory in (None, key.directory)

    def supports(self, kraft_version: int) -> bool:
        lowest, highest = self.kraft_versions
        return lowest <= kraft_version <= highest


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters in order of their ids. Empty on an observer that has not read any voters yet."""

    voters: tuple[Voter, ...] = ()

    @staticmethod
    def of(voters: Iterable[Voter]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        assert len({voter.id for voter in ordered}) == len(ordered), "two voters with one id"
        return VoterSet(ordered)

    @property
    def ids(self) -> list[int]:
        return [voter.id for voter in self.voters]

    def others(self, node: int) -> set[int]:
        """The ids of the voters except `node`."""
        return {voter.id for voter in self.voters if voter.id != node}

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def get(self, node: int) -> Voter | None:
        for voter in self.voters:  # asked after each event of a simulation
            if voter.id == node:
                return voter
        return None

    def has(self, key: ReplicaKey) -> bool:
        voter = self.get(key.id)
        return voter is not None and voter.is_replica(key)

    def has_moved(self, key: ReplicaKey, endpoint: QuorumEndpoint | None) -> bool:
        """Whether the voter `key` listens at `endpoint`, and this set says that it listens elsewhere."""
        voter = self.get(key.id)
        return (
            voter is not None
            and voter.is_replica(key)
            and endpoint is not None
            and endpoint not in voter.endpoints
        )

    def with_voter(self, voter: Voter) -> VoterSet:
        """With `voter`, instead of the one that has its id."""
        others = (other for other in self.voters if other.id != voter.id)
        return VoterSet.of((*others, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def record(self) -> control_records.KRaftVoters:
        return control_records.KRaftVoters(
            voters=tuple(
                control_records.VoterEntry(
                    voter_id=voter.id,
                    voter_directory_id=voter.directory or ZERO_UUID,
                    endpoints=tuple(
                        control_records.VoterEndpoint(name=name, host=host, port=port)
                        for name, host, port in voter.endpoints
                    ),
                    k_raft_version_feature=control_records.SupportedRange(
                        min_supported_version=voter.kraft_versions[0],
                        max_supported_version=voter.kraft_versions[1],
                    ),
                )
                for voter in self.voters
            )
        )

    @staticmethod
    def from_record(record: control_records.KRaftVoters) -> VoterSet:
        return VoterSet.of(
            Voter(
                entry.voter_id,
                None if entry.voter_directory_id == ZERO_UUID else entry.voter_directory_id,
                tuple(QuorumEndpoint(e.name, e.host, e.port) for e in entry.endpoints),
                (
                    entry.k_raft_version_feature.min_supported_version,
                    entry.k_raft_version_feature.max_supported_version,
                ),
            )
            for entry in record.voters
        )
