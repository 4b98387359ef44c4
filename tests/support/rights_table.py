"""One request for each row of `security.needs`: which rights it needs, what is answered with all of them, and what without each.

The table is run unchanged against a node in the test's own process, against a cluster of real processes, and against Apache Kafka
with its StandardAuthorizer. So it says what Kafka does. Where ottla differs on purpose the exchange has `kafka`, and
docs/RIGHTS.md the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.records.record import Record, build
from ottla.security.needs import ON_BROKER, ON_CONTROLLER, RequestForm
from ottla.security.operations import CLUSTER_NAME, WILDCARD, ResourceType
from ottla.security.operations import AclOperation as O
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS
from ottla.wire import schema
from ottla.wire.apis import APIS, KEPT_RECORDS, ApiKey
from ottla.wire.internal_topics import (
    ADMIN_CLIENT_ID,
    CLUSTER_METADATA_TOPIC,
    CLUSTER_METADATA_TOPIC_ID,
    GROUP_METADATA_TOPIC,
)
from ottla.wire.types import ZERO_UUID

LOGGERS_OF_CONTROLLER: Final = "loggers of this controller"
_RAFT_VOTERS: Final = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
"""Kafka's brokers pass them on. Ours do not serve them."""

Fields = Mapping[str, Any]
Given = tuple[ResourceType, str, O]
Outcome = Mapping[str, object]
"""What an answer says: by the path of a field its value, or several in order. Of error codes only those that are errors, and of
other fields those that the exchange looks at."""


class Listener(Enum):
    BROKER = "broker"
    CONTROLLER = "controller"


class Known(Enum):
    """What only the running cluster knows. It stands in requests, and in outcomes, for the value."""

    TOPIC_ID = "the id of TOPIC"
    NODE = "the id of the node that is asked"
    NODE_NAME = "the same as a text"
    TOKEN = "the secret of OWNER's token"


