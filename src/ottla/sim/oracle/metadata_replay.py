"""The committed metadata records, read a second time without the product's code.

This is as simple as possible: dictionaries, changed record by record. After each committed batch the product's image must
be the same in all that the batch touched (M6). What the oracle concludes from the metadata (M8, M9, which brokers are
alive, how many in-sync replicas are required) is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from ottla.metadata import records as r
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import MetadataRecord

ELR_FEATURE = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True)
class ReplayedBroker:
    epoch: int
    incarnation: UUID
    directories: tuple[UUID, ...]
    fenced: bool
    leaving: bool


@dataclass(frozen=True)
class ReplayedPartition:
    """The state of a partition after its last record."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery: int


@dataclass
class Touched:
    """What the records of a batch changed, each once, in their order."""

    partitions: dict[tuple[UUID, int], None] = field(default_factory=dict)
    brokers: dict[int, None] = field(default_factory=dict)
    configs: dict[tuple[int, str], None] = field(default_factory=dict)


class MetadataReplay:
    """The state of the cluster after the records so far."""

    def __init__(self) -> None:
        self.brokers: dict[int, ReplayedBroker] = {}
        self.names: dict[UUID, str] = {}
        self.partitions: dict[tuple[UUID, int], ReplayedPartition] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self._former_ids: dict[UUID, str] = {}
        self._broker_epochs: dict[int, int] = {}
        self._held_back: list[MetadataRecord] | None = None
        """The records of a metadata transaction that has not ended."""

    # What the records say

    def apply(self, records: Iterable[MetadataRecord]) -> Touched:
        touched = Touched()
        for record in records:
            if isinstance(record, r.BeginTransactionRecord):
                self._held_back = []
            elif isinstance(record, r.AbortTransactionRecord):
                self._held_back = None
            elif isinstance(record, r.EndTransactionRecord):
                held_back, self._held_back = self._held_back or [], None
                for each in held_back:
                    self._take(each, touched)
            elif self._held_back is not None:
                self._held_back.append(record)
            else:
                self._take(record, touched)
        return touched

    def _take(self, record: MetadataRecord, touched: Touched) -> None:
        match record:
            case r.TopicRecord() | r.RemoveTopicRecord() | r.ClearElrRecord():
                self._take_topic(record, touched)
            case r.PartitionRecord() | r.PartitionChangeRecord():
                key = (record.topic_id, record.partition_id)
                self.partitions[key] = (
                    _decided(record)
                    if isinstance(record, r.PartitionRecord)
                    else _changed(self.partitions[key], record)
                )
                touched.partitions[key] = None
            case r.RegisterBrokerRecord():
                self.brokers[record.broker_id] = ReplayedBroker(
                    record.broker_epoch,
                    record.incarnation_id,
                    record.log_dirs,
                    record.fenced,
                    record.in_controlled_shutdown,
                )
                touched.brokers[record.broker_id] = None
            case r.BrokerRegistrationChangeRecord(broker_id=id):
                was = self.brokers[id]
                fenced = {-1: False, 0: was.fenced, 1: True}[record.fenced]
                leaving = was.leaving or record.in_controlled_shutdown == 1
                directories = record.log_dirs or was.directories
                self.brokers[id] = replace(
                    was, fenced=fenced, leaving=leaving, directories=directories
                )
                touched.brokers[id] = None
            case r.FenceBrokerRecord(id=id) | r.UnfenceBrokerRecord(id=id):
                fences = isinstance(record, r.FenceBrokerRecord)
                self.brokers[id] = replace(self.brokers[id], fenced=fences)
                touched.brokers[id] = None
            case r.UnregisterBrokerRecord(broker_id=id):
                del self.brokers[id]
                touched.brokers[id] = None
            case r.ConfigRecord():
                resource = (record.resource_type, record.resource_name)
                settings = self.configs.setdefault(resource, {})
                settings.pop(record.name, None)
                if record.value is not None:
                    settings[record.name] = record.value
                touched.configs[resource] = None
            case r.FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case r.ProducerIdsRecord():
                assert record.next_producer_id > self.next_producer_id, (
                    "producer ids were given out twice (M9)"
                )
                self.next_producer_id = record.next_producer_id

    def _take_topic(
        self, record: r.TopicRecord | r.RemoveTopicRecord | r.ClearElrRecord, touched: Touched
    ) -> None:
        match record:
            case r.TopicRecord(topic_id=id):
                assert id not in self._former_ids, f"topic id {id} was used before (M9)"
                self.names[id] = self._former_ids[id] = record.name
            case r.RemoveTopicRecord(topic_id=id):
                self.configs.pop((r.TOPIC_RESOURCE, self.names.pop(id)), None)
                for key in [key for key in self.partitions if key[0] == id]:
                    del self.partitions[key]
            case r.ClearElrRecord(topic_name=name):
                for key, was in self.partitions.items():
                    if name in ("", self.names[key[0]]) and (was.elr or was.last_known_elr):
                        self.partitions[key] = replace(was, elr=(), last_known_elr=())
                        touched.partitions[key] = None

    # What follows from it

    def is_alive(self, broker: int) -> bool:
        known = self.brokers.get(broker)
        return known is not None and not known.fenced and not known.leaving

    def setting(self, topic: str, name: str) -> str | None:
        """The setting of the topic, or else the default of all brokers."""
        of_all = self.configs.get((r.BROKER_RESOURCE, ""), {}).get(name)
        return self.configs.get((r.TOPIC_RESOURCE, topic), {}).get(name, of_all)

    def enough_in_sync(self, topic: str, replicas: int) -> int:
        """The effective minimum: no partition waits for more replicas than it has."""
        return min(int(self.setting(topic, MIN_ISR) or 1), replicas)

    def check(self, touched: Touched) -> None:
        """M8 and M9 for what a batch changed. AssertionError if they do not hold."""
        for id in touched.brokers:
            if id in self.brokers:
                epoch = self.brokers[id].epoch
                assert epoch >= self._broker_epochs.get(id, -1), f"broker {id}: its epoch fell (M9)"
                self._broker_epochs[id] = epoch
        with_elr = self.features.get(ELR_FEATURE, 0) > 0
        gone = {id for id in touched.brokers if id not in self.brokers or self.brokers[id].fenced}
        for key, decided in self.partitions.items() if gone else ():
            assert not with_elr or not gone & {decided.leader, *decided.isr}, (
                f"{self.names[key[0]]}-{key[1]} {decided}: one of {gone} is fenced or gone (M9)"
            )
        for key in touched.partitions:
            if key in self.partitions:
                for wrong in self._wrong(self.names[key[0]], self.partitions[key], with_elr):
                    raise AssertionError(
                        f"{self.names[key[0]]}-{key[1]} {self.partitions[key]}: {wrong}"
                    )

    def _wrong(self, topic: str, decided: ReplayedPartition, with_elr: bool) -> Iterator[str]:
        isr, elr, replicas = set(decided.isr), set(decided.elr), set(decided.replicas)
        if decided.leader >= 0 and decided.leader not in isr:
            yield "the leader is not in the ISR (M8)"
        if not isr | elr <= replicas or not {*decided.adding, *decided.removing} <= replicas:
            yield "ISR, ELR, adding or removing replicas are no replicas (M8)"
        if isr & elr or len(isr) + len(elr) != len(decided.isr) + len(decided.elr):
            yield "ISR and ELR name a replica twice (M8)"
        if with_elr and elr and len(isr) >= self.enough_in_sync(topic, len(replicas)):
            yield "the ELR is not empty, though the ISR is large enough (M8)"
        if with_elr and any(id not in self.brokers or self.brokers[id].fenced for id in isr):
            yield "a member of the ISR is fenced (M9)"

    # What the product makes of it

    def differences(self, image: MetadataImage, delta: Delta, touched: Touched) -> Iterator[str]:
        """M6: where the product's image after a batch, or its delta, differs from this."""
        if {id: topic.name for id, topic in image.topics_by_id.items()} != self.names:
            yield f"topics {list(image.topics)}"
        for id in touched.brokers:
            if (mine := self.brokers.get(id)) != (theirs := _broker(image, id)):
                yield f"broker {id} is {mine}, not {theirs}"
        for key in touched.partitions:
            if (decided := self.partitions.get(key)) != (found := _decision(image, key)):
                yield f"partition {key} is {decided}, not {found}"
        for resource in touched.configs:
            if (settings := self.configs.get(resource, {})) != dict(image.config(*resource)):
                yield f"the settings of {resource} are {settings}, not {dict(image.config(*resource))}"
        if {name: level for name, level in self.features.items() if level} != dict(image.features):
            yield f"features are {self.features}"
        if image.next_producer_id != self.next_producer_id or len(image.brokers) != len(
            self.brokers
        ):
            yield f"brokers are {list(self.brokers)}, the next producer id {self.next_producer_id}"
        if sorted(delta.changed_brokers) != sorted(touched.brokers) or sorted(
            delta.changed_partitions
        ) != sorted(key for key in touched.partitions if key in self.partitions):
            yield f"changed are {touched}, not {delta}"


