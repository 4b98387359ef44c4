"""The answers to one round of votes or pre-votes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.raft.voters import VoterSet


@dataclass(slots=True)
class Ballot:
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    """Counted as refusals, until they answer."""
    is_lost: bool = False

    @property
    def answered(self) -> set[int]:
        return self.granted | self.rejected

    def is_won(self, voters: VoterSet) -> bool:
        return len(self.granted) >= voters.majority

    def can_be_won(self, voters: VoterSet) -> bool:
        refused = self.rejected | self.unreachable
        return len(voters.voters) - len(refused) >= voters.majority
