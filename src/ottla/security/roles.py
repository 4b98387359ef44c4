"""Roles: the usual sets of ACLs under a short name, and a decision of the authorizer in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.security.acls import Acl
from ottla.security.authorizer import DEFAULT_ALLOW, SUPER_USER, Authorizer
from ottla.security.needs import besides
from ottla.security.operations import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import EVERYONE, Principal, parse_principal, user
from ottla.security.rights import Rights

_O: Final = AclOperation
_TOPIC, _GROUP, _CLUSTER, _TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


class AclRole(NamedTuple):
    """What somebody shall be able to do. A name that ends with `*` means all names that begin so."""

    produce: Sequence[str] = ()
    consume: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional: Sequence[str] = ()
    observe: bool = False
    admin: bool = False

    def acls(self, principal: Principal, host: str = WILDCARD) -> list[Acl]:
        """Each once, in the order of the role."""
        rights: list[tuple[ResourceType, str, tuple[AclOperation, ...]]] = [
            *((_TOPIC, name, (_O.WRITE, _O.DESCRIBE, _O.CREATE)) for name in self.produce),
            *((_TOPIC, name, (_O.READ, _O.DESCRIBE)) for name in self.consume),
            *((_GROUP, name, (_O.READ,)) for name in self.groups),
            *((_TXN, name, (_O.WRITE, _O.DESCRIBE)) for name in self.transactional),
        ]
        if self.observe:
            rights += [
                (_CLUSTER, CLUSTER_NAME, (_O.DESCRIBE, _O.DESCRIBE_CONFIGS)),
                (_TOPIC, WILDCARD, (_O.DESCRIBE, _O.DESCRIBE_CONFIGS)),
                (_GROUP, WILDCARD, (_O.DESCRIBE,)),
            ]
        if self.admin:
            rights += [(_CLUSTER, CLUSTER_NAME, (_O.ALL,))]
            rights += [(kind, WILDCARD, (_O.ALL,)) for kind in (_TOPIC, _GROUP, _TXN)]
        made = (
            entry(principal, Permission.ALLOW, operation, kind, name, host)
            for kind, name, operations in rights
            for operation in operations
        )
        return list(dict.fromkeys(made))


def entry(
    principal: Principal,
    permission: Permission,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    host: str = WILDCARD,
) -> Acl:
    """One ACL; `orders*` is a prefix, and `*` alone is everything."""
    pattern = PatternType.LITERAL
    if name.endswith(WILDCARD) and name != WILDCARD:
        pattern, name = PatternType.PREFIXED, name.removesuffix(WILDCARD)
    return Acl(kind, pattern, name, str(principal), host, operation, permission)


def principal_named(text: str) -> Principal:
    """`alice` is User:alice. ValueError if it is neither a name nor TYPE:NAME."""
    return parse_principal(text) if ":" in text else user(text)


def acl_text(acl: Acl) -> str:
    """`User:alice allow WRITE topic orders (literal)`"""
    return (
        f"{acl.principal} {acl.permission.name.lower()} {acl.operation.name} {resource_text(acl)}"
    )


def resource_text(acl: Acl) -> str:
    """`topic orders (literal) from 10.0.0.7`"""
    host = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{_resource(acl)}{host}"


def _resource(acl: Acl) -> str:
    if acl.resource_type is _CLUSTER:
        return "cluster"
    kind = acl.resource_type.name.lower().replace("_", " ")
    return f"{kind} {acl.resource_name} ({acl.pattern_type.name.lower()})"


class AclAnswer(NamedTuple):
    allowed: bool
    because: str


def explained(
    authorizer: Authorizer,
    principal: Principal,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> AclAnswer:
    """What a broker decides, and which rule made it: the authorizer's own decision, and what else a request needs."""
    answer = _decided(authorizer, principal, host, operation, kind, name)
    if kind is not _TOPIC:
        return answer
    if not answer.allowed and operation in (_O.CREATE, _O.DELETE):
        for_all = _decided(authorizer, principal, host, operation, _CLUSTER, CLUSTER_NAME)
        if for_all.allowed:
            only = ", which is not enough to delete records alone" if operation is _O.DELETE else ""
            answer = for_all._replace(because=f"{for_all.because}{only}")
    need = besides(operation, name)
    if answer.allowed and need is not None and not need.met(Rights(authorizer, principal, host)):
        also = " or ".join(right.operation.name for right in need.any_of)
        return AclAnswer(
            False,
            f"{name} is the cluster's own and needs {also} on the cluster, too, though {answer.because}",
        )
    return answer


