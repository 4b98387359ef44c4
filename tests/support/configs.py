"""Settings of topics and brokers that a test changes while the cluster runs."""

from __future__ import annotations

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.cluster import ProcessCluster

TOPIC, BROKER = 2, 4
"""Kafka's numbers of the kinds of resources."""


def alter(cluster: ProcessCluster, kind: int, resource: str, **settings: str | None) -> None:
    """Settings are given with `_` for `.`; None takes one back."""
    changes = [
        {
            "name": name.replace("_", "."),
            "config_operation": 1 if value is None else 0,
            "value": value,
        }
        for name, value in settings.items()
    ]
    row = {"resource_type": kind, "resource_name": resource, "configs": changes}
    fields = {"resources": [row], "validate_only": False}
    (answer,) = cluster.ask(cluster.up[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
    assert int(answer.error_code) == ErrorCode.NONE, answer.error_message


def described(cluster: ProcessCluster, kind: int, resource: str, name: str) -> str:
    """What a setting is now, as the broker itself says, or any for a topic."""
    node = cluster.nodes[int(resource)] if kind == BROKER else cluster.up[0]
    row = {"resource_type": kind, "resource_name": resource, "configuration_keys": [name]}
    fields = {"resources": [row], "include_synonyms": False, "include_documentation": False}
    (answer,) = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, 4, fields).results
    assert int(answer.error_code) == ErrorCode.NONE, answer.error_message
    # Kafka leaves out what has no value.
    return answer.configs[0].value or "" if answer.configs else ""
