"""Where a node stands in its quorum: its role, epoch, leader and vote (Kafka's QuorumState).

Only the `become_*` methods change the role, along `TRANSITIONS`. Epoch, leader and vote are on disk before they are in
memory, and so before any answer that follows from them leaves the node (M1, M2).

What a role needs is here too, because it ends with the role: the ballot of a candidate, the `LeaderState` and the
`VoterChanges` of a leader, and the voters that do not know yet of a resignation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ottla.events.quorum import (
    BecameQuorumLeader,
    LostQuorumLeadership,
    QuorumLeaderResigned,
    ResignationCause,
    TwoQuorumLeaders,
    VoterCameOfAge,
)
from ottla.raft.ballot import Ballot
from ottla.raft.election_state import ElectionState, QuorumStateFile
from ottla.raft.election_timer import ElectionTimer
from ottla.raft.journal import Journal
from ottla.raft.kraft_version_upgrade import KRaftVersionUpgrade
from ottla.raft.newborn import NewbornVoter, is_static_and_empty
from ottla.raft.outputs import Outputs
from ottla.raft.replication import LeaderState
from ottla.raft.roles import TRANSITIONS, RaftRole, Timing
from ottla.raft.voter_changes import VoterChanges
from ottla.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.wire.errors import ErrorCode

EPOCH_JUMP_MAX = 1_000_000
"""A request whose epoch is further ahead than this is refused, because epochs end at 2^31 and one stray frame must not
use them all up. A node that was away for so long learns the epoch from the answers to its own requests."""


class QuorumState:
    def __init__(
        self,
        key: ReplicaKey,
        endpoint: QuorumEndpoint | None,
        journal: Journal,
        file: QuorumStateFile,
        random: Random,
        wall_ms: Callable[[], int],
        timing: Timing,
        bootstrap: Sequence[QuorumEndpoint],
        outputs: Outputs,
    ) -> None:
        self.key = key
        self.id = key.id
        self.journal = journal
        self.timing = timing
        self.timer = ElectionTimer(timing, random)
        self.role = RaftRole.UNATTACHED
        self.state = file.read()
        """Epoch, leader and vote, as they are on disk."""
        if not file.exists and is_static_and_empty(journal, key):
            self.state = ElectionState(is_newborn=True)
        self.newborn = NewbornVoter(journal, key.id) if self.state.is_newborn else None
        self.leader_is_gone = False
        """A follower's leader resigned or closed its connection, or a fetch to it failed or timed out."""
        self.ballot: Ballot | None = None
        self.leader_state: LeaderState | None = None
        self.changes: VoterChanges | None = None
        """Of the voters, while this node leads."""
        self.successors: tuple[ReplicaKey, ...] = ()
        self.unacknowledged: set[int] = set()
        """Voters that do not know yet of our resignation."""
        self.on_enter: Callable[[bool, float], None] = lambda is_another_leader, now: None
        """Called when a role begins, with whether the epoch or the leader has changed."""
        # Kafka numbers servers whose ids are not known yet downwards from -2.
        others = [where for where in bootstrap if endpoint is None or where[1:] != endpoint[1:]]
        self._addresses = {-2 - i: where for i, where in enumerate(others)}
        self.bootstrap = list(self._addresses)
        self._endpoint = endpoint
        self._file = file
        self._wall_ms = wall_ms
        self._outputs = outputs

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader(self) -> int | None:
        """The leader of this epoch, as far as known and believed to be alive."""
        if self.role in (RaftRole.FOLLOWER, RaftRole.LEADER) and not self.leader_is_gone:
            return self.state.leader
        return None

    @property
    def is_voter(self) -> bool:
        return self.journal.voters.has(self.key)

    @property
    def has_vote(self) -> bool:
        """Counts in elections, and may stand. Whether it grants votes is `decide_vote`'s: there only a newborn voter is
        refused."""
        return self.is_voter and self.newborn is None

    @property
    def may_stand(self) -> bool:
        """Also a node whose removal is not known to be committed may stand, though its own vote does not count any more: it
        may be the only one whose log has the removal, so that nobody else can win. (Raft, §4.2.2; Kafka's nodes do not.)
        Others are given time to win first."""
        return self.has_vote or self.journal.is_leaving(self.key)

    @property
    def knows_the_epoch(self) -> bool:
        """Whether it may fetch: a newborn voter first asks the others for their epochs."""
        return self.newborn is None or self.newborn.knows_the_epoch

    def other_voters(self) -> set[int]:
        return self.journal.voters.others(self.id)

    def is_meant(self, voter: ReplicaKey | None) -> bool:
        """Whether a request for `voter` is for us. If voters have directory ids, a request without one is for nobody,
        because it could mean a voter whose disk was replaced."""
        if voter is None or voter.id < 0:
            return self.journal.kraft_version == 0
        if voter.directory is None:
            return voter.id == self.id and self.journal.kraft_version == 0
        return voter == self.key

    def address(self, peer: int) -> QuorumEndpoint | None:
        """Where to reach a voter, a leader, a bootstrap server, or a voter that is to be added. Where the leader of this
        epoch is, it has said itself; of other voters the log says it."""
        if self.changes is not None and (where := self.changes.address(peer)) is not None:
            return where
        known = self._addresses.get(peer)
        voter = self.journal.voters.get(peer)
        if voter is None or not voter.endpoints or (known is not None and peer == self.leader):
            return known
        return voter.endpoints[0]

    def leader_endpoint(self) -> QuorumEndpoint | None:
        leader = self.leader
        if leader is None:
            return None
        return self._endpoint if leader == self.id else self.address(leader)

    # Roles

    def start(self, now: float) -> None:
        if self.epoch < self.journal.last_epoch:
            # The file was lost and the log was not.
            self.become_unattached(self.journal.last_epoch, now)
        if self.state.leader == self.id:
            # Our log may have lost its unflushed tail, so we must not lead this epoch again.
            self.role = RaftRole.RESIGNED
            self.unacknowledged = self.other_voters()
            self.timer.wait_for_election(now)
        else:
            self._wait_for_leader(now)

    def _enter(self, role: RaftRole, state: ElectionState, now: float) -> None:
        """The one place where a role begins. The state is on disk before anything else changes."""
        assert (self.role, role) in TRANSITIONS, f"{self.role} to {role}"
        old = self.state
        assert state.is_newborn == old.is_newborn
        assert state.epoch >= old.epoch, f"{old} to {state} (M2)"
        if state.epoch == old.epoch:
            assert old.voted in (None, state.voted), f"a second vote: {old} to {state} (M1)"
            assert old.leader in (None, state.leader), f"a second leader: {old} to {state} (M1)"
        if state != old:
            self._write(state)
        if self.role is RaftRole.LEADER:
            self._outputs.emit(LostQuorumLeadership(old.epoch))
        self.state = state
        self.role = role
        self.ballot = None
        self.leader_state = None
        if self.changes is not None:
            self.changes.end()
            self.changes = None
        self.unacknowledged = set()
        is_another_leader = state.epoch != old.epoch or state.leader != old.leader
        if is_another_leader:
            self.leader_is_gone = False
        self.on_enter(is_another_leader, now)

    def _write(self, state: ElectionState) -> None:
        journal = self.journal
        self._file.write(state, kraft_version=journal.kraft_version, voters=journal.voters.ids)

    def become_unattached(self, epoch: int, now: float, *, voted: ReplicaKey | None = None) -> None:
        keep = self.state.in_epoch(epoch)
        self._enter(RaftRole.UNATTACHED, keep._replace(voted=voted or keep.voted), now)
        self._wait_for_leader(now)

    def _wait_for_leader(self, now: float) -> None:
        if not self.is_voter:
            self._wait_for_others(now)
            return
        self.timer.wait_for_election(now)
        if self.journal.voters.majority == 1:
            self.timer.wait(0, now)

    def _wait_for_others(self, now: float) -> None:
        """This node is no voter, and perhaps leaving."""
        if self.journal.is_leaving(self.key):
            self.timer.wait_for_voters(now)
        else:
            self.timer.stop()

    def _own_vote(self) -> set[int]:
        return {self.id} if self.is_voter else set()

    def become_prospective(self, now: float) -> None:
        assert self.may_stand
        self._enter(RaftRole.PROSPECTIVE, self.state, now)
        self.timer.wait_for_election(now)
        self.ballot = Ballot(granted=self._own_vote())

    def become_candidate(self, now: float) -> None:
        assert self.may_stand
        state = self.state.in_epoch(self.epoch + 1)._replace(voted=self.key)
        self._enter(RaftRole.CANDIDATE, state, now)
        self.timer.wait_for_election(now)
        self.ballot = Ballot(granted=self._own_vote())

    def become_follower(self, epoch: int, leader: int, now: float) -> None:
        assert leader != self.id
        self._enter(RaftRole.FOLLOWER, self.state.in_epoch(epoch)._replace(leader=leader), now)
        self._wait_for_fetch(now)

    def _wait_for_fetch(self, now: float) -> None:
        if self.is_voter:
            self.timer.wait(self.timing.fetch_timeout, now)
        else:
            self._wait_for_others(now)

    def become_leader(self, now: float) -> None:
        ballot = self.ballot
        assert ballot is not None and ballot.is_won(self.journal.voters), "no majority (M1)"
        assert self.state.voted == self.key
        self._enter(RaftRole.LEADER, self.state._replace(leader=self.id), now)
        self.timer.stop()
        self.timer.leader_is_there()
        self.leader_state = LeaderState(
            self.key, self.epoch, self._endpoint, self.journal, self._wall_ms, self._outputs, now
        )
        upgrade = KRaftVersionUpgrade(self.leader_state, self.journal, self.key, self._endpoint)
        self.changes = VoterChanges(
            self.leader_state, self.journal, upgrade, self.timing, self._outputs
        )
        self._outputs.emit(BecameQuorumLeader(self.epoch))
        self.leader_state.write_first_records(sorted(ballot.granted))

    def become_resigned(self, cause: ResignationCause, now: float) -> None:
        """Stop leading. The other voters are sent a list of successors, the best first."""
        leader_state = self.leader_state
        assert leader_state is not None
        self._enter(RaftRole.RESIGNED, self.state, now)
        self.successors = leader_state.successors()
        self.unacknowledged = self.other_voters()
        self.timer.wait_for_election(now)
        self._outputs.emit(QuorumLeaderResigned(self.epoch, cause))

    # Who leads

    def learn(
        self,
        epoch: int,
        leader: int | None,
        endpoint: QuorumEndpoint | None,
        now: float,
        *,
        from_leader: bool = False,
    ) -> None:
        """A node said that `leader` leads `epoch`. `from_leader`: that leader said so itself."""
        if leader == self.id and (
            epoch != self.epoch or self.role not in (RaftRole.LEADER, RaftRole.RESIGNED)
        ):
            leader = None  # this node led the epoch before its disk was replaced
        if epoch < self.epoch:
            return
        if leader is not None and endpoint is not None:
            self._addresses[leader] = endpoint
        if epoch > self.epoch:
            if leader is None:
                self.become_unattached(epoch, now)
            else:
                self.become_follower(epoch, leader, now)
        elif leader is not None and leader != self.id:
            known = self.state.leader
            if known is not None and known != leader:
                self._outputs.emit(TwoQuorumLeaders(epoch, known, leader))
            elif (
                known is None
                or self.role is RaftRole.UNATTACHED
                or (from_leader and (self.role is RaftRole.PROSPECTIVE or self.leader_is_gone))
            ):
                self.leader_is_gone = False
                self.become_follower(epoch, leader, now)

    def epoch_error(self, epoch: int, leader: int) -> ErrorCode:
        """Why a node cannot be the leader of `epoch` that it claims to be."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader < 0 or leader == self.id or epoch > self.epoch + EPOCH_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        if epoch == self.epoch and self.state.leader not in (None, leader):
            return ErrorCode.INVALID_REQUEST  # an epoch has one leader (M1)
        return ErrorCode.NONE

    def fetched_from_leader(self, now: float) -> None:
        self.leader_is_gone = False
        self.timer.leader_is_there()
        self._wait_for_fetch(now)

    def lose_leader(self, now: float) -> None:
        if not self.leader_is_gone:
            self.leader_is_gone = True
            self.stand_early(now)

    def stand_early(self, now: float) -> None:
        """There is no leader to wait for."""
        if self.is_voter:
            self.timer.early(now)

    def voters_changed(self, was_voter: bool, now: float) -> None:
        """A follower's log has other voters. Only a voter waits for its leader with a deadline."""
        if self.role is RaftRole.FOLLOWER and self.is_voter != was_voter:
            self._wait_for_fetch(now)

    def come_of_age(self) -> None:
        """A newborn voter is an ordinary voter from here on."""
        state = self.state._replace(is_newborn=False)
        self._write(state)
        self.state = state
        self.newborn = None
        self._outputs.emit(VoterCameOfAge())

    def invariants(self) -> None:
        assert self.state.is_newborn == (self.newborn is not None)
        assert (self.role is RaftRole.LEADER) == (self.leader_state is not None)
        assert (self.leader_state is None) == (self.changes is None)
        is_standing = self.role in (RaftRole.PROSPECTIVE, RaftRole.CANDIDATE)
        assert is_standing == (self.ballot is not None)
        assert self.may_stand or not is_standing
        if self.leader_state is not None:
            assert self.leader_state.epoch == self.epoch
            assert self.state.leader == self.id and self.state.voted == self.key
