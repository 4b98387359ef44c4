"""Coordinators at work: which shards this broker runs, and their way to the log and back.

A shard is loaded when this broker becomes leader of its partition, and dropped when it no longer is. Its
records are appended here, replayed at once, and its replies leave when the high watermark has passed all that
was decided before them: so nothing that a client was told can be lost in a failover.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.replication.alter_partition import NodeToControllerChannel
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.coordinators.shard import (
    CoordinatorRecord,
    Effects,
    ProducerStamp,
    Shard,
    partition_of,
)
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.records.batch import CorruptBatch, batches, check_crc
from ottla.records.record import Record, build, records
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LOAD_BYTES = 1 << 20
"""Read at a time while loading; the loop goes round in between."""
RELOAD_PAUSE_S, RELOAD_PAUSE_MAX_S = 1.0, 60.0
"""After loading failed; doubles each time."""
FAILED_TICK_PAUSE_S = 10.0
CREATE_TIMEOUT_S = 5.0

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
"""What is asked of a shard also while nothing can be written: it seldom or never leads to a record. All else is
refused before it changes anything."""
CONFIRMED = frozenset({ApiKey.OFFSET_FETCH})
"""What only the true coordinator may answer, though it needs no record for it: one that was deposed and cannot
hear of it would tell of offsets that are no longer the committed ones. A broker that is in doubt therefore
writes a record that means nothing: if its followers take it, it was still the leader when it was asked."""

Refusal = Callable[[ApiKey, int, Any, ErrorCode], Mapping[str, Any]]
"""(api, version, request message, error) -> the response that says so in that API's shape."""


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
    """How long a reply waits for its records to be committed; then the client is told to try again."""
    perform: Callable[[LiveShard, Any], None] | None = None
    """Does what a shard's `actions` ask for."""
    confirmation: CoordinatorRecord | None = None
    """Means nothing; where there is one, it is written to confirm answers (`CONFIRMED`)."""


Reply = Callable[[Mapping[str, Any]], None]


class Waiting:
    """A question at a shard: the token that stands for it."""

    __slots__ = ("api_key", "is_answered", "message", "reply", "shard", "version")

    def __init__(
        self, shard: LiveShard, api_key: ApiKey, version: int, message: Any, reply: Reply
    ) -> None:
        self.shard = shard
        self.api_key = api_key
        self.version = version
        self.message = message
        self.reply = reply
        self.is_answered = False

    def answer(self, fields: Mapping[str, Any]) -> None:
        assert not self.is_answered, self.api_key
        self.is_answered = True
        self.shard.waiting.pop(self, None)
        self.reply(fields)

    def refuse(self, error: ErrorCode) -> None:
        self.answer(self.shard.topic.refusal(self.api_key, self.version, self.message, error))


def reply_to(request: Request) -> Reply:
    """Who hung up needs no reply."""

    def reply(fields: Mapping[str, Any]) -> None:
        if not request.connection.closed:
            request.respond(fields)

    return reply


class Gathered:
    """Answers of several shards, given together when the last one is here."""

    def __init__(self, count: int, done: Callable[[list[Mapping[str, Any]]], None]) -> None:
        self._answers: list[Mapping[str, Any] | None] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def reply(self, index: int) -> Reply:
        def give(fields: Mapping[str, Any]) -> None:
            self._answers[index] = fields
            self._missing -= 1
            if self._missing == 0:
                self._done([answer for answer in self._answers if answer is not None])

        return give


