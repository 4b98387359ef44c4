"""What clients do, request after request: a transaction, a member's life, a fetch session, a topic from its creation to its end.

`Conversation` tells such a story in versions that chance chooses, leaves requests out, repeats them, and puts odd values in. A story's
fields are those of all versions: a version takes what it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from ottla.wire.apis import ApiKey as K


class Known(NamedTuple):
    """What only the side that is asked knows: the number-th value of this kind that it named in the conversation, or the id of a topic."""

    kind: str
    which: int | str


class Batch(NamedTuple):
    """Records that only the side itself can write: they carry ids that it gave."""

    size: int
    producer_id: Known
    epoch: Known | int = 0
    sequence: int = 0
    transactional: bool = False


class Told(NamedTuple):
    """One request of a story."""

    key: K
    fields: Mapping[str, Any]
    low: int = 0
    """The versions that it makes sense in."""
    high: int = 99
    is_settled: bool = False
    """Asked again until what went on before it is over."""


LAST_EPOCH: Final = Known("producer_epoch", -1)
"""The epoch that a producer was told last."""
FIRST_PRODUCER: Final = Known("producer_id", 0)
"""That of the opening: idempotent."""
SECOND_PRODUCER: Final = Known("producer_id", 1)
MEMBER: Final = Known("member_id", 0)
GROUP_EPOCH: Final = Known("group_epoch", 0)


class Names(NamedTuple):
    """What a conversation's topics, groups and so on are called."""

    a: str
    b: str
    new: str
    group: str
    txn: str

    @property
    def user(self) -> str:
        return f"{self.a}-user"


def stories(names: Names, rng: Random) -> Mapping[str, Iterator[Told]]:
    return {
        "transaction": transaction(names, rng),
        "transaction in one round trip": short_transaction(names, rng),
        "idempotent producer": idempotent(names, rng),
        "classic member": classic_member(names, rng),
        "static member": static_member(names, rng),
        "consumer of KIP-848": consumer(names, rng),
        "fetch session": fetch_session(names, rng),
        "life of a topic": life_of_a_topic(names, rng),
        "settings": settings(names, rng),
        "security": security(names, rng),
        "quotas": quotas(names, rng),
        "reassignment": reassignment(names, rng),
        "records deleted": records_deleted(names, rng),
    }


# Producers


def _produce(
    topic: str, *batches: Batch, txn: str | None = None, low: int = 3, high: int = 99
) -> Told:
    data = [{"index": number, "records": batch} for number, batch in enumerate(batches)]
    row = {"name": topic, "topic_id": Known("topic", topic), "partition_data": data}
    fields = {"transactional_id": txn, "acks": -1, "timeout": 5_000, "topic_data": [row]}
    return Told(K.PRODUCE, fields, low, high)


def _init(names: Names, high: int = 99, low: int = 0) -> Told:
    fields = {
        "transactional_id": names.txn,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return Told(K.INIT_PRODUCER_ID, fields, low, high, is_settled=True)


def _producer(names: Names, **more: Any) -> dict[str, Any]:
    return {
        "transactional_id": names.txn,
        "producer_id": SECOND_PRODUCER,
        "producer_epoch": LAST_EPOCH,
        **more,
    }


def _described(names: Names) -> Told:
    return Told(K.DESCRIBE_TRANSACTIONS, {"transactional_ids": [names.txn]}, is_settled=True)


def _offsets_in_transaction(names: Names) -> list[dict[str, Any]]:
    partition = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": -1,
        "committed_metadata": "mine",
    }
    return [{"name": names.b, "partitions": [partition]}]


def _committed_reads(names: Names) -> Iterator[Told]:
    for isolation in (0, 1):
        yield _fetch(names.a, 0, isolation=isolation)
        yield _list_offsets(names.a, -1, isolation)
    yield _fetch_offsets(names)


