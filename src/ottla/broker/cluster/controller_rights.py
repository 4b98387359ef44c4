"""What a request to the controller needs, and what a principal without it is answered.

Most requests need one right on the cluster, and are refused as a whole. Those that name topics, groups and brokers are
decided piece by piece: the controller sees only what is left of such a request, and each other piece is refused in the
answer. A topic that one may not DESCRIBE looks the same whether it exists or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ottla.security import needs
from ottla.security.needs import ON_CONTROLLER, Need
from ottla.security.operations import CLUSTER_NAME, AclOperation, ResourceType
from ottla.security.rights import Rights
from ottla.wire.apis import ApiKey
from ottla.wire.errors import KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, UNLISTED_TOPICS
from ottla.wire.messages import field
from ottla.wire.types import ZERO_UUID

Fields: TypeAlias = dict[str, Any]

NOT_IN_TABLE: Final = frozenset({ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN})  # fmt: skip
"""Who asks decides about these, and not only a right (`token_requests`)."""


def check_cluster(key: ApiKey, rights: Rights | None) -> None:
    """KafkaError 31 without the right on the cluster that this API needs on controllers."""
    if rights is None:
        return
    for form in ON_CONTROLLER[key]:
        for need in form.needs:
            if not need.met(rights):
                raise KafkaError(need.denied, "Cluster authorization failed.")


class Allowed(NamedTuple):
    """What of a request may be decided, and the answers to the rest."""

    message: Any
    refused: Sequence[Fields]


class PiecewiseNeeds(NamedTuple):
    rows: str
    """The list of answers, one for each piece."""
    allow: Callable[[Any, Rights, MetadataImage], Allowed]
    hide: Callable[[list[Fields], Rights, Random], list[Fields]] | None = None
    """Takes from the answers what this principal may not see."""


class WhollyDenied(Exception):
    """Nothing of a request is allowed: this is the answer."""

    def __init__(self, answer: Fields) -> None:
        self.answer = answer


def check_some(key: ApiKey, message: Any, rights: Rights, image: MetadataImage) -> None:
    """WhollyDenied, or KafkaError of the whole request, if the controller would allow nothing of it."""
    if key in NOT_IN_TABLE:
        return
    pieces = PIECEWISE.get(key)
    if pieces is None:
        check_cluster(key, rights)
        return
    allowed, refused = pieces.allow(message, rights, image)
    if refused and not pieces_of(allowed):
        raise WhollyDenied({pieces.rows: list(refused)})


def pieces_of(message: Any) -> Sequence[Any]:
    """The things that a request names, of which each is decided for itself."""
    for name in ("resources", "topics", "topic_names"):
        if (found := field(message, name, None)) is not None:
            return cast(Sequence[Any], found)
    raise AssertionError(f"{message} is not decided piece by piece")


def _refuse(need: Need, message: str | None = None) -> Fields:
    return {"error_code": need.denied, "error_message": message}


def _doubled(names: Sequence[Any]) -> set[Any]:
    """What is named twice is refused for that, by the controller, whoever asks."""
    return {name for name, count in Counter(names).items() if count > 1}


def _create_topics(message: Any, rights: Rights, image: MetadataImage) -> Allowed:
    passed = _doubled([topic.name for topic in message.topics]) | {CLUSTER_METADATA_TOPIC}
    left, refused = [], []
    for topic in message.topics:
        name = topic.name
        if name in passed or _may_create(name, rights):
            left.append(topic)
        else:
            why = _refuse(needs.CREATE_TOPIC, "Authorization failed.")
            refused.append({"name": name, "topic_id": ZERO_UUID, **why})
    return Allowed(replace(message, topics=tuple(left)), refused)


def _may_create(name: str, rights: Rights) -> bool:
    """Brokers make the audit and the event log. Somebody else's would be kept for as long as he likes."""
    need = needs.besides(AclOperation.CREATE, name)
    return needs.CREATE_TOPIC.met(rights, name) and (need is None or need.met(rights))


def _hide_settings(rows: list[Fields], rights: Rights, random: Random) -> list[Fields]:
    return [
        row
        if row["error_code"] or needs.DESCRIBE_TOPIC_CONFIGS.sees(rights, row["name"])
        else {
            **row,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": (),
            "topic_config_error_code": needs.DESCRIBE_TOPIC_CONFIGS.denied,
        }
        for row in rows
    ]


