"""The entries of the audit (`__ottla_audit`). Their records are those of the event log, with other kinds and fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.event_log.entry import EventEntry, Told
from ottla.event_log.mapping import cut, events_dropped
from ottla.events import Event
from ottla.events.audit import Audited
from ottla.events.node import EventsDropped
from ottla.wire.printable import printable

AUDIT_KINDS: Mapping[str, str] = {
    "login": "A client logged in. `mechanism`: by which, `SSL` for a certificate.",
    "login_failure": "A login was refused, or took too long: see `cause`. `principal` is whom it claimed to be.",
    "session_end": "A node ended a session: its time was over, or its credential was changed or removed.",
    "denial": "The authorizer denied an operation. `rule`: by which rule, or by which ACL.",
    "allowed": "It allowed one; only while `kafka.authorizer.logger` is at DEBUG.",
    "change": "A change that a client asked for is committed.",
    "events_dropped": "So many entries of this node are missing here (`count`).",
}
FIELDS = ("principal", "host", "listener", "mechanism", "api", "operation", "resource", "allowed", "rule", "repeated")  # fmt: skip


def _audited(event: Audited, node: int) -> Told:
    def short(text: str | None) -> str | None:
        return None if text is None else cut(text)

    fields = {
        "principal": short(event.principal),
        "host": event.host,
        "listener": event.listener,
        "mechanism": short(event.mechanism),
        "api": event.api,
        "operation": event.operation,
        "resource": short(event.resource),
        "allowed": event.allowed,
        "rule": None if event.rule is None else cut(event.rule, 1024),
        "repeated": event.repeated,
    }
    return Told(event.kind, cut(event.principal or ""), short(event.cause), fields)


AUDIT_TELLERS: Mapping[type[Event], Callable[[Any, int], Told]] = {
    Audited: _audited,
    EventsDropped: events_dropped,
}


def audit_sentence(entry: EventEntry) -> str:
    """One printable line: strangers chose some of its words."""
    return printable(_sentence(entry))


def _sentence(entry: EventEntry) -> str:
    fields, kind = entry.told.fields, entry.kind
    if kind == "events_dropped":
        return f"{fields.get('count')} entries of this node are missing here: {entry.told.cause}"
    who = f"{fields.get('principal') or 'somebody'} from {fields.get('host')}"
    what = f"{fields.get('operation')} {fields.get('resource')} ({fields.get('api')})"
    mechanism = fields.get("mechanism")
    by = f" by {mechanism}" if mechanism else ""
    where = f" at {fields.get('listener')}" if fields.get("listener") else ""
    said = {
        "login": f"{who} logged in{by}{where}",
        "login_failure": f"{who} could not log in{by}{where}: {entry.told.cause}",
        "session_end": f"the session of {who}{where} ended: {entry.told.cause}",
        "denial": f"{who} was denied {what}: {fields.get('rule')}",
        "allowed": f"{who} was allowed {what}: {fields.get('rule')}",
        "change": f"{who} changed: {what}",
    }.get(kind, f"{kind} {dict(fields)}")
    repeated = fields.get("repeated")
    return f"{said} ({repeated} more times)" if repeated else said
