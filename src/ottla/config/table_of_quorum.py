"""The controller quorum, and how long it waits for a broker."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import setting
from ottla.config.values import (
    ADDRESSES,
    BOOLEAN,
    HOUR_MS,
    TEXT,
    VOTERS,
    WEEK_MS,
    Address,
    QuorumVoter,
    choice,
    integer,
    long,
)


@dataclass(frozen=True, eq=False, repr=False)
class QuorumSettings:
    # The controller quorum
    controller_quorum_voters: tuple[QuorumVoter, ...] = setting(
        "controller.quorum.voters",
        VOTERS,
        (),
        "The static voters: id@host:port of each controller.",
    )
    controller_quorum_bootstrap_servers: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        ADDRESSES,
        (),
        "Controllers to ask first, where voters are dynamic.",
    )
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        integer(1),
        1_000,
        "How long a voter waits for a leader before it starts an election.",
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        integer(1),
        2_000,
        "How long a follower, or a leader's majority, may go without a successful fetch.",
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        integer(1),
        1_000,
        "Longest pause after a lost election.",
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms", integer(1), 2_000, "Limit of one quorum request."
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms", integer(0), 20, "Pause before a quorum request again."
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        "A controller that is no voter becomes one by itself, where voters are dynamic.",
    )
    metadata_log_dir: str = setting(
        "metadata.log.dir", TEXT, "", "Where the cluster metadata lies; default: the first log dir."
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes", integer(12), 1 << 30, "Size of a metadata log segment."
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms", long(1), WEEK_MS, "Age at which a metadata segment is rolled."
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        long(1),
        20 << 20,
        "Bytes of new metadata after which a snapshot is written.",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        long(0),
        HOUR_MS,
        "Longest time between snapshots while there is new metadata (0: no limit).",
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        long(-1),
        100 << 20,
        "Metadata log and snapshots kept, bytes.",
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms", long(-1), WEEK_MS, "Metadata log and snapshots kept, time."
    )
    metadata_max_idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms",
        integer(0),
        500,
        "How often the active controller writes a no-op when idle (0: never).",
    )

    # Liveness
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        integer(1),
        2_000,
        "How often a broker reports to the controller.",
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms", integer(1), 9_000, "Silence after which a broker is fenced."
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        integer(1),
        60_000,
        "How long a starting broker tries to register before it gives up.",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", BOOLEAN, True, "Move leaders away before stopping."
    )
    ottla_broker_reconnect_grace_ms: int = setting(
        "ottla.broker.reconnect.grace.ms",
        integer(0),
        100,
        "After a broker's connection to the controller closed: time to reconnect before it is fenced.",
    )
    ottla_controlled_shutdown_timeout_ms: int = setting(
        "ottla.controlled.shutdown.timeout.ms",
        integer(0),
        10_000,
        "Longest controlled shutdown; after it the node stops anyway.",
    )

    ottla_event_log_enable: bool = setting(
        "ottla.event.log.enable",
        BOOLEAN,
        True,
        "Write what happens (elections, ISR changes, truncations and more) to the topic __ottla_events.",
    )
    ottla_event_log_queue_max: int = setting(
        "ottla.event.log.queue.max",
        integer(1),
        20_000,
        "Events that wait while the event log cannot be written. More are dropped, and counted.",
    )
    ottla_event_log_retention_ms: int = setting(
        "ottla.event.log.retention.ms",
        long(-1),
        WEEK_MS,
        "How long the event log keeps its entries; -1: for ever. Counts when the topic is created.",
    )
    ottla_event_log_retention_bytes: int = setting(
        "ottla.event.log.retention.bytes",
        long(-1),
        256 << 20,
        "How large the event log may become; -1: no limit. Counts when the topic is created.",
    )

    ottla_audit_topic: str = setting(
        "ottla.audit.topic",
        choice("__ottla_audit", ""),
        "__ottla_audit",
        "Where logins, denials and changes are recorded, if there is an authorizer or SASL. Empty: in the node's log only.",
    )
    ottla_audit_queue_max: int = setting(
        "ottla.audit.queue.max",
        integer(1),
        20_000,
        "Entries of the audit that wait while its topic cannot be written. More are dropped, and counted.",
    )
    ottla_audit_retention_ms: int = setting(
        "ottla.audit.retention.ms",
        long(-1),
        30 * 24 * 3_600_000,
        "How long the audit keeps its entries; -1: for ever. Counts when the topic is created.",
    )
    ottla_audit_retention_bytes: int = setting(
        "ottla.audit.retention.bytes",
        long(-1),
        1 << 30,
        "How large the audit may become; -1: no limit. Counts when the topic is created.",
    )

    ottla_local_sockets_enable: bool = setting(
        "ottla.local.sockets.enable",
        BOOLEAN,
        True,
        "Nodes that find each other at a loopback address talk over Unix sockets (Linux); false: over TCP, to be watched "
        "or disturbed. With TLS or SASL on a listener: only if it is set to true. There is no TLS and no login on them then; only "
        "processes of the node's own user are let in, and count as the node itself.",
    )
