"""The metadata image: the result of all committed records of `__cluster_metadata`.

An image is immutable. `apply` returns the next image and a Delta of the differences. Both images share what did
not change: a batch that touches one partition copies only that topic's tuple and the topic map. The active
controller applies its own uncommitted records to its own image in the same way.

Records between BeginTransaction and EndTransaction take effect at EndTransaction. Until then they wait in
`pending`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

from ottla.metadata import records as r
from ottla.metadata.records import Endpoint, FeatureRange, MetadataRecord, encode

ELR_FEATURE = "eligible.leader.replicas.version"
METADATA_VERSION = "metadata.version"

ConfigResource: TypeAlias = tuple[int, str]
QuotaKey: TypeAlias = tuple[tuple[str, str | None], ...]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class InconsistentMetadata(Exception):
    """A record contradicts the image it is applied to."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[UUID, ...]
    cordoned: tuple[UUID, ...] | None
    is_migrating_zk_broker: bool = False

    def record(self) -> MetadataRecord:
        return r.RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation,
            broker_epoch=self.epoch,
            end_points=self.endpoints,
            features=self.features,
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.directories,
            cordoned_log_dirs=self.cordoned,
        )


@dataclass(frozen=True, slots=True)
class ControllerImage:
    id: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    zk_migration_ready: bool = False

    def record(self) -> MetadataRecord:
        return r.RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation,
            zk_migration_ready=self.zk_migration_ready,
            end_points=self.endpoints,
            features=self.features,
        )


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """`replicas` is AR in order of preference; `directories` is the log directory of each."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    directories: tuple[UUID, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]

    def changed_by(self, change: r.PartitionChangeRecord) -> PartitionImage:
        """Each change raises the partition epoch; only a change of leader raises the leader epoch."""
        new_leader = change.leader != r.LEADER_UNCHANGED
        replicas = _or(change.replicas, self.replicas)
        return PartitionImage(
            replicas=replicas,
            isr=_or(change.isr, self.isr),
            removing=_or(change.removing_replicas, self.removing),
            adding=_or(change.adding_replicas, self.adding),
            leader=change.leader if new_leader else self.leader,
            leader_epoch=self.leader_epoch + 1 if new_leader else self.leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=self.leader_recovery_state
            if change.leader_recovery_state == -1
            else change.leader_recovery_state,
            directories=self._directories_after(change, replicas),
            elr=_or(change.eligible_leader_replicas, self.elr),
            last_known_elr=_or(change.last_known_elr, self.last_known_elr),
        )

    def _directories_after(
        self, change: r.PartitionChangeRecord, replicas: tuple[int, ...]
    ) -> tuple[UUID, ...]:
        if change.directories is not None:
            return change.directories
        if change.replicas is None:
            return self.directories
        known = dict(zip(self.replicas, self.directories, strict=True))
        return tuple(known.get(replica, r.DIRECTORY_UNASSIGNED) for replica in replicas)

    def record(self, topic_id: UUID, partition: int) -> MetadataRecord:
        return r.PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing,
            adding_replicas=self.adding,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.elr or None,
            last_known_elr=self.last_known_elr or None,
        )


def _or(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else new


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]


@dataclass(slots=True)
class Delta:
    """What one `apply` changed: each item once, in the order of first change."""

    changed_partitions: list[tuple[UUID, int]] = field(default_factory=list)
    created_topics: list[UUID] = field(default_factory=list)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    changed_brokers: list[int] = field(default_factory=list)
    changed_controllers: list[int] = field(default_factory=list)
    changed_configs: list[ConfigResource] = field(default_factory=list)
    changed_features: list[str] = field(default_factory=list)
    changed_quotas: list[QuotaKey] = field(default_factory=list)
    changed_scram: list[tuple[str, int]] = field(default_factory=list)
    changed_acls: list[UUID] = field(default_factory=list)
    changed_tokens: list[str] = field(default_factory=list)
    """Ids of delegation tokens."""
    unclean_elections: dict[tuple[UUID, int], int] = field(default_factory=dict)
    """The leader epochs that began with an election in which committed records may have been lost, the last of each
    partition. The image does not hold them: it forgets such an election when its leader has recovered."""

    def __bool__(self) -> bool:
        return bool(
            self.changed_partitions
            or self.created_topics
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_controllers
            or self.changed_configs
            or self.changed_features
            or self.changed_quotas
            or self.changed_scram
            or self.changed_acls
            or self.changed_tokens
        )


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """`offset` and `epoch` are those of the last applied record (-1: none yet)."""

    offset: int = -1
    epoch: int = -1
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: Mapping[QuotaKey, Mapping[str, float]] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], r.UserScramCredentialRecord] = field(default_factory=dict)
    acls: Mapping[UUID, r.AccessControlEntryRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, r.DelegationTokenRecord] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_ids_owner: tuple[int, int] = (-1, -1)  # (broker id, broker epoch) of the last block
    pending: tuple[MetadataRecord, ...] | None = None

    def apply(
        self, records: Sequence[MetadataRecord], offset: int, epoch: int
    ) -> tuple[MetadataImage, Delta]:
        """The image after `records`, the last of which lies at `offset` and was written in `epoch`."""
        assert offset >= self.offset, f"offset {offset} applied after {self.offset}"
        assert epoch >= self.epoch, f"epoch {epoch} applied after {self.epoch}"
        edit = _Edit(self)
        pending = list(self.pending) if self.pending is not None else None
        for record in records:
            match record:
                case r.PartitionChangeRecord() if pending is None:
                    edit.replay(record)  # by far the most frequent
                case r.BeginTransactionRecord():
                    if pending is not None:
                        raise InconsistentMetadata("a transaction begins inside another")
                    pending = []
                case r.EndTransactionRecord():
                    if pending is None:
                        raise InconsistentMetadata("a transaction ends that never began")
                    for held in pending:
                        edit.replay(held)
                    pending = None
                case r.AbortTransactionRecord():
                    if pending is None:
                        raise InconsistentMetadata("a transaction is aborted that never began")
                    pending = None
                case _ if pending is not None:
                    pending.append(record)
                case _:
                    edit.replay(record)
        image, delta = edit.finish(offset, epoch, None if pending is None else tuple(pending))
        image.check(delta)
        return image, delta

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings of exactly this resource, without defaults."""
        return self.configs.get((resource_type, name), _EMPTY)

    def is_alive(self, broker: int) -> bool:
        """Registered, not fenced and not shutting down."""
        image = self.brokers.get(broker)
        return image is not None and not image.fenced and not image.in_controlled_shutdown

    def min_insync_replicas(self, topic: TopicImage, partition: PartitionImage) -> int:
        """The configured minimum, at most the number of replicas."""
        return min(self.configured_min_isr(topic), len(partition.replicas))

    def configured_min_isr(self, topic: TopicImage) -> int:
        for resource in ((r.TOPIC_RESOURCE, topic.name), (r.BROKER_RESOURCE, "")):
            value = self.config(*resource).get("min.insync.replicas")
            if value is not None:
                return int(value)
        return 1

    def records(self) -> list[MetadataRecord]:
        """The records that build this image from an empty one, in an order that depends on the image only."""
        assert self.pending is None, "a snapshot inside a transaction would lose its records"
        names = sorted(self.features, key=lambda name: (name != METADATA_VERSION, name))
        content: list[MetadataRecord] = [
            r.FeatureLevelRecord(name=name, feature_level=self.features[name]) for name in names
        ]
        content += [self.brokers[broker].record() for broker in sorted(self.brokers)]
        content += [self.controllers[node].record() for node in sorted(self.controllers)]
        for name in sorted(self.topics):
            topic = self.topics[name]
            content.append(r.TopicRecord(name=name, topic_id=topic.id))
            content += [part.record(topic.id, i) for i, part in enumerate(topic.partitions)]
        for kind, name in sorted(self.configs):
            settings = self.configs[kind, name]
            content += [
                r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                for key, value in sorted(settings.items())
            ]
        return content + self._security_records()

    def _security_records(self) -> list[MetadataRecord]:
        content: list[MetadataRecord] = []
        for entity in sorted(self.client_quotas, key=repr):
            for key, value in sorted(self.client_quotas[entity].items()):
                members = tuple(
                    r.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity
                )
                content.append(
                    r.ClientQuotaRecord(entity=members, key=key, value=value, remove=False)
                )
        if self.next_producer_id:
            broker, broker_epoch = self.producer_ids_owner
            content.append(
                r.ProducerIdsRecord(
                    broker_id=broker,
                    broker_epoch=broker_epoch,
                    next_producer_id=self.next_producer_id,
                )
            )
        content += [self.scram[key] for key in sorted(self.scram)]
        content += [self.acls[key] for key in sorted(self.acls)]
        content += [self.delegation_tokens[key] for key in sorted(self.delegation_tokens)]
        return content

    def delta_from(self, old: MetadataImage) -> Delta:
        """The differences from `old`, for an image that was loaded from a checkpoint."""
        delta = Delta(
            created_topics=[i for i in self.topics_by_id if i not in old.topics_by_id],
            deleted_topics=[t for i, t in old.topics_by_id.items() if i not in self.topics_by_id],
            changed_brokers=_differing(old.brokers, self.brokers),
            changed_controllers=_differing(old.controllers, self.controllers),
            changed_configs=_differing(old.configs, self.configs),
            changed_features=_differing(old.features, self.features),
            changed_quotas=_differing(old.client_quotas, self.client_quotas),
            changed_scram=_differing(old.scram, self.scram),
            changed_acls=_differing(old.acls, self.acls),
            changed_tokens=_differing(old.delegation_tokens, self.delegation_tokens),
        )
        for topic_id in _differing(old.topics_by_id, self.topics_by_id):
            topic, before = self.topics_by_id.get(topic_id), old.topics_by_id.get(topic_id)
            had = before.partitions if before is not None else ()
            for number, part in enumerate(topic.partitions if topic is not None else ()):
                if number >= len(had) or part != had[number]:
                    delta.changed_partitions.append((topic_id, number))
        return delta

    def digest(self) -> str:
        """Equal on two nodes if and only if their images are equal (M6)."""
        hasher = hashlib.sha256()
        for record in replace(self, pending=None).records():
            hasher.update(encode(record))
        for record in self.pending or ():
            hasher.update(b"pending" + encode(record))
        return hasher.hexdigest()

    def check(self, delta: Delta) -> None:
        """Check M8 and M9 for what changed. Without ELR the last in-sync replica stays in the ISR even if fenced."""
        with_elr = self.features.get(ELR_FEATURE, 0) >= 1
        for topic_id, number in delta.changed_partitions:
            topic = self.topics_by_id.get(topic_id)
            if topic is not None:
                self._check_partition(topic, number, with_elr)
        fenced = [
            b for b in delta.changed_brokers if b not in self.brokers or self.brokers[b].fenced
        ]
        if with_elr and fenced:
            for topic in self.topics.values():
                for number, part in enumerate(topic.partitions):
                    for broker in fenced:
                        assert broker not in part.isr and broker != part.leader, (
                            f"{topic.name}-{number}: broker {broker} is fenced and in {part} (M9)"
                        )

    def _check_partition(self, topic: TopicImage, number: int, with_elr: bool) -> None:
        part = topic.partitions[number]
        replicas, isr, elr = part.replicas, part.isr, part.elr
        wrong = ""
        if part.leader != r.NO_LEADER and part.leader not in isr:
            wrong = "leader outside ISR"
        elif len({*isr, *elr}) != len(isr) + len(elr):
            wrong = "ISR and ELR overlap or double"
        elif not set(replicas).issuperset(isr):
            wrong = "ISR outside the replicas"
        elif elr and not set(replicas).issuperset(elr):
            wrong = "ELR outside the replicas"
        elif len(part.directories) != len(replicas):
            wrong = "directories"
        elif with_elr:
            if elr and len(isr) >= self.min_insync_replicas(topic, part):
                wrong = "an ELR beside a full ISR"
            for broker in isr:
                image = self.brokers.get(broker)
                if image is None or image.fenced:
                    wrong = f"{broker} is fenced"
        assert not wrong, f"{topic.name}-{number} {part}: {wrong} (M8, M9)"


