"""The follower's side of replication: when to fetch and from whom (`MetadataFetcher`), what to ask for next and what to
do with the answer (`Puller`).

Records are appended as they come. A tail that the leader does not have is cut. Where the leader's log no longer reaches
back far enough, a checkpoint is downloaded instead.
"""

from __future__ import annotations

import math

from ottla.events.quorum import MetadataRefused, MetadataTruncated, SnapshotInstalled
from ottla.raft.journal import Diverges, Journal
from ottla.raft.messages import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumRequest,
)
from ottla.raft.outputs import Outputs, Send
from ottla.raft.quorum_state import QuorumState
from ottla.raft.replication import FETCH_BYTES_MAX, advance_high_watermark
from ottla.raft.roles import RaftRole
from ottla.raft.snapshots import CorruptSnapshot, Download
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import read_batch
from ottla.runtime.seams import Chunk, FileRange
from ottla.wire.errors import ErrorCode, KafkaError


class Puller:
    """A follower's copy of the leader's log."""

    def __init__(
        self, key: ReplicaKey, journal: Journal, wait_ms_max: int, outputs: Outputs
    ) -> None:
        self._key = key
        self._journal = journal
        self._wait_ms_max = wait_ms_max
        self._outputs = outputs
        self._download: Download | None = None

    @property
    def is_downloading(self) -> bool:
        return self._download is not None

    def request(self, epoch: int) -> QuorumRequest:
        download, journal = self._download, self._journal
        if download is not None:
            return FetchSnapshot(self._key, epoch, download.id, download.position, FETCH_BYTES_MAX)
        known = journal.high_watermark
        return Fetch(
            self._key,
            epoch,
            journal.log_end,
            journal.last_epoch,
            known if known > journal.log_start else -1,
            self._wait_ms_max,
            FETCH_BYTES_MAX,
        )

    def take(self, answer: FetchAnswer) -> bool:
        """What the leader answered without error, except for the high watermark. False: it was not usable."""
        if answer.diverging is not None:
            self._truncate(Diverges(*answer.diverging))
        elif answer.snapshot_id is not None:
            self.abandon_download()
            self._download = Download(self._journal.snapshots, answer.snapshot_id)
        elif answer.records is not None:
            return self._append(answer.records, answer.epoch)
        return True

    def _truncate(self, diverges: Diverges) -> None:
        journal = self._journal
        before = journal.log_end
        journal.truncate_to(journal.truncation_point(diverges))
        if journal.log_end < before:
            self._outputs.emit(MetadataTruncated(before, journal.log_end))

    def _append(self, records: Chunk, epoch: int) -> bool:
        """Damaged records are not taken: nothing of them is written, and they are asked for again."""
        assert not isinstance(records, FileRange)
        view = memoryview(records)
        try:
            if read_batch(view, 0).base_offset != self._journal.log_end:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "records from elsewhere in the log")
            self._journal.append_as_follower(view, epoch)
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            return self._refuse(str(error))
        return True

    def take_piece(self, answer: FetchSnapshotAnswer) -> bool:
        """The next piece of the checkpoint that is being downloaded. With the last one it is installed."""
        download = self._download
        if download is None:
            return True
        is_next = (answer.snapshot_id, answer.position) == (download.id, download.position)
        if not is_next or not answer.data:
            self.abandon_download()
            return self._refuse(f"not the next piece of {download.id}")
        download.add(answer.data)
        if download.position < answer.size:
            return True
        self._download = None
        try:
            self._journal.install(download)
        except CorruptSnapshot as error:
            return self._refuse(str(error))
        self._outputs.emit(SnapshotInstalled(download.id.end_offset, download.id.epoch))
        return True

    def _refuse(self, why: str) -> bool:
        self._outputs.emit(MetadataRefused(why))
        return False

    def abandon_download(self) -> None:
        if self._download is not None:
            self._download.abandon()
            self._download = None


