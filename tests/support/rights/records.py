"""Records: written, read and looked for."""

from __future__ import annotations

from typing import Any, Final

from ottla.records.record import Record, build
from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import (
    ADMIN_CLIENT_ID,
    GROUP_METADATA_TOPIC,
)
from support.rights.exchange import (
    BY_ID,
    BY_NAME,
    TOPIC,
    TXN,
    Fields,
    Lack,
    T,
    exchange,
    of_topics,
    on_cluster,
    on_topic,
    on_transaction,
)


def batch(**fields: Any) -> bytes:
    return bytes(build([Record(0, 1_700_000_000_000, None, b"paid")], **fields))


def produce(topic: Fields, records: bytes, transactional_id: str | None = None) -> Fields:
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{**topic, "partition_data": [{"index": 0, "records": records}]}],
    }


PRODUCED = "responses.partition_responses.error_code"
FETCHED = "responses.partitions.error_code"
_IN_TXN = batch(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)


def fetch(topic: Fields, replica: int = -1) -> Fields:
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


RECORDS: Final = [
    *(
        exchange(
            ApiKey.PRODUCE,
            produce(topic, batch()),
            on_topic(O.WRITE),
            when="no batch is transactional",
            codes=PRODUCED,
            version=version,
        )
        for topic, version in ((BY_NAME, 3), (BY_NAME, 12), (BY_ID, 13))
    ),
    exchange(
        ApiKey.PRODUCE,
        produce(BY_NAME, _IN_TXN, TXN),
        on_transaction(O.WRITE),
        on_topic(O.WRITE),
        when="a batch is transactional",
        codes=PRODUCED,
        served={PRODUCED: 49},
        version=12,
    ),
    exchange(
        ApiKey.PRODUCE,
        produce({"name": GROUP_METADATA_TOPIC}, batch()),
        Lack((T, GROUP_METADATA_TOPIC, O.WRITE), {PRODUCED: 29}),
        # Kafka believes the client id instead.
        Lack(on_cluster(O.ALTER), {PRODUCED: 29}, kafka={PRODUCED: 87}),
        when="a topic that brokers write",
        served={PRODUCED: 87},
        version=12,
        client_id=ADMIN_CLIENT_ID,
    ),
    exchange(
        ApiKey.PRODUCE,
        produce({"name": GROUP_METADATA_TOPIC}, batch()),
        Lack(on_cluster(O.CLUSTER_ACTION), {PRODUCED: 29}),
        when="a topic that brokers write",
        served={PRODUCED: 87},
        served_by_kafka={PRODUCED: 29},
        version=12,
        client_id=ADMIN_CLIENT_ID,
    ),
    *(
        exchange(
            ApiKey.FETCH,
            fetch(topic),
            on_topic(O.READ),
            when="replica id < 0",
            codes=FETCHED,
            version=version,
        )
        for topic, version in (({}, 4), ({}, 12), (BY_ID, None))
    ),
    *(
        exchange(
            ApiKey.FETCH,
            fetch(topic, replica=9),
            Lack(on_cluster(O.CLUSTER_ACTION), {FETCHED: 29}),
            when="replica id >= 0",
            served={FETCHED: 6},
            version=version,
        )
        for topic, version in (({}, 12), (BY_ID, None))
    ),
    *(
        exchange(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": of_topics(
                    ApiKey.LIST_OFFSETS, partition_index=0, current_leader_epoch=-1, timestamp=-2
                ),
                "timeout": 1000,
            },
            Lack(right, {"topics.partitions.error_code": 29}),
            served_by_kafka=kafka,
        )
        for right, kafka in (
            (on_topic(O.DESCRIBE), None),
            (on_cluster(O.CLUSTER_ACTION), {"topics.partitions.error_code": 29}),
        )
    ),
    *(
        exchange(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            {
                "replica_id": -1,
                "topics": of_topics(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    partition=0,
                    current_leader_epoch=-1,
                    leader_epoch=0,
                ),
            },
            Lack(right, {"topics.partitions.error_code": 29}),
        )
        for right in (on_topic(O.DESCRIBE), on_cluster(O.CLUSTER_ACTION))
    ),
    exchange(
        ApiKey.DELETE_RECORDS,
        {
            "topics": of_topics(ApiKey.DELETE_RECORDS, partition_index=0, offset=0),
            "timeout": 1000,
        },
        on_topic(O.DELETE),
        codes="topics.partitions.error_code",
    ),
    exchange(
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": of_topics(ApiKey.DESCRIBE_PRODUCERS)},
        on_topic(O.READ),
        codes="topics.partitions.error_code",
    ),
]
