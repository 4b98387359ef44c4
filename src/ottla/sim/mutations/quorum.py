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
from ottla.raft.messages import Vote
from ottla.raft.quorum_state import QuorumState
from ottla.raft.replication import LeaderState, advance_high_watermark
from ottla.raft.roles import RaftRole
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation


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
