"""Elections: by which rule a voter grants its vote (`decide_vote`), and how a candidate gathers votes.

A candidate first asks for pre-votes (KIP-996), which change nothing, and begins a new epoch only if a majority would
vote for it.

Beyond Kafka: a voter whose connection to the leader closes begins its pre-vote at once. A voter that has asked
everybody, and learned from a majority that they know no leader, does not wait for its election timeout either. A voter
that still fetches from the leader refuses pre-votes, so standing early costs nothing. Of two voters that stand at the
same moment one gives way.
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
    """Whether a voter grants its vote, or its pre-vote, to the candidate in a valid request of the voter's epoch.

    A vote: one for each epoch (M1), to the first candidate that asks, if the voter knows no leader of the epoch and the
    candidate's log has everything that the voter's log has. So every elected leader has everything that is
    committed (M3). The vote is given again to the same candidate if it repeats its request.

    A pre-vote binds nobody. It is granted under the same condition on the logs (KIP-996), unless the voter leads, or
    still fetches from the leader, or stands itself and comes before the candidate.

    A newborn voter grants neither (see `newborn`).
    """
    if voter.newborn is not None:
        return VoteDecision(False, VoteReason.NEWBORN)
    state, log_end = voter.state, voter.journal.end
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
        # Of two that stand at the same moment one gives way, or they would split the votes.
        if (request.last, -request.candidate.id) > (log_end, -voter.id):
            return VoteDecision(True, VoteReason.GAVE_WAY)
        return VoteDecision(False, VoteReason.COMES_FIRST)
    if request.last >= log_end:
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
        epoch = self._quorum.epoch
        last_possible = request.epoch if request.pre_vote else request.epoch - 1
        if request.candidate.id < 0 or min(request.last) < 0 or request.last.epoch > last_possible:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > epoch + EPOCH_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        if not self._quorum.is_meant(request.voter):
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE

    def _vote(self, request: Vote, now: float) -> bool:
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
            return  # a newborn only wanted to know the epoch
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
        """The pre-vote is lost, and nothing was disturbed: back to the leader we had, or to looking for one."""
        quorum = self._quorum
        leader = quorum.state.leader
        if leader is not None and leader != quorum.id:
            quorum.become_follower(quorum.epoch, leader, now)
        else:
            quorum.become_unattached(quorum.epoch, now)
        quorum.timer.election_lost(now)
