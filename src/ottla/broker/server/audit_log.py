"""What the authorizer decided, as lines in the node's log: Kafka's logger and Kafka's text, so that its readers work here.

A denial is told at INFO, what is allowed at DEBUG. A client that is denied tries again at once. So a line that was written
less than ten seconds ago is counted, and written once more with the count when the ten seconds are over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.security.acls import Acl
from ottla.security.authorizer import AuthorizationResult, Question
from ottla.security.principals import Principal
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
audit = logging.getLogger(AUDIT_LOGGER)
"""Its lines are Kafka's, not a text with fields as all others are."""

COUNTED_S: Final = 10.0
LINES_MAX: Final = 1000
"""So many different lines are counted at a time."""


@dataclass(slots=True)
class _Written:
    level: int
    until: float
    repeated: int = 0


class AuditLog:
    def __init__(
        self, now: Callable[[], float], call_later: Callable[[float, Callable[[], None]], Any]
    ) -> None:
        self._now = now
        self._call_later = call_later
        self._written: dict[str, _Written] = {}
        """The oldest first."""
        self._is_timed = False

    def wants_allowed(self) -> bool:
        return audit.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        principal: Principal,
        host: str,
        api_key: int,
        question: Question,
        verdict: AuthorizationResult,
    ) -> None:
        level = logging.DEBUG if verdict.allowed else logging.INFO
        if not audit.isEnabledFor(level):
            return
        line = audit_line(principal, host, api_key, question, verdict)
        now = self._now()
        self._tell_repeated(now)
        written = self._written.get(line)
        if written is not None:
            written.repeated += 1
            return
        audit.log(level, "%s", line)
        if len(self._written) >= LINES_MAX:
            self._end(next(iter(self._written)))
        self._written[line] = _Written(level, now + COUNTED_S)
        self._set_timer(COUNTED_S)

    def _set_timer(self, delay: float) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._is_timed = False
        now = self._now()
        self._tell_repeated(now)
        for written in self._written.values():
            self._set_timer(written.until - now)
            break

    def _tell_repeated(self, now: float) -> None:
        while self._written:
            oldest = next(iter(self._written))
            if self._written[oldest].until > now:
                return
            self._end(oldest)

    def _end(self, line: str) -> None:
        written = self._written.pop(line)
        if written.repeated:
            audit.log(
                written.level,
                "%s (%d more times within %g s)",
                line,
                written.repeated,
                COUNTED_S,
            )


def audit_line(
    principal: Principal,
    host: str,
    api_key: int,
    question: Question,
    verdict: AuthorizationResult,
) -> str:
    operation, resource_type, name = question
    kind = "".join(word.capitalize() for word in resource_type.name.split("_"))
    return _on_one_line(
        f"Principal = {principal} is {'Allowed' if verdict.allowed else 'Denied'}"
        f" operation = {operation.name} from host = {host} on resource = {kind}:LITERAL:{name}"
        f" for request = {_api_name(api_key)} with resourceRefCount = 1"
        f" based on rule {_rule(verdict)}"
    )


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
