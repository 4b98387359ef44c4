"""Push with acknowledgements: the leader sends each batch to each follower, and each follower acknowledges each (P49).

This is what Kafka does not do: "RabbitMQ tells by ack messages". A push is the answer to a fetch that nobody sent, and
its acknowledgement is the position that the next fetch would name. Both have the product's encoding of Fetch, on a
listener of their own, and both sides handle them as the product does: the follower with `follower.apply_fetch_answer`,
the leader with `Leadership.serve_follower`. So the high watermark, the ISR and acks=all work as in the product.

A follower catches up by the product's fetches: in each new leader epoch, after a restart, after a lost connection and
whenever a push does not continue its log. Once it is in the ISR, the leader pushes to it, and it stops fetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.design import NodeDesign
from ottla.broker.replication.fetchers import FETCH_VERSION, Replication
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.server import Server
from ottla.config.node_settings import Settings
from ottla.lab.broker_link import BrokerLink
from ottla.lab.design import Design, Seam
from ottla.log.errors import LogDirError
from ottla.records.batch import batches, read_batch
from ottla.replica import follower
from ottla.replica.follower_progress import UNKNOWN_OFFSET
from ottla.replica.leader import Leadership
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.runtime import Runtime
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest

PUSH_PORT = 9094
READ_BYTES = 64 * 1024
IN_FLIGHT_MAX = 1000
"""Pushes to one follower of one partition without an acknowledgement."""
NOT_PUSHED_TO = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
"""In a push without records: the follower has to fetch."""


class PushReplication(Replication):
    """The transfer of a broker: pushes what it leads, takes what is pushed to it, and fetches otherwise."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        replicas: ReplicaManager,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
    ) -> None:
        super().__init__(settings, runtime, replicas, cluster, broker_epoch, throttle)
        self._pushed: dict[Partition, ServerConnection] = {}
        """The followers here that are pushed to, and over which connection."""
        self._led: dict[Partition, LedPartition] = {}
        self._links: dict[int, BrokerLink] = {}
        self._server = Server(
            "PUSH",
            {ApiKey.FETCH: self._take},
            frame_bytes_max=settings.socket_request_max_bytes,
            idle_max_s=float("inf"),
        )
        host = settings.broker_listeners[0].host
        self._listening = asyncio.get_running_loop().create_task(
            self._server.listen(runtime.network, host, PUSH_PORT)
        )

    # -- roles -------------------------------------------------------------------------------------

    def role_changed(self, partition: Partition) -> None:
        if self._is_stopped:
            return
        self._forget(partition)
        super().role_changed(partition)
        if partition.leadership is not None:
            led = LedPartition(self, partition, partition.leadership)
            self._led[partition] = led
            self._replicas.purgatory.watch(partition, led)

    def replica_removed(self, partition: Partition) -> None:
        self._forget(partition)
        super().replica_removed(partition)

    def _forget(self, partition: Partition) -> None:
        self._pushed.pop(partition, None)
        led = self._led.pop(partition, None)
        if led is not None:
            led.end()
            self._replicas.purgatory.unwatch(partition, led)

    def stop(self) -> None:
        for partition in list(self._led):
            self._forget(partition)
        self._pushed.clear()
        super().stop()
        self._listening.cancel()
        self._server.close()
        for link in self._links.values():
            link.stop()

    # -- the leader's side -------------------------------------------------------------------------

    def link(self, broker: int) -> BrokerLink:
        link = self._links.get(broker)
        if link is None:
            settings = self._settings
            link = self._links[broker] = BrokerLink(
                broker,
                settings,
                self._runtime,
                self._cluster,
                f"broker-{settings.node_id}-pusher-{broker}",
                port=PUSH_PORT,
                timeout_ms=settings.replica_socket_timeout_ms,
                connected=lambda: self._link_opened(broker),
                lost=lambda: self._link_lost(broker),
            )
        return link

    def _link_opened(self, broker: int) -> None:
        """The follower may still count on pushes over a connection of which only this side knows that it is lost."""
        for led in list(self._led.values()):
            if broker in led.leadership.followers:
                led.send_to_fetch(broker)
                led.push()

    def _link_lost(self, broker: int) -> None:
        for led in self._led.values():
            led.streams.pop(broker, None)

    def directory_failed(self, error: LogDirError) -> None:
        self._replicas.directory_failed(error)

    def now(self) -> float:
        return self._runtime.clock.monotonic()

    @property
    def commit_news_s(self) -> float:
        """How long a follower of the product may wait for the news of a commit: one long poll."""
        return self._settings.replica_fetch_wait_max_ms / 1000

    # -- the follower's side -----------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        """A push: apply it, and acknowledge it with the position of our log."""
        pushed = codec.read_response(FETCH_VERSION, request.frame, request.header.body).partitions[
            0
        ]
        assert pushed.topic_id is not None and pushed.current_leader is not None
        partition = self._replicas.by_id.get((pushed.topic_id, pushed.partition))
        positions: list[FetchPartition] = []
        is_ours = (
            partition is not None
            and partition.role is Role.FOLLOWER
            and (partition.leader, partition.leader_epoch) == pushed.current_leader
        )
        if partition is not None and is_ours and not self._is_stopped:
            try:
                self._apply(partition, pushed, request.connection)
                positions.append(_position(partition))
            except KafkaError:
                self._fetch_again(partition)
            except LogDirError as error:
                self._replicas.directory_failed(error)
        ack = FetchRequest(
            replica_id=self._settings.node_id,
            replica_epoch=self._broker_epoch(),
            partitions=positions,
        )
        request.respond_chunks([codec.write_request(FETCH_VERSION, ack)])

    def _apply(
        self, partition: Partition, pushed: FetchedPartition, connection: ServerConnection
    ) -> None:
        if pushed.error == NOT_PUSHED_TO or self._pushed.get(partition, connection) != connection:
            self._fetch_again(partition)
        if pushed.error:
            return
        records, log = pushed.records, partition.log
        if records:
            assert isinstance(records, memoryview)
            batch = read_batch(records, 0)
            if batch.last_offset < log.log_end:
                pushed = pushed._replace(records=None)  # a fetch has brought it already
            elif batch.base_offset != log.log_end:
                self._fetch_again(partition)
                return
            if partition not in self._pushed:
                super().replica_removed(partition)  # no more fetches
                self._pushed[partition] = connection
                connection.on_close.append(lambda: self._connection_closed(connection))
        follower.apply_fetch_answer(partition, pushed, partition.leader_epoch)

    def _connection_closed(self, connection: ServerConnection) -> None:
        for partition in [p for p, used in self._pushed.items() if used is connection]:
            self._fetch_again(partition)

    def _fetch_again(self, partition: Partition) -> None:
        if self._pushed.pop(partition, None) is not None:
            super().role_changed(partition)


