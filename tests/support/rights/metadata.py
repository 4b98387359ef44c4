"""What there is, and how it is set up."""

from __future__ import annotations

from typing import Final

from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from ottla.wire.types import ZERO_UUID
from support.rights.exchange import (
    ABSENT,
    BOTH,
    GROUP,
    TOPIC,
    Exchange,
    Fields,
    Given,
    Known,
    Lack,
    T,
    exchange,
    on_cluster,
    on_group,
    on_topic,
)

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
    return exchange(
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


_KINDS_OF_CONFIGS: Final[list[tuple[str, int, str | Known, Given, str]]] = [
    ("a topic", 2, TOPIC, on_topic(O.DESCRIBE_CONFIGS), "cleanup.policy"),
    ("a group", 32, GROUP, on_group(O.DESCRIBE_CONFIGS), "consumer.session.timeout.ms"),
    *(
        (
            "a broker, its loggers, or client metrics",
            kind,
            name,
            on_cluster(O.DESCRIBE_CONFIGS),
            setting,
        )
        for kind, name, setting in (
            (4, Known.NODE_NAME, "num.partitions"),
            (4, "", "min.insync.replicas"),
            (8, Known.NODE_NAME, "root"),
            (16, "metrics", "interval.ms"),
        )
    ),
]
"""When, type and name, the right, and a setting that is shown."""

METADATA: Final = [
    exchange(
        ApiKey.METADATA,
        _metadata({"name": TOPIC, "topic_id": ZERO_UUID}),
        Lack(
            on_topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": TOPIC, "topics.topic_id": None},
        ),
        when="named topics, or ids",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    exchange(
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
    exchange(
        ApiKey.METADATA,
        _metadata({"name": None, "topic_id": Known.TOPIC_ID}),
        Lack(
            on_topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": None, "topics.topic_id": Known.TOPIC_ID},
        ),
        when="named topics, or ids",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    _created_on_use((T, "made-by-topic", O.CREATE), "made-by-topic"),
    _created_on_use(on_cluster(O.CREATE), "made-by-cluster"),
    exchange(
        ApiKey.METADATA,
        _metadata(),
        Lack(on_topic(O.DESCRIBE), {}),
        when="all topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    exchange(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": None},
        Lack(
            on_topic(O.DESCRIBE),
            {"topics.error_code": 29, "topics.name": TOPIC, "topics.topic_id": None},
        ),
        when="named topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    exchange(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [], "response_partition_limit": 100, "cursor": None},
        Lack(on_topic(O.DESCRIBE), {}),
        when="all topics",
        served=_ALL_OF_TOPIC,
        looks_at=_SHOWN,
    ),
    *(
        exchange(
            ApiKey.DESCRIBE_CONFIGS,
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": name,
                        "configuration_keys": [setting],
                    }
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
            right,
            at=BOTH,
            when=when,
            codes="results.error_code",
            served={"results.configs.name": setting},
            looks_at=("results.configs.name",),
        )
        for when, kind, name, right, setting in _KINDS_OF_CONFIGS
    ),
    *(
        exchange(
            ApiKey.LIST_CONFIG_RESOURCES,
            {"resource_types": [] if version == 0 else [2]},
            on_cluster(O.DESCRIBE_CONFIGS),
            served={"config_resources.resource_type": 2} if version else {},
            looks_at=("config_resources.resource_type",),
            version=version,
        )
        for version in (0, 1)
    ),
    exchange(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {"components": [], "strict": False},
        on_cluster(O.DESCRIBE_CONFIGS),
    ),
    exchange(
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        on_cluster(O.DESCRIBE),
        served={"results.topics.name": TOPIC},
        looks_at=("results.topics.name",),
    ),
    exchange(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        on_cluster(O.ALTER),
        codes="results.partitions.error_code",
        served={"results.partitions.error_code": 57},
        version=2,
    ),
]
