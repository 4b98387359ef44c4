"""What brokers and controllers ask of a controller: a broker's life, a quorum's old and wrong requests, requests in envelopes.

The cluster goes on: nobody is asked to vote in a new epoch, and a broker that registers here leaves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.metadata.features import supported_ranges
from ottla.wire.apis import ApiKey as K
from support.differential.stories import Known, Names, Told, life_of_a_topic, quotas, reassignment
from support.differential.stories import security as rights

CLUSTER: Final = Known("cluster_id", 0)
QUORUM_EPOCH: Final = Known("quorum_epoch", 0)
BROKER_EPOCH: Final = Known("broker_epoch", 0)
FAR_AHEAD: Final = 1 << 40
"""An offset that a broker says it has read to."""
METADATA: Final = "__cluster_metadata"
METADATA_ID: Final = UUID(int=1)
ANONYMOUS: Final = b"\0\0\x05User\x0aANONYMOUS\0\0"


class Enveloped(NamedTuple):
    """A client's request, as bytes."""

    key: K
    version: int
    fields: Mapping[str, Any]


def controller_stories(names: Names, rng: Random, broker: int) -> Mapping[str, Iterator[Told]]:
    """`broker` is the id of one that nobody else is."""
    return {
        "life of a broker": life_of_a_broker(names, rng, broker),
        "broker refused": broker_refused(rng, broker),
        "old quorum": old_quorum(rng),
        "envelopes": envelopes(names, rng),
        "life of a topic": life_of_a_topic(names, rng),
        "quotas": quotas(names, rng),
        "reassignment": reassignment(names, rng),
        "rights": rights(names, rng),
    }


def _id(broker: int, what: int) -> UUID:
    return UUID(int=broker << 32 | what << 8 | 0xA5)


def _registration(broker: int, incarnation: int = 1, **more: Any) -> Told:
    fields = {
        "broker_id": broker,
        "cluster_id": CLUSTER,
        "incarnation_id": _id(broker, incarnation),
        "listeners": [
            {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9, "security_protocol": 0}
        ],
        "features": [
            {
                "name": each.name,
                "min_supported_version": each.min_supported_version,
                "max_supported_version": each.max_supported_version,
            }
            for each in supported_ranges()
        ],
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": [_id(broker, 100)],
        "previous_broker_epoch": -1,
        **more,
    }
    return Told(K.BROKER_REGISTRATION, fields)


def _heartbeat(broker: int, epoch: Known | int, **more: Any) -> Told:
    fields = {
        "broker_id": broker,
        "broker_epoch": epoch,
        "current_metadata_offset": FAR_AHEAD,
        "want_fence": True,
        "want_shut_down": False,
        **more,
    }
    return Told(K.BROKER_HEARTBEAT, fields)


def life_of_a_broker(names: Names, rng: Random, broker: int) -> Iterator[Told]:
    yield _registration(broker)
    yield _heartbeat(broker, BROKER_EPOCH, current_metadata_offset=0)
    yield _heartbeat(broker, BROKER_EPOCH)
    if rng.random() < 0.5:
        yield _registration(broker)
        yield _registration(broker, 2)  # another process, while this one lives
    fields = {"broker_id": broker, "broker_epoch": BROKER_EPOCH}
    partition: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr": [broker],
        "new_isr_with_epochs": [{"broker_id": broker, "broker_epoch": BROKER_EPOCH}],
        "leader_recovery_state": 0,
        "partition_epoch": 0,
    }
    row = {"topic_id": Known("topic", names.a), "partitions": [partition]}
    yield Told(K.ALTER_PARTITION, {**fields, "topics": [row]})
    row = {"topic_id": Known("topic", names.a), "partitions": [{"partition_index": 0}]}
    directory = {"id_": _id(broker, 100), "topics": [row]}
    yield Told(K.ASSIGN_REPLICAS_TO_DIRS, {**fields, "directories": [directory]})
    yield Told(K.ALLOCATE_PRODUCER_IDS, fields)
    yield _heartbeat(broker, 0)
    yield _heartbeat(broker, BROKER_EPOCH, want_shut_down=True)
    yield Told(K.UNREGISTER_BROKER, {"broker_id": broker})
    yield _heartbeat(broker, BROKER_EPOCH)
    yield Told(K.ALLOCATE_PRODUCER_IDS, fields)
    yield Told(K.UNREGISTER_BROKER, {"broker_id": broker})


def broker_refused(rng: Random, broker: int) -> Iterator[Told]:
    yield _registration(broker, cluster_id="somewhere-else")
    yield _registration(broker, log_dirs=[])
    yield _registration(broker, log_dirs=[_id(broker, 100), _id(broker, 100)])
    yield _registration(broker, log_dirs=[UUID(int=1)])
    yield _registration(broker, features=[])
    metadata = {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 8}
    yield _registration(broker, features=[metadata])
    yield _registration(1)  # which lives
    yield _heartbeat(broker, 5)
    yield Told(K.UNREGISTER_BROKER, {"broker_id": broker})


