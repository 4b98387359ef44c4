"""One replica of one partition: leader, follower, or neither, and the rules of PROMISES A to D.

Only `become_leader`, `become_follower` and `become_offline` change the role. A stale epoch is answered
with an error code; a contradiction is an assertion. What others wait for (a higher end, a higher high
watermark, an ISR change to be sent, a lost leadership) is told to the `Observer`, which parks and wakes
requests; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from ottla.log.errors import InMemory
from ottla.log.log import Appended, Log, ReadResult
from ottla.records.batch import CRC_START, HEADER_BYTES, TRANSACTIONAL_BIT, read_batch
from ottla.replica.followers import UNKNOWN_OFFSET, Follower
from ottla.replica.rules import (
    CommitRule,
    TruncationRule,
    committed_by_isr,
    truncation_by_epoch,
)
from ottla.runtime import FileRange
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition
from ottla.wire.types import TopicPartition

NO_LEADER = -1
ANY_EPOCH = -1
"""A client that names no leader epoch is not checked against ours."""
NO_EPOCH = -1


def is_transactional(records: memoryview) -> bool:
    """Whether a batch that came from a client says that it is part of a transaction."""
    return len(records) >= HEADER_BYTES and bool(records[CRC_START + 1] & TRANSACTIONAL_BIT)


class Role(Enum):
    OFFLINE = "offline"
    """No decision of the controller has reached this replica yet, or its log directory failed."""
    LEADER = "leader"
    FOLLOWER = "follower"


class Decision(Protocol):
    """What the controller decided about a partition; `metadata.image.PartitionImage` is one."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...


class Proposal(NamedTuple):
    """An ISR that the leader asks the controller for. It counts only once the controller committed it;
    until then the larger of the old and new sets holds the high watermark back (P13)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(replica id, broker epoch) pairs, so that a broker that restarted meanwhile is refused (KIP-903)."""
    cause: str


class Verified(NamedTuple):
    """What a batch that begins a transaction shows: whether its coordinator's word still counts."""

    epoch: int
    """The leader's, when it asked."""
    guard: int
    producer_id: int
    producer_epoch: int
    sequence: int


class Truncation(NamedTuple):
    """An entry of the loss ledger: records that this replica cut from its log, and why."""

    partition: TopicPartition
    first_offset: int
    end_offset: int
    high_watermark: int
    leader_epoch: int
    diverging: tuple[int, int]
    """The leader's word: (epoch, its end there); NO_EPOCH and its log's end where no epoch could tell."""

    @property
    def below_high_watermark(self) -> bool:
        return self.first_offset < self.high_watermark


class Observer(Protocol):
    def log_end_advanced(self, partition: Partition) -> None: ...
    def high_watermark_advanced(self, partition: Partition) -> None: ...
    def log_start_advanced(self, partition: Partition) -> None: ...
    def follower_went_back(self, partition: Partition) -> None: ...
    def isr_proposed(self, partition: Partition) -> None: ...
    def isr_shrunk(self, partition: Partition) -> None: ...
    def role_changed(self, partition: Partition) -> None: ...
    def truncated(self, truncation: Truncation) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    node_id: int
    lag_time_max_s: float = 30.0
    commit_rule: CommitRule = committed_by_isr
    truncation_rule: TruncationRule = truncation_by_epoch


