"""The cluster as its controllers see it, and this node's place in the metadata quorum.

The figures of the whole cluster are given by the active controller alone; the others give 0. So a sum over all nodes is
right, whoever is active.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.observability.observed import ObservedNode
from ottla.events import Event
from ottla.events.controller import BrokerFenced, ElectionKind, FenceCause, LeaderElected
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import NO_LEADER
from ottla.metrics.families import Family, Labels, MetricKind, Sample, counter, gauge
from ottla.raft.roles import RaftRole

CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"
COUNTED_AT_ONCE = 100
"""Topics."""
UNKNOWN = -1
OF_BROKERS = {
    "leaders": ("Partitions that a broker leads.", "leaders"),
    "replicas": ("Replicas of a broker.", "replicas"),
    "disk_bytes": ("Bytes of all logs of a broker.", "disk_bytes"),
    "disk_free_bytes": ("Free bytes of a broker's disks.", "disk_free"),
}
RATES_OF_BROKERS = {
    "bytes_in_per_second": ("Bytes that a broker writes as leader.", "bytes_in"),
    "bytes_out_per_second": ("Bytes that a broker sends to consumers.", "bytes_out"),
    "copied_in_per_second": ("Bytes that a broker copies from leaders.", "copied_in"),
    "copied_out_per_second": ("Bytes that a broker sends to followers.", "copied_out"),
    "cpu": ("Processor time of a broker; 1 is one processor.", "cpu"),
    "disk_growth_bytes_per_second": ("Bytes by which a broker's logs grow.", "disk_growth"),
}
RATE_WINDOW_S = 60.0


class ClusterCounts(NamedTuple):
    partitions: int = 0
    offline: int = 0
    not_preferred: int = 0
    """Partitions whose leader is not their first replica."""


class ClusterMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._counted: Mapping[str, Any] | None = None
        self._counts = ClusterCounts()
        self._ends: deque[tuple[float, int]] = deque()
        """(time, end of the metadata log) at the scrapes of the last minute."""
        self._elections = dict.fromkeys(ElectionKind, 0)
        self._fencings = dict.fromkeys(FenceCause, 0)

    def note(self, event: Event) -> None:
        """Subscribed to the node's events."""
        if isinstance(event, LeaderElected):
            self._elections[event.kind] += 1
        elif isinstance(event, BrokerFenced):
            self._fencings[event.cause] += 1

    def collect(self) -> Iterator[Family | None]:
        quorum = self._node.quorum
        if quorum is None:
            return
        if self._node.controller is not None:
            yield from self._controller(quorum)
        yield from self._quorum(quorum)
        yield from self._metadata(quorum)

    def _count(self, image: MetadataImage) -> Iterator[None]:
        """Only what changed is counted anew: an image shares what did not change with the one before it."""
        if self._counted is image.topics:
            return
        partitions = offline = not_preferred = 0
        for number, topic in enumerate(image.topics.values()):
            partitions += len(topic.partitions)
            for partition in topic.partitions:
                leader = partition.leader
                if leader == NO_LEADER:
                    offline += 1
                elif leader != partition.replicas[0]:
                    not_preferred += 1
            if number % COUNTED_AT_ONCE == COUNTED_AT_ONCE - 1:
                yield
        self._counted = image.topics
        self._counts = ClusterCounts(partitions, offline, not_preferred)

    def _loads(self, image: MetadataImage) -> Iterator[Family]:
        """What each broker carries. Only the active controller knows it."""
        assert self._node.controller is not None
        loads = self._node.controller.loads()
        labels = {
            id: Labels(broker=str(id), rack=image.brokers[id].rack or "")
            for id in loads
            if id in image.brokers
        }
        for name, (help, attribute) in OF_BROKERS.items():
            samples = [Sample(who, getattr(loads[id], attribute)) for id, who in labels.items()]
            yield Family(f"ottla_broker_{name}", MetricKind.GAUGE, help, samples)
        for name, (help, attribute) in RATES_OF_BROKERS.items():
            yield Family(
                f"ottla_broker_{name}",
                MetricKind.GAUGE,
                f"{help} By the window: the last minute, hour or day.",
                [
                    Sample(who.also(window=window), getattr(rates, attribute))
                    for id, who in labels.items()
                    for window, rates in loads[id].rates.items()
                ],
            )

    def _controller(self, quorum: RaftDriver) -> Iterator[Family | None]:
        image = quorum.image
        active = quorum.is_active
        counts, brokers, topics = ClusterCounts(), 0, 0
        fenced = 0
        if active:
            yield from self._count(image)
            counts = self._counts
            fenced = sum(broker.fenced for broker in image.brokers.values())
            brokers, topics = len(image.brokers) - fenced, len(image.topics)
        figures = {
            "activecontrollercount": ("1 on the active controller.", int(active)),
            "activebrokercount": ("Registered brokers that are not fenced.", brokers),
            "fencedbrokercount": ("Registered brokers that are fenced.", fenced),
            "globaltopiccount": ("Topics of the cluster.", topics),
            "globalpartitioncount": ("Partitions of the cluster.", counts.partitions),
            "offlinepartitionscount": ("Partitions without a leader.", counts.offline),
            "preferredreplicaimbalancecount": (
                "Partitions whose leader is not their first replica.",
                counts.not_preferred,
            ),
        }
        for name, (help, value) in figures.items():
            yield gauge(f"{CONTROLLER}_{name}", help, value)
        if active:
            yield gauge("kafka_brokers", "Registered brokers that are not fenced.", brokers)
        yield from self._loads(image)
        yield gauge(
            f"{CONTROLLER}_lastappliedrecordoffset",
            "Offset of the last metadata record that this controller has applied.",
            image.offset,
        )
        yield gauge(
            f"{CONTROLLER}_lastcommittedrecordoffset",
            "Offset of the last metadata record that this controller knows to be committed.",
            quorum.raft.high_watermark - 1,
        )
        unclean = self._elections[ElectionKind.UNCLEAN]
        yield counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Elections of a replica that may lack committed records, decided by this controller.",
            unclean + self._elections[ElectionKind.LAST_KNOWN_LEADER],
        )
        yield Family(
            "ottla_elections_total",
            MetricKind.COUNTER,
            "Elections of partition leaders decided by this controller, by kind.",
            [
                Sample(Labels(kind=kind.name.lower()), count)
                for kind, count in self._elections.items()
            ],
        )
        yield Family(
            "ottla_brokers_fenced_total",
            MetricKind.COUNTER,
            "Brokers that this controller fenced, by cause.",
            [
                Sample(Labels(cause=cause.name.lower()), count)
                for cause, count in self._fencings.items()
            ],
        )

    def _quorum(self, quorum: RaftDriver) -> Iterator[Family]:
        raft = quorum.raft
        yield Family(
            f"{RAFT}_current_state",
            MetricKind.GAUGE,
            "1 with the state of this node in the metadata quorum as a label.",
            [Sample(Labels(current_state=_state(quorum)), 1)],
        )
        voted = raft.state.voted
        figures = {
            "current_leader": (
                "Id of the leader of the quorum; -1: unknown.",
                UNKNOWN if raft.leader is None else raft.leader,
            ),
            "current_vote": (
                "Id of the voter that this node voted for in this epoch; -1: none.",
                UNKNOWN if voted is None else voted.id,
            ),
            "current_epoch": ("Epoch of the quorum.", raft.epoch),
            "high_watermark": ("Up to here metadata is committed.", raft.high_watermark),
            "log_end_offset": ("End of this node's metadata log.", raft.journal.log_end),
            "log_end_epoch": (
                "Epoch of the last metadata record that was applied.",
                quorum.image.epoch,
            ),
            "number_of_voters": ("Voters of the quorum.", len(quorum.voters.voters)),
        }
        for name, (help, value) in figures.items():
            yield gauge(f"{RAFT}_{name}", help, value)
        rate = self._records_per_second(raft.journal.log_end)
        leads = raft.role is RaftRole.LEADER
        yield gauge(
            f"{RAFT}_append_records_rate",
            "Metadata records a second that this node wrote as leader, over the last minute.",
            rate if leads else 0.0,
        )
        yield gauge(
            f"{RAFT}_fetch_records_rate",
            "Metadata records a second that this node fetched, over the last minute.",
            0.0 if leads else rate,
        )
        leader_state = raft.leader_state
        if leader_state is not None:
            end = raft.journal.log_end
            replicas = [*leader_state.voters.values(), *leader_state.observers.values()]
            yield Family(
                "ottla_quorum_replica_lag_records",
                MetricKind.GAUGE,
                "Metadata records that a voter or observer lacks, as the leader of the quorum knows.",
                [
                    Sample(Labels(replica=str(each.key.id)), end - (each.end_offset or 0))
                    for each in {each.key.id: each for each in replicas}.values()
                ],
            )

    def _records_per_second(self, log_end: int) -> float:
        now, ends = self._node.runtime.clock.monotonic(), self._ends
        ends.append((now, log_end))
        while now - ends[0][0] > RATE_WINDOW_S:
            ends.popleft()
        passed_s = now - ends[0][0]
        return max(0.0, (log_end - ends[0][1]) / passed_s) if passed_s else 0.0

    def _metadata(self, quorum: RaftDriver) -> Iterator[Family]:
        prefix = "kafka_server_brokermetadatametrics"
        behind_ms = self._node.runtime.clock.wall_ms() - quorum.image_timestamp_ms
        yield gauge(
            f"{prefix}_last_applied_record_offset",
            "Offset of the last metadata record that this node has applied.",
            quorum.image.offset,
        )
        yield gauge(
            f"{prefix}_last_applied_record_timestamp",
            "When that record was written, Unix milliseconds.",
            quorum.image_timestamp_ms,
        )
        yield gauge(
            f"{prefix}_last_applied_record_lag_ms",
            "Age of that record. The active controller writes one at least every metadata.max.idle.interval.ms.",
            max(0, behind_ms),
        )
        yield gauge(
            "ottla_metadata_lag_records",
            "Committed metadata records that this node has not applied yet.",
            max(0, quorum.raft.high_watermark - 1 - quorum.image.offset),
        )


def _state(quorum: RaftDriver) -> str:
    """Kafka's word for it."""
    raft = quorum.raft
    if raft.role is RaftRole.FOLLOWER and not raft.is_voter:
        return "observer"
    return raft.role.value.lower()
