"""From static voters to voters in the log: kraft.version 0 becomes 1 (KIP-853), as the leader does it.

Static voters are named in every node's settings, without the directories of their disks. From version 1 on the log says who
votes, with directories. So each static voter tells its leader which directory it has and where it listens (UpdateRaftVoter).
The leader remembers that, and cannot write it anywhere: each new leader is told anew. When all have told it, it may write one
batch with the new version and the voters.

The ids of the voters stay the same, so every majority after the upgrade has a member in every majority before it.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.raft.journal import Journal
from ottla.raft.replication import LeaderState
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.wire.errors import ErrorCode, KafkaError


class KRaftVersionUpgrade:
    """It exists while a node leads static voters (Kafka's KRaftVersionUpgrade.Voters)."""

    def __init__(
        self,
        leader: LeaderState,
        journal: Journal,
        key: ReplicaKey,
        endpoint: QuorumEndpoint | None,
    ) -> None:
        self._leader = leader
        self._journal = journal
        self._voters = journal.voters
        mine = self._voters.get(key.id)
        if mine is not None:
            endpoints = mine.endpoints if endpoint is None else (endpoint,)
            self._voters = self._voters.with_voter(
                replace(mine, directory=key.directory, endpoints=endpoints)
            )

    def told(self, voter: Voter) -> ErrorCode:
        """A voter says which disk it has, and where it listens. It may have had another disk before."""
        if self._voters.get(voter.id) is None:
            return ErrorCode.VOTER_NOT_FOUND
        self._voters = self._voters.with_voter(voter)
        return ErrorCode.NONE

    def check(self, version: int) -> None:
        """Raises why the version cannot become `version`."""
        missing = [
            voter.id
            for voter in self._voters.voters
            if voter.directory is None or not voter.supports(version)
        ]
        if missing:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of kraft.version to {version} because not all of the voters support it."
                f" These have not said since the last election that they do: {missing}",
            )

    def write(self, version: int, now: float) -> None:
        self.check(version)
        self._leader.append_kraft_version(version, self._voters, now)