class Lack(NamedTuple):
    right: Given
    outcome: Outcome
    """What is answered to whoever lacks this right."""
    kafka: Outcome | None = None
    """What Kafka answers, if it differs on purpose."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    key: ApiKey
    fields: Fields
    at: tuple[Listener, ...]
    when: str
    """The form of the request in `security.needs`; empty if nothing is needed."""
    lacks: tuple[Lack, ...]
    """In the order in which the rights are looked at. Who has all of them is served."""
    served: Outcome
    served_by_kafka: Outcome | None
    looks_at: tuple[str, ...]
    version: int
    client_id: str
    user: str | None
    """Who asks, if it is not enough that they have the rights."""

    def __str__(self) -> str:
        rights = "+".join(lack.right[2].name for lack in self.lacks) or self.user or "anybody"
        return f"{self.key.name} v{self.version} {self.when} {rights}".replace("  ", " ")

    def right_sets(self) -> Iterator[tuple[frozenset[Given], Outcome, Outcome]]:
        """Each set of rights that is tried, with what is expected of ottla and of Kafka: for each right those before it, then all
        others, and at last all."""
        rights = [lack.right for lack in self.lacks]
        for number, lack in enumerate(self.lacks):
            kafka = lack.outcome if lack.kafka is None else lack.kafka
            for held in {
                frozenset(rights[:number]): None,
                frozenset(rights[:number] + rights[number + 1 :]): None,
            }:
                yield held, lack.outcome, kafka
        kafka = self.served if self.served_by_kafka is None else self.served_by_kafka
        yield frozenset(rights), self.served, kafka

    def is_served_by_ottla(self, listener: Listener) -> bool:
        api = APIS.get(self.key)
        if api is None:
            return False
        return api.on_broker if listener is Listener.BROKER else api.on_controller


def forms(listener: Listener, key: int) -> tuple[RequestForm, ...]:
    """What `security.needs` says about the request at this listener: on brokers also of what they pass on."""
    if listener is Listener.CONTROLLER:
        return ON_CONTROLLER[key]
    api = APIS.get(ApiKey(key)) if key != KEPT_RECORDS else None
    is_passed_on = key in _RAFT_VOTERS if api is None else api.forwarded
    return (
        *ON_BROKER[key],
        *(
            form
            for form in (ON_CONTROLLER[key] if is_passed_on else ())
            if form.when != LOGGERS_OF_CONTROLLER
        ),
    )


def outcome(answer: Any, looks_at: tuple[str, ...], known: Mapping[Known, object]) -> Outcome:
    found: dict[str, dict[object, None]] = {}
    ids = {known.get(Known.TOPIC_ID): Known.TOPIC_ID}

    def look(value: Any, path: str) -> None:
        if isinstance(value, tuple) and not path.endswith("error_code"):
            for each in value:
                look(each, path)
        elif dataclasses.is_dataclass(value):
            for name in (each.name for each in dataclasses.fields(value)):
                look(getattr(value, name), f"{path}.{name}" if path else name)
        elif path.endswith("error_code"):
            if int(value):
                found.setdefault(path, {})[int(value)] = None
        elif path in looks_at:
            found.setdefault(path, {})[ids.get(value, value) if value else value] = None

    look(answer, "")
    return {
        path: next(iter(values)) if len(values) == 1 else tuple(sorted(values, key=str))
        for path, values in found.items()
    }


def filled(value: Any, known: Mapping[Known, object]) -> Any:
    """A request, with what only the running cluster knows."""
    if isinstance(value, Known):
        return known[value]
    if isinstance(value, Mapping):
        return {name: filled(each, known) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled(each, known) for each in value]
    return value


# -- what there is: `rights_stage` makes it ----------------------------------------------------------

TOPIC, ABSENT = "orders", "absent"
GROUP: Final = "billing"
"""It has committed an offset of TOPIC."""
OLD_GROUPS: Final = ("over", "old")
"""The same; one is deleted, and the offsets of the other."""
MEMBERS, MEMBER = "members", "member"
"""A group with a member that reads TOPIC."""
SUBSCRIBED: Final = "subscribed"
"""Another one, for members that come."""
TXN: Final = "payments"
OPEN_TXN: Final = "open"
"""A transaction with TOPIC in it that has not ended."""
OWNER: Final = "owner"
"""Has a delegation token."""

T, G, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
X, U = ResourceType.TRANSACTIONAL_ID, ResourceType.USER
BROKER, CONTROLLER = (Listener.BROKER,), (Listener.CONTROLLER,)
BOTH = (*BROKER, *CONTROLLER)
_STRANGE_CLUSTER = "another-cluster-000000"
_CODE: Final = {T: 29, G: 30, C: 31, X: 53, U: 65}


def on_cluster(operation: O) -> Given:
    return C, CLUSTER_NAME, operation


def _topic(operation: O) -> Given:
    return T, TOPIC, operation


def _group(operation: O, name: str = GROUP) -> Given:
    return G, name, operation


def _txn(operation: O, name: str = TXN) -> Given:
    return X, name, operation


def _exchange(
    key: ApiKey,
    fields: Fields,
    *rights: Given | Lack,
    at: tuple[Listener, ...] = BROKER,
    when: str = "always",
    codes: str | Mapping[ResourceType, str] = "error_code",
    served: Outcome | None = None,
    served_by_kafka: Outcome | None = None,
    looks_at: tuple[str, ...] = (),
    version: int | None = None,
    client_id: str = "client",
    user: str | None = None,
) -> Exchange:
    """`codes`: the path at which the code of a right's resource is said, if it is one path."""

    def lack(right: Given | Lack) -> Lack:
        if isinstance(right, Lack):
            return right
        path = codes if isinstance(codes, str) else codes[right[0]]
        return Lack(right, {path: _CODE[right[0]]})

    return Exchange(
        key=key,
        fields=fields,
        at=at,
        when=when if rights else "",
        lacks=tuple(lack(each) for each in rights),
        served=served or {},
        served_by_kafka=served_by_kafka,
        looks_at=looks_at,
        version=APIS[key].max_version if version is None else version,
        client_id=client_id,
        user=user,
    )


# -- records -----------------------------------------------------------------------------------------


def _batch(**fields: Any) -> bytes:
    return bytes(build([Record(0, 1_700_000_000_000, None, b"paid")], **fields))


def _produce(topic: Fields, records: bytes, transactional_id: str | None = None) -> Fields:
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{**topic, "partition_data": [{"index": 0, "records": records}]}],
    }


_BY_NAME, _BY_ID = {"name": TOPIC}, {"topic_id": Known.TOPIC_ID}
_PRODUCED = "responses.partition_responses.error_code"
_FETCHED = "responses.partitions.error_code"
_IN_TXN = _batch(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)


def _fetch(topic: Fields, replica: int = -1) -> Fields:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**topic, "topic": TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


