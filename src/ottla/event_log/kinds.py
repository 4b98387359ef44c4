"""What each kind of entry means: the table of docs/EVENTS.md, and how serious an entry is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.event_log.entry import EventEntry


class Severity(IntEnum):
    INFO = 0
    WARNING = 1
    ERROR = 2


class EventKind(NamedTuple):
    meaning: str
    fields: tuple[str, ...]
    """Its members beside the common ones, in order."""
    severity: Severity = Severity.INFO


INFO, WARNING, ERROR = Severity

_ISR_FIELDS = ("leader", "leader_epoch", "isr", "previous_isr", "brokers", "lag")

KINDS: Mapping[str, EventKind] = {
    "election": EventKind(
        "A partition has another leader. `how`: `clean` (from the ISR), `elr` (an eligible leader replica, KIP-966), "
        "`preferred` (back to the preferred replica), `last_known_leader` and `unclean` (records may be lost).",
        ("leader", "previous_leader", "leader_epoch", "isr", "how", "log_end"),
    ),
    "offline": EventKind(
        "A partition has no leader: no replica that may lead it is alive.",
        ("previous_leader", "leader_epoch"),
        ERROR,
    ),
    "leader_start": EventKind(
        "A broker leads a partition from now on. Its leader epoch starts at `log_end`.",
        ("leader", "leader_epoch", "log_end", "high_watermark"),
    ),
    "isr_shrink": EventKind(
        "`brokers` left the ISR. The cause is `slow`, `silent`, `fenced`, `disk`, `full`, `restart`, `shutdown` or `reassigned`. "
        "`lag` has records, bytes (estimated) and seconds for each broker, if the leader proposed the change.",
        _ISR_FIELDS,
        WARNING,
    ),
    "isr_expand": EventKind("`brokers` joined the ISR; the cause is `caught_up`.", _ISR_FIELDS),
    "truncation": EventKind(
        "A follower dropped the records from `first_offset` up to `end_offset`, which its leader does not have. "
        "`below_high_watermark`: it knew some of them to be committed. `kept`: the id under which they are kept aside.",
        (
            "first_offset",
            "end_offset",
            "records",
            "bytes",
            "epochs",
            "high_watermark",
            "below_high_watermark",
            "leader",
            "leader_epoch",
            "kept",
        ),
        WARNING,
    ),
    "fenced": EventKind(
        "The controller decided that a broker leads nothing and is in no ISR.",
        ("broker", "broker_epoch"),
        WARNING,
    ),
    "unfenced": EventKind("A broker may lead and be in sync again.", ("broker", "broker_epoch")),
    "log_dir_failure": EventKind(
        "The disk of a log directory failed; at most 100 of its partitions are named.",
        ("directory", "partitions", "partition_count"),
        ERROR,
    ),
    "log_dir_room": EventKind(
        "A disk is nearly full, or has room again. `room`: `ample`, `scarce` (records are refused) or `none` (replicas copy"
        " nothing either).",
        ("directory", "room", "free_bytes", "total_bytes"),
        WARNING,
    ),
    "directory_move": EventKind(
        "A replica moves to another log directory of its broker: `started`, `completed`, `cancelled` or `failed`. The last two"
        " have a cause, and leave it where it was.",
        ("step", "broker", "source", "target", "log_end"),
    ),
    "controller_change": EventKind(
        "Another node is the active controller.", ("controller", "epoch"), WARNING
    ),
    "reassignment": EventKind(
        "A step of a reassignment: `started`, `changed`, `cancelled` or `completed`.",
        ("step", "replicas", "adding", "removing"),
    ),
    "setting_changed": EventKind(
        "A client changed a dynamic setting, a quota or an ACL (`name` is then `acl`). null: not set. `by`: the client's id and its host.",
        ("resource", "name", "old", "new", "by"),
    ),
    "quota_exceeded": EventKind(
        "A client is above its quota and is throttled; told once a minute. `user` is null if nobody has logged in. "
        "`measured` is null for a quota that is kept as tokens.",
        ("user", "client_id", "quota", "limit", "measured", "throttle_ms"),
        WARNING,
    ),
    "transaction_aborted": EventKind(
        "A coordinator aborted a transaction by itself.",
        ("transactional_id", "producer_id", "producer_epoch", "partitions"),
        WARNING,
    ),
    "rebalance": EventKind(
        "A group starts a rebalance towards `epoch` (of a classic group: its next generation) with so many members.",
        ("group", "epoch", "members"),
    ),
    "member_expired": EventKind(
        "A group removed a member whose timeout expired.", ("group", "member"), WARNING
    ),
    "node_start": EventKind("A node serves.", ("version",)),
    "node_stop": EventKind("A node begins its orderly stop.", ("version",)),
    "events_dropped": EventKind(
        "So many events of this node are missing here: the log could not be written for too long.",
        ("count",),
        WARNING,
    ),
    "stray_log": EventKind(
        "A log that was damaged, or not wanted on this broker, was renamed to `kept`.",
        ("directory", "kept"),
        WARNING,
    ),
}


def severity(entry: EventEntry) -> Severity:
    fields: Mapping[str, Any] = entry.told.fields
    if entry.kind == "election" and fields.get("how") in ("unclean", "last_known_leader"):
        return ERROR
    if entry.kind == "truncation" and fields.get("below_high_watermark"):
        return ERROR
    if entry.kind == "isr_shrink" and entry.told.cause in ("shutdown", "reassigned"):
        return INFO
    known = KINDS.get(entry.kind)
    return INFO if known is None else known.severity
