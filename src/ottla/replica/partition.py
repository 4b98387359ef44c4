"""One replica of one partition: its identity, its role, and what both roles share (PROMISES A to D).

- `roles`: the roles and the transitions between them
- `leader`: the leader's part; `isr`: how the ISR changes; `high_watermark`: the rule by which it moves
- `follower`: the follower's part
- `rules`: when a record is committed, where a follower truncates, and which role a replica takes

A stale epoch is answered with an error code; a contradiction is an assertion. Nothing here waits. Changes that others
wait for are reported to the `Observer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ottla.events import Events
from ottla.events.replication import (
    EndNotAvailable,
    LeaderEpochRefused,
    LeadershipStarted,
    RoleChanged,
)
from ottla.log.errors import InMemory
from ottla.log.log import Log, ReadResult
from ottla.replica import high_watermark
from ottla.replica.isr import Proposal
from ottla.replica.leader import Leadership
from ottla.replica.observer import News, Observer
from ottla.replica.roles import TRANSITIONS, Role
from ottla.replica.rules import (
    BY_LEADER_EPOCHS,
    CommitRule,
    RoleRule,
    TruncationRule,
    as_decided,
)
from ottla.replica.traffic import TopicTraffic
from ottla.runtime import FileRange
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, fetched_partition
from ottla.wire.types import TopicPartition

NO_LEADER = -1
ANY_EPOCH = -1
"""A client that names no leader epoch is not checked against ours."""


class LeaderAndIsr(Protocol):
    """The controller's decision about a partition; `metadata.image.PartitionImage` is one."""

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


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The rules that a design consists of. The defaults are the product's."""

    commit: CommitRule = high_watermark.committed_by_isr
    truncation: TruncationRule = BY_LEADER_EPOCHS
    role: RoleRule = as_decided


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    node_id: int
    lag_time_max_s: float = 30.0
    rules: ReplicationRules = ReplicationRules()


