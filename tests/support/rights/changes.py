"""What a broker passes on, and a controller decides."""

from __future__ import annotations

import dataclasses
from typing import Final
from uuid import UUID

from ottla.security.operations import CLUSTER_NAME, WILDCARD, ResourceType
from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import (
    CLUSTER_METADATA_TOPIC,
)
from ottla.wire.types import ZERO_UUID
from support.rights.exchange import (
    ABSENT,
    ACTION,
    ALTER,
    BOTH,
    BROKER,
    CONTROLLER,
    DESCRIBE,
    GROUP,
    OWNER,
    STRANGE_CLUSTER,
    TOPIC,
    Exchange,
    Fields,
    Given,
    Known,
    Lack,
    T,
    U,
    exchange,
    on_cluster,
    on_group,
    on_topic,
)

_NEW_TOPIC: Final = {
    "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
    "timeout": 10_000,
    "validate_only": True,
}
_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "nobody names it",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


LOGGERS_OF_CONTROLLER: Final = "loggers of this controller"


def _altered(key: ApiKey, when: str, kind: int, name: str | Known, right: Given) -> Exchange:
    resource: Fields = {"resource_type": kind, "resource_name": name, "configs": []}
    return exchange(
        key,
        {"resources": [resource], "validate_only": True},
        right,
        at=BOTH,
        when=when,
        codes="responses.error_code",
        # All settings are replaced, and that of min.insync.replicas for the whole cluster must not go.
        served={"responses.error_code": 40} if key is ApiKey.ALTER_CONFIGS and kind == 4 else {},
    )


