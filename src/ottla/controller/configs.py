"""Dynamic settings of topics and brokers.

A change of `min.insync.replicas` or `unclean.leader.election.enable` can change which replicas may lead. The
affected partitions are therefore evaluated again in the same batch. An ELR that a lower minimum makes obsolete is
cleared at once (M8). A partition that waits for an in-sync replica gets a leader as soon as an unclean election is
allowed (P30). Kafka clears the ELR of the whole topic instead (ClearElr). Keeping the valid part is as safe, and
a partition that is offline at that moment keeps its candidates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.config.cordoning import CORDONED
from ottla.controller.draft import UNCLEAN_ELECTION, Draft
from ottla.controller.topics import check_name
from ottla.metadata.image import TopicImage
from ottla.metadata.records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError

MIN_ISR = "min.insync.replicas"

LIST_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "log.cleanup.policy",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "metrics",
        "match",
        CORDONED,
    }
)
"""List settings: APPEND and SUBTRACT apply to them."""
_TOPICS_NAME = {"log.cleanup.policy": "cleanup.policy"}
"""Of a node's list setting that is the default of a topic's."""


_WITHOUT_SETTINGS = {
    BROKER_LOGGER_RESOURCE: "Log levels are changed by a request to that broker that names no other resource.",
}

_BROKER_ID = re.compile(r"[0-9]{1,10}")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


class ConfigChanges(NamedTuple):
    """The changes that one request makes to one resource."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    is_forwarded: bool = True
    """By a broker, which has checked what only it can check."""


def incremental_alter(draft: Draft, requests: Sequence[ConfigChanges]) -> dict[str, Any]:
    return _alter(draft, requests, replace_all=False)


def alter(draft: Draft, requests: Sequence[ConfigChanges]) -> dict[str, Any]:
    """AlterConfigs, the older API: a setting that the request does not name is deleted."""
    return _alter(draft, requests, replace_all=True)


def _alter(draft: Draft, requests: Sequence[ConfigChanges], *, replace_all: bool) -> dict[str, Any]:
    """Together, since each addition costs as much as there are settings, and no resource has to do with another's settings."""
    counts = Counter((request.resource_type, request.resource_name) for request in requests)
    responses = []
    records: list[MetadataRecord] = []
    accepted: list[ConfigChanges] = []
    for request in requests:
        error, message = ErrorCode.NONE, None
        try:
            if counts[request.resource_type, request.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            records += _records(draft, request, replace_all)
            accepted.append(request)
        except KafkaError as failure:
            error, message = failure.code, failure.message or None
        responses.append(
            {
                "error_code": error,
                "error_message": message,
                "resource_type": request.resource_type,
                "resource_name": request.resource_name,
            }
        )
        draft.limit(len(records))
    draft.add(records)
    _reevaluate_partitions(draft, accepted)
    draft.limit()
    return {"responses": responses}


def _records(draft: Draft, request: ConfigChanges, replace_all: bool) -> list[MetadataRecord]:
    _check_name(request)
    kind, resource = request.resource_type, request.resource_name
    current = draft.image.config(kind, resource)
    if len({change.name for change in request.changes}) != len(request.changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    new_values = {change.name: _new_value(draft, change, current) for change in request.changes}
    if kind == BROKER_RESOURCE:
        _check_exists(draft, request)
    if replace_all:
        new_values |= {name: None for name in current if name not in new_values}
    after = {**current, **new_values}
    _validate(draft, request, new_values, {n: v for n, v in after.items() if v is not None})
    # What is wrong with a topic's settings is said also where there is no such topic, as in Kafka.
    _check_exists(draft, request)
    return [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for name, value in new_values.items()
        # A broker reads a key store anew when its setting is set again, to the same path (KAFKA-14136).
        if value != current.get(name) or kind == BROKER_RESOURCE
    ]


def _check_name(request: ConfigChanges) -> None:
    kind, resource = request.resource_type, request.resource_name
    if kind == TOPIC_RESOURCE:
        if not resource:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(resource)
    elif kind == BROKER_RESOURCE:
        if resource and not _BROKER_ID.fullmatch(resource):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{resource}' is no broker id")
    elif kind == GROUP_RESOURCE:
        if not resource:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif kind == CLIENT_METRICS_RESOURCE:
        if not resource:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            _WITHOUT_SETTINGS.get(kind, f"Unsupported resource type {kind}"),
        )


def _check_exists(draft: Draft, request: ConfigChanges) -> None:
    kind, resource = request.resource_type, request.resource_name
    if kind == TOPIC_RESOURCE and resource not in draft.image.topics:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource}' does not exist."
        )
    if kind == BROKER_RESOURCE and resource and int(resource) not in draft.image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {resource} found.")


