"""Produce: records in, and an answer when `acks` says that it is due (P17, P18).

Nothing here touches a record: the batches in the request's own memory are checked, stamped and written
by the log. With acks=all the request is parked until the high watermark has passed each of its batches.
The first batch of a transaction waits for the word of the transaction's coordinator, and all that its
connection brings waits behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.verification import Beginning, Verdicts, Verifier, client_error
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.deadlines import DeadlineQueue, Deadlines
from ottla.broker.server.registration import serves
from ottla.events.replication import ProduceNotCommitted, ProduceTimedOut
from ottla.log.errors import LogDirError
from ottla.records.batch import CODEC_MASK
from ottla.replica.leader import is_transactional
from ottla.replica.partition import Partition
from ottla.security.needs import (
    WRITE_INTERNAL_TOPIC,
    WRITE_TOPIC,
    WRITE_TOPIC_AS_BROKER,
    WRITE_TRANSACTION,
)
from ottla.security.rights import Rights
from ottla.wire import produce as codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError, RecordsRefused
from ottla.wire.internal_topics import ADMIN_CLIENT_ID, INTERNAL_TOPICS
from ottla.wire.printable import printable_name
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest

logger = logging.getLogger(__name__)

CALLS_MAX = 500
"""Budget, counted by test_counted_work: what a leader may call for one acks=all request, whatever is in it, with
all that its two followers ask until it is answered."""
RIGHTS_CALLS_MAX = 30
"""Budget: what an authorizer may add to that, with decisions that are remembered."""
BYTES_MAX = 8 * 1024
"""Budget: memory that a request may take before it is parked, however large its records are."""

ALL = -1
ZSTD_FROM = 7
"""Older requests come from clients that could not read it back."""
ZSTD = 4
ATTRIBUTES_END = 22
"""Where in a batch the byte with its codec lies."""
ABORTABLE_FROM = 11
"""Clients of this version on know TRANSACTION_ABORTABLE."""
IMPLICIT_ADD_FROM = 12
"""These leave it to the leader to add the partition to the transaction."""
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
DENIED_PARTITIONS_MAX = 1000
"""A request that names more partitions which its client may not write closes the connection: no producer has so many, and
each costs some microseconds while all other requests wait."""
LEADER_HINTS_FROM = 10
"""From this version on an answer may name the partition's leader and where to find it."""


class ParkedProduce:
    """An acks=all request whose records are in the leader's log and not committed everywhere yet."""

    __slots__ = ("_finish", "_line", "_replicas", "_results", "_waiting_for")

    def __init__(
        self, replicas: ReplicaManager, results: list[PartitionResult], finish: FinishProduce
    ) -> None:
        self._replicas = replicas
        self._results = results
        self._finish = finish
        self._waiting_for: dict[Partition, list[int]] = {}
        self._line: DeadlineQueue | None = None

    def wait_for(self, partition: Partition, offset: int) -> None:
        """The result that comes next is true once this is committed."""
        self._waiting_for.setdefault(partition, []).append(len(self._results))
        self._replicas.purgatory.await_commit(partition, offset, self)

    def park(self, deadlines: Deadlines, now: float, timeout_ms: int) -> None:
        self._line = deadlines.add(self, now, timeout_ms)

    def committed(self, partition: Partition) -> None:
        self._done(partition, None)

    def not_committed(self, partition: Partition, error: ErrorCode) -> None:
        if ProduceNotCommitted in (events := self._replicas.events):
            events.emit(ProduceNotCommitted(partition.key, error))
        self._done(partition, error)

    def _done(self, partition: Partition, error: ErrorCode | None) -> None:
        indexes = self._waiting_for[partition]
        index = indexes.pop(0)
        if error is not None:
            self._fail(index, error)
        if not indexes:
            del self._waiting_for[partition]
            if not self._waiting_for:
                self._finish(self._results)
                if self._line is not None:
                    del self._line[self]

    def _fail(self, index: int, error: ErrorCode) -> None:
        self._results[index] = self._results[index]._replace(
            error=error, base_offset=-1, log_append_time_ms=-1
        )

    def time_is_up(self) -> None:
        if ProduceTimedOut in (events := self._replicas.events):
            events.emit(ProduceTimedOut(tuple(partition.key for partition in self._waiting_for)))
        for partition, indexes in self._waiting_for.items():
            self._replicas.purgatory.stop_awaiting(partition, self)
            for index in indexes:
                self._fail(index, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting_for.clear()
        self._finish(self._results)


class FinishProduce:
    """Writes the answer of one request."""

    __slots__ = ("_cluster", "_request")

    def __init__(self, request: Request, cluster: ClusterView) -> None:
        self._request = request
        self._cluster = cluster

    def __call__(self, results: list[PartitionResult]) -> None:
        if self._request.connection.closed:
            return
        version = self._request.version
        endpoints: tuple[tuple[int, str, int, str | None], ...] = ()
        if version >= LEADER_HINTS_FROM:
            endpoints = self._add_leader_hints(results)
        self._request.respond_chunks(
            [codec.write_response(version, results, endpoints, self._request.throttle_ms)]
        )

    def _add_leader_hints(
        self, results: list[PartitionResult]
    ) -> tuple[tuple[int, str, int, str | None], ...]:
        leaders: dict[int, None] = {}
        for index, result in enumerate(results):
            if result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = self._cluster.leader_of(result.topic, result.topic_id, result.partition)
                if leader is not None:
                    results[index] = result._replace(current_leader=leader)
                    leaders[leader[0]] = None
        if not leaders:
            return ()
        return self._cluster.endpoints(leaders, self._request.connection.listener)


NOTHING_ASKED = Verdicts({}, {})
WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
)
"""After any other error of a partition that is here, a producer is told where its log begins (KIP-360)."""
NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
NOTHING_DENIED: Mapping[int, ErrorCode] = {}


