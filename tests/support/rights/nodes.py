"""What nodes ask of controllers, each in a way that changes nothing; and what anybody may ask after a login."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.security.operations import AclOperation as O
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS
from ottla.wire import schema
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    CLUSTER_METADATA_TOPIC_ID,
)
from ottla.wire.types import ZERO_UUID
from support.rights.exchange import (
    ACTION,
    BOTH,
    CONTROLLER,
    STRANGE_CLUSTER,
    Exchange,
    Known,
    exchange,
    on_cluster,
)
from support.rights.records import fetch

_ELECTION: Final = {
    "partition_index": 0,
    "replica_epoch": 1000,
    "replica_id": 9,
    "last_offset_epoch": 1000,
    "last_offset": 1000,
    "leader_id": 9,
    "leader_epoch": 1000,
    "preferred_successors": [],
    "preferred_candidates": [],
}
_LATER_EPOCH: Final = {"broker_id": Known.NODE, "broker_epoch": 1_000_000}


def _election(key: ApiKey) -> Exchange:
    known = schema.names_of_all_versions(key, "request")["topics", "partitions"]
    partition = {name: value for name, value in _ELECTION.items() if name in known}
    topic = {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}
    fields = {"cluster_id": STRANGE_CLUSTER, "topics": [topic]}
    return exchange(key, fields, ACTION, at=CONTROLLER, served={"error_code": 104})


NODES: Final = [
    *map(_election, (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH)),
    exchange(
        ApiKey.FETCH,
        {
            **fetch({}),
            "cluster_id": STRANGE_CLUSTER,
            "topics": [
                {
                    "topic_id": CLUSTER_METADATA_TOPIC_ID,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    exchange(
        ApiKey.FETCH_SNAPSHOT,
        {
            "cluster_id": STRANGE_CLUSTER,
            "replica_id": 9,
            "max_bytes": 1000,
            "topics": [],
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    exchange(
        ApiKey.UPDATE_RAFT_VOTER,
        {
            "cluster_id": STRANGE_CLUSTER,
            "current_leader_epoch": 1,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
            "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
            "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
        version=0,
    ),
    exchange(
        ApiKey.ALTER_PARTITION,
        {
            **_LATER_EPOCH,
            "topics": [
                {
                    "topic_id": Known.TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "leader_epoch": 0,
                            "new_isr_with_epochs": [],
                            "partition_epoch": 0,
                        }
                    ],
                }
            ],
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    exchange(
        ApiKey.BROKER_REGISTRATION,
        {
            "broker_id": 99,
            "cluster_id": STRANGE_CLUSTER,
            "incarnation_id": UUID(int=7),
            "listeners": [],
            "features": [],
            "rack": None,
            "log_dirs": [UUID(int=1 << 64)],
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    exchange(
        ApiKey.BROKER_HEARTBEAT,
        {
            **_LATER_EPOCH,
            "current_metadata_offset": 0,
            "want_fence": True,
            "want_shut_down": False,
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    exchange(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        _LATER_EPOCH,
        ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    exchange(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        {**_LATER_EPOCH, "directories": []},
        ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    exchange(
        ApiKey.CONTROLLER_REGISTRATION,
        {
            "controller_id": 99,
            "incarnation_id": UUID(int=7),
            "zk_migration_ready": False,
            "listeners": [],
            "features": [],
        },
        ACTION,
        at=CONTROLLER,
    ),
    exchange(
        ApiKey.ENVELOPE,
        {
            "request_data": b"",
            "request_principal": principal_to_bytes(ANONYMOUS),
            "client_host_address": bytes(4),
        },
        ACTION,
        at=CONTROLLER,
        served={"error_code": 35},
    ),
    exchange(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2}, on_cluster(O.ALTER), at=CONTROLLER),
]

FREE: Final = [
    exchange(
        ApiKey.API_VERSIONS,
        {"client_software_name": "tests", "client_software_version": "1"},
        at=BOTH,
    ),
    # A second login is for sessions that have an end.
    exchange(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, at=BOTH, served={"error_code": 34}),
    exchange(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b""}, at=BOTH, served={"error_code": 34}),
    exchange(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 1}),
    exchange(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": ZERO_UUID}),
    exchange(
        ApiKey.PUSH_TELEMETRY,
        {
            "client_instance_id": UUID(int=7),
            "subscription_id": 1,
            "terminating": False,
            "compression_type": 0,
            "metrics": b"",
        },
        served={"error_code": 117},
    ),
]
