"""The replicas of a broker, what goes in and out of them, and who waits for them; under Kafka's names.

Everything is read when somebody asks. What is counted over all replicas is counted in slices. Topics and replicas have
series of their own up to a limit each: the first ones that came to this broker. All of them are in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter

from ottla.broker.cluster.lifecycle import BrokerState
from ottla.broker.observability.observed import ObservedBroker, ObservedNode
from ottla.config.values import join_address
from ottla.events import Event
from ottla.events.replication import IsrDecided, LogRestarted, ProduceTimedOut, Truncated
from ottla.metadata.image import MetadataImage
from ottla.metrics.families import NO_LABELS, Family, Labels, MetricKind, Sample, counter, gauge
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.replica.traffic import TopicTraffic, Traffic
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

KAFKA_STATES = {
    BrokerState.NOT_RUNNING: 0,
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
REPLICA_MANAGER = "kafka_server_replicamanager"
TOPICS = "kafka_server_brokertopicmetrics"
COUNTED_AT_ONCE = 250
"""Replicas; about a quarter of a millisecond."""

OF_TOPICS = {
    "messagesin": ("Records written as leader.", "messages_in"),
    "bytesin": ("Bytes written as leader.", "bytes_in"),
    "bytesout": ("Bytes sent to consumers.", "bytes_out"),
    "bytesrejected": ("Bytes of batches that were too large.", "bytes_rejected"),
    "totalproducerequests": ("Partitions in produce requests.", "produces"),
    "failedproducerequests": ("Those of them that were refused.", "failed_produces"),
    "totalfetchrequests": ("Partitions in answers to fetches.", "fetches"),
    "failedfetchrequests": ("Those of them that were refused.", "failed_fetches"),
}
OF_ALL_TOPICS = {
    "replicationbytesin": ("Bytes copied from leaders.", "replication_bytes_in"),
    "replicationbytesout": ("Bytes sent to followers.", "replication_bytes_out"),
}


def _is_preferred(partition: Partition) -> int:
    return int(partition.replicas[0] == partition.leader)


def _is_under_replicated(partition: Partition) -> int:
    return int(len(partition.isr) < len(partition.replicas))


def _is_at_min_isr(partition: Partition) -> int:
    return int(len(partition.isr) == partition.min_isr)


OF_REPLICAS: dict[str, tuple[str, Callable[[Partition], int]]] = {
    "kafka_log_log_size": ("Bytes of a replica's log.", attrgetter("log.size_bytes")),
    "kafka_log_log_logstartoffset": ("First offset of a log.", attrgetter("log.log_start")),
    "kafka_log_log_logendoffset": ("Next offset of a log.", attrgetter("log.log_end")),
    "kafka_log_log_numlogsegments": (
        "Segments of a log.",
        lambda partition: len(partition.log.segments),
    ),
}
OF_LED: dict[str, tuple[str, Callable[[Partition], int]]] = {
    "kafka_cluster_partition_replicascount": (
        "Replicas of a led partition.",
        lambda partition: len(partition.replicas),
    ),
    "kafka_cluster_partition_insyncreplicascount": (
        "Replicas in the ISR of a led partition.",
        lambda partition: len(partition.isr),
    ),
    "kafka_cluster_partition_underreplicated": (
        "1 if a replica of a led partition is not in the ISR.",
        _is_under_replicated,
    ),
    "kafka_cluster_partition_underminisr": (
        "1 if the ISR of a led partition is smaller than min.insync.replicas.",
        lambda partition: int(partition.is_under_min_isr),
    ),
    "kafka_cluster_partition_atminisr": (
        "1 if the ISR of a led partition is as large as min.insync.replicas.",
        _is_at_min_isr,
    ),
    "kafka_cluster_partition_laststableoffsetlag": (
        "Committed records above the last stable offset of a led partition: transactions are open.",
        lambda partition: partition.log.high_watermark - partition.log.last_stable_offset,
    ),
    "kafka_topic_partition_current_offset": (
        "High watermark of a led partition.",
        attrgetter("log.high_watermark"),
    ),
    "kafka_topic_partition_oldest_offset": (
        "First offset of a led partition.",
        attrgetter("log.log_start"),
    ),
    "kafka_topic_partition_replicas": (
        "Replicas of a led partition.",
        lambda partition: len(partition.replicas),
    ),
    "kafka_topic_partition_in_sync_replica": (
        "Replicas in the ISR of a led partition.",
        lambda partition: len(partition.isr),
    ),
    "kafka_topic_partition_leader": ("Id of the leader.", attrgetter("leader")),
    "kafka_topic_partition_leader_is_preferred": (
        "1 if the first replica leads.",
        _is_preferred,
    ),
    "kafka_topic_partition_under_replicated_partition": (
        "1 if a replica of a led partition is not in the ISR.",
        _is_under_replicated,
    ),
}


class Counted:
    """Over all replicas."""

    __slots__ = (
        "at_min",
        "lag_max",
        "led",
        "open",
        "reassigning",
        "size",
        "under",
        "under_min",
    )

    def __init__(self) -> None:
        self.led = self.under = self.under_min = self.at_min = 0
        self.reassigning = self.open = self.lag_max = self.size = 0

    def add(self, partition: Partition, image: MetadataImage) -> None:
        log = partition.log
        self.size += log.size_bytes
        if partition.leadership is None:
            if partition.role is Role.FOLLOWER:
                lag = partition.leader_high_watermark - log.log_end
                if lag > self.lag_max:
                    self.lag_max = lag
            return
        self.led += 1
        in_sync, replicas = len(partition.isr), len(partition.replicas)
        if in_sync < replicas:
            self.under += 1
        minimum = min(log.config.min_insync_replicas, replicas)
        if in_sync < minimum:
            self.under_min += 1
        elif in_sync == minimum:
            self.at_min += 1
        self.open += log.producers.open_transactions
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is not None:
            decided = topic.partitions[partition.partition]
            if decided.adding or decided.removing:
                self.reassigning += 1


class ReplicaMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._labels: dict[TopicPartition, Labels] = {}
        self._topic_labels: dict[str, Labels] = {}
        self._shrinks = self._expands = self._failed_updates = 0
        self._truncations = self._truncated_records = self._truncated_committed = 0
        self._timed_out = 0

    def note(self, event: Event) -> None:
        """Subscribed to the node's events."""
        if isinstance(event, IsrDecided):
            if event.error is not ErrorCode.NONE:
                self._failed_updates += 1
            elif len(event.proposed) < len(event.isr):
                self._shrinks += 1
            else:
                self._expands += 1
        elif isinstance(event, Truncated):
            self._truncations += 1
            self._truncated_records += event.end_offset - event.first_offset
            self._truncated_committed += max(0, event.committed_end - event.first_offset)
        elif isinstance(event, LogRestarted):
            self._truncations += 1
        elif isinstance(event, ProduceTimedOut):
            self._timed_out += 1

    def collect(self) -> Iterator[Family | None]:
        broker = self._node.broker
        if broker is None:
            return
        yield gauge(
            "kafka_server_kafkaserver_brokerstate",
            "0 not running, 1 starting, 2 recovering, 3 running, 6 handing over, 7 stopping.",
            KAFKA_STATES[broker.lifecycle.state],
        )
        settings = self._node.settings
        address = self._node.endpoints[settings.inter_broker_listener_name or ""]
        yield gauge(
            "kafka_broker_info",
            "1 with this broker's id and address.",
            1,
            Labels(id=str(settings.node_id), address=join_address(address.host, address.port)),
        )
        yield from self._sums(broker)
        yield from self._waiting(broker)
        yield from self._traffic(broker)
        yield from self._each(broker)

    def _sums(self, broker: ObservedBroker) -> Iterator[Family | None]:
        replicas = broker.replicas
        partitions = list(replicas.partitions.values())
        counted = Counted()
        for number, partition in enumerate(partitions, 1):
            counted.add(partition, replicas.image)
            if number % COUNTED_AT_ONCE == 0:
                yield None
        placement = replicas.placement
        figures = {
            "partitioncount": ("Replicas on this broker.", len(partitions)),
            "leadercount": ("Partitions that this broker leads.", counted.led),
            "offlinereplicacount": (
                "Replicas whose log directory failed, or whose data is lost.",
                len(placement.offline) + len(placement.lost),
            ),
            "underreplicatedpartitions": (
                "Led partitions with a replica outside of the ISR.",
                counted.under,
            ),
            "underminisrpartitioncount": (
                "Led partitions whose ISR is smaller than min.insync.replicas: they refuse acks=all.",
                counted.under_min,
            ),
            "atminisrpartitioncount": (
                "Led partitions whose ISR is as large as min.insync.replicas.",
                counted.at_min,
            ),
            "reassigningpartitions": ("Led partitions that are being moved.", counted.reassigning),
        }
        for name, (help, value) in figures.items():
            yield gauge(f"{REPLICA_MANAGER}_{name}", help, value)
        events = {
            "isrshrinks": ("Times that a leader here took a replica out of an ISR.", self._shrinks),
            "isrexpands": ("Times that a leader here took a replica into an ISR.", self._expands),
            "failedisrupdates": (
                "Changes of an ISR that the controller refused.",
                self._failed_updates,
            ),
        }
        for name, (help, value) in events.items():
            yield counter(f"{REPLICA_MANAGER}_{name}_total", help, value)
        yield gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Committed records that the replica here lacks that is farthest behind its leader.",
            counted.lag_max,
            Labels(clientId="Replica"),
        )
        yield gauge("ottla_log_bytes", "Bytes of all logs of this broker.", counted.size)
        yield gauge(
            "ottla_partition_transactions_open",
            "Transactions that are open in partitions led here; one counts in each of its partitions.",
            counted.open,
        )
        yield counter(
            "ottla_truncations_total",
            "Times that a follower here truncated its log.",
            self._truncations,
        )
        yield counter(
            "ottla_truncated_records_total",
            "Records that followers here truncated.",
            self._truncated_records,
        )
        yield counter(
            "ottla_truncated_committed_records_total",
            "Those of them that the follower knew to be committed: data loss after an unclean election.",
            self._truncated_committed,
        )
        yield counter(
            "ottla_produce_timeouts_total",
            "Requests with acks=all that were not committed within the client's timeout.",
            self._timed_out,
        )

    def _waiting(self, broker: ObservedBroker) -> Iterator[Family]:
        fetches = broker.fetches
        purgatory = {
            "Produce": broker.replicas.purgatory.waiting_for_commits,
            "Fetch": fetches.parked,
        }
        yield Family(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            MetricKind.GAUGE,
            "Requests that wait: produces for their commit, fetches for records.",
            [Sample(Labels(delayedOperation=name), count) for name, count in purgatory.items()],
        )
        yield gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Fetch sessions.",
            fetches.sessions,
        )
        yield counter(
            "ottla_page_cache_misses_total",
            "Reads of records that were not in the page cache, and were done in a thread.",
            fetches.cold_reads.count,
        )
        yield counter(
            "ottla_page_cache_miss_bytes_total", "Bytes of these reads.", fetches.cold_reads.bytes
        )

    def _traffic(self, broker: ObservedBroker) -> Iterator[Family]:
        replicas = broker.replicas
        known = replicas.topic_traffic
        shown = list(islice(known.items(), self._node.settings.ottla_metrics_topics_max))
        if len(self._topic_labels) > 2 * len(shown):
            self._topic_labels.clear()
        labelled = [(self._topic(name), traffic) for name, traffic in shown]
        for name, (help, attribute) in OF_TOPICS.items():
            yield Family(
                f"{TOPICS}_{name}_total",
                MetricKind.COUNTER,
                f"{help} Without a topic: of all topics.",
                _of_topics(replicas.traffic, labelled, attribute),
            )
        for name, (help, attribute) in OF_ALL_TOPICS.items():
            yield counter(f"{TOPICS}_{name}_total", help, getattr(replicas.traffic, attribute))
        yield gauge(
            "ottla_metrics_topics_left_out",
            "Topics without series of their own (ottla.metrics.topics.max).",
            max(0, len(known) - len(shown)),
        )

    def _topic(self, name: str) -> Labels:
        found = self._topic_labels.get(name)
        if found is None:
            found = self._topic_labels[name] = Labels(topic=name)
        return found

    def _each(self, broker: ObservedBroker) -> Iterator[Family | None]:
        partitions = broker.replicas.partitions
        limit = self._node.settings.ottla_metrics_partitions_max
        shown = list(islice(partitions.values(), limit))
        yield gauge(
            "ottla_metrics_partitions_left_out",
            "Replicas without series of their own (ottla.metrics.partitions.max).",
            max(0, len(partitions) - len(shown)),
        )
        if len(self._labels) > 2 * len(shown):
            self._labels.clear()
        labelled: list[tuple[Labels, Partition]] = []
        for number, partition in enumerate(shown, 1):
            labelled.append((self._partition(partition.key), partition))
            if number % COUNTED_AT_ONCE == 0:
                yield None
        for name, (help, value) in OF_REPLICAS.items():
            yield Family(name, MetricKind.GAUGE, help, _of_partitions(labelled, value))
        led = [each for each in labelled if each[1].leadership is not None]
        for name, (help, value) in OF_LED.items():
            yield Family(name, MetricKind.GAUGE, help, _of_partitions(led, value))
        yield Family(
            "kafka_server_fetcherlagmetrics_consumerlag",
            MetricKind.GAUGE,
            "Committed records that a follower here lacks.",
            (
                Sample(labels, max(0, partition.leader_high_watermark - partition.log.log_end))
                for labels, partition in labelled
                if partition.role is Role.FOLLOWER
            ),
        )
        topics = broker.replicas.image.topics
        yield Family(
            "kafka_topic_partitions",
            MetricKind.GAUGE,
            "Partitions of a topic, given by the leader of its first.",
            [
                Sample(self._topic(partition.topic), len(topics[partition.topic].partitions))
                for _, partition in led
                if partition.partition == 0 and partition.topic in topics
            ],
        )

    def _partition(self, key: TopicPartition) -> Labels:
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = Labels(topic=key.topic, partition=str(key.partition))
        return found


def _of_topics(
    every: Traffic, labelled: list[tuple[Labels, TopicTraffic]], attribute: str
) -> Iterator[Sample]:
    value = attrgetter(attribute)
    yield Sample(NO_LABELS, value(every))
    for labels, traffic in labelled:
        yield Sample(labels, value(traffic))


def _of_partitions(
    labelled: list[tuple[Labels, Partition]], value: Callable[[Partition], int]
) -> Iterator[Sample]:
    for labels, partition in labelled:
        yield Sample(labels, value(partition))