class ProduceHandler:
    def __init__(self, replicas: ReplicaManager, cluster: ClusterView, verifier: Verifier) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._verifier = verifier
        self._deadlines = Deadlines(replicas.clock)

    @serves(ApiKey.PRODUCE)
    def __call__(self, request: Request) -> None:
        """Produce 3-13."""
        produce = codec.read_request(request.version, request.frame, request.header.body)
        if produce.transactional_id is not None:
            beginnings = self._beginnings(request.connection.rights, produce)
            if beginnings:
                request.connection.hold()
                work = self._verify(request, _kept(produce), beginnings)
                request.connection.server.spawn(work)
                return
        self._append(request, produce, NOTHING_ASKED)

    def _denied(self, rights: Rights | None, produce: ProduceRequest) -> Mapping[int, ErrorCode]:
        """Why partitions of the request may not be written, by their place in it."""
        if rights is None:
            return NOTHING_DENIED
        partitions = produce.partitions
        for data in partitions:
            if data.records is not None and is_transactional(data.records):
                id = produce.transactional_id
                # Without an id nobody could be asked whether the transaction is the sender's (CVE-2018-17196).
                if id is None or not WRITE_TRANSACTION.met(rights, id):
                    return dict.fromkeys(range(len(partitions)), WRITE_TRANSACTION.denied)
                break
        denied = {}
        for index, data in enumerate(partitions):
            name = self._cluster.topic_name(data.topic, data.topic_id)
            if name is None:
                denied[index] = ErrorCode.UNKNOWN_TOPIC_ID
            elif name in INTERNAL_TOPICS:
                for need in (WRITE_TOPIC_AS_BROKER, WRITE_INTERNAL_TOPIC):
                    if not need.met(rights, name):
                        denied[index] = need.denied
            elif not WRITE_TOPIC.met(rights, name):
                denied[index] = WRITE_TOPIC.denied
                if len(denied) > DENIED_PARTITIONS_MAX:
                    raise InvalidFrame(f"more than {DENIED_PARTITIONS_MAX} partitions are denied")
        return denied

    def _beginnings(self, rights: Rights | None, produce: ProduceRequest) -> dict[int, Beginning]:
        now_ms = self._replicas.clock.wall_ms()
        denied = self._denied(rights, produce)
        found = {}
        for index, data in enumerate(produce.partitions):
            if index in denied:
                continue
            partition = self._replicas.find(data.topic, data.topic_id, data.partition)
            if isinstance(partition, ErrorCode) or data.records is None:
                continue
            leadership = partition.leadership
            if leadership is not None:
                try:
                    verified = leadership.begin_verification(data.records, now_ms)
                except KafkaError:
                    continue  # no batch at all; the log will say so
                if verified is not None:
                    found[index] = Beginning(partition, verified)
        return found

    async def _verify(
        self, request: Request, produce: ProduceRequest, beginnings: Mapping[int, Beginning]
    ) -> None:
        try:
            assert produce.transactional_id is not None
            verdicts = await self._verifier.verify(
                produce.transactional_id, beginnings, add=request.version >= IMPLICIT_ADD_FROM
            )
            for index, beginning in self._beginnings(request.connection.rights, produce).items():
                # Nobody was asked about this one: we lead its partition only since then, or again.
                if verdicts.verified.get(index) != beginning.verified:
                    verdicts.refused.setdefault(index, ErrorCode.CONCURRENT_TRANSACTIONS)
            if not request.connection.closed:
                self._append(request, produce, verdicts)
        except Exception:
            request.connection.fail(request)
        finally:
            request.connection.release()

    def _append(self, request: Request, produce: ProduceRequest, verdicts: Verdicts) -> None:
        acks = produce.acks
        clock = self._replicas.clock
        now, now_ms = clock.monotonic(), clock.wall_ms()
        results: list[PartitionResult] = []
        parked: ParkedProduce | None = None
        finish = FinishProduce(request, self._cluster)
        rights = request.connection.rights
        # Also after a wait for the coordinator: a right may be gone since then.
        denied = NOTHING_DENIED if rights is None else self._denied(rights, produce)
        for index, data in enumerate(produce.partitions):
            found = (
                denied[index]
                if index in denied
                else self._replicas.find(data.topic, data.topic_id, data.partition)
            )
            try:
                if acks not in (-1, 0, 1) and found not in NOT_THERE:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if isinstance(found, ErrorCode):
                    raise KafkaError(found)
                found.traffic.produces += 1
                found.traffic.every.produces += 1
                if found.topic in INTERNAL_TOPICS and request.header.client_id != ADMIN_CLIENT_ID:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION,
                        f"{found.topic} is written by brokers, not by clients",
                    )
                if index in verdicts.refused:
                    raise client_error(
                        verdicts.refused[index],
                        knows_abortable=request.version >= ABORTABLE_FROM,
                        try_again=ErrorCode.NOT_ENOUGH_REPLICAS,
                    )
                if data.records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "the partition has no records")
                if request.version < ZSTD_FROM and _is_zstd(data.records):
                    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                leadership = found.leadership
                if leadership is None:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                appended = leadership.append(
                    data.records, acks, now, now_ms, verdicts.verified.get(index)
                )
            except KafkaError as error:
                result = _failure(data, error)
                if (
                    isinstance(found, Partition)
                    and index not in verdicts.refused
                    and error.code not in WITHOUT_LOG_START
                ):
                    result = result._replace(log_start_offset=found.log.log_start)
                results.append(result)
                self._count_failure(found, data, error)
                continue
            except LogDirError as error:
                results.append(_failure(data, self._replicas.directory_failed(error)))
                continue
            if acks == ALL and found.log.high_watermark <= appended.last_offset:
                if parked is None:
                    parked = ParkedProduce(self._replicas, results, finish)
                parked.wait_for(found, appended.last_offset + 1)
            results.append(
                PartitionResult(
                    topic=data.topic,
                    topic_id=data.topic_id,
                    partition=data.partition,
                    error=ErrorCode.NONE,
                    base_offset=appended.base_offset,
                    log_append_time_ms=appended.log_append_time_ms,
                    log_start_offset=found.log.log_start,
                )
            )
        if acks == 0:
            self._answer_nothing(request, results)
        elif parked is not None:
            parked.park(self._deadlines, now, produce.timeout_ms)
        else:
            finish(results)

    def _count_failure(
        self, found: Partition | ErrorCode, data: PartitionData, error: KafkaError
    ) -> None:
        is_too_large = error.code in TOO_LARGE and data.records is not None
        for traffic in (
            self._replicas.traffic,
            *(() if isinstance(found, ErrorCode) else (found.traffic,)),
        ):
            traffic.failed_produces += 1
            if is_too_large and data.records is not None:
                traffic.bytes_rejected += len(data.records)

    @staticmethod
    def _answer_nothing(request: Request, results: list[PartitionResult]) -> None:
        """acks=0 has no answer that could carry an error: the connection closes instead, and the client
        looks for the right leader (Kafka's way)."""
        request.finish_silently()
        failed = [result for result in results if result.error]
        if failed:
            logger.info(
                "produce without acknowledgement failed, closing connection peer=%s partition=%s-%d error=%s",
                request.connection.peer,
                printable_name(str(failed[0].topic or failed[0].topic_id)),
                failed[0].partition,
                ErrorCode(failed[0].error).name,
            )
            request.connection.close()


def _kept(produce: ProduceRequest) -> ProduceRequest:
    """The same with memory of its own: the request's is used again."""
    partitions = [
        data if data.records is None else data._replace(records=memoryview(bytearray(data.records)))
        for data in produce.partitions
    ]
    return ProduceRequest(produce.transactional_id, produce.acks, produce.timeout_ms, partitions)


def _is_zstd(records: memoryview) -> bool:
    return len(records) > ATTRIBUTES_END and records[ATTRIBUTES_END] & CODEC_MASK == ZSTD


def _failure(data: PartitionData, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        topic=data.topic,
        topic_id=data.topic_id,
        partition=data.partition,
        error=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=error.message or None,
        record_errors=error.records if isinstance(error, RecordsRefused) else (),
    )
