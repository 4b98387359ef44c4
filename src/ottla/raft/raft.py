"""KRaft: the election of one leader for each epoch, and the replication of the metadata log from it.

`Raft` is pure: time comes in with every call, requests go out through `outbox`, what happened through `events`, the
disk is behind `Journal` and `QuorumStateFile`. Whoever drives it

- calls `tick` when `next_deadline()` has come,
- sends what is in `outbox` and reports each answer (`answered`), failure (`request_failed`) and the loss of
  a connection (`peer_disconnected`),
- passes in the requests of others (`handle_*`) and sends the returned answers,
- runs `journal.flush_plan()` whenever `journal.needs_flush`, and reports it (`flushed`).

The rules are in the parts, which all stand on one `QuorumState`:

- `quorum_state`: role, epoch, leader and vote, and the only ways to change them
- `election`: granting votes, gathering them
- `replication`: the leader's side of the log
- `follower`: the fetching side of the log
- `newborn`: voters that have no vote yet
- `voter_changes`: how a leader adds and removes voters
- `kraft_version_upgrade`: how it makes voters of the settings voters of the log
- `membership`: what a controller asks about its own place among them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from ottla.events import Events
from ottla.events.quorum import QuorumLeaderChanged, QuorumVotersChanged, ResignationCause
from ottla.raft.election import QuorumElection
from ottla.raft.election_state import ElectionState, QuorumStateFile
from ottla.raft.follower import MetadataFetcher
from ottla.raft.journal import Journal
from ottla.raft.membership import wanted_change
from ottla.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Park,
    QuorumAnswer,
    QuorumRequest,
    RemoveVoter,
    UpdateVoter,
    VersionsAnswer,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from ottla.raft.outputs import Outputs, Send
from ottla.raft.quorum_state import QuorumState
from ottla.raft.replication import LeaderState
from ottla.raft.request_manager import RequestManager
from ottla.raft.roles import RaftRole, Timing
from ottla.raft.voter_changes import VoterChange, VoterChanges, refused
from ottla.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.wire.errors import ErrorCode, KafkaError


class Raft:
    def __init__(
        self,
        key: ReplicaKey,
        endpoint: QuorumEndpoint | None,
        journal: Journal,
        state_file: QuorumStateFile,
        random: Random,
        wall_ms: Callable[[], int],
        *,
        timing: Timing | None = None,
        bootstrap: Sequence[QuorumEndpoint] = (),
        may_join: bool = False,
        events: Events | None = None,
    ) -> None:
        """`endpoint` is where this node takes quorum requests (None on a broker that only observes);
        `bootstrap` is where a node that knows no voters asks first; `wall_ms` only stamps records. `may_join`: a
        controller that is no voter asks to be one."""
        self.key = key
        self.id = key.id
        self.journal = journal
        self.timing = timing or Timing()
        self._outputs = outputs = Outputs(Events() if events is None else events)
        self.outbox = outputs.outbox
        self.events = outputs.events
        self.quorum = QuorumState(
            key,
            endpoint,
            journal,
            state_file,
            random,
            wall_ms,
            self.timing,
            bootstrap,
            outputs,
        )
        self.quorum.on_enter = self._role_began
        self._endpoint = endpoint
        self._election = QuorumElection(self.quorum, outputs)
        self._fetcher = MetadataFetcher(self.quorum, outputs)
        self._requests = RequestManager(outputs)
        self._may_join = may_join
        self._announced: tuple[int, int | None] = (-1, None)
        self._voters = journal.voters
        """As they were when everybody was last told."""
        self._told: tuple[int, int | None] | None = None
        """The epoch and leader that this static voter has told of its disk."""
        self._started = False

    # What others may know

    @property
    def role(self) -> RaftRole:
        return self.quorum.role

    @property
    def epoch(self) -> int:
        return self.quorum.state.epoch

    @property
    def state(self) -> ElectionState:
        """Epoch, leader and vote, as they are on disk."""
        return self.quorum.state

    @property
    def leader(self) -> int | None:
        return self.quorum.leader

    @property
    def is_leader(self) -> bool:
        return self.quorum.role is RaftRole.LEADER

    @property
    def is_voter(self) -> bool:
        return self.quorum.is_voter

    @property
    def is_newborn(self) -> bool:
        return self.quorum.newborn is not None

    @property
    def has_vote(self) -> bool:
        return self.quorum.has_vote

    @property
    def high_watermark(self) -> int:
        return self.journal.high_watermark

    @property
    def first_high_watermark(self) -> int | None:
        """The first that an established leader named since this node started."""
        return self._fetcher.first_high_watermark

    @property
    def leader_state(self) -> LeaderState | None:
        return self.quorum.leader_state

    @property
    def is_established(self) -> bool:
        """Leads, and a record of its own epoch is committed."""
        leader_state = self.quorum.leader_state
        return leader_state is not None and leader_state.is_established

    @property
    def all_know_of_resignation(self) -> bool:
        return self.role is not RaftRole.RESIGNED or not self.quorum.unacknowledged

    def address(self, peer: int) -> QuorumEndpoint | None:
        return self.quorum.address(peer)

    # Time

    def start(self, now: float) -> None:
        assert not self._started
        self._started = True
        self.quorum.start(now)
        self._drive(now)

    def tick(self, now: float) -> None:
        leader_state = self.quorum.leader_state
        if leader_state is not None:
            if now >= leader_state.quorum_deadline(self.timing.fetch_timeout):
                self.quorum.become_resigned(ResignationCause.NO_MAJORITY, now)
        elif now >= self.quorum.timer.deadline:
            self._deadline_passed(now)
        self._drive(now)

    def next_deadline(self) -> float:
        """When `tick` has something to do, if nothing else happens before."""
        leader_state = self.quorum.leader_state
        if leader_state is not None:
            times = [leader_state.quorum_deadline(self.timing.fetch_timeout)]
            assert self.quorum.changes is not None
            times.append(self.quorum.changes.next_time())
            if leader_state.is_removed:
                times.append(-math.inf)
        else:
            times = [self.quorum.timer.deadline]
        for peer in self._to_ask():
            if not self._requests.is_under_way(peer):
                times.append(self._ask_time(peer))
        if self._fetcher.may_fetch():
            times.append(self._fetcher.not_before)
        return min(times)

    def _deadline_passed(self, now: float) -> None:
        quorum = self.quorum
        match quorum.role:
            case RaftRole.UNATTACHED | RaftRole.FOLLOWER | RaftRole.CANDIDATE:
                if not quorum.may_stand:
                    quorum.timer.stop()
                    return
                if quorum.role is RaftRole.FOLLOWER:
                    quorum.lose_leader(now)
                self._election.begin_pre_vote(now)
            case RaftRole.PROSPECTIVE:
                self._election.end_pre_vote(now)
            case RaftRole.RESIGNED:
                # A new epoch, so that nobody takes us for its leader any more.
                quorum.become_unattached(quorum.epoch + 1, now)

    def _role_began(self, is_another_leader: bool, now: float) -> None:
        self._requests.clear()
        self._fetcher.role_began(is_another_leader, now)

    def _drive(self, now: float) -> None:
        """Send everything that is due, say who leads and who votes. Every input ends here, except for fetches: what
        follows from them is done by the next `tick`, which is due at once then."""
        self._change_voters(now)
        for peer in self._to_ask():
            if not self._requests.is_under_way(peer) and now >= self._ask_time(peer):
                self._requests.send(peer, self._request_for(peer))
        if self._fetcher.may_fetch() and now >= self._fetcher.not_before:
            self._fetcher.fetch()
        leads = self.epoch, self.leader
        if leads != self._announced:
            self._announced = leads
            self._outputs.emit(QuorumLeaderChanged(*leads))

    def _change_voters(self, now: float) -> None:
        quorum = self.quorum
        if quorum.changes is not None:
            quorum.changes.advance(now)
        if quorum.leader_state is not None and quorum.leader_state.is_removed:
            quorum.become_resigned(ResignationCause.REMOVED, now)
        voters = self.journal.voters
        if voters is not self._voters:
            before, self._voters = self._voters, voters
            quorum.voters_changed(before.has(self.key), now)
            keys = tuple(str(voter.key) for voter in voters.voters)
            self._outputs.emit(QuorumVotersChanged(keys))

    # Requests to the voters, apart from fetches

    def _to_ask(self) -> list[int]:
        """Voters that we owe a request."""
        quorum = self.quorum
        match quorum.role:
            case RaftRole.PROSPECTIVE | RaftRole.CANDIDATE:
                assert quorum.ballot is not None
                return sorted(quorum.other_voters() - quorum.ballot.answered)
            case RaftRole.LEADER:
                return sorted(quorum.other_voters())
            case RaftRole.RESIGNED:
                return sorted(quorum.unacknowledged)
            case RaftRole.FOLLOWER if quorum.leader is not None and self._wish() is not None:
                return [quorum.leader]
        return [] if quorum.newborn is None else sorted(quorum.newborn.to_ask(quorum.epoch))

    def _wish(self) -> AddVoter | RemoveVoter | UpdateVoter | None:
        """A change of the voters that this node asks its leader for. It joins when it has caught up."""
        first = self._fetcher.first_high_watermark
        return wanted_change(
            self.key,
            self._endpoint,
            self.journal,
            self.epoch,
            may_join=self._may_join and first is not None and self.journal.log_end >= first,
            has_told_leader=first is None or self._told == (self.epoch, self.leader),
            timeout_s=self.timing.change_timeout,
        )

    def _ask_time(self, peer: int) -> float:
        """A leader reminds voters that know it only when they have not fetched for a while."""
        soonest = self._requests.not_before(peer)
        leader_state = self.quorum.leader_state
        if leader_state is not None and peer in leader_state.voters:
            replica = leader_state.voters[peer]
            if replica.acknowledged:
                return max(soonest, replica.last_fetch + self.timing.fetch_timeout / 2)
        return soonest

    def _request_for(self, peer: int) -> QuorumRequest:
        wish = self._wish() if self.role is RaftRole.FOLLOWER else None
        if wish is not None:
            return wish
        voter = self.journal.voters.get(peer)
        key = ReplicaKey(peer, None) if voter is None else voter.key
        match self.role:
            case RaftRole.LEADER:
                return BeginQuorumEpoch(self.epoch, self.id, key, self._endpoint)
            case RaftRole.RESIGNED:
                return EndQuorumEpoch(self.epoch, self.id, self.quorum.successors, self._endpoint)
            case _:  # of a newborn's question only the epoch in the answer counts
                pre_vote = self.role is not RaftRole.CANDIDATE
                return Vote(self.epoch, self.key, key, self.journal.end_position, pre_vote)

    def answered(self, send: Send, answer: QuorumAnswer, now: float) -> None:
        quorum = self.quorum
        if isinstance(answer, VersionsAnswer | VoterChangeAnswer):  # they say nothing of epochs
            if isinstance(answer, VoterChangeAnswer):
                self._wish_answered(send, now)
            elif quorum.changes is not None:
                quorum.changes.versions_answered(send, answer)
            self._drive(now)
            return
        from_leader = answer.leader == send.peer
        quorum.learn(answer.epoch, answer.leader, answer.endpoint, now, from_leader=from_leader)
        if quorum.newborn is not None and quorum.newborn.heard(send.peer, quorum.epoch):
            quorum.come_of_age()
            quorum.stand_early(now)
        match answer:
            case VoteAnswer():
                if self._requests.finish(send):
                    self._election.answered(send.peer, answer, now)
            case EpochAnswer():
                if self._requests.finish(send):
                    self._epoch_answered(send.peer, answer, now)
            case FetchAnswer() | FetchSnapshotAnswer():
                self._fetcher.answered(send, answer, now)
        self._drive(now)

    def _epoch_answered(self, peer: int, answer: EpochAnswer, now: float) -> None:
        leader_state = self.quorum.leader_state
        if leader_state is not None:
            replica = leader_state.voters.get(peer)
            if replica is not None:
                replica.acknowledged = answer.error is ErrorCode.NONE
            self._requests.pause(peer, now + self.timing.fetch_timeout / 2)
        elif self.role is RaftRole.RESIGNED:
            self.quorum.unacknowledged.discard(peer)
        elif self.role is RaftRole.FOLLOWER:  # the answer to a wish
            if answer.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
                self._told = self.epoch, self.leader
            self._requests.pause(peer, now + self.timing.fetch_timeout)

    def _wish_answered(self, send: Send, now: float) -> None:
        """Whether it was granted, the log will say. If not, it is asked for again."""
        if self._requests.finish(send):
            self._requests.pause(send.peer, now + self.timing.fetch_timeout)

    def request_failed(self, send: Send, now: float) -> None:
        """No connection, no answer in time, or one that makes no sense."""
        changes = self.quorum.changes
        if isinstance(send.request, AskVersions):
            if changes is not None:
                changes.versions_unknown(send)
        elif isinstance(send.request, AddVoter | RemoveVoter | UpdateVoter):
            self._wish_answered(send, now)
        elif send is self._fetcher.under_way:
            self._fetcher.failed(send.peer, now)
        elif self._requests.finish(send):
            self._requests.pause(send.peer, now + self.timing.retry_backoff)
            self._election.unreachable(send.peer, now)
        self._drive(now)

    def peer_disconnected(self, peer: int, now: float) -> None:
        """The connection to a peer closed. If it is the leader's, do not wait for the fetch timeout."""
        if self.role is RaftRole.FOLLOWER and peer == self.state.leader:
            self.quorum.lose_leader(now)
            self._drive(now)

    # Requests of others

    def handle_vote(self, request: Vote, now: float) -> VoteAnswer:
        answer = self._election.handle_vote(request, now)
        self._drive(now)
        return answer

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpoch, now: float) -> EpochAnswer:
        error = self.quorum.epoch_error(request.epoch, request.leader)
        if error is ErrorCode.NONE and not self.quorum.is_meant(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE:
            self.quorum.learn(
                request.epoch, request.leader, request.endpoint, now, from_leader=True
            )
        self._drive(now)
        return self._epoch_answer(error)

    def handle_end_quorum_epoch(self, request: EndQuorumEpoch, now: float) -> EpochAnswer:
        quorum = self.quorum
        error = quorum.epoch_error(request.epoch, request.leader)
        if error is ErrorCode.NONE:
            quorum.learn(request.epoch, request.leader, request.endpoint, now)
            if quorum.role is RaftRole.FOLLOWER and quorum.state.leader == request.leader:
                quorum.lose_leader(now)
                place = next(
                    (i for i, key in enumerate(request.preferred) if quorum.is_meant(key)),
                    len(request.preferred),
                )
                if place and quorum.is_voter:  # the first stands at once, the others if it fails
                    quorum.timer.let_successors_try(place, now)
        self._drive(now)
        return self._epoch_answer(error)

    def _epoch_answer(self, error: ErrorCode) -> EpochAnswer:
        return EpochAnswer(error, self.epoch, self.leader, self.quorum.leader_endpoint())

    def handle_voter_change(self, request: AddVoter | RemoveVoter, now: float) -> VoterChange:
        """Its answer may not be known yet: look at it again after each input."""
        changes = self.quorum.changes
        if changes is None:
            why = f"node {self.id} does not lead the quorum"
            return refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        if isinstance(request, AddVoter):
            change = changes.add(request, now)
        else:
            change = changes.remove(request, now)
        self._drive(now)
        return change

    def handle_update_voter(self, request: UpdateVoter, now: float) -> EpochAnswer:
        error, changes = self._leader_error(request.epoch), self.quorum.changes
        if error is ErrorCode.NONE:
            assert changes is not None
            error = changes.update(request, now)
        self._drive(now)
        return self._epoch_answer(error)

    @property
    def kraft_version(self) -> int:
        return self.journal.kraft_version

    def check_kraft_version(self, version: int) -> None:
        """Raises why kraft.version cannot become `version`."""
        self._changes().check_upgrade(version)

    def upgrade_kraft_version(self, version: int, now: float) -> tuple[int, int]:
        """From static voters to voters in the log. Where its batch begins and ends; it counts, and is not committed yet."""
        begin = self.journal.log_end
        self._changes().upgrade(version, now)
        end = self.journal.log_end
        self._drive(now)
        return begin, end

    def _changes(self) -> VoterChanges:
        changes = self.quorum.changes
        if changes is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.id} does not lead the quorum")
        return changes

    def handle_fetch(self, request: Fetch, now: float) -> FetchAnswer | Park:
        """May be asked again with the same request while it is parked."""
        is_sound = (
            request.wait_ms_max >= 0
            and request.offset >= 0
            and 0 <= request.last_epoch <= request.epoch
        )
        error = self._leader_error(request.epoch) if is_sound else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            endpoint = self.quorum.leader_endpoint()
            return FetchAnswer(error, self.epoch, self.leader, endpoint=endpoint)
        return self._leading().serve_fetch(request, now)

    def handle_fetch_snapshot(self, request: FetchSnapshot, now: float) -> FetchSnapshotAnswer:
        error = self._leader_error(request.epoch)
        if error is not ErrorCode.NONE:
            endpoint = self.quorum.leader_endpoint()
            return FetchSnapshotAnswer(
                error, self.epoch, self.leader, request.snapshot_id, endpoint=endpoint
            )
        return self._leading().serve_snapshot(request, now)

    def _leader_error(self, epoch: int) -> ErrorCode:
        """Why a request for the leader of `epoch` is not for us."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.role is not RaftRole.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _leading(self) -> LeaderState:
        leader_state = self.quorum.leader_state
        assert leader_state is not None
        return leader_state

    # This node's own log

    def append(self, values: Sequence[bytes]) -> tuple[int, int]:
        """Write metadata records as one atomic batch. Their first offset, and the log's end after them."""
        if self.role is not RaftRole.LEADER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.id} does not lead the quorum")
        return self._leading().append(values)

    def flushed(self, end_offset: int, now: float) -> None:
        """What `journal.flush_plan()` returned when it had run."""
        self.journal.flushed(end_offset)
        if self.role is RaftRole.LEADER:
            self._leading().update_high_watermark()
        self._drive(now)

    def resign(self, now: float) -> None:
        """Before a planned stop: let the others elect at once."""
        if self.role is RaftRole.LEADER:
            self.quorum.become_resigned(ResignationCause.STOPPING, now)
            self._drive(now)

    def stop(self) -> None:
        """Let go of the files."""
        self._fetcher.puller.abandon_download()
        self.journal.close()

    def invariants(self) -> None:
        """Cheap enough to hold after every input."""
        self.journal.log.invariants()
        self.quorum.invariants()
        assert self.role is not RaftRole.LEADER or not self._fetcher.puller.is_downloading, (
            "a leader takes over no checkpoint (M5)"
        )