class Partition:
    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        log: Log,
        config: ReplicaConfig,
        observer: Observer,
        eligible_broker_epoch: Callable[[int], int | None],
    ) -> None:
        """`eligible_broker_epoch` gives the current epoch of a broker that may be in an ISR (registered,
        unfenced, not shutting down), else None; one look-up is one atomic view of the metadata."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.key = TopicPartition(topic, partition)
        self.log = log
        self.config = config
        self.observer = observer
        self.eligible_broker_epoch = eligible_broker_epoch
        self.role = Role.OFFLINE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self.proposal: Proposal | None = None

    def __repr__(self) -> str:
        return (
            f"{self.topic}-{self.partition} {self.role.value} epoch {self.leader_epoch} "
            f"start {self.log.log_start} HW {self.log.high_watermark} LEO {self.log.log_end} "
            f"ISR {list(self.isr)}"
        )

    # -- roles -------------------------------------------------------------------------------------

    def become_leader(self, decision: Decision, now: float) -> None:
        """Lead, or take note of a newer ISR while leading. A leader's log is the truth: it never truncates."""
        assert decision.leader == self.config.node_id
        if self._is_stale(decision):
            return
        new_epoch = decision.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        self._accept(decision)
        if new_epoch:
            self.role = Role.LEADER
            self.epoch_start = self.log.log_end
            self.log.epochs.assign(self.leader_epoch, self.epoch_start)
            # Nothing is known of the followers in this epoch; members of the ISR get the full lag time.
            self.followers = {
                id: Follower(id, caught_up_at=now if id in self.isr else float("-inf"))
                for id in self.replicas
                if id != self.config.node_id
            }
            self.observer.role_changed(self)
        else:
            self.followers = {
                id: self.followers.get(id) or Follower(id)
                for id in self.replicas
                if id != self.config.node_id
            }
        self._advance_high_watermark(now)
        self._maybe_expand_isr(now)

    def become_follower(self, decision: Decision) -> None:
        """Follow whoever leads now, or wait while nobody does. The log is reconciled by the fetches."""
        assert decision.leader != self.config.node_id
        if self._is_stale(decision):
            return
        changed = (
            self.role is not Role.FOLLOWER
            or decision.leader != self.leader
            or decision.leader_epoch != self.leader_epoch
        )
        self._accept(decision)
        self.role = Role.FOLLOWER
        self.followers = {}
        if changed:
            self.observer.role_changed(self)

    def become_offline(self) -> None:
        """The log directory failed: refuse everything until the process is started anew."""
        self.role = Role.OFFLINE
        self.followers = {}
        self.proposal = None
        self.observer.role_changed(self)

    def _is_stale(self, decision: Decision) -> bool:
        return (decision.leader_epoch, decision.partition_epoch) < (
            self.leader_epoch,
            self.partition_epoch,
        )

    def _accept(self, decision: Decision) -> None:
        shrunk = len(decision.isr) < len(self.isr)
        if decision.partition_epoch > self.partition_epoch:
            self.proposal = None
        self.replicas = decision.replicas
        self.isr = decision.isr
        self.leader = decision.leader
        self.leader_epoch = decision.leader_epoch
        self.partition_epoch = decision.partition_epoch
        if shrunk and self.role is Role.LEADER:
            self.observer.isr_shrunk(self)

    # -- leader: writing ---------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """A topic cannot ask for more in-sync replicas than it has replicas."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        in_sync = len(self.isr)
        return in_sync < self.log.config.min_insync_replicas and in_sync < len(self.replicas)

    def append(
        self,
        records: memoryview,
        acks: int,
        now: float,
        now_ms: int,
        verified: Verified | None = None,
    ) -> Appended:
        """Append as leader. With acks=all the answer is due once the high watermark has reached
        `last_offset + 1`, also for a duplicate whose first copy is not committed yet. A batch that begins
        a transaction must be `verified` by its coordinator."""
        if self.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if is_transactional(records):
            guard = verified.guard if verified and verified.epoch == self.leader_epoch else None
            self.log.producers.check_verified(read_batch(records, 0), guard)
        if acks == -1 and self.is_under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the ISR {list(self.isr)} is smaller than min.insync.replicas={self.min_isr}",
            )
        end_before = self.log.log_end
        appended = self.log.append_as_leader(records, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self._appended(end_before, now)
        return appended

    def begin_verification(self, records: memoryview, now_ms: int) -> Verified | None:
        """None if the batch may be appended (or refused) without asking the coordinator: it is part of a
        transaction that is open here, or of none."""
        if not is_transactional(records):
            return None
        batch = read_batch(records, 0)
        return self.begin_verification_of(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms
        )

    def begin_verification_of(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int
    ) -> Verified | None:
        producers = self.log.producers
        if (
            self.role is not Role.LEADER
            or producer_id < 0
            or producers.has_open_transaction(producer_id, producer_epoch)
        ):
            return None
        guard = producers.begin_verification(producer_id, producer_epoch, sequence, now_ms)
        return Verified(self.leader_epoch, guard, producer_id, producer_epoch, sequence)

    def is_verified(self, verified: Verified) -> bool:
        """Whether a positive answer still counts: no batch or marker of the producer came between."""
        return (
            self.role is Role.LEADER
            and self.leader_epoch == verified.epoch
            and self.log.producers.is_verified(verified.producer_id, verified.guard)
        )

    def append_marker(
        self, batch: bytearray, now: float, now_ms: int, *, bumps_epoch: bool
    ) -> Appended:
        """Append the end of a transaction, with the rules of acks=all."""
        self.check_leader()
        if self.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_before = self.log.log_end
        appended = self.log.append_marker(batch, self.leader_epoch, now_ms, bumps_epoch=bumps_epoch)
        self._appended(end_before, now)
        return appended

    def append_own(
        self, records: memoryview, leader_epoch: int, now: float, now_ms: int
    ) -> Appended:
        """Append a coordinator's records, with the rules of acks=all, and only in the epoch in which they
        were decided."""
        if self.role is not Role.LEADER or self.leader_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_before = self.log.log_end
        appended = self.log.append_as_leader(records, leader_epoch, now_ms, from_client=False)
        self._appended(end_before, now)
        return appended

    def _appended(self, end_before: int, now: float) -> None:
        self._flush_if_asked()
        for follower in self.followers.values():
            if self.eligible_broker_epoch(follower.id) == follower.broker_epoch:
                follower.leader_appended(end_before, now)
        self.observer.log_end_advanced(self)
        self._advance_high_watermark(now)

    def _flush_if_asked(self) -> None:
        """flush.messages: who sets it wants the fsync before the record counts, and waits for it. By
        default it never happens here (P22)."""
        log = self.log
        if log.log_end - log.recovery_point >= log.config.flush_messages:
            log.flush()

    def _advance_high_watermark(self, now: float) -> None:
        """P07: min(LEO) over the ISR and the replicas about to join it. Caught-up replicas outside the
        ISR are waited for as well, else a busy leader alone in its ISR could never be caught (Kafka's
        rule). Frozen below min.insync.replicas (P19), and it never goes back within an epoch."""
        assert self.role is Role.LEADER
        if self.is_under_min_isr:
            return
        members = self.isr if self.proposal is None else self.maximal_isr
        waited_for = [
            follower.log_end
            for follower in self.followers.values()
            if follower.id in members or self._is_about_to_join(follower, now)
        ]
        committed = self.config.commit_rule(self.log.log_end, waited_for)
        if committed > self.log.high_watermark:
            self.log.advance_high_watermark(committed)
            self.observer.high_watermark_advanced(self)

    def reconsider(self, now: float) -> None:
        """A broker was fenced or came back, or a setting changed: one that was about to join may hold
        nothing back any more, one that could not be a member may join, the minimum may be lower."""
        if self.role is Role.LEADER:
            self._advance_high_watermark(now)
            self._maybe_expand_isr(now)

    def _is_about_to_join(self, follower: Follower, now: float) -> bool:
        return (
            follower.log_end != UNKNOWN_OFFSET
            and now - follower.caught_up_at <= self.config.lag_time_max_s
            and self.eligible_broker_epoch(follower.id) == follower.broker_epoch
        )

    # -- leader: the in-sync replicas ------------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that is in the ISR or may be, whichever way a proposal under way ends."""
        if self.proposal is None:
            return self.isr
        return (*self.isr, *(id for id, _ in self.proposal.isr if id not in self.isr))

    def _maybe_expand_isr(self, now: float, fetching: Follower | None = None) -> None:
        """D10: whoever has everything committed *and* everything of this epoch's start (KAFKA-7128) is
        proposed, once it has also deleted what we have deleted: of that nobody can tell any more whether it
        had the same there, and a leader that still had it would show it again. Besides the one that fetches just now, those are asked about again that were caught up
        all the time: an idle follower says nothing, and may have been refused before."""
        if self.proposal is not None:
            return
        log_end = self.log.log_end
        joining = [
            follower.id
            for follower in self.followers.values()
            if follower.id not in self.isr
            and follower.log_end >= self.log.high_watermark
            and follower.log_end >= self.epoch_start
            and follower.log_start >= self.log.log_start
            and (
                follower is fetching
                or follower.is_caught_up(log_end, now, self.config.lag_time_max_s)
            )
            and self.eligible_broker_epoch(follower.id) == follower.broker_epoch
        ]
        if joining:
            self._propose((*self.isr, *joining), f"brokers {joining} caught up")

    def shrink_isr(self, now: float) -> None:
        """P12: members that have not caught up within replica.lag.time.max.ms are proposed to leave."""
        if self.role is not Role.LEADER:
            return
        self._advance_high_watermark(now)  # one that was about to join may be late by now
        if self.proposal is not None:
            return
        log_end = self.log.log_end
        lagging = [
            id
            for id in self.isr
            if (follower := self.followers.get(id)) is not None
            and not follower.is_caught_up(log_end, now, self.config.lag_time_max_s)
        ]
        if not lagging:
            self._maybe_expand_isr(now)
        else:
            stay = tuple(id for id in self.isr if id not in lagging)
            self._propose(stay, f"brokers {lagging} lag behind offset {log_end}")

    def _propose(self, isr: tuple[int, ...], cause: str) -> None:
        assert self.role is Role.LEADER and self.config.node_id in isr
        self.proposal = Proposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple((id, self._broker_epoch_of(id)) for id in isr),
            cause,
        )
        self.observer.isr_proposed(self)

    def _broker_epoch_of(self, id: int) -> int:
        follower = self.followers.get(id)
        if follower is not None and follower.broker_epoch != -1:
            return follower.broker_epoch
        return -1

    def proposal_refused(self, proposal: Proposal, now: float) -> None:
        """Not accepted: what was proposed is forgotten, and the rules decide anew what to propose."""
        if self.proposal is proposal:
            self.proposal = None
            if self.role is Role.LEADER:
                self._advance_high_watermark(now)

    # -- serving fetches -------------------------------------------------------------------------------

    def serve_follower(
        self,
        fetch: FetchPartition,
        replica_id: int,
        broker_epoch: int,
        max_bytes: int,
        at_least_one: bool,
        now: float,
        in_memory: InMemory | None = None,
    ) -> FetchedPartition:
        """A follower's fetch: says how far it is, gets what comes after, or learns where it diverges.
        NotInMemory, when its position is noted, if it would not wait for the disk (see `Log.read`)."""
        _, _, _, named_epoch, offset, last_epoch, log_start, _, _, _ = fetch
        follower = self.followers.get(replica_id)
        if named_epoch != self.leader_epoch and (error := self._check_epoch(named_epoch)):
            return self._failed(error)
        if self.role is not Role.LEADER or follower is None or broker_epoch < follower.broker_epoch:
            return self._failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        log_end = log.log_end
        if last_epoch != self.leader_epoch or offset > log_end:
            diverging = self._diverging(fetch)
            if diverging is not None:
                return self._answer(None, diverging)
        if not log.log_start <= offset <= log_end:
            return self._failed(ErrorCode.OFFSET_OUT_OF_RANGE)
        advanced = offset != follower.log_end
        if log_start != follower.log_start:
            self.observer.log_start_advanced(self)
        if offset < follower.log_end:
            self.observer.follower_went_back(self)
        follower.fetched(offset, log_start, broker_epoch, log_end, now)
        if follower.id not in self.isr:
            self._maybe_expand_isr(now, follower)
        if advanced:
            self._advance_high_watermark(now)
        if offset >= log_end:
            return self._answer(None)
        return self._answer(self._read(offset, max_bytes, at_least_one, log_end, in_memory)[0])

    def _diverging(self, fetch: FetchPartition) -> tuple[int, int] | None:
        if fetch.last_fetched_epoch < 0:
            return None
        epoch, end = self.log.epochs.end_offset_for(fetch.last_fetched_epoch, self.log.log_end)
        if epoch == -1:
            # Newer than any epoch here, or we know none: nothing to compare. An end beyond ours is out of
            # range, and the follower then asks where our log starts and ends.
            return None
        if epoch < fetch.last_fetched_epoch or end < fetch.fetch_offset:
            return epoch, end
        return None

    def serve_consumer(
        self,
        fetch: FetchPartition,
        read_committed: bool,
        max_bytes: int,
        at_least_one: bool,
        from_follower: bool,
        in_memory: InMemory | None = None,
    ) -> FetchedPartition:
        """A consumer's fetch, at the leader or, where the client knows how to ask for it, at a follower
        near it (P03): only what is committed. NotInMemory if it would not wait for the disk (see `Log.read`)."""
        named_epoch = fetch.current_leader_epoch
        if named_epoch != self.leader_epoch and (error := self._check_epoch(named_epoch)):
            return self._failed(error)
        if self.role is not Role.LEADER and not (self.role is Role.FOLLOWER and from_follower):
            return self._failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if fetch.last_fetched_epoch >= 0 and (diverging := self._diverging(fetch)) is not None:
            return self._answer(None, diverging=diverging)
        offset = fetch.fetch_offset
        if not log.log_start <= offset <= log.log_end:
            if self.role is Role.FOLLOWER and offset > log.log_end:
                # The consumer is ahead of this follower, not of the log: it tries again (P26).
                return self._failed(ErrorCode.OFFSET_NOT_AVAILABLE)
            return self._failed(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = log.last_stable_offset if read_committed else log.high_watermark
        range, next_offset = self._read(offset, max_bytes, at_least_one, end, in_memory)
        if not read_committed:
            return self._answer(range)
        aborted = [] if range is None else log.aborted_transactions(offset, next_offset)
        return self._answer(range)._replace(
            aborted=[(each.producer_id, each.first_offset) for each in aborted]
        )

    def _read(
        self, offset: int, max_bytes: int, at_least_one: bool, end: int, in_memory: InMemory | None
    ) -> ReadResult:
        if offset >= end or (max_bytes <= 0 and not at_least_one):
            return ReadResult(None, offset)
        return self.log.read(
            offset,
            max_bytes=max_bytes,
            end_offset=end,
            at_least_one=at_least_one,
            in_memory=in_memory,
        )

    def without_records(self) -> FetchedPartition:
        """An answer while its records are still on their way."""
        return self._answer(None)

    def nearest_replica(
        self, rack: str, offset: int, rack_of: Callable[[int], str | None]
    ) -> int | None:
        """The in-sync follower in the consumer's rack that is furthest along and has what it asks for;
        None where the leader itself should answer."""
        if self.role is not Role.LEADER or rack_of(self.config.node_id) == rack:
            return None
        near = [
            (follower.log_end, -follower.id)
            for follower in self.followers.values()
            if follower.id in self.isr
            and rack_of(follower.id) == rack
            and self.eligible_broker_epoch(follower.id) is not None
            and follower.log_start <= offset <= follower.log_end
        ]
        return -max(near)[1] if near else None

    def _check_epoch(self, named_epoch: int) -> ErrorCode | None:
        if named_epoch == ANY_EPOCH or named_epoch == self.leader_epoch:
            return None
        if named_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, named_epoch: int = ANY_EPOCH) -> None:
        """For requests that only the leader answers (ListOffsets, OffsetForLeaderEpoch, DeleteRecords)."""
        error = self._check_epoch(named_epoch)
        if error is not None:
            raise KafkaError(error)
        if self.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def latest_offset(self, read_committed: bool) -> int:
        """The end that a consumer sees. A new leader whose HW has not reached its epoch's start may be
        behind what another leader has shown already: it says so rather than go back (P26)."""
        if self.log.high_watermark < self.epoch_start:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        """The offset below which every live replica has deleted its records (DeleteRecords waits for it)."""
        live = [
            follower.log_start
            for follower in self.followers.values()
            if self.eligible_broker_epoch(follower.id) is not None
        ]
        return min([self.log.log_start, *live])

    def _answer(
        self, records: FileRange | None, diverging: tuple[int, int] | None = None
    ) -> FetchedPartition:
        log = self.log
        make: Any = tuple.__new__  # the NamedTuple's own constructor takes three times as long
        answer = (
            self.topic,
            self.topic_id,
            self.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start,
            None,
            -1,
            diverging,
            None,
            None,
            records,
        )
        answered: FetchedPartition = make(FetchedPartition, answer)
        return answered

    def redirect(self, replica_id: int) -> FetchedPartition:
        """No records: the consumer reads on from the replica near it."""
        return self._answer(None)._replace(preferred_read_replica=replica_id)

    def _failed(self, error: ErrorCode) -> FetchedPartition:
        return FetchedPartition(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            error=error,
            current_leader=(self.leader, self.leader_epoch)
            if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            else None,
        )

    # -- follower --------------------------------------------------------------------------------------

    def next_fetch_position(self) -> tuple[int, int]:
        """(offset, last fetched epoch) that the next fetch names (P25)."""
        latest = self.log.epochs.latest
        return self.log.log_end, -1 if latest is None else latest

    def follow(self, answer: FetchedPartition, leader_epoch: int) -> int:
        """Apply the leader's answer to a fetch made in `leader_epoch`; returns how many bytes were
        appended. Diverging: truncate, and leave the high watermark alone (KAFKA-14704)."""
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            return 0
        log = self.log
        if answer.diverging is not None:
            self._truncate(answer.diverging, answer.log_start_offset)
            return 0
        appended = 0
        records = answer.records
        if records is not None:
            assert isinstance(records, memoryview)
            if len(records):
                before = log.log_end
                log.append_as_follower(records, leader_epoch)
                self._flush_if_asked()
                appended = len(records)
                if log.log_end > before:
                    self.observer.log_end_advanced(self)
        if answer.log_start_offset > log.log_start:
            log.advance_log_start(min(answer.log_start_offset, log.log_end))
        high_watermark = min(answer.high_watermark, log.log_end)
        if high_watermark > log.high_watermark:
            log.advance_high_watermark(high_watermark)
            self.observer.high_watermark_advanced(self)
        return appended

    def _truncate(self, diverging: tuple[int, int], leader_log_start: int) -> None:
        """Also below our log's start: none of what is left here is the leader's then, and it may have more
        than we kept. So we begin anew where its log begins: who is in the ISR has all that the leader has."""
        log = self.log
        target = self.config.truncation_rule(log.epochs, log.log_end, diverging)
        if target < log.log_end:
            self.observer.truncated(
                Truncation(
                    self.key, target, log.log_end, log.high_watermark, self.leader_epoch, diverging
                )
            )
        if target < log.log_start:
            log.truncate_fully(min(target, leader_log_start))
        else:
            # Also when no record goes: an epoch that began at our end and got no record must be forgotten.
            log.truncate_to(target)

    def restart_within(self, leader_log_start: int, leader_log_end: int) -> None:
        """Our end lies outside of the leader's log. Above it, we cut what the leader does not have: an
        emptied log knows no epoch, so no answer to a fetch tells it where it diverges. Where nothing is left
        to build on, below the leader's start too, we begin again where its log begins."""
        if self.role is not Role.FOLLOWER:
            return
        log = self.log
        if log.log_end > leader_log_end:
            builds_on = log.log_start < leader_log_end
            target = leader_log_end if builds_on else leader_log_start
            self.observer.truncated(
                Truncation(
                    self.key,
                    target,
                    log.log_end,
                    log.high_watermark,
                    self.leader_epoch,
                    (NO_EPOCH, leader_log_end),
                )
            )
            if builds_on:
                log.truncate_to(target)
            else:
                log.truncate_fully(target)
        elif log.log_end < leader_log_start:
            log.truncate_fully(leader_log_start)

    # -- what must always hold ---------------------------------------------------------------------------

    def invariants(self) -> None:
        self.log.invariants()
        assert len(set(self.isr)) == len(self.isr), self
        if self.role is Role.LEADER:
            assert self.leader == self.config.node_id, self
            assert self.config.node_id in self.isr, self
            assert self.log.epochs.latest == self.leader_epoch, self
            assert self.log.high_watermark <= self.log.log_end, self
