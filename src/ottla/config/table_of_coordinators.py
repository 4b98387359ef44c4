"""Groups, transactions, and the internal topics in which both are kept."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import setting
from ottla.config.values import (
    ASSIGNORS,
    INT_MAX,
    MIB,
    PROTOCOLS,
    REPLICATION_FACTOR,
    choice,
    integer,
    long,
)


@dataclass(frozen=True, eq=False, repr=False)
class CoordinatorSettings:
    # Internal topics (groups and transactions create them)
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", REPLICATION_FACTOR, 3, "Replicas of __consumer_offsets."
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", integer(1), 50, "Partitions of __consumer_offsets."
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", integer(MIB), 100 << 20, "Segments of __consumer_offsets."
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        REPLICATION_FACTOR,
        3,
        "Replicas of __transaction_state.",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", integer(1), 50, "Partitions of __transaction_state."
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        integer(1),
        2,
        "min.insync.replicas of __transaction_state.",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        integer(MIB),
        100 << 20,
        "Segment size of __transaction_state.",
    )

    # Transactions
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        integer(1),
        15 * 60 * 1000,
        "The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        integer(1),
        7 * 24 * 60 * 60 * 1000,
        "A transactional id without any transaction for this time is forgotten.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        integer(1),
        10_000,
        "How often transactions are looked for that are open beyond their timeout.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        integer(1),
        60 * 60 * 1000,
        "How often transactional ids are looked for that have expired.",
    )

    # Groups
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        integer(0),
        3_000,
        "How long a new group waits for more members.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", integer(0), 6_000, "Shortest session a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", integer(0), 1_800_000, "Longest session it may ask for."
    )
    group_max_size: int = setting(
        "group.max.size", integer(1), INT_MAX, "Members that a group may have."
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        integer(1),
        45_000,
        "Silence after which a member of a consumer group is removed.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        integer(1),
        5_000,
        "How often members of consumer groups are told to report.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        integer(1),
        45_000,
        "Shortest session timeout that may be set for one consumer group.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        integer(1),
        60_000,
        "Longest session timeout that may be set for one consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        integer(1),
        5_000,
        "Shortest heartbeat interval that may be set for one consumer group.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        integer(1),
        15_000,
        "Longest heartbeat interval that may be set for one consumer group.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        integer(0),
        1_000,
        "How often a consumer group is given a new assignment at most.",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        integer(0),
        0,
        "Shortest assignment interval that may be set for one consumer group.",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        integer(0),
        15_000,
        "Longest assignment interval that may be set for one consumer group.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        PROTOCOLS,
        ("classic", "consumer"),
        "Protocols that groups may use.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", integer(1), INT_MAX, "Members that a consumer group may have."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ASSIGNORS,
        ("uniform", "range"),
        "Server-side assignors of consumer groups, the default one first.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        choice("bidirectional", "upgrade", "downgrade", "disabled"),
        "bidirectional",
        "Which way groups in use may go between the classic and the consumer protocol.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", integer(0), 4_096, "Longest note to a committed offset."
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        integer(1),
        5_000,
        "How long a group's change may wait for its replicas before the client is told to try again.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        integer(1),
        10_080,
        "How long offsets stay after their group became empty.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", long(1), 600_000, "How often that is checked."
    )