K = TypeVar("K")
V = TypeVar("V")


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    changed = [key for key in new if key not in old or old[key] != new[key]]
    return changed + [key for key in old if key not in new]


class _Overlay(Generic[K, V]):
    """Changes on top of a map that is not modified; None marks a removed key."""

    __slots__ = ("base", "changes")

    def __init__(self, base: Mapping[K, V]) -> None:
        self.base = base
        self.changes: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        return self.changes[key] if key in self.changes else self.base.get(key)

    def set(self, key: K, value: V) -> None:
        self.changes[key] = value

    def remove(self, key: K) -> None:
        self.changes[key] = None

    def merged(self) -> Mapping[K, V]:
        if not self.changes:
            return self.base
        result = dict(self.base)
        for key, value in self.changes.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = value
        return result


class _Edit:
    """One `apply` in progress. The partitions of a changed topic are a list until `finish`."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.features = _Overlay(base.features)
        self.brokers = _Overlay(base.brokers)
        self.controllers = _Overlay(base.controllers)
        self.configs = _Overlay(base.configs)
        self.quotas = _Overlay(base.client_quotas)
        self.scram = _Overlay(base.scram)
        self.acls = _Overlay(base.acls)
        self.tokens = _Overlay(base.delegation_tokens)
        self.next_producer_id = base.next_producer_id
        self.producer_ids_owner = base.producer_ids_owner
        self.ids: dict[str, UUID | None] = {}  # names assigned or freed by this edit
        self.names: dict[UUID, str] = {}  # names of the topics in `partitions`
        self.partitions: dict[UUID, list[PartitionImage | None]] = {}
        self.created: dict[UUID, None] = {}
        self.removed: dict[UUID, TopicImage] = {}
        self.changed_partitions: dict[tuple[UUID, int], None] = {}
        self.unclean_elections: dict[tuple[UUID, int], int] = {}

    def replay(self, record: MetadataRecord) -> None:
        match record:
            case r.PartitionChangeRecord():
                self._partition_changed(record)
            case r.PartitionRecord():
                self._partition(record)
            case r.TopicRecord():
                self._topic(record)
            case r.RemoveTopicRecord():
                self._topic_removed(record.topic_id)
            case r.ClearElrRecord():
                self._clear_elr(record.topic_name)
            case r.RegisterBrokerRecord():
                self._broker_registered(record)
            case r.BrokerRegistrationChangeRecord():
                self._broker_changed(record)
            case r.FenceBrokerRecord(id=broker, epoch=epoch):
                self.brokers.set(broker, replace(self._broker(broker, epoch), fenced=True))
            case r.UnfenceBrokerRecord(id=broker, epoch=epoch):
                self.brokers.set(broker, replace(self._broker(broker, epoch), fenced=False))
            case r.UnregisterBrokerRecord():
                self._broker(record.broker_id, record.broker_epoch)
                self.brokers.remove(record.broker_id)
            case r.RegisterControllerRecord():
                self._controller_registered(record)
            case r.ConfigRecord():
                self._config(record)
            case r.FeatureLevelRecord(name=name, feature_level=level):
                if level:
                    self.features.set(name, level)
                else:
                    self.features.remove(name)
            case r.ProducerIdsRecord():
                if record.next_producer_id <= self.next_producer_id:
                    raise InconsistentMetadata("a block of producer ids is given twice")
                self.next_producer_id = record.next_producer_id
                self.producer_ids_owner = (record.broker_id, record.broker_epoch)
            case r.NoOpRecord() | r.ZkMigrationStateRecord():
                pass  # these advance the offset and change nothing in the cluster
            case _:
                self._replay_security(record)

    def _replay_security(self, record: MetadataRecord) -> None:
        match record:
            case r.ClientQuotaRecord():
                self._quota(record)
            case r.UserScramCredentialRecord(name=name, mechanism=mechanism):
                self.scram.set((name, mechanism), record)
            case r.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism):
                self.scram.remove((name, mechanism))
            case r.AccessControlEntryRecord():
                self.acls.set(record.id, record)
            case r.RemoveAccessControlEntryRecord():
                self.acls.remove(record.id)
            case r.DelegationTokenRecord():
                self.tokens.set(record.token_id, record)
            case r.RemoveDelegationTokenRecord():
                self.tokens.remove(record.token_id)
            case _:
                raise InconsistentMetadata(f"{type(record).__name__} cannot be applied")

    # Topics and partitions

    def _id_of(self, name: str) -> UUID | None:
        if name in self.ids:
            return self.ids[name]
        topic = self.base.topics.get(name)
        return None if topic is None else topic.id

    def _topic(self, record: r.TopicRecord) -> None:
        if self._id_of(record.name) is not None:
            raise InconsistentMetadata(f"topic {record.name} exists already")
        if record.topic_id in self.names or record.topic_id in self.base.topics_by_id:
            raise InconsistentMetadata(f"topic id {record.topic_id} is used twice")
        self.ids[record.name] = record.topic_id
        self.names[record.topic_id] = record.name
        self.partitions[record.topic_id] = []
        self.created[record.topic_id] = None

    def _editable(self, topic_id: UUID) -> list[PartitionImage | None]:
        partitions = self.partitions.get(topic_id)
        if partitions is None:
            topic = self.base.topics_by_id.get(topic_id)
            if topic is None or topic_id in self.removed:
                raise InconsistentMetadata(f"no topic has the id {topic_id}")
            self.names[topic_id] = topic.name
            partitions = self.partitions[topic_id] = list(topic.partitions)
        return partitions

    def _partition(self, record: r.PartitionRecord) -> None:
        partitions = self._editable(record.topic_id)
        number = record.partition_id
        if number < 0:
            raise InconsistentMetadata(f"partition {number}")
        partitions.extend([None] * (number + 1 - len(partitions)))
        partitions[number] = PartitionImage(
            replicas=record.replicas,
            isr=record.isr,
            removing=record.removing_replicas,
            adding=record.adding_replicas,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            directories=record.directories or (r.DIRECTORY_MIGRATING,) * len(record.replicas),
            elr=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
        )
        self.changed_partitions[record.topic_id, number] = None

    def _partition_changed(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._editable(record.topic_id)
        number = record.partition_id
        old = partitions[number] if 0 <= number < len(partitions) else None
        if old is None:
            raise InconsistentMetadata(f"{record.topic_id} has no partition {number}")
        new = partitions[number] = old.changed_by(record)
        self.changed_partitions[record.topic_id, number] = None
        if new.leader_recovery_state == r.RECOVERING and new.leader not in (*old.isr, r.NO_LEADER):
            self.unclean_elections[record.topic_id, number] = new.leader_epoch

    def _topic_removed(self, topic_id: UUID) -> None:
        self._editable(topic_id)  # raises unless the topic exists
        name = self.names.pop(topic_id)
        del self.partitions[topic_id]
        self.ids[name] = None
        if topic_id in self.created:
            del self.created[topic_id]
        else:
            self.removed[topic_id] = self.base.topics_by_id[topic_id]
        if self.configs.get((r.TOPIC_RESOURCE, name)):
            self.configs.remove((r.TOPIC_RESOURCE, name))

    def _clear_elr(self, topic_name: str) -> None:
        """This is not a partition change: no epoch rises."""
        if topic_name:
            topic_id = self._id_of(topic_name)
            if topic_id is None:
                raise InconsistentMetadata(f"no topic is called {topic_name}")
            ids = [topic_id]
        else:
            ids = [i for i in self.base.topics_by_id if i not in self.removed] + list(self.created)
        for topic_id in ids:
            if topic_id not in self.partitions:
                untouched = self.base.topics_by_id[topic_id].partitions
                if not any(part.elr or part.last_known_elr for part in untouched):
                    continue
            partitions = self._editable(topic_id)
            for number, part in enumerate(partitions):
                if part is not None and (part.elr or part.last_known_elr):
                    partitions[number] = replace(part, elr=(), last_known_elr=())
                    self.changed_partitions[topic_id, number] = None

    # Brokers and controllers

    def _broker_registered(self, record: r.RegisterBrokerRecord) -> None:
        old = self.brokers.get(record.broker_id)
        if old is not None and record.broker_epoch < old.epoch:
            raise InconsistentMetadata(
                f"broker {record.broker_id} registers with epoch {record.broker_epoch} after {old.epoch}"
            )
        self.brokers.set(
            record.broker_id,
            BrokerImage(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation=record.incarnation_id,
                endpoints=record.end_points,
                features=record.features,
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                directories=record.log_dirs,
                cordoned=record.cordoned_log_dirs,
                is_migrating_zk_broker=record.is_migrating_zk_broker,
            ),
        )

    def _broker(self, broker: int, epoch: int) -> BrokerImage:
        image = self.brokers.get(broker)
        if image is None or image.epoch != epoch:
            raise InconsistentMetadata(f"broker {broker} is not registered with epoch {epoch}")
        return image

    def _broker_changed(self, record: r.BrokerRegistrationChangeRecord) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1):
            raise InconsistentMetadata(f"fenced={record.fenced} for broker {record.broker_id}")
        cordoned = record.cordoned_log_dirs
        self.brokers.set(
            record.broker_id,
            replace(
                old,
                fenced=record.fenced == 1 if record.fenced else old.fenced,
                in_controlled_shutdown=old.in_controlled_shutdown
                or record.in_controlled_shutdown == 1,
                directories=record.log_dirs or old.directories,
                cordoned=old.cordoned if cordoned is None else cordoned,
            ),
        )

    def _controller_registered(self, record: r.RegisterControllerRecord) -> None:
        self.controllers.set(
            record.controller_id,
            ControllerImage(
                id=record.controller_id,
                incarnation=record.incarnation_id,
                endpoints=record.end_points,
                features=record.features,
                zk_migration_ready=record.zk_migration_ready,
            ),
        )

    # Settings and quotas

    def _config(self, record: r.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        settings = dict(self.configs.get(resource) or {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self.configs.set(resource, settings)
        else:
            self.configs.remove(resource)

    def _quota(self, record: r.ClientQuotaRecord) -> None:
        members = [(each.entity_type, each.entity_name) for each in record.entity]
        entity = tuple(sorted(members, key=lambda member: member[0]))
        quotas = dict(self.quotas.get(entity) or {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.quotas.set(entity, quotas)
        else:
            self.quotas.remove(entity)

    # The result

    def finish(
        self, offset: int, epoch: int, pending: tuple[MetadataRecord, ...] | None
    ) -> tuple[MetadataImage, Delta]:
        topics, by_id = self._topic_maps()
        image = MetadataImage(
            offset=offset,
            epoch=epoch,
            features=self.features.merged(),
            brokers=self.brokers.merged(),
            controllers=self.controllers.merged(),
            topics=topics,
            topics_by_id=by_id,
            configs=self.configs.merged(),
            client_quotas=self.quotas.merged(),
            scram=self.scram.merged(),
            acls=self.acls.merged(),
            delegation_tokens=self.tokens.merged(),
            next_producer_id=self.next_producer_id,
            producer_ids_owner=self.producer_ids_owner,
            pending=pending,
        )
        return image, self._delta()

    def _topic_maps(self) -> tuple[Mapping[str, TopicImage], Mapping[UUID, TopicImage]]:
        if not self.partitions and not self.removed:
            return self.base.topics, self.base.topics_by_id
        topics, by_id = dict(self.base.topics), dict(self.base.topics_by_id)
        for topic_id, topic in self.removed.items():
            del topics[topic.name], by_id[topic_id]
        for topic_id, partitions in self.partitions.items():
            name = self.names[topic_id]
            complete = tuple(part for part in partitions if part is not None)
            if len(complete) != len(partitions):
                raise InconsistentMetadata(f"topic {name} lacks a partition between others")
            topics[name] = by_id[topic_id] = TopicImage(name, topic_id, complete)
        return topics, by_id

    def _delta(self) -> Delta:
        return Delta(
            changed_partitions=[p for p in self.changed_partitions if p[0] in self.partitions],
            created_topics=list(self.created),
            deleted_topics=list(self.removed.values()),
            changed_brokers=list(self.brokers.changes),
            changed_controllers=list(self.controllers.changes),
            changed_configs=list(self.configs.changes),
            changed_features=list(self.features.changes),
            changed_quotas=list(self.quotas.changes),
            changed_scram=list(self.scram.changes),
            changed_acls=list(self.acls.changes),
            changed_tokens=list(self.tokens.changes),
            unclean_elections=self.unclean_elections,
        )
