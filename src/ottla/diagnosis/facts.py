"""What is known of a cluster at one moment: plain values, without a decision about any of them.

Every rule reads these and nothing else. What could not be found out is None or absent, and `Facts.unknown` says why:
a rule must not take silence for health.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ottla.client.cluster_admin import LogDirFacts, ReplicaOnDisk
from ottla.client.group_admin import GroupDescription, PartitionLag
from ottla.client.model import BrokerInfo, Config, QuorumInfo, Reassignment
from ottla.client.transaction_admin import OpenTransaction, TransactionDescription
from ottla.client.unclean_election import Candidate
from ottla.diagnosis.lost_disks import NodeData
from ottla.losses.merge import NamedLoss

LogDir = LogDirFacts
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class AdvertisedEndpoint:
    """An address that a broker advertises, and what this machine finds there."""

    broker: int
    listener: str
    """Its name; empty for the one that clients of the bootstrap address are sent to."""
    host: str
    port: int
    resolved: tuple[str, ...]
    """The addresses of the host's name here; empty if it has none."""
    error: str | None
    """Why it could not be used; None if it answered."""
    round_trip_ms: float | None
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The versions that the broker serves, by api key."""

    @property
    def is_for_clients(self) -> bool:
        return not self.listener


@dataclass(frozen=True)
class PartitionFacts:
    topic: str
    partition: int
    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    log_start: int | None = None
    log_end: int | None = None
    """The high watermark: what consumers can read."""
    stable_end: int | None = None
    """The last stable offset: what consumers of committed transactions can read."""
    living: tuple[Candidate, ...] = ()
    """Without a leader: what its living replicas have, the longest log first."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.isr)


BETWEEN_S = 3.0
ELIGIBLE_REPLICAS = "eligible leader replicas"
"""Their name in `Facts.unknown`."""


@dataclass(frozen=True)
class DiskGrowth:
    """How the logs of a broker grow on its disks, in bytes a second, as it has measured it."""

    minute: float
    hour: float
    history_s: float
    """For how long it has looked, if that is less than a day."""


@dataclass(frozen=True)
class TopicFacts:
    name: str
    id: UUID | None
    internal: bool
    partitions: tuple[PartitionFacts, ...]
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """All that hold for it, also those of the cluster."""
    own: tuple[str, ...] = ()
    """The names of those that are set on it."""

    @property
    def factor(self) -> int:
        return min((len(each.replicas) for each in self.partitions), default=0)

    def number(self, name: str) -> int | None:
        """A setting that is a number; None if it is unknown."""
        value = self.configs.get(name)
        return None if value is None else int(value)


@dataclass(frozen=True)
class GroupFacts:
    description: GroupDescription
    lags: tuple[PartitionLag, ...]

    @property
    def id(self) -> str:
        return self.description.id


@dataclass(frozen=True)
class ClockReading:
    """How far a node's clock is ahead of this machine's, to within `error_ms` either way."""

    node: int
    ahead_ms: float
    error_ms: float
    source: str
    """Where it was read."""


@dataclass(frozen=True)
class FileSystem:
    """A file system of this machine."""

    path: str
    total_bytes: int
    free_bytes: int
    inodes_free: int
    inodes_total: int
    device: int | None = None
    """The same for all directories on it."""


@dataclass(frozen=True)
class NodeProcessFacts:
    """A node of a cluster in a directory of this machine."""

    node: int
    state: str
    """running, stopped, killed or died."""
    pid: int | None
    since_ms: int | None
    """When it ended, if it did."""
    version: str | None
    """From the last start in its log."""
    open_files: int | None
    open_files_max: int | None
    disks: tuple[FileSystem, ...]
    settings: Mapping[str, str]
    """Its file of settings."""
    paused: bool = False
    """Whether a signal has stopped its process."""
    data: NodeData | None = None


@dataclass(frozen=True)
class MachineFacts:
    """This machine, as the nodes on it have it."""

    system: str
    python: str
    ottla: str
    nodes: tuple[NodeProcessFacts, ...]
    kernel: Mapping[str, str]
    """Settings of the kernel that matter to a broker, by the name that sysctl knows."""
    memory_bytes: int | None
    swap_used_bytes: int | None


@dataclass(frozen=True)
class Facts:
    at_ms: int
    """When, by this machine's clock."""
    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerInfo, ...]
    """Also the fenced ones, where the cluster says so."""
    endpoints: tuple[AdvertisedEndpoint, ...] = ()
    topics: tuple[TopicFacts, ...] = ()
    log_dirs: tuple[LogDirFacts, ...] = ()
    before: tuple[LogDirFacts, ...] = ()
    """The same, `BETWEEN_S` before: only if partitions are being moved."""
    growth: Mapping[int, DiskGrowth] = field(default_factory=dict)
    """By broker. Only ottla's measure it."""
    groups: tuple[GroupFacts, ...] = ()
    transactions: tuple[TransactionDescription, ...] = ()
    """Those that are not ended."""
    open_in: Mapping[Place, tuple[OpenTransaction, ...]] = field(default_factory=dict)
    """The transactions that a partition's leader holds open, the oldest first."""
    broker_configs: Mapping[int, tuple[Config, ...]] = field(default_factory=dict)
    quorum: QuorumInfo | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    reassignments: tuple[Reassignment, ...] = ()
    losses: tuple[NamedLoss, ...] = ()
    """As far as brokers that answer know them."""
    clocks: tuple[ClockReading, ...] = ()
    machine: MachineFacts | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    """What could not be found out, and why."""

    @property
    def partitions(self) -> Iterator[PartitionFacts]:
        return (each for topic in self.topics for each in topic.partitions)

    @property
    def live(self) -> tuple[int, ...]:
        return tuple(each.id for each in self.brokers if not each.fenced)

    def topic(self, name: str) -> TopicFacts | None:
        return next((each for each in self.topics if each.name == name), None)

    def partition(self, place: Place) -> PartitionFacts | None:
        return next((each for each in self.partitions if each.place == place), None)

    def group(self, id: str) -> GroupFacts | None:
        return next((each for each in self.groups if each.id == id), None)

    def setting(self, broker: int, name: str) -> str | None:
        configs = self.broker_configs.get(broker, ())
        return next((each.value for each in configs if each.name == name), None)

    def is_set_on(self, broker: int, name: str) -> bool:
        """By a command, which counts more than the broker's file."""
        configs = self.broker_configs.get(broker, ())
        return any(each.name == name and each.on_broker for each in configs)

    def replica_sizes(self) -> Iterator[tuple[LogDirFacts, ReplicaOnDisk]]:
        return ((dir, replica) for dir in self.log_dirs for replica in dir.replicas)


def as_json(value: Any) -> Any:
    """Facts, findings and all that they hold, as values that JSON has."""
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {_key(key): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    assert value is None or isinstance(value, str | int | float | bool), type(value)
    return value


def _key(key: object) -> str:
    """A partition is written as Kafka writes it."""
    return f"{key[0]}-{key[1]}" if isinstance(key, tuple) else str(key)