class LiveShard:
    """A shard of a partition that we lead in one epoch."""

    def __init__(
        self,
        topic: InternalTopic,
        partition: Partition,
        replicas: ReplicaManager,
        in_doubt: Callable[[], bool],
    ) -> None:
        """`in_doubt`: whether the controller may have given our leadership away without our knowing."""
        self.topic = topic
        self.shard = topic.new_shard(partition.partition)
        self.partition = partition
        self.waiting: dict[Waiting, None] = {}
        self.is_loaded = False
        self._has_failed_to_load = False
        self._has_failed_to_tick = False
        self._no_tick_before = -inf
        self._leader_epoch = partition.leader_epoch
        self._replicas = replicas
        self._in_doubt = in_doubt
        self._clock = replicas.clock
        self._unsent: deque[tuple[int, float, Effects]] = deque()
        """(high watermark that the replies wait for, until when, effects), in the order of the decisions."""
        self._patience: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False
        replicas.purgatory.watch(partition, self)
        self._loading = asyncio.get_running_loop().create_task(self._load())

    @property
    def is_current(self) -> bool:
        return (
            not self._is_dropped
            and self.partition.role is Role.LEADER
            and self.partition.leader_epoch == self._leader_epoch
        )

    # -- loading

    async def _load(self) -> None:
        """Until it has been done; whoever asks meanwhile looks for the coordinator again."""
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
                    "%s-%d could not be loaded; again in %.0f s", *self.partition.key, pause_s
                )
            self._has_failed_to_load = True
            self.is_loaded = False
            self.shard = self.topic.new_shard(self.partition.partition)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RELOAD_PAUSE_MAX_S)

    async def _load_once(self) -> None:
        """Replay every record. What a former leader left uncommitted is replayed too: we lead, so it will
        be committed, or we will be deposed."""
        log = self.partition.log
        offset = log.log_start
        while offset < log.log_end and self.is_current:
            try:
                data, next_offset = _read_checked(log, offset)
            except CorruptBatch as error:
                self._replicas.replica_damaged(
                    self.partition, f"from offset {offset} on: {error.why}"
                )
                return
            self._replay(data, offset)
            offset = next_offset
            await asyncio.sleep(0)
        if self.is_current:
            effects = self.shard.loaded(self._clock.monotonic())
            self.is_loaded, self._has_failed_to_load = True, False
            self.apply(effects)

    def _replay(self, data: memoryview, from_offset: int) -> None:
        now_ms = self._clock.wall_ms()
        for batch in batches(data):
            stamp = None
            if batch.is_transactional:
                stamp = ProducerStamp(batch.producer_id, batch.producer_epoch)
            for record in records(data, batch):
                if record.offset < from_offset or record.key is None:
                    continue
                if not batch.is_control:
                    self.shard.replay(
                        record.offset, CoordinatorRecord(record.key, record.value), stamp, now_ms
                    )
                elif stamp is not None:
                    self.shard.replay_marker(stamp, _is_commit(record.key))

    # -- deciding

    def ask(self, api_key: ApiKey, version: int, message: Any, reply: Reply) -> None:
        waiting = Waiting(self, api_key, version, message, reply)
        self.waiting[waiting] = None
        if not self.is_loaded:
            waiting.refuse(
                ErrorCode.NOT_COORDINATOR
                if self._has_failed_to_load
                else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )
            return
        if self.partition.is_under_min_isr and api_key not in WRITES_LITTLE:
            waiting.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            effects = self.shard.handle(api_key, version, message, waiting, now, now_ms)
        except Exception:
            self.waiting.pop(waiting, None)
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
            self._unsent.append((self.partition.log.log_end, until, effects))
            self._send_committed()
            if self._unsent and self._patience is None:
                self._wait_until(until)
        self._set_timer()

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
        """The decision did not happen. If the shard counted on it, it begins again from the log."""
        if effects.only_records:
            for token, _ in effects.replies:
                assert isinstance(token, Waiting)
                token.refuse(_told_to_clients(error.code))
            self._set_timer()
            return
        logger.warning("%s-%d: %s; loading it anew", *self.partition.key, error)
        self._begin_again()

    def _begin_again(self) -> None:
        self._refuse_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.shard = self.topic.new_shard(self.partition.partition)
        self.is_loaded = False
        self._loading = asyncio.get_running_loop().create_task(self._load())

    # -- what the log tells

    def partition_changed(self, partition: Partition, news: int) -> None:
        if news & News.HIGH_WATERMARK and self.is_current:
            self._send_committed()

    def _send_committed(self) -> None:
        high_watermark = self.partition.log.high_watermark
        while self._unsent and self._unsent[0][0] <= high_watermark:
            _, _, effects = self._unsent.popleft()
            for token, fields in effects.replies:
                assert isinstance(token, Waiting)
                if not token.is_answered:
                    token.answer(fields)
            for action in effects.actions:
                assert self.topic.perform is not None
                self.topic.perform(self, action)

    def _wait_until(self, until: float) -> None:
        delay = max(0.0, until - self._clock.monotonic())
        self._patience = asyncio.get_running_loop().call_later(delay, self._lose_patience)

    def _lose_patience(self) -> None:
        """What was decided stays decided, and may be committed yet; but nobody waits for ever, and what nobody
        waits for is not kept."""
        self._patience = None
        now = self._clock.monotonic()
        late: list[tuple[int, float, Effects]] = []
        while self._unsent and self._unsent[0][1] <= now:
            end, until, effects = self._unsent.popleft()
            for token, _ in effects.replies:
                assert isinstance(token, Waiting)
                if not token.is_answered:
                    token.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if effects.actions:
                late.append((end, until, replace(effects, replies=())))
        if self._unsent:
            self._wait_until(self._unsent[0][1])
        self._unsent.extendleft(reversed(late))

    def drop(self) -> None:
        """Leadership is gone: whoever waits looks for the new coordinator."""
        self._is_dropped = True
        self._replicas.purgatory.unwatch(self.partition, self)
        self._loading.cancel()
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()
        self._refuse_all(ErrorCode.NOT_COORDINATOR)

    def _refuse_all(self, error: ErrorCode) -> None:
        self._unsent.clear()
        for waiting in list(self.waiting):
            waiting.refuse(error)

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
        """It begins again from the log, once. Where that did not help, all that needs no timer goes on."""
        if not self._has_failed_to_tick:
            self._has_failed_to_tick = True
            logger.exception("%s-%d failed; loading it anew", *self.partition.key)
            self._begin_again()
            return
        logger.exception(
            "%s-%d failed again; its timers wait %.0f s", *self.partition.key, FAILED_TICK_PAUSE_S
        )
        self._no_tick_before = self._clock.monotonic() + FAILED_TICK_PAUSE_S
        self._set_timer()


