"""The groups that this broker coordinates: their offsets, members, state, and lag in records and in seconds.

The names are those of two exporters that many dashboards were made for: kafka_exporter (label `consumergroup`) and
kafka-lag-exporter (labels `cluster_name` and `group`). Both count records up to the high watermark. Their seconds are
estimated; these are the age of a record (`coordination.group_lag`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.coordination.group_lag import GroupLagMeter, LagReport, TopicLag
from ottla.broker.coordination.offset_lag import OffsetLag, PartitionLeaders, seconds_behind
from ottla.broker.observability.observed import ObservedBroker, ObservedNode
from ottla.metrics.families import Family, Labels, MetricKind, Sample, gauge

EXPORTER = "kafka_consumergroup"
LAG_EXPORTER = "kafka_consumergroup_group"


T = TypeVar("T")


class _Labelled(Generic[T]):
    """Values with their labels, which are made when they are first gone through: there may be thousands, and families are
    written in slices."""

    def __init__(self, pairs: Iterator[tuple[Labels, T]]) -> None:
        self._to_come = pairs
        self._made: list[tuple[Labels, T]] = []

    def __iter__(self) -> Iterator[tuple[Labels, T]]:
        yield from self._made
        for pair in self._to_come:
            self._made.append(pair)
            yield pair


class GroupMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._meter: GroupLagMeter | None = None
        self._peers: BrokerChannels | None = None
        self._report: LagReport | None = None

    async def prepare(self) -> None:
        broker = self._node.broker
        self._report = None
        if broker is not None and broker.is_serving:
            self._report = await self._meter_of(broker).report()

    def _meter_of(self, broker: ObservedBroker) -> GroupLagMeter:
        if self._meter is None:
            settings, runtime = self._node.settings, self._node.to_brokers
            listener = settings.inter_broker_listener_name or ""
            self._peers = BrokerChannels(
                runtime.network,
                broker.cluster,
                listener,
                f"broker-{settings.node_id}-group-lag",
            )
            self._meter = GroupLagMeter(
                runtime.clock,
                broker.coordination,
                broker.cluster,
                PartitionLeaders(settings.node_id, broker.replicas, broker.cluster, self._peers),
                settings.ottla_metrics_group_partitions_max,
            )
        return self._meter

    def close(self) -> None:
        if self._meter is not None and self._peers is not None:
            self._meter.stop()
            self._peers.stop()

    def collect(self) -> Iterator[Family]:
        broker, report = self._node.broker, self._report
        if broker is not None and report is not None:
            now_ms = self._node.runtime.clock.wall_ms()
            yield from families(report, broker.cluster_id, now_ms)


def families(report: LagReport, cluster_id: str, now_ms: int) -> Iterator[Family]:
    yield from _as_kafka_exporter(report)
    yield from _as_kafka_lag_exporter(report, cluster_id, now_ms)
    yield Family(
        "ottla_consumergroup_lag_seconds",
        MetricKind.GAUGE,
        "Age of the first record that the group has not read, by the isolation level of its consumers.",
        _by_isolation_level(report, now_ms),
    )
    yield Family(
        "ottla_consumergroup_state",
        MetricKind.GAUGE,
        "1 for the state that the group is in.",
        (
            Sample(Labels(consumergroup=group.id, type=group.type, state=group.state), 1)
            for group in report.groups
        ),
    )
    yield gauge(
        "ottla_consumergroup_lag_unknown",
        "Committed offsets whose lag is not known, because no leader answered.",
        report.unknown,
    )
    yield gauge(
        "ottla_consumergroup_lag_left_out",
        "Committed offsets beyond ottla.metrics.group.partitions.max, whose lag was not asked for.",
        report.left_out,
    )


def _as_kafka_exporter(report: LagReport) -> Iterator[Family]:
    places = _Labelled(
        (Labels(consumergroup=group.id, **_place(lag)), lag)
        for group in report.groups
        for lag in group.partitions
    )
    topics = _Labelled(
        (Labels(consumergroup=group.id, topic=topic), lag)
        for group in report.groups
        for topic, lag in group.topics.items()
    )

    def family(name: str, help: str, samples: Iterator[Sample]) -> Family:
        return Family(f"{EXPORTER}_{name}", MetricKind.GAUGE, help, samples)

    yield family(
        "current_offset",
        "Offset that the group has committed.",
        (Sample(labels, lag.committed) for labels, lag in places),
    )
    yield family(
        "current_offset_sum",
        "Sum of the offsets that the group has committed in the topic.",
        (Sample(labels, lag.committed) for labels, lag in topics),
    )
    yield family(
        "lag",
        "High watermark minus committed offset.",
        (Sample(labels, lag.records) for labels, lag in places),
    )
    yield family(
        "lag_sum",
        "Sum of the group's lag in the topic.",
        (Sample(labels, lag.records) for labels, lag in topics),
    )
    yield family(
        "members",
        "Members of the group.",
        (Sample(Labels(consumergroup=group.id), group.members) for group in report.groups),
    )


def _as_kafka_lag_exporter(report: LagReport, cluster_id: str, now_ms: int) -> Iterator[Family]:
    groups = _Labelled(
        (Labels(cluster_name=cluster_id, group=group.id), group)
        for group in report.groups
        if group.partitions
    )
    places = _Labelled(
        (labels.also(**_place(lag)), lag) for labels, group in groups for lag in group.partitions
    )

    def family(name: str, help: str, samples: Iterator[Sample]) -> Family:
        return Family(f"{LAG_EXPORTER}_{name}", MetricKind.GAUGE, help, samples)

    def each_group(value: Callable[[Collection[TopicLag]], float]) -> Iterator[Sample]:
        return (Sample(labels, value(group.topics.values())) for labels, group in groups)

    def largest_seconds(topics: Collection[TopicLag]) -> float:
        oldest = [topic.oldest_ms for topic in topics if topic.oldest_ms is not None]
        return max(0.0, (now_ms - min(oldest)) / 1000) if oldest else 0.0

    yield family(
        "offset",
        "Offset that the group has committed.",
        (Sample(labels, lag.committed) for labels, lag in places),
    )
    yield family(
        "lag",
        "High watermark minus committed offset.",
        (Sample(labels, lag.records) for labels, lag in places),
    )
    yield family(
        "lag_seconds",
        "Age of the first record that the group has not read.",
        _known((labels, seconds_behind(lag.unread, now_ms)) for labels, lag in places),
    )
    yield family(
        "max_lag",
        "The largest lag of the group in a partition.",
        each_group(lambda topics: max(topic.largest for topic in topics)),
    )
    yield family(
        "max_lag_seconds",
        "The largest lag of the group in a partition, in seconds.",
        each_group(largest_seconds),
    )
    yield family(
        "sum_lag",
        "Sum of the group's lag in all partitions.",
        each_group(lambda topics: sum(topic.records for topic in topics)),
    )
    yield family(
        "topic_sum_lag",
        "Sum of the group's lag in the topic.",
        (
            Sample(labels.also(topic=topic), lag.records)
            for labels, group in groups
            for topic, lag in group.topics.items()
        ),
    )


def _by_isolation_level(report: LagReport, now_ms: int) -> Iterator[Sample]:
    for group in report.groups:
        for lag in group.partitions:
            labels = Labels(consumergroup=group.id, **_place(lag))
            yield from _known(
                (labels.also(isolation_level=level), seconds_behind(unread, now_ms))
                for level, unread in (
                    ("read_uncommitted", lag.unread),
                    ("read_committed", lag.unread_committed),
                )
            )


def _known(samples: Iterator[tuple[Labels, float | None]]) -> Iterator[Sample]:
    return (Sample(labels, value) for labels, value in samples if value is not None)


def _place(lag: OffsetLag) -> dict[str, str]:
    return {"topic": lag.partition.topic, "partition": str(lag.partition.partition)}
