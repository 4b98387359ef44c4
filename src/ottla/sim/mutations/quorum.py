"""Bugs of the metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.cluster.image_publisher import notify
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.events.quorum import VoteReason
from ottla.raft import election
from ottla.raft.election import VoteDecision
from ottla.raft.election_state import ElectionState, QuorumStateFile, encode_state
from ottla.raft.follower import MetadataFetcher
from ottla.raft.journal import Diverges, Journal
from ottla.raft.kraft_version_upgrade import KRaftVersionUpgrade
from ottla.raft.messages import Vote
from ottla.raft.quorum_state import QuorumState
from ottla.raft.replication import LeaderState, advance_high_watermark
from ottla.raft.roles import RaftRole
from ottla.raft.voter_changes import VoterChanges
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import VOTERS


@mutation("KAFKA-12460")
def raft_truncates_below_its_high_watermark() -> list[Patch]:
    """A voter truncates its log where the diverging epoch begins instead of where it ends, and no check protects
    committed records."""
    truncation_point, truncate_to = Journal.truncation_point, Journal.truncate_to

    def too_low(self: Journal, diverges: Diverges) -> int:
        point = truncation_point(self, diverges)
        starts = [start for _, start in self.log.epochs.entries if self.log_start <= start < point]
        return starts[-1] if starts else point

    def unguarded(self: Journal, offset: int) -> None:
        self.log.high_watermark = min(self.log.high_watermark, offset)
        truncate_to(self, offset)

    return [Patch(Journal, "truncation_point", too_low), Patch(Journal, "truncate_to", unguarded)]


@mutation("own")
def vote_is_not_durable() -> list[Patch]:
    """Epoch and vote are sent before they would survive a power loss."""

    def write(
        self: QuorumStateFile, state: ElectionState, *, kraft_version: int, voters: Sequence[int]
    ) -> None:
        data = encode_state(state, kraft_version=kraft_version, voters=voters)
        self._disk.replace(self.path, data, durable=False)

    return [Patch(QuorumStateFile, "write", write)]


@mutation("own")
def votes_twice_in_an_epoch() -> list[Patch]:
    """A voter does not check whether it has already voted in this epoch."""
    original = election.decide_vote

    def decide_vote(request: Vote, voter: QuorumState) -> VoteDecision:
        if request.pre_vote:
            return original(request, voter)
        is_granted = (
            voter.state.leader is None and request.last_position >= voter.journal.end_position
        )
        return VoteDecision(is_granted, VoteReason.UP_TO_DATE)

    return [Patch(election, "decide_vote", decide_vote)]


@mutation("own")
def votes_for_a_shorter_log() -> list[Patch]:
    """A voter does not compare the candidate's log with its own: the candidate may lack committed records."""
    original = election.decide_vote

    def decide_vote(request: Vote, voter: QuorumState) -> VoteDecision:
        return original(
            request._replace(last_position=max(request.last_position, voter.journal.end_position)),
            voter,
        )

    return [Patch(election, "decide_vote", decide_vote)]


@mutation("own (Raft §5.4.2)")
def commits_records_of_earlier_epochs() -> list[Patch]:
    """The high watermark passes records of an earlier epoch once a majority has them, before a record of the leader's
    own epoch is committed."""

    def update_high_watermark(self: LeaderState) -> None:
        advance_high_watermark(self._journal, self._outputs, self.end_on_majority())

    return [Patch(LeaderState, "update_high_watermark", update_high_watermark)]


@mutation("own")
def fetches_before_it_has_flushed() -> list[Patch]:
    """A voter's next fetch, which acknowledges its last records to the leader, is sent before they are on disk."""

    def may_fetch(self: MetadataFetcher) -> bool:
        quorum = self._quorum
        return (
            quorum.role in (RaftRole.UNATTACHED, RaftRole.FOLLOWER)
            and self.under_way is None
            and (quorum.leader is not None or bool(self.discovery()))
        )

    return [Patch(MetadataFetcher, "may_fetch", may_fetch)]


