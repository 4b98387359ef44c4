"""The state that an explanation is about, as it was found: brokers, quorum, one partition, one group.

None always means: not known. The reasons are in `ClusterNow.unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import Any

from ottla.diagnosis.lost_disks import NodeData
from ottla.diagnosis.words import brokers, command, listed
from ottla.losses.merge import NamedLoss


class Reach(StrEnum):
    """What became of a connection to the address that a broker advertises."""

    ANSWERS = "answers"
    REFUSED = "refuses connections"
    SILENT = "does not answer"
    UNRESOLVED = "has an address whose host name is unknown"
    NOT_ASKED = "was not asked"


@dataclass(frozen=True)
class DirectoryNow:
    path: str
    failed: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    refuses_records: bool = False
    """Its disk is nearly full, and it takes nothing until there is room."""


@dataclass(frozen=True)
class BrokerNow:
    id: int
    address: str
    """Where clients are told to connect."""
    reach: Reach = Reach.ANSWERS
    fenced: bool | None = False
    directories: tuple[DirectoryNow, ...] = ()
    process: bool | None = None
    """Whether its process runs. Known on this machine only."""
    pid: int | None = None
    ended_ms: int | None = None
    """About when its process ended. Known on this machine only."""
    paused: bool | None = None
    """Whether a signal has stopped its process. Known on this machine only."""
    listens_at: str = ""
    """The address of its own listener, if its settings are on this machine."""
    config: str = ""
    """Its file of settings, if that is on this machine."""
    throttled_rates: Mapping[str, int] = field(default_factory=dict)
    """Its replication throttles in bytes per second, as `leader` and as `follower`."""
    sizes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Bytes on its disks, by partition."""
    kept_ms: int | None = None
    """How long it keeps records aside that a truncation cut off."""
    lag_time_ms: int | None = None
    """Its replica.lag.time.max.ms: how long it waits for a follower that is not caught up."""

    @property
    def answers(self) -> bool:
        return self.reach is Reach.ANSWERS

    @property
    def failed_directories(self) -> tuple[DirectoryNow, ...]:
        return tuple(each for each in self.directories if each.failed)


@dataclass(frozen=True)
class QuorumNow:
    leader: int | None
    """None: nobody is the active controller."""
    voters: tuple[int, ...] = ()


@dataclass(frozen=True)
class QuotaNow:
    """A quota, where it is set: for users, for client ids, or for both. None as a name: the default entity."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


@dataclass(frozen=True)
class ClusterNow:
    now_ms: int
    brokers: Mapping[int, BrokerNow]
    quorum: QuorumNow | None
    stopped: bool = False
    """Everything was read from the disks of a cluster that does not run."""
    stray_answers: tuple[str, ...] = ()
    """Addresses that answer as a broker of the cluster, and that no broker advertises."""
    alone: Mapping[int, tuple[str, ...]] | None = None
    """By broker: the partitions whose only replica in sync it has."""
    quotas: tuple[QuotaNow, ...] | None = None
    data: Mapping[int, NodeData] = field(default_factory=dict)
    """Of nodes of this machine: what is left on their disks."""
    unknown: tuple[str, ...] = ()
    """What could not be found out, and why."""

    def broker(self, id: int) -> BrokerNow:
        """A broker that the cluster does not name is treated as one that is gone."""
        return self.brokers.get(id, BrokerNow(id, "", Reach.NOT_ASKED, None))

    def lost(self, id: int) -> str:
        """What is lost of a node's disk, to follow a statement about its process; empty if it is there, or elsewhere."""
        return self.data[id].lost_text if id in self.data else ""

    @property
    def has_no_controller(self) -> bool:
        return not self.stopped and self.quorum is not None and self.quorum.leader is None

    @property
    def unreachable(self) -> list[int]:
        return [id for id, each in sorted(self.brokers.items()) if not each.answers]


@dataclass(frozen=True)
class ReplicaNow:
    log_start: int
    log_end: int
    high_watermark: int | None
    last_epoch: int = -1
    """The leader epoch of its last record, if its broker says it."""


