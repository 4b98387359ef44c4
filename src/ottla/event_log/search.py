"""What an entry is about, for those who look for entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.wire.types import TopicPartition

ROLES = ("broker", "leader", "previous_leader", "controller")
ROLES_OF_SEVERAL = ("brokers", "adding", "removing")


def topic_of(about: str, partition: TopicPartition | None) -> str | None:
    if partition is not None:
        return partition.topic
    kind, _, name = about.partition(":")
    return name if kind == "topic" else None


def concerns(broker: int, kind: str, node: int, about: str, fields: Mapping[str, Any]) -> bool:
    """Whether an entry of this kind, written by this node, is about this broker in whatever role."""
    return (
        about == f"broker:{broker}"
        or any(fields.get(role) == broker for role in ROLES)
        or any(
            broker in ids
            for role in ROLES_OF_SEVERAL
            if isinstance(ids := fields.get(role), list | tuple)
        )
        or (kind == "truncation" and node == broker)
    )