@mutation("own")
def metadata_counts_as_flushed_too_soon() -> list[Patch]:
    """Records appended to the metadata log during a flush count as flushed by it: the recovery point is too high, and
    so is what the node acknowledges to its leader, or commits."""
    original = Journal.flushed

    def flushed(self: Journal, end_offset: int) -> None:
        original(self, self.log_end)

    return [Patch(Journal, "flushed", flushed)]


@mutation("own")
def controller_is_active_at_once() -> list[Patch]:
    """A new controller decides before a record of its own epoch is committed, on metadata that may be
    outdated."""

    def begin_leadership(self: RaftDriver) -> None:
        if self._raft.leader_state is not None and self._active_epoch is None:
            self._active_epoch = self.epoch
            notify(self.on_leadership, True, self.epoch)

    return [Patch(RaftDriver, "_begin_leadership", begin_leadership)]


# Voters that change


@mutation("own (KIP-853)", likely=VOTERS)
def voters_change_while_a_change_is_uncommitted() -> list[Patch]:
    """A leader begins a change of the voters before the one before it is committed: a set may differ from a committed one
    by two voters."""

    def not_now(self: VoterChanges) -> None:
        return None

    return [Patch(VoterChanges, "_not_now", not_now)]


@mutation("own (KIP-853)", likely=VOTERS)
def voters_count_when_they_are_committed() -> list[Patch]:
    """A set of voters counts only when it is committed, not as soon as it is in the log: leader and followers disagree about
    who is a majority."""

    def voters(self: Journal) -> VoterSet:
        return self.electorate_at(max(self.high_watermark, 1))[1]

    return [Patch(Journal, "voters", property(voters))]


@mutation("own (KIP-853)", likely=VOTERS)
def truncated_voters_still_count() -> list[Patch]:
    """A voter that truncates a change of the voters goes on with the set that it truncated."""

    def truncate_to(self: Journal, offset: int) -> None:
        self.log.truncate_to(offset)

    return [Patch(Journal, "truncate_to", truncate_to)]


@mutation("own (KIP-853)", likely=VOTERS)
def directories_of_voters_are_not_compared() -> list[Patch]:
    """A node whose disk was replaced counts as the voter that it was: it acknowledges, and votes, without what it had."""

    def is_replica(self: Voter, key: ReplicaKey) -> bool:
        return self.id == key.id

    def fetched(self: LeaderState, key: ReplicaKey, offset: int | None, now: float) -> None:
        voter = self.voters.get(key.id)
        original(self, key if voter is None else voter.key, offset, now)

    def is_meant(self: QuorumState, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.id in (-1, self.id)

    original = LeaderState._fetched
    return [
        Patch(Voter, "is_replica", is_replica),
        Patch(LeaderState, "_fetched", fetched),
        Patch(QuorumState, "is_meant", is_meant),
    ]


@mutation("own (KIP-853)", likely=VOTERS)
def removed_leader_counts_itself() -> list[Patch]:
    """A leader that is removed counts itself among those that have a record, until it resigns."""

    def end_on_majority(self: LeaderState) -> int:
        ends = [-1 if r.end_offset is None else r.end_offset for r in self.voters.values()]
        ends.append(self._journal.flushed_end)
        return sorted(ends, reverse=True)[self._journal.voters.majority - 1]

    return [Patch(LeaderState, "end_on_majority", end_on_majority)]


@mutation("own (KIP-853)", likely=VOTERS)
def added_voters_are_not_counted_by_their_leader() -> list[Patch]:
    """A leader that adds a voter goes on counting the voters that it began its epoch with."""

    def append_voters(self: LeaderState, voters: VoterSet, now: float) -> int:
        counted, observers = dict(self.voters), dict(self.observers)
        offset = original(self, voters, now)
        self.voters, self.observers = counted, observers
        return offset

    original = LeaderState.append_voters
    return [Patch(LeaderState, "append_voters", append_voters)]


@mutation("own (KIP-853)", likely=VOTERS)
def an_upgrade_leaves_out_silent_voters() -> list[Patch]:
    """Static voters that have not said which disk they have are not among the voters that an upgrade writes: fewer are a
    majority than before."""

    def check(self: KRaftVersionUpgrade, version: int) -> None:
        self._voters = VoterSet(tuple(v for v in self._voters.voters if v.directory is not None))

    return [Patch(KRaftVersionUpgrade, "check", check)]
