"""Requests byte by byte to one chosen broker: what clients hide, because they find the leader, wait and
try again by themselves."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.records.batch import batches
from ottla.records.record import Record, build, records
from ottla.wire import fetch, produce
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest
from ottla.wire.headers import read_response_header, request_frame
from support.cluster import HOST, ClusterNotReady, ProcessCluster, receive, wait_until

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
LATEST = -1
CONSUMER = -1
DEBUGGING_REPLICA = -2
"""A replica id that followers answer, too."""
ANSWER_S_MAX = 30


class Offsets(NamedTuple):
    leo: int
    hw: int


@dataclass
class Writer:
    """One connection to a broker that writes single records, and need not wait for their answers."""

    cluster: ProcessCluster
    broker: int
    topic: str

    def __post_init__(self) -> None:
        self.connection = socket.create_connection((HOST, self.cluster.nodes[self.broker].port), 5)
        self.sent = 0

    def send(self, value: str, acks: int, partition: int = 0) -> int:
        """Returns the correlation id that the answer will carry, if there is one."""
        batch = build([Record(0, int(time.time() * 1000), None, value.encode())])
        data = produce.PartitionData(self.topic, None, partition, memoryview(batch))
        request = produce.ProduceRequest(None, acks, 60_000, [data])
        body = produce.write_request(PRODUCE_VERSION, request)
        self.sent += 1
        self.connection.sendall(
            request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, self.sent, "test", body)
        )
        return self.sent

    @property
    def has_answer(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])

    def answer(self) -> tuple[int, produce.PartitionResult]:
        """(correlation id, result) of the next answer."""
        self.connection.settimeout(ANSWER_S_MAX)
        size = int.from_bytes(receive(self.connection, 4), "big")
        frame = memoryview(bytearray(receive(self.connection, size)))
        correlation_id, body = read_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, frame)
        (result,) = produce.read_response(PRODUCE_VERSION, frame, body).results
        return correlation_id, result

    def write(self, value: str, acks: int, partition: int = 0) -> produce.PartitionResult:
        sent = self.send(value, acks, partition)
        answered, result = self.answer()
        assert answered == sent
        return result

    def close(self) -> None:
        self.connection.close()


def write(cluster: ProcessCluster, topic: str, value: str, acks: int = -1) -> ErrorCode:
    """To partition 0, at its leader: what the broker said. LEADER_NOT_AVAILABLE if there is none. Only the
    moment in which a new leader has not heard of its election is waited out."""

    def said() -> tuple[ErrorCode]:
        leader = cluster.partitions(topic)[0].leader
        if leader < 0:
            return (ErrorCode.LEADER_NOT_AVAILABLE,)
        writer = Writer(cluster, leader, topic)
        try:
            error = ErrorCode(writer.write(value, acks).error)
        finally:
            writer.close()
        if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise ConnectionError(error.name)
        return (error,)

    return wait_until(said, 20, f"an answer for {topic}")[0]


def read(
    cluster: ProcessCluster,
    broker: int,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    last_fetched_epoch: int = -1,
    rack: str = "",
) -> FetchedPartition:
    """What this broker answers to a consumer at once, be it leader or follower."""
    asked = FetchPartition(
        topic=topic,
        topic_id=None,
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=-1,
        max_bytes=1 << 20,
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, rack_id=rack, partitions=[asked]
    )
    frame, body = cluster.exchange(
        cluster.nodes[broker],
        ApiKey.FETCH,
        FETCH_VERSION,
        fetch.write_request(FETCH_VERSION, request),
    )
    (answer,) = fetch.read_response(FETCH_VERSION, frame, body).partitions
    return answer


def values(answer: FetchedPartition) -> list[str]:
    """The values in an answer that was expected to be none of an error."""
    assert answer.error == 0, ErrorCode(answer.error).name
    if not answer.records:
        return []
    assert isinstance(answer.records, memoryview)
    return values_in(bytes(answer.records))


def values_in(log: bytes) -> list[str]:
    return [
        (record.value or b"").decode() for batch in batches(log) for record in records(log, batch)
    ]


def latest_offset(
    cluster: ProcessCluster, broker: int, topic: str, replica: int = CONSUMER
) -> int | ErrorCode:
    """ListOffsets of the end: what a consumer may read (HW), or for the debugging replica what is there."""
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    fields = {
        "replica_id": replica,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [asked]}],
    }
    answer = cluster.ask(cluster.nodes[broker], ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, fields)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else int(found.offset)


def offsets(cluster: ProcessCluster, broker: int, topic: str) -> Offsets:
    """LEO and HW of the replica on this broker, in its own words."""
    leo = latest_offset(cluster, broker, topic, DEBUGGING_REPLICA)
    answer = read(cluster, broker, topic)
    if isinstance(leo, ErrorCode) or answer.error:
        raise ClusterNotReady(f"{topic} on {broker}: {leo}, {ErrorCode(answer.error).name}")
    return Offsets(leo, answer.high_watermark)


def metadata_batches(cluster: ProcessCluster, node_id: int) -> Sequence[tuple[int, list[object]]]:
    """(base offset, records) of each batch of the metadata log on this node's disk, without the quorum's
    own control batches."""
    from ottla.metadata.records import decode

    log = cluster.log_bytes(node_id, "__cluster_metadata", 0)
    return [
        (batch.base_offset, [decode(record.value or b"") for record in records(log, batch)])
        for batch in batches(log, allow_partial=True)
        if not batch.is_control
    ]
