"""The words of rights, with Kafka's numbers: operations, resources, patterns, permissions.

`ANY` and `MATCH` are for filters only. `UNKNOWN` is what a newer client may have sent.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self


class _Code(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


def resource_kind(resource_type: ResourceType) -> str:
    """As Kafka writes it in the lines of its authorizer: TransactionalId."""
    return "".join(word.capitalize() for word in resource_type.name.split("_"))


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""As a whole literal name: every resource of the type. As a host: every address."""

_O = AclOperation
SUPPORTED: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _O.READ,
        _O.DELETE,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that make sense for each type of resource. Kafka takes ACLs with others, too: they never match."""

IMPLIED_BY: Final[dict[AclOperation, tuple[AclOperation, ...]]] = {
    _O.DESCRIBE: (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.ALTER_CONFIGS,),
}
"""Whoever is allowed one of these is allowed the operation as well. A denial implies nothing."""
