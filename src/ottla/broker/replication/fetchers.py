"""Follower replication: one connection to each broker that leads partitions of ours, one fetch after the other.

No loop sleeps here. An answer is applied when it arrives and the next fetch is sent at once; the leader parks it
until there is new data. When a partition gets a new leader, a second fetch overtakes the parked one, so that a
failover does not wait for the end of a long poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.cluster.node_channels import open_channel
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.server.deadlines import DeadlineQueue, Deadlines
from ottla.config.node_settings import Settings
from ottla.replica import follower
from ottla.replica.fetcher import FetchConversation, FetcherConfig
from ottla.replica.partition import NO_LEADER, Partition
from ottla.replica.roles import Role
from ottla.runtime import Runtime
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

logger = logging.getLogger(__name__)

CALLS_MAX = 177
"""Budget, checked by test_counted_work: the calls that a follower may make for one answer with records of one
partition, from the answer's bytes to those of its next fetch."""

FETCH_VERSION = 18
LIST_OFFSETS_VERSION = 9
LATEST = -1
"""In a replica's ListOffsets: the end of the leader's log, not the high watermark."""
EARLIEST = -2
METADATA_LAG_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Either side has not seen the newest metadata yet. Usual after each change of a leader."""
UNDER_WAY_MAX = 2
"""One fetch parked at the leader, and one that overtakes it."""


class Replication(ReplicaListener):
    """Assigns each follower on this broker to the fetcher of its leader."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        replicas: ReplicaManager,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
    ) -> None:
        self._throttle = throttle
        self._deadlines = Deadlines(runtime.clock)
        self._settings = settings
        self._runtime = runtime
        self._replicas = replicas
        self._cluster = cluster
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leaders: dict[tuple[UUID, int], int] = {}
        self._is_stopped = False
        replicas.listeners.append(self)

    def role_changed(self, partition: Partition) -> None:
        if self._is_stopped:
            return
        leader = partition.leader if partition.role is Role.FOLLOWER else NO_LEADER
        key = (partition.topic_id, partition.partition)
        if self._leaders.get(key, NO_LEADER) != leader:
            self.replica_removed(partition)
        if leader != NO_LEADER:
            self._leaders[key] = leader
            self._fetcher(leader).follow(partition)

    def joined_isr(self, partition: Partition) -> None:
        leader = self._leaders.get((partition.topic_id, partition.partition))
        if leader is not None:
            self._fetchers[leader].hurry(partition)

    def replica_removed(self, partition: Partition) -> None:
        leader = self._leaders.pop((partition.topic_id, partition.partition), None)
        if leader is not None:
            fetcher = self._fetchers[leader]
            fetcher.forget(partition)
            if not fetcher.conversation.followed:
                fetcher.stop()
                del self._fetchers[leader]

    def records_expired(self, partition: Partition) -> None:
        leader = self._leaders.get((partition.topic_id, partition.partition))
        if leader is not None:
            self._fetchers[leader].log_start_moved(partition)

    def _fetcher(self, leader: int) -> LeaderFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LeaderFetcher(
                leader,
                self._settings,
                self._runtime,
                self._replicas,
                self._cluster,
                self._broker_epoch,
                self._throttle,
                self._deadlines,
            )
        return fetcher

    def stop(self) -> None:
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._leaders.clear()


