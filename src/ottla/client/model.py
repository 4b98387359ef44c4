"""The client's answers: brokers, topics, partitions, replicas, fetched records. The names are those of Kafka's admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ottla.records.batch import Batch
from ottla.records.record import Record
from ottla.wire.messages import field


class BrokerInfo(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


class PartitionInfo(NamedTuple):
    topic: str
    partition: int
    leader: int
    """-1: no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)


class Topic(NamedTuple):
    name: str
    id: UUID | None
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class Reassignment(NamedTuple):
    """A partition that is being moved to other brokers."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """All replicas meanwhile: those of the target, then those that are removed at the end."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def goal(self) -> tuple[int, ...]:
        """Where it leads to."""
        return tuple(id for id in self.replicas if id not in self.removing)

    @property
    def start(self) -> tuple[int, ...]:
        """Where the replicas were, and are again if it is cancelled."""
        return tuple(id for id in self.replicas if id not in self.adding)


class Metadata(NamedTuple):
    cluster_id: str | None
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[Topic, ...]


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller: int
    brokers: tuple[BrokerInfo, ...]
    """Also the fenced ones, where the cluster says so."""


class QuorumReplica(NamedTuple):
    id: int
    log_end: int
    last_fetch_ms: int = -1
    """By the clock of the quorum's leader, as the next; -1: unknown. The leader's own are the time of the answer."""
    last_caught_up_ms: int = -1
    directory: UUID | None = None
    """None where voters are static, or the version of the answer does not say it."""
    listeners: tuple[tuple[str, str, int], ...] = ()
    """(name, host, port) of a voter"""


class QuorumInfo(NamedTuple):
    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    def voter(self, id: int) -> QuorumReplica | None:
        return next((voter for voter in self.voters if voter.id == id), None)

    def observer(self, id: int) -> QuorumReplica | None:
        """The one that fetched last, if there are several with this id: its disk may have been replaced."""
        found = [each for each in self.observers if each.id == id]
        return max(found, key=lambda each: each.last_fetch_ms, default=None)

    def can_change(self, features: Mapping[str, int]) -> bool:
        """Whether the voters are dynamic. The feature says it; static voters may have directories, too."""
        has_directories = all(voter.directory is not None for voter in self.voters)
        return has_directories and features.get("kraft.version", 0) >= 1

    def other_disk(self, id: int) -> QuorumReplica | None:
        """Of a voter whose node fetches with another disk than the one that votes: that node as it observes."""
        voter, found = self.voter(id), self.observer(id)
        if voter is None or found is None or found.last_fetch_ms <= voter.last_fetch_ms:
            return None
        return found

    def silent_ms(self, replica: QuorumReplica) -> int | None:
        """For how long it has not fetched. None: unknown, as of one that has not fetched from this leader."""
        leader = self.voter(self.leader)
        if leader is None or min(leader.last_fetch_ms, replica.last_fetch_ms) < 0:
            return None
        return max(0, leader.last_fetch_ms - replica.last_fetch_ms)


class Config(NamedTuple):
    name: str
    value: str | None
    is_default: bool
    read_only: bool
    sensitive: bool
    on_broker: bool = False
    """Set by a command, on this broker alone."""


class NewTopicAnswer(NamedTuple):
    """What the controller says of a topic that it creates, or would create."""

    factor: int | None
    """None: the version of the answer does not say it."""
    configs: dict[str, str | None]
    """The settings that count: its own and the cluster's."""


class ReplicaOffsets(NamedTuple):
    """The offsets of one replica."""

    log_start: int
    log_end: int
    high_watermark: int | None
    """None: the fetch that asks for it failed."""
    last_epoch: int = -1


class ReplicaInfo(NamedTuple):
    """One replica, as its broker describes it. None: the broker did not answer."""

    partition: int
    broker: int
    is_leader: bool
    in_sync: bool
    log_start: int | None
    log_end: int | None
    high_watermark: int | None
    lag: int | None
    """Records that the leader has and this replica does not have."""
    last_epoch: int = -1
    """The leader epoch of its last record. Only ottla says it: Kafka names the epoch of the leader."""


class TransactionMarker(NamedTuple):
    """The control record that ends a transaction in a partition's log."""

    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool


class FetchedRecords(NamedTuple):
    """The result of one fetch of a partition."""

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start: int
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the aborted transactions in it. Only when committed records are read."""
    batches: tuple[Batch, ...] = ()
    """As they came: the first may begin before the requested offset."""
    markers: tuple[TransactionMarker, ...] = ()
    closed: tuple[Batch, ...] = ()
    """Those with records that were too much to open, if that was limited."""

    @property
    def first_timestamp(self) -> int | None:
        """Of the first record, as far as its batch tells where that is closed; None if there is none."""
        first = self.records[0] if self.records else None
        batch = self.closed[0] if self.closed else None
        if batch is not None and (first is None or first.offset > batch.last_offset):
            return batch.max_timestamp if batch.log_append_time else batch.base_timestamp
        return None if first is None else first.timestamp


def metadata_of(answer: Any) -> Metadata:
    """From a Metadata response."""
    brokers = tuple(
        BrokerInfo(int(each.node_id), each.host, int(each.port), field(each, "rack", None))
        for each in answer.brokers
    )
    topics = tuple(
        Topic(
            topic.name,
            field(topic, "topic_id", None),
            bool(field(topic, "is_internal", False)),
            tuple(_partition(topic.name, each) for each in topic.partitions),
        )
        for topic in answer.topics
    )
    return Metadata(field(answer, "cluster_id", None), brokers, topics)


def _partition(topic: str, answer: Any) -> PartitionInfo:
    return PartitionInfo(
        topic,
        int(answer.partition_index),
        int(answer.leader_id),
        int(field(answer, "leader_epoch", -1)),
        tuple(int(id) for id in answer.replica_nodes),
        tuple(int(id) for id in answer.isr_nodes),
        tuple(int(id) for id in field(answer, "offline_replicas", ())),
    )
