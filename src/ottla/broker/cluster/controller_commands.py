"""The controller's APIs: how a request becomes a command, and how an error becomes a response.

Each API is a row. `decide` runs the command on the controller. `refuse` gives the response, in the shape of this
API, when the request as a whole failed (most often with NOT_CONTROLLER).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.cluster import isr_reasons, short_log_dirs
from ottla.broker.cluster.token_requests import Caller, check_token_request, owner_of
from ottla.config.names import TOPIC_TO_SERVER
from ottla.config.traps import topic_traps
from ottla.controller.brokers import Assignment, Heartbeat, Registration
from ottla.controller.configs import ConfigChange, ConfigChanges, Operation
from ottla.controller.controller import Controller
from ottla.controller.credentials import CredentialDeletion, CredentialUpsertion
from ottla.controller.draft import ControllerResult, IsrProposal
from ottla.controller.features import FeatureUpdate, UpgradeType
from ottla.controller.partitions import NO_EPOCH, ElectionType
from ottla.controller.quotas import QuotaChange, QuotaChanges
from ottla.controller.reassignments import ReassignedPartition
from ottla.controller.tokens import NewToken
from ottla.controller.topics import MorePartitions, NewTopic, Permit, unlimited
from ottla.metadata.records import BROKER_RESOURCE, Endpoint, FeatureRange
from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.principals import Principal
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import AUDIT_TOPIC, EVENT_LOG_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.messages import field
from ottla.wire.types import ZERO_UUID

Fields = dict[str, Any]

logger = logging.getLogger(__name__)


class ControllerApi(NamedTuple):
    decide: Callable[..., ControllerResult]
    """Called with (controller, message, now), and `permit` if `strict_from` is set. A KafkaError fails the
    request as a whole."""
    refuse: Callable[[Any, KafkaError], Fields]
    strict_from: int | None = None
    """Set if the API creates or deletes partitions, for which clients can have a quota. Over the quota, requests of
    this version and later are refused, and older ones are delayed (KIP-599)."""
    by_whom: bool = False
    """Set if who asks decides, and not a right on the cluster: `decide` also gets `caller` and `wall_ms`."""
    by_way_of: bool = False
    """Set if it matters whether a broker has forwarded the request: `decide` also gets `is_forwarded`."""
    records: Callable[[Any], int] = lambda message: 0
    """How many records the request asks for, at least, if all of it is granted. Known before it is decided, and by a broker."""
    is_repeatable: bool = True
    """False: done twice, it has two effects. So it is not repeated if it may have been done already, and whoever asked is told
    REQUEST_TIMED_OUT. Of all others the second one finds everything as it shall be, or is refused."""


# Brokers


def _register_broker(controller: Controller, message: Any, now: float) -> ControllerResult:
    """BrokerRegistration 0-4. Before version 2 a broker names no directories, and is refused."""
    if field(message, "is_migrating_zk_broker", False):
        why = "brokers that still use ZooKeeper are not registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
    request = Registration(
        broker_id=message.broker_id,
        cluster_id=message.cluster_id,
        incarnation=message.incarnation_id or ZERO_UUID,
        endpoints=_endpoints(message.listeners),
        features=_features(message.features),
        rack=message.rack,
        log_dirs=_ids(field(message, "log_dirs", ())),
        previous_broker_epoch=field(message, "previous_broker_epoch", -1),
        has_log_dirs_away=bool(message.ottla_log_dirs_away),
    )
    return controller.register_broker(request, now)


def _heartbeat(controller: Controller, message: Any, now: float) -> ControllerResult:
    """BrokerHeartbeat 0-2."""
    cordoned = field(message, "cordoned_log_dirs", None)
    beat = Heartbeat(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        metadata_offset=message.current_metadata_offset,
        want_fence=message.want_fence,
        want_shutdown=message.want_shut_down,
        offline_log_dirs=_ids(field(message, "offline_log_dirs", ())),
        cordoned_log_dirs=None if cordoned is None else _ids(cordoned),
        short=short_log_dirs.read(message.ottla_short_log_dirs),
    )
    return controller.heartbeat(beat, now)


def _unregister_broker(controller: Controller, message: Any, now: float) -> ControllerResult:
    """UnregisterBroker 0."""
    return controller.unregister_broker(message.broker_id)


def _register_controller(controller: Controller, message: Any, now: float) -> ControllerResult:
    """ControllerRegistration 0."""
    return controller.register_controller(
        message.controller_id,
        message.incarnation_id or ZERO_UUID,
        _endpoints(message.listeners),
        _features(message.features),
    )


def _allocate_producer_ids(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AllocateProducerIds 0."""
    return controller.allocate_producer_ids(message.broker_id, message.broker_epoch)


