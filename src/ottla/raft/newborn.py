"""Beyond Kafka: a static voter on an empty disk is *newborn*, and has no vote until it knows what it may have forgotten.

Static voters have no directory ids, so that no node can tell a new voter from one whose disk was replaced. The latter,
voting at once, could together with one that was away make a majority that has nothing of what its former self and a
third had committed.

So a newborn first asks so many others for their epochs that one of any majority is among them: with a leader whose
epoch is older it would commit what its former self knew to be overruled. Then it follows, and neither votes nor stands
until it has everything up to the high watermark that an established leader named.

If all other voters are in epoch 0, nothing was ever committed, and the newborn has its vote at once. A new cluster's
first election thus needs all its voters, every later one a majority.
"""

from __future__ import annotations

from ottla.raft.journal import Journal
from ottla.raft.voters import ReplicaKey


def is_static_and_empty(journal: Journal, key: ReplicaKey) -> bool:
    """Whether a voter that has no quorum-state file is newborn. A single voter has nobody to ask."""
    voters = journal.voters
    return (
        journal.kraft_version == 0
        and voters.has(key)
        and bool(voters.others(key.id))
        and journal.log_end == 0
        and journal.last_epoch == 0
    )


class NewbornVoter:
    """What a newborn voter has learned so far. It exists until the voter has its vote."""

    def __init__(self, journal: Journal, node: int) -> None:
        self._journal = journal
        self._node = node
        self._heard: set[int] = set()
        """Voters whose epoch is known. Ours is not older than any of them."""
        self._caught_up_at: int | None = None
        """With everything below this offset, the voter has all that it may have forgotten."""

    @property
    def knows_the_epoch(self) -> bool:
        """Of any majority that its former self was in, at least one has answered."""
        voters = self._journal.voters
        return len(self._heard) > len(voters.ids) - voters.majority

    def to_ask(self, epoch: int) -> set[int]:
        """Whose epoch it still has to ask for."""
        if epoch > 0 and self.knows_the_epoch:
            return set()
        return self._journal.voters.others(self._node) - self._heard

    def heard(self, peer: int, epoch: int) -> bool:
        """`peer` answered, and our epoch is now at least its epoch. Whether all voters are known to be new."""
        others = self._journal.voters.others(self._node)
        if peer not in others:
            return False
        self._heard.add(peer)
        return epoch == 0 and others <= self._heard

    def has_caught_up(self, flushed_end: int, high_watermark: int) -> bool:
        """An established leader named its high watermark (-1: one that is not established). The first one counts: what
        the former self had acknowledged was below it, and a quorum that commits all the time must not outrun us."""
        if self._caught_up_at is None and high_watermark >= 0:
            self._caught_up_at = high_watermark
        return self._caught_up_at is not None and flushed_end >= self._caught_up_at