def _new_value(draft: Draft, change: ConfigChange, current: Mapping[str, str]) -> str | None:
    if change.operation == Operation.DELETE:
        return None
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if change.operation == Operation.SET:
        return change.value
    if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation}")
    if change.name not in LIST_SETTINGS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(change.operation).name} to key {change.name} because its type is "
            "not LIST.",
        )
    default_of = _TOPICS_NAME.get(change.name, change.name)
    present = current.get(change.name, draft.config.topic_defaults.get(default_of, ""))
    members = [member for member in present.split(",") if member]
    named = change.value.split(",")
    if change.operation == Operation.APPEND:
        members += [member for member in named if member not in members]
    else:
        members = [member for member in members if member not in named]
    return ",".join(members)


def _validate(
    draft: Draft,
    request: ConfigChanges,
    new_values: Mapping[str, str | None],
    after: Mapping[str, str],
) -> None:
    if request.resource_type == TOPIC_RESOURCE:
        draft.config.validate_topic_config(after)
        return
    if request.resource_type == GROUP_RESOURCE:
        draft.config.validate_group_config(after)
        return
    if request.resource_type == CLIENT_METRICS_RESOURCE:
        draft.config.validate_client_metrics_config(after)
        return
    draft.config.validate_broker_config(after)
    if MIN_ISR in new_values and (request.resource_name or new_values[MIN_ISR] is None):
        # Controllers and leaders must use the same minimum. The ELR would be wrong otherwise.
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR} is set for a topic or for the whole cluster, where it cannot be removed.",
        )
    if CORDONED in new_values:
        _check_cordoned(draft, request, new_values[CORDONED])


def _check_cordoned(draft: Draft, request: ConfigChanges, value: str | None) -> None:
    """Its paths mean something to one broker only. Without that broker, as in Kafka, entries can only be removed."""
    if value is None:
        return
    if not request.resource_name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            + CORDONED,
        )
    present = draft.image.config(BROKER_RESOURCE, request.resource_name).get(CORDONED, "")
    if not request.is_forwarded and not _members(value) <= _members(present):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED} via controllers, the new value must be a subset of the current"
            " configuration value.",
        )


def _members(text: str) -> set[str]:
    return {member.strip() for member in text.split(",") if member.strip()}


def _reevaluate_partitions(draft: Draft, requests: Sequence[ConfigChanges]) -> None:
    """Of the topics whose rules of elections these may have changed: of all of them, if it is the cluster's."""
    topics: dict[str, TopicImage] = {}
    for request in requests:
        if not any(change.name in (MIN_ISR, UNCLEAN_ELECTION) for change in request.changes):
            continue
        if request.resource_type == BROKER_RESOURCE and not request.resource_name:
            topics = dict(draft.image.topics)
            break
        if request.resource_type == TOPIC_RESOURCE:
            topics[request.resource_name] = draft.image.topics[request.resource_name]
    changes = [
        draft.change(topic, index)
        for topic in topics.values()
        for index in range(len(topic.partitions))
    ]
    draft.add([record for record in changes if record is not None])