def _assign_replicas_to_dirs(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AssignReplicasToDirs 0."""
    assignments = [
        Assignment(directory.id_ or ZERO_UUID, topic.topic_id or ZERO_UUID, index.partition_index)
        for directory in message.directories
        for topic in directory.topics
        for index in topic.partitions
    ]
    return controller.assign_directories(message.broker_id, message.broker_epoch, assignments)


def _endpoints(listeners: Any) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
        for at in listeners
    )


def _features(features: Any) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(
            name=feature.name,
            min_supported_version=feature.min_supported_version,
            max_supported_version=feature.max_supported_version,
        )
        for feature in features
    )


def _ids(values: Any) -> tuple[UUID, ...]:
    return tuple(value or ZERO_UUID for value in values)


# Partitions


def _alter_partition(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AlterPartition 2-3. Version 2 names the members without their epochs."""
    reasons = isr_reasons.read(message.ottla_isr_reasons)
    proposals = [
        IsrProposal(
            topic_id=topic.topic_id or ZERO_UUID,
            index=partition.partition_index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=_members(partition),
            recovery=partition.leader_recovery_state,
            reasons=reasons.get((topic.topic_id or ZERO_UUID, partition.partition_index), {}),
        )
        for topic in message.topics
        for partition in topic.partitions
    ]
    return controller.alter_partitions(message.broker_id, message.broker_epoch, proposals)


def _members(partition: Any) -> tuple[tuple[int, int], ...]:
    with_epochs = field(partition, "new_isr_with_epochs", None)
    if with_epochs is None:
        return tuple((member, NO_EPOCH) for member in partition.new_isr)
    return tuple((member.broker_id, member.broker_epoch) for member in with_epochs)


def _elect_leaders(controller: Controller, message: Any, now: float) -> ControllerResult:
    """ElectLeaders 0-2. Version 0 knows only preferred elections."""
    kind = field(message, "election_type", ElectionType.PREFERRED)
    if kind not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    wanted = None
    if message.topic_partitions is not None:
        wanted = [
            (topic.topic, index) for topic in message.topic_partitions for index in topic.partitions
        ]
    return controller.elect_leaders(ElectionType(kind), wanted)


def _refuse_election(message: Any, error: KafkaError) -> Fields:
    rows = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": i, "error_code": error.code, "error_message": error.message}
                for i in topic.partitions
            ],
        }
        for topic in message.topic_partitions or ()
    ]
    return {"error_code": error.code, "replica_election_results": rows}