def old_quorum(rng: Random) -> Iterator[Told]:
    """Requests of a voter that was away, and of somebody who never was one."""
    voter: dict[str, Any] = {
        "cluster_id": CLUSTER,
        "timeout": 1_000,
        "voter_id": 9,
        "voter_directory_id": UUID(int=99),
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}],
        "ack_when_committed": True,
    }
    yield Told(K.ADD_RAFT_VOTER, voter)
    yield Told(K.REMOVE_RAFT_VOTER, voter)
    versions = {"min_supported_version": 0, "max_supported_version": 1}
    update = {**voter, "current_leader_epoch": QUORUM_EPOCH, "k_raft_version_feature": versions}
    yield Told(K.UPDATE_RAFT_VOTER, update)
    for cluster, topic in ((CLUSTER, METADATA), ("somewhere-else", METADATA), (CLUSTER, "other")):
        for pre_vote in (True, False):
            partition: dict[str, Any] = {
                "partition_index": 0,
                "replica_epoch": 0,
                "replica_id": 3,
                "replica_directory_id": UUID(int=0),
                "voter_directory_id": UUID(int=0),
                "last_offset_epoch": 0,
                "last_offset": 0,
                "pre_vote": pre_vote,
            }
            row: dict[str, Any] = {"topic_name": topic, "partitions": [partition]}
            yield Told(K.VOTE, {"cluster_id": cluster, "voter_id": 1, "topics": [row]})
        epoch = {"partition_index": 0, "leader_id": 3, "leader_epoch": 0}
        begun = {**epoch, "voter_directory_id": UUID(int=0)}
        row = {"topic_name": topic, "partitions": [begun]}
        fields: dict[str, Any] = {"cluster_id": cluster, "topics": [row], "leader_endpoints": []}
        fields["voter_id"] = 1
        yield Told(K.BEGIN_QUORUM_EPOCH, fields)
        ended = {**epoch, "preferred_candidates": [], "preferred_successors": []}
        row = {"topic_name": topic, "partitions": [ended]}
        fields = {"cluster_id": cluster, "topics": [row], "leader_endpoints": []}
        yield Told(K.END_QUORUM_EPOCH, fields)
    asked_for: tuple[tuple[Known | int, int, int], ...] = (
        (QUORUM_EPOCH, 0, 0),
        (QUORUM_EPOCH, FAR_AHEAD, 0),
        (QUORUM_EPOCH, 3, 90),
        (0, 0, 0),
        (90, 0, 0),
    )
    for named, offset, fetched in asked_for:
        asked = {
            "partition": 0,
            "current_leader_epoch": named,
            "fetch_offset": offset,
            "last_fetched_epoch": fetched,
            "log_start_offset": -1,
            "partition_max_bytes": 0,
        }
        row = {"topic": METADATA, "topic_id": METADATA_ID, "partitions": [asked]}
        fields = {
            "cluster_id": CLUSTER,
            "replica_id": 77,
            "replica_state": {"replica_id": 77, "replica_epoch": -1},
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [row],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        yield Told(K.FETCH, fields, low=13)
        snapshot: dict[str, Any] = {
            "partition": 0,
            "current_leader_epoch": named,
            "snapshot_id": {"end_offset": FAR_AHEAD, "epoch": 0},
            "position": offset,
        }
        row = {"name": METADATA, "partitions": [snapshot]}
        fields = {"cluster_id": CLUSTER, "replica_id": 77, "max_bytes": 1000, "topics": [row]}
        yield Told(K.FETCH_SNAPSHOT, fields)


def envelopes(names: Names, rng: Random) -> Iterator[Told]:
    row = {"name": names.new, "num_partitions": 1, "replication_factor": 1}
    create = {"topics": [row], "timeout": 5_000, "validate_only": True}
    for inside in (
        Enveloped(K.CREATE_TOPICS, 7, create),
        Enveloped(
            K.DELETE_TOPICS, 6, {"topics": [{"name": f"{names.a}-absent"}], "timeout": 5_000}
        ),
        Enveloped(K.METADATA, 12, {"topics": []}),
        Enveloped(K.API_VERSIONS, 3, {}),
    ):
        fields = {
            "request_data": inside,
            "request_principal": ANONYMOUS,
            "client_host_address": b"\x7f\0\0\1",
        }
        yield Told(K.ENVELOPE, fields)
    yield Told(K.ENVELOPE, {**fields, "request_data": b"nothing"})
    yield Told(K.ENVELOPE, {**fields, "request_principal": b"nobody"})
    yield Told(K.ENVELOPE, {**fields, "client_host_address": b"\1"})