def transaction(names: Names, rng: Random) -> Iterator[Told]:
    yield _init(names, high=4)
    topics = [{"name": names.a, "partitions": [0, 1]}]
    added = {
        "v3_and_below_transactional_id": names.txn,
        "v3_and_below_producer_id": SECOND_PRODUCER,
        "v3_and_below_producer_epoch": LAST_EPOCH,
        "v3_and_below_topics": topics,
    }
    yield Told(K.ADD_PARTITIONS_TO_TXN, added, high=3)
    batch = Batch(2, SECOND_PRODUCER, LAST_EPOCH, 0, True)
    yield _produce(names.a, batch, batch, txn=names.txn, high=11)
    yield _described(names)
    yield Told(K.ADD_OFFSETS_TO_TXN, _producer(names, group_id=names.group), high=3)
    offsets = {
        "group_id": names.group,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
    }
    topics_of_group = _offsets_in_transaction(names)
    fields = _producer(names, **offsets, topics=topics_of_group)
    yield Told(K.TXN_OFFSET_COMMIT, fields, high=4)
    yield Told(K.DESCRIBE_PRODUCERS, {"topics": [{"name": names.a, "partition_indexes": [0, 1]}]})
    yield from _committed_reads(names)
    yield Told(K.END_TXN, _producer(names, committed=rng.random() < 0.5), high=4)
    yield _described(names)
    yield from _committed_reads(names)
    yield Told(K.DESCRIBE_PRODUCERS, {"topics": [{"name": names.a, "partition_indexes": [0]}]})
    listed = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    yield Told(K.LIST_TRANSACTIONS, listed)


def short_transaction(names: Names, rng: Random) -> Iterator[Told]:
    """transaction.version 2: partitions are added by writing to them (KIP-890)."""
    yield _init(names, low=5)
    for _ in range(2):
        yield _produce(
            names.a, Batch(2, SECOND_PRODUCER, LAST_EPOCH, 0, True), txn=names.txn, low=12
        )
        yield _described(names)
        offsets = {"group_id": names.group, "generation_id": -1, "member_id": ""}
        fields = _producer(names, **offsets, topics=_offsets_in_transaction(names))
        yield Told(K.TXN_OFFSET_COMMIT, fields, low=5)
        yield Told(K.END_TXN, _producer(names, committed=rng.random() < 0.5), low=5)
        yield _described(names)
        yield from _committed_reads(names)


def idempotent(names: Names, rng: Random) -> Iterator[Told]:
    for count, epoch, sequence in (
        (2, 0, 0),
        (2, 0, 0),  # again
        (3, 0, 2),
        (1, 0, 9),  # something is missing
        (1, 0, 5),
        (1, 1, 3),  # a new epoch does not begin with 0
        (2, 1, 0),
        (1, 0, 6),  # the old one
    ):
        yield _produce(names.b, Batch(count, FIRST_PRODUCER, epoch, sequence))
        if rng.random() < 0.3:
            row = {"name": names.b, "partition_indexes": [0]}
            yield Told(K.DESCRIBE_PRODUCERS, {"topics": [row]})


# Groups


def _fetch_offsets(names: Names) -> Told:
    topics = [
        {"name": topic, "topic_id": Known("topic", topic), "partition_indexes": [0, 1]}
        for topic in (names.a, names.b)
    ]
    group = {"group_id": names.group, "member_id": None, "member_epoch": -1, "topics": topics}
    return Told(
        K.OFFSET_FETCH,
        {"group_id": names.group, "topics": topics, "groups": [group], "require_stable": True},
    )


def _commit(
    names: Names, member: Known | str, epoch: int | Known, instance: str | None = None
) -> Told:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": 0,
        "committed_metadata": "here",
    }
    row = {"name": names.a, "topic_id": Known("topic", names.a), "partitions": [partition]}
    fields = {
        "group_id": names.group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "group_instance_id": instance,
        "topics": [row],
    }
    return Told(K.OFFSET_COMMIT, fields)


def _join(names: Names, member: Known | str, instance: str | None, low: int = 0) -> Told:
    fields = {
        "group_id": names.group,
        "session_timeout": 30_000,
        "rebalance_timeout": 1_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1" + bytes(12)}],
        "reason": "because",
    }
    return Told(K.JOIN_GROUP, fields, low)


def _sync(names: Names, generation: int, instance: str | None, low: int = 0) -> Told:
    fields = {
        "group_id": names.group,
        "generation_id": generation,
        "member_id": MEMBER,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": MEMBER, "assignment": b"assigned"}],
    }
    return Told(K.SYNC_GROUP, fields, low)


def _heartbeat(names: Names, generation: int, instance: str | None, low: int = 0) -> Told:
    fields = {
        "group_id": names.group,
        "generation_id": generation,
        "member_id": MEMBER,
        "group_instance_id": instance,
    }
    return Told(K.HEARTBEAT, fields, low)


def _looks_at_group(names: Names) -> Iterator[Told]:
    fields = {"include_authorized_operations": True}
    yield Told(K.DESCRIBE_GROUPS, {"groups": [names.group], **fields})
    yield Told(K.CONSUMER_GROUP_DESCRIBE, {"group_ids": [names.group], **fields})
    yield Told(K.LIST_GROUPS, {"states_filter": [], "types_filter": []})


