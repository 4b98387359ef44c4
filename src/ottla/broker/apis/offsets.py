"""Where things are in a partition's log: ListOffsets, OffsetForLeaderEpoch; and cutting its head:
DeleteRecords."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ottla.broker.replication.first_unread import first_unread, offset_in
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.events.replication import RecordsDeleted
from ottla.log.errors import LogDirError
from ottla.replica.observer import News
from ottla.replica.partition import ANY_EPOCH, Partition
from ottla.runtime.turns import Turns
from ottla.security.needs import CLUSTER_ACTION, DELETE_FROM_TOPIC, DESCRIBE_TOPIC_OR_FOLLOW
from ottla.security.operations import CLUSTER_NAME
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

LATEST = -1
CONSUMER = -1
DEBUGGING_REPLICA = -2
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

NO_TIMESTAMP = -1
NO_OFFSET = -1
NOT_FOUND = {"timestamp": NO_TIMESTAMP, "offset": NO_OFFSET, "leader_epoch": -1}
HIGH_WATERMARK = -1
"""In DeleteRecords: everything that is committed."""

SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
ISOLATION_LEVELS = (0, 1)
"""Uncommitted, committed."""
OFFSET_NOT_AVAILABLE_SINCE = 5
NEVER = 1 << 15


class OffsetHandlers:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    # -- ListOffsets ---------------------------------------------------------------------------------

    @serves(ApiKey.LIST_OFFSETS)
    def list_offsets(self, request: Request) -> None:
        """ListOffsets 1-11: by time, and the special times -1 to -6; between brokers also by offset
        (`replication.first_unread`). Left out: tiered storage; nothing is ever tiered."""
        message = request.message()
        if any(
            offset_in(_timestamp(asked.timestamp)) is not None
            for topic in message.topics
            for asked in topic.partitions
        ):
            request.run(self._list_unread(request, message))
            return
        isolation_level = int(messages.field(message, "isolation_level", 0))
        read_committed = isolation_level == 1
        replica_id = int(message.replica_id)
        if replica_id >= 0 and not CLUSTER_ACTION.sees(request.rights, CLUSTER_NAME):
            # Kafka believes it, and tells it the end of the log, with what is not committed.
            replica_id = CONSUMER
        counts = Counter(
            (topic.name, asked.partition_index)
            for topic in message.topics
            for asked in topic.partitions
        )
        topics = []
        for topic in message.topics:
            partitions = []
            for asked in topic.partitions:
                try:
                    if not DESCRIBE_TOPIC_OR_FOLLOW.met(request.rights, topic.name):
                        raise KafkaError(DESCRIBE_TOPIC_OR_FOLLOW.denied)
                    if isolation_level not in ISOLATION_LEVELS:
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    if counts[topic.name, asked.partition_index] > 1:
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    if not _is_known(_timestamp(asked.timestamp), request.version):
                        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                    timestamp, offset, epoch = self._offset(
                        self._replicas.get(topic.name, asked.partition_index),
                        messages.field(asked, "current_leader_epoch", ANY_EPOCH),
                        _timestamp(asked.timestamp),
                        read_committed,
                        replica_id,
                    )
                    error = ErrorCode.NONE
                except KafkaError as failure:
                    timestamp, offset, epoch = NO_TIMESTAMP, NO_OFFSET, -1
                    error = failure.code
                    if (
                        error == ErrorCode.OFFSET_NOT_AVAILABLE
                        and request.version < OFFSET_NOT_AVAILABLE_SINCE
                    ):
                        error = ErrorCode.LEADER_NOT_AVAILABLE
                partitions.append(
                    {
                        "partition_index": asked.partition_index,
                        "error_code": error,
                        "timestamp": timestamp,
                        "offset": offset,
                        "leader_epoch": epoch,
                    }
                )
            if partitions:
                topics.append({"name": topic.name, "partitions": partitions})
        request.respond({"topics": topics})

    def _offset(
        self,
        partition: Partition,
        named_epoch: int,
        timestamp: int,
        read_committed: bool,
        replica_id: int,
    ) -> tuple[int, int, int]:
        """(timestamp, offset, leader epoch of that offset). The debugging id asks for this replica's own
        offsets, whoever leads."""
        if replica_id != DEBUGGING_REPLICA:
            partition.leading(named_epoch)
        elif (error := partition.check_epoch(named_epoch)) is not None:
            raise KafkaError(error)
        log = partition.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return NO_TIMESTAMP, log.log_start, self._epoch(partition, log.log_start)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NO_TIMESTAMP, NO_OFFSET, -1  # nothing is tiered
        if timestamp == LATEST:
            end = log.log_end if replica_id != CONSUMER else partition.latest_offset(read_committed)
            if replica_id == DEBUGGING_REPLICA:
                # Beyond Kafka, which names the leader's epoch: who compares replicas needs that of the last record.
                return NO_TIMESTAMP, end, self._epoch(partition, end - 1)
            return NO_TIMESTAMP, end, partition.leader_epoch
        end = partition.latest_offset(read_committed)
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.max_timestamp_offset(end)
            else:
                found = log.offset_for_timestamp(timestamp, end)
        except LogDirError as error:
            raise self._replicas.directory_failed(error) from error
        if found is None:
            return NO_TIMESTAMP, NO_OFFSET, -1
        found_timestamp, offset = found
        return found_timestamp, offset, self._epoch(partition, offset)

    async def _list_unread(self, request: Request, message: Any) -> Mapping[str, Any]:
        """The first unread record of each partition. All of the request must be such questions, and it names a partition
        once: each may cost a search through the log."""
        read_committed = int(messages.field(message, "isolation_level", 0)) == 1
        turns = Turns(self._replicas.clock)
        topics = []
        named: set[tuple[str, int]] = set()
        for topic in message.topics:
            partitions = []
            for asked in topic.partitions:
                await turns.pause()
                place = topic.name, asked.partition_index
                is_wanted = place not in named and not request.connection.closed
                named.add(place)
                if DESCRIBE_TOPIC_OR_FOLLOW.met(request.rights, topic.name):
                    found = await self._first_unread(
                        *place,
                        messages.field(asked, "current_leader_epoch", ANY_EPOCH),
                        offset_in(_timestamp(asked.timestamp)) if is_wanted else None,
                        read_committed,
                    )
                else:
                    found = NOT_FOUND | {"error_code": DESCRIBE_TOPIC_OR_FOLLOW.denied}
                partitions.append({"partition_index": asked.partition_index, **found})
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    async def _first_unread(
        self,
        topic: str,
        number: int,
        named_epoch: int,
        offset: int | None,
        read_committed: bool,
    ) -> dict[str, Any]:
        if offset is None:
            return NOT_FOUND | {"error_code": ErrorCode.INVALID_REQUEST}
        try:
            partition = self._replicas.get(topic, number)
            partition.leading(named_epoch)
            found = await first_unread(partition, offset, read_committed=read_committed)
        except LogDirError as error:
            return NOT_FOUND | {"error_code": self._replicas.directory_failed(error).code}
        except KafkaError as error:
            return NOT_FOUND | {"error_code": error.code}
        fields = NOT_FOUND | {"error_code": ErrorCode.NONE}
        if found is not None:
            fields |= {"timestamp": found.timestamp, "offset": found.offset}
        return fields

    @staticmethod
    def _epoch(partition: Partition, offset: int) -> int:
        epoch = partition.log.epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    # -- OffsetForLeaderEpoch ------------------------------------------------------------------------

    @serves(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    def offset_for_leader_epoch(self, request: Request) -> None:
        """OffsetForLeaderEpoch 2-4: where an epoch ended, for consumers that check for truncation."""
        message = request.message()
        topics = []
        for topic in message.topics:
            partitions = []
            for asked in topic.partitions:
                epoch, end, error = -1, NO_OFFSET, ErrorCode.NONE
                try:
                    if not DESCRIBE_TOPIC_OR_FOLLOW.met(request.rights, topic.topic):
                        raise KafkaError(DESCRIBE_TOPIC_OR_FOLLOW.denied)
                    partition = self._replicas.get(topic.topic, asked.partition)
                    partition.leading(asked.current_leader_epoch)
                    epoch, end = partition.log.epochs.end_offset_for(
                        asked.leader_epoch, partition.log.log_end
                    )
                except KafkaError as failure:
                    error = failure.code
                partitions.append(
                    {
                        "error_code": error,
                        "partition": asked.partition,
                        "leader_epoch": epoch,
                        "end_offset": end,
                    }
                )
            topics.append({"topic": topic.topic, "partitions": partitions})
        request.respond({"topics": topics})

    # -- DeleteRecords ---------------------------------------------------------------------------------

    @serves(ApiKey.DELETE_RECORDS)
    def delete_records(self, request: Request) -> None:
        """DeleteRecords 0-2: done once every live replica's log begins at or after the offset."""
        message = request.message()
        timeout_s = message.timeout.total_seconds()
        # The last wish for a partition counts, as in Kafka.
        wishes = {
            (topic.name, asked.partition_index): asked.offset
            for topic in message.topics
            for asked in topic.partitions
        }
        results: dict[tuple[str, int], tuple[int, ErrorCode]] = {}
        begun: dict[tuple[str, int], tuple[Partition, int]] = {}
        for key, offset in wishes.items():
            try:
                if not DELETE_FROM_TOPIC.met(request.rights, key[0]):
                    raise KafkaError(DELETE_FROM_TOPIC.denied)
                begun[key] = self._begin_deleting(*key, offset)
                request.changed("DELETE", f"Partition:{key[0]}-{key[1]} before {begun[key][1]}")
            except KafkaError as error:
                results[key] = NO_OFFSET, error.code
            except LogDirError as error:
                results[key] = NO_OFFSET, self._replicas.directory_failed(error).code
        request.run(self._delete_records(results, begun, timeout_s))

    def _begin_deleting(self, topic: str, number: int, offset: int) -> tuple[Partition, int]:
        """Delete here; the partition, and where its other replicas must follow to."""
        partition = self._replicas.get(topic, number)
        partition.leading()
        # Without any policy nothing is deleted by age or size; by hand it may be (KIP-1161).
        policies = partition.log.config.cleanup_policy
        if policies and "delete" not in policies:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = partition.log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= partition.log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > partition.log.log_start:
            partition.log.advance_log_start(target)
            self._replicas.partition_changed(partition, News.LOG_START)
        if RecordsDeleted in self._replicas.events:
            self._replicas.events.emit(RecordsDeleted(partition.key, target))
        return partition, target

    async def _delete_records(
        self,
        results: dict[tuple[str, int], tuple[int, ErrorCode]],
        begun: dict[tuple[str, int], tuple[Partition, int]],
        timeout_s: float,
    ) -> Mapping[str, Any]:
        waited = await asyncio.gather(
            *(self._deleted(partition, target, timeout_s) for partition, target in begun.values())
        )
        results.update(zip(begun, waited, strict=True))
        topics: dict[str, list[Mapping[str, Any]]] = {}
        for (topic, number), (low_watermark, error) in results.items():
            topics.setdefault(topic, []).append(
                {"partition_index": number, "low_watermark": low_watermark, "error_code": error}
            )
        return {"topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}

    async def _deleted(
        self, partition: Partition, target: int, timeout_s: float
    ) -> tuple[int, ErrorCode]:
        """(low watermark, error) once every live replica has deleted, or the time is over."""

        def is_done() -> bool:
            return partition.leadership is None or partition.leadership.low_watermark >= target

        try:
            if not is_done():  # no time at all is enough for what is done already
                await asyncio.wait_for(
                    self._replicas.purgatory.until(partition, is_done), timeout_s
                )
            low_watermark = partition.leading().low_watermark
        except KafkaError as error:
            return NO_OFFSET, error.code
        except TimeoutError:
            return NO_OFFSET, ErrorCode.REQUEST_TIMED_OUT
        return low_watermark, ErrorCode.NONE


def _is_known(timestamp: int, version: int) -> bool:
    """Whether a request of this version may ask for it: a time, or one of the special times."""
    return timestamp >= EARLIEST or version >= SPECIAL_SINCE.get(timestamp, NEVER)


def _timestamp(value: Any) -> int:
    """Special times are negative and stay ints."""
    return int(value)
