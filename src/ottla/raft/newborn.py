"""Beyond Kafka: a static voter on an empty disk is *newborn*. It has no vote until it has learned what it may have lost.

Static voters have no directory ids, so no node can tell a new voter from a voter whose disk was replaced. If a voter
with a replaced disk voted at once, committed records could be lost. Example: voters 1 and 2 have committed a record
that voter 3 lacks, and the disk of voter 1 is replaced. Then voters 1 and 3 are a majority without the record.

So a newborn voter takes two steps. First it asks the others for their epochs, until at least one member of every
majority has answered. It must not follow the leader of an older epoch, because both together could commit records that
contradict what the voter had acknowledged before its disk was replaced (seed 641 in docs/SIMULATOR-RESULTS.md).

Then it follows a leader. It neither votes nor stands until it has everything below the high watermark that an
established leader named.

If all other voters are in epoch 0, nothing was ever committed, and the newborn voter has its vote at once. So the first
election of a new cluster needs all voters, and every later election needs a majority.
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
        """Voters that have said their epoch. Our epoch is not older than any of theirs."""
        self._caught_up_at: int | None = None
        """With everything below this offset, the voter has all that it may have forgotten."""

    @property
    def knows_the_epoch(self) -> bool:
        """Every majority has a member that has answered. So our epoch is not older than that of any leader that this voter
        followed before its disk was replaced."""
        voters = self._journal.voters
        return len(self._heard) > len(voters.ids) - voters.majority

    def to_ask(self, epoch: int) -> set[int]:
        """The voters whose epoch it still has to ask for."""
        if epoch > 0 and self.knows_the_epoch:
            return set()
        return self._journal.voters.others(self._node) - self._heard

    def heard(self, peer: int, epoch: int) -> bool:
        """`peer` answered, and our epoch is now at least its epoch. Returns whether all voters are known to be new."""
        others = self._journal.voters.others(self._node)
        if peer not in others:
            return False
        self._heard.add(peer)
        return epoch == 0 and others <= self._heard

    def waits_for(self, epoch: int, leader: int | None) -> str:
        """In words, for whoever wonders why this voter has no vote."""
        if leader is not None and self.knows_the_epoch:
            return f"all that leader {leader} has committed"
        if to_ask := self.to_ask(epoch):
            return f"an answer of voter {_either(to_ask)}"
        others = self._journal.voters.others(self._node)
        return f"a leader; the other voters elect one when enough of {_either(others, 'and')} run"

    def has_caught_up(self, flushed_end: int, high_watermark: int) -> bool:
        """A leader named its high watermark (-1: the leader is not established). The first one of an established leader
        counts, because what this voter acknowledged before its disk was replaced is below it. A later one would count
        too, but a quorum that commits all the time might never let us reach it."""
        if self._caught_up_at is None and high_watermark >= 0:
            self._caught_up_at = high_watermark
        return self._caught_up_at is not None and flushed_end >= self._caught_up_at


def _either(voters: set[int], word: str = "or") -> str:
    *most, last = (str(voter) for voter in sorted(voters))
    return f"{', '.join(most)} {word} {last}" if most else last
