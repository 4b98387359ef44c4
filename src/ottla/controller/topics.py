"""Topics: creating, deleting and enlarging them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from ottla.config import TOPIC_SETTINGS
from ottla.controller import placement
from ottla.controller.draft import RECORDS_PER_COMMAND_MAX, Draft
from ottla.controller.elections import PartitionAssignment
from ottla.controller.placement import PlaceableBroker, Replicas
from ottla.metadata.image import TopicImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    RECOVERED,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, UNLISTED_TOPICS
from ottla.wire.repeated import Repeated
from ottla.wire.types import ZERO_UUID, uuid_to_text

NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

# The source of a setting's value, in Kafka's numbers.
TOPIC_CONFIG, CLUSTER_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 3, 4, 5


Permit: TypeAlias = Callable[[int], None]
"""Called before a topic is changed, with the number of partitions to create or delete. Raises
THROTTLING_QUOTA_EXCEEDED for this topic if the client is over its quota (KIP-599)."""


def unlimited(partitions: int) -> None:
    """No quota."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`partitions` and `factor` -1 mean the cluster's default; with an assignment both must be -1."""

    name: str
    partitions: int = -1
    factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """`count` is the new total; `assignments` are the replicas of the additional partitions."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


def create_topics(
    draft: Draft, requests: Sequence[NewTopic], random: Random, permit: Permit = unlimited
) -> dict[str, Any]:
    """Each topic succeeds or fails independently; those that succeed are created in one batch. They are added together, since
    each addition costs as much as there are topics."""
    doubled = {name for name, count in Counter(r.name for r in requests).items() if count > 1}
    _limit_partitions(sum(_count_of(draft, request) for request in requests))
    draft.limit(sum(1 + len(each.configs) + _count_of(draft, each) for each in requests))
    rows: dict[str, dict[str, Any]] = {}
    records: list[MetadataRecord] = []
    brokers = draft.placeable()
    settings = _Effective(draft)
    taken = {_unified(name): name for name in draft.image.topics}
    # Where a topic is placed must not depend on when the cluster creates its event log.
    placed = sum(
        len(topic.partitions)
        for name, topic in draft.image.topics.items()
        if name not in UNLISTED_TOPICS
    )
    for request in requests:
        try:
            if request.name in doubled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            check_name(request.name)
            _check_free(draft, request.name, taken)
            configs = _configs(draft, request)
            assigned = _place_new_topic(draft, request, brokers, placed)
            permit(len(assigned))
            topic_id = _new_topic_id(draft, random)
            records += _new_topic(draft, request.name, topic_id, configs, assigned)
            taken[_unified(request.name)] = request.name
            placed += len(assigned)
            rows[request.name] = {
                "name": request.name,
                "topic_id": topic_id,
                "error_code": 0,
                "error_message": None,
                "topic_config_error_code": 0,
                "num_partitions": len(assigned),
                "replication_factor": len(assigned[0]),
                "configs": settings.of(configs),
            }
        except KafkaError as error:
            rows[request.name] = {
                "name": request.name,
                "topic_id": ZERO_UUID,
                "error_code": error.code,
                "error_message": error.message or None,
                "configs": (),
            }
    draft.add(records)
    return {"topics": list(rows.values())}


def _new_topic(
    draft: Draft,
    name: str,
    topic_id: UUID,
    configs: Mapping[str, str],
    assigned: Sequence[Replicas],
) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ),
        *_partition_records(draft, topic_id, 0, assigned),
    ]


def check_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless the name is a valid directory name on every system."""
    why = ""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    if why:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.",
        )


def _unified(name: str) -> str:
    """Names that differ only in dots and underscores would collide in metric names."""
    return name.replace(".", "_")


