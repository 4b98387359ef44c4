"""What a client's request changed in the cluster, for the audit: read from the records that were committed for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.controller.acls import acl_of
from ottla.controller.draft import Draft
from ottla.events.audit import Audited
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ottla.security.operations import AclOperation
from ottla.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from ottla.broker.cluster.controller_service import Asked

OPERATIONS: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.CREATE_TOPICS: AclOperation.CREATE,
    ApiKey.DELETE_TOPICS: AclOperation.DELETE,
    ApiKey.CREATE_PARTITIONS: AclOperation.ALTER,
    ApiKey.ALTER_CONFIGS: AclOperation.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: AclOperation.ALTER_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
    ApiKey.CREATE_ACLS: AclOperation.ALTER,
    ApiKey.DELETE_ACLS: AclOperation.ALTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AclOperation.ALTER,
    ApiKey.CREATE_DELEGATION_TOKEN: AclOperation.CREATE_TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: AclOperation.ALTER,
    ApiKey.EXPIRE_DELEGATION_TOKEN: AclOperation.DELETE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: AclOperation.ALTER,
    ApiKey.ELECT_LEADERS: AclOperation.ALTER,
    ApiKey.UPDATE_FEATURES: AclOperation.ALTER,
    ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,
    ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
}
"""Of the requests by which people change a cluster. Others come from nodes."""

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
CONFIGURED: Final = {
    TOPIC_RESOURCE: "Topic",
    BROKER_RESOURCE: "Broker",
    BROKER_LOGGER_RESOURCE: "BrokerLogger",
    CLIENT_METRICS_RESOURCE: "ClientMetrics",
    GROUP_RESOURCE: "Group",
}


def audited_changes(asked: Asked, draft: Draft) -> Iterator[Audited]:
    """One for each thing that changed, however many records that took."""
    operation = OPERATIONS.get(asked.api)
    if operation is None:
        return
    changed = dict.fromkeys(each for record in draft.records for each in _changed(record, draft))
    if draft.kraft_version is not None:  # the quorum writes no metadata record for it
        changed[f"Feature:{KRAFT_VERSION}={draft.kraft_version}"] = None
    for resource in changed:
        yield Audited(
            "change",
            str(asked.principal),
            asked.host,
            asked.listener,
            api=APIS[asked.api].name,
            operation=operation.name,
            resource=resource,
            cause=_passed_on(asked),
        )


def audited_voter_change(asked: Asked, voter: str) -> Audited:
    """The quorum writes no metadata record for it."""
    sign = "+" if asked.api is ApiKey.ADD_RAFT_VOTER else "-"
    return Audited(
        "change",
        str(asked.principal),
        asked.host,
        asked.listener,
        api=APIS[asked.api].name,
        operation=OPERATIONS[asked.api].name,
        resource=f"Voter:{sign}{voter}",
        cause=_passed_on(asked),
    )


def _passed_on(asked: Asked) -> str | None:
    return None if asked.passed_on_by is None else f"passed on by {asked.passed_on_by}"


def _changed(record: MetadataRecord, draft: Draft) -> Iterator[str]:
    """Names only. The value of a setting, or a key, may be a secret."""
    before = draft.before
    match record:
        case TopicRecord():
            yield f"Topic:{record.name}"
        case RemoveTopicRecord():
            yield f"Topic:{before.topics_by_id[record.topic_id].name}"
        case PartitionRecord() | PartitionChangeRecord():
            if (topic := before.topics_by_id.get(record.topic_id)) is not None:
                yield f"Partition:{topic.name}-{record.partition_id}"
        case ConfigRecord():
            kind = CONFIGURED.get(record.resource_type, str(record.resource_type))
            is_new = kind == "Topic" and record.resource_name not in before.topics
            if not is_new:
                yield f"{kind}:{record.resource_name or '<default>'} {record.name}"
        case ClientQuotaRecord():
            entity = ",".join(f"{x.entity_type}:{x.entity_name or '<default>'}" for x in record.entity)  # fmt: skip
            yield f"Quota:{entity} {record.key}"
        case AccessControlEntryRecord():
            yield f"Acl:+{_acl(record)}"
        case RemoveAccessControlEntryRecord():
            yield f"Acl:-{_acl(before.acls[record.id])}"
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            sign = "+" if isinstance(record, UserScramCredentialRecord) else "-"
            yield f"User:{record.name} {sign}{MECHANISMS.get(record.mechanism, record.mechanism)}"
        case DelegationTokenRecord():
            # Not its id: with it somebody could try to log in.
            yield f"DelegationToken:+{record.owner}"
        case RemoveDelegationTokenRecord():
            if (token := before.delegation_tokens.get(record.token_id)) is not None:
                yield f"DelegationToken:-{token.owner}"
        case FeatureLevelRecord():
            yield f"Feature:{record.name}={record.feature_level}"
        case UnregisterBrokerRecord():
            yield f"Broker:{record.broker_id}"


def _acl(record: AccessControlEntryRecord) -> str:
    acl = acl_of(record)
    return (
        f"{acl.permission.name} {acl.principal} {acl.operation.name} {acl.resource_type.name}"
        f":{acl.pattern_type.name}:{acl.resource_name} from {acl.host}"
    )
