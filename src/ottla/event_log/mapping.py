"""From the typed events of a node to entries of the event log.

`TELLERS` has a function for each event that the log tells. Whoever writes the log subscribes to exactly these; all other
events of a node are not built for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.event_log.entry import CLUSTER, Told
from ottla.events import Event
from ottla.events.controller import (
    BrokerFenced,
    BrokerUnfenced,
    ControllerActivated,
    ElectionKind,
    IsrChange,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    PartitionReassigned,
    PartitionWentOffline,
    SettingChanged,
)
from ottla.events.coordination import GroupRebalanced, MemberExpired, TransactionAborted
from ottla.events.node import EventsDropped, NodeStarted, NodeStopping
from ottla.events.replication import LeadershipStarted, Truncated
from ottla.events.requests import QuotaExceeded
from ottla.events.storage import (
    DirectoryMove,
    LogDirectoryFailed,
    LogDirectoryRoomChanged,
    LogSetAside,
)
from ottla.wire.types import TopicPartition

PARTITIONS_NAMED_MAX = 100
"""Of a failed log directory: it may have had thousands."""

NAME_MAX = 256
"""Characters of a name that a client chose. Names of 32 KB would push everything else out of the log."""

VALUE_MAX = 4_096
"""Characters of a setting's value."""

HOW = {
    ElectionKind.IN_SYNC: "clean",
    ElectionKind.ELIGIBLE: "elr",
    ElectionKind.LAST_KNOWN_LEADER: "last_known_leader",
    ElectionKind.UNCLEAN: "unclean",
    ElectionKind.PREFERRED: "preferred",
}


def told(event: Event, node: int) -> Told:
    """What an event of this node tells."""
    return TELLERS[type(event)](event, node)


def cut(text: str, limit: int = NAME_MAX) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _about(
    kind: str, partition: TopicPartition, cause: str | None, fields: Mapping[str, Any]
) -> Told:
    key = f"partition:{partition.topic}-{partition.partition}"
    return Told(kind, key, cause, fields, partition)


def _election(event: LeaderElected, node: int) -> Told:
    fields = {
        "leader": event.leader,
        "previous_leader": event.previous_leader,
        "leader_epoch": event.leader_epoch,
        "isr": event.isr,
        "how": HOW[event.kind],
        # Only the leader itself knows: see its leader_start.
        "log_end": None,
    }
    where = TopicPartition(event.topic, event.partition)
    return _about("election", where, event.kind.value, fields)


def _offline(event: PartitionWentOffline, node: int) -> Told:
    fields = {"previous_leader": event.previous_leader, "leader_epoch": event.leader_epoch}
    where = TopicPartition(event.topic, event.partition)
    return _about("offline", where, "no replica that may lead is alive", fields)


def _leader_start(event: LeadershipStarted, node: int) -> Told:
    fields = {
        "leader": node,
        "leader_epoch": event.leader_epoch,
        "log_end": event.log_end,
        "high_watermark": event.high_watermark,
    }
    return _about("leader_start", event.partition, None, fields)


def _isr_change(event: IsrChange, node: int) -> Told:
    kind = "isr_shrink" if isinstance(event, IsrShrunk) else "isr_expand"
    fields = {
        "leader": event.leader,
        "leader_epoch": event.leader_epoch,
        "isr": event.isr,
        "previous_isr": event.previous_isr,
        "brokers": event.brokers,
        "lag": {str(broker): lag._asdict() for broker, lag in event.lag.items()},
    }
    return _about(kind, TopicPartition(event.topic, event.partition), event.cause.value, fields)


def _truncation(event: Truncated, node: int) -> Told:
    fields = {
        "first_offset": event.first_offset,
        "end_offset": event.end_offset,
        "records": event.end_offset - event.first_offset,
        "bytes": event.bytes,
        "epochs": event.epochs,
        "high_watermark": event.high_watermark,
        "below_high_watermark": event.below_high_watermark,
        "leader": event.leader,
        "leader_epoch": event.leader_epoch,
        "kept": event.kept,
    }
    return _about("truncation", event.partition, event.cause.value, fields)


def _fenced(event: BrokerFenced, node: int) -> Told:
    fields = {"broker": event.broker, "broker_epoch": event.broker_epoch}
    return Told("fenced", f"broker:{event.broker}", event.cause.value, fields)


def _unfenced(event: BrokerUnfenced, node: int) -> Told:
    fields = {"broker": event.broker, "broker_epoch": event.broker_epoch}
    return Told("unfenced", f"broker:{event.broker}", None, fields)


