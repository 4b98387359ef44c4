"""Requests about several things at once. Whoever lacks the right to one of them is refused that one, and served the others."""

from __future__ import annotations

from typing import Any, Final

from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from ottla.wire.types import ZERO_UUID
from support.rights.exchange import (
    BOTH,
    GROUP,
    OLD_GROUPS,
    OPEN_TXN,
    OTHER_TOPIC,
    TOPIC,
    TXN,
    Exchange,
    Fields,
    G,
    Given,
    Known,
    Lack,
    Outcome,
    T,
    exchange,
    of_topics,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from support.rights.records import batch, fetch, produce
from support.rights.transactions import PRODUCER

_TOPICS: Final = (TOPIC, OTHER_TOPIC)
_IDS: Final = (Known.TOPIC_ID, Known.OTHER_ID)
_GROUPS: Final = (GROUP, OLD_GROUPS[1])


def _several(
    key: ApiKey,
    fields: Fields,
    path: str,
    rights: dict[str, Given],
    *first: Lack,
    others: int = 0,
    **options: Any,
) -> Exchange:
    """`path`: where the code of a part is, with a place for its name. `rights`: by the name of the part that needs it. `others`:
    the code of the parts that are not refused."""

    def said(refused: str | None = None) -> Outcome:
        codes = dict.fromkeys(rights, others)
        if refused is not None:
            codes[refused] = {T: 29, G: 30}.get(rights[refused][0], 31)
        return {path.format(name): code for name, code in codes.items() if code}

    lacks = [Lack(right, said(name)) for name, right in rights.items()]
    return exchange(key, fields, *first, *lacks, served=said(), are_apart=True, **options)


def _on_topics(operation: O) -> dict[str, Given]:
    return {name: (T, name, operation) for name in _TOPICS}


def _on_ids(operation: O) -> dict[str, Given]:
    return {id.name: (T, name, operation) for id, name in zip(_IDS, _TOPICS, strict=True)}


def _all(path: str, code: int, *names: str) -> Outcome:
    return {path.format(name): code for name in names}


_PRODUCED = "responses[{}].partition_responses.error_code"
_FETCHED = "responses[{}].partitions.error_code"
_PARTITIONS = "topics[{}].partitions.error_code"
_ADDED = "results_by_topic_v3_and_below[{}].results_by_partition.partition_error_code"
_EMPTY: Final = {"partition_data": [{"index": 0, "records": batch()}]}
_AT_START: Final = fetch({})["topics"][0]["partitions"]
_AN_OFFSET: Final = {"partition_index": 0, "committed_offset": 1}


def _configs(operation: O) -> dict[str, Given]:
    return {
        TOPIC: on_topic(operation),
        GROUP: on_group(operation),
        "metrics": on_cluster(operation),
    }


def _resources(**more: Any) -> list[Fields]:
    kinds = {TOPIC: 2, GROUP: 32, "metrics": 16}
    return [{"resource_type": kind, "resource_name": name, **more} for name, kind in kinds.items()]


def _new(name: str) -> Fields:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


SEVERAL: Final = [
    _several(
        ApiKey.PRODUCE,
        {**produce({}, b""), "topic_data": [{"name": name, **_EMPTY} for name in _TOPICS]},
        _PRODUCED,
        _on_topics(O.WRITE),
        when="no batch is transactional",
        version=12,
    ),
    _several(
        ApiKey.PRODUCE,
        {**produce({}, b""), "topic_data": [{"topic_id": id, **_EMPTY} for id in _IDS]},
        _PRODUCED,
        _on_ids(O.WRITE),
        when="no batch is transactional",
        version=13,
    ),
    _several(
        ApiKey.FETCH,
        {**fetch({}), "topics": [{"topic": name, "partitions": _AT_START} for name in _TOPICS]},
        _FETCHED,
        _on_topics(O.READ),
        when="replica id < 0",
        version=12,
    ),
    _several(
        ApiKey.FETCH,
        {**fetch({}), "topics": [{"topic_id": id, "partitions": _AT_START} for id in _IDS]},
        _FETCHED,
        _on_ids(O.READ),
        when="replica id < 0",
    ),
    _several(
        ApiKey.LIST_OFFSETS,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": of_topics(
                ApiKey.LIST_OFFSETS,
                *_TOPICS,
                partition_index=0,
                current_leader_epoch=-1,
                timestamp=-2,
            ),
            "timeout": 1000,
        },
        _PARTITIONS,
        _on_topics(O.DESCRIBE),
    ),
    _several(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {
            "replica_id": -1,
            "topics": of_topics(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                *_TOPICS,
                partition=0,
                current_leader_epoch=-1,
                leader_epoch=0,
            ),
        },
        _PARTITIONS,
        _on_topics(O.DESCRIBE),
    ),
    _several(
        ApiKey.DELETE_RECORDS,
        {
            "topics": of_topics(ApiKey.DELETE_RECORDS, *_TOPICS, partition_index=0, offset=0),
            "timeout": 1000,
        },
        _PARTITIONS,
        _on_topics(O.DELETE),
    ),
    _several(
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": of_topics(ApiKey.DESCRIBE_PRODUCERS, *_TOPICS)},
        _PARTITIONS,
        _on_topics(O.READ),
    ),
    _several(
        ApiKey.METADATA,
        {
            "topics": [{"name": name, "topic_id": ZERO_UUID} for name in _TOPICS],
            "allow_auto_topic_creation": False,
        },
        "topics[{}].error_code",
        _on_topics(O.DESCRIBE),
        when="named topics, or ids",
    ),
    _several(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {
            "topics": [{"name": name} for name in _TOPICS],
            "response_partition_limit": 100,
            "cursor": None,
        },
        "topics[{}].error_code",
        _on_topics(O.DESCRIBE),
        when="named topics",
    ),
    _several(
        ApiKey.DESCRIBE_CONFIGS,
        {
            "resources": _resources(configuration_keys=None),
            "include_synonyms": False,
            "include_documentation": False,
        },
        "results[{}].error_code",
        _configs(O.DESCRIBE_CONFIGS),
        at=BOTH,
        when="a topic",
    ),
    *(
        _several(
            key,
            {"resources": _resources(configs=[]), "validate_only": True},
            "responses[{}].error_code",
            _configs(O.ALTER_CONFIGS),
            at=BOTH,
            when="a topic",
        )
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    ),
    *(
        _several(
            ApiKey.OFFSET_COMMIT,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {"name": name, "topic_id": id, "partitions": [_AN_OFFSET]}
                    for name, id in zip(_TOPICS, _IDS, strict=True)
                ],
            },
            _PARTITIONS,
            rights,
            Lack(on_group(O.READ), _all(_PARTITIONS, 30, *rights)),
            version=version,
        )
        for version, rights in ((9, _on_topics(O.READ)), (10, _on_ids(O.READ)))
    ),
    _several(
        ApiKey.OFFSET_FETCH,
        {"groups": [{"group_id": name, "topics": None} for name in _GROUPS]},
        "groups[{}].error_code",
        {name: on_group(O.DESCRIBE, name) for name in _GROUPS},
        when="all topics",
    ),
    _several(
        ApiKey.OFFSET_DELETE,
        {
            "group_id": OLD_GROUPS[1],
            "topics": of_topics(ApiKey.OFFSET_DELETE, *_TOPICS, partition_index=0),
        },
        _PARTITIONS,
        _on_topics(O.READ),
        Lack(on_group(O.DELETE, OLD_GROUPS[1]), {"error_code": 30}),
    ),
    _several(
        ApiKey.DELETE_GROUPS,
        {"groups_names": ["nobody", "no one"]},
        "results[{}].error_code",
        {name: on_group(O.DELETE, name) for name in ("nobody", "no one")},
        others=69,
    ),
    _several(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": list(_GROUPS)},
        "groups[{}].error_code",
        {name: on_group(O.DESCRIBE, name) for name in _GROUPS},
    ),
    _several(
        ApiKey.FIND_COORDINATOR,
        {"coordinator_keys": list(_GROUPS), "key_type": 0},
        "coordinators[{}].error_code",
        {name: on_group(O.DESCRIBE, name) for name in _GROUPS},
        when="a group",
    ),
    exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [TXN, OPEN_TXN]},
        *(
            Lack(on_transaction(O.DESCRIBE, name), {f"transaction_states[{name}].error_code": 53})
            for name in (TXN, OPEN_TXN)
        ),
        are_apart=True,
    ),
    # All or nothing: what is not refused is not attempted.
    exchange(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in _TOPICS],
        },
        Lack(on_transaction(O.WRITE), _all(_ADDED, 53, *_TOPICS)),
        *(
            Lack((T, name, O.WRITE), {**_all(_ADDED, 55, *_TOPICS), _ADDED.format(name): 29})
            for name in _TOPICS
        ),
        when="version 0-3; internal topics never",
        served=_all(_ADDED, 49, *_TOPICS),
        version=3,
        are_apart=True,
    ),
    _several(
        ApiKey.TXN_OFFSET_COMMIT,
        {
            **PRODUCER,
            "group_id": GROUP,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": name, "partitions": [_AN_OFFSET]} for name in _TOPICS],
        },
        _PARTITIONS,
        _on_topics(O.READ),
        Lack(on_transaction(O.WRITE), _all(_PARTITIONS, 53, *_TOPICS)),
        Lack(on_group(O.READ), _all(_PARTITIONS, 30, *_TOPICS)),
        others=49,
    ),
    exchange(
        ApiKey.CREATE_TOPICS,
        {"topics": [_new("new"), _new("newer")], "timeout": 10_000, "validate_only": True},
        *(
            Lack(
                (T, refused, O.CREATE),
                {
                    f"topics[{refused}].error_code": 29,
                    f"topics[{made}].topic_config_error_code": 29,
                },
            )
            for refused, made in (("new", "newer"), ("newer", "new"))
        ),
        at=BOTH,
        served={f"topics[{made}].topic_config_error_code": 29 for made in ("new", "newer")},
        are_apart=True,
    ),
    _several(
        ApiKey.DELETE_TOPICS,
        {
            "topics": [{"name": name, "topic_id": ZERO_UUID} for name in ("lost", "gone")],
            "timeout": 10_000,
        },
        "responses[{}].error_code",
        {name: (T, name, O.DELETE) for name in ("lost", "gone")},
        at=BOTH,
        others=3,
    ),
    _several(
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [{"name": name, "count": 1, "assignments": None} for name in _TOPICS],
            "timeout": 10_000,
        },
        "results[{}].error_code",
        _on_topics(O.ALTER),
        at=BOTH,
        others=37,
    ),
]