def _alter_reassignments(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AlterPartitionReassignments 0-1. Version 0 always allows another replication factor."""
    wanted = [
        ReassignedPartition(
            topic.name,
            partition.partition_index,
            None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in message.topics
        for partition in topic.partitions
    ]
    allowed = field(message, "allow_replication_factor_change", True)
    return controller.alter_reassignments(wanted, allow_factor_change=allowed)


def _list_reassignments(controller: Controller, message: Any, now: float) -> ControllerResult:
    """ListPartitionReassignments 0."""
    wanted = None
    if message.topics is not None:
        wanted = [
            (topic.name, index) for topic in message.topics for index in topic.partition_indexes
        ]
    return controller.list_reassignments(wanted)


# Topics


def _create_topics(
    controller: Controller, message: Any, now: float, permit: Permit = unlimited
) -> ControllerResult:
    """CreateTopics 2-7."""
    wanted = [
        NewTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            factor=topic.replication_factor,
            assignments=tuple((a.partition_index, tuple(a.broker_ids)) for a in topic.assignments),
            configs=tuple((config.name, config.value) for config in topic.configs),
        )
        for topic in message.topics
    ]
    result = controller.create_topics(wanted, validate_only=message.validate_only, permit=permit)
    if not message.validate_only:
        _warn_of_traps(controller, wanted, result.response["topics"])
    return result


def _warn_of_traps(
    controller: Controller, wanted: list[NewTopic], rows: list[Mapping[str, Any]]
) -> None:
    """One line for each new topic whose settings are allowed and often regretted."""
    image = controller.image
    of_cluster = image.config(BROKER_RESOURCE, "")
    set_on = {topic.name: dict(topic.configs) for topic in wanted}
    for row in rows:
        if row["error_code"] or row["name"] in (
            EVENT_LOG_TOPIC,
            AUDIT_TOPIC,
        ):  # that one is set so on purpose
            continue
        own = set_on[row["name"]]
        configs = {each["name"]: each["value"] for each in row["configs"]}
        configs |= {
            name: of_cluster[server_name]
            for name, server_name in TOPIC_TO_SERVER.items()
            if server_name in of_cluster and name not in own
        }
        traps = topic_traps(
            row["replication_factor"],
            configs,
            len(image.brokers),
            transactional=TRANSACTION_STATE_TOPIC in image.topics,
            own=frozenset(own),
        )
        if names := ",".join(trap.name for trap in traps):
            logger.warning(
                "topic was created with settings that are often regretted topic=%s traps=%s"
                " replication_factor=%d min_insync_replicas=%s",
                row["name"],
                names,
                row["replication_factor"],
                configs["min.insync.replicas"],
            )


def _refuse_topics(message: Any, error: KafkaError) -> Fields:
    rows = [{"name": topic.name, "configs": (), **_failure(error)} for topic in message.topics]
    return {"topics": rows}


def _delete_topics(
    controller: Controller, message: Any, now: float, permit: Permit = unlimited
) -> ControllerResult:
    """DeleteTopics 1-6. Only version 6 knows ids."""
    names, ids = _topics_to_delete(message)
    decision = controller.delete_topics(names, ids, permit=permit)
    error = KafkaError(
        ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
    )
    contradictory: list[Fields] = [
        {"name": topic.name, "topic_id": topic.topic_id, **_failure(error)}
        for topic in field(message, "topics", ())
        if _is_contradictory(topic)
    ]
    rows = contradictory + decision.response["responses"]
    return replace(decision, response={"responses": rows})


def _is_contradictory(topic: Any) -> bool:
    return topic.name is not None and topic.topic_id is not None


def _refuse_deletion(message: Any, error: KafkaError) -> Fields:
    names, ids = _topics_to_delete(message)
    rows: list[Fields] = [{"name": name, **_failure(error)} for name in names]
    rows += [{"name": None, "topic_id": topic_id, **_failure(error)} for topic_id in ids]
    return {"responses": rows}


def _topics_to_delete(message: Any) -> tuple[list[str], list[UUID]]:
    topics = field(message, "topics", None)
    if topics is None:
        return list(message.topic_names), []
    topics = [topic for topic in topics if not _is_contradictory(topic)]
    names = [topic.name for topic in topics if topic.name is not None]
    return names, [topic.topic_id or ZERO_UUID for topic in topics if topic.name is None]


def _create_partitions(
    controller: Controller, message: Any, now: float, permit: Permit = unlimited
) -> ControllerResult:
    """CreatePartitions 0-3."""
    wanted = [
        MorePartitions(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else tuple(tuple(given.broker_ids) for given in topic.assignments),
        )
        for topic in message.topics
    ]
    return controller.create_partitions(wanted, validate_only=message.validate_only, permit=permit)


def _refuse_partitions(message: Any, error: KafkaError) -> Fields:
    return {"results": [{"name": topic.name, **_failure(error)} for topic in message.topics]}


# Settings


def _alter_configs(
    controller: Controller, message: Any, now: float, *, is_forwarded: bool
) -> ControllerResult:
    """AlterConfigs 0-2."""
    wanted = [
        ConfigChanges(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigChange(c.name, Operation.SET, c.value) for c in resource.configs),
            is_forwarded,
        )
        for resource in message.resources
    ]
    return controller.alter_configs(wanted, validate_only=message.validate_only)


def _incremental_alter_configs(
    controller: Controller, message: Any, now: float, *, is_forwarded: bool
) -> ControllerResult:
    """IncrementalAlterConfigs 0-1."""
    wanted = [
        ConfigChanges(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs),
            is_forwarded,
        )
        for resource in message.resources
    ]
    return controller.incremental_alter_configs(wanted, validate_only=message.validate_only)


def _refuse_configs(message: Any, error: KafkaError) -> Fields:
    rows = [
        {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            **_failure(error),
        }
        for resource in message.resources
    ]
    return {"responses": rows}


# Quotas


def _alter_client_quotas(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AlterClientQuotas 0-1."""
    wanted = [
        QuotaChanges(
            _entity(entry),
            tuple(QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in message.entries
    ]
    return controller.alter_client_quotas(wanted, validate_only=message.validate_only)


def _entity(entry: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple((member.entity_type, member.entity_name) for member in entry.entity)


def _refuse_quotas(message: Any, error: KafkaError) -> Fields:
    rows = [
        {
            **_failure(error),
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in _entity(entry)],
        }
        for entry in message.entries
    ]
    return {"entries": rows}


# ACLs


def _create_acls(controller: Controller, message: Any, now: float) -> ControllerResult:
    """CreateAcls 1-3. A host is `*` or one address: Kafka takes others, which never match."""
    wanted = [
        Acl(
            ResourceType(each.resource_type),
            PatternType(each.resource_pattern_type),
            each.resource_name,
            each.principal,
            each.host,
            AclOperation(each.operation),
            Permission(each.permission_type),
        )
        for each in message.creations
    ]
    return controller.create_acls(wanted)


def _refuse_new_acls(message: Any, error: KafkaError) -> Fields:
    return {"results": [_failure(error) for _ in message.creations]}


def _delete_acls(controller: Controller, message: Any, now: float) -> ControllerResult:
    """DeleteAcls 1-3."""
    return controller.delete_acls([acl_filter(each) for each in message.filters])


def _refuse_acl_filters(message: Any, error: KafkaError) -> Fields:
    return {"filter_results": [{**_failure(error), "matching_acls": ()} for _ in message.filters]}


def acl_filter(asked: Any) -> AclFilter:
    """The filter of a DescribeAcls request, or one of DeleteAcls."""
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        PatternType(asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        Permission(asked.permission_type),
    )


# Credentials


def _alter_scram_credentials(controller: Controller, message: Any, now: float) -> ControllerResult:
    """AlterUserScramCredentials 0."""
    return controller.alter_scram_credentials(
        [CredentialDeletion(each.name, each.mechanism) for each in message.deletions],
        [
            CredentialUpsertion(
                each.name,
                each.mechanism,
                each.iterations,
                bytes(each.salt),
                bytes(each.salted_password),
            )
            for each in message.upsertions
        ],
    )


def _refuse_scram_credentials(message: Any, error: KafkaError) -> Fields:
    users = dict.fromkeys(each.name for each in (*message.deletions, *message.upsertions))
    return {"results": [{"user": user, **_failure(error)} for user in users]}


# Features


def _create_token(
    controller: Controller, message: Any, now: float, caller: Caller, wall_ms: int
) -> ControllerResult:
    """CreateDelegationToken 1-3. Before version 3 everybody makes tokens for himself. Owners are users, as renewers are."""
    check_token_request(ApiKey.CREATE_DELEGATION_TOKEN, message, caller)
    wanted = NewToken(
        caller.principal,
        owner_of(message, caller.principal),
        [Principal(each.principal_type, each.principal_name) for each in message.renewers],
        _milliseconds(message.max_lifetime),
    )
    return controller.create_token(wanted, wall_ms)


def _milliseconds(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)


def _refuse_new_token(message: Any, error: KafkaError) -> Fields:
    return {
        "error_code": error.code,
        "principal_type": "",
        "principal_name": "",
        "token_requester_principal_type": "",
        "token_requester_principal_name": "",
        "issue_timestamp": -1,
        "expiry_timestamp": -1,
        "max_timestamp": -1,
        "token_id": "",
        "hmac": b"",
    }


def _renew_token(
    controller: Controller, message: Any, now: float, caller: Caller, wall_ms: int
) -> ControllerResult:
    """RenewDelegationToken 1-2."""
    check_token_request(ApiKey.RENEW_DELEGATION_TOKEN, message, caller)
    period_ms = _milliseconds(message.renew_period)
    return controller.renew_token(caller.principal, bytes(message.hmac), period_ms, wall_ms)


def _expire_token(
    controller: Controller, message: Any, now: float, caller: Caller, wall_ms: int
) -> ControllerResult:
    """ExpireDelegationToken 1-2."""
    check_token_request(ApiKey.EXPIRE_DELEGATION_TOKEN, message, caller)
    period_ms = _milliseconds(message.expiry_time_period)
    return controller.expire_token(caller.principal, bytes(message.hmac), period_ms, wall_ms)


def _refuse_token(message: Any, error: KafkaError) -> Fields:
    return {"error_code": error.code, "expiry_timestamp": -1}


def _update_features(controller: Controller, message: Any, now: float) -> ControllerResult:
    """UpdateFeatures 0-2. Version 0 says only whether a downgrade is allowed. Left out:
    leaders elected without eligible leader replicas."""
    wanted = []
    for update in message.feature_updates:
        kind = field(update, "upgrade_type", None)
        if kind is None:
            kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
        wanted.append(FeatureUpdate(update.feature, update.max_version_level, kind))
    return controller.update_features(wanted, validate_only=field(message, "validate_only", False))


def _refuse_features(message: Any, error: KafkaError) -> Fields:
    """One wrong update fails all of them, so that none has a result of its own."""
    return {**_failure(error), "results": ()}


# How much is asked for


def _records_of_new_topics(message: Any) -> int:
    return sum(
        1 + len(topic.configs) + max(1, topic.num_partitions, len(topic.assignments))
        for topic in message.topics
    )


def _records_of_deletions(message: Any) -> int:
    return len(field(message, "topics", None) or field(message, "topic_names", ()))


def _records_of_partitions(message: Any) -> int:
    return sum(max(1, len(topic.assignments or ())) for topic in message.topics)


def _records_of_configs(message: Any) -> int:
    return sum(max(1, len(resource.configs)) for resource in message.resources)


def records_asked(key: ApiKey, message: Any) -> int:
    api = CONTROLLER_APIS.get(key)
    return 0 if api is None else api.records(message)


# Refusals


def _failure(error: KafkaError) -> Fields:
    return {"error_code": error.code, "error_message": error.message or None}


def _refuse_by_code(message: Any, error: KafkaError) -> Fields:
    return {"error_code": error.code}


def _refuse_with_message(message: Any, error: KafkaError) -> Fields:
    return _failure(error)


CONTROLLER_APIS: Mapping[ApiKey, ControllerApi] = {
    ApiKey.BROKER_REGISTRATION: ControllerApi(_register_broker, _refuse_by_code),
    ApiKey.BROKER_HEARTBEAT: ControllerApi(_heartbeat, _refuse_by_code),
    ApiKey.UNREGISTER_BROKER: ControllerApi(_unregister_broker, _refuse_with_message),
    ApiKey.CONTROLLER_REGISTRATION: ControllerApi(_register_controller, _refuse_with_message),
    ApiKey.ALLOCATE_PRODUCER_IDS: ControllerApi(_allocate_producer_ids, _refuse_by_code),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ControllerApi(_assign_replicas_to_dirs, _refuse_by_code),
    ApiKey.ALTER_PARTITION: ControllerApi(_alter_partition, _refuse_by_code),
    ApiKey.ELECT_LEADERS: ControllerApi(_elect_leaders, _refuse_election),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ControllerApi(_alter_reassignments, _refuse_with_message),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ControllerApi(_list_reassignments, _refuse_with_message),
    ApiKey.CREATE_TOPICS: ControllerApi(
        _create_topics, _refuse_topics, strict_from=6, records=_records_of_new_topics
    ),
    ApiKey.DELETE_TOPICS: ControllerApi(
        _delete_topics, _refuse_deletion, strict_from=5, records=_records_of_deletions
    ),
    ApiKey.CREATE_PARTITIONS: ControllerApi(
        _create_partitions, _refuse_partitions, strict_from=3, records=_records_of_partitions
    ),
    ApiKey.ALTER_CONFIGS: ControllerApi(
        _alter_configs, _refuse_configs, by_way_of=True, records=_records_of_configs
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ControllerApi(
        _incremental_alter_configs, _refuse_configs, by_way_of=True, records=_records_of_configs
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ControllerApi(_alter_client_quotas, _refuse_quotas),
    ApiKey.CREATE_ACLS: ControllerApi(
        _create_acls, _refuse_new_acls, records=lambda message: len(message.creations)
    ),
    ApiKey.DELETE_ACLS: ControllerApi(
        _delete_acls, _refuse_acl_filters, records=lambda message: len(message.filters)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ControllerApi(
        _alter_scram_credentials, _refuse_scram_credentials
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: ControllerApi(
        _create_token, _refuse_new_token, by_whom=True, is_repeatable=False
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: ControllerApi(_renew_token, _refuse_token, by_whom=True),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ControllerApi(_expire_token, _refuse_token, by_whom=True),
    ApiKey.UPDATE_FEATURES: ControllerApi(_update_features, _refuse_features),
}


ABOUT_THE_QUORUM = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
"""What the quorum answers, and the controller does not."""


def refusal(api_key: ApiKey, message: Any, error: KafkaError) -> Fields:
    """The answer to a request that no controller could be asked about, or that it refused as a whole."""
    if api_key in ABOUT_THE_QUORUM:
        return _failure(error)
    return CONTROLLER_APIS[api_key].refuse(message, error)