CHANGES: Final = [
    *(
        exchange(
            ApiKey.CREATE_TOPICS,
            _NEW_TOPIC,
            Lack(right, {"topics.error_code": 29, "topics.num_partitions": -1}),
            Lack(
                (T, "new", O.DESCRIBE_CONFIGS),
                {"topics.topic_config_error_code": 29, "topics.num_partitions": -1},
            ),
            at=BOTH,
            when=when,
            served={"topics.num_partitions": 1},
            looks_at=("topics.num_partitions",),
        )
        for when, right in (
            ("always", (T, "new", O.CREATE)),
            ("the settings in the answer", on_cluster(O.CREATE)),
        )
    ),
    *(
        exchange(
            ApiKey.DELETE_TOPICS,
            {"topic_names": [ABSENT], "timeout": 10_000}
            if version < 6
            else {"topics": [{"name": ABSENT, "topic_id": ZERO_UUID}], "timeout": 10_000},
            (T, ABSENT, O.DELETE),
            at=BOTH,
            codes="responses.error_code",
            served={"responses.error_code": 3},
            version=version,
        )
        for version in (5, 6)
    ),
    *(
        exchange(
            ApiKey.DELETE_TOPICS,
            {"topics": [{"name": ABSENT, "topic_id": ZERO_UUID}], "timeout": 10_000},
            Lack(right, {"responses.error_code": 29}),
            at=BOTH,
            when=when,
            served={"responses.error_code": 3},
        )
        for when, right in (
            ("always", on_cluster(O.DELETE)),
            ("to learn whether it exists, and its name", (T, ABSENT, O.DESCRIBE)),
        )
    ),
    exchange(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": None, "topic_id": Known.TOPIC_ID}], "timeout": 10_000},
        Lack(
            on_topic(O.DESCRIBE),
            {"responses.error_code": 29, "responses.name": None},
        ),
        at=BOTH,
        when="to learn whether it exists, and its name",
        served={"responses.error_code": 29, "responses.name": TOPIC},
        looks_at=("responses.name",),
    ),
    exchange(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": TOPIC, "count": 1, "assignments": None}], "timeout": 10_000},
        on_topic(O.ALTER),
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 37},
    ),
    *(
        _altered(key, when, kind, name, right)
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for when, kind, name, right in (
            ("a topic", 2, TOPIC, on_topic(O.ALTER_CONFIGS)),
            ("a group", 32, GROUP, on_group(O.ALTER_CONFIGS)),
            ("a broker or client metrics", 4, "", on_cluster(O.ALTER_CONFIGS)),
            ("a broker or client metrics", 16, "metrics", on_cluster(O.ALTER_CONFIGS)),
        )
    ),
    *(
        dataclasses.replace(
            _altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, when, 8, Known.NODE_NAME, right), at=at
        )
        for when, right, at in (
            (
                "loggers of this broker; the rest is the controller's",
                on_cluster(O.ALTER_CONFIGS),
                BROKER,
            ),
            (LOGGERS_OF_CONTROLLER, ACTION, CONTROLLER),
        )
    ),
    exchange(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
            "validate_only": True,
        },
        on_cluster(O.ALTER_CONFIGS),
        at=BOTH,
        codes="entries.error_code",
    ),
    exchange(
        ApiKey.ELECT_LEADERS,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": ABSENT, "partitions": [0]}],
            "timeout": 10_000,
        },
        Lack(
            ALTER,
            {"error_code": 31, "replica_election_results.partition_result.error_code": 31},
        ),
        at=BOTH,
        served={"replica_election_results.partition_result.error_code": 3},
    ),
    exchange(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [], "timeout": 10_000}, ALTER, at=BOTH
    ),
    exchange(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": 10_000}, DESCRIBE, at=BOTH
    ),
    exchange(ApiKey.UPDATE_FEATURES, {"feature_updates": [], "timeout": 10_000}, ALTER, at=BOTH),
    exchange(
        ApiKey.UNREGISTER_BROKER, {"broker_id": 99}, ALTER, at=BOTH, served={"error_code": 102}
    ),
    exchange(
        ApiKey.CREATE_ACLS,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "",
                    "resource_pattern_type": 3,
                    "principal": "User:u",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        ALTER,
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 42},
    ),
    exchange(
        ApiKey.DELETE_ACLS,
        {"filters": [_FILTER]},
        ALTER,
        at=BOTH,
        codes="filter_results.error_code",
    ),
    exchange(
        ApiKey.DESCRIBE_ACLS,
        {**_FILTER, "resource_type_filter": 4, "resource_name_filter": CLUSTER_NAME},
        DESCRIBE,
        at=BOTH,
        served={"resources.resource_name": CLUSTER_NAME},
        looks_at=("resources.resource_name",),
    ),
    exchange(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": []}, DESCRIBE),
    exchange(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": ABSENT, "mechanism": 1}], "upsertions": []},
        ALTER,
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 91},
    ),
    exchange(
        ApiKey.DESCRIBE_QUORUM,
        {
            "topics": [
                {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
            ]
        },
        DESCRIBE,
        at=BOTH,
        served={"topics.topic_name": CLUSTER_METADATA_TOPIC},
        looks_at=("topics.topic_name",),
    ),
    exchange(
        ApiKey.ADD_RAFT_VOTER,
        {
            "cluster_id": STRANGE_CLUSTER,
            "timeout": 1000,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
            "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
        },
        ALTER,
        at=BOTH,
        served={"error_code": 104},
        version=0,
    ),
    exchange(
        ApiKey.REMOVE_RAFT_VOTER,
        {
            "cluster_id": STRANGE_CLUSTER,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
        },
        ALTER,
        at=BOTH,
        served={"error_code": 104},
        version=0,
    ),
    exchange(
        ApiKey.CREATE_DELEGATION_TOKEN,
        {
            "owner_principal_type": "User",
            "owner_principal_name": OWNER,
            "renewers": [],
            "max_lifetime": -1,
        },
        (U, f"User:{OWNER}", O.CREATE_TOKENS),
        at=BOTH,
        when="another owner",
    ),
    *(
        exchange(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            {"owners": [{"principal_type": "User", "principal_name": OWNER}]},
            Lack(right, {}, kafka=kafka),
            at=at,
            when="of others",
            served={"tokens.principal_name": OWNER},
            served_by_kafka=kafka,
            looks_at=("tokens.principal_name",),
        )
        # Kafka's controllers announce it, and cannot do it.
        for at, kafka in ((BROKER, None), (CONTROLLER, {"error_code": -1}))
        for right in (
            (ResourceType.DELEGATION_TOKEN, WILDCARD, O.DESCRIBE),
            (U, f"User:{OWNER}", O.DESCRIBE_TOKENS),
        )
    ),
    *(
        exchange(
            key,
            {"hmac": Known.TOKEN, period: 86_400_000},
            at=BOTH,
            served={} if user else {"error_code": 63},
            user=user,
        )
        for key, period in (
            (ApiKey.RENEW_DELEGATION_TOKEN, "renew_period"),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, "expiry_time_period"),
        )
        for user in (None, OWNER)
    ),
]