def _decided(record: r.PartitionRecord) -> ReplayedPartition:
    return ReplayedPartition(
        record.replicas,
        record.adding_replicas,
        record.removing_replicas,
        record.isr,
        record.eligible_leader_replicas or (),
        record.last_known_elr or (),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
    )


def _changed(was: ReplayedPartition, record: r.PartitionChangeRecord) -> ReplayedPartition:
    """What the record does not name stays. A named leader begins a new epoch, also if it is no leader."""

    def named(now: tuple[int, ...] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if now is None else now

    elects = record.leader != r.LEADER_UNCHANGED
    return ReplayedPartition(
        named(record.replicas, was.replicas),
        named(record.adding_replicas, was.adding),
        named(record.removing_replicas, was.removing),
        named(record.isr, was.isr),
        named(record.eligible_leader_replicas, was.elr),
        named(record.last_known_elr, was.last_known_elr),
        record.leader if elects else was.leader,
        was.leader_epoch + elects,
        was.partition_epoch + 1,
        was.recovery if record.leader_recovery_state < 0 else record.leader_recovery_state,
    )


def _broker(image: MetadataImage, id: int) -> ReplayedBroker | None:
    theirs = image.brokers.get(id)
    if theirs is None:
        return None
    leaving = theirs.in_controlled_shutdown
    return ReplayedBroker(
        theirs.epoch, theirs.incarnation, theirs.directories, theirs.fenced, leaving
    )


def _decision(image: MetadataImage, key: tuple[UUID, int]) -> ReplayedPartition | None:
    topic = image.topics_by_id.get(key[0])
    if topic is None or image.topics.get(topic.name) is not topic:
        return None
    if key[1] >= len(topic.partitions):
        return None
    theirs = topic.partitions[key[1]]
    return ReplayedPartition(
        theirs.replicas,
        theirs.adding,
        theirs.removing,
        theirs.isr,
        theirs.elr,
        theirs.last_known_elr,
        theirs.leader,
        theirs.leader_epoch,
        theirs.partition_epoch,
        theirs.leader_recovery_state,
    )