class MetadataFetcher:
    """The fetch that is under way. Without a leader it goes to one voter after the other, to find out who leads."""

    def __init__(self, quorum: QuorumState, outputs: Outputs) -> None:
        self.under_way: Send | None = None
        self.not_before = -math.inf
        self.first_high_watermark: int | None = None
        """The first that an established leader named since this node started."""
        self.puller = Puller(quorum.key, quorum.journal, quorum.timing.fetch_wait_ms_max, outputs)
        self._quorum = quorum
        self._outputs = outputs
        self._turn = 0
        """Leads discovery around the voters."""
        self._leaderless: set[int] = set()
        """Voters that know no leader in this epoch."""
        self._out_of_reach: set[int] = set()
        """Voters that could not be asked for one."""

    def role_began(self, is_another_leader: bool, now: float) -> None:
        self._leaderless.clear()
        self._out_of_reach.clear()
        if is_another_leader:
            self.under_way = None
            self.not_before = now
        self.puller.abandon_download()

    def may_fetch(self) -> bool:
        """Only with everything flushed: the leader takes our offset for what a power loss leaves (M4)."""
        quorum = self._quorum
        return (
            quorum.role in (RaftRole.UNATTACHED, RaftRole.FOLLOWER)
            and quorum.knows_the_epoch
            and self.under_way is None
            and not quorum.journal.needs_flush
            and (quorum.leader is not None or bool(self.discovery()))
        )

    def discovery(self) -> list[int]:
        """Whom to ask who leads."""
        voters = sorted(self._quorum.other_voters())
        return voters if self._quorum.is_voter else voters + self._quorum.bootstrap

    def fetch(self) -> None:
        peer = self._quorum.leader
        if peer is None:
            others = self.discovery()
            self._turn += 1
            peer = others[self._turn % len(others)]
            self.puller.abandon_download()
        self.under_way = Send(peer, self.puller.request(self._quorum.epoch))
        self._outputs.outbox.append(self.under_way)

    def answered(self, send: Send, answer: FetchAnswer | FetchSnapshotAnswer, now: float) -> None:
        if send is not self.under_way:
            return
        self.under_way = None
        if not self._is_from_leader(answer):
            self._answered_by_another(send.peer, answer, now)
            return
        quorum = self._quorum
        quorum.fetched_from_leader(now)
        if isinstance(answer, FetchSnapshotAnswer):
            is_good = self.puller.take_piece(answer)
        else:
            is_good = self.puller.take(answer)
            if answer.diverging is None and answer.snapshot_id is None:  # our log agrees with its
                advance_high_watermark(quorum.journal, self._outputs, answer.high_watermark)
                if self.first_high_watermark is None and answer.high_watermark >= 0:
                    self.first_high_watermark = answer.high_watermark
                newborn = quorum.newborn
                if (
                    newborn is not None
                    and isinstance(send.request, Fetch)
                    and newborn.has_caught_up(send.request.offset, answer.high_watermark)
                ):
                    quorum.come_of_age()
        if not is_good:
            self.not_before = now + quorum.timing.retry_backoff

    def _is_from_leader(self, answer: FetchAnswer | FetchSnapshotAnswer) -> bool:
        quorum = self._quorum
        return (
            answer.error is ErrorCode.NONE
            and quorum.role is RaftRole.FOLLOWER
            and (answer.epoch, answer.leader) == (quorum.epoch, quorum.state.leader)
        )

    def _answered_by_another(
        self, peer: int, answer: FetchAnswer | FetchSnapshotAnswer, now: float
    ) -> None:
        quorum = self._quorum
        self.puller.abandon_download()
        if quorum.leader is None or peer == quorum.leader:
            self.not_before = now + quorum.timing.retry_backoff
        if answer.leader is None and answer.epoch == quorum.epoch:
            self._found_no_leader(peer, self._leaderless, now)

    def failed(self, peer: int, now: float) -> None:
        """The fetch under way has no answer."""
        quorum = self._quorum
        self.under_way = None
        self.not_before = now + quorum.timing.retry_backoff
        if quorum.role is RaftRole.FOLLOWER and peer == quorum.state.leader:
            quorum.lose_leader(now)
        self._found_no_leader(peer, self._out_of_reach, now)

    def _found_no_leader(self, peer: int, reason: set[int], now: float) -> None:
        """Discovery asks every voter once without pause. If then a majority knows no leader, and no voter that could be
        reached knows one, there is none to wait for."""
        quorum = self._quorum
        if quorum.role is not RaftRole.UNATTACHED or not quorum.is_voter:
            return
        reason.add(peer)
        if not quorum.other_voters() <= self._leaderless | self._out_of_reach:
            self.not_before = now
        elif len(self._leaderless) + 1 >= quorum.journal.voters.majority:
            quorum.stand_early(now)
