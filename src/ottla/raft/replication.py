"""The leader's side of replication: append, count what a majority has, and serve the fetches of the others.

A `LeaderState` (Kafka's LeaderState) exists exactly while its node leads an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from ottla.events.quorum import MetadataCommitted
from ottla.raft.control_records import encode_control, leader_change
from ottla.raft.journal import Agreement, Diverges, Journal
from ottla.raft.messages import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LogPosition,
    Park,
)
from ottla.raft.outputs import Outputs
from ottla.raft.snapshots import BATCH_BYTES_MAX, BOOTSTRAP, voter_controls
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, VoterSet
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.wire.errors import ErrorCode, KafkaError

CHECK_QUORUM_FACTOR = 1.5
FETCH_BYTES_MAX = 1 << 20
OBSERVER_FORGOTTEN_S = 300.0
OBSERVERS_MAX = 10_000
"""Any node may fetch, and is remembered as an observer."""
RECORD_OVERHEAD_MAX = 32
"""What a record takes beside its value."""


@dataclass(slots=True)
class ReplicaProgress:
    """What a leader knows of another replica."""

    key: ReplicaKey
    end_offset: int | None = None
    """Where its flushed log ends; None before its first fetch in this epoch."""
    last_fetch: float = -math.inf
    last_caught_up: float = -math.inf
    leader_end_then: int = 0
    acknowledged: bool = False
    """Knows that we lead."""
    directory: UUID | None = None
    """Of the disk that it last fetched with. The key of a static voter has none."""

    @property
    def known_key(self) -> ReplicaKey:
        return ReplicaKey(self.key.id, self.key.directory or self.directory)


def size_max(value: bytes) -> int:
    """What a record with this value takes of a batch, at most."""
    return len(value) + RECORD_OVERHEAD_MAX


def in_batches(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As few groups as there must be for each to fit into a batch. One that fits into none is alone."""
    begin = size = 0
    for number, value in enumerate(values):
        size += size_max(value)
        if size > BATCH_BYTES_MAX and number > begin:
            yield values[begin:number]
            begin, size = number, size_max(value)
    yield values[begin:]