@dataclass(frozen=True)
class TransactionNow:
    """A transaction that is open in a partition."""

    start_offset: int
    producer_id: int
    last_ms: int
    """When its producer last wrote there."""
    transactional_id: str | None = None
    """None: no coordinator that answers knows it."""
    state: str = ""
    started_ms: int | None = None
    timeout_ms: int | None = None
    asked_all: bool = True
    """Whether every coordinator answered and had loaded its transactions."""


@dataclass(frozen=True)
class PartitionNow:
    topic: str
    partition: int
    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Replicas outside the ISR that have everything committed (KIP-966)."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_insync: int = 1
    offsets: Mapping[int, ReplicaNow] = field(default_factory=dict)
    """By broker; only of those that answered."""
    stands: bool = False
    """Whether the high watermark was the same at two looks, although all of the ISR had more at the first."""
    transactions: tuple[TransactionNow, ...] = ()
    throttled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Replicas whose copying is throttled by the topic's settings, as `leader` and as `follower`."""
    unclean: bool | None = None
    """unclean.leader.election.enable."""
    own_settings: Mapping[str, str | None] = field(default_factory=dict)
    """What the topic sets itself; all else comes from the brokers."""
    losses: tuple[NamedLoss, ...] = ()
    """The oldest first. As far as brokers that answer know them."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(id for id in self.replicas if id not in self.isr)

    @property
    def log_end(self) -> int | None:
        """Of the leader."""
        found = self.offsets.get(self.leader)
        return None if found is None else found.log_end

    def lag(self, broker: int) -> int | None:
        found, end = self.offsets.get(broker), self.log_end
        return None if found is None or end is None else max(0, end - found.log_end)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader if self.leader >= 0 else None,
            "leader_epoch": self.leader_epoch,
            "ar": list(self.replicas),
            "isr": list(self.isr),
            "elr": list(self.elr),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "min_insync_replicas": self.min_insync,
        }


@dataclass(frozen=True)
class LagNow:
    """How far a group is in one partition, at two moments."""

    topic: str
    partition: int
    committed: int | None
    log_end: int
    lag: int
    age_ms: float | None
    """Of the next record to read."""
    committed_before: int | None = None
    log_end_before: int | None = None
    transaction: TransactionNow | None = None
    """The one that a read_committed consumer stands before."""
    has_leader: bool = True

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def moved(self) -> int:
        """Records committed between the two moments."""
        return (self.committed or 0) - (self.committed_before or 0)


@dataclass(frozen=True)
class MemberNow:
    id: str
    client_id: str
    host: str
    assigned: int


@dataclass(frozen=True)
class GroupNow:
    id: str
    state: str
    type: str
    coordinator: int
    members: tuple[MemberNow, ...]
    lags: tuple[LagNow, ...]
    between_ms: float
    """Between the two moments of each `LagNow`."""
    hold_up: Mapping[str, Any] | None = None
    """What a rebalance waits for. Only ottla's brokers say it."""

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.lags)


@dataclass(frozen=True)
class Commands:
    """How to type commands for this cluster."""

    option: str = ""
    """` --dir PATH` or ` --bootstrap HOST:PORT`; empty for the default cluster."""
    bootstrap: str = "HOST:PORT"
    local: bool = False
    """Its nodes are on this machine, under `ottla nodes`."""

    def ottla(self, words: str, *names: str) -> str:
        return command(words, names, self.option)

    def kafka_configs(self, words: str) -> str:
        return f"ottla kafka-configs --bootstrap-server {quote(self.bootstrap)} --alter {words}"

    def restart(self, id: int) -> str:
        """Empty for a broker elsewhere."""
        if not self.local:
            return ""
        return f"{self.ottla(f'nodes stop {id}')} && {self.ottla(f'nodes start {id}')}"

    def start(self, ids: tuple[int, ...]) -> tuple[str, str]:
        """Text and command that start these brokers."""
        assert ids
        if not self.local:
            machines = "its machine" if len(ids) == 1 else "their machines"
            return f"Start {brokers(ids)} again, on {machines}.", ""
        if len(ids) == 1:
            return f"Start broker {ids[0]} again.", self.ottla(f"nodes start {ids[0]}")
        return f"Start brokers {listed(ids)} again; this starts all that do not run.", self.ottla(
            "up --detach"
        )