_ONE_TOPIC = [{"name": TOPIC, "topic": TOPIC, "partitions": [0], "partition_indexes": [0]}]


def _of_one_topic(key: ApiKey, **partition: Any) -> list[Fields]:
    """The topics of a request: TOPIC with a partition of these fields, or with its number if there are none."""
    known = schema.names_of_all_versions(key, "request")["topics",]
    topic = {name: value for name, value in _ONE_TOPIC[0].items() if name in known}
    return [{**topic, "partitions": [partition]} if partition else topic]


_RECORDS: Final = [
    *(
        _exchange(
            ApiKey.PRODUCE,
            _produce(topic, _batch()),
            _topic(O.WRITE),
            when="no batch is transactional",
            codes=_PRODUCED,
            version=version,
        )
        for topic, version in ((_BY_NAME, 3), (_BY_NAME, 12), (_BY_ID, 13))
    ),
    _exchange(
        ApiKey.PRODUCE,
        _produce(_BY_NAME, _IN_TXN, TXN),
        _txn(O.WRITE),
        _topic(O.WRITE),
        when="a batch is transactional",
        codes=_PRODUCED,
        served={_PRODUCED: 49},
        version=12,
    ),
    _exchange(
        ApiKey.PRODUCE,
        _produce({"name": GROUP_METADATA_TOPIC}, _batch()),
        Lack((T, GROUP_METADATA_TOPIC, O.WRITE), {_PRODUCED: 29}),
        # Kafka believes the client id instead.
        Lack(on_cluster(O.ALTER), {_PRODUCED: 29}, kafka={_PRODUCED: 87}),
        when="a topic that brokers write",
        served={_PRODUCED: 87},
        version=12,
        client_id=ADMIN_CLIENT_ID,
    ),
    _exchange(
        ApiKey.PRODUCE,
        _produce({"name": GROUP_METADATA_TOPIC}, _batch()),
        Lack(on_cluster(O.CLUSTER_ACTION), {_PRODUCED: 29}),
        when="a topic that brokers write",
        served={_PRODUCED: 87},
        served_by_kafka={_PRODUCED: 29},
        version=12,
        client_id=ADMIN_CLIENT_ID,
    ),
    *(
        _exchange(
            ApiKey.FETCH,
            _fetch(topic),
            _topic(O.READ),
            when="replica id < 0",
            codes=_FETCHED,
            version=version,
        )
        for topic, version in (({}, 4), ({}, 12), (_BY_ID, None))
    ),
    *(
        _exchange(
            ApiKey.FETCH,
            _fetch(topic, replica=9),
            Lack(on_cluster(O.CLUSTER_ACTION), {_FETCHED: 29}),
            when="replica id >= 0",
            served={_FETCHED: 6},
            version=version,
        )
        for topic, version in (({}, 12), (_BY_ID, None))
    ),
    *(
        _exchange(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": _of_one_topic(
                    ApiKey.LIST_OFFSETS, partition_index=0, current_leader_epoch=-1, timestamp=-2
                ),
                "timeout": 1000,
            },
            Lack(right, {"topics.partitions.error_code": 29}),
            served_by_kafka=kafka,
        )
        for right, kafka in (
            (_topic(O.DESCRIBE), None),
            (on_cluster(O.CLUSTER_ACTION), {"topics.partitions.error_code": 29}),
        )
    ),
    *(
        _exchange(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            {
                "replica_id": -1,
                "topics": _of_one_topic(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    partition=0,
                    current_leader_epoch=-1,
                    leader_epoch=0,
                ),
            },
            Lack(right, {"topics.partitions.error_code": 29}),
        )
        for right in (_topic(O.DESCRIBE), on_cluster(O.CLUSTER_ACTION))
    ),
    _exchange(
        ApiKey.DELETE_RECORDS,
        {
            "topics": _of_one_topic(ApiKey.DELETE_RECORDS, partition_index=0, offset=0),
            "timeout": 1000,
        },
        _topic(O.DELETE),
        codes="topics.partitions.error_code",
    ),
    _exchange(
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": _of_one_topic(ApiKey.DESCRIBE_PRODUCERS)},
        _topic(O.READ),
        codes="topics.partitions.error_code",
    ),
]

# -- metadata ----------------------------------------------------------------------------------------

_SHOWN = ("topics.name", "topics.topic_id", "topics.partitions.partition_index")


