"""Requests about groups, producers and the cluster that make no sense, or are always refused: each gets its code over the wire, and
changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import ZERO_UUID
from support.cluster import ProcessCluster, wait_until

NewTopic = Callable[..., str]
NOBODY = "nobody-has-this-name"


def coordinator(cluster: ProcessCluster, kind: int, key: str) -> Any:
    def found() -> Any:
        fields = {"key_type": kind, "coordinator_keys": [key]}
        answer = cluster.ask(cluster.nodes[1], ApiKey.FIND_COORDINATOR, 6, fields)
        (one,) = answer.coordinators
        return cluster.nodes[one.node_id] if int(one.error_code) == 0 else None

    return wait_until(found, 30, f"a coordinator of {key}")


def ask_group(cluster: ProcessCluster, key: ApiKey, version: int, **fields: Any) -> int:
    """The code of the answer, once the coordinator has loaded."""
    at = coordinator(cluster, 0, fields["group_id"] or "any")

    def code() -> list[int]:
        answer = cluster.ask(at, key, version, fields)
        found = int(getattr(answer, "error_code", 0))
        if key is ApiKey.OFFSET_COMMIT:
            found = int(answer.topics[0].partitions[0].error_code)
        return [] if found == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else [found]

    return wait_until(code, 30, "an answer")[0]


def join(cluster: ProcessCluster, **changed: Any) -> int:
    protocol = {"name": "range", "metadata": b""}
    fields = {
        "group_id": "bad-group",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    return ask_group(cluster, ApiKey.JOIN_GROUP, 9, **{**fields, **changed})


def commit(topic: str, **changed: Any) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "committed_offset": 0,
        "committed_metadata": changed.pop("metadata", ""),
    }
    fields = {
        "group_id": "bad-group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    return {**fields, **changed}


def test_groups_refuse_what_makes_no_sense(cluster: ProcessCluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert join(cluster, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert join(cluster, session_timeout=1) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(cluster, member_id=NOBODY) == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(cluster, protocols=()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(cluster) == ErrorCode.MEMBER_ID_REQUIRED
    of_nobody = {"group_id": "bad-group", "member_id": NOBODY}
    beat = ask_group(cluster, ApiKey.HEARTBEAT, 4, generation_id=3, **of_nobody)
    assert beat == ErrorCode.UNKNOWN_MEMBER_ID
    both = {"protocol_type": "consumer", "protocol_name": "range"}
    for expected, names in (
        (ErrorCode.UNKNOWN_MEMBER_ID, both),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {**both, "protocol_type": None}),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {**both, "protocol_name": None}),
    ):
        sync: dict[str, Any] = {"generation_id": 3, "assignments": [], **names, **of_nobody}
        assert ask_group(cluster, ApiKey.SYNC_GROUP, 5, **sync) == expected
    for expected, change in (
        (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": NOBODY, "generation_id_or_member_epoch": 1}),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, {"metadata": "x" * 5000}),
    ):
        fields = commit(topic, **change)
        assert ask_group(cluster, ApiKey.OFFSET_COMMIT, 9, **fields) == expected


def heartbeat(cluster: ProcessCluster, **changed: Any) -> int:
    fields = {
        "group_id": "bad-consumers",
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return ask_group(cluster, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **{**fields, **changed})


def test_consumer_groups_refuse_what_makes_no_sense(cluster: ProcessCluster) -> None:
    assert heartbeat(cluster, group_id="") == ErrorCode.INVALID_REQUEST
    assert heartbeat(cluster, member_epoch=-7) == ErrorCode.INVALID_REQUEST
    assert heartbeat(cluster, rebalance_timeout=-1) == ErrorCode.INVALID_REQUEST
    assert heartbeat(cluster, server_assignor="magic") == ErrorCode.UNSUPPORTED_ASSIGNOR
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    assert heartbeat(cluster, **pattern) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert heartbeat(cluster, member_epoch=5) in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


def update_features(cluster: ProcessCluster, name: str, level: int, kind: int) -> int:
    update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    fields = {"feature_updates": [update], "validate_only": False}
    return int(cluster.ask(cluster.nodes[1], ApiKey.UPDATE_FEATURES, 2, fields).error_code)


def test_without_its_feature_the_consumer_protocol_is_refused(new_cluster: Any) -> None:
    cluster = new_cluster(1)
    assert update_features(cluster, "group.version", 0, 2) == ErrorCode.NONE
    wait_until(
        lambda: heartbeat(cluster) == ErrorCode.UNSUPPORTED_VERSION, 10, "the protocol is off"
    )
    assert update_features(cluster, "group.version", 1, 1) == ErrorCode.NONE
    wait_until(lambda: heartbeat(cluster) == ErrorCode.NONE, 10, "and on again")
    assert update_features(cluster, "group.version", 9, 1) == ErrorCode.INVALID_UPDATE_VERSION


def test_transactions_refuse_what_makes_no_sense(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, id = new_topic(), "bad-transaction"
    at = coordinator(cluster, 1, id)

    def begin(timeout_ms: int, transactional_id: str = id) -> Any:
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        def answered() -> list[Any]:
            answer = cluster.ask(at, ApiKey.INIT_PRODUCER_ID, 5, fields)
            waits = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
            return [] if int(answer.error_code) in waits else [answer]

        return wait_until(answered, 30, "an answer")[0]

    assert int(begin(0).error_code) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert int(begin(2**31 - 1).error_code) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert int(begin(10_000, "").error_code) == ErrorCode.INVALID_REQUEST
    first, second = begin(10_000), begin(10_000)
    assert second.producer_epoch == first.producer_epoch + 1

    def add(producer_id: int, epoch: int, of: str = topic) -> int:
        fields = {
            "v3_and_below_transactional_id": id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": of, "partitions": [0]}],
        }
        answer = cluster.ask(at, ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)
        (row,) = answer.results_by_topic_v3_and_below
        return int(row.results_by_partition[0].partition_error_code)

    assert add(second.producer_id + 99, 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add(first.producer_id, first.producer_epoch) == ErrorCode.PRODUCER_FENCED
    assert add(second.producer_id, second.producer_epoch, NOBODY) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )

    def end(producer_id: int, epoch: int) -> int:
        fields = {
            "transactional_id": id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": True,
        }
        return int(cluster.ask(at, ApiKey.END_TXN, 3, fields).error_code)

    assert end(second.producer_id + 99, 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(second.producer_id, second.producer_epoch) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("client-id", 1, None)], ErrorCode.NONE),
    ],
)
def test_a_filter_of_quotas_that_contradicts_itself_is_refused(
    cluster: ProcessCluster, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    rows = [
        {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components
    ]
    fields = {"components": rows, "strict": False}
    answer = cluster.ask(cluster.nodes[1], ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, fields)
    assert int(answer.error_code) == code


def test_admin_requests_that_make_no_sense_get_their_codes(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    node, topic = cluster.nodes[1], new_topic()

    def alter(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> int:
        change = {"name": key, "config_operation": operation, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        fields = {"resources": [resource], "validate_only": False}
        answer = cluster.ask(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        return int(answer.responses[0].error_code)

    assert alter(2, NOBODY, "retention.ms", "1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(2, topic, "no.such.name", "1") == ErrorCode.INVALID_CONFIG
    assert alter(2, topic, "retention.ms", "soon") == ErrorCode.INVALID_CONFIG
    assert alter(2, topic, "retention.ms", None) == ErrorCode.INVALID_REQUEST
    assert alter(2, topic, "retention.ms", "1", operation=9) == ErrorCode.INVALID_REQUEST
    assert alter(2, topic, "retention.ms", "1", operation=2) == ErrorCode.INVALID_CONFIG
    assert alter(4, "77", "log.retention.ms", "1") == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert alter(4, "one", "log.retention.ms", "1") == ErrorCode.INVALID_REQUEST
    assert alter(4, "1", "node.id", "9") == ErrorCode.INVALID_REQUEST
    assert alter(4, "1", "log.retention.ms", "soon") == ErrorCode.INVALID_CONFIG
    assert alter(8, "2", "root", "DEBUG") == ErrorCode.INVALID_REQUEST
    assert alter(8, "1", "no.such.logger", "DEBUG") == ErrorCode.INVALID_CONFIG
    assert alter(8, "1", "root", "LOUD") == ErrorCode.INVALID_CONFIG
    assert alter(8, "1", "root", None, operation=1) == ErrorCode.INVALID_REQUEST
    assert alter(8, "1", "root", "DEBUG", operation=2) == ErrorCode.INVALID_REQUEST
    assert alter(16, "m", "interval.ms", "10") == ErrorCode.INVALID_REQUEST
    assert alter(16, "m", "no.such.name", "1") == ErrorCode.INVALID_REQUEST
    assert alter(16, "m", "match", "client_id=(") == ErrorCode.INVALID_CONFIG
    assert alter(32, "", "consumer.session.timeout.ms", "50000") == ErrorCode.INVALID_REQUEST
    assert alter(32, "g", "consumer.session.timeout.ms", "1") == ErrorCode.INVALID_CONFIG
    assert alter(32, "g", "no.such.name", "1") == ErrorCode.INVALID_CONFIG
    assert alter(99, "x", "y", "z") == ErrorCode.INVALID_REQUEST

    def describe(kind: int, name: str) -> int:
        fields = {"resources": [{"resource_type": kind, "resource_name": name}]}
        answer = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, 4, fields)
        return int(answer.results[0].error_code)

    assert describe(2, NOBODY) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(2, "no topic") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe(4, "77") == ErrorCode.INVALID_REQUEST
    assert describe(8, "2") == ErrorCode.INVALID_REQUEST
    assert describe(16, "") == ErrorCode.INVALID_REQUEST
    assert describe(32, "") == ErrorCode.INVALID_REQUEST
    assert describe(99, "x") == ErrorCode.INVALID_REQUEST
    listed = cluster.ask(node, ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [99]})
    assert int(listed.error_code) == ErrorCode.UNSUPPORTED_VERSION
    oldest = cluster.ask(node, ApiKey.LIST_CONFIG_RESOURCES, 0, {})
    assert int(oldest.error_code) == ErrorCode.NONE and not oldest.config_resources
    gone = cluster.ask(node, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 77})
    assert int(gone.error_code) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_no_metrics_of_clients_are_wanted(cluster: ProcessCluster) -> None:
    node = cluster.nodes[1]
    told = cluster.ask(
        node, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": ZERO_UUID}
    )
    assert int(told.error_code) == ErrorCode.NONE
    assert not told.requested_metrics
    again = {"client_instance_id": told.client_instance_id}
    answer = cluster.ask(node, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, again)
    assert answer.client_instance_id == told.client_instance_id

    def push(**fields: object) -> int:
        known = again | {"subscription_id": told.subscription_id, "metrics": b""}
        return int(cluster.ask(node, ApiKey.PUSH_TELEMETRY, 0, known | fields).error_code)

    assert push(terminating=True) == ErrorCode.NONE
    assert push(subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(client_instance_id=ZERO_UUID) == ErrorCode.INVALID_REQUEST
    assert push(metrics=bytes((1 << 20) + 1)) == ErrorCode.TELEMETRY_TOO_LARGE


def test_a_level_of_one_logger_is_changed_and_given_back(cluster: ProcessCluster) -> None:
    node, name = cluster.nodes[1], "ottla.broker.server.connections"

    def level() -> str | None:
        fields = {"resources": [{"resource_type": 8, "resource_name": "1"}]}
        answer = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, 4, fields)
        return {entry.name: entry.value for entry in answer.results[0].configs}[name]

    def alter(operation: int, value: str | None) -> int:
        change = {"name": name, "config_operation": operation, "value": value}
        resource = {"resource_type": 8, "resource_name": "1", "configs": [change]}
        fields = {"resources": [resource], "validate_only": False}
        answer = cluster.ask(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        return int(answer.responses[0].error_code)

    before = level()
    assert before == "INFO"
    assert alter(0, "ERROR") == ErrorCode.NONE and level() == "ERROR"
    assert alter(1, None) == ErrorCode.NONE and level() == before


def test_users_without_credentials_are_not_found(cluster: ProcessCluster) -> None:
    fields = {"users": [{"name": "ann"}, {"name": "bob"}, {"name": "bob"}]}
    answer = cluster.ask(cluster.nodes[1], ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, fields)
    assert {row.user: int(row.error_code) for row in answer.results} == {
        "ann": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_refused_in_every_version(cluster: ProcessCluster, version: int) -> None:
    node = cluster.nodes[1]
    operation = {"operation": 3, "permission_type": 3}
    asked = {"resource_type_filter": 2, **operation}
    described = cluster.ask(node, ApiKey.DESCRIBE_ACLS, version, asked)
    assert int(described.error_code) == ErrorCode.SECURITY_DISABLED
    what = {"resource_type": 2, "resource_name": "t", "principal": "User:ann", "host": "*"}
    creations = {"creations": [{**what, **operation}] * 2}
    created = cluster.ask(node, ApiKey.CREATE_ACLS, version, creations)
    assert [int(row.error_code) for row in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = cluster.ask(node, ApiKey.DELETE_ACLS, version, {"filters": [asked]})
    assert int(deleted.filter_results[0].error_code) == ErrorCode.SECURITY_DISABLED
