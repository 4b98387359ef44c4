"""A shard on the partition that this broker leads: requests in, records to the log, replies out.

The shard's records are appended, and replayed at once into the same shard. Its replies leave when the high watermark
has passed everything that was decided before them. So a failover cannot lose what a client was told (C4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ottla.broker.coordination.pending_replies import (
    DeferredReplies,
    PendingReply,
    Refusal,
    Reply,
)
from ottla.broker.coordination.shard_loading import read_checked, replay_batches
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.coordinators.shard import CoordinatorRecord, Effects, Shard
from ottla.events import Events
from ottla.events.coordination import (
    ReplyTimedOut,
    ShardApplied,
    ShardLoaded,
    ShardRestarted,
    ShardUnloaded,
)
from ottla.log.errors import LogDirError
from ottla.records.batch import CorruptBatch
from ottla.records.record import Record, build
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

RELOAD_PAUSE_S, RELOAD_PAUSE_MAX_S = 1.0, 60.0
"""Between two attempts to load; doubles after each failure."""
FAILED_TICK_PAUSE_S = 10.0

WRITES_LITTLE = frozenset(
    {
        ApiKey.OFFSET_FETCH,
        ApiKey.HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
"""Requests that are handled also while the ISR is too small for a write: they rarely or never lead to a record. All
others are refused before they change anything."""
CONFIRMED = frozenset({ApiKey.OFFSET_FETCH})
"""Requests that need no record, but that only the true coordinator may answer. A deposed coordinator that does not
know of its successor would answer with offsets that are no longer the committed ones. A broker in doubt therefore writes
a record without meaning: if its followers replicate it, this broker was still the leader when the request came."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic whose partitions are shards."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    new_shard: Callable[[int], Shard]
    """From the partition's number."""
    refusal: Refusal
    write_timeout_s: float
    """How long a reply waits for its records to be committed. Then the client is told to retry."""
    perform: Callable[[LiveShard, Any], None] | None = None
    """Performs a shard's `actions`."""
    confirmation: CoordinatorRecord | None = None
    """A record without meaning. If there is one, it is written to confirm leadership (`CONFIRMED`)."""