def _log_dir_failure(event: LogDirectoryFailed, node: int) -> Told:
    names = [f"{each.topic}-{each.partition}" for each in event.partitions[:PARTITIONS_NAMED_MAX]]
    fields = {
        "directory": event.directory,
        "partitions": names,
        "partition_count": len(event.partitions),
    }
    return Told("log_dir_failure", f"broker:{node}", event.cause, fields)


def _log_dir_room(event: LogDirectoryRoomChanged, node: int) -> Told:
    fields = {
        "directory": event.directory,
        "room": event.level,
        "free_bytes": event.free_bytes,
        "total_bytes": event.total_bytes,
    }
    return Told("log_dir_room", f"broker:{node}", None, fields)


def _directory_move(event: DirectoryMove, node: int) -> Told:
    fields = {
        "step": event.step.value,
        "broker": node,
        "source": event.source,
        "target": event.target,
        "log_end": event.log_end,
    }
    return _about("directory_move", event.partition, event.cause, fields)


def _controller_change(event: ControllerActivated, node: int) -> Told:
    return Told("controller_change", CLUSTER, None, {"controller": node, "epoch": event.epoch})


def _reassignment(event: PartitionReassigned, node: int) -> Told:
    fields = {
        "step": event.step.value,
        "replicas": event.replicas,
        "adding": event.adding,
        "removing": event.removing,
    }
    return _about("reassignment", TopicPartition(event.topic, event.partition), None, fields)


def _setting_changed(event: SettingChanged, node: int) -> Told:
    fields = {
        "resource": cut(event.resource),
        "name": cut(event.name),
        "old": None if event.old is None else cut(event.old, VALUE_MAX),
        "new": None if event.new is None else cut(event.new, VALUE_MAX),
        "by": cut(event.by),
    }
    return Told("setting_changed", cut(event.resource), None, fields)


def _quota_exceeded(event: QuotaExceeded, node: int) -> Told:
    fields = {
        "user": None if event.user is None else cut(event.user),
        "client_id": cut(event.client_id),
        "quota": event.quota,
        "limit": event.rate,
        "measured": None if event.measured is None else round(event.measured, 1),
        "throttle_ms": round(event.throttle_s * 1000),
    }
    return Told("quota_exceeded", f"client:{cut(event.client_id)}", None, fields)


def _transaction_aborted(event: TransactionAborted, node: int) -> Told:
    fields = {
        "transactional_id": cut(event.transactional_id),
        "producer_id": event.producer_id,
        "producer_epoch": event.producer_epoch,
        "partitions": event.partitions,
    }
    about = f"transaction:{cut(event.transactional_id)}"
    return Told("transaction_aborted", about, event.cause.value, fields)


def _rebalance(event: GroupRebalanced, node: int) -> Told:
    fields = {"group": cut(event.group_id), "epoch": event.epoch, "members": event.members}
    return Told("rebalance", f"group:{cut(event.group_id)}", cut(event.cause), fields)


def _member_expired(event: MemberExpired, node: int) -> Told:
    fields = {"group": cut(event.group_id), "member": cut(event.member_id)}
    return Told("member_expired", f"group:{cut(event.group_id)}", cut(event.cause), fields)


def _node_start(event: NodeStarted, node: int) -> Told:
    return Told("node_start", f"broker:{node}", None, {"version": event.version})


def _node_stop(event: NodeStopping, node: int) -> Told:
    return Told("node_stop", f"broker:{node}", None, {"version": event.version})


def events_dropped(event: EventsDropped, node: int) -> Told:
    return Told("events_dropped", f"broker:{node}", event.cause, {"count": event.count})


def _stray_log(event: LogSetAside, node: int) -> Told:
    fields = {"directory": event.directory, "kept": event.path}
    return _about("stray_log", event.partition, None, fields)


TELLERS: Mapping[type[Event], Callable[[Any, int], Told]] = {
    LeaderElected: _election,
    PartitionWentOffline: _offline,
    LeadershipStarted: _leader_start,
    IsrShrunk: _isr_change,
    IsrExpanded: _isr_change,
    Truncated: _truncation,
    BrokerFenced: _fenced,
    BrokerUnfenced: _unfenced,
    LogDirectoryFailed: _log_dir_failure,
    LogDirectoryRoomChanged: _log_dir_room,
    DirectoryMove: _directory_move,
    ControllerActivated: _controller_change,
    PartitionReassigned: _reassignment,
    SettingChanged: _setting_changed,
    QuotaExceeded: _quota_exceeded,
    TransactionAborted: _transaction_aborted,
    GroupRebalanced: _rebalance,
    MemberExpired: _member_expired,
    NodeStarted: _node_start,
    NodeStopping: _node_stop,
    EventsDropped: events_dropped,
    LogSetAside: _stray_log,
}