def _read_checked(log: Log, offset: int) -> tuple[memoryview, int]:
    """Some batches from `offset` on, and where the next begin. CorruptBatch if they are not as they were
    written: then this replica is damaged, and no other, since followers check what they copy."""
    read = log.read(offset, max_bytes=LOAD_BYTES, end_offset=log.log_end)
    if read.range is None:
        return memoryview(b""), log.log_end
    data = memoryview(read.range.read())
    expected = offset
    for batch in batches(data):
        try:
            check_crc(data, batch)
        except CorruptBatch as error:
            why = f"in the batch at offset {batch.base_offset}, {error.why}"
            raise CorruptBatch(batch.position, why) from error
        # Its offset is not under the CRC. Only the first may begin before what was asked for.
        first = batch.base_offset if batch.position else batch.last_offset
        if not (expected <= first and batch.last_offset < log.log_end):
            why = f"offset {batch.base_offset} does not belong where {expected} or a later one does"
            raise CorruptBatch(batch.position, why)
        expected = batch.last_offset + 1
    return data, read.next_offset


def _told_to_clients(error: ErrorCode) -> ErrorCode:
    """Why a coordinator's records could not be written, in words that a client acts upon."""
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error is ErrorCode.INVALID_PRODUCER_EPOCH:
        return error  # of a transaction's offsets
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _is_commit(key: bytes) -> bool:
    """A marker's key is its version and its type: 0 abort, 1 commit."""
    return int.from_bytes(key[2:4], "big") == 1


class Coordination(ReplicaListener):
    """The shards of all internal topics on this broker, and where those of others are."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cluster: ClusterView,
        controller: NodeToControllerChannel,
        topics: list[InternalTopic],
        in_doubt: Callable[[], bool],
    ) -> None:
        self._replicas = replicas
        self._in_doubt = in_doubt
        self._cluster = cluster
        self._controller = controller
        self._topics = {topic.name: topic for topic in topics}
        self._live: dict[Partition, LiveShard] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}
        replicas.listeners.append(self)

    def role_changed(self, partition: Partition) -> None:
        topic = self._topics.get(partition.topic)
        if topic is None:
            return
        self.replica_removed(partition)
        if partition.role is Role.LEADER:
            self._live[partition] = LiveShard(topic, partition, self._replicas, self._in_doubt)

    def replica_removed(self, partition: Partition) -> None:
        live = self._live.pop(partition, None)
        if live is not None:
            live.drop()

    def stop(self) -> None:
        for partition in list(self._live):
            self.replica_removed(partition)

    def marker_appended(
        self, partition: Partition, producer: ProducerStamp, committed: bool
    ) -> None:
        """A transaction that may have written into this partition has ended. A shard that is still being
        loaded comes to it by itself."""
        live = self._live.get(partition)
        if live is not None and live.is_loaded:
            live.shard.replay_marker(producer, committed)

    def serves(self, topic: str) -> bool:
        return topic in self._topics

    def shard(self, topic: str, key: str) -> LiveShard:
        """The shard here that coordinates `key`; KafkaError NOT_COORDINATOR if another broker does."""
        image = self._cluster.image.topics.get(topic)
        if image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found = self._replicas.find(topic, None, partition_of(key, len(image.partitions)))
        live = self._live.get(found) if isinstance(found, Partition) else None
        if live is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return live

    def shards(self, topic: str) -> list[LiveShard]:
        """Every shard of a topic here, for requests about all groups or transactions (ListGroups)."""
        return [live for live in self._live.values() if live.topic.name == topic]

    async def coordinator_of(self, topic: str, key: str) -> int:
        """The broker that coordinates `key`; the internal topic is created when it is first needed."""
        await self._ensure(topic)
        image = self._cluster.image.topics.get(topic)
        if image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = image.partitions[partition_of(key, len(image.partitions))].leader
        if leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    async def _ensure(self, name: str) -> None:
        if name in self._cluster.image.topics:
            return
        task = self._creating.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create(self._topics[name]))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await asyncio.shield(task)

    async def _create(self, topic: InternalTopic) -> None:
        brokers = sum(not broker.fenced for broker in self._cluster.image.brokers.values())
        request = {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        try:
            answer = await self._controller.request(
                ApiKey.CREATE_TOPICS,
                {
                    "topics": [request],
                    "timeout": int(CREATE_TIMEOUT_S * 1000),
                    "validate_only": False,
                },
                timeout_s=CREATE_TIMEOUT_S,
            )
            error = ErrorCode(int(answer.topics[0].error_code))
            if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                logger.warning(
                    "%s cannot be created with %d replicas on %d brokers: %s",
                    topic.name,
                    topic.replication_factor,
                    brokers,
                    error.name,
                )
                return
            await asyncio.wait_for(
                self._cluster.wait_for(lambda image: topic.name in image.topics), CREATE_TIMEOUT_S
            )
        except (OSError, TimeoutError, KafkaError) as error:
            logger.warning("%s is not created yet: %s", topic.name, error)