class LiveShard:
    """The shard of a partition that this broker leads, for one leader epoch.

    It loads the log, hands requests and timers to the shard, and appends what the shard decides. These stay in one class
    because they share one rule: as soon as the shard and the log may differ, the shard is discarded and loaded again.
    """

    def __init__(
        self,
        topic: InternalTopic,
        partition: Partition,
        replicas: ReplicaManager,
        in_doubt: Callable[[], bool],
        events: Events,
    ) -> None:
        """`in_doubt`: whether the controller may have elected another leader without our knowing."""
        self.topic = topic
        self.shard = topic.new_shard(partition.partition)
        self.partition = partition
        self.pending: dict[PendingReply, None] = {}
        self.is_loaded = False
        self._has_failed_to_load = False
        self._has_failed_to_tick = False
        self._no_tick_before = -inf
        self._leader_epoch = partition.leader_epoch
        self._replicas = replicas
        self._in_doubt = in_doubt
        self._events = events
        self._clock = replicas.clock
        self._deferred = DeferredReplies(self._clock, self._perform, self._replies_timed_out)
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False
        replicas.purgatory.watch(partition, self)
        self._loading = asyncio.get_running_loop().create_task(self._load())

    @property
    def _identity(self) -> tuple[TopicPartition, int]:
        """Partition and leader epoch, which open every event about this shard."""
        return TopicPartition(self.partition.topic, self.partition.partition), self._leader_epoch

    @property
    def is_current(self) -> bool:
        return (
            not self._is_dropped
            and self.partition.role is Role.LEADER
            and self.partition.leader_epoch == self._leader_epoch
        )

    # -- loading

    async def _load(self) -> None:
        """Repeat until the log is loaded. Requests that come meanwhile are refused as retriable."""
        pause_s = RELOAD_PAUSE_S
        while self.is_current:
            try:
                await self._load_once()
                return
            except LogDirError as error:
                self._replicas.directory_failed(error)
                return
            except Exception:
                logger.exception(
                    "could not load coordinator partition=%s-%d retry_s=%.0f",
                    *self.partition.key,
                    pause_s,
                )
            self._has_failed_to_load = True
            self.is_loaded = False
            self.shard = self.topic.new_shard(self.partition.partition)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RELOAD_PAUSE_MAX_S)

    async def _load_once(self) -> None:
        """Replay every record, also those that are not committed yet: either they will be, or this broker loses its
        leadership."""
        partition = self.partition  # whose log may move to another directory meanwhile
        offset = partition.log.log_start
        while offset < partition.log.log_end and self.is_current:
            try:
                data, next_offset = read_checked(partition.log, offset)
            except CorruptBatch as error:
                self._replicas.replica_damaged(
                    self.partition, f"from offset {offset} on: {error.why}"
                )
                return
            replay_batches(self.shard, data, offset, self._clock.wall_ms())
            offset = next_offset
            await asyncio.sleep(0)
        if self.is_current:
            self._begin()

    def _begin(self) -> None:
        """All records are replayed: the shard acts from now on."""
        effects = self.shard.loaded(self._clock.monotonic())
        self.is_loaded, self._has_failed_to_load = True, False
        if ShardLoaded in self._events:
            self._events.emit(ShardLoaded(*self._identity, self.shard.open_work()))
        self.apply(effects)

    # -- deciding

    def ask(self, api_key: ApiKey, version: int, message: Any, reply: Reply) -> None:
        pending = PendingReply(self.pending, api_key, version, message, reply, self.topic.refusal)
        if not self.is_loaded:
            pending.refuse(
                ErrorCode.NOT_COORDINATOR
                if self._has_failed_to_load
                else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )
            return
        if self.partition.is_under_min_isr and api_key not in WRITES_LITTLE:
            pending.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            effects = self.shard.handle(api_key, version, message, pending, now, now_ms)
        except Exception:
            self.pending.pop(pending, None)
            raise
        confirmation = self.topic.confirmation
        if confirmation is not None and api_key in CONFIRMED and self._in_doubt():
            assert not effects.records, api_key
            effects = replace(effects, records=(confirmation,), only_records=True)
        self.apply(effects)

    def apply(self, effects: Effects) -> None:
        """Append, replay, and reply once all that was appended so far is committed."""
        if effects.records:
            try:
                self._append(effects)
            except LogDirError as error:
                self._replicas.directory_failed(error)
                return
            except KafkaError as error:
                self._not_appended(error, effects)
                return
        if effects.replies or effects.actions:
            until = self._clock.monotonic() + self.topic.write_timeout_s
            self._deferred.add(self.partition.log.log_end, until, effects)
            self._send_committed()
            self._deferred.start_timer(until)
        self._set_timer()
        if effects.records and ShardApplied in self._events:
            self._events.emit(ShardApplied(*self._identity, len(effects.records), self.shard))

    def _append(self, effects: Effects) -> None:
        now_ms = self._clock.wall_ms()
        stamp = effects.producer
        assert stamp is None or (stamp.producer_id >= 0 and stamp.producer_epoch >= 0), stamp
        batch = build(
            [
                Record(index, now_ms, record.key, record.value, ())
                for index, record in enumerate(effects.records)
            ],
            producer_id=-1 if stamp is None else stamp.producer_id,
            producer_epoch=-1 if stamp is None else stamp.producer_epoch,
            transactional=stamp is not None,
        )
        leadership = self.partition.leadership
        if leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = leadership.append_own(
            memoryview(batch), self._leader_epoch, self._clock.monotonic(), now_ms
        )
        for index, record in enumerate(effects.records):
            self.shard.replay(appended.base_offset + index, record, stamp, now_ms)

    def _not_appended(self, error: KafkaError, effects: Effects) -> None:
        """The decision did not happen. If the shard has changed already, it is loaded again from the log."""
        if effects.only_records:
            for token, _ in effects.replies:
                assert isinstance(token, PendingReply)
                token.refuse(_client_error(error.code))
            self._set_timer()
            return
        logger.warning(
            "coordinator could not write, loading again partition=%s-%d error=%s",
            *self.partition.key,
            error,
        )
        self._restart(f"records not appended: {error}")

    def _restart(self, reason: str) -> None:
        """Discard the state and load the log again."""
        if ShardRestarted in self._events:
            self._events.emit(ShardRestarted(*self._identity, reason))
        self._refuse_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.shard = self.topic.new_shard(self.partition.partition)
        self.is_loaded = False
        self._loading = asyncio.get_running_loop().create_task(self._load())

    # -- replying

    def partition_changed(self, partition: Partition, news: int) -> None:
        if news & News.HIGH_WATERMARK and self.is_current:
            self._send_committed()

    def _send_committed(self) -> None:
        self._deferred.complete_up_to(self.partition.log.high_watermark)

    def _perform(self, action: Any) -> None:
        assert self.topic.perform is not None
        self.topic.perform(self, action)

    def _replies_timed_out(self, refused: int) -> None:
        if refused and ReplyTimedOut in self._events:
            self._events.emit(ReplyTimedOut(*self._identity, refused))

    def drop(self) -> None:
        """Leadership has ended: pending requests are refused, so that clients find the new coordinator."""
        if ShardUnloaded in self._events:
            self._events.emit(
                ShardUnloaded(*self._identity, self.shard.open_work(), len(self._deferred))
            )
        self._is_dropped = True
        self._replicas.purgatory.unwatch(self.partition, self)
        self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._deferred.stop()
        self._refuse_all(ErrorCode.NOT_COORDINATOR)

    def _refuse_all(self, error: ErrorCode) -> None:
        self._deferred.clear()
        for pending in list(self.pending):
            pending.refuse(error)

    # -- time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.shard.next_deadline()
        if deadline < inf and self.is_loaded and self.is_current:
            delay = max(0.0, max(deadline, self._no_tick_before) - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not (self.is_loaded and self.is_current):
            return
        try:
            effects = self.shard.tick(self._clock.monotonic(), self._clock.wall_ms())
        except Exception:
            self._tick_failed()
            return
        self.apply(effects)

    def _tick_failed(self) -> None:
        """The first time, the shard is loaded again from the log. If its timers fail again, they pause, and requests are
        still served."""
        if not self._has_failed_to_tick:
            self._has_failed_to_tick = True
            logger.exception(
                "coordinator's timer failed, loading again partition=%s-%d", *self.partition.key
            )
            self._restart("a timer's action failed")
            return
        logger.exception(
            "coordinator's timer failed again, timers pause partition=%s-%d pause_s=%.0f",
            *self.partition.key,
            FAILED_TICK_PAUSE_S,
        )
        self._no_tick_before = self._clock.monotonic() + FAILED_TICK_PAUSE_S
        self._set_timer()


def _client_error(error: ErrorCode) -> ErrorCode:
    """The error for clients when a coordinator's records could not be written with `error`."""
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error is ErrorCode.INVALID_PRODUCER_EPOCH:
        return error  # of offsets in a transaction
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
