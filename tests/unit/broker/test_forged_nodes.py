"""A client that pretends to be a node. It may do everything with topics, groups and transactional ids, and most with the cluster;
only nobody has allowed it to act for the cluster. What it sends would be obeyed if a node had sent it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from ruled_node import BROKER, CONTROLLER, G, RuledNode, T, X, denials, on_cluster

from ottla.security.operations import AclOperation as O
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.headers import request_frame
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from ottla.wire.messages import write_request
from ottla.wire.types import ZERO_UUID

TOPIC, TXN = "target", "victim"
MUCH = [(kind, "*", O.ALL) for kind in (T, G, X)] + [
    on_cluster(each)
    for each in (O.CREATE, O.DESCRIBE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS, O.IDEMPOTENT_WRITE)
]


class Target:
    def __init__(self, ruled: RuledNode) -> None:
        self.ruled = ruled
        broker, quorum = ruled.node.broker, ruled.node.quorum
        assert broker is not None and quorum is not None
        self.broker, self.quorum = broker, quorum
        self.intruder = ""
        self.producer = self._open_transaction()

    def _open_transaction(self) -> dict[str, Any]:
        begun = {"transactional_id": TXN, "transaction_timeout": 600_000}
        given = self.ruled.ask(self.ruled.admin, ApiKey.INIT_PRODUCER_ID, begun)
        producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        partitions = [{"name": TOPIC, "partitions": [0]}]
        transaction = {"transactional_id": TXN, **producer, "verify_only": False}
        added = self.ruled.ask(
            self.ruled.admin,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {"transactions": [{**transaction, "topics": partitions}]},
        )
        assert denials(added) == set()
        return producer

    def state(self) -> tuple[Any, ...]:
        image = self.quorum.image
        listed = self.ruled.ask(
            self.ruled.admin, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [TXN]}
        ).transaction_states
        return (
            self.quorum.epoch,
            self.quorum.leader_id,
            self.quorum.is_active,
            image.brokers,
            image.topics,
            image.controllers,
            image.next_producer_id,
            listed,
            [
                (partition.log.log_end, partition.log.high_watermark)
                for partition in self.broker.replicas.partitions.values()
                if partition.topic != "__ottla_events"
            ],
        )

    def channel(self, listener: str) -> Channel:
        """Of an intruder of its own."""
        self.intruder = self.ruled.somebody(*MUCH)
        return self.ruled.log_in(self.intruder, listener)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    ruled = RuledNode(tmp_path_factory.mktemp("forged"))
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    made = ruled.ask(ruled.admin, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
    assert made.topics[0].error_code == 0
    found = {"coordinator_keys": [TXN], "key_type": 1}
    assert ruled.ask(ruled.admin, ApiKey.FIND_COORDINATOR, found).coordinators[0].error_code == 0
    yield Target(ruled)
    ruled.close()


def raft(target: Target, partition: dict[str, Any], **fields: Any) -> dict[str, Any]:
    topic = {
        "topic_name": CLUSTER_METADATA_TOPIC,
        "partitions": [{"partition_index": 0, **partition}],
    }
    return {"cluster_id": target.quorum.cluster_id, "topics": [topic], **fields}


def vote(target: Target) -> dict[str, Any]:
    return raft(
        target,
        {
            "replica_epoch": target.quorum.epoch + 100,
            "replica_id": 9,
            "replica_directory_id": UUID(int=9),
            "voter_directory_id": target.quorum.directory_id,
            "last_offset_epoch": 10_000,
            "last_offset": 10_000,
            "pre_vote": False,
        },
        voter_id=1,
    )


def begin_quorum_epoch(target: Target) -> dict[str, Any]:
    return raft(target, {"leader_id": 9, "leader_epoch": target.quorum.epoch + 100}, voter_id=1)


def end_quorum_epoch(target: Target) -> dict[str, Any]:
    return raft(target, {"leader_id": 1, "leader_epoch": target.quorum.epoch})


def fetch(target: Target) -> dict[str, Any]:
    """As a voter that has read everything, far beyond the end."""
    epoch = target.quorum.epoch
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "current_leader_epoch": epoch,
        "last_fetched_epoch": epoch,
        "partition_max_bytes": 1000,
    }
    return {
        "cluster_id": target.quorum.cluster_id,
        "replica_state": {"replica_id": 9, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "topics": [{"topic_id": CLUSTER_METADATA_TOPIC_ID, "partitions": [partition]}],
    }


def broker_heartbeat(target: Target) -> dict[str, Any]:
    return {
        "broker_id": 1,
        "broker_epoch": target.quorum.image.brokers[1].epoch,
        "current_metadata_offset": 0,
        "want_fence": True,
        "want_shut_down": True,
    }


def broker_registration(target: Target) -> dict[str, Any]:
    at = {"name": "PLAINTEXT", "host": "10.6.6.6", "port": 9092, "security_protocol": 0}
    return {
        "broker_id": 9,
        "cluster_id": target.quorum.cluster_id,
        "incarnation_id": UUID(int=66),
        "listeners": [at],
        "features": [
            {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 30}
        ],
        "rack": None,
        "log_dirs": [UUID(int=9 << 64)],
    }


def alter_partition(target: Target) -> dict[str, Any]:
    topic = target.quorum.image.topics[TOPIC]
    partition = {
        "partition_index": 0,
        "leader_epoch": topic.partitions[0].leader_epoch,
        "new_isr_with_epochs": [],
        "leader_recovery_state": 0,
        "partition_epoch": topic.partitions[0].partition_epoch,
    }
    return {
        "broker_id": 1,
        "broker_epoch": target.quorum.image.brokers[1].epoch,
        "topics": [{"topic_id": topic.id, "partitions": [partition]}],
    }


def allocate_producer_ids(target: Target) -> dict[str, Any]:
    return {"broker_id": 1, "broker_epoch": target.quorum.image.brokers[1].epoch}


def assign_replicas(target: Target) -> dict[str, Any]:
    topic = target.quorum.image.topics[TOPIC]
    topics = [{"topic_id": topic.id, "partitions": [{"partition_index": 0}]}]
    return {
        "broker_id": 1,
        "broker_epoch": target.quorum.image.brokers[1].epoch,
        "directories": [{"id_": ZERO_UUID, "topics": topics}],
    }


def register_controller(target: Target) -> dict[str, Any]:
    return {
        "controller_id": 1,
        "incarnation_id": UUID(int=66),
        "zk_migration_ready": False,
        "listeners": [
            {"name": "CONTROLLER", "host": "10.6.6.6", "port": 9093, "security_protocol": 0}
        ],
        "features": [],
    }


def envelope(target: Target) -> dict[str, Any]:
    """In the name of a super user, to delete what the intruder itself may delete."""
    body = write_request(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1})
    return {
        "request_data": request_frame(ApiKey.UNREGISTER_BROKER, 0, 1, "1", body)[4:],
        "request_principal": principal_to_bytes(ANONYMOUS),
        "client_host_address": bytes([127, 0, 0, 1]),
    }


def write_markers(target: Target) -> dict[str, Any]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    marker = {**target.producer, "transaction_result": True, "coordinator_epoch": 1000}
    return {"markers": [{**marker, "topics": topics}]}


def add_partitions(target: Target) -> dict[str, Any]:
    topics = [{"name": "__transaction_state", "partitions": [0]}]
    transaction = {"transactional_id": TXN, **target.producer, "verify_only": False}
    return {"transactions": [{**transaction, "topics": topics}]}


@pytest.mark.parametrize(
    ("listener", "key", "fields"),
    [
        (CONTROLLER, ApiKey.VOTE, vote),
        (CONTROLLER, ApiKey.BEGIN_QUORUM_EPOCH, begin_quorum_epoch),
        (CONTROLLER, ApiKey.END_QUORUM_EPOCH, end_quorum_epoch),
        (CONTROLLER, ApiKey.FETCH, fetch),
        (CONTROLLER, ApiKey.BROKER_HEARTBEAT, broker_heartbeat),
        (CONTROLLER, ApiKey.BROKER_REGISTRATION, broker_registration),
        (CONTROLLER, ApiKey.ALTER_PARTITION, alter_partition),
        (CONTROLLER, ApiKey.ALLOCATE_PRODUCER_IDS, allocate_producer_ids),
        (CONTROLLER, ApiKey.ASSIGN_REPLICAS_TO_DIRS, assign_replicas),
        (CONTROLLER, ApiKey.CONTROLLER_REGISTRATION, register_controller),
        (CONTROLLER, ApiKey.ENVELOPE, envelope),
        (BROKER, ApiKey.WRITE_TXN_MARKERS, write_markers),
        (BROKER, ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions),
    ],
)
def test_a_forged_request_of_a_node_is_refused_and_changes_nothing(
    target: Target, listener: str, key: ApiKey, fields: Callable[[Target], dict[str, Any]]
) -> None:
    before = target.state()
    channel = target.channel(listener)
    answer = target.ruled.ask(channel, key, fields(target))
    assert denials(answer) == {31}
    assert target.state() == before
    (mine,) = [
        each
        for each in target.ruled.node.servers[listener].connections
        if each.principal.name == target.intruder
    ]
    assert not mine.is_follower, "quotas count for it"
    channel.close()


def test_a_snapshot_of_the_metadata_is_not_given_away(target: Target) -> None:
    partition = {
        "partition": 0,
        "position": 0,
        "current_leader_epoch": target.quorum.epoch,
        "snapshot_id": {"end_offset": 1, "epoch": 1},
    }
    asked = {
        "cluster_id": target.quorum.cluster_id,
        "max_bytes": 1000,
        "topics": [{"name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
    }
    answer = target.ruled.ask(target.channel(CONTROLLER), ApiKey.FETCH_SNAPSHOT, asked)
    assert answer.error_code == 31 and answer.topics == ()


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.INIT_PRODUCER_ID, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3),
        (ApiKey.ADD_OFFSETS_TO_TXN, 3),
        (ApiKey.TXN_OFFSET_COMMIT, 3),
        (ApiKey.END_TXN, 3),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0),
    ],
)
def test_nobody_touches_anothers_transaction(target: Target, key: ApiKey, version: int) -> None:
    """CVE-2023-50976: with every right on topics and groups, and the producer's own id and epoch."""
    who = {"transactional_id": TXN, **target.producer}
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    fields: dict[ApiKey, dict[str, Any]] = {
        ApiKey.INIT_PRODUCER_ID: {**who, "transaction_timeout": 1000},
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            **{f"v3_and_below_{name}": value for name, value in who.items()},
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {**who, "group_id": "g"},
        ApiKey.TXN_OFFSET_COMMIT: {
            **who,
            "group_id": "g",
            "topics": [{"name": TOPIC, "partitions": partitions}],
        },
        ApiKey.END_TXN: {**who, "committed": True},
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [TXN]},
    }
    before = target.state()
    name = target.ruled.somebody((T, "*", O.ALL), (G, "*", O.ALL), (X, "another", O.ALL))
    channel = target.ruled.log_in(name)
    answer = target.ruled.ask(channel, key, fields[key], version=version)
    assert denials(answer) == {53}
    assert target.state() == before
    channel.close()


def test_the_node_itself_is_obeyed(target: Target) -> None:
    """The same requests are no empty threats."""
    ids = target.quorum.image.next_producer_id
    asked = allocate_producer_ids(target)
    channel = target.ruled.log_in("ANONYMOUS", CONTROLLER)
    assert target.ruled.ask(channel, ApiKey.ALLOCATE_PRODUCER_IDS, asked).error_code == 0
    assert target.quorum.image.next_producer_id > ids
    channel.close()
    end = target.broker.replicas.get(TOPIC, 0).log.log_end
    answer = target.ruled.ask(target.ruled.admin, ApiKey.WRITE_TXN_MARKERS, write_markers(target))
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert target.broker.replicas.get(TOPIC, 0).log.log_end == end + 1
