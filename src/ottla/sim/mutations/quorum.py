"""Bugs of the metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.cluster.raft_driver import Quorum
from ottla.raft.journal import Diverges, Journal
from ottla.raft.messages import Vote
from ottla.raft.quorum_state import QuorumState, QuorumStateFile, encode_state
from ottla.raft.raft import Raft
from ottla.raft.roles import Role
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation


@mutation("KAFKA-12460")
def raft_truncates_below_its_high_watermark() -> list[Patch]:
    """A voter cuts its log where the diverging epoch begins instead of where it ends, and nothing keeps it
    from dropping what is committed."""
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
    """Epoch and vote are answered before they would survive a power loss."""

    def write(
        self: QuorumStateFile, state: QuorumState, *, kraft_version: int, voters: Sequence[int]
    ) -> None:
        data = encode_state(state, kraft_version=kraft_version, voters=voters)
        self._disk.replace(self.path, data, durable=False)

    return [Patch(QuorumStateFile, "write", write)]


@mutation("own")
def votes_twice_in_an_epoch() -> list[Patch]:
    """A voter forgets that its vote in this epoch is given."""
    original = Raft._grants

    def grants(self: Raft, request: Vote) -> bool:
        if request.pre_vote:
            return original(self, request)
        return self._state.leader is None and request.last >= self.journal.end

    return [Patch(Raft, "_grants", grants)]


@mutation("own")
def votes_for_a_shorter_log() -> list[Patch]:
    """A candidate's log is not compared with the voter's: it may lack what is committed."""
    original = Raft._grants

    def grants(self: Raft, request: Vote) -> bool:
        return original(self, request._replace(last=max(request.last, self.journal.end)))

    return [Patch(Raft, "_grants", grants)]


@mutation("own (Raft §5.4.2)")
def commits_records_of_earlier_epochs() -> list[Patch]:
    """The high watermark passes records of an earlier epoch once they are on a majority, before one of the
    leader's own is."""

    def update_high_watermark(self: Raft) -> None:
        leadership = self._leadership
        assert leadership is not None
        own_end = self.journal.flushed_end if self.is_voter else None
        on_majority = leadership.end_on_majority(self.journal.voters.majority, own_end)
        self._advance_high_watermark(on_majority)

    return [Patch(Raft, "_update_high_watermark", update_high_watermark)]


@mutation("own")
def fetches_before_it_has_flushed() -> list[Patch]:
    """A voter's next fetch, by which the leader counts it, leaves before the last records are on disk."""

    def may_fetch(self: Raft) -> bool:
        return (
            self.role in (Role.UNATTACHED, Role.FOLLOWER)
            and self._fetching is None
            and (self.leader is not None or bool(self._discovery()))
        )

    return [Patch(Raft, "_may_fetch", may_fetch)]


@mutation("own")
def metadata_counts_as_flushed_too_soon() -> list[Patch]:
    """What was appended to the metadata log while a flush was under way counts as flushed by it: the recovery point
    runs ahead, and with it what the node tells its leader, or commits."""
    original = Journal.flushed

    def flushed(self: Journal, end_offset: int) -> None:
        original(self, self.log_end)

    return [Patch(Journal, "flushed", flushed)]


@mutation("own")
def controller_is_active_at_once() -> list[Patch]:
    """A new controller decides before a record of its own epoch is committed, on metadata that may be
    old."""

    def begin_leadership(self: Quorum) -> None:
        if self._raft.leadership is not None and self._active_epoch is None:
            self._active_epoch = self.epoch
            self._tell(self.on_leadership, True, self.epoch)

    return [Patch(Quorum, "_begin_leadership", begin_leadership)]
