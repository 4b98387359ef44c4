"""What the authorizer decided, and who logged in: lines in the node's log, and events for the audit's topic.

The lines have Kafka's logger and Kafka's text, so that its readers work here. A denial is told at INFO, what is allowed at DEBUG.
A client that is denied, or whose password is wrong, tries again at once. So what was told less than ten seconds ago is
counted, and told once more with the count when the ten seconds are over.

One request may name thousands of things that its sender may not touch. A line for each would stop the node and drive
everything else out of its log. So of one principal a hundred denials are told in ten seconds; the others are counted. It is the same
with failed logins, which each may name another user: of one network a hundred are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ottla.events import Events
from ottla.events.audit import Audited
from ottla.security.acls import Acl
from ottla.security.authorizer import AuthorizationResult, Question, Via
from ottla.security.failures import network_of
from ottla.security.operations import resource_kind
from ottla.security.principals import Principal, user
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
audit = logging.getLogger(AUDIT_LOGGER)
"""Its lines are Kafka's, not a text with fields as all others are."""

COUNTED_S: Final = 10.0
LINES_MAX: Final = 1000
"""So many different lines are counted at a time."""
DENIALS_MAX: Final = 100
"""So many different denials of one principal are told within those ten seconds, and failed logins of one network."""
REPEATS_MAX: Final = 1000
"""So many that were told already are counted one by one. Each costs what a new one does, but for the line."""
LOGIN_FAILURE: Final = "login_failure"
NOT_TOLD: Final = "not told one by one"
NAME_MAX: Final = 249
"""Of a longer name only the beginning is told."""
BY_TOKEN: Final = "delegation token"
"""Why somebody was let in who knew no password."""


T = TypeVar("T", bound=Hashable)
CallLater: TypeAlias = Callable[[float, Callable[[], None]], Any]


@dataclass(slots=True)
class _Counted:
    until: float
    repeated: int = 0


class Repeats(Generic[T]):
    """Tells each thing at once, and its repeats as a number, ten seconds later."""

    def __init__(
        self, now: Callable[[], float], call_later: CallLater, tell: Callable[[T, int], None]
    ) -> None:
        """`tell` gets a thing and the number of its repeats: 0 the first time."""
        self._now = now
        self._call_later = call_later
        self._tell = tell
        self._counted: dict[T, _Counted] = {}
        """The oldest first."""
        self._is_timed = False

    def happened(self, what: T) -> bool:
        """Whether it was told at once."""
        now = self._now()
        self._tell_repeated(now)
        counted = self._counted.get(what)
        if counted is not None:
            counted.repeated += 1
            return False
        self._tell(what, 0)
        if len(self._counted) >= LINES_MAX:
            self._end(next(iter(self._counted)))
        self._counted[what] = _Counted(now + COUNTED_S)
        self._set_timer(COUNTED_S)
        return True

    def _set_timer(self, delay: float) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._is_timed = False
        now = self._now()
        self._tell_repeated(now)
        for counted in self._counted.values():
            self._set_timer(counted.until - now)
            break

    def _tell_repeated(self, now: float) -> None:
        while self._counted:
            oldest = next(iter(self._counted))
            if self._counted[oldest].until > now:
                return
            self._end(oldest)

    def _end(self, what: T) -> None:
        counted = self._counted.pop(what)
        if counted.repeated:
            self._tell(what, counted.repeated)


@dataclass(slots=True)
class _Denials:
    """Of one principal, within ten seconds; or the failed logins of one network."""

    host: str
    told: int = 0
    repeated: int = 0
    untold: int = 0


