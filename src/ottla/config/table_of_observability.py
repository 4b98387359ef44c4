"""What can be seen of a node: metrics, the event log, its own log."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import setting
from ottla.config.values import BOOLEAN, HTTP_LISTENERS, ListenerAddress, choice, integer, long


@dataclass(frozen=True, eq=False, repr=False)
class ObservabilitySettings:
    # Seeing into it
    ottla_metrics_without_login: bool = setting(
        "ottla.metrics.without.login",
        BOOLEAN,
        False,
        "Whether a node with an authorizer, TLS or SASL shows /metrics to everybody who reaches metrics.listeners. Else only "
        "on loopback addresses.",
    )
    metrics_listeners: tuple[ListenerAddress, ...] = setting(
        "metrics.listeners",
        HTTP_LISTENERS,
        (),
        "Where metrics and health are served, as HTTP://host:port (empty: nowhere). Paths: /metrics, /livez, /readyz.",
    )
    ottla_metrics_topics_max: int = setting(
        "ottla.metrics.topics.max",
        integer(0),
        1_000,
        "Topics with metrics of their own. The others count in the sums.",
    )
    ottla_metrics_partitions_max: int = setting(
        "ottla.metrics.partitions.max",
        integer(0),
        2_000,
        "Replicas with metrics of their own (size, offsets, ISR). The others count in the sums.",
    )
    ottla_metrics_group_partitions_max: int = setting(
        "ottla.metrics.group.partitions.max",
        integer(0),
        10_000,
        "Committed offsets (a group's in a partition) whose lag one scrape may ask for. The others are counted.",
    )

    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes", integer(1), 1_048_576, "Largest push of a client's metrics."
    )
    ottla_client_metrics_clients_max: int = setting(
        "ottla.client.metrics.clients.max",
        integer(0),
        1_000,
        "Clients whose pushed metrics one broker shows. What others push is counted and dropped.",
    )

    # The node's log
    ottla_log_format: str = setting(
        "ottla.log.format",
        choice("text", "json"),
        "text",
        "Lines of the node's log: a text and key=value, or one JSON object each.",
    )
    ottla_log_file_max_bytes: int = setting(
        "ottla.log.file.max.bytes",
        long(0),
        10 << 20,
        "Size at which node.log is rotated; 0: never. Of nodes that ottla up starts.",
    )
    ottla_log_file_backups: int = setting(
        "ottla.log.file.backups", integer(0), 5, "Rotated files to keep: node.log.1 is the newest."
    )