def _check_free(draft: Draft, name: str, taken: Mapping[str, str]) -> None:
    if name in draft.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(_unified(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _configs(draft: Draft, request: NewTopic) -> dict[str, str]:
    missing = [name for name, value in request.configs if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    configs = {name: value for name, value in request.configs if value is not None}
    draft.config.validate_topic_config(configs)
    return configs


def _place_new_topic(
    draft: Draft, request: NewTopic, brokers: Sequence[PlaceableBroker], placed: int
) -> list[Replicas]:
    """`placed`: the number of partitions that are there already."""
    if request.assignments:
        if request.factor != -1 or request.partitions != -1:
            field = "replication factor" if request.factor != -1 else "numPartitions"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
        assignment = dict(request.assignments)
        if len(assignment) != len(request.assignments):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Found multiple manual partition assignments for one partition",
            )
        return placement.check_assignment(assignment, brokers)
    partitions = draft.config.num_partitions if request.partitions == -1 else request.partitions
    factor = draft.config.replication_factor if request.factor == -1 else request.factor
    if factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return placement.place(brokers, partitions, factor, placed)


def _count_of(draft: Draft, request: NewTopic) -> int:
    if request.assignments:
        return len(request.assignments)
    return draft.config.num_partitions if request.partitions == -1 else max(request.partitions, 0)


def _limit_partitions(count: int) -> None:
    if count > RECORDS_PER_COMMAND_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _new_topic_id(draft: Draft, random: Random) -> UUID:
    """A random id, never a reserved one, and never one whose text begins with a dash, which command lines
    would read as an option."""
    while True:
        topic_id = UUID(int=random.getrandbits(128), version=4)
        if topic_id not in draft.image.topics_by_id and not uuid_to_text(topic_id).startswith("-"):
            return topic_id


def _partition_records(
    draft: Draft, topic_id: UUID, first: int, assigned: Sequence[Replicas]
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for index, replicas in enumerate(assigned, first):
        isr = tuple(replica for replica in replicas if draft.image.is_alive(replica))
        assert isr, "placement puts a live broker into every partition"
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_recovery_state=RECOVERED,
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(draft.directory_for_new_replica(replica) for replica in replicas),
            )
        )
    return records


class _Effective:
    """Every setting of a new topic, and where its value comes from. Topics without settings of their own have the same."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._everywhere = draft.image.config(BROKER_RESOURCE, "")
        self._usual: Repeated | None = None

    def of(self, configs: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        if configs:
            return self._rows(configs)
        if self._usual is None:
            self._usual = Repeated(self._rows(configs))
        return self._usual

    def _rows(self, configs: Mapping[str, str]) -> list[dict[str, Any]]:
        everywhere, config = self._everywhere, self._draft.config
        rows = []
        for name, setting in sorted(TOPIC_SETTINGS.items()):
            if name in configs:
                value, source = configs[name], TOPIC_CONFIG
            elif setting.is_internal:
                continue
            elif setting.server_name in everywhere:
                value, source = everywhere[setting.server_name], CLUSTER_CONFIG
            else:
                value = config.topic_defaults.get(name, setting.default)
                given = name in config.topic_defaults_given
                source = STATIC_BROKER_CONFIG if given else DEFAULT_CONFIG
            row = {"name": name, "value": value, "read_only": False, "config_source": source}
            rows.append({**row, "is_sensitive": False})
        return rows


def delete_topics(
    draft: Draft, names: Sequence[str], ids: Sequence[UUID], permit: Permit = unlimited
) -> dict[str, Any]:
    wanted: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in names]
    wanted += [(None, topic_id) for topic_id in ids]
    doubled = {key for key, count in Counter(wanted).items() if count > 1}
    draft.limit(len(wanted))
    rows: list[dict[str, Any]] = []
    gone: dict[UUID, None] = {}
    for key in dict.fromkeys(wanted):
        name, topic_id = key
        row: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": 0}
        try:
            if key in doubled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            topic = _to_delete(draft, name, topic_id, gone, permit)
            gone[topic.id] = None
            row["name"], row["topic_id"] = topic.name, topic.id
        except KafkaError as error:
            row |= {"error_code": error.code, "error_message": error.message or None}
        rows.append(row)
    draft.add([RemoveTopicRecord(topic_id=topic_id) for topic_id in gone])
    return {"responses": rows}


def _to_delete(
    draft: Draft, name: str | None, topic_id: UUID, gone: Container[UUID], permit: Permit
) -> TopicImage:
    """`gone`: what the same request has deleted already, by name or by id."""
    if not draft.config.delete_topics:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None:
        topic = draft.image.topics.get(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic = draft.image.topics_by_id.get(topic_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or topic.id in gone:
        raise KafkaError(unknown, "There is no such topic.")
    permit(len(topic.partitions))
    return topic


def create_partitions(
    draft: Draft, requests: Sequence[MorePartitions], permit: Permit = unlimited
) -> dict[str, Any]:
    doubled = {name for name, count in Counter(r.name for r in requests).items() if count > 1}
    draft.limit(len(requests))
    rows: dict[str, dict[str, Any]] = {}
    records: list[MetadataRecord] = []
    brokers = draft.placeable()
    for request in requests:
        row: dict[str, Any] = {"name": request.name, "error_code": 0, "error_message": None}
        try:
            if request.name in doubled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _additional(draft, request, brokers, permit)
        except KafkaError as error:
            row |= {"error_code": error.code, "error_message": error.message or None}
        rows[request.name] = row
        draft.limit(len(records))
    draft.add(records)
    return {"results": list(rows.values())}


def _additional(
    draft: Draft, request: MorePartitions, brokers: Sequence[PlaceableBroker], permit: Permit
) -> list[MetadataRecord]:
    topic = draft.image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
    present = len(topic.partitions)
    if request.count <= present:
        why = f"Topic already has {present} partition(s)."
        if request.count < present:
            why = (
                f"The topic {topic.name} currently has {present} partition(s); {request.count} "
                "would not be an increase."
            )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, why)
    additional = request.count - present
    factor = len(PartitionAssignment.of(topic.partitions[0]).target)  # it may be on its way
    if request.assignments is None:
        _limit_partitions(additional)
        start = placement.start_after(brokers, topic.partitions[0].replicas[0])
        assigned = placement.place(brokers, additional, factor, start + present)
    elif len(request.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified.",
        )
    else:
        given = dict(enumerate(request.assignments, present))
        assigned = placement.check_assignment(given, brokers, present, factor)
    permit(additional)
    return _partition_records(draft, topic.id, present, assigned)
