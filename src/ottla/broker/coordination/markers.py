"""Transaction markers: the coordinator sends them, the leaders of the partitions write them.

The sender repeats each marker until its partition has it: the outcome is decided, and no other node will send it. After a
failover the new coordinator sends all of them again. A partition that has a marker already refuses it, or writes it a second
time without effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from struct import Struct
from typing import Any

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.live_shard import LiveShard
from ottla.broker.coordination.pending_replies import Reply
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.coordinators.shard import ProducerStamp
from ottla.coordinators.transactions.transaction_shard import (
    EPOCH_BUMPS_SINCE,
    MarkersWritten,
    SendMarkers,
)
from ottla.log.errors import LogDirError
from ottla.records.record import ControlType, control_batch
from ottla.replica.partition import Partition
from ottla.security import needs
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.messages import field
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

RETRY_S = 0.05
MARKERS_AT_ONCE_MAX = 500
"""Transactions that one request ends."""

_MARKER_VALUE = Struct(">hi")
"""Version 0 and the coordinator's epoch."""

MARKER_IS_WRITTEN = (
    ErrorCode.NONE,
    # The partition has seen this epoch, or a later one: this transaction has ended there.
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)


class PendingCompleteTransaction:
    """One transaction whose markers are being sent."""

    def __init__(self, live: LiveShard, markers: SendMarkers) -> None:
        self.live = live
        self.markers = markers
        self.missing = set(markers.partitions)

    def fields(self, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        return {
            "producer_id": self.markers.producer_id,
            "producer_epoch": self.markers.producer_epoch,
            "transaction_result": self.markers.commit,
            "topics": [
                {"name": name, "partition_indexes": numbers} for name, numbers in topics.items()
            ],
            "coordinator_epoch": self.live.partition.leader_epoch,
            "transaction_version": self.markers.transaction_version,
        }


class MarkerSender:
    """The coordinator's side. It batches markers for the same broker and has one request to each broker in flight."""

    def __init__(self, cluster: ClusterView, peers: BrokerChannels, timeout_s: float) -> None:
        self._cluster = cluster
        self._peers = peers
        self._timeout_s = timeout_s
        self._queues: dict[int, list[tuple[PendingCompleteTransaction, list[TopicPartition]]]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._again: dict[PendingCompleteTransaction, set[TopicPartition]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def send(self, live: LiveShard, markers: Any) -> None:
        assert isinstance(markers, SendMarkers)
        pending = PendingCompleteTransaction(live, markers)
        self._dispatch(pending, pending.missing)
        self._finish_if_done(pending)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._senders.values():
            task.cancel()

    def _dispatch(
        self, pending: PendingCompleteTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        """To the current leaders. A deleted partition needs no marker."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in sorted(partitions):
            found = self._cluster.leader_of(key.topic, None, key.partition)
            if found is None:
                pending.missing.discard(key)
            elif found[0] < 0:
                self._later(pending, [key])
            else:
                by_leader.setdefault(found[0], []).append(key)
        for leader, keys in by_leader.items():
            self._queues.setdefault(leader, []).append((pending, keys))
            if leader not in self._senders:
                self._senders[leader] = asyncio.get_running_loop().create_task(
                    self._send_to(leader)
                )

    async def _send_to(self, leader: int) -> None:
        try:
            while queue := self._queues.pop(leader, None):
                if len(queue) > MARKERS_AT_ONCE_MAX:
                    self._queues[leader] = queue[MARKERS_AT_ONCE_MAX:]
                await self._send(
                    leader,
                    [entry for entry in queue[:MARKERS_AT_ONCE_MAX] if entry[0].live.is_current],
                )
        finally:
            del self._senders[leader]

    async def _send(
        self, leader: int, entries: list[tuple[PendingCompleteTransaction, list[TopicPartition]]]
    ) -> None:
        if not entries:
            return
        try:
            answer = await self._peers.request(
                leader,
                ApiKey.WRITE_TXN_MARKERS,
                {"markers": [pending.fields(keys) for pending, keys in entries]},
                timeout_s=self._timeout_s,
            )
        except (OSError, InvalidFrame, KafkaError) as error:
            logger.info("sending markers again broker=%d error=%s", leader, error)
            for pending, keys in entries:
                self._later(pending, keys)
            return
        errors = {
            (marker.producer_id, topic.name, result.partition_index): ErrorCode(
                int(result.error_code)
            )
            for marker in answer.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        for pending, keys in entries:
            for key in keys:
                asked = (pending.markers.producer_id, *key)
                self._answered(pending, key, errors.get(asked, ErrorCode.UNKNOWN_SERVER_ERROR))
            self._finish_if_done(pending)

    def _answered(
        self, pending: PendingCompleteTransaction, key: TopicPartition, error: ErrorCode
    ) -> None:
        if error in MARKER_IS_WRITTEN:
            pending.missing.discard(key)
        elif error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            logger.info("marker refused, there is a newer coordinator partition=%s-%d", *key)
        else:
            logger.debug(
                "marker not written, sending it again transactional_id=%s partition=%s-%d error=%s",
                pending.markers.transactional_id,
                *key,
                error,
            )
            self._later(pending, [key])

    def _later(self, pending: PendingCompleteTransaction, keys: Iterable[TopicPartition]) -> None:
        self._again.setdefault(pending, set()).update(keys)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        again, self._again = self._again, {}
        for pending, keys in again.items():
            if pending.live.is_current:
                self._dispatch(pending, keys)
                self._finish_if_done(pending)

    def _finish_if_done(self, pending: PendingCompleteTransaction) -> None:
        if pending.missing or not pending.live.is_current:
            return
        markers = pending.markers
        pending.live.ask(
            ApiKey.WRITE_TXN_MARKERS,
            0,
            MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch),
            self._finished(pending),
        )

    def _finished(self, pending: PendingCompleteTransaction) -> Reply:
        def reply(fields: Any) -> None:
            # A shard that loads its log again sends the markers again anyway.
            if fields["error"] is ErrorCode.COORDINATOR_NOT_AVAILABLE and pending.live.is_loaded:
                self._later(pending, ())

        return reply


class MarkerHandler:
    def __init__(
        self, replicas: ReplicaManager, coordination: Coordination, timeout_s: float
    ) -> None:
        self._replicas = replicas
        self._coordination = coordination
        self._timeout_s = timeout_s

    @serves(ApiKey.WRITE_TXN_MARKERS)
    def __call__(self, request: Request) -> None:
        """WriteTxnMarkers 1-2, for the partitions led here. Answered when every marker is committed."""
        message = request.message()
        parked = ParkedMarkers(request)
        if not needs.WRITE_MARKERS.met(request.rights):
            parked.refuse(message, needs.WRITE_MARKERS.denied)
            return
        for marker in message.markers:
            for topic in marker.topics:
                for number in topic.partition_indexes:
                    self._write(marker, topic.name, number, parked)
        parked.park(self._replicas, self._timeout_s)

    def _write(self, marker: Any, topic: str, number: int, parked: ParkedMarkers) -> None:
        key = marker.producer_id, topic, number
        try:
            partition = self._replicas.get(topic, number)
            end = self._append(marker, partition)
        except KafkaError as error:
            parked.errors[key] = error.code
            if error.code in MARKER_IS_WRITTEN:
                if _is_repeated(marker, partition):
                    # Kafka's coordinator gives up a transaction, and its id with it, after INVALID_PRODUCER_EPOCH.
                    parked.errors[key] = ErrorCode.NONE
                # The marker is in the log already. It counts once it is committed: until then a leader may lose it.
                parked.wait_for(partition, partition.log.log_end, key)
        except LogDirError as error:
            parked.errors[key] = self._replicas.directory_failed(error).code
        else:
            parked.errors[key] = ErrorCode.NONE
            parked.wait_for(partition, end, key)

    def _append(self, marker: Any, partition: Partition) -> int:
        if marker.producer_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the marker of no producer")
        clock = self._replicas.clock
        now_ms = clock.wall_ms()
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        batch = control_batch(
            [(kind, _MARKER_VALUE.pack(0, marker.coordinator_epoch))],
            timestamp=now_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
        )
        appended = partition.leading().append_marker(
            batch,
            clock.monotonic(),
            now_ms,
            bumps_epoch=field(marker, "transaction_version", 0) >= EPOCH_BUMPS_SINCE,
        )
        stamp = ProducerStamp(marker.producer_id, marker.producer_epoch)
        self._coordination.marker_appended(partition, stamp, marker.transaction_result)
        return appended.last_offset + 1


def _is_repeated(marker: Any, partition: Partition) -> bool:
    """Whether this very marker is in the log (KAFKA-19999): its answer was lost, or its coordinator has moved. With epoch
    bumps no other has its epoch, but that of a transaction that is open now."""
    producers = partition.log.producers
    known = producers.producers.get(marker.producer_id)
    return (
        field(marker, "transaction_version", 0) >= EPOCH_BUMPS_SINCE
        and known is not None
        and known.epoch == marker.producer_epoch
        and not producers.has_open_transaction(marker.producer_id, marker.producer_epoch)
    )


class ParkedMarkers:
    """A request whose markers are appended and not committed in all partitions yet."""

    def __init__(self, request: Request) -> None:
        self.errors: dict[tuple[int, str, int], ErrorCode] = {}
        """By producer id, topic and partition, in the order of the request."""
        self.waiting_for: dict[Partition, list[tuple[int, tuple[int, str, int]]]] = {}
        """The offsets that each partition must commit, in the order of its log."""
        self._request = request
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, partition: Partition, end: int, key: tuple[int, str, int]) -> None:
        if partition.log.high_watermark < end:
            self.waiting_for.setdefault(partition, []).append((end, key))

    def refuse(self, message: Any, error: ErrorCode) -> None:
        for marker in message.markers:
            for topic in marker.topics:
                for number in topic.partition_indexes:
                    self.errors[marker.producer_id, topic.name, number] = error
        self._answer()

    def park(self, replicas: ReplicaManager, timeout_s: float) -> None:
        if not self.waiting_for:
            self._answer()
            return
        for partition, entries in self.waiting_for.items():
            for end, _ in entries:
                replicas.purgatory.await_commit(partition, end, self)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out, replicas)

    def committed(self, partition: Partition) -> None:
        self._done(partition, ErrorCode.NONE)

    def not_committed(self, partition: Partition, error: ErrorCode) -> None:
        self._done(partition, error)

    def _done(self, partition: Partition, error: ErrorCode) -> None:
        entries = self.waiting_for[partition]
        _, key = entries.pop(0)
        self.errors[key] = error
        if not entries:
            del self.waiting_for[partition]
        if not self.waiting_for:
            assert self._timer is not None
            self._timer.cancel()
            self._answer()

    def _time_out(self, replicas: ReplicaManager) -> None:
        for partition, entries in self.waiting_for.items():
            replicas.purgatory.stop_awaiting(partition, self)
            for _, key in entries:
                self.errors[key] = ErrorCode.REQUEST_TIMED_OUT
        self._answer()

    def _answer(self) -> None:
        if self._request.connection.closed:
            return
        markers: dict[int, dict[str, list[dict[str, Any]]]] = {}
        for (producer_id, topic, number), error in self.errors.items():
            markers.setdefault(producer_id, {}).setdefault(topic, []).append(
                {"partition_index": number, "error_code": error}
            )
        self._request.respond(
            {
                "markers": [
                    {
                        "producer_id": producer_id,
                        "topics": [
                            {"name": name, "partitions": partitions}
                            for name, partitions in topics.items()
                        ],
                    }
                    for producer_id, topics in markers.items()
                ]
            }
        )