class LeaderState:
    def __init__(
        self,
        key: ReplicaKey,
        epoch: int,
        endpoint: QuorumEndpoint | None,
        journal: Journal,
        wall_ms: Callable[[], int],
        outputs: Outputs,
        now: float,
    ) -> None:
        self.epoch = epoch
        self.start_offset = journal.log_end
        """The offset of the first record of this epoch. The high watermark does not move until it can pass this record."""
        self.voters: dict[int, ReplicaProgress] = {}
        """Without ourselves."""
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._key = key
        self._endpoint = endpoint
        self._journal = journal
        self._wall_ms = wall_ms
        self._outputs = outputs
        self._count_voters(now)

    @property
    def _is_voter(self) -> bool:
        return self._journal.voters.has(self._key)

    @property
    def is_removed(self) -> bool:
        """This leader is no voter any more, and that is committed: it has to resign. Until then it leads without counting
        itself, because somebody has to commit its removal."""
        return not self._is_voter and self._journal.voters_are_committed

    def _count_voters(self, now: float) -> None:
        """The voters at the end of the log are those that count, whether they are committed or not. What is known of a
        replica stays known when it becomes a voter, or is one no longer."""
        before, self.voters = self.voters, {}
        for voter in self._journal.voters.voters:
            if voter.id == self._key.id:
                continue
            replica = before.get(voter.id)
            if replica is not None and replica.known_key.directory in (None, voter.directory):
                del before[voter.id]
            else:
                replica = self.observers.pop(voter.key, None)
            if replica is None:
                replica = ReplicaProgress(voter.key)
            replica.key = voter.key
            # As if it had fetched just now: each has the whole timeout for its first fetch.
            replica.last_fetch = max(replica.last_fetch, now)
            self.voters[voter.id] = replica
        for removed in before.values():
            removed.key = removed.known_key
            self.observers[removed.key] = removed

    # Writing

    def write_first_records(self, granting: Sequence[int]) -> None:
        """The first record of an epoch names its leader. The voters follow if they are not in the log yet, or if the
        leader listens at another address than they say."""
        journal = self._journal
        voters = journal.voters
        entries = [leader_change(self._key.id, voters.ids, granting)]
        mine = voters.get(self._key.id)
        if voters.has_moved(self._key, self._endpoint):
            assert mine is not None and self._endpoint is not None
            voters = voters.with_voter(replace(mine, endpoints=(self._endpoint,)))
        if journal.kraft_version >= 1 and (
            not journal.voters_are_written or voters != journal.voters
        ):
            entries += voter_controls(journal.kraft_version, voters)
        now_ms = self._wall_ms()
        journal.append_as_leader(control_batch(entries, timestamp=now_ms), self.epoch, now_ms)

    def append_voters(self, voters: VoterSet, now: float) -> int:
        """Write another set of voters, which counts from here on. Returns the offset of its record."""
        record = ControlType.KRAFT_VOTERS, encode_control(voters.record())
        return self._append_controls([record], now)

    def append_kraft_version(self, version: int, voters: VoterSet, now: float) -> None:
        """Write another kraft.version and its voters, which count from here on."""
        self._append_controls(voter_controls(version, voters), now)

    def _append_controls(self, entries: Sequence[tuple[ControlType, bytes]], now: float) -> int:
        now_ms = self._wall_ms()
        batch = control_batch(entries, timestamp=now_ms)
        offset = self._journal.append_as_leader(batch, self.epoch, now_ms)
        self._count_voters(now)
        self.update_high_watermark()
        return offset

    def append(self, values: Sequence[bytes]) -> tuple[int, int]:
        """Write metadata records as one atomic batch. Returns their first offset, and the log's end after them."""
        if sum(map(size_max, values)) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(values)} records in one batch of metadata are more than {BATCH_BYTES_MAX} bytes",
            )
        now_ms = self._wall_ms()
        batch = build(Record(i, now_ms, None, value) for i, value in enumerate(values))
        base = self._journal.append_as_leader(batch, self.epoch, now_ms)
        return base, self._journal.log_end

    # Committing

    @property
    def is_established(self) -> bool:
        """Whether a record of this epoch is committed."""
        return self._journal.high_watermark > self.start_offset

    def update_high_watermark(self) -> None:
        """Raise the high watermark to what a majority of the voters has flushed, once that includes a record of this
        epoch (M4)."""
        end = self.end_on_majority()
        if end > self.start_offset:
            advance_high_watermark(self._journal, self._outputs, end)

    def end_on_majority(self) -> int:
        """The offset below which a majority of the voters has flushed everything."""
        ends = [-1 if r.end_offset is None else r.end_offset for r in self.voters.values()]
        if self._is_voter:
            ends.append(self._journal.flushed_end)
        return sorted(ends, reverse=True)[self._journal.voters.majority - 1]

    # Who fetches

    def quorum_deadline(self, fetch_timeout: float) -> float:
        """When to give up because no majority has fetched for too long."""
        others_needed = self._journal.voters.majority - (1 if self._is_voter else 0)
        if others_needed == 0:
            return math.inf
        fetches = sorted((r.last_fetch for r in self.voters.values()), reverse=True)
        return fetches[others_needed - 1] + CHECK_QUORUM_FACTOR * fetch_timeout

    def count_following(self, voters: VoterSet, since: float) -> int:
        """How many of these have fetched since then, or are ourselves."""
        return sum(
            voters.has(each.key) and each.end_offset is not None and each.last_fetch >= since
            for each in self.voters.values()
        ) + voters.has(self._key)

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the one with the longest log first."""
        by_progress = sorted(
            self.voters.values(), key=lambda r: -1 if r.end_offset is None else r.end_offset
        )
        return tuple(replica.key for replica in reversed(by_progress))

    def _fetched(self, key: ReplicaKey, offset: int | None, now: float) -> None:
        """A replica fetched. If its log agrees with ours, it has flushed everything below `offset`."""
        log_end = self._journal.log_end
        replica = self.voters.get(key.id)
        # A node whose disk was replaced has another directory id, so it is not this voter any more.
        is_voter = replica is not None and replica.key.directory in (None, key.directory)
        if replica is None or not is_voter:
            # Taken out and put back, so that the first observer is always the one whose last fetch is the oldest.
            replica = self.observers.pop(key, None) or ReplicaProgress(key)
            self._forget_observers(now)
            self.observers[key] = replica
        replica.acknowledged = True
        replica.directory = key.directory
        if offset is not None:
            if offset >= log_end:
                replica.last_caught_up = now
            elif offset >= replica.leader_end_then:
                replica.last_caught_up = max(replica.last_caught_up, replica.last_fetch)
            replica.end_offset = offset
        replica.leader_end_then = log_end
        replica.last_fetch = now
        if is_voter:
            self.update_high_watermark()

    def _forget_observers(self, now: float) -> None:
        while self.observers:
            key, observer = next(iter(self.observers.items()))
            is_old = now - observer.last_fetch > OBSERVER_FORGOTTEN_S
            if not is_old and len(self.observers) < OBSERVERS_MAX:
                return
            del self.observers[key]

    # Serving

    def serve_fetch(self, request: Fetch, now: float) -> FetchAnswer | Park:
        """A fetch is answered at once if there are records or a higher high watermark, or if the replica must first
        truncate its log or fetch a snapshot. Otherwise it is parked."""
        journal = self._journal
        agreement: Agreement = journal.agreement(request.offset, request.last_epoch)
        self._fetched(request.replica, request.offset if agreement is None else None, now)
        answer = FetchAnswer(
            ErrorCode.NONE,
            self.epoch,
            self._key.id,
            journal.high_watermark if self.is_established else -1,
            journal.log_start,
            endpoint=self._endpoint,
        )
        if isinstance(agreement, Diverges):
            return answer._replace(diverging=LogPosition(*agreement))
        if agreement is not None:
            return answer._replace(snapshot_id=agreement)
        found = journal.read(request.offset, request.bytes_max, journal.log_end)
        if found.range is not None:
            return answer._replace(records=found.range)
        if answer.high_watermark > request.high_watermark or request.wait_ms_max == 0:
            return answer
        return Park(now + request.wait_ms_max / 1000, answer)

    def serve_snapshot(self, request: FetchSnapshot, now: float) -> FetchSnapshotAnswer:
        """The next piece of a snapshot. The snapshot from formatting is not served, because its content is in the log."""
        self._fetched(request.replica, None, now)
        snapshots, id = self._journal.snapshots, request.snapshot_id
        answer = FetchSnapshotAnswer(
            ErrorCode.NONE, self.epoch, self._key.id, id, endpoint=self._endpoint
        )
        if id not in snapshots.ids or id == BOOTSTRAP:
            return answer._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND)
        size = snapshots.size(id)
        if not 0 <= request.position < size:
            return answer._replace(error=ErrorCode.POSITION_OUT_OF_RANGE)
        data = snapshots.chunk(id, request.position, min(request.bytes_max, FETCH_BYTES_MAX))
        return answer._replace(size=size, position=request.position, data=data)


def advance_high_watermark(journal: Journal, outputs: Outputs, offset: int) -> None:
    before = journal.high_watermark
    journal.log.advance_high_watermark(offset)
    if journal.high_watermark > before and MetadataCommitted in outputs.subscribed:
        outputs.emit(MetadataCommitted(journal.high_watermark))
