"""How a broker replicates, and how it serves its clients."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import setting
from ottla.config.values import BOOLEAN, LONG_MAX, OPTIONAL_COUNT, SELECTOR, integer, long


@dataclass(frozen=True, eq=False, repr=False)
class ServingSettings:
    # Replication
    default_replication_factor: int = setting(
        "default.replication.factor", integer(1), 1, "Replicas of a topic that names no factor."
    )
    num_partitions: int = setting(
        "num.partitions", integer(1), 1, "Partitions of a topic that names no number."
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", long(1), 30_000, "A follower behind for longer leaves the ISR."
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", integer(0), 1 << 20, "Bytes per partition in a follower's fetch."
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", integer(0), 10 << 20, "Bytes in a follower's fetch."
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", integer(0), 1, "Bytes a follower's fetch waits for."
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", integer(0), 500, "Longest wait of a follower's fetch."
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", integer(0), 1_000, "Pause of a follower after a failed fetch."
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", integer(1), 30_000, "Limit of one follower request."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        long(1),
        5_000,
        "How often high watermarks are written to disk.",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        SELECTOR,
        None,
        "Let consumers that name their rack read from a replica there (RackAwareReplicaSelector).",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", BOOLEAN, True, "Give leadership back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", long(1), 300, "How often that is checked."
    )
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms",
        long(1),
        300_000,
        "How often leaderless partitions are checked where unclean election is allowed.",
    )

    # Serving clients
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, True, "Create a topic when a client names it."
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, True, "Allow topics to be deleted."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", integer(1024), 55 << 20, "Most bytes in one answer to a fetch."
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", integer(0), 1_000, "Fetch sessions kept."
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        integer(1),
        2_000,
        "Most partitions in one answer to DescribeTopicPartitions.",
    )
    quota_window_num: int = setting(
        "quota.window.num", integer(1), 11, "Samples over which a client's rate is measured."
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        integer(1),
        11,
        "Samples over which a client's changes to the cluster are measured.",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        integer(1),
        11,
        "Samples that measure throttled replication.",
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        long(0),
        LONG_MAX,
        "Bytes a second that a leader sends to its throttled replicas.",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        long(0),
        LONG_MAX,
        "Bytes a second that a broker fetches for its throttled replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        long(0),
        LONG_MAX,
        "Bytes a second that a broker copies between its log directories, for all replicas that move.",
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num",
        integer(1),
        11,
        "Samples that measure copying between log directories.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds",
        integer(1),
        1,
        "Length of one of these samples.",
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        "num.replica.alter.log.dirs.threads",
        OPTIONAL_COUNT,
        None,
        "Replicas that are copied between log directories at the same time; as many as there are directories if not set.",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", integer(1), 30_000, "Limit of a request from this node to another."
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        integer(1),
        86_400_000,
        "Sequence numbers of a silent producer are forgotten after this time.",
    )
