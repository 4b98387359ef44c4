"""Each request about groups, transactions and the cluster: by somebody with nothing, with all but one right, and with exactly
what the table of needs says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from ruled_node import BROKER, CONTROLLER, G, Given, RuledNode, T, X, denials, on_cluster

from ottla.security.needs import ON_BROKER, ON_CONTROLLER
from ottla.security.operations import AclOperation as O
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS
from ottla.wire import schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from ottla.wire.types import ZERO_UUID

TOPIC, GROUP, TXN = "t", "g", "x"
READ_G, DESCRIBE_G, DELETE_G = ((G, GROUP, each) for each in (O.READ, O.DESCRIBE, O.DELETE))
WRITE_X, DESCRIBE_X = ((X, TXN, each) for each in (O.WRITE, O.DESCRIBE))
READ_T, WRITE_T, DESCRIBE_T = ((T, TOPIC, each) for each in (O.READ, O.WRITE, O.DESCRIBE))
ACTION = on_cluster(O.CLUSTER_ACTION)
STRANGE_CLUSTER = "another-cluster-000000"
STRANGE_VOTER = {"voter_id": 9, "voter_directory_id": UUID(int=9)}


class Row(NamedTuple):
    key: ApiKey
    fields: dict[str, Any]
    needed: tuple[tuple[Given, int], ...]
    """Each right, in the order in which they are looked at, and the code without it."""
    version: int | None = None


def row(key: ApiKey, fields: dict[str, Any], *needed: Any, version: int | None = None) -> Row:
    """`needed`: right, code, right, code, ..."""
    return Row(key, fields, tuple(zip(needed[::2], needed[1::2], strict=True)), version)


OFFSETS = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
MEMBER = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}

GROUPS = [
    row(
        ApiKey.JOIN_GROUP,
        {
            "group_id": GROUP,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        READ_G,
        30,
    ),
    row(ApiKey.SYNC_GROUP, {**MEMBER, "assignments": []}, READ_G, 30),
    row(ApiKey.HEARTBEAT, MEMBER, READ_G, 30),
    row(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "members": [{"member_id": "m"}]}, READ_G, 30),
    row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 3,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
        },
        READ_G,
        30,
        DESCRIBE_T,
        29,
    ),
    *(
        row(
            ApiKey.OFFSET_COMMIT,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": OFFSETS,
            },
            READ_G,
            30,
            READ_T,
            29,
            version=version,
        )
        for version in (2, 9)
    ),
    *(
        row(
            ApiKey.OFFSET_FETCH,
            {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
            DESCRIBE_G,
            30,
            DESCRIBE_T,
            29,
            version=version,
        )
        for version in (1, 7)
    ),
    row(
        ApiKey.OFFSET_FETCH,
        {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]}]},
        DESCRIBE_G,
        30,
        DESCRIBE_T,
        29,
        version=9,
    ),
    row(
        ApiKey.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        DELETE_G,
        30,
        READ_T,
        29,
    ),
    row(ApiKey.DELETE_GROUPS, {"groups_names": ["another"]}, (G, "another", O.DELETE), 30),
    row(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP]}, DESCRIBE_G, 30),
    row(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [GROUP]}, DESCRIBE_G, 30),
    row(ApiKey.FIND_COORDINATOR, {"key": GROUP, "key_type": 0}, DESCRIBE_G, 30, version=3),
    row(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [GROUP], "key_type": 0}, DESCRIBE_G, 30),
    row(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [TXN], "key_type": 1}, DESCRIBE_X, 53),
    row(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["s"], "key_type": 2}, ACTION, 31),
]

PRODUCER = {"transactional_id": TXN, "producer_id": 77, "producer_epoch": 0}
TRANSACTIONS = [
    row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": TXN, "transaction_timeout": 1000},
        WRITE_X,
        53,
    ),
    row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout": 1000},
        on_cluster(O.IDEMPOTENT_WRITE),
        31,
    ),
    row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout": 1000},
        (T, "any topic at all", O.WRITE),
        31,
    ),
    row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        WRITE_X,
        53,
        WRITE_T,
        29,
        version=3,
    ),
    *(
        row(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {
                "transactions": [
                    {
                        **PRODUCER,
                        "verify_only": True,
                        "topics": [{"name": TOPIC, "partitions": [0]}],
                    }
                ]
            },
            ACTION,
            31,
            version=version,
        )
        for version in (4, 5)
    ),
    row(ApiKey.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": GROUP}, WRITE_X, 53, READ_G, 30),
    row(
        ApiKey.TXN_OFFSET_COMMIT,
        {**PRODUCER, "group_id": GROUP, "topics": OFFSETS},
        WRITE_X,
        53,
        READ_G,
        30,
        READ_T,
        29,
    ),
    row(ApiKey.END_TXN, {**PRODUCER, "committed": True}, WRITE_X, 53),
    *(
        row(
            ApiKey.WRITE_TXN_MARKERS,
            {
                "markers": [
                    {
                        "producer_id": 77,
                        "producer_epoch": 0,
                        "transaction_result": True,
                        "topics": [{"name": TOPIC, "partition_indexes": [9]}],
                        "coordinator_epoch": 0,
                    }
                ]
            },
            on_cluster(operation),
            31,
        )
        for operation in (O.ALTER, O.CLUSTER_ACTION)
    ),
    row(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [TXN]}, DESCRIBE_X, 53),
]

ALTER, DESCRIBE = on_cluster(O.ALTER), on_cluster(O.DESCRIBE)
NEW_TOPIC = {
    "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
    "timeout": 1000,
    "validate_only": True,
}
CONFIGS = {
    (2, TOPIC): ((T, TOPIC, O.ALTER_CONFIGS), 29),
    (32, GROUP): ((G, GROUP, O.ALTER_CONFIGS), 30),
    (4, ""): (on_cluster(O.ALTER_CONFIGS), 31),
    (16, "metrics"): (on_cluster(O.ALTER_CONFIGS), 31),
}
ADMIN = [
    row(
        ApiKey.CREATE_TOPICS,
        NEW_TOPIC,
        (T, "new", O.CREATE),
        29,
        (T, "new", O.DESCRIBE_CONFIGS),
        29,
    ),
    row(
        ApiKey.CREATE_TOPICS,
        NEW_TOPIC,
        on_cluster(O.CREATE),
        29,
        (T, "new", O.DESCRIBE_CONFIGS),
        29,
    ),
    row(
        ApiKey.DELETE_TOPICS,
        {"topic_names": ["absent"], "timeout": 1000},
        (T, "absent", O.DELETE),
        29,
        version=5,
    ),
    row(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": "absent", "topic_id": ZERO_UUID}], "timeout": 1000},
        (T, "absent", O.DELETE),
        29,
    ),
    row(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": TOPIC, "count": 1, "assignments": None}], "timeout": 1000},
        (T, TOPIC, O.ALTER),
        29,
    ),
    *(
        row(
            key,
            {
                "resources": [{"resource_type": kind, "resource_name": name, "configs": []}],
                "validate_only": True,
            },
            *needed,
        )
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for (kind, name), needed in CONFIGS.items()
    ),
    row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
            "validate_only": True,
        },
        on_cluster(O.ALTER_CONFIGS),
        31,
    ),
    row(
        ApiKey.ELECT_LEADERS,
        {"election_type": 0, "topic_partitions": [{"topic": "absent", "partitions": [0]}]},
        ALTER,
        31,
    ),
    row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [], "timeout": 1000}, ALTER, 31),
    row(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": 1000}, DESCRIBE, 31),
    row(ApiKey.UPDATE_FEATURES, {"feature_updates": [], "timeout": 1000}, ALTER, 31),
    row(ApiKey.UNREGISTER_BROKER, {"broker_id": 99}, ALTER, 31),
    row(
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
        31,
    ),
    row(
        ApiKey.DELETE_ACLS,
        {
            "filters": [
                {
                    "resource_type_filter": 2,
                    "resource_name_filter": "absent",
                    "pattern_type_filter": 3,
                    "principal_filter": None,
                    "host_filter": None,
                    "operation": 1,
                    "permission_type": 1,
                }
            ]
        },
        ALTER,
        31,
    ),
    row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "absent", "mechanism": 1}], "upsertions": []},
        ALTER,
        31,
    ),
    row(
        ApiKey.DESCRIBE_QUORUM,
        {
            "topics": [
                {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
            ]
        },
        DESCRIBE,
        31,
    ),
    row(
        ApiKey.ADD_RAFT_VOTER,
        {"cluster_id": STRANGE_CLUSTER, "timeout": 1000, **STRANGE_VOTER, "listeners": []},
        ALTER,
        31,
    ),
    row(ApiKey.REMOVE_RAFT_VOTER, {"cluster_id": STRANGE_CLUSTER, **STRANGE_VOTER}, ALTER, 31),
]

ELECTION = {
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


def raft(key: ApiKey) -> dict[str, Any]:
    known = schema.names_of_all_versions(key, "request")["topics", "partitions"]
    partition = {name: value for name, value in ELECTION.items() if name in known}
    topic = {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}
    return {"cluster_id": STRANGE_CLUSTER, "topics": [topic]}


NODES = [
    row(
        ApiKey.UPDATE_RAFT_VOTER,
        {
            "cluster_id": STRANGE_CLUSTER,
            "current_leader_epoch": 1000,
            **STRANGE_VOTER,
            "listeners": [],
            "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        },
        ACTION,
        31,
    ),
    row(ApiKey.VOTE, raft(ApiKey.VOTE), ACTION, 31),
    row(ApiKey.BEGIN_QUORUM_EPOCH, raft(ApiKey.BEGIN_QUORUM_EPOCH), ACTION, 31),
    row(ApiKey.END_QUORUM_EPOCH, raft(ApiKey.END_QUORUM_EPOCH), ACTION, 31),
    row(
        ApiKey.FETCH,
        {
            "cluster_id": STRANGE_CLUSTER,
            "max_wait": 0,
            "min_bytes": 0,
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
        31,
    ),
    row(
        ApiKey.FETCH_SNAPSHOT,
        {"cluster_id": STRANGE_CLUSTER, "max_bytes": 1000, "topics": []},
        ACTION,
        31,
    ),
    row(
        ApiKey.ALTER_PARTITION,
        {"broker_id": 1, "broker_epoch": 1_000_000, "topics": []},
        ACTION,
        31,
    ),
    row(
        ApiKey.BROKER_REGISTRATION,
        {
            "broker_id": 1,
            "cluster_id": STRANGE_CLUSTER,
            "incarnation_id": UUID(int=7),
            "listeners": [],
            "features": [],
            "rack": None,
            "log_dirs": [UUID(int=1 << 64)],
        },
        ACTION,
        31,
    ),
    row(
        ApiKey.BROKER_HEARTBEAT,
        {
            "broker_id": 1,
            "broker_epoch": 1_000_000,
            "current_metadata_offset": 0,
            "want_fence": True,
            "want_shut_down": False,
        },
        ACTION,
        31,
    ),
    row(ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": 1, "broker_epoch": 1_000_000}, ACTION, 31),
    row(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        {"broker_id": 1, "broker_epoch": 1_000_000, "directories": []},
        ACTION,
        31,
    ),
    row(
        ApiKey.CONTROLLER_REGISTRATION,
        {
            "controller_id": 99,
            "incarnation_id": UUID(int=7),
            "zk_migration_ready": False,
            "listeners": [],
            "features": [],
        },
        ACTION,
        31,
    ),
    row(
        ApiKey.ENVELOPE,
        {
            "request_data": b"",
            "request_principal": principal_to_bytes(ANONYMOUS),
            "client_host_address": bytes(4),
        },
        ACTION,
        31,
    ),
    row(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2}, ALTER, 31),
]

ROWS = [
    *((BROKER, each) for each in GROUPS + TRANSACTIONS + ADMIN),
    *((CONTROLLER, each) for each in ADMIN + NODES),
]


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuledNode]:
    ruled = RuledNode(tmp_path_factory.mktemp("ruled"))
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    made = ruled.ask(ruled.admin, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
    assert made.topics[0].error_code == 0
    for key, key_type in ((GROUP, 0), (TXN, 1)):
        found = {"coordinator_keys": [key], "key_type": key_type}
        answer = ruled.ask(ruled.admin, ApiKey.FIND_COORDINATOR, found)
        assert answer.coordinators[0].error_code == 0
    yield ruled
    ruled.close()


def state(ruled: RuledNode) -> tuple[Any, ...]:
    """What nobody may change without a right."""
    quorum, broker = ruled.node.quorum, ruled.node.broker
    assert quorum is not None and broker is not None
    image = quorum.image
    return (
        quorum.epoch,
        quorum.leader_id,
        image.brokers,
        image.topics,
        image.next_producer_id,
        image.controllers,
        broker.replicas.get(TOPIC, 0).log.log_end,  # nodes write into their own topics at any time
    )


def named(listener: str, each: Row) -> str:
    version = "" if each.version is None else f" v{each.version}"
    return (
        f"{listener}: {APIS[each.key].name}{version} {'+'.join(n[0][2].name for n in each.needed)}"
    )


@pytest.mark.parametrize(("listener", "each"), ROWS, ids=[named(*case) for case in ROWS])
def test_what_is_needed_is_asked_for_and_is_enough(
    ruled: RuledNode, listener: str, each: Row
) -> None:
    def answer(*given: Given) -> set[int]:
        channel: Channel = ruled.log_in(ruled.somebody(*given), listener)
        try:
            return denials(ruled.ask(channel, each.key, each.fields, version=each.version))
        finally:
            channel.close()

    rights = [right for right, _ in each.needed]
    before = state(ruled)
    for number, (_, code) in enumerate(each.needed):
        assert answer(*rights[:number]) == {code}, f"without right {number}"
        others = rights[:number] + rights[number + 1 :]
        assert code in answer(*others), f"with all others than right {number}"
    assert state(ruled) == before
    assert answer(*rights) == set()


def test_every_row_of_the_tables_that_is_decided_here_is_tried() -> None:
    tried = {(listener, each.key) for listener, each in ROWS}
    elsewhere = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}  # what is denied is left out
    about_groups = {
        key
        for key, forms in ON_BROKER.items()
        for form in forms
        for need in form.needs
        if any(right.resource_type in (G, X) for right in need.any_of)
    } - {ApiKey.PRODUCE, ApiKey.DESCRIBE_CONFIGS}
    assert {int(key) for _, key in tried} >= about_groups - elsewhere
    on_controllers = {
        key
        for key, forms in ON_CONTROLLER.items()
        if forms and key in APIS and APIS[ApiKey(key)].on_controller
    } - {ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}
    # Nobody asks about tokens without a login: test_token_apis.
    on_controllers -= {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
    assert {key for at, key in tried if at == CONTROLLER} >= on_controllers