def _position(partition: Partition) -> FetchPartition:
    """What the follower's next fetch would name."""
    offset, last_epoch = follower.next_fetch_position(partition)
    return FetchPartition(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=partition.log.log_start,
        max_bytes=0,
    )


@dataclass
class Stream:
    """The pushes to one follower since it was last known to be in step."""

    next_offset: int
    in_flight: int = 0
    told_high_watermark: int = UNKNOWN_OFFSET
    told_at: float = 0.0


class LedPartition:
    """What a leader pushes of one partition in one leader epoch. It watches the partition's news."""

    def __init__(
        self, transfer: PushReplication, partition: Partition, leadership: Leadership
    ) -> None:
        self.leadership = leadership
        self.streams: dict[int, Stream] = {}
        """By follower. The others fetch."""
        self._transfer = transfer
        self._partition = partition
        self._commit_news: asyncio.TimerHandle | None = None

    @property
    def _is_current(self) -> bool:
        return self._partition.leadership is self.leadership

    def end(self) -> None:
        self.streams.clear()
        if self._commit_news is not None:
            self._commit_news.cancel()

    def partition_changed(self, partition: Partition, news: int) -> None:
        if not self._is_current:
            return
        if news & News.LOG_END:
            self.push()
        if news & News.FOLLOWER:
            # A fetch that was sent before the first push came later than an acknowledgement: ask again.
            for broker in list(self.streams):
                self._send(broker, None)
        if news & News.HIGH_WATERMARK and self._commit_news is None:
            self._tell_commits_in(self._transfer.commit_news_s)

    def push(self) -> None:
        """Send each follower in step the batches that it was not sent yet, one message for each."""
        if not self._is_current:
            return
        partition, log = self._partition, self.leadership.log
        for broker, progress in self.leadership.followers.items():
            link = self._transfer.link(broker)
            if not link.is_open:
                link.open()
                continue
            if (
                broker not in self.streams
                and broker in partition.isr
                and progress.log_end != UNKNOWN_OFFSET
                and partition.eligible_broker_epoch(broker) == progress.broker_epoch
            ):
                self.streams[broker] = Stream(progress.log_end)
            stream = self.streams.get(broker)
            if stream is None or not log.log_start <= stream.next_offset:
                continue
            try:
                self._push_to(broker, stream)
            except KafkaError:
                self.send_to_fetch(
                    broker
                )  # it is damaged here; the follower's fetch deals with that
            except LogDirError as error:
                self._transfer.directory_failed(error)
                return

    def _push_to(self, broker: int, stream: Stream) -> None:
        for records, next_offset in self._batches(stream.next_offset):
            if stream.in_flight >= IN_FLIGHT_MAX:
                return
            stream.next_offset = next_offset
            self._send(broker, records)

    def _batches(self, offset: int) -> Iterator[tuple[bytes, int]]:
        """(bytes, next offset) of each batch from there to the end of the log."""
        log = self.leadership.log
        end = log.log_end
        while offset < end:
            found, _ = log.read(offset, max_bytes=READ_BYTES, end_offset=end)
            if found is None:
                return
            data = found.read()
            for batch in batches(data):
                yield data[batch.position : batch.end], batch.next_offset
                offset = batch.next_offset

    def _send(self, broker: int, records: bytes | None) -> None:
        stream = self.streams[broker]
        log = self.leadership.log
        stream.in_flight += 1
        stream.told_high_watermark = log.high_watermark
        stream.told_at = self._transfer.now()
        expected = stream.next_offset
        answer = self._partition.answer(None)._replace(records=records)
        self._call(broker, answer, lambda ack: self._acknowledged(broker, stream, ack, expected))

    def send_to_fetch(self, broker: int) -> None:
        """Nothing is pushed to this follower: it has to fetch."""
        self.streams.pop(broker, None)
        self._call(broker, self._partition.refuse_fetch(NOT_PUSHED_TO), lambda ack: None)

    def _call(
        self, broker: int, answer: FetchedPartition, acknowledged: Callable[[FetchRequest], None]
    ) -> None:
        named = answer._replace(current_leader=(self._partition.leader, self.leadership.epoch))
        body = b"".join(
            bytes(chunk)  # type: ignore[arg-type]
            for chunk in codec.write_response(FETCH_VERSION, ErrorCode.NONE, 0, [named])
        )
        self._transfer.link(broker).call(
            ApiKey.FETCH,
            FETCH_VERSION,
            body,
            lambda frame, start: acknowledged(codec.read_request(FETCH_VERSION, frame, start)),
        )

    def _acknowledged(self, broker: int, stream: Stream, ack: FetchRequest, expected: int) -> None:
        if not self._is_current or self.streams.get(broker) is not stream:
            return
        stream.in_flight -= 1
        in_step = False
        for position in ack.partitions:
            answer = self.leadership.serve_follower(
                position, ack.replica_id, ack.replica_epoch, 0, False, self._transfer.now()
            )
            in_step = not answer.error and not answer.diverging
            in_step = in_step and position.fetch_offset >= expected
        if not in_step:
            self.send_to_fetch(broker)
        elif stream.next_offset < self.leadership.log.log_end:
            asyncio.get_running_loop().call_soon(self.push)

    def _tell_commits_in(self, seconds: float) -> None:
        self._commit_news = asyncio.get_running_loop().call_later(seconds, self._tell_commits)

    def _tell_commits(self) -> None:
        """Usually the next push tells of a commit. A follower that got none for a while gets one without records."""
        self._commit_news = None
        if not self._is_current:
            return
        now, wait_s = self._transfer.now(), self._transfer.commit_news_s
        remaining = [
            (broker, wait_s - (now - stream.told_at))
            for broker, stream in self.streams.items()
            if stream.told_high_watermark < self.leadership.log.high_watermark
        ]
        for broker, rest_s in remaining:
            if rest_s <= 0:
                self._send(broker, None)
        later = [rest_s for _, rest_s in remaining if rest_s > 0]
        if later:
            self._tell_commits_in(min(later))


DESIGN = Design(
    name="push-with-acks",
    seam=Seam.TRANSFER,
    promise="P49",
    summary="The leader sends each batch to each follower as it arrives, and each follower acknowledges each batch.",
    part=NodeDesign(transfer=PushReplication),
)
