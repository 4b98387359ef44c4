"""Two answers to one request, compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

NOT_COMPARED: Final = frozenset(
    {
        "throttle_time",  # depends on the machine
        "error_message",  # words of our own
        "documentation",  # the same
        "host",
        "port",
        "finalized_features_epoch",  # how long the metadata log is
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "total_bytes",
        "usable_bytes",
        "log_dir",
    }
)

NOT_COMPARED_AT: Final = frozenset(
    {
        "DESCRIBE_QUORUM topics.partitions.high_watermark",  # each writes metadata of its own
        "DESCRIBE_QUORUM topics.partitions.leader_epoch",  # our node led the directory before Kafka did
        "DESCRIBE_QUORUM topics.partitions.observers[]",  # those of other conversations
        # At a controller each reads its own log.
        *(
            f"FETCH responses.partitions.{name}"
            for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records")
        ),
        "DESCRIBE_LOG_DIRS results.topics.partitions.partition_size",  # internal topics: records of their own
    }
)


def compared(api: str, ottla: Any, kafka: Any) -> Iterator[Difference]:
    """The answers to a request of this API."""
    if api == "DESCRIBE_CONFIGS":
        ottla, kafka = _by_kind(ottla), _by_kind(kafka)
    for found in differences(ottla, kafka):
        if f"{api} {found.path}" not in NOT_COMPARED_AT:
            yield found


def _by_kind(answer: Any) -> Any:
    """With names of their own for the settings of brokers: there are many that only one side has."""
    if not isinstance(answer, dict):
        return answer
    results = [
        {("broker_configs" if name == "configs" else name): value for name, value in each.items()}
        if each["resource_type"] == BROKER
        else each
        for each in answer["results"]
    ]
    return {**answer, "results": results}


BROKER: Final = 4
"""Kafka's number of a kind of resource."""


class Difference(NamedTuple):
    path: str
    """`topics.partitions.error_code`: without the places in arrays."""
    ottla: Any
    kafka: Any

    def __str__(self) -> str:
        return f"{self.path or 'the whole answer'}: ottla {self.ottla!r:.120}, Kafka {self.kafka!r:.120}"


ABSENT: Final = "(not there)"


def differences(ottla: Any, kafka: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(ottla, dict) and isinstance(kafka, dict):
        for name in ottla.keys() | kafka.keys():
            if name not in NOT_COMPARED:
                inner = f"{path}.{name}" if path else name
                yield from differences(ottla.get(name, ABSENT), kafka.get(name, ABSENT), inner)
    elif isinstance(ottla, list) and isinstance(kafka, list):
        yield from _of_lists(ottla, kafka, path)
    elif ottla != kafka:
        yield Difference(path, ottla, kafka)


def _of_lists(ottla: list[Any], kafka: list[Any], path: str) -> Iterator[Difference]:
    """In whatever order: most of Kafka's are those of a hash table. Structs are compared with their namesakes."""
    ours, theirs = _by_name(ottla), _by_name(kafka)
    for name in sorted(ours.keys() | theirs.keys(), key=repr):
        mine, its = ours.get(name, []), theirs.get(name, [])
        if len(mine) != len(its):
            yield Difference(f"{path}[]", f"{name} x {len(mine)}", f"{name} x {len(its)}")
            continue
        for one, other in zip(mine, its, strict=True):
            yield from differences(one, other, path)


_NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "partition",
    "partition_index",
    "index",
    "partition_id",
    "api_key",
    "group_id",
    "resource_name",
    "resource_type",
    "user",
    "transactional_id",
    "node_id",
    "broker_id",
    "key",
    "feature",
)


def _name(struct: dict[str, Any]) -> tuple[Any, ...]:
    """A topic's id only where it has no name."""
    names = [name for name in _NAMES if name in struct]
    if any(struct.get(name) for name in ("name", "topic", "topic_name")):
        names = [name for name in names if name != "topic_id"]
    return tuple(repr(struct[name]) for name in names)


def _by_name(values: list[Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for value in sorted(values, key=repr):
        found.setdefault(_name(value) if isinstance(value, dict) else repr(value), []).append(value)
    return found
