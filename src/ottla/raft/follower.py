"""A follower's copy of the leader's log: what it asks for next, and what it does with the answer.

Records are appended as they come, a tail that the leader does not have is cut, and where the leader's log
no longer reaches back far enough a checkpoint is downloaded instead. When to ask, and whom, is Raft's.
"""

from __future__ import annotations

from ottla.raft.journal import Diverges, Journal
from ottla.raft.messages import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumRequest,
)
from ottla.raft.roles import BadRecords, Event, SnapshotInstalled, Truncated
from ottla.raft.serving import FETCH_BYTES_MAX
from ottla.raft.snapshots import CorruptSnapshot, Download
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import read_batch
from ottla.runtime.seams import Chunk, FileRange
from ottla.wire.errors import ErrorCode, KafkaError


class Puller:
    def __init__(self, key: ReplicaKey, journal: Journal, wait_ms_max: int) -> None:
        self._key = key
        self._journal = journal
        self._wait_ms_max = wait_ms_max
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

    def take(self, answer: FetchAnswer) -> list[Event]:
        """What the leader answered without error, except for the high watermark."""
        if answer.diverging is not None:
            return self._truncate(Diverges(*answer.diverging))
        if answer.snapshot_id is not None:
            self.abandon_download()
            self._download = Download(self._journal.snapshots, answer.snapshot_id)
        elif answer.records is not None:
            return self._append(answer.records, answer.epoch)
        return []

    def _truncate(self, diverges: Diverges) -> list[Event]:
        journal = self._journal
        before = journal.log_end
        journal.truncate_to(journal.truncation_point(diverges))
        return [Truncated(before, journal.log_end)] if journal.log_end < before else []

    def _append(self, records: Chunk, epoch: int) -> list[Event]:
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
            return [BadRecords(str(error))]
        return []

    def take_piece(self, answer: FetchSnapshotAnswer) -> list[Event]:
        """The next piece of the checkpoint that is being downloaded; with the last one it is installed."""
        download = self._download
        if download is None:
            return []
        is_next = (answer.snapshot_id, answer.position) == (download.id, download.position)
        if not is_next or not answer.data:
            self.abandon_download()
            return [BadRecords(f"not the next piece of {download.id}")]
        download.add(answer.data)
        if download.position < answer.size:
            return []
        self._download = None
        try:
            self._journal.install(download)
        except CorruptSnapshot as error:
            return [BadRecords(str(error))]
        return [SnapshotInstalled(download.id)]

    def abandon_download(self) -> None:
        if self._download is not None:
            self._download.abandon()
            self._download = None