class LeaderFetcher:
    """The connection to one leader: sends the requests of a `FetchConversation` and passes on the answers."""

    def __init__(
        self,
        leader: int,
        settings: Settings,
        runtime: Runtime,
        replicas: ReplicaManager,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
        deadlines: Deadlines,
    ) -> None:
        self._leader = leader
        self._listener = settings.inter_broker_listener_name or ""
        self._client_id = f"broker-{settings.node_id}-fetcher-{leader}"
        self._backoff_s = min(settings.replica_fetch_backoff_ms / 1000, 0.05)
        self._timeout_ms = settings.replica_fetch_wait_max_ms + settings.replica_socket_timeout_ms
        self._timeout_s = self._timeout_ms / 1000
        self._deadlines = deadlines
        self._runtime = runtime
        self._replicas = replicas
        self._cluster = cluster
        self._broker_epoch = broker_epoch
        self.conversation = FetchConversation(
            FetcherConfig(
                node_id=settings.node_id,
                wait_max_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=settings.replica_fetch_min_bytes,
                response_max_bytes=settings.replica_fetch_response_max_bytes,
                partition_max_bytes=settings.replica_fetch_max_bytes,
                backoff_s=self._backoff_s,
            ),
            throttle.rest,
        )
        self._channel: Channel | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._lookups: dict[asyncio.Task[None], None] = {}
        self._under_way = 0
        self._turn: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._line: DeadlineQueue | None = None
        """The queue in which it waits for its deadline while an answer is due."""
        self._is_stopped = False

    def follow(self, partition: Partition) -> None:
        self.conversation.follow(partition)
        self._soon()

    def forget(self, partition: Partition) -> None:
        self.conversation.forget(partition.topic_id, partition.partition)

    def hurry(self, partition: Partition) -> None:
        if self.conversation.hurry(partition):
            self._soon()

    def log_start_moved(self, partition: Partition) -> None:
        self.conversation.log_start_moved(partition)
        self._soon()

    def stop(self) -> None:
        self._is_stopped = True
        self._expect_no_answer()
        for handle in (self._turn, self._alarm):
            if handle is not None:
                handle.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for task in list(self._lookups):
            task.cancel()
        if self._channel is not None:
            self._channel.abort()

    def _soon(self) -> None:
        """Many partitions change leader in one turn of the loop: put them into one request."""
        if self._turn is None and not self._is_stopped:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self._is_stopped:
            return
        if self._channel is None or self._channel.closed:
            self._channel = None
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        conversation = self.conversation
        now = self._runtime.clock.monotonic()
        conversation.wake(now)
        if not conversation.is_idle and (
            self._under_way == 0 or (conversation.has_news and self._under_way < UNDER_WAY_MAX)
        ):
            self._fetch(now)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Wake up when the first partition's backoff ends."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        retry_at = self.conversation.next_retry_at()
        if retry_at is not None:
            delay = max(0.0, retry_at - self._runtime.clock.monotonic())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._soon)

    async def _connect(self) -> None:
        try:
            while not self._is_stopped:
                address = self._cluster.address(self._leader, self._listener)
                if address is not None:
                    try:
                        channel = await asyncio.wait_for(
                            open_channel(
                                self._runtime.network,
                                self._leader,
                                address.host,
                                address.port,
                                self._client_id,
                            ),
                            self._timeout_s,
                        )
                    except (OSError, TimeoutError) as error:
                        logger.debug(
                            "cannot connect to leader broker=%d error=%s", self._leader, error
                        )
                    else:
                        self._connected(channel)
                        return
                await asyncio.sleep(self._backoff_s)
        finally:
            self._connecting = None

    def _connected(self, channel: Channel) -> None:
        self._channel = channel
        self._under_way = 0
        self.conversation.connected()
        channel.on_close.append(lambda reason: self._disconnected(channel, reason))
        self._soon()

    def _disconnected(self, channel: Channel, reason: str) -> None:
        if self._channel is not channel:
            return
        self._channel = None
        self._expect_no_answer()
        if not self._is_stopped:
            logger.info("connection to leader lost broker=%d reason=%s", self._leader, reason)
            self._alarm_reconnect()

    def _alarm_reconnect(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(self._backoff_s, self._soon)

    def _fetch(self, now: float) -> None:
        channel = self._channel
        assert channel is not None
        request = self.conversation.next_request(self._broker_epoch(), now)
        self._under_way += 1
        self._expect_no_answer()
        self._line = self._deadlines.add(self, now, self._timeout_ms)
        channel.call(
            ApiKey.FETCH,
            FETCH_VERSION,
            codec.write_request(FETCH_VERSION, request),
            lambda frame, body: self._answered(channel, frame, body),
        )

    def _expect_no_answer(self) -> None:
        if self._line is not None:
            self._line.pop(self, None)
            self._line = None

    def time_is_up(self) -> None:
        if self._channel is not None:
            self._channel.abort()

    def _answered(self, channel: Channel, frame: memoryview, body: int) -> None:
        if self._channel is not channel or self._is_stopped:
            return
        self._under_way -= 1
        now = self._runtime.clock.monotonic()
        try:
            outcome = self.conversation.answered(
                codec.read_response(FETCH_VERSION, frame, body), now
            )
        except (InvalidFrame, KafkaError) as error:
            logger.warning(
                "fetch from leader failed, closing the connection broker=%d error=%s",
                self._leader,
                error,
            )
            channel.abort()
            return
        for partition, failure in outcome.failed:
            logger.log(
                logging.DEBUG if failure.code in METADATA_LAG_ERRORS else logging.WARNING,
                "fetch of partition failed, will retry partition=%s-%d broker=%d error=%s",
                *partition.key,
                self._leader,
                failure,
            )
        for directory_error in outcome.storage_failed:
            self._replicas.directory_failed(directory_error)
        for partition in outcome.out_of_range:
            self._look_up_bounds(partition)
        self._take_turn()
        if self._under_way == 0:
            self._expect_no_answer()

    def _look_up_bounds(self, partition: Partition) -> None:
        """Our fetch offset is outside the leader's log: ask where that starts and ends."""
        task = asyncio.get_running_loop().create_task(self._restart_within_bounds(partition))
        self._lookups[task] = None
        task.add_done_callback(lambda done: self._lookups.pop(done, None))

    async def _restart_within_bounds(self, partition: Partition) -> None:
        channel = self._channel
        if channel is None:
            return
        epoch, position = partition.leader_epoch, follower.next_fetch_position(partition)
        try:
            # Two requests, because one that names a partition twice is refused.
            log_end = await self._list_offset(channel, partition, epoch, LATEST)
            log_start = await self._list_offset(channel, partition, epoch, EARLIEST)
        except (OSError, TimeoutError, InvalidFrame, KafkaError) as error:
            logger.info(
                "cannot look up bounds of the leader's log partition=%s-%d broker=%d error=%s",
                *partition.key,
                self._leader,
                error,
            )
            return
        # If a fetch has moved our end meanwhile, our log may hold records above the end that the leader reported.
        # The leader counts them as replicated, so they must not be truncated.
        now_at = partition.leader_epoch, follower.next_fetch_position(partition)
        if now_at == (epoch, position):
            with self._replicas.directories_guarded():
                follower.restart_within(partition, log_start, log_end)
            self._soon()

    async def _list_offset(
        self, channel: Channel, partition: Partition, epoch: int, timestamp: int
    ) -> int:
        answer = await channel.request(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": self.conversation.config.node_id,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": partition.topic,
                        "partitions": [
                            {
                                "partition_index": partition.partition,
                                "current_leader_epoch": epoch,
                                "timestamp": timestamp,
                            }
                        ],
                    }
                ],
            },
            version=LIST_OFFSETS_VERSION,
            timeout_s=self._timeout_s,
        )
        found = answer.topics[0].partitions[0]
        if int(found.error_code) != 0:
            raise KafkaError(ErrorCode(int(found.error_code)))
        return int(found.offset)