class AuditLog:
    def __init__(
        self, now: Callable[[], float], call_later: CallLater, events: Events | None = None
    ) -> None:
        self._events = events or Events()
        self._call_later = call_later
        self._denials: dict[Principal, _Denials] = {}
        self._failures: dict[str, _Denials] = {}
        """By network."""
        self._lines: Repeats[tuple[int, str]] = Repeats(now, call_later, _write)
        self._entries: Repeats[Audited] = Repeats(now, call_later, self._emit)

    def wants_allowed(self) -> bool:
        return audit.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        principal: Principal,
        host: str,
        api_key: int,
        question: Question,
        verdict: AuthorizationResult,
        via: Via,
    ) -> None:
        denials = None if verdict.allowed else self._denials_of(principal, host)
        if denials is not None and (denials.told >= DENIALS_MAX or denials.repeated >= REPEATS_MAX):
            denials.untold += 1
            return
        operation, resource_type, name = question
        question = operation, resource_type, _cut(name)
        level = logging.DEBUG if verdict.allowed else logging.INFO
        is_new = audit.isEnabledFor(level) and self._lines.happened(
            (level, audit_line(principal, host, api_key, question, verdict))
        )
        is_new |= self.tell(
            Audited(
                "allowed" if verdict.allowed else "denial",
                str(principal),
                host,
                *via,
                _api_name(api_key),
                operation.name,
                f"{resource_kind(resource_type)}:{_cut(name)}",
                verdict.allowed,
                _rule(verdict),
            )
        )
        if denials is not None:
            denials.told += is_new
            denials.repeated += not is_new

    def _denials_of(self, principal: Principal, host: str) -> _Denials:
        denials = self._denials.get(principal)
        if denials is None:
            denials = self._denials[principal] = _Denials(host)
            self._call_later(COUNTED_S, lambda: self._tell_untold(principal))
        return denials

    def _tell_untold(self, principal: Principal) -> None:
        denials = self._denials.pop(principal)
        if not denials.untold:
            return
        audit.info(
            "%s",
            _on_one_line(
                f"Principal = {principal} is Denied {denials.untold} more operations within"
                f" {COUNTED_S:g} s, which are not told one by one"
            ),
        )
        if Audited in self._events:
            self._events.emit(
                Audited(
                    "denial",
                    str(principal),
                    denials.host,
                    allowed=False,
                    cause=NOT_TOLD,
                    repeated=denials.untold,
                )
            )

    def logged_in(self, principal: Principal, host: str, via: Via) -> None:
        cause = BY_TOKEN if principal.is_by_token else None
        self.tell(Audited("login", str(principal), host, *via, cause=cause))

    def changed(
        self, principal: Principal, host: str, via: Via, api_key: int, operation: str, resource: str
    ) -> None:
        """Something that this broker changed by itself. What the controller changes, it tells itself."""
        api = APIS[ApiKey(api_key)].name
        change = Audited("change", str(principal), host, *via, api, operation, _cut(resource))
        self.tell(change)

    def login_ended(self, kind: str, claimed: str | None, host: str, via: Via, cause: str) -> None:
        """`kind`: `login_failure` or `session_end`."""
        who = None if claimed is None else str(user(_cut(claimed)))
        event = Audited(kind, who, host, *via, allowed=False, cause=cause)
        if kind != LOGIN_FAILURE:
            self.tell(event)
            return
        network = network_of(host)
        if network not in self._failures and len(self._failures) >= LINES_MAX:
            network = ""  # all others are told of as if they were one
        failures = self._failures.get(network)
        if failures is None:
            failures = self._failures[network] = _Denials(host)
            self._call_later(COUNTED_S, lambda: self._tell_untold_failures(network))
        if failures.told >= DENIALS_MAX or failures.repeated >= REPEATS_MAX:
            failures.untold += 1
            return
        is_new = self.tell(event)
        failures.told += is_new
        failures.repeated += not is_new

    def _tell_untold_failures(self, network: str) -> None:
        failures = self._failures.pop(network)
        if failures.untold and Audited in self._events:
            self._events.emit(
                Audited(
                    LOGIN_FAILURE,
                    None,
                    failures.host,
                    allowed=False,
                    cause=NOT_TOLD,
                    repeated=failures.untold,
                )
            )

    def tell(self, event: Audited) -> bool:
        return Audited in self._events and self._entries.happened(event)

    def _emit(self, event: Audited, repeated: int) -> None:
        if repeated:
            event = Audited(**{**event.__dict__, "repeated": repeated})
        self._events.emit(event)


def _write(line: tuple[int, str], repeated: int) -> None:
    level, text = line
    if repeated:
        audit.log(level, "%s (%d more times within %g s)", text, repeated, COUNTED_S)
    else:
        audit.log(level, "%s", text)


def audit_line(
    principal: Principal,
    host: str,
    api_key: int,
    question: Question,
    verdict: AuthorizationResult,
) -> str:
    operation, resource_type, name = question
    kind = resource_kind(resource_type)
    return _on_one_line(
        f"Principal = {principal} is {'Allowed' if verdict.allowed else 'Denied'}"
        f" operation = {operation.name} from host = {host} on resource = {kind}:LITERAL:{name}"
        f" for request = {_api_name(api_key)} with resourceRefCount = 1"
        f" based on rule {_rule(verdict)}"
    )


def _cut(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}... ({len(name)} characters)"


def _api_name(api_key: int) -> str:
    return PRIVATE_APIS.get(api_key) or APIS[ApiKey(api_key)].name


def _rule(verdict: AuthorizationResult) -> str:
    return verdict.rule if verdict.acl is None else f"{verdict.rule}(acl={_acl(verdict.acl)})"


def _acl(acl: Acl) -> str:
    return (
        f"StandardAcl(resourceType={acl.resource_type.name}, resourceName={acl.resource_name},"
        f" patternType={acl.pattern_type.name}, principal={acl.principal}, host={acl.host},"
        f" operation={acl.operation.name}, permissionType={acl.permission.name})"
    )


def _on_one_line(text: str) -> str:
    """Names come from strangers: none of them may look like a line of its own."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
