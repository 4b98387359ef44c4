"""Requests about transactions: each goes to the shard that coordinates its transactional id, and is answered in the API's
shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from ottla.broker.apis.describe_producers import DescribeProducersHandler
from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.live_shard import InternalTopic, LiveShard
from ottla.broker.coordination.markers import MarkerHandler, MarkerSender
from ottla.broker.coordination.pending_replies import Reply, ReplyCollector, reply_to
from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.coordination.verification import Verifier
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.coordinators.shard import partition_of
from ottla.coordinators.transactions.transaction_records import (
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinators.transactions.transaction_shard import (
    AddPartitions,
    Command,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListTransactions,
    TransactionConfig,
    TransactionShard,
    refusal,
)
from ottla.events import Events
from ottla.metadata.image import MetadataImage
from ottla.patterns.pace import PatternPace, TooManyPatterns
from ottla.patterns.re2 import BadPattern, compiled
from ottla.runtime import Clock, Runtime
from ottla.security import needs
from ottla.security.rights import Rights
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
)
from ottla.wire.messages import field
from ottla.wire.types import TopicPartition

IDS_MAX = 10_000
"""Transactional ids that one request may name."""
BATCHED_FROM = 4
"""AddPartitionsToTxn of this version on comes from brokers, for several transactions."""
EPOCH_BUMPS_FROM = 5
"""EndTxn of this version on comes from producers of transaction.version 2."""
FENCED_SINCE = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions with PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""
TRANSACTION_VERSION = "transaction.version"
NOT_ONE: Mapping[TopicPartition, ErrorCode] = {}


def transaction_topic(
    settings: Settings,
    cluster: ClusterView,
    producer_ids: ProducerIds,
    sender: MarkerSender,
    events: Events,
) -> InternalTopic:
    """`__transaction_state`, as Kafka makes it."""
    config = TransactionConfig(
        timeout_ms_max=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        abort_check_s=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000,
        expiration_check_s=settings.transaction_remove_expired_transaction_cleanup_interval_ms
        / 1000,
    )

    def server_version() -> int:
        return cluster.image.features.get(TRANSACTION_VERSION, 0)

    return InternalTopic(
        TRANSACTION_STATE_TOPIC,
        settings.transaction_state_log_num_partitions,
        settings.transaction_state_log_replication_factor,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        },
        lambda _: TransactionShard(config, producer_ids.take_now, server_version, events),
        lambda api_key, version, asked, error: refusal(error),
        write_timeout_s=settings.request_timeout_ms / 1000,
        perform=sender.send,
    )


class TransactionService:
    """The parts of a broker that serve transactions, connected: as coordinator, and as leader of partitions."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        cluster: ClusterView,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._clock = runtime.clock
        self._timeout_s = settings.request_timeout_ms / 1000
        listener, id = settings.inter_broker_listener_name or "", settings.node_id
        # Two connections to each broker: the response about markers waits for their commit and would hold up others.
        self._leaders = BrokerChannels(
            runtime.network, cluster, listener, f"broker-{id}-txn-marker-sender"
        )
        self._coordinators = BrokerChannels(
            runtime.network, cluster, listener, f"AddPartitionsManager-client-{id}"
        )
        self._sender = MarkerSender(cluster, self._leaders, self._timeout_s)
        self.verifier = Verifier(runtime.clock, cluster, self._coordinators, self._timeout_s)
        self.topic = transaction_topic(
            settings, cluster, producer_ids, self._sender, runtime.events
        )

    def handlers(self, coordination: Coordination) -> tuple[object, ...]:
        """What answers the APIs of transactions, for `handlers_of`."""
        return (
            MarkerHandler(self._replicas, coordination, self._timeout_s),
            DescribeProducersHandler(self._replicas),
            TransactionHandlers(
                self._settings, coordination, self._cluster, self._producer_ids, self._clock
            ),
        )

    def brokers_changed(self, image: MetadataImage) -> None:
        self._leaders.brokers_changed(image)
        self._coordinators.brokers_changed(image)

    def stop(self) -> None:
        self._sender.stop()
        self._leaders.stop()
        self._coordinators.stop()


