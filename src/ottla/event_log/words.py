"""An entry of the event log as one sentence, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.event_log.entry import EventEntry, Told
from ottla.wire.printable import printable

Fields = Mapping[str, Any]

HOW = {
    "clean": "from the ISR",
    "elr": "from the eligible leader replicas",
    "preferred": "because it is preferred",
    "last_known_leader": "as the last known leader, which may lack records",
    "unclean": "although it was not in sync: committed records may be lost",
}


def sentence(entry: EventEntry) -> str:
    """One printable line: clients chose some of its words."""
    return printable(_sentence(entry))


def _sentence(entry: EventEntry) -> str:
    """A kind that is not known here (a newer node wrote it) shows its fields as they are, and so does an entry without the
    fields of its kind: one bad entry must not hide the others."""
    where = "" if entry.told.partition is None else "{}-{}".format(*entry.told.partition)
    tell = _SENTENCES.get(entry.kind, _plain)
    try:
        return tell(where, entry.told.fields, entry.told.cause or "")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return _plain(where, entry.told.fields, entry.told.cause or "")


def _plain(where: str, fields: Fields, cause: str) -> str:
    named = " ".join(f"{name}={value}" for name, value in fields.items())
    return " ".join(part for part in (where, named, cause) if part)


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) != 1 else ''} {', '.join(map(str, ids)) or 'none'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _isr(ids: Sequence[int]) -> str:
    return f"ISR {','.join(map(str, ids)) or 'empty'}"


def _election(where: str, fields: Fields, cause: str) -> str:
    former = fields["previous_leader"]
    instead = f" instead of {former}" if former >= 0 else ""
    return (
        f"{where}: broker {fields['leader']} was elected leader{instead} "
        f"{HOW.get(fields['how'], fields['how'])} (epoch {fields['leader_epoch']}, {_isr(fields['isr'])})"
    )


def _offline(where: str, fields: Fields, cause: str) -> str:
    return f"{where}: no leader any more, the last was broker {fields['previous_leader']}: {cause}"


def _leader_start(where: str, fields: Fields, cause: str) -> str:
    return (
        f"{where}: broker {fields['leader']} leads, epoch {fields['leader_epoch']} starts at offset "
        f"{fields['log_end']} (high watermark {fields['high_watermark']})"
    )


def _lags(fields: Fields) -> str:
    lags = [
        f"broker {broker} {_count(lag['records'], 'record')}, {lag['bytes']} bytes"
        + ("" if lag["seconds"] is None else f", {lag['seconds']:.1f} s")
        for broker, lag in fields["lag"].items()
    ]
    return f"; behind: {'; '.join(lags)}" if lags else ""


def _isr_shrink(where: str, fields: Fields, cause: str) -> str:
    left = _brokers(fields["brokers"])
    return f"{where}: {left} left the ISR ({cause}), {_isr(fields['isr'])}{_lags(fields)}"


def _isr_expand(where: str, fields: Fields, cause: str) -> str:
    return f"{where}: {_brokers(fields['brokers'])} joined the ISR, {_isr(fields['isr'])}"


def _truncation(where: str, fields: Fields, cause: str) -> str:
    is_loss = fields["below_high_watermark"]
    committed = ", some of them committed" if is_loss else ", none of them known to be committed"
    kept = f", kept as {fields['kept']}" if fields["kept"] else ""
    return (
        f"{where}: dropped {_count(fields['records'], 'record')} from offset {fields['first_offset']} on"
        f"{committed}{kept}; leader {fields['leader']}, epoch {fields['leader_epoch']}: {cause}"
    )


def _log_dir_failure(where: str, fields: Fields, cause: str) -> str:
    lost = _count(fields["partition_count"], "partition")
    return f"log directory {fields['directory']} failed with {lost}: {cause}"


ROOMS = {
    "ample": "has room again",
    "scarce": "is nearly full: it refuses records",
    "none": "is nearly full: its replicas copy nothing either",
}


def _log_dir_room(where: str, fields: Fields, cause: str) -> str:
    free = f"{fields['free_bytes']} of {fields['total_bytes']} bytes are free"
    return f"the disk of {fields['directory']} {ROOMS[fields['room']]} ({free})"


def _directory_move(where: str, fields: Fields, cause: str) -> str:
    way = f"from {fields['source']} to {fields['target']} of broker {fields['broker']}"
    return f"{where}: move {way} {fields['step']}{f': {cause}' if cause else ''}"


def _reassignment(where: str, fields: Fields, cause: str) -> str:
    replicas = ",".join(map(str, fields["replicas"]))
    return f"{where}: reassignment {fields['step']}, replicas {replicas}"


def _setting_changed(where: str, fields: Fields, cause: str) -> str:
    old, new = ("not set" if value is None else value for value in (fields["old"], fields["new"]))
    return f"{fields['resource']}: {fields['name']} {old} -> {new}, by {fields['by']}"


def is_renewal(told: Told) -> bool:
    """Whether it tells only that a move of replicas has another rate, or that more is moved: an adapted throttle does so
    every few seconds. Its first setting and its removal are told."""
    fields = told.fields
    return (
        told.kind == "setting_changed"
        and ".replication.throttled." in str(fields.get("name"))
        and fields.get("old") is not None
        and fields.get("new") is not None
    )


def _quota_exceeded(where: str, fields: Fields, cause: str) -> str:
    measured = "" if fields["measured"] is None else f" (measured {fields['measured']:g})"
    user = f" of user {fields['user']}" if fields.get("user") else ""
    return (
        f"client {fields['client_id']}{user}: above {fields['quota']}={fields['limit']:g}{measured}, "
        f"throttled for {fields['throttle_ms']} ms"
    )


_SENTENCES: Mapping[str, Callable[[str, Fields, str], str]] = {
    "election": _election,
    "offline": _offline,
    "leader_start": _leader_start,
    "isr_shrink": _isr_shrink,
    "isr_expand": _isr_expand,
    "truncation": _truncation,
    "fenced": lambda where, fields, cause: f"broker {fields['broker']} was fenced: {cause}",
    "unfenced": lambda where, fields, cause: f"broker {fields['broker']} was unfenced",
    "log_dir_failure": _log_dir_failure,
    "log_dir_room": _log_dir_room,
    "directory_move": _directory_move,
    "controller_change": lambda where, fields, cause: (
        f"node {fields['controller']} is the active controller, epoch {fields['epoch']}"
    ),
    "reassignment": _reassignment,
    "setting_changed": _setting_changed,
    "quota_exceeded": _quota_exceeded,
    "transaction_aborted": lambda where, fields, cause: (
        f"transaction {fields['transactional_id']} was aborted by its coordinator: {cause}"
    ),
    "rebalance": lambda where, fields, cause: (
        f"group {fields['group']}: rebalance to epoch {fields['epoch']} with "
        f"{_count(fields['members'], 'member')}: {cause}"
    ),
    "member_expired": lambda where, fields, cause: (
        f"group {fields['group']}: member {fields['member']} expired: {cause}"
    ),
    "node_start": lambda where, fields, cause: f"the node serves, ottla {fields['version']}",
    "node_stop": lambda where, fields, cause: "the node stops",
    "events_dropped": lambda where, fields, cause: (
        f"{_count(fields['count'], 'event')} of this node are missing here: {cause}"
    ),
    "stray_log": lambda where, fields, cause: f"{where}: log set aside as {fields['kept']}",
}
