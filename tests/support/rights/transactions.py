"""Transactions and their producers."""

from __future__ import annotations

from typing import Final

from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from support.rights.exchange import (
    GROUP,
    OPEN_TXN,
    TOPIC,
    TXN,
    Lack,
    T,
    exchange,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from support.rights.groups import OFFSETS

PRODUCER: Final = {"transactional_id": TXN, "producer_id": 77, "producer_epoch": 0}
ADDED = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
TRANSACTIONS: Final = [
    exchange(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": TXN, "transaction_timeout": 1000},
        on_transaction(O.WRITE),
        when="a transactional id",
    ),
    *(
        exchange(
            ApiKey.INIT_PRODUCER_ID,
            {"transactional_id": None, "transaction_timeout": 1000},
            Lack(right, {"error_code": 31}),
            when="no transactional id",
        )
        for right in (on_cluster(O.IDEMPOTENT_WRITE), (T, "whichever", O.WRITE))
    ),
    exchange(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        on_transaction(O.WRITE),
        on_topic(O.WRITE),
        when="version 0-3; internal topics never",
        codes=ADDED,
        served={ADDED: 49},
        version=3,
    ),
    *(
        exchange(
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
            on_cluster(O.CLUSTER_ACTION),
            when="version 4 and later",
            served={
                "results_by_transaction.topic_results.results_by_partition.partition_error_code": 49
            },
            version=version,
        )
        for version in (4, 5)
    ),
    exchange(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {**PRODUCER, "group_id": GROUP},
        on_transaction(O.WRITE),
        on_group(O.READ),
        served={"error_code": 49},
    ),
    *(
        exchange(
            ApiKey.TXN_OFFSET_COMMIT,
            {
                **PRODUCER,
                "group_id": GROUP,
                "generation_id": -1,
                "member_id": "",
                "topics": OFFSETS,
            },
            on_transaction(O.WRITE),
            on_group(O.READ),
            on_topic(O.READ),
            codes="topics.partitions.error_code",
            served={"topics.partitions.error_code": 49},
            version=version,
        )
        for version in (3, 5)
    ),
    exchange(
        ApiKey.END_TXN,
        {**PRODUCER, "committed": True},
        on_transaction(O.WRITE),
        served={"error_code": 49},
    ),
    *(
        exchange(
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
    exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [TXN]},
        on_transaction(O.DESCRIBE),
        codes="transaction_states.error_code",
    ),
    exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [OPEN_TXN]},
        Lack(on_transaction(O.DESCRIBE, OPEN_TXN), {"transaction_states.error_code": 53}),
        Lack(on_topic(O.DESCRIBE), {}),
        when="its topics",
        served={"transaction_states.topics.topic": TOPIC},
        looks_at=("transaction_states.topics.topic",),
    ),
    exchange(
        ApiKey.LIST_TRANSACTIONS,
        {"state_filters": [], "producer_id_filters": []},
        Lack(on_transaction(O.DESCRIBE), {}),
        served={"transaction_states.transactional_id": TXN},
        looks_at=("transaction_states.transactional_id",),
    ),
]