def _decided(
    authorizer: Authorizer,
    principal: Principal,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> AclAnswer:
    result = authorizer.decide(principal, host, operation, kind, name)
    if result.rule == SUPER_USER:
        return AclAnswer(True, f"{principal} is a super user (super.users)")
    if result.rule == DEFAULT_ALLOW:
        return AclAnswer(
            True, "nobody has an ACL for it, and allow.everyone.if.no.acl.found is true"
        )
    if result.acl is not None and result.allowed:
        return AclAnswer(True, f"allowed by  {acl_text(result.acl)}")
    what = "the cluster" if kind is _CLUSTER else f"{kind.name.lower().replace('_', ' ')} {name}"
    covering = [acl for acl in authorizer.acls if acl.resource_type is kind and acl.covers(name)]
    own = (str(principal), str(EVERYONE))
    if result.acl is not None:
        allowing = [
            acl
            for acl in covering
            if acl.principal in own
            and acl.permission is Permission.ALLOW
            and acl.is_about(host, operation)
        ]
        though = f", though allowed by  {acl_text(allowing[0])}; deny wins" if allowing else ""
        return AclAnswer(False, f"denied by  {acl_text(result.acl)}{though}")
    mine = [acl for acl in covering if acl.principal in own]
    if not covering:
        why = f"There is no ACL on {what}."
    elif not mine:
        noun = "ACL" if len(covering) == 1 else f"{len(covering)} ACLs"
        why = f"Of the {noun} on {what} none is for {principal} or User:*."
    else:
        why = f"{principal} has other rights on {what}: {'; '.join(map(acl_text, mine))}."
    return AclAnswer(False, f"nothing allows it. {why}")


def suggestion(operation: AclOperation, kind: ResourceType, name: str) -> str:
    """The options of `ottla acls add` that would allow it."""
    if kind is _TOPIC and operation is _O.WRITE:
        return f"--produce {name}"
    if kind is _TOPIC and operation is _O.READ:
        return f"--consume {name}"
    if kind is _GROUP and operation is _O.READ:
        return f"--group {name}"
    if kind is _TXN and operation is _O.WRITE:
        return f"--transactional {name}"
    where = "--cluster" if kind is _CLUSTER else f"--{_OPTIONS[kind]} {name}"
    return f"--allow {operation.name.lower()} {where}"


_OPTIONS: Final = {_TOPIC: "topic", _GROUP: "group", _TXN: "transactional"}


def denied_in_vain(acls: Iterable[Acl]) -> list[tuple[Acl, Acl]]:
    """(deny, allow) of the same principal, where the first takes away all that the second gives."""
    entries = list(acls)
    found = []
    for allow in entries:
        if allow.permission is not Permission.ALLOW:
            continue
        for deny in entries:
            if (
                deny.permission is Permission.DENY
                and deny.resource_type is allow.resource_type
                and deny.principal in (allow.principal, str(EVERYONE))
                and deny.host in (WILDCARD, allow.host)
                and deny.operation in (_O.ALL, allow.operation)
                and _contains(deny, allow)
            ):
                found.append((deny, allow))
    return found


def _contains(outer: Acl, inner: Acl) -> bool:
    """Whether the pattern of the one covers all that the other covers."""
    if outer.pattern_type is PatternType.PREFIXED:
        return inner.resource_name.startswith(outer.resource_name) and (
            inner.pattern_type is PatternType.PREFIXED or inner.resource_name != WILDCARD
        )
    if outer.resource_name == WILDCARD:
        return True
    return inner.pattern_type is PatternType.LITERAL and inner.resource_name == outer.resource_name