class Partition:
    """This broker's replica of a partition. Only the `become_…` methods change its role, along `TRANSITIONS`.

    Where only the leader may act, callers use `leadership` (None unless this replica leads) or `leading`."""

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        log: Log,
        config: ReplicaConfig,
        observer: Observer,
        eligible_broker_epoch: Callable[[int], int | None],
        events: Events,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`eligible_broker_epoch` returns the current epoch of a broker that may be in an ISR (registered,
        unfenced, not shutting down), else None. One call is one atomic view of the metadata."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.key = TopicPartition(topic, partition)
        self.log = log
        self.config = config
        self.rules = config.rules
        self.observer = observer
        self.eligible_broker_epoch = eligible_broker_epoch
        self.events = events
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.bytes_in = self.bytes_out = 0
        """Written here as leader, and sent to consumers."""
        self.copied_in = self.copied_out = 0
        """From the leader, and to followers."""
        self.role = Role.OFFLINE
        self.leadership: Leadership | None = None
        """The leader's state and operations; set exactly while this replica leads."""
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.unclean_epoch = -1
        """The last leader epoch that is known to have begun without records that may have been committed. Records of earlier
        epochs that are truncated may be lost."""
        self.agreed_epoch = -1
        """The last leader epoch in which a leader had the last record of our log, so that it had all of them."""
        self.isr: tuple[int, ...] = ()
        """The newest ISR that this replica knows the controller to have decided."""
        self.leader_high_watermark = 0
        """As the last fetch said; a follower may be behind it."""

    def __repr__(self) -> str:
        return (
            f"{self.topic}-{self.partition} {self.role.name.lower()} epoch {self.leader_epoch} "
            f"start {self.log.log_start} HW {self.log.high_watermark} LEO {self.log.log_end} "
            f"ISR {list(self.isr)}"
        )

    # -- roles -------------------------------------------------------------------------------------

    def become_leader(self, decision: LeaderAndIsr, now: float) -> None:
        """Become the leader, or take over a newer ISR while leading."""
        assert decision.leader == self.config.node_id
        if self._is_stale(decision):
            return
        leadership = self.leadership
        is_new_epoch = leadership is None or decision.leader_epoch > leadership.epoch
        left_isr = [id for id in self.isr if id not in decision.isr]
        self._accept(decision)
        assert self.config.node_id in self.isr, f"leader outside of its ISR (M8): {self}"
        if leadership is None or is_new_epoch:
            leadership = Leadership(self, now)  # first: if it fails, the role stays what it was
            self._enter(Role.LEADER)
            self.leadership = leadership
            self._report_role()
            if LeadershipStarted in self.events:
                start = leadership.epoch_start, self.log.high_watermark
                self.events.emit(LeadershipStarted(self.key, self.leader_epoch, *start))
        else:
            leadership.replicas_changed(left_isr)
        high_watermark.advance(leadership, now)
        leadership.isr_changes.maybe_expand(now)

    def become_follower(self, decision: LeaderAndIsr) -> bool:
        """Follow the present leader, or wait while there is none. Whether that is another leader or a new epoch:
        then `follower.begin_following` comes next."""
        assert decision.leader != self.config.node_id
        if self._is_stale(decision):
            return False
        changed = (
            self.role is not Role.FOLLOWER
            or decision.leader != self.leader
            or decision.leader_epoch != self.leader_epoch
        )
        self._accept(decision)
        if changed:
            self._enter(Role.FOLLOWER)
            self._report_role()
        return changed

    def become_offline(self) -> None:
        """The log directory failed, or the replica is removed: refuse everything from now on."""
        if self.role is not Role.OFFLINE:  # the directory may fail before the first decision
            self._enter(Role.OFFLINE)
        self._report_role()

    def log_moved(self, log: Log) -> None:
        """The same records lie in another directory."""
        assert log.key == self.key and log.log_end == self.log.log_end, (self, log)
        self.log = log
        if self.leadership is not None:
            self.leadership.log = log

    def _enter(self, role: Role) -> None:
        """The only place where the role changes. A leadership ends with its role or its epoch."""
        assert (self.role, role) in TRANSITIONS, f"{self.role} to {role}: {self}"
        self.role = role
        self.leadership = None

    def _report_role(self) -> None:
        assert (self.leadership is not None) == (self.role is Role.LEADER), self
        if RoleChanged in self.events:
            log = self.log
            self.events.emit(
                RoleChanged(
                    self.key,
                    self.role.name.lower(),
                    self.leader,
                    self.leader_epoch,
                    self.isr,
                    log.log_start,
                    log.high_watermark,
                    log.log_end,
                )
            )
        self.observer.role_changed(self)

    def _is_stale(self, decision: LeaderAndIsr) -> bool:
        return (decision.leader_epoch, decision.partition_epoch) < (
            self.leader_epoch,
            self.partition_epoch,
        )

    def _accept(self, decision: LeaderAndIsr) -> None:
        assert decision.partition_epoch >= self.partition_epoch, f"{decision} to {self} (M8)"
        assert set(decision.isr) <= set(decision.replicas), f"{decision} (M8)"
        shrunk = len(decision.isr) < len(self.isr)
        self.replicas = decision.replicas
        self.isr = decision.isr
        self.leader = decision.leader
        self.leader_epoch = decision.leader_epoch
        self.partition_epoch = decision.partition_epoch
        if self.leadership is not None:
            self.leadership.isr_changes.decided(decision.partition_epoch)
            if shrunk:
                self.observer.partition_changed(self, News.ISR_SHRUNK)

    # -- operations of every role ------------------------------------------------------------------

    @property
    def proposal(self) -> Proposal | None:
        """The ISR proposed by this leader that the controller has not decided about yet."""
        return None if self.leadership is None else self.leadership.isr_changes.proposal

    @property
    def min_isr(self) -> int:
        """min(min.insync.replicas, number of replicas): a topic cannot ask for more than it has."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is smaller than `min_isr`. Written out, because appends and fetches of followers ask."""
        in_sync = len(self.isr)
        return in_sync < self.log.config.min_insync_replicas and in_sync < len(self.replicas)

    def flush_if_asked(self) -> None:
        """flush.messages requires the fsync before records count as written, and callers wait for it. By
        default no flush happens here (P22)."""
        log = self.log
        if log.log_end - log.recovery_point >= log.config.flush_messages:
            log.flush()

    def check_epoch(self, named_epoch: int) -> ErrorCode | None:
        """The error for a request whose leader epoch is older or newer than ours."""
        if named_epoch == ANY_EPOCH or named_epoch == self.leader_epoch:
            return None
        error = (
            ErrorCode.FENCED_LEADER_EPOCH
            if named_epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        if LeaderEpochRefused in self.events:
            self.events.emit(LeaderEpochRefused(self.key, named_epoch, self.leader_epoch, error))
        return error

    def leading(self, named_epoch: int = ANY_EPOCH) -> Leadership:
        """For requests that only the leader answers (ListOffsets, OffsetForLeaderEpoch, DeleteRecords)."""
        error = self.check_epoch(named_epoch)
        if error is not None:
            raise KafkaError(error)
        if self.leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leadership

    def latest_offset(self, read_committed: bool) -> int:
        """The end that a consumer sees. While a new leader's HW is below its epoch's start it may be below the
        end that another leader has returned. It then answers with an error rather than an older end (P26)."""
        log, leadership = self.log, self.leadership
        if leadership is not None and log.high_watermark < leadership.epoch_start:
            if EndNotAvailable in self.events:
                self.events.emit(
                    EndNotAvailable(
                        self.key, self.leader_epoch, log.high_watermark, leadership.epoch_start
                    )
                )
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return log.last_stable_offset if read_committed else log.high_watermark

    # -- serving fetches ---------------------------------------------------------------------------

    def serve_consumer(
        self,
        fetch: FetchPartition,
        read_committed: bool,
        max_bytes: int,
        at_least_one: bool,
        from_follower: bool,
        in_memory: InMemory | None = None,
    ) -> FetchedPartition:
        """Answer a consumer's fetch with committed records only, as leader or, if the client supports it, as a
        follower near it (P03). Raises NotInMemory if the read must not wait for the disk (see `Log.read`)."""
        named_epoch = max(fetch.current_leader_epoch, ANY_EPOCH)  # whatever is below names none
        if named_epoch != self.leader_epoch and (error := self.check_epoch(named_epoch)):
            return self.refuse_fetch(error)
        if self.role is not Role.LEADER and not (self.role is Role.FOLLOWER and from_follower):
            return self.refuse_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if fetch.last_fetched_epoch >= 0:
            diverging = self.rules.truncation.diverging(log, fetch)
            if diverging is not None:
                return self.answer(None, diverging)
        offset = fetch.fetch_offset
        if not log.log_start <= offset <= log.log_end:
            if self.role is Role.FOLLOWER and offset > log.log_end:
                # The consumer is ahead of this follower, not of the log: it retries (P26).
                return self.refuse_fetch(ErrorCode.OFFSET_NOT_AVAILABLE)
            return self.refuse_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = log.last_stable_offset if read_committed else log.high_watermark
        range, next_offset = self.read(offset, max_bytes, at_least_one, end, in_memory)
        if not read_committed:
            return self.answer(range)
        aborted = [] if range is None else log.aborted_transactions(offset, next_offset)
        return self.answer(range)._replace(
            aborted=[(each.producer_id, each.first_offset) for each in aborted]
        )

    def read(
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

    def answer(
        self, records: FileRange | None, diverging: tuple[int, int] | None = None
    ) -> FetchedPartition:
        """A fetch's answer; also used without records while they are read from the disk."""
        log = self.log
        return fetched_partition(
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

    def redirect(self, replica_id: int) -> FetchedPartition:
        """An answer without records: the consumer continues at the replica near it."""
        return self.answer(None)._replace(preferred_read_replica=replica_id)

    def refuse_fetch(self, error: ErrorCode) -> FetchedPartition:
        return FetchedPartition(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            error=error,
            current_leader=(self.leader, self.leader_epoch)
            if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            else None,
        )

    def refuse_follower(self, named_epoch: int) -> FetchedPartition:
        """The answer to a follower that fetches from a replica that does not lead."""
        assert self.leadership is None
        return self.refuse_fetch(self.check_epoch(named_epoch) or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- invariants --------------------------------------------------------------------------------

    def invariants(self) -> None:
        self.log.invariants()
        assert len(set(self.isr)) == len(self.isr), self
        assert set(self.isr) <= set(self.replicas), f"M8: {self}"
        assert (self.leadership is not None) == (self.role is Role.LEADER), self
        if self.leadership is not None:
            self.leadership.invariants()
        elif self.role is Role.FOLLOWER:
            assert self.leader != self.config.node_id, self