def _delete_topics(message: Any, rights: Rights, image: MetadataImage) -> Allowed:
    of_all = rights.sees(AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)
    is_by_name_only = field(message, "topics", None) is None  # up to version 5
    topics = message.topic_names if is_by_name_only else message.topics
    keys = [(t, None) if is_by_name_only else (t.name, t.topic_id) for t in topics]
    doubled = _doubled(keys)
    left, refused = [], []
    for topic, (name, topic_id) in zip(topics, keys, strict=True):
        row = None
        if (name, topic_id) in doubled or (name is not None and topic_id is not None):
            pass  # the controller refuses it for what it is
        elif of_all:
            row = _undeletable_log(name, topic_id, rights, image)
        elif name is not None:
            row = _undeletable_name(name, rights, image)
        else:
            row = _undeletable_id(topic_id or ZERO_UUID, rights, image)
        if row is None:
            left.append(topic)
        else:
            refused.append(row)
    changed = {"topic_names" if is_by_name_only else "topics": tuple(left)}
    return Allowed(replace(message, **changed), refused)


def _undeletable_log(
    name: str | None, topic_id: UUID | None, rights: Rights, image: MetadataImage
) -> Fields | None:
    """Who may delete all topics must not be able to remove what is recorded about him."""
    known = image.topics_by_id.get(topic_id or ZERO_UUID) if name is None else None
    found = name if known is None else known.name
    if found not in UNLISTED_TOPICS or needs.CHANGE_AUDIT.met(rights):
        return None
    return {"name": found, "topic_id": topic_id or ZERO_UUID, **_refuse(needs.DELETE_TOPIC)}


def _undeletable_name(name: str, rights: Rights, image: MetadataImage) -> Fields | None:
    """The refusal, if there is one. Only who may DESCRIBE a topic learns that there is none of that name."""
    if needs.DESCRIBE_TOPIC.met(rights, name) and (
        name not in image.topics or needs.DELETE_TOPIC.met(rights, name)
    ):
        return None
    return {"name": name, "topic_id": ZERO_UUID, **_refuse(needs.DELETE_TOPIC)}


def _undeletable_id(topic_id: UUID, rights: Rights, image: MetadataImage) -> Fields | None:
    """Ids are no secret: one that is not known is said to be unknown. The name of a topic is one."""
    known = image.topics_by_id.get(topic_id)
    if known is None or needs.DELETE_TOPIC.met(rights, known.name):
        return None
    seen = known.name if needs.DESCRIBE_TOPIC.sees(rights, known.name) else None
    return {"name": seen, "topic_id": topic_id, **_refuse(needs.DELETE_TOPIC)}


def _shuffle(rows: list[Fields], rights: Rights, random: Random) -> list[Fields]:
    """The place of an answer must not tell topics that are not there from those that one may not see."""
    return random.sample(rows, len(rows))


def _create_partitions(message: Any, rights: Rights, image: MetadataImage) -> Allowed:
    doubled = _doubled([topic.name for topic in message.topics])
    left, refused = [], []
    for topic in message.topics:
        name = topic.name
        if name in doubled or needs.ALTER_TOPIC.met(rights, name):
            left.append(topic)
        else:
            refused.append({"name": name, **_refuse(needs.ALTER_TOPIC)})
    return Allowed(replace(message, topics=tuple(left)), refused)


_CONFIG_NEEDS: Final[Mapping[int, Need]] = {
    TOPIC_RESOURCE: needs.ALTER_TOPIC_CONFIGS,
    GROUP_RESOURCE: needs.ALTER_GROUP_CONFIGS,
    BROKER_RESOURCE: needs.ALTER_CLUSTER_CONFIGS,
    CLIENT_METRICS_RESOURCE: needs.ALTER_CLUSTER_CONFIGS,
    BROKER_LOGGER_RESOURCE: needs.CLUSTER_ACTION,
}


def _alter_configs(message: Any, rights: Rights, image: MetadataImage) -> Allowed:
    doubled = _doubled([(each.resource_type, each.resource_name) for each in message.resources])
    left, refused = [], []
    for each in message.resources:
        kind, name = each.resource_type, each.resource_name
        need = _CONFIG_NEEDS.get(kind)
        if need is None or (kind, name) in doubled or need.met(rights, name):
            left.append(each)
        else:
            refused.append({"resource_type": kind, "resource_name": name, **_refuse(need)})
    return Allowed(replace(message, resources=tuple(left)), refused)


PIECEWISE: Final[Mapping[ApiKey, PiecewiseNeeds]] = {
    ApiKey.CREATE_TOPICS: PiecewiseNeeds("topics", _create_topics, _hide_settings),
    ApiKey.DELETE_TOPICS: PiecewiseNeeds("responses", _delete_topics, _shuffle),
    ApiKey.CREATE_PARTITIONS: PiecewiseNeeds("results", _create_partitions),
    ApiKey.ALTER_CONFIGS: PiecewiseNeeds("responses", _alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: PiecewiseNeeds("responses", _alter_configs),
}
"""Requests that are decided piece by piece."""
