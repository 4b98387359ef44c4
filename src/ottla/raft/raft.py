"""KRaft: the election of one leader per epoch and the replication of the metadata log from it.

Pure: time comes in with every call, requests go out through `outbox`, what happened through `events`, the
disk is behind `Journal` and `QuorumStateFile`. Whoever drives it

- calls `tick` when `next_deadline()` has come,
- sends what is in `outbox` and reports each answer (`answered`), failure (`request_failed`) and the loss of
  a connection (`peer_disconnected`),
- passes in the requests of others (`handle_…`) and sends the returned answers,
- runs `journal.flush_plan()` whenever `journal.needs_flush`, and reports it (`flushed`).

A node is in one of six roles. Only the `become_…` methods change it, along `TRANSITIONS`. Epoch, leader and
vote are on disk before they are in memory, and so before any answer that follows from them leaves.

Beyond Kafka: a voter whose connection to the leader closes begins its pre-vote at once, and one that has
asked everybody and heard from a majority that they know no leader does not wait for its election timeout
either. Pre-votes change nothing and are refused by whoever still hears from the leader, so being early costs
nothing. Of two voters that stand at the same moment one gives way.

Also beyond Kafka: a static voter on an empty disk is *newborn*. Static voters have no directory ids, so that
nobody can tell a new voter from one whose disk was replaced. The latter, voting at once, could with one that
was away make a majority that has nothing of what its former self and a third had committed. So a newborn first
asks so many others for their epochs that one of any majority is among them: with a leader whose epoch is older
it would commit what its former self knew to be overruled. Then it follows, and neither votes nor stands until
it has everything up to the high watermark that an established leader named. If all other voters are in epoch 0
nothing was ever committed, and it is one of them at once: a new cluster's first election thus needs all its
voters, every later one a majority.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from ottla.raft.control_records import leader_change
from ottla.raft.follower import Puller
from ottla.raft.journal import Journal
from ottla.raft.messages import (
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
    Vote,
    VoteAnswer,
)
from ottla.raft.quorum_state import QuorumState, QuorumStateFile
from ottla.raft.roles import (
    TRANSITIONS,
    BadRecords,
    Ballot,
    BecameLeader,
    CameOfAge,
    Event,
    HighWatermarkAdvanced,
    LeaderChanged,
    Leadership,
    LostLeadership,
    Role,
    Send,
    Timing,
    TwoLeaders,
)
from ottla.raft.serving import serve_fetch, serve_snapshot
from ottla.raft.snapshots import BATCH_BYTES_MAX, voter_controls
from ottla.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.records.record import Record, build, control_batch
from ottla.wire.errors import ErrorCode, KafkaError

BACKOFF_BASE_S = 0.05
EPOCH_JUMP_MAX = 1_000_000
"""A request from an epoch further ahead than this is refused: epochs end at 2^31, and one stray frame must
not use them all up. A node that was away for so long learns the epoch from those that it asks itself."""
RECORD_OVERHEAD_MAX = 32
"""What a record takes beside its value."""


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
    ) -> None:
        """`endpoint` is where this node takes quorum requests (None on a broker that only observes);
        `bootstrap` is where a node that knows no voters asks first; `wall_ms` only stamps records."""
        self.key = key
        self.id = key.id
        self.journal = journal
        self.timing = timing or Timing()
        self.outbox: list[Send] = []
        self.events: list[Event] = []
        self.role = Role.UNATTACHED
        self._endpoint = endpoint
        self._state_file = state_file
        self._random = random
        self._wall_ms = wall_ms
        self._state = state_file.read()
        if not state_file.exists and self._is_static_and_empty():
            self._state = QuorumState(is_newborn=True)
        self._heard: set[int] = set()  # voters that told a newborn their epoch
        self._caught_up_at: int | None = None  # where it has all that it could have forgotten
        # Kafka numbers servers whose ids are not known yet downwards from -2.
        self._addresses = {-2 - i: where for i, where in enumerate(bootstrap)}
        self._bootstrap = list(self._addresses)
        self._deadline = math.inf  # of the role: election, fetch or resignation timeout
        self._retries = 0  # elections lost since the last sign of a leader
        self._leader_is_gone = False
        self._leaderless: set[int] = set()  # voters that said they know no leader in this epoch
        self._out_of_reach: set[int] = set()  # voters that could not be asked for one
        self._ballot: Ballot | None = None
        self._leadership: Leadership | None = None
        self._successors: tuple[ReplicaKey, ...] = ()
        self._unacknowledged: set[int] = set()  # voters that have not heard of our resignation
        self._asked: dict[int, Send] = {}  # votes, begin and end of epoch under way
        self._ask_not_before: dict[int, float] = {}
        self._fetching: Send | None = None
        self._fetch_not_before = -math.inf
        self._turn = 0  # leads discovery around the voters
        self._puller = Puller(key, journal, self.timing.fetch_wait_ms_max)
        self._announced = LeaderChanged(-1, None)
        self._started = False

    # What others may know

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def state(self) -> QuorumState:
        """Epoch, leader and vote, as they are on disk."""
        return self._state

    @property
    def leader(self) -> int | None:
        """The leader of this epoch as far as known and believed to be there."""
        if self.role in (Role.FOLLOWER, Role.LEADER) and not self._leader_is_gone:
            return self._state.leader
        return None

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        return self.journal.voters.has(self.key)

    @property
    def is_newborn(self) -> bool:
        return self._state.is_newborn

    @property
    def has_vote(self) -> bool:
        """May vote and stand for election."""
        return self.is_voter and not self.is_newborn

    @property
    def high_watermark(self) -> int:
        return self.journal.high_watermark

    @property
    def leadership(self) -> Leadership | None:
        return self._leadership

    @property
    def is_established(self) -> bool:
        """Leads, and a record of its own epoch is committed."""
        leadership = self._leadership
        return leadership is not None and self.high_watermark > leadership.start_offset

    @property
    def all_know_of_resignation(self) -> bool:
        return self.role is not Role.RESIGNED or not self._unacknowledged

    def address(self, peer: int) -> QuorumEndpoint | None:
        """Where to reach a voter, a leader or a bootstrap server."""
        known = self._addresses.get(peer)
        if known is not None:
            return known
        voter = self.journal.voters.get(peer)
        return voter.endpoints[0] if voter is not None and voter.endpoints else None

    # Time

    def start(self, now: float) -> None:
        assert not self._started
        self._started = True
        if self.epoch < self.journal.last_epoch:
            # The file was lost and the log was not.
            self.become_unattached(self.journal.last_epoch, now)
        if self._state.leader == self.id:
            # What we led with may have lost its unflushed tail: never again in this epoch.
            self.role = Role.RESIGNED
            self._unacknowledged = self._other_voters()
            self._deadline = now + self._election_timeout()
        else:
            self._wait_for_leader(now)
        self._drive(now)

    def tick(self, now: float) -> None:
        if self.role is Role.LEADER:
            if now >= self._quorum_deadline():
                self.become_resigned(now)
        elif now >= self._deadline:
            self._deadline_passed(now)
        self._drive(now)

    def next_deadline(self) -> float:
        """When `tick` has something to do, if nothing else happens before."""
        times = [self._quorum_deadline() if self.role is Role.LEADER else self._deadline]
        for peer in self._to_ask():
            if peer not in self._asked:
                times.append(self._ask_time(peer))
        if self._may_fetch():
            times.append(self._fetch_not_before)
        return min(times)

    def _deadline_passed(self, now: float) -> None:
        match self.role:
            case Role.UNATTACHED | Role.FOLLOWER | Role.CANDIDATE if not self.has_vote:
                self._deadline = math.inf
            case Role.UNATTACHED | Role.FOLLOWER | Role.CANDIDATE:
                if self.role is Role.FOLLOWER:
                    self._lose_leader(now)
                self.become_prospective(now)
            case Role.PROSPECTIVE:
                self._pre_vote_lost(now)
            case Role.RESIGNED:
                # A new epoch, so that nobody is told any more that we lead.
                self.become_unattached(self.epoch + 1, now)

    def _election_timeout(self) -> float:
        return self.timing.election_timeout * (1 + self._random.random())

    def _backoff(self) -> float:
        """Grows with every lost election, so that voters with slow links get out of each other's way."""
        limit = min(
            self.timing.election_backoff_max, BACKOFF_BASE_S * 2.0 ** min(self._retries, 10)
        )
        return limit * self._random.random()

    def _early(self, now: float) -> None:
        """Nobody is there to wait for; but after a lost election the others get their turn first."""
        if self.is_voter:
            jitter = self.timing.early_jitter_max * self._random.random()
            wait = jitter if self._retries == 0 else self._backoff()
            self._deadline = min(self._deadline, now + wait)

    def _wait_for_leader(self, now: float) -> None:
        self._deadline = now + self._election_timeout() if self.is_voter else math.inf
        if self.is_voter and self.journal.voters.majority == 1:
            self._deadline = now

    # Roles

    def _enter(self, role: Role, state: QuorumState, now: float) -> None:
        """The one place where a role begins. The state is on disk before anything else changes."""
        assert role in TRANSITIONS[self.role], f"{self.role} to {role}"
        old = self._state
        state = state._replace(is_newborn=old.is_newborn)
        assert state.epoch >= old.epoch, f"{old} to {state} (M2)"
        if state.epoch == old.epoch:
            assert old.voted in (None, state.voted), f"a second vote: {old} to {state} (M1)"
            assert old.leader in (None, state.leader), f"a second leader: {old} to {state} (M1)"
        if state != old:
            self._write(state)
        if self.role is Role.LEADER:
            self.events.append(LostLeadership(old.epoch))
        self._state = state
        self.role = role
        self._asked.clear()
        self._ask_not_before.clear()
        self._ballot = None
        self._leadership = None
        self._unacknowledged = set()
        self._leaderless.clear()
        self._out_of_reach.clear()
        if state.epoch != old.epoch or state.leader != old.leader:
            self._leader_is_gone = False
            self._fetching = None
            self._fetch_not_before = now
        self._puller.abandon_download()

    def _write(self, state: QuorumState) -> None:
        journal = self.journal
        self._state_file.write(
            state, kraft_version=journal.kraft_version, voters=journal.voters.ids
        )

    def become_unattached(self, epoch: int, now: float, *, voted: ReplicaKey | None = None) -> None:
        keep = self._state if epoch == self.epoch else QuorumState(epoch)
        self._enter(Role.UNATTACHED, keep._replace(voted=voted or keep.voted), now)
        self._wait_for_leader(now)

    def become_prospective(self, now: float) -> None:
        assert self.has_vote
        self._enter(Role.PROSPECTIVE, self._state, now)
        self._deadline = now + self._election_timeout()
        self._ballot = Ballot(granted={self.id})
        self._count_votes(now)

    def become_candidate(self, now: float) -> None:
        assert self.has_vote
        self._enter(Role.CANDIDATE, QuorumState(self.epoch + 1, None, self.key), now)
        self._deadline = now + self._election_timeout()
        self._ballot = Ballot(granted={self.id})
        self._count_votes(now)

    def become_follower(self, epoch: int, leader: int, now: float) -> None:
        assert leader != self.id
        keep = self._state if epoch == self.epoch else QuorumState(epoch)
        self._enter(Role.FOLLOWER, keep._replace(leader=leader), now)
        self._deadline = now + self.timing.fetch_timeout if self.is_voter else math.inf

    def become_leader(self, now: float) -> None:
        ballot = self._ballot
        assert ballot is not None and len(ballot.granted) >= self.journal.voters.majority
        assert self._state.voted == self.key
        self._enter(Role.LEADER, self._state._replace(leader=self.id), now)
        self._deadline = math.inf
        self._retries = 0
        journal = self.journal
        self._leadership = Leadership.begin(journal.voters, self.id, journal.log_end, now)
        self.events.append(BecameLeader(self.epoch))
        self._write_first_records(sorted(ballot.granted))

    def become_resigned(self, now: float) -> None:
        """Lay leadership down; the best successors come first in what the others are told."""
        leadership = self._leadership
        assert leadership is not None
        self._enter(Role.RESIGNED, self._state, now)
        self._successors = leadership.successors()
        self._unacknowledged = self._other_voters()
        self._deadline = now + self._election_timeout()

    def _write_first_records(self, granting: Sequence[int]) -> None:
        """The first record of an epoch names its leader; a new quorum's first leader adds the voters, and
        so does one that listens elsewhere than they say."""
        journal = self.journal
        voters = journal.voters
        entries = [leader_change(self.id, voters.ids, granting)]
        mine = voters.get(self.id)
        if self._endpoint is not None and mine is not None and self._endpoint not in mine.endpoints:
            voters = voters.with_endpoints(self.id, (self._endpoint,))
        if journal.kraft_version >= 1 and (
            not journal.voters_are_written or voters != journal.voters
        ):
            entries += voter_controls(journal.kraft_version, voters)
        now_ms = self._wall_ms()
        journal.append_as_leader(control_batch(entries, timestamp=now_ms), self.epoch, now_ms)

    # Learning who leads

    def _learn(
        self,
        epoch: int,
        leader: int | None,
        endpoint: QuorumEndpoint | None,
        now: float,
        *,
        from_leader: bool = False,
    ) -> None:
        """Somebody said that `leader` leads `epoch`."""
        if leader == self.id and (
            epoch != self.epoch or self.role not in (Role.LEADER, Role.RESIGNED)
        ):
            leader = None  # an earlier life of this node, whose disk was replaced since
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
            known = self._state.leader
            if known is not None and known != leader:
                self.events.append(TwoLeaders(epoch, known, leader))
            elif (
                self._state.leader is None
                or self.role is Role.UNATTACHED
                or (from_leader and (self.role is Role.PROSPECTIVE or self._leader_is_gone))
            ):
                self._leader_is_gone = False
                self.become_follower(epoch, leader, now)

    def _other_voters(self) -> set[int]:
        return {voter for voter in self.journal.voters.ids if voter != self.id}

    def peer_disconnected(self, peer: int, now: float) -> None:
        """The connection to a peer closed. If it is the leader's, do not wait for the fetch timeout."""
        if self.role is Role.FOLLOWER and peer == self._state.leader:
            self._lose_leader(now)
            self._drive(now)

    def _lose_leader(self, now: float) -> None:
        if not self._leader_is_gone:
            self._leader_is_gone = True
            self._early(now)

    # Coming of age

    def _is_static_and_empty(self) -> bool:
        journal = self.journal
        return (
            journal.kraft_version == 0
            and self.is_voter
            and bool(self._other_voters())
            and journal.log_end == 0
            and journal.last_epoch == 0
        )

    @property
    def _knows_the_epoch(self) -> bool:
        """Of any majority that its former self was in, a newborn has heard one."""
        voters = self.journal.voters
        return not self.is_newborn or len(self._heard) > len(voters.ids) - voters.majority

    def _newborn_heard(self, peer: int, now: float) -> None:
        """Its epoch, which is ours now if it is newer."""
        self._heard.add(peer)
        if self.epoch == 0 and self._other_voters() <= self._heard:
            self._come_of_age()
            self._early(now)

    def _come_of_age(self) -> None:
        """From here on an ordinary voter."""
        grown = self._state._replace(is_newborn=False)
        self._write(grown)
        self._state = grown
        self.events.append(CameOfAge())

    def _newborn_fetched(self, flushed_end: int, high_watermark: int) -> None:
        """An established leader named its high watermark. The first one counts: what an earlier life of this
        node had acknowledged was below it, and a quorum that commits all the time must not outrun us."""
        if self._caught_up_at is None and high_watermark >= 0:
            self._caught_up_at = high_watermark
        if self._caught_up_at is not None and flushed_end >= self._caught_up_at:
            self._come_of_age()

    # Elections

    def handle_vote(self, request: Vote, now: float) -> VoteAnswer:
        error = self._vote_error(request)
        granted = False
        if error is ErrorCode.NONE:
            if request.epoch > self.epoch:
                self.become_unattached(request.epoch, now)
            granted = self._grants(request)
            if granted and not request.pre_vote and self._state.voted is None:
                self.become_unattached(self.epoch, now, voted=request.candidate)
            elif granted and self.role in (Role.FOLLOWER, Role.UNATTACHED):
                grace = BACKOFF_BASE_S * (1 + self._random.random())
                self._deadline = max(self._deadline, now + grace)  # let it try
        self._drive(now)
        return VoteAnswer(error, self.epoch, self.leader, granted, self._leader_endpoint())

    def _vote_error(self, request: Vote) -> ErrorCode:
        last_possible = request.epoch if request.pre_vote else request.epoch - 1
        if request.candidate.id < 0 or min(request.last) < 0 or request.last.epoch > last_possible:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > self.epoch + EPOCH_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        if not self._is_meant(request.voter):
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        """Whether a request for `voter` is for us. With directory ids about, one without is for nobody:
        it could mean the node whose disk was replaced."""
        if voter is None or voter.id < 0:
            return self.journal.kraft_version == 0
        if voter.directory is None:
            return voter.id == self.id and self.journal.kraft_version == 0
        return voter == self.key

    def _grants(self, request: Vote) -> bool:
        if self.is_newborn:
            return False
        up_to_date = request.last >= self.journal.end
        if not request.pre_vote:
            if self._state.voted is not None:
                return self._state.voted == request.candidate
            return self._state.leader is None and up_to_date
        match self.role:
            case Role.LEADER:
                return False
            case Role.FOLLOWER:
                return self._leader_is_gone and up_to_date
            case Role.PROSPECTIVE | Role.CANDIDATE:
                # Of two that stand at the same moment one gives way, or they would split the votes.
                theirs, ours = (request.last, -request.candidate.id), (self.journal.end, -self.id)
                return theirs > ours
        return up_to_date

    def _vote_answered(self, send: Send, answer: VoteAnswer, now: float) -> None:
        if self._asked.get(send.peer) is not send:
            return
        del self._asked[send.peer]
        ballot = self._ballot
        if ballot is None:
            return  # a newborn only wanted to hear the epoch
        is_granted = answer.error is ErrorCode.NONE and answer.granted
        ballot.unreachable.discard(send.peer)
        (ballot.granted if is_granted else ballot.rejected).add(send.peer)
        self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        ballot = self._ballot
        assert ballot is not None
        voters = self.journal.voters
        if len(ballot.granted) >= voters.majority:
            if self.role is Role.PROSPECTIVE:
                self.become_candidate(now)
            else:
                self.become_leader(now)
            return
        if len(voters.voters) - len(ballot.refused) >= voters.majority or ballot.is_lost:
            return
        ballot.is_lost = True
        if self.role is Role.PROSPECTIVE:
            self._pre_vote_lost(now)
        else:
            self._retries += 1
            self._deadline = min(self._deadline, now + self._backoff())

    def _pre_vote_lost(self, now: float) -> None:
        """Nothing was disturbed: back to the leader we had, or to looking for one."""
        self._retries += 1
        leader = self._state.leader
        if leader is not None and leader != self.id:
            self.become_follower(self.epoch, leader, now)
        else:
            self.become_unattached(self.epoch, now)
        self._deadline = min(self._deadline, now + self._backoff())

    # The leader and its epoch

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpoch, now: float) -> EpochAnswer:
        error = self._epoch_error(request.epoch, request.leader)
        if error is ErrorCode.NONE and not self._is_meant(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE:
            self._learn(request.epoch, request.leader, request.endpoint, now, from_leader=True)
        self._drive(now)
        return self._epoch_answer(error)

    def handle_end_quorum_epoch(self, request: EndQuorumEpoch, now: float) -> EpochAnswer:
        error = self._epoch_error(request.epoch, request.leader)
        if error is ErrorCode.NONE:
            self._learn(request.epoch, request.leader, request.endpoint, now)
            if self.role is Role.FOLLOWER and self._state.leader == request.leader:
                self._lose_leader(now)
                place = next(
                    (i for i, key in enumerate(request.preferred) if self._is_meant(key)),
                    len(request.preferred),
                )
                if place and self.is_voter:  # the first goes at once, the others only if it fails
                    self._retries = max(self._retries, 1)
                    wait = BACKOFF_BASE_S * 2.0 ** min(place, 10) * (1 + self._random.random())
                    self._deadline = now + min(wait, self.timing.fetch_timeout)
        self._drive(now)
        return self._epoch_answer(error)

    def _epoch_error(self, epoch: int, leader: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader < 0 or leader == self.id or epoch > self.epoch + EPOCH_JUMP_MAX:
            return ErrorCode.INVALID_REQUEST
        if epoch == self.epoch and self._state.leader not in (None, leader):
            return (
                ErrorCode.INVALID_REQUEST
            )  # an epoch has one leader: whoever says otherwise is none
        return ErrorCode.NONE

    def _epoch_answer(self, error: ErrorCode) -> EpochAnswer:
        return EpochAnswer(error, self.epoch, self.leader, self._leader_endpoint())

    def _leader_endpoint(self) -> QuorumEndpoint | None:
        leader = self.leader
        if leader is None:
            return None
        return self._endpoint if leader == self.id else self.address(leader)

    def resign(self, now: float) -> None:
        """Before a planned stop: let the others elect at once."""
        if self.role is Role.LEADER:
            self.become_resigned(now)
            self._drive(now)

    def _quorum_deadline(self) -> float:
        """When to give up leading because no majority has fetched for too long."""
        leadership = self._leadership
        assert leadership is not None
        needed = self.journal.voters.majority - (1 if self.is_voter else 0)
        return leadership.quorum_deadline(needed, self.timing.fetch_timeout)

    # Requests under way

    def _to_ask(self) -> list[int]:
        """Voters that we owe a request, apart from fetches."""
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                ballot = self._ballot
                assert ballot is not None
                return sorted(self._other_voters() - ballot.granted - ballot.rejected)
            case Role.LEADER:
                return sorted(self._other_voters())
            case Role.RESIGNED:
                return sorted(self._unacknowledged)
        if self.is_newborn and (self.epoch == 0 or not self._knows_the_epoch):
            return sorted(self._other_voters() - self._heard)
        return []

    def _ask_time(self, peer: int) -> float:
        """A leader reminds voters that know it only when they have not fetched for a while."""
        soonest = self._ask_not_before.get(peer, -math.inf)
        if self._leadership is not None and peer in self._leadership.voters:
            replica = self._leadership.voters[peer]
            if replica.acknowledged:
                return max(soonest, replica.last_fetch + self.timing.fetch_timeout / 2)
        return soonest

    def _request_for(self, peer: int) -> QuorumRequest:
        voter = self.journal.voters.get(peer)
        key = ReplicaKey(peer, None) if voter is None else voter.key
        match self.role:
            case Role.LEADER:
                return BeginQuorumEpoch(self.epoch, self.id, key, self._endpoint)
            case Role.RESIGNED:
                return EndQuorumEpoch(self.epoch, self.id, self._successors, self._endpoint)
            case _:  # of a newborn's question only the epoch in the answer counts
                pre_vote = self.role is not Role.CANDIDATE
                return Vote(self.epoch, self.key, key, self.journal.end, pre_vote)

    def _drive(self, now: float) -> None:
        """Send everything that is due, say who leads. Every input ends here."""
        for peer in self._to_ask():
            if peer not in self._asked and now >= self._ask_time(peer):
                self._asked[peer] = send = Send(peer, self._request_for(peer))
                self.outbox.append(send)
        if self._may_fetch() and now >= self._fetch_not_before:
            self._fetch()
        if (self.epoch, self.leader) != self._announced:
            self._announced = LeaderChanged(self.epoch, self.leader)
            self.events.append(self._announced)

    def answered(self, send: Send, answer: QuorumAnswer, now: float) -> None:
        from_leader = answer.leader == send.peer
        self._learn(answer.epoch, answer.leader, answer.endpoint, now, from_leader=from_leader)
        if self.is_newborn and send.peer in self._other_voters():
            self._newborn_heard(send.peer, now)
        match answer:
            case VoteAnswer():
                self._vote_answered(send, answer, now)
            case EpochAnswer():
                self._epoch_answered(send, answer, now)
            case FetchAnswer() | FetchSnapshotAnswer():
                self._fetch_answered(send, answer, now)
        self._drive(now)

    def _epoch_answered(self, send: Send, answer: EpochAnswer, now: float) -> None:
        if self._asked.get(send.peer) is not send:
            return
        del self._asked[send.peer]
        if self._leadership is not None:
            replica = self._leadership.voters.get(send.peer)
            if replica is not None:
                replica.acknowledged = answer.error is ErrorCode.NONE
            self._ask_not_before[send.peer] = now + self.timing.fetch_timeout / 2
        elif self.role is Role.RESIGNED:
            self._unacknowledged.discard(send.peer)

    def request_failed(self, send: Send, now: float) -> None:
        """No connection, no answer in time, or one that makes no sense."""
        if send is self._fetching:
            self._fetching = None
            self._fetch_not_before = now + self.timing.retry_backoff
            if self.role is Role.FOLLOWER and send.peer == self._state.leader:
                self._lose_leader(now)
            self._found_no_leader(send.peer, self._out_of_reach, now)
        elif self._asked.get(send.peer) is send:
            del self._asked[send.peer]
            self._ask_not_before[send.peer] = now + self.timing.retry_backoff
            if self._ballot is not None:
                self._ballot.unreachable.add(send.peer)
                self._count_votes(now)
        self._drive(now)

    # Replication: the leader's side

    def append(self, values: Sequence[bytes], now: float) -> tuple[int, int]:
        """Write metadata records as one atomic batch. Their first offset, and the log's end after them."""
        if self.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.id} does not lead the quorum")
        if sum(len(value) + RECORD_OVERHEAD_MAX for value in values) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(values)} records in one batch of metadata are more than {BATCH_BYTES_MAX} bytes",
            )
        now_ms = self._wall_ms()
        batch = build(Record(i, now_ms, None, value) for i, value in enumerate(values))
        base = self.journal.append_as_leader(batch, self.epoch, now_ms)
        return base, self.journal.log_end

    def flushed(self, end_offset: int, now: float) -> None:
        """What `journal.flush_plan()` returned when it had run."""
        self.journal.flushed(end_offset)
        if self.role is Role.LEADER:
            self._update_high_watermark()
        self._drive(now)

    def _update_high_watermark(self) -> None:
        """Committed is what a majority has flushed, once that includes a record of this epoch (M4)."""
        leadership = self._leadership
        assert leadership is not None
        own_end = self.journal.flushed_end if self.is_voter else None
        on_majority = leadership.end_on_majority(self.journal.voters.majority, own_end)
        if on_majority > leadership.start_offset:
            self._advance_high_watermark(on_majority)

    def _advance_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        self.journal.log.advance_high_watermark(offset)
        if self.high_watermark > before:
            self.events.append(HighWatermarkAdvanced(self.high_watermark))

    def handle_fetch(self, request: Fetch, now: float) -> FetchAnswer | Park:
        """May be asked again with the same request while it is parked."""
        error = self._fetch_error(request)
        if error is not ErrorCode.NONE:
            return FetchAnswer(error, self.epoch, self.leader, endpoint=self._leader_endpoint())
        agreement = self.journal.agreement(request.offset, request.last_epoch)
        self._note_fetch(request.replica, request.offset if agreement is None else None, now)
        leads = FetchAnswer(
            ErrorCode.NONE,
            self.epoch,
            self.id,
            self.high_watermark if self.is_established else -1,
            self.journal.log_start,
            endpoint=self._endpoint,
        )
        return serve_fetch(self.journal, request, agreement, leads, now)

    def _fetch_error(self, request: Fetch) -> ErrorCode:
        if (
            request.wait_ms_max < 0
            or request.offset < 0
            or request.last_epoch < 0
            or request.last_epoch > request.epoch
        ):
            return ErrorCode.INVALID_REQUEST
        return self._leader_error(request.epoch)

    def _leader_error(self, epoch: int) -> ErrorCode:
        """Why a request for the leader of `epoch` is not for us."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _note_fetch(self, key: ReplicaKey, offset: int | None, now: float) -> None:
        leadership = self._leadership
        assert leadership is not None
        if leadership.fetched(key, offset, self.journal.log_end, now):
            self._update_high_watermark()

    def handle_fetch_snapshot(self, request: FetchSnapshot, now: float) -> FetchSnapshotAnswer:
        error = self._leader_error(request.epoch)
        answer = FetchSnapshotAnswer(
            error,
            self.epoch,
            self.leader,
            request.snapshot_id,
            endpoint=self._leader_endpoint(),
        )
        if error is not ErrorCode.NONE:
            return answer
        self._note_fetch(request.replica, None, now)
        return serve_snapshot(self.journal, request, answer)

    # Replication: the follower's side

    def _may_fetch(self) -> bool:
        """Only with everything flushed: the leader takes our offset for what a power loss leaves."""
        return (
            self.role in (Role.UNATTACHED, Role.FOLLOWER)
            and self._knows_the_epoch
            and self._fetching is None
            and not self.journal.needs_flush
            and (self.leader is not None or bool(self._discovery()))
        )

    def _discovery(self) -> list[int]:
        """Whom to ask who leads."""
        voters = sorted(self._other_voters())
        return voters if self.is_voter else voters + self._bootstrap

    def _fetch(self) -> None:
        peer = self.leader
        if peer is None:
            others = self._discovery()
            self._turn += 1
            peer = others[self._turn % len(others)]
            self._puller.abandon_download()
        self._fetching = Send(peer, self._puller.request(self.epoch))
        self.outbox.append(self._fetching)

    def _fetch_answered(
        self, send: Send, answer: FetchAnswer | FetchSnapshotAnswer, now: float
    ) -> None:
        if not self._takes_answer(send, answer.error, answer.epoch, answer.leader, now):
            return
        if isinstance(answer, FetchSnapshotAnswer):
            events = self._puller.take_piece(answer)
        else:
            events = self._puller.take(answer)
            if answer.diverging is None and answer.snapshot_id is None:  # our log agrees with its
                self._advance_high_watermark(answer.high_watermark)
                if self.is_newborn and isinstance(send.request, Fetch):
                    self._newborn_fetched(send.request.offset, answer.high_watermark)
        self.events += events
        if any(isinstance(event, BadRecords) for event in events):
            self._fetch_not_before = now + self.timing.retry_backoff

    def _takes_answer(
        self, send: Send, error: ErrorCode, epoch: int, leader: int | None, now: float
    ) -> bool:
        """Whether this answers the fetch under way and comes from our leader."""
        if send is not self._fetching:
            return False
        self._fetching = None
        if (
            error is ErrorCode.NONE
            and self.role is Role.FOLLOWER
            and (epoch, leader) == (self.epoch, self._state.leader)
        ):
            self._leader_is_gone = False
            self._retries = 0
            if self.is_voter:
                self._deadline = now + self.timing.fetch_timeout
            return True
        self._puller.abandon_download()
        if self.leader is None or send.peer == self.leader:
            self._fetch_not_before = now + self.timing.retry_backoff
        if leader is None and epoch == self.epoch:
            self._found_no_leader(send.peer, self._leaderless, now)
        return False

    def _found_no_leader(self, peer: int, reason: set[int], now: float) -> None:
        """Discovery asks every voter once without pause. If then a majority says that there is no leader,
        and nobody who could be reached says otherwise, there is none to wait for."""
        if self.role is not Role.UNATTACHED or not self.is_voter:
            return
        reason.add(peer)
        if not self._other_voters() <= self._leaderless | self._out_of_reach:
            self._fetch_not_before = now
        elif len(self._leaderless) + 1 >= self.journal.voters.majority:
            self._early(now)

    def stop(self) -> None:
        """Let go of the files."""
        self._puller.abandon_download()
        self.journal.close()

    def invariants(self) -> None:
        """Cheap enough to hold after every input."""
        self.journal.log.invariants()
        assert (self.role is Role.LEADER) == (self._leadership is not None)
        assert (self.role in (Role.PROSPECTIVE, Role.CANDIDATE)) == (self._ballot is not None)
        if self.role is Role.LEADER:
            assert self._state.leader == self.id and self._state.voted == self.key
        if not self.has_vote:
            assert self.role not in (Role.PROSPECTIVE, Role.CANDIDATE)
