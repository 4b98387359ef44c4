"""Elections: by which rule a voter grants its vote (`decide_vote`), and how a candidate gathers votes.

A voter that wants to lead first asks for pre-votes (KIP-996). It begins a new epoch only if a majority granted them.
A pre-vote uses up no vote and begins no epoch. It may bring the news of one: whoever is asked in a higher epoch than its own
moves there.

Beyond Kafka, a voter stands for election early in two cases: when its connection to the leader closes, and when it has
asked every voter and a majority knows no leader. This is safe, because a voter that has no reason to believe that its
leader is gone refuses pre-votes. Of two voters that stand at the same moment, one grants the other its pre-vote.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.events.quorum import VoteGranted, VoteReason, VoteRefused
from ottla.raft.messages import Vote, VoteAnswer
from ottla.raft.outputs import Outputs
from ottla.raft.quorum_state import EPOCH_JUMP_MAX, QuorumState
from ottla.raft.roles import RaftRole
from ottla.wire.errors import ErrorCode


class VoteDecision(NamedTuple):
    granted: bool
    reason: VoteReason


def decide_vote(request: Vote, voter: QuorumState) -> VoteDecision:
    """Whether a voter grants its vote, or its pre-vote, to the candidate of a request.

    The request is valid (`QuorumElection._vote_error`): it names this node and its directory. A node that does not know
    yet that it is a voter answers, too (M7). It is in the epoch of the request: `QuorumElection._vote` has moved it there if
    that epoch is higher.

    A vote: one for each epoch (M1), to the first candidate that asks, if the voter has learned of no leader of the epoch,
    alive or not, and the candidate's log has everything that the voter's log has. So every elected leader has everything
    that is committed (M3). If a candidate repeats its request, it gets the same vote again. (Static voters have no directory
    ids, and their file keeps none: after a restart such a voter does not recognise whom it voted for, and refuses.)

    A pre-vote (KIP-996) uses up no vote, and a voter that has voted in this epoch may grant it. It depends on the role:

    ===========================================  =============================================================
    LEADER                                       refused
    FOLLOWER, its leader is not gone             refused (`QuorumState.leader_is_gone`)
    PROSPECTIVE, CANDIDATE                       granted to a better log, or to an equal log and a smaller id
    UNATTACHED, RESIGNED, FOLLOWER without one   granted to a log that is as good as its own, or better
    ===========================================  =============================================================

    A newborn voter grants neither (see `newborn`).
    """
    if voter.newborn is not None:
        return VoteDecision(False, VoteReason.NEWBORN)
    state, own_position = voter.state, voter.journal.end_position
    if not request.pre_vote:
        if state.voted is not None:
            if state.voted == request.candidate:
                return VoteDecision(True, VoteReason.REPEATED)
            return VoteDecision(False, VoteReason.VOTED_FOR_ANOTHER)
        if state.leader is not None:
            return VoteDecision(False, VoteReason.LEADER_KNOWN)
    elif voter.role is RaftRole.LEADER:
        return VoteDecision(False, VoteReason.LEADS)
    elif voter.role is RaftRole.FOLLOWER and not voter.leader_is_gone:
        return VoteDecision(False, VoteReason.LEADER_ALIVE)
    elif voter.role in (RaftRole.PROSPECTIVE, RaftRole.CANDIDATE):
        # Two that stand at the same moment would split the votes. So the one with the worse log, or the larger id,
        # grants the other its pre-vote. It goes on asking for pre-votes itself.
        if (request.last_position, -request.candidate.id) > (own_position, -voter.id):
            return VoteDecision(True, VoteReason.GAVE_WAY)
        return VoteDecision(False, VoteReason.COMES_FIRST)
    if request.last_position >= own_position:
        return VoteDecision(True, VoteReason.UP_TO_DATE)
    return VoteDecision(False, VoteReason.BEHIND)


class QuorumElection:
    """Answers to candidates, and the counting of the votes that this node gathers."""

    def __init__(self, quorum: QuorumState, outputs: Outputs) -> None:
        self._quorum = quorum
        self._outputs = outputs

    # As a voter

    def handle_vote(self, request: Vote, now: float) -> VoteAnswer:
        quorum = self._quorum
        error = self._vote_error(request)
        granted = error is ErrorCode.NONE and self._vote(request, now)
        return VoteAnswer(error, quorum.epoch, quorum.leader, granted, quorum.leader_endpoint())

    def _vote_error(self, request: Vote) -> ErrorCode:
        """Why a request is refused before any vote is decided.

        - INVALID_REQUEST: its last position cannot be (the last record of a candidate is of an epoch before the one that it
          stands for; a pre-vote names the present epoch, not the next), or its epoch is absurdly high.
        - FENCED_LEADER_EPOCH: its epoch is older than ours.
        - INVALID_VOTER_KEY: it is meant for another voter."""
        epoch = self._quorum.epoch
        last_possible = request.epoch if request.pre_vote else request.epoch - 1
        if (
            request.candidate.id < 0
            or min(request.last_position) < 0
            or request.last_position.epoch > last_possible
        ):
            return ErrorCode.INVALID_REQUEST
        if request.epoch < epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > epoch + EPOCH_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        if not self._quorum.is_meant(request.voter):
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE

    def _vote(self, request: Vote, now: float) -> bool:
        """Decide about a valid request. A higher epoch counts whether or not the vote is granted, for pre-votes too."""
        quorum, candidate = self._quorum, request.candidate
        if request.epoch > quorum.epoch:
            quorum.become_unattached(request.epoch, now)
        granted, reason = decide_vote(request, quorum)
        if granted and not request.pre_vote and quorum.state.voted is None:
            quorum.become_unattached(quorum.epoch, now, voted=candidate)
        elif granted and quorum.role in (RaftRole.FOLLOWER, RaftRole.UNATTACHED):
            quorum.timer.let_candidate_try(now)
        happened = VoteGranted if granted else VoteRefused
        self._outputs.emit(happened(quorum.epoch, candidate.id, request.pre_vote, reason))
        return granted

    # As a candidate

    def begin_pre_vote(self, now: float) -> None:
        self._quorum.become_prospective(now)
        self._count(now)

    def answered(self, peer: int, answer: VoteAnswer, now: float) -> None:
        ballot = self._quorum.ballot
        if ballot is None:
            return  # a newborn voter asked only to learn the epoch
        is_granted = answer.error is ErrorCode.NONE and answer.granted
        ballot.unreachable.discard(peer)
        (ballot.granted if is_granted else ballot.rejected).add(peer)
        self._count(now)

    def unreachable(self, peer: int, now: float) -> None:
        ballot = self._quorum.ballot
        if ballot is not None:
            ballot.unreachable.add(peer)
            self._count(now)

    def _count(self, now: float) -> None:
        quorum = self._quorum
        ballot, voters = quorum.ballot, quorum.journal.voters
        assert ballot is not None
        if ballot.is_won(voters):
            if quorum.role is RaftRole.PROSPECTIVE:
                quorum.become_candidate(now)
                self._count(now)
            else:
                quorum.become_leader(now)
        elif not ballot.is_lost and not ballot.can_be_won(voters):
            ballot.is_lost = True
            if quorum.role is RaftRole.PROSPECTIVE:
                self.end_pre_vote(now)
            else:
                quorum.timer.election_lost(now)

    def end_pre_vote(self, now: float) -> None:
        """The pre-vote is lost. No epoch was begun, so we return to the leader that we had, or look for one."""
        quorum = self._quorum
        leader = quorum.state.leader
        if leader is not None and leader != quorum.id:
            quorum.become_follower(quorum.epoch, leader, now)
        else:
            quorum.become_unattached(quorum.epoch, now)
        quorum.timer.election_lost(now)
