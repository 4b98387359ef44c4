"""One ACL, what it applies to, and filters of ACLs. Names are compared as they are; `*` is special only as a whole literal name."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple

from ottla.security.operations import (
    IMPLIED_BY,
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)


class Acl(NamedTuple):
    """Kafka's AclBinding: a pattern of resources, and who may or may not do what from where."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    """As text: ACLs of a type or spelling that nobody has are kept, and never match."""
    host: str
    operation: AclOperation
    permission: Permission

    @property
    def allows(self) -> bool:
        """Whether somebody is allowed something by it. Of a word that this version does not know, nobody can say what was meant: such
        an ACL allows nothing. It counts as one that the resource has, and it denies what its name says."""
        return self.permission is Permission.ALLOW and self.pattern_type in (
            PatternType.LITERAL,
            PatternType.PREFIXED,
        )

    def covers(self, name: str) -> bool:
        """Whether the pattern matches the resource of this name (of this ACL's type)."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def as_json(self) -> dict[str, str]:
        """With names, for programs."""
        return {
            "principal": self.principal,
            "permission": self.permission.name,
            "operation": self.operation.name,
            "resource_type": self.resource_type.name,
            "pattern_type": self.pattern_type.name,
            "name": self.resource_name,
            "host": self.host,
        }

    def is_from(self, host: str) -> bool:
        """Whether it says something about this host, which is spelled as `normal_host` gives it."""
        return self.host == WILDCARD or normal_host(self.host) == host

    def is_about(self, host: str, operation: AclOperation) -> bool:
        """Whether it says something about this operation from this host (see `is_from`)."""
        if not self.is_from(host):
            return False
        if self.operation in (AclOperation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLIED_BY.get(
            operation, ()
        )


class AclFilter(NamedTuple):
    """Kafka's AclBindingFilter. None and ANY take every value."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it has a word that this version does not know. Nobody can say what it would take."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    def takes(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._takes_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _takes_pattern(self, acl: Acl) -> bool:
        if (
            self.pattern_type is PatternType.MATCH
        ):  # all that would apply to the resource of this name
            return self.resource_name is None or acl.covers(self.resource_name)
        return self.pattern_type in (
            PatternType.ANY,
            acl.pattern_type,
        ) and self.resource_name in (None, acl.resource_name)


def is_host(text: str) -> bool:
    """Whether an ACL can have this host: every address, or one. Networks and names would never match."""
    if text == WILDCARD:
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def normal_host(host: str) -> str:
    """One spelling for each address: Java writes IPv6 addresses without `::`, and an IPv4 address may come mapped to IPv6. A
    link-local address counts without the interface by which it came (`fe80::1%eth0`)."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