class TransactionHandlers:
    def __init__(
        self,
        settings: Settings,
        coordination: Coordination,
        cluster: ClusterView,
        producer_ids: ProducerIds,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._coordination = coordination
        self._cluster = cluster
        self._producer_ids = producer_ids
        self._clock = clock
        self._pace = PatternPace()

    def _ask(self, api_key: ApiKey, version: int, command: Any, reply: Reply) -> None:
        try:
            live = self._coordination.shard(TRANSACTION_STATE_TOPIC, command.transactional_id)
        except KafkaError as error:
            reply(refusal(error.code))
            return
        live.ask(api_key, version, command, reply)

    def _ask_and_respond(self, request: Request, command: Command) -> None:
        """Ask the shard, and answer with its error and its other fields."""
        api_key, version = ApiKey(request.header.api_key), request.version
        respond = reply_to(request)

        def reply(fields: Mapping[str, Any]) -> None:
            error = _as_known(api_key, version, fields["error"])
            respond({"error_code": error, **{k: v for k, v in fields.items() if k != "error"}})

        self._ask(api_key, version, command, reply)

    # -- InitProducerId ------------------------------------------------------------------------------

    @serves(ApiKey.INIT_PRODUCER_ID)
    def init_producer_id(self, request: Request) -> None:
        """InitProducerId 0-5. v3: a producer may give its present id and epoch (KIP-360). Left out: two-phase
        commit (v6, KIP-939)."""
        message, rights = request.message(), request.rights
        expected = (field(message, "producer_id", -1), field(message, "producer_epoch", -1))
        is_half = -1 in expected and expected != (-1, -1)
        if message.transactional_id is None:
            if not needs.WRITE_IDEMPOTENTLY.met(rights):
                request.respond(_no_producer(needs.WRITE_IDEMPOTENTLY.denied))
            elif is_half:
                request.respond(_no_producer(ErrorCode.INVALID_REQUEST))
            else:
                request.run(self._init_idempotent())
            return
        if not needs.WRITE_TRANSACTION.met(rights, message.transactional_id):
            request.respond(_no_producer(needs.WRITE_TRANSACTION.denied))
            return
        if not message.transactional_id or is_half:
            request.respond(_no_producer(ErrorCode.INVALID_REQUEST))
            return
        command = InitProducerId(
            message.transactional_id,
            _milliseconds(message.transaction_timeout),
            None if expected == (-1, -1) else expected,
        )
        request.connection.server.spawn(self._init_when_id_is_available(request, command))

    async def _init_idempotent(self) -> Mapping[str, Any]:
        """For a producer that is idempotent only: any broker gives it an id."""
        try:
            producer_id = await self._producer_ids.take()
        except (OSError, TimeoutError, KafkaError):
            return _no_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}

    async def _init_when_id_is_available(self, request: Request, command: InitProducerId) -> None:
        """The shard cannot wait for a producer id, so one must be there before the shard is asked."""
        respond = reply_to(request)

        def reply(fields: Mapping[str, Any]) -> None:
            error = _as_known(ApiKey.INIT_PRODUCER_ID, request.version, fields["error"])
            respond(
                {
                    "error_code": error,
                    "producer_id": fields.get("producer_id", -1),
                    "producer_epoch": fields.get("producer_epoch", -1),
                }
            )

        try:
            await self._producer_ids.fill()
        except (OSError, KafkaError):
            reply(refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        try:
            self._ask(ApiKey.INIT_PRODUCER_ID, request.version, command, reply)
        except Exception:
            request.connection.fail(request)

    # -- adding, ending ------------------------------------------------------------------------------

    @serves(ApiKey.ADD_PARTITIONS_TO_TXN)
    def add_partitions(self, request: Request) -> None:
        """AddPartitionsToTxn 0-5. From v4 on it is for brokers: several transactions, whose partitions are
        verified or, since v5 for producers of transaction.version 2, added."""
        message, rights = request.message(), request.rights
        version = request.version
        respond = reply_to(request)
        if version >= BATCHED_FROM:
            if not needs.CLUSTER_ACTION.met(rights):
                respond({"error_code": needs.CLUSTER_ACTION.denied})
                return
            if len(message.transactions) > IDS_MAX:
                raise InvalidFrame(f"{len(message.transactions)} transactions in one request")
            collector = ReplyCollector(
                len(message.transactions),
                lambda results: respond({"error_code": 0, "results_by_transaction": results}),
            )
            for index, each in enumerate(message.transactions):
                command = AddPartitions(
                    each.transactional_id,
                    each.producer_id,
                    each.producer_epoch,
                    _partitions(each.topics),
                    each.verify_only,
                    client_version=0 if each.verify_only else 2,
                )
                reply = collector.reply(index)
                self._add(
                    version,
                    command,
                    lambda topics, id=each.transactional_id, reply=reply: reply(  # type: ignore[misc]
                        {"transactional_id": id, "topic_results": topics}
                    ),
                )
            return
        command = AddPartitions(
            message.v3_and_below_transactional_id,
            message.v3_and_below_producer_id,
            message.v3_and_below_producer_epoch,
            _partitions(message.v3_and_below_topics),
        )

        def done(topics: Sequence[Mapping[str, Any]]) -> None:
            respond({"results_by_topic_v3_and_below": topics})

        if not needs.WRITE_TRANSACTION.met(rights, command.transactional_id):
            done(_results(dict.fromkeys(command.partitions, needs.WRITE_TRANSACTION.denied)))
            return
        self._add(version, command, done, _unwritable(rights, command.partitions))

    def _add(
        self,
        version: int,
        command: AddPartitions,
        done: Callable[[Sequence[Mapping[str, Any]]], None],
        refused: Mapping[TopicPartition, ErrorCode] = NOT_ONE,
    ) -> None:
        """`refused` are partitions that must not be added. If there is one, none is added."""
        unknown = {
            key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for key in command.partitions
            if self._cluster.partition(key.topic, None, key.partition) is None
        }
        if unknown or refused:
            attempted = dict.fromkeys(command.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            done(_results({**attempted, **unknown, **refused}))
            return

        def reply(fields: Mapping[str, Any]) -> None:
            error = _as_known(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields["error"])
            errors = dict.fromkeys(command.partitions, error)
            errors.update(dict.fromkeys(fields.get("missing", ()), ErrorCode.TRANSACTION_ABORTABLE))
            done(_results(errors))

        self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, command, reply)

    @serves(ApiKey.ADD_OFFSETS_TO_TXN)
    def add_offsets(self, request: Request) -> None:
        """AddOffsetsToTxn 0-4: the partition that keeps the group's offsets takes part."""
        message, rights = request.message(), request.rights
        for need, name in (
            (needs.WRITE_TRANSACTION, message.transactional_id),
            (needs.READ_GROUP, message.group_id),
        ):
            if not need.met(rights, name):
                request.respond({"error_code": need.denied})
                return
        topic = self._cluster.image.topics.get(GROUP_METADATA_TOPIC)
        partitions = (
            self._settings.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        )
        key = TopicPartition(GROUP_METADATA_TOPIC, partition_of(message.group_id, partitions))
        self._ask_and_respond(
            request,
            AddPartitions(
                message.transactional_id,
                message.producer_id,
                message.producer_epoch,
                frozenset({key}),
            ),
        )

    @serves(ApiKey.END_TXN)
    def end(self, request: Request) -> None:
        """EndTxn 0-5. From v5 on it raises the producer's epoch, and the response has the new one."""
        message = request.message()
        if not needs.WRITE_TRANSACTION.met(request.rights, message.transactional_id):
            request.respond({"error_code": needs.WRITE_TRANSACTION.denied})
            return
        self._ask_and_respond(
            request,
            EndTransaction(
                message.transactional_id,
                message.producer_id,
                message.producer_epoch,
                message.committed,
                client_version=2 if request.version >= EPOCH_BUMPS_FROM else 0,
            ),
        )

    # -- showing -------------------------------------------------------------------------------------

    @serves(ApiKey.DESCRIBE_TRANSACTIONS)
    def describe(self, request: Request) -> None:
        """DescribeTransactions 0."""
        ids, rights = request.message().transactional_ids, request.rights
        if len(ids) > IDS_MAX:
            raise InvalidFrame(f"{len(ids)} transactional ids in one request")
        respond = reply_to(request)
        collector = ReplyCollector(
            len(ids),
            lambda replies: respond(
                {
                    "transaction_states": [
                        _described(id, fields, rights)
                        for id, fields in zip(ids, replies, strict=True)
                    ]
                }
            ),
        )
        for index, id in enumerate(ids):
            reply = collector.reply(index)
            if not needs.DESCRIBE_TRANSACTION.met(rights, id):
                reply(refusal(needs.DESCRIBE_TRANSACTION.denied))
            elif id:
                self._ask(
                    ApiKey.DESCRIBE_TRANSACTIONS, request.version, DescribeTransaction(id), reply
                )
            else:
                reply(refusal(ErrorCode.INVALID_REQUEST))

    @serves(ApiKey.LIST_TRANSACTIONS)
    def list(self, request: Request) -> None:
        """ListTransactions 0-2: those coordinated here. v1: by duration. v2: by a pattern."""
        message, rights = request.message(), request.rights
        principal = request.connection.principal
        respond = reply_to(request)
        by_label = {state.label: state for state in TransactionState}
        unknown = [label for label in message.state_filters if label not in by_label]
        states = frozenset(by_label[label] for label in message.state_filters if label in by_label)
        shards: list[LiveShard] = self._coordination.shards(TRANSACTION_STATE_TOPIC)
        command = ListTransactions(
            states,
            frozenset(message.producer_id_filters),
            field(message, "duration_filter", -1),
        )
        pattern = field(message, "transactional_id_pattern", None)
        if unknown and not states:
            shards = []  # no transaction is in an unknown state

        def done(replies: list[Mapping[str, Any]]) -> None:
            is_loading = any(
                fields["error"] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for fields in replies
            )
            listed = dict(
                each
                for fields in replies
                for each in fields.get("transactions", ())
                if needs.DESCRIBE_TRANSACTION.sees(rights, each[0])
            )
            ids: tuple[str, ...] = tuple(listed)
            try:
                # Compiling costs, too: somebody with rights who sees nothing gets nothing, whatever the pattern.
                if pattern and rights is None:
                    ids = compiled(pattern).select(listed)
                elif pattern and listed:
                    ids = self._pace.select(principal, pattern, listed, self._clock.monotonic())
            except TooManyPatterns:
                respond({"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
                return
            except BadPattern:
                respond({"error_code": ErrorCode.INVALID_REGULAR_EXPRESSION})
                return
            respond(
                {
                    "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else 0,
                    "unknown_state_filters": unknown,
                    "transaction_states": [
                        {
                            "transactional_id": id,
                            "producer_id": listed[id].producer_id,
                            "transaction_state": listed[id].state.label,
                        }
                        for id in ids
                    ],
                }
            )

        collector = ReplyCollector(len(shards), done)
        for index, live in enumerate(shards):
            live.ask(ApiKey.LIST_TRANSACTIONS, request.version, command, collector.reply(index))


def _described(
    transactional_id: str, fields: Mapping[str, Any], rights: Rights | None
) -> dict[str, Any]:
    """Without the topics that one may not know of."""
    transaction: TransactionMetadata | None = fields.get("transaction")
    if transaction is None:
        return {
            "error_code": fields["error"],
            "transactional_id": transactional_id,
            "transaction_start_time": 0,  # as Kafka says it of what is not there
        }
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        if needs.DESCRIBE_TOPIC.sees(rights, topic):
            topics.setdefault(topic, []).append(number)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": transaction.state.label,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": transaction.start_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


def _no_producer(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}


def _unwritable(
    rights: Rights | None, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Those that one may not write. Nobody adds partitions of internal topics in this way, whatever the rights."""
    if rights is None:
        return {}
    need = needs.WRITE_TOPIC
    return {
        key: need.denied
        for key in partitions
        if key.topic in INTERNAL_TOPICS or not need.met(rights, key.topic)
    }


def _as_known(api_key: ApiKey, version: int, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE.get(api_key, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _partitions(topics: Sequence[Any]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    )


def _results(errors: Mapping[TopicPartition, ErrorCode]) -> list[Mapping[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for key in sorted(errors):
        topics.setdefault(key.topic, []).append(
            {"partition_index": key.partition, "partition_error_code": errors[key]}
        )
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
