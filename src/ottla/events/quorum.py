"""Events of the metadata quorum: votes, leaders, and changes of a node's copy of the metadata log."""

from __future__ import annotations

from enum import StrEnum

from ottla.events import Event


class VoteReason(StrEnum):
    """Why a voter granted or refused its vote."""

    UP_TO_DATE = "the candidate's log has everything that the voter's log has"
    REPEATED = "the voter has voted for this candidate in this epoch already"
    BEHIND = "the candidate's log lacks records that the voter has"
    VOTED_FOR_ANOTHER = "the voter has voted for another candidate in this epoch"
    LEADER_KNOWN = "the voter knows a leader of this epoch"
    LEADS = "the voter leads this epoch"
    LEADER_ALIVE = "the voter has no reason to believe that its leader is gone"
    GAVE_WAY = "the voter stands itself, with a worse log, or with an equal log and a larger id"
    COMES_FIRST = (
        "the voter stands itself, with a better log, or with an equal log and a smaller id"
    )
    NEWBORN = "the voter's disk was empty and it has not caught up yet"


class ResignationCause(StrEnum):
    NO_MAJORITY = "no majority has fetched for too long"
    STOPPING = "the node stops"
    REMOVED = "the node is no voter any more"


class VoteGranted(Event):
    """A voter granted a vote. A vote (not a pre-vote) is on disk already."""

    epoch: int
    candidate: int
    pre_vote: bool
    reason: VoteReason


class VoteRefused(Event):
    """A voter refused its vote to a valid request."""

    epoch: int
    candidate: int
    pre_vote: bool
    reason: VoteReason


class BecameQuorumLeader(Event):
    """This node won the election of `epoch`. Nothing of its epoch is committed yet."""

    epoch: int


class LostQuorumLeadership(Event):
    """This node led `epoch` and no longer does."""

    epoch: int


class QuorumLeaderResigned(Event):
    """This node resigned as leader of `epoch`."""

    epoch: int
    cause: ResignationCause


class QuorumLeaderChanged(Event):
    """The epoch or leader that this node knows has changed. `leader` None: unknown."""

    epoch: int
    leader: int | None


class TwoQuorumLeaders(Event):
    """A node named another leader of an epoch than the one known here, and was ignored. One of the two messages was
    forged: this node may be unable to take part in the quorum until the next epoch."""

    epoch: int
    known: int
    named: int


class VoterCameOfAge(Event):
    """A newborn voter may vote from now on."""


class QuorumVotersChanged(Event):
    """The voters at the end of this node's log are others. As long as they are not committed, this may be undone."""

    voters: tuple[str, ...]
    """Each with its id and its directory."""


class MetadataCommitted(Event):
    """The high watermark of the metadata log rose to `high_watermark` on this node."""

    high_watermark: int


class MetadataTruncated(Event):
    """This node truncated records that no majority had: its log ended at `from_offset` and now ends at `to_offset`."""

    from_offset: int
    to_offset: int


class MetadataRefused(Event):
    """The leader sent data that it did not write, damaged or from elsewhere. The data was discarded."""

    why: str


class SnapshotInstalled(Event):
    """This node replaced its metadata log with a checkpoint that it fetched from the leader."""

    end_offset: int
    epoch: int


class SnapshotWritten(Event):
    """This node wrote a checkpoint."""

    end_offset: int
    epoch: int


class DecisionsLost(Event):
    """The active controller lost its leadership before records that it had appended were committed. The next
    leader may still commit them."""

    count: int
    first_offset: int
    cause: str