def _end_of_group(names: Names) -> Iterator[Told]:
    rows = [{"name": names.a, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]
    yield Told(K.OFFSET_DELETE, {"group_id": names.group, "topics": rows})
    yield _fetch_offsets(names)
    yield Told(K.DELETE_GROUPS, {"groups_names": [names.group]})
    yield from _looks_at_group(names)


def _life_of_a_member(names: Names, instance: str | None, low: int) -> Iterator[Told]:
    """Of a member that has joined once: from JoinGroup 4 on it was told only its id."""
    yield _join(names, MEMBER, instance, low)
    yield _sync(names, 1, instance, low)
    yield _heartbeat(names, 1, instance, low)
    yield _commit(names, MEMBER, 1, instance)
    yield _fetch_offsets(names)
    yield from _looks_at_group(names)


def classic_member(names: Names, rng: Random) -> Iterator[Told]:
    yield _join(names, "", None, 4)
    yield from _life_of_a_member(names, None, 0)
    yield _heartbeat(names, 2, None)
    yield _commit(names, MEMBER, 7)
    leaving = {"member_id": MEMBER, "group_instance_id": None, "reason": None}
    fields = {"group_id": names.group, "member_id": MEMBER, "members": [leaving]}
    yield Told(K.LEAVE_GROUP, fields)
    yield _commit(names, "", -1)
    yield from _end_of_group(names)


def static_member(names: Names, rng: Random) -> Iterator[Told]:
    yield _join(names, "", "static-1", 5)
    yield from _life_of_a_member(names, "static-1", 5)
    yield _join(names, "", "static-1", 5)  # it has restarted
    yield _sync(names, 1, "static-1", 5)
    yield _heartbeat(names, 1, "static-1", 5)
    leaving = {"member_id": "", "group_instance_id": "static-1", "reason": None}
    yield Told(K.LEAVE_GROUP, {"group_id": names.group, "members": [leaving]}, low=3)
    yield from _end_of_group(names)


def consumer(names: Names, rng: Random) -> Iterator[Told]:
    instance = rng.choice([None, "static-1"])

    def heartbeat(epoch: int | Known, **more: Any) -> Told:
        fields = {
            "group_id": names.group,
            "member_id": f"{names.group}-member",
            "member_epoch": epoch,
            "instance_id": instance,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **more,
        }
        return Told(K.CONSUMER_GROUP_HEARTBEAT, fields, low=1)

    whole = {
        "rebalance_timeout": 5_000,
        "subscribed_topic_names": [names.a],
        "topic_partitions": [],
    }
    yield heartbeat(0, **whole)
    owned = [{"topic_id": Known("topic", names.a), "partitions": [0, 1]}]
    yield heartbeat(GROUP_EPOCH, topic_partitions=owned)
    yield from _looks_at_group(names)
    yield _commit(names, f"{names.group}-member", GROUP_EPOCH, instance)
    yield _commit(names, f"{names.group}-member", 0, instance)
    yield _fetch_offsets(names)
    yield heartbeat(GROUP_EPOCH, subscribed_topic_names=[names.a, names.b])
    yield heartbeat(50)
    yield heartbeat(-2 if instance else -1)
    yield from _looks_at_group(names)
    yield heartbeat(0, **whole)
    yield heartbeat(-1)
    yield from _end_of_group(names)


# Records


def _fetch(
    topic: str,
    offset: int,
    *,
    session: Known | int = 0,
    epoch: int = -1,
    isolation: int = 0,
    partitions: tuple[int, ...] = (0,),
    forgotten: tuple[int, ...] = (),
    low: int = 4,
    wait_ms: int = 0,
) -> Told:
    wanted = [
        {
            "partition": number,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        for number in partitions
    ]
    named = {"topic": topic, "topic_id": Known("topic", topic)}
    fields = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": isolation,
        "session_id": session,
        "session_epoch": epoch,
        "topics": [{**named, "partitions": wanted}] if wanted else [],
        "forgotten_topics_data": [{**named, "partitions": list(forgotten)}] if forgotten else [],
        "rack_id": "",
    }
    return Told(K.FETCH, fields, low)


def _list_offsets(topic: str, timestamp: int, isolation: int = 0) -> Told:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    row = {"name": topic, "partitions": [asked]}
    fields = {"replica_id": -1, "isolation_level": isolation, "topics": [row]}
    return Told(K.LIST_OFFSETS, fields)


def fetch_session(names: Names, rng: Random) -> Iterator[Told]:
    session = Known("session_id", 0)
    low = rng.choice([7, 13])  # by name, or by id
    yield _fetch(names.a, 0, epoch=0, partitions=(0, 1), low=low)
    yield _fetch(names.a, 0, session=session, epoch=1, partitions=(), low=low)
    yield _produce(names.a, Batch(1, FIRST_PRODUCER))
    yield _fetch(names.a, 3, session=session, epoch=2, low=low, wait_ms=300)
    yield _fetch(names.a, 0, session=session, epoch=3, partitions=(), forgotten=(1,), low=low)
    yield _fetch(names.b, 0, session=session, epoch=4, low=low)
    yield _fetch(names.b, 0, session=session, epoch=9, low=low)  # the wrong one
    yield _fetch(names.b, 0, session=session, epoch=-1, low=low)  # ends it
    yield _fetch(names.b, 0, session=session, epoch=5, low=low)


def records_deleted(names: Names, rng: Random) -> Iterator[Told]:
    for offset in (1, 1, -1, 9):
        row = {"name": names.a, "partitions": [{"partition_index": 0, "offset": offset}]}
        yield Told(K.DELETE_RECORDS, {"topics": [row], "timeout": 5_000})
        yield _list_offsets(names.a, -2)
        yield _fetch(names.a, 0)
        yield _list_offsets(names.a, 1_577_836_801_000)
    for timestamp in (-1, -3, -4, -5, 0):
        yield _list_offsets(names.b, timestamp)
    partition = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    row = {"topic": names.a, "partitions": [partition]}
    yield Told(K.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": [row]})


# The cluster


def _looks_at_topic(names: Names, topic: str) -> Iterator[Told]:
    fields = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    yield Told(K.METADATA, fields)
    fields = {"topics": [{"name": topic}], "response_partition_limit": 2000, "cursor": None}
    yield Told(K.DESCRIBE_TOPIC_PARTITIONS, fields)


def life_of_a_topic(names: Names, rng: Random) -> Iterator[Told]:
    configs = [{"name": "retention.ms", "value": "100000"}]
    row = {"name": names.new, "num_partitions": 2, "replication_factor": 1, "configs": configs}
    if rng.random() < 0.5:
        assigned = [{"partition_index": number, "broker_ids": [1]} for number in (0, 1)]
        row = {
            **row,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assigned,
        }
    create = {"topics": [{"assignments": [], **row}], "timeout": 5_000, "validate_only": False}
    yield Told(K.CREATE_TOPICS, {**create, "validate_only": True})
    yield Told(K.CREATE_TOPICS, create)
    yield from _looks_at_topic(names, names.new)
    yield Told(K.CREATE_TOPICS, create)
    more = {"name": names.new, "count": 4, "assignments": None}
    yield Told(K.CREATE_PARTITIONS, {"topics": [more], "timeout": 5_000, "validate_only": False})
    yield from _looks_at_topic(names, names.new)
    gone = {"name": names.new, "topic_id": None}
    by_id = {"name": None, "topic_id": Known("topic", names.new)}
    fields = {"topics": [by_id], "topic_names": [names.new], "timeout": 5_000}
    yield Told(K.DELETE_TOPICS, fields if rng.random() < 0.5 else {**fields, "topics": [gone]})
    yield from _looks_at_topic(names, names.new)
    yield Told(K.DELETE_TOPICS, fields)


def _describe_configs(kind: int, resource: str) -> Told:
    row = {"resource_type": kind, "resource_name": resource, "configuration_keys": None}
    fields = {"resources": [row], "include_synonyms": True, "include_documentation": False}
    return Told(K.DESCRIBE_CONFIGS, fields)


def settings(names: Names, rng: Random) -> Iterator[Told]:
    group_settings = [("consumer.session.timeout.ms", 0, "46000")]
    client_metrics = [("metrics", 0, "org.apache.kafka.producer."), ("interval.ms", 0, "10000")]
    topic_settings = [
        ("retention.ms", 0, "100000"),
        ("cleanup.policy", 2, "compact"),
        ("min.insync.replicas", 0, "1"),
        ("segment.bytes", 0, "2000000"),
    ]
    for kind, resource, changes in (
        (2, names.a, topic_settings),
        (2, names.a, [("retention.ms", 1, None), ("cleanup.policy", 3, "delete")]),
        (2, names.a, [("remote.storage.enable", 0, "false"), ("compression.type", 0, "zstd")]),
        (32, names.group, group_settings),
        (16, f"{names.a}-metrics", client_metrics),
        (16, f"{names.a}-metrics", [("interval.ms", 1, None)]),
        (32, names.group, [("consumer.session.timeout.ms", 1, None)]),
    ):
        configs = [
            {"name": name, "config_operation": operation, "value": value}
            for name, operation, value in changes
        ]
        row = {"resource_type": kind, "resource_name": resource, "configs": configs}
        yield Told(K.INCREMENTAL_ALTER_CONFIGS, {"resources": [row], "validate_only": False})
        yield _describe_configs(kind, resource)
    configs = [{"name": "retention.ms", "value": "5000"}]
    row = {"resource_type": 2, "resource_name": names.a, "configs": configs}
    yield Told(K.ALTER_CONFIGS, {"resources": [row], "validate_only": False})
    yield _describe_configs(2, names.a)
    yield Told(K.LIST_CONFIG_RESOURCES, {"resource_types": [2, 16, 32]})


def security(names: Names, rng: Random) -> Iterator[Told]:
    acl = {
        "resource_type": 2,
        "resource_name": names.a,
        "resource_pattern_type": 3,
        "principal": "User:some",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    wanted = {
        "resource_type_filter": 2,
        "resource_name_filter": names.a,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Told(K.CREATE_ACLS, {"creations": [acl, {**acl, "operation": 4}]})
    yield Told(K.DESCRIBE_ACLS, wanted)
    yield Told(K.DELETE_ACLS, {"filters": [{**wanted, "operation": 3}]})
    yield Told(K.DESCRIBE_ACLS, {**wanted, "pattern_type_filter": 2})
    yield Told(K.DELETE_ACLS, {"filters": [wanted]})
    added = {
        "name": names.user,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"0123456789abcdef",
        "salted_password": b"p" * 32,
    }
    users = {"users": [{"name": names.user}]}
    yield Told(K.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [], "upsertions": [added]})
    yield Told(K.DESCRIBE_USER_SCRAM_CREDENTIALS, users)
    removed = [{"name": names.user, "mechanism": 1}]
    yield Told(K.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": removed, "upsertions": []})
    yield Told(K.DESCRIBE_USER_SCRAM_CREDENTIALS, users)


def quotas(names: Names, rng: Random) -> Iterator[Told]:
    entity = [{"entity_type": "user", "entity_name": names.user}]
    if rng.random() < 0.5:
        entity.append({"entity_type": "client-id", "entity_name": f"{names.a}-client"})
    exact = {
        "components": [
            {"entity_type": each["entity_type"], "match_type": 0, "match": each["entity_name"]}
            for each in entity
        ],
        "strict": True,
    }
    for removes in (False, True):
        ops = [
            {"key": "producer_byte_rate", "value": 1e6, "remove": removes},
            {"key": "request_percentage", "value": 50.0, "remove": False},
        ]
        rows = [{"entity": entity, "ops": ops}]
        yield Told(K.ALTER_CLIENT_QUOTAS, {"entries": rows, "validate_only": False})
        yield Told(K.DESCRIBE_CLIENT_QUOTAS, exact)
    ops = [{"key": "request_percentage", "value": 0.0, "remove": True}]
    rows = [{"entity": entity, "ops": ops}]
    yield Told(K.ALTER_CLIENT_QUOTAS, {"entries": rows, "validate_only": False})
    yield Told(K.DESCRIBE_CLIENT_QUOTAS, exact)


def reassignment(names: Names, rng: Random) -> Iterator[Told]:
    wanted: list[list[int] | None] = [[1], None, [1, 2], [1, 1], []]
    for replicas in wanted:
        row: dict[str, Any] = {
            "name": names.a,
            "partitions": [{"partition_index": 0, "replicas": replicas}],
        }
        fields = {"timeout": 5_000, "allow_replication_factor_change": True, "topics": [row]}
        yield Told(K.ALTER_PARTITION_REASSIGNMENTS, fields)
        row = {"name": names.a, "partition_indexes": [0, 1]}
        yield Told(K.LIST_PARTITION_REASSIGNMENTS, {"timeout": 5_000, "topics": [row]})
    partitions = [{"topic": names.a, "partitions": [0, 1]}]
    for election in (0, 1):
        fields = {"election_type": election, "topic_partitions": partitions, "timeout": 5_000}
        yield Told(K.ELECT_LEADERS, fields)
    yield from _looks_at_topic(names, names.a)
