"""Groups and their offsets."""

from __future__ import annotations

from typing import Final

from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from support.rights.exchange import (
    BY_ID,
    BY_NAME,
    GROUP,
    MEMBER,
    MEMBERS,
    OLD_GROUPS,
    SUBSCRIBED,
    TOPIC,
    TXN,
    Exchange,
    G,
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

OFFSETS: Final = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
_OFFSETS_BY_ID: Final = [{"topic_id": Known.TOPIC_ID, "partitions": OFFSETS[0]["partitions"]}]
_IN_GROUP: Final = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}


def _committed(version: int) -> Exchange:
    return exchange(
        ApiKey.OFFSET_COMMIT,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": OFFSETS if version < 10 else _OFFSETS_BY_ID,
        },
        on_group(O.READ),
        on_topic(O.READ),
        codes="topics.partitions.error_code",
        version=version,
    )


def _offsets_fetched(version: int, *, everything: bool) -> Exchange:
    topic = BY_ID if version >= 10 else BY_NAME
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
    return exchange(
        ApiKey.OFFSET_FETCH,
        {"groups": [group]} if version >= 8 else group,
        Lack(on_group(O.DESCRIBE), without_group),
        Lack(on_topic(O.DESCRIBE), {} if everything else without_topic),
        when="all topics" if everything else "named topics",
        served={shown: 1},
        looks_at=(shown,),
        version=version,
    )


GROUPS: Final = [
    exchange(
        ApiKey.SYNC_GROUP,
        {
            **_IN_GROUP,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        on_group(O.READ),
        served={"error_code": 25},
    ),
    exchange(ApiKey.HEARTBEAT, _IN_GROUP, on_group(O.READ), served={"error_code": 25}),
    exchange(
        ApiKey.LEAVE_GROUP,
        {"group_id": GROUP, "members": [{"member_id": "m"}]},
        on_group(O.READ),
        served={"members.error_code": 25},
    ),
    exchange(
        ApiKey.JOIN_GROUP,
        {
            "group_id": "joined",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        on_group(O.READ, "joined"),
        served={"error_code": 79},
    ),
    exchange(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": MEMBERS, "member_id": "nobody", "member_epoch": -1},
        on_group(O.READ, MEMBERS),
        served={"error_code": 25},
    ),
    exchange(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {
            "group_id": SUBSCRIBED,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
        on_group(O.READ, SUBSCRIBED),
        on_topic(O.DESCRIBE),
        when="subscribed names",
    ),
    *(_committed(version) for version in (2, 9, 10)),
    *(_offsets_fetched(version, everything=False) for version in (1, 7, 9, 10)),
    *(_offsets_fetched(version, everything=True) for version in (7, 9, 10)),
    exchange(
        ApiKey.OFFSET_DELETE,
        {
            "group_id": OLD_GROUPS[1],
            "topics": of_topics(ApiKey.OFFSET_DELETE, partition_index=0),
        },
        on_group(O.DELETE, OLD_GROUPS[1]),
        on_topic(O.READ),
        codes={G: "error_code", T: "topics.partitions.error_code"},
    ),
    exchange(
        ApiKey.DELETE_GROUPS,
        {"groups_names": [OLD_GROUPS[0]]},
        on_group(O.DELETE, OLD_GROUPS[0]),
        codes="results.error_code",
    ),
    exchange(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": [GROUP]},
        Lack(on_group(O.DESCRIBE), {"groups.error_code": 30, "groups.group_state": ""}),
        served={"groups.group_state": "Empty"},
        looks_at=("groups.group_state",),
    ),
    exchange(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [MEMBERS]},
        on_group(O.DESCRIBE, MEMBERS),
        on_topic(O.DESCRIBE),
        codes="groups.error_code",
        served={"groups.members.member_id": MEMBER},
        looks_at=("groups.members.member_id",),
    ),
    exchange(
        ApiKey.LIST_GROUPS,
        {"states_filter": [], "types_filter": []},
        Lack(on_group(O.DESCRIBE), {}),
        served={"groups.group_id": GROUP},
        looks_at=("groups.group_id",),
    ),
    exchange(
        ApiKey.LIST_GROUPS,
        {"states_filter": [], "types_filter": ["consumer"]},
        Lack(on_cluster(O.DESCRIBE), {}),
        served={"groups.group_id": (MEMBERS, SUBSCRIBED)},
        looks_at=("groups.group_id",),
    ),
    exchange(
        ApiKey.FIND_COORDINATOR,
        {"key": GROUP, "key_type": 0},
        on_group(O.DESCRIBE),
        when="a group",
        version=3,
    ),
    *(
        exchange(
            ApiKey.FIND_COORDINATOR,
            {"coordinator_keys": [name], "key_type": kind},
            Lack(right, {"coordinators.error_code": code, "coordinators.host": ""}),
            when=when,
            served={"coordinators.host": "127.0.0.1"},
            looks_at=("coordinators.host",),
        )
        for when, name, kind, right, code in (
            ("a group", GROUP, 0, on_group(O.DESCRIBE), 30),
            ("a transaction", TXN, 1, on_transaction(O.DESCRIBE), 53),
        )
    ),
    exchange(
        ApiKey.FIND_COORDINATOR,
        {"coordinator_keys": ["no-share-group"], "key_type": 2},
        on_cluster(O.CLUSTER_ACTION),
        when="a share group",
        codes="coordinators.error_code",
        served={"coordinators.error_code": 42},
    ),
]