def _metadata(*topics: Fields, create: bool = False) -> Fields:
    return {
        "topics": list(topics) or None,
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }


_ALL_OF_TOPIC: Final = {
    "topics.name": TOPIC,
    "topics.topic_id": Known.TOPIC_ID,
    "topics.partitions.partition_index": 0,
}


def _created_on_use(right: Given, name: str) -> Exchange:
    hidden = {"topics.error_code": 29, "topics.name": name}
    return _exchange(
        ApiKey.METADATA,
        _metadata({"name": name, "topic_id": ZERO_UUID}, create=True),
        Lack((T, name, O.DESCRIBE), hidden),
        Lack(right, hidden),
        when="a topic is missing and may be created",
        served={"topics.name": name, "topics.partitions.partition_index": 0},
        # Kafka has only begun to make it.
        served_by_kafka={"topics.error_code": 3, "topics.name": name},
        looks_at=("topics.name", "topics.partitions.partition_index"),
    )


_KINDS_OF_CONFIGS: Final[list[tuple[str, int, str | Known, Given]]] = [
    ("a topic", 2, TOPIC, _topic(O.DESCRIBE_CONFIGS)),
    ("a group", 32, GROUP, _group(O.DESCRIBE_CONFIGS)),
    *(
        ("a broker, its loggers, or client metrics", kind, name, on_cluster(O.DESCRIBE_CONFIGS))
        for kind, name in ((4, Known.NODE_NAME), (4, ""), (8, Known.NODE_NAME), (16, "metrics"))
    ),
]

