"""Copies without a leader: each takes reads and writes, and exchanges records with each other one directly (P43).

This is the first of the two schemes in the documents, the one that Kafka did not choose. Each copy appends what its
clients send at its own next offset, as the product's leader does. It fetches from every other copy with the product's
Fetch, and appends what it has not seen at the end of its own log. It knows what it has seen by the producer's id and
sequence, which the product's log keeps. Batches without them stay where they were written.
A fetch brings the other copy's whole log. So each record crosses each link both ways, and it survives if the copy that
took it dies after one other has it.

The copies fetch as followers do, so each copy knows how far each other one has read its log: acks=all waits for all of
them, acks=1 for none. Nobody may decide that a copy is gone for good, so acks=all waits for a dead one, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.design import NodeDesign
from ottla.broker.replication.fetchers import FETCH_VERSION
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.config.node_settings import Settings
from ottla.lab.broker_link import BACKOFF_S, BrokerLink
from ottla.lab.design import Design, Seam
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.records.batch import NO_PRODUCER_ID, Batch, assign, batches, read_batch
from ottla.replica.partition import ANY_EPOCH, LeaderAndIsr, Partition, ReplicationRules
from ottla.replica.sessions import FINAL_EPOCH
from ottla.runtime import Runtime
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchPartition, FetchRequest

ACKS_OF_COPIES = 1
"""A batch of another copy is appended without waiting for the others."""
NEVER_MS = str(365 * 24 * 3600 * 1000)


class OwnLeadership(NamedTuple):
    """The controller's decision about a partition as each of its copies takes it: it leads, and all count."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


def everyone_leads(decision: LeaderAndIsr, broker: int) -> OwnLeadership:
    return OwnLeadership(
        decision.replicas,
        decision.replicas,
        broker,
        decision.leader_epoch,
        decision.partition_epoch,
    )


class Exchange(ReplicaListener):
    """The transfer of a broker: copies each of its partitions from every other copy."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        replicas: ReplicaManager,
        cluster: ClusterView,
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
    ) -> None:
        self.settings = settings
        self.runtime = runtime
        self.replicas = replicas
        self.cluster = cluster
        self.broker_epoch = broker_epoch
        self._sources: dict[Partition, dict[int, Source]] = {}
        replicas.listeners.append(self)

    def role_changed(self, partition: Partition) -> None:
        if partition.leadership is not None:
            sources = self._sources.setdefault(partition, {})
            for broker in partition.leadership.followers:
                if broker not in sources:
                    sources[broker] = Source(self, partition, broker)

    def replica_removed(self, partition: Partition) -> None:
        for source in self._sources.pop(partition, {}).values():
            source.stop()

    def stop(self) -> None:
        for partition in list(self._sources):
            self.replica_removed(partition)


class Source:
    """Another copy of a partition, and how far this broker has read it."""

    def __init__(self, exchange: Exchange, partition: Partition, broker: int) -> None:
        self._exchange = exchange
        self._partition = partition
        self._position = 0
        self._retry: asyncio.TimerHandle | None = None
        settings = exchange.settings
        self._link = BrokerLink(
            broker,
            settings,
            exchange.runtime,
            exchange.cluster,
            f"broker-{settings.node_id}-copier-{broker}",
            port=None,
            timeout_ms=settings.replica_fetch_wait_max_ms + settings.replica_socket_timeout_ms,
            connected=self._fetch,
            lost=self._open,
        )
        self._open()

    def _open(self) -> None:
        self._link.open()

    def stop(self) -> None:
        self._link.stop()
        if self._retry is not None:
            self._retry.cancel()

    def _fetch(self) -> None:
        self._retry = None
        settings, partition = self._exchange.settings, self._partition
        asked = FetchPartition(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            current_leader_epoch=ANY_EPOCH,
            fetch_offset=self._position,
            last_fetched_epoch=-1,
            log_start_offset=partition.log.log_start,
            max_bytes=settings.replica_fetch_max_bytes,
        )
        request = FetchRequest(
            replica_id=settings.node_id,
            replica_epoch=self._exchange.broker_epoch(),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_epoch=FINAL_EPOCH,
            partitions=[asked],
        )
        body = codec.write_request(FETCH_VERSION, request)
        self._link.call(ApiKey.FETCH, FETCH_VERSION, body, self._answered)

    def _answered(self, frame: memoryview, start: int) -> None:
        answer = codec.read_response(FETCH_VERSION, frame, start).partitions[0]
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position = (
                0  # it lost the end of its log; what is read twice is not appended twice
            )
        if answer.error or not self._append_all(answer.records or memoryview(b"")):
            self._retry = asyncio.get_running_loop().call_later(BACKOFF_S, self._fetch)
        else:
            self._fetch()

    def _append_all(self, records: object) -> bool:
        """Whether all of them could be appended, or were there already."""
        assert isinstance(records, memoryview)
        partition, clock = self._partition, self._exchange.runtime.clock
        for batch in batches(records, allow_partial=True):
            leadership = partition.leadership
            if leadership is None:
                return False
            if not is_known(partition.log, batch):
                # In memory of its own and as its client sent it: the log here gives it another offset.
                own = memoryview(bytearray(records[batch.position : batch.end]))
                assign(own, read_batch(own, 0), 0, -1)
                try:
                    leadership.append(own, ACKS_OF_COPIES, clock.monotonic(), clock.wall_ms())
                except KafkaError:
                    return False
                except LogDirError as error:
                    self._exchange.replicas.directory_failed(error)
                    return False
            self._position = batch.next_offset
        return True


def is_known(log: Log, batch: Batch) -> bool:
    """Whether the log has this batch. Of one producer it has all batches up to its newest, in their order."""
    if batch.producer_id == NO_PRODUCER_ID:
        return True
    producer = log.producers.producers.get(batch.producer_id)
    return producer is not None and producer.last_sequence >= batch.last_sequence


DESIGN = Design(
    name="leaderless",
    seam=Seam.COMMIT,
    promise="P43",
    summary="All copies take reads and writes, and each copies from each other one; there is no leader and no common"
    " order.",
    part=NodeDesign(rules=ReplicationRules(role=everyone_leads), transfer=Exchange),
    settings={"replica.lag.time.max.ms": NEVER_MS},
)
