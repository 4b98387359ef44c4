"""The authorizer: decides, from ACLs and super users, whether a principal may do something. One place, for all handlers.

In this order: super users may do everything; a DENY that applies wins; an ALLOW that applies is needed, unless nobody has an ACL
for the resource at all and `allow.everyone.if.no.acl.found` is set.

The index finds the ACLs of a resource by its name, by `*`, and by each beginning of the name that has the length of some prefix. So a
decision does not depend on the number of ACLs. A test compares it with a loop over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.security.acls import Acl, normal_host
from ottla.security.operations import (
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import EVERYONE, Principal

SUPER_USER: Final = "SuperUser"
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"
NOT_LOADED: Final = "AclsNotLoaded"
_EVERYONE: Final = str(EVERYONE)
SOME_NAME: Final = "hardcode"
"""Kafka asks about this name, too."""


class AuthorizationResult(NamedTuple):
    allowed: bool
    rule: str
    """Kafka's name of the rule that decided; with `acl`, it was that ACL."""
    acl: Acl | None = None


_SUPER_USER: Final = AuthorizationResult(True, SUPER_USER)
_DEFAULT_DENY: Final = AuthorizationResult(False, DEFAULT_DENY)
_Entries: TypeAlias = dict[str, list[Acl]]
"""The ACLs of one pattern, by principal."""


Question: TypeAlias = tuple[AclOperation, ResourceType, str]
"""What somebody wants to do with the resource of this name."""


class Via(NamedTuple):
    """How a client came."""

    listener: str | None = None
    mechanism: str | None = None
    """By which it logged in; `SSL`: a certificate says who it is."""


UNKNOWN: Final = Via()


class Audit(Protocol):
    """Hears of decisions."""

    def wants_allowed(self) -> bool:
        """Whether it wants to hear of what is allowed, too. Not asked for each decision (see `Authorizer.generation`)."""

    def decided(
        self,
        principal: Principal,
        host: str,
        api_key: int,
        question: Question,
        verdict: AuthorizationResult,
        via: Via,
    ) -> None: ...


class Authorizer:
    def __init__(
        self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self.is_loaded = True
        """False while a node does not know the ACLs yet: then only super users may do anything."""
        self._is_lost = False
        self.generation = 0
        """Grows with each change of the ACLs: what was decided before counts no longer."""
        self.audit: Audit | None = None
        self.acls: dict[Acl, None] = {}
        self._literal: dict[tuple[ResourceType, str], _Entries] = {}
        """By name. Those of all resources are under `*`."""
        self._prefixed: dict[tuple[ResourceType, str], _Entries] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """How many prefixes of each length there are."""
        self._of_principal: dict[tuple[ResourceType, str], dict[Acl, None]] = {}

    # Changes

    def replace_all(self, acls: Iterable[Acl]) -> None:
        """Forget all ACLs, and take these."""
        self.acls.clear()
        self._literal.clear()
        self._prefixed.clear()
        self._prefix_lengths.clear()
        self._of_principal.clear()
        self.change((), acls)

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """One change of the metadata. Nobody is judged by half of it."""
        for acl in removed:
            if acl in self.acls:
                del self.acls[acl]
                self._remove(acl)
        for acl in added:
            if acl not in self.acls:
                self.acls[acl] = None
                self._add(acl)
        self.generation += 1

    def loaded(self) -> None:
        """From now on the ACLs decide."""
        self.is_loaded = not self._is_lost
        self.ask_again()

    def lost(self) -> None:
        """The ACLs are not known any more, and never again."""
        self.is_loaded, self._is_lost = False, True
        self.ask_again()

    def ask_again(self) -> None:
        """Nobody may use what was decided before."""
        self.generation += 1

    def _add(self, acl: Acl) -> None:
        key = acl.resource_type, acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            if key not in self._prefixed:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.resource_name)] = lengths.get(len(acl.resource_name), 0) + 1
            entries = self._prefixed.setdefault(key, {})
        else:
            entries = self._literal.setdefault(key, {})
        entries.setdefault(acl.principal, []).append(acl)
        self._of_principal.setdefault((acl.resource_type, acl.principal), {})[acl] = None

    def _remove(self, acl: Acl) -> None:
        own = acl.resource_type, acl.principal
        del self._of_principal[own][acl]
        if not self._of_principal[own]:
            del self._of_principal[own]
        key = acl.resource_type, acl.resource_name
        is_prefixed = acl.pattern_type is PatternType.PREFIXED
        patterns = self._prefixed if is_prefixed else self._literal
        entries = patterns[key]
        entries[acl.principal].remove(acl)
        if not entries[acl.principal]:
            del entries[acl.principal]
        if entries:
            return
        del patterns[key]
        if is_prefixed:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]

    # Decisions

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AuthorizationResult:
        who = str(principal)
        if who in self.super_users:
            return _SUPER_USER
        if not self.is_loaded:
            return AuthorizationResult(False, NOT_LOADED)
        host = normal_host(host)
        allowed_by: Acl | None = None
        has_acls = False
        for entries in self._covering(resource_type, name):
            has_acls = True
            for acls in (entries.get(who, ()), entries.get(_EVERYONE, ())):
                for acl in acls:
                    if not acl.is_about(host, operation):
                        continue
                    if acl.permission is Permission.DENY:
                        return AuthorizationResult(False, "MatchingAcl", acl)
                    if allowed_by is None and acl.allows:
                        allowed_by = acl
        if allowed_by is not None:
            return AuthorizationResult(True, "MatchingAcl", allowed_by)
        if not has_acls and self.allow_everyone_if_no_acl_found:
            return AuthorizationResult(True, DEFAULT_ALLOW)
        return _DEFAULT_DENY

    def may_by_type(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether it may do this with some resource of the type, whether that exists or not (Kafka's
        authorizeByResourceType). Operations that others imply do not count."""
        if self.decide(principal, host, operation, resource_type, SOME_NAME).allowed:
            return True  # a super user, or no ACL is needed
        if not self.is_loaded:
            return False
        host = normal_host(host)
        denied: set[tuple[PatternType, str]] = set()
        granted: list[Acl] = []
        for who in (str(principal), _EVERYONE):
            for acl in self._of_principal.get((resource_type, who), ()):
                if acl.operation not in (operation, AclOperation.ALL) or not acl.is_from(host):
                    continue
                if acl.permission is Permission.DENY:
                    is_prefixed = acl.pattern_type is PatternType.PREFIXED
                    pattern = PatternType.PREFIXED if is_prefixed else PatternType.LITERAL
                    denied.add((pattern, acl.resource_name))
                elif acl.allows:
                    granted.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(
            (acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD)
            or not _is_denied(acl, denied)
            for acl in granted
        )

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[_Entries]:
        """The ACLs whose pattern covers this name, pattern by pattern."""
        literal, prefixed = self._literal, self._prefixed
        for spelled in (name, WILDCARD):
            entries = literal.get((resource_type, spelled))
            if entries is not None:
                yield entries
            if name == WILDCARD:
                break
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                entries = prefixed.get((resource_type, name[:length]))
                if entries is not None:
                    yield entries


def _is_denied(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether nothing is left of what this ACL allows."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