_METADATA: Final = [
    _exchange(
        ApiKey.METADATA,
        _metadata({"name": TOPIC, "topic_id": ZERO_UUID}),
        Lack(
            _topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": TOPIC, "topics.topic_id": None},
        ),
        when="named topics, or ids",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    _exchange(
        ApiKey.METADATA,
        _metadata({"name": ABSENT, "topic_id": ZERO_UUID}),
        Lack(
            (T, ABSENT, O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": ABSENT, "topics.topic_id": None},
        ),
        when="named topics, or ids",
        served={"topics.error_code": 3, "topics.name": ABSENT, "topics.topic_id": None},
        looks_at=_SHOWN,
    ),
    _exchange(
        ApiKey.METADATA,
        _metadata({"name": None, "topic_id": Known.TOPIC_ID}),
        Lack(
            _topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": None, "topics.topic_id": Known.TOPIC_ID},
        ),
        when="named topics, or ids",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    _created_on_use((T, "made-by-topic", O.CREATE), "made-by-topic"),
    _created_on_use(on_cluster(O.CREATE), "made-by-cluster"),
    _exchange(
        ApiKey.METADATA,
        _metadata(),
        Lack(_topic(O.DESCRIBE), {}),
        when="all topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    _exchange(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": None},
        Lack(
            _topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": TOPIC, "topics.topic_id": None},
        ),
        when="named topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    _exchange(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [], "response_partition_limit": 100, "cursor": None},
        Lack(_topic(O.DESCRIBE), {}),
        when="all topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    *(
        _exchange(
            ApiKey.DESCRIBE_CONFIGS,
            {
                "resources": [
                    {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
            right,
            at=BOTH,
            when=when,
            codes="results.error_code",
        )
        for when, kind, name, right in _KINDS_OF_CONFIGS
    ),
    *(
        _exchange(
            ApiKey.LIST_CONFIG_RESOURCES,
            {"resource_types": [] if version == 0 else [2]},
            on_cluster(O.DESCRIBE_CONFIGS),
            version=version,
        )
        for version in (0, 1)
    ),
    _exchange(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {"components": [], "strict": False},
        on_cluster(O.DESCRIBE_CONFIGS),
    ),
    _exchange(
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        on_cluster(O.DESCRIBE),
        served={"results.topics.name": TOPIC},
        looks_at=("results.topics.name",),
    ),
    _exchange(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        on_cluster(O.ALTER),
        codes="results.partitions.error_code",
        served={"results.partitions.error_code": 57},
        version=2,
    ),
]

# -- groups ------------------------------------------------------------------------------------------

_OFFSETS: Final = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
_OFFSETS_BY_ID: Final = [{"topic_id": Known.TOPIC_ID, "partitions": _OFFSETS[0]["partitions"]}]
_IN_GROUP: Final = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}


def _committed(version: int) -> Exchange:
    return _exchange(
        ApiKey.OFFSET_COMMIT,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": _OFFSETS if version < 10 else _OFFSETS_BY_ID,
        },
        _group(O.READ),
        _topic(O.READ),
        codes="topics.partitions.error_code",
        version=version,
    )


def _offsets_fetched(version: int, *, everything: bool) -> Exchange:
    topic = _BY_ID if version >= 10 else _BY_NAME
    topics = None if everything else [{**topic, "partition_indexes": [0]}]
    group = {"group_id": GROUP, "topics": topics}
    at = "groups." if version >= 8 else ""
    shown = f"{at}topics.partitions.committed_offset"
    without_group: Outcome = {f"{at}error_code": 30}
    if version < 2:  # its answer has no code of its own
        without_group = {"topics.partitions.error_code": 30, shown: -1}
    elif version < 8 and not everything:
        without_group = {"error_code": 30}
    without_topic: Outcome = {f"{at}topics.partitions.error_code": 29, shown: -1}
    return _exchange(
        ApiKey.OFFSET_FETCH,
        {"groups": [group]} if version >= 8 else group,
        Lack(_group(O.DESCRIBE), without_group),
        Lack(_topic(O.DESCRIBE), {} if everything else without_topic),
        when="all topics" if everything else "named topics",
        served={shown: 1},
        looks_at=(shown,),
        version=version,
    )


_GROUPS: Final = [
    _exchange(
        ApiKey.SYNC_GROUP,
        {
            **_IN_GROUP,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        _group(O.READ),
        served={"error_code": 25},
    ),
    _exchange(ApiKey.HEARTBEAT, _IN_GROUP, _group(O.READ), served={"error_code": 25}),
    _exchange(
        ApiKey.LEAVE_GROUP,
        {"group_id": GROUP, "members": [{"member_id": "m"}]},
        _group(O.READ),
        served={"members.error_code": 25},
    ),
    _exchange(
        ApiKey.JOIN_GROUP,
        {
            "group_id": "joined",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        _group(O.READ, "joined"),
        served={"error_code": 79},
    ),
    _exchange(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": MEMBERS, "member_id": "nobody", "member_epoch": -1},
        _group(O.READ, MEMBERS),
        served={"error_code": 25},
    ),
    _exchange(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {
            "group_id": SUBSCRIBED,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
        _group(O.READ, SUBSCRIBED),
        _topic(O.DESCRIBE),
        when="subscribed names",
    ),
    *(_committed(version) for version in (2, 9, 10)),
    *(_offsets_fetched(version, everything=False) for version in (1, 7, 9, 10)),
    *(_offsets_fetched(version, everything=True) for version in (7, 9, 10)),
    _exchange(
        ApiKey.OFFSET_DELETE,
        {
            "group_id": OLD_GROUPS[1],
            "topics": _of_one_topic(ApiKey.OFFSET_DELETE, partition_index=0),
        },
        _group(O.DELETE, OLD_GROUPS[1]),
        _topic(O.READ),
        codes={G: "error_code", T: "topics.partitions.error_code"},
    ),
    _exchange(
        ApiKey.DELETE_GROUPS,
        {"groups_names": [OLD_GROUPS[0]]},
        _group(O.DELETE, OLD_GROUPS[0]),
        codes="results.error_code",
    ),
    _exchange(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": [GROUP]},
        Lack(_group(O.DESCRIBE), {"groups.error_code": 30, "groups.group_state": ""}),
        served={"groups.group_state": "Empty"},
        looks_at=("groups.group_state",),
    ),
    _exchange(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [MEMBERS]},
        _group(O.DESCRIBE, MEMBERS),
        _topic(O.DESCRIBE),
        codes="groups.error_code",
        served={"groups.members.member_id": MEMBER},
        looks_at=("groups.members.member_id",),
    ),
    _exchange(
        ApiKey.LIST_GROUPS,
        {"states_filter": [], "types_filter": []},
        Lack(_group(O.DESCRIBE), {}),
        served={"groups.group_id": GROUP},
        looks_at=("groups.group_id",),
    ),
    _exchange(
        ApiKey.LIST_GROUPS,
        {"states_filter": [], "types_filter": ["consumer"]},
        Lack(on_cluster(O.DESCRIBE), {}),
        served={"groups.group_id": (MEMBERS, SUBSCRIBED)},
        looks_at=("groups.group_id",),
    ),
    _exchange(
        ApiKey.FIND_COORDINATOR,
        {"key": GROUP, "key_type": 0},
        _group(O.DESCRIBE),
        when="a group",
        version=3,
    ),
    *(
        _exchange(
            ApiKey.FIND_COORDINATOR,
            {"coordinator_keys": [name], "key_type": kind},
            right,
            when=when,
            codes="coordinators.error_code",
        )
        for when, name, kind, right in (
            ("a group", GROUP, 0, _group(O.DESCRIBE)),
            ("a transaction", TXN, 1, _txn(O.DESCRIBE)),
        )
    ),
    _exchange(
        ApiKey.FIND_COORDINATOR,
        {"coordinator_keys": ["no-share-group"], "key_type": 2},
        on_cluster(O.CLUSTER_ACTION),
        when="a share group",
        codes="coordinators.error_code",
        served={"coordinators.error_code": 42},
    ),
]

# -- transactions ------------------------------------------------------------------------------------

_PRODUCER: Final = {"transactional_id": TXN, "producer_id": 77, "producer_epoch": 0}
_ADDED = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
_TRANSACTIONS: Final = [
    _exchange(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": TXN, "transaction_timeout": 1000},
        _txn(O.WRITE),
        when="a transactional id",
    ),
    *(
        _exchange(
            ApiKey.INIT_PRODUCER_ID,
            {"transactional_id": None, "transaction_timeout": 1000},
            Lack(right, {"error_code": 31}),
            when="no transactional id",
        )
        for right in (on_cluster(O.IDEMPOTENT_WRITE), (T, "whichever", O.WRITE))
    ),
    _exchange(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            **{f"v3_and_below_{name}": value for name, value in _PRODUCER.items()},
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        _txn(O.WRITE),
        _topic(O.WRITE),
        when="version 0-3; internal topics never",
        codes=_ADDED,
        served={_ADDED: 49},
        version=3,
    ),
    *(
        _exchange(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {
                "transactions": [
                    {
                        **_PRODUCER,
                        "verify_only": True,
                        "topics": [{"name": TOPIC, "partitions": [0]}],
                    }
                ]
            },
            on_cluster(O.CLUSTER_ACTION),
            when="version 4 and later",
            served={
                "results_by_transaction.topic_results.results_by_partition.partition_error_code": 49
            },
            version=version,
        )
        for version in (4, 5)
    ),
    _exchange(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {**_PRODUCER, "group_id": GROUP},
        _txn(O.WRITE),
        _group(O.READ),
        served={"error_code": 49},
    ),
    *(
        _exchange(
            ApiKey.TXN_OFFSET_COMMIT,
            {
                **_PRODUCER,
                "group_id": GROUP,
                "generation_id": -1,
                "member_id": "",
                "topics": _OFFSETS,
            },
            _txn(O.WRITE),
            _group(O.READ),
            _topic(O.READ),
            codes="topics.partitions.error_code",
            served={"topics.partitions.error_code": 49},
            version=version,
        )
        for version in (3, 5)
    ),
    _exchange(
        ApiKey.END_TXN, {**_PRODUCER, "committed": True}, _txn(O.WRITE), served={"error_code": 49}
    ),
    *(
        _exchange(
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
            right,
            codes="markers.topics.partitions.error_code",
            served={"markers.topics.partitions.error_code": 3},
        )
        for right in (on_cluster(O.ALTER), on_cluster(O.CLUSTER_ACTION))
    ),
    _exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [TXN]},
        _txn(O.DESCRIBE),
        codes="transaction_states.error_code",
    ),
    _exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [OPEN_TXN]},
        Lack(_txn(O.DESCRIBE, OPEN_TXN), {"transaction_states.error_code": 53}),
        Lack(_topic(O.DESCRIBE), {}),
        when="its topics",
        served={"transaction_states.topics.topic": TOPIC},
        looks_at=("transaction_states.topics.topic",),
    ),
    _exchange(
        ApiKey.LIST_TRANSACTIONS,
        {"state_filters": [], "producer_id_filters": []},
        Lack(_txn(O.DESCRIBE), {}),
        served={"transaction_states.transactional_id": TXN},
        looks_at=("transaction_states.transactional_id",),
    ),
]

# -- what a broker passes on, and a controller decides -----------------------------------------------

_ALTER, _DESCRIBE = on_cluster(O.ALTER), on_cluster(O.DESCRIBE)
_ACTION: Final = on_cluster(O.CLUSTER_ACTION)
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


def _altered(key: ApiKey, when: str, kind: int, name: str | Known, right: Given) -> Exchange:
    resource = {"resource_type": kind, "resource_name": name, "configs": []}
    return _exchange(
        key,
        {"resources": [resource], "validate_only": True},
        right,
        at=BOTH,
        when=when,
        codes="responses.error_code",
        # All settings are replaced, and that of min.insync.replicas for the whole cluster must not go.
        served={"responses.error_code": 40} if key is ApiKey.ALTER_CONFIGS and kind == 4 else {},
    )


_ADMIN: Final = [
    *(
        _exchange(
            ApiKey.CREATE_TOPICS,
            _NEW_TOPIC,
            Lack(right, {"topics.error_code": 29}),
            Lack((T, "new", O.DESCRIBE_CONFIGS), {"topics.topic_config_error_code": 29}),
            at=BOTH,
            when=when,
        )
        for when, right in (
            ("always", (T, "new", O.CREATE)),
            ("the settings in the answer", on_cluster(O.CREATE)),
        )
    ),
    *(
        _exchange(
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
        _exchange(
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
    _exchange(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": None, "topic_id": Known.TOPIC_ID}], "timeout": 10_000},
        Lack(
            _topic(O.DESCRIBE),
            {"responses.error_code": 29, "responses.name": None},
        ),
        at=BOTH,
        when="to learn whether it exists, and its name",
        served={"responses.error_code": 29, "responses.name": TOPIC},
        looks_at=("responses.name",),
    ),
    _exchange(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": TOPIC, "count": 1, "assignments": None}], "timeout": 10_000},
        _topic(O.ALTER),
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 37},
    ),
    *(
        _altered(key, when, kind, name, right)
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for when, kind, name, right in (
            ("a topic", 2, TOPIC, _topic(O.ALTER_CONFIGS)),
            ("a group", 32, GROUP, _group(O.ALTER_CONFIGS)),
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
            (LOGGERS_OF_CONTROLLER, _ACTION, CONTROLLER),
        )
    ),
    _exchange(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
            "validate_only": True,
        },
        on_cluster(O.ALTER_CONFIGS),
        at=BOTH,
        codes="entries.error_code",
    ),
    _exchange(
        ApiKey.ELECT_LEADERS,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": ABSENT, "partitions": [0]}],
            "timeout": 10_000,
        },
        Lack(
            _ALTER,
            {"error_code": 31, "replica_election_results.partition_result.error_code": 31},
        ),
        at=BOTH,
        served={"replica_election_results.partition_result.error_code": 3},
    ),
    _exchange(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [], "timeout": 10_000}, _ALTER, at=BOTH
    ),
    _exchange(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": 10_000}, _DESCRIBE, at=BOTH
    ),
    _exchange(ApiKey.UPDATE_FEATURES, {"feature_updates": [], "timeout": 10_000}, _ALTER, at=BOTH),
    _exchange(
        ApiKey.UNREGISTER_BROKER, {"broker_id": 99}, _ALTER, at=BOTH, served={"error_code": 102}
    ),
    _exchange(
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
        _ALTER,
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 42},
    ),
    _exchange(
        ApiKey.DELETE_ACLS,
        {"filters": [_FILTER]},
        _ALTER,
        at=BOTH,
        codes="filter_results.error_code",
    ),
    _exchange(ApiKey.DESCRIBE_ACLS, _FILTER, _DESCRIBE, at=BOTH),
    _exchange(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": []}, _DESCRIBE),
    _exchange(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": ABSENT, "mechanism": 1}], "upsertions": []},
        _ALTER,
        at=BOTH,
        codes="results.error_code",
        served={"results.error_code": 91},
    ),
    _exchange(
        ApiKey.DESCRIBE_QUORUM,
        {
            "topics": [
                {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
            ]
        },
        _DESCRIBE,
        at=BOTH,
    ),
    _exchange(
        ApiKey.ADD_RAFT_VOTER,
        {
            "cluster_id": _STRANGE_CLUSTER,
            "timeout": 1000,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
            "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
        },
        _ALTER,
        at=BOTH,
        served={"error_code": 104},
        version=0,
    ),
    _exchange(
        ApiKey.REMOVE_RAFT_VOTER,
        {
            "cluster_id": _STRANGE_CLUSTER,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
        },
        _ALTER,
        at=BOTH,
        served={"error_code": 104},
        version=0,
    ),
    _exchange(
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
        _exchange(
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
        _exchange(
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

# -- what nodes ask of controllers, in a way that changes nothing -------------------------------------

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
    fields = {"cluster_id": _STRANGE_CLUSTER, "topics": [topic]}
    return _exchange(key, fields, _ACTION, at=CONTROLLER, served={"error_code": 104})


_NODES: Final = [
    *map(_election, (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH)),
    _exchange(
        ApiKey.FETCH,
        {
            **_fetch({}),
            "cluster_id": _STRANGE_CLUSTER,
            "topics": [
                {
                    "topic_id": CLUSTER_METADATA_TOPIC_ID,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    _exchange(
        ApiKey.FETCH_SNAPSHOT,
        {
            "cluster_id": _STRANGE_CLUSTER,
            "replica_id": 9,
            "max_bytes": 1000,
            "topics": [],
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    _exchange(
        ApiKey.UPDATE_RAFT_VOTER,
        {
            "cluster_id": _STRANGE_CLUSTER,
            "current_leader_epoch": 1,
            "voter_id": 99,
            "voter_directory_id": UUID(int=7),
            "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
            "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
        version=0,
    ),
    _exchange(
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
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    _exchange(
        ApiKey.BROKER_REGISTRATION,
        {
            "broker_id": 99,
            "cluster_id": _STRANGE_CLUSTER,
            "incarnation_id": UUID(int=7),
            "listeners": [],
            "features": [],
            "rack": None,
            "log_dirs": [UUID(int=1 << 64)],
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 104},
    ),
    _exchange(
        ApiKey.BROKER_HEARTBEAT,
        {
            **_LATER_EPOCH,
            "current_metadata_offset": 0,
            "want_fence": True,
            "want_shut_down": False,
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    _exchange(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        _LATER_EPOCH,
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    _exchange(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        {**_LATER_EPOCH, "directories": []},
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 77},
    ),
    _exchange(
        ApiKey.CONTROLLER_REGISTRATION,
        {
            "controller_id": 99,
            "incarnation_id": UUID(int=7),
            "zk_migration_ready": False,
            "listeners": [],
            "features": [],
        },
        _ACTION,
        at=CONTROLLER,
    ),
    _exchange(
        ApiKey.ENVELOPE,
        {
            "request_data": b"",
            "request_principal": principal_to_bytes(ANONYMOUS),
            "client_host_address": bytes(4),
        },
        _ACTION,
        at=CONTROLLER,
        served={"error_code": 35},
    ),
    _exchange(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2}, on_cluster(O.ALTER), at=CONTROLLER),
]

# -- what anybody may ask after a login ---------------------------------------------------------------

_FREE: Final = [
    _exchange(
        ApiKey.API_VERSIONS,
        {"client_software_name": "tests", "client_software_version": "1"},
        at=BOTH,
    ),
    # A second login is for sessions that have an end.
    _exchange(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, at=BOTH, served={"error_code": 34}),
    _exchange(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b""}, at=BOTH, served={"error_code": 34}),
    _exchange(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 1}),
    _exchange(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": ZERO_UUID}),
    _exchange(
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

EXCHANGES: Final = (
    *_METADATA,
    *_RECORDS,
    *_GROUPS,
    *_TRANSACTIONS,
    *_ADMIN,
    *_NODES,
    *_FREE,
)
CASES: Final = [(listener, each) for each in EXCHANGES for listener in each.at]

NO_EXCHANGE: Final[Mapping[tuple[Listener, int, str], str]] = {
    (
        Listener.BROKER,
        ApiKey.INIT_PRODUCER_ID,
        "a transactional id and two-phase commit",
    ): "version 6, which ottla does not serve",
    (
        Listener.BROKER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "a subscribed pattern",
    ): "Kafka looks for matching topics later, no answer says it at once: test_rights_of_groups",
    **{
        (
            Listener.BROKER,
            KEPT_RECORDS,
            form.when,
        ): "Kafka has no such request: test_rights_under_attack"
        for form in ON_BROKER[KEPT_RECORDS]
    },
    (
        Listener.CONTROLLER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "always",
    ): "no controller serves it",
}
"""Forms that have none, and why."""

TOKEN_APIS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
