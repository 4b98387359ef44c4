"""The rows of a model. Times are milliseconds since 1970; None is what nobody told."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

Place = tuple[str, int]
"""Topic and partition."""


def place_text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


class BrokerStanding(StrEnum):
    """Of a broker."""

    UP = "up"
    SILENT = "silent"
    """The cluster counts on it, but it does not answer us."""
    FENCED = "fenced"
    """The controller takes it for dead, or has not let it in yet."""
    GONE = "gone"
    """It has replicas, and is not in the cluster."""


class ClusterRow(NamedTuple):
    cluster_id: str | None = None
    is_ottla: bool | None = None
    """Whether its brokers are ottla's, which tell more than Apache Kafka's."""
    has_event_log: bool | None = None
    has_metrics: bool | None = None
    answers: bool | None = None
    """Whether any broker answers us. None: nobody has been asked yet."""
    since_ms: int = 0
    """When that began."""
    trouble: str | None = None
    """Why nobody answers."""


class TotalsRow(NamedTuple):
    """Counts over all partitions."""

    topics: int = 0
    partitions: int = 0
    replicas: int = 0
    offline: int = 0
    """Partitions without a leader."""
    under_replicated: int = 0
    """Partitions with a replica outside of the ISR."""
    not_preferred: int = 0
    """Partitions that another than the first replica leads."""


class BrokerRow(NamedTuple):
    id: int
    host: str = ""
    port: int = -1
    rack: str | None = None
    standing: BrokerStanding = BrokerStanding.UP
    since_ms: int = 0
    """When its standing began, as far as we know; 0: before we looked."""
    cause: str | None = None
    """Why it was fenced."""
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    """Replicas of it that are not in their ISR."""


class DiskRow(NamedTuple):
    """The log directories of a broker."""

    directories: int
    failed: tuple[str, ...]
    refuses: tuple[str, ...]
    """Those that are nearly full and take no records."""
    used_bytes: int
    """By logs."""
    total_bytes: int | None
    free_bytes: int | None


class VoterRow(NamedTuple):
    id: int
    log_end: int
    lag: int
    behind_ms: int | None
    """Since it had everything, by the leader's clock. None: unknown."""
    is_observer: bool = False


class QuorumRow(NamedTuple):
    """The controllers."""

    leader: int
    """-1: none that we know of."""
    epoch: int
    high_watermark: int
    voters: tuple[VoterRow, ...]
    observers: tuple[VoterRow, ...]
    since_ms: int = 0
    """When this leader began; 0: before we looked."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "voters": [each._asdict() for each in self.voters],
            "observers": [each._asdict() for each in self.observers],
        }


class TopicRow(NamedTuple):
    name: str
    id: str | None
    internal: bool
    partitions: int
    factor: int
    """Replicas of its first partition."""


class TopicSizeRow(NamedTuple):
    """What a topic holds and how fast that changes."""

    records: int | None = None
    """That its logs hold now, by offsets."""
    bytes: int | None = None
    """Of its leaders' logs."""
    records_in: float | None = None
    """Per second, as the next two."""
    bytes_in: float | None = None
    bytes_out: float | None = None


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    leader: int
    """-1: none."""
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas whose broker or disk is gone."""
    since_ms: int = 0
    """When leader or ISR changed last, as far as we know; 0: before we looked."""
    cause: str | None = None
    """Why, from the event log."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def is_well(self) -> bool:
        return self.leader >= 0 and len(self.isr) == len(self.replicas)

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(id for id in self.replicas if id not in self.isr)


class OffsetsRow(NamedTuple):
    """Where a partition begins and ends, as its leader tells."""

    start: int | None
    end: int
    """The high watermark."""
    stable: int | None = None
    """Up to where consumers of committed transactions can read."""
    rate: float | None = None
    """Records per second."""


class ReplicaRow(NamedTuple):
    """The log of one replica of a partition that somebody looks at. None: its broker does not answer."""

    broker: int
    start: int | None
    end: int | None
    high_watermark: int | None


class EndsRow(NamedTuple):
    """Where the log of each replica ends, of a partition that somebody has in a list."""

    ends: tuple[tuple[int, int | None], ...]
    """Broker and log end offset; None: it does not answer."""

    def lag(self, broker: int, leader: int) -> int | None:
        """Records that it has not copied; None: unknown."""
        ends = dict(self.ends)
        end, whole = ends.get(broker), ends.get(leader)
        return None if end is None or whole is None else max(0, whole - end)


class EpochRow(NamedTuple):
    """The leader epochs of a partition that somebody looks at: where each begins, and when and with whom, if that is known."""

    epochs: tuple[tuple[int, int], ...]
    """Epoch and its first offset, rising."""


class LogSettingRow(NamedTuple):
    """Settings of a topic that decide what is wrong with it."""

    min_insync: int | None
    unclean: bool | None
    """unclean.leader.election.enable"""


class MoveRow(NamedTuple):
    """A partition that is moving to other brokers."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    since_ms: int
    """When we saw it first."""
    copied: int | None = None
    """Bytes on the new brokers."""
    total: int | None = None
    rate: float | None = None
    """Bytes per second since we saw it first."""
    moved_ms: int = 0
    """When `copied` last rose."""


class GroupRow(NamedTuple):
    id: str
    state: str
    type: str
    protocol: str
    coordinator: int
    members: int | None = None
    topics: tuple[str, ...] = ()
    lag: int | None = None
    """Records; None while it is unknown, as the next."""
    seconds: float | None = None
    """Age of the oldest record that it has not read."""
    late_since_ms: int | None = None
    """Since when it is late (`consumers.LATE_S`)."""
    late_at_least: bool = False
    """It was late already when we began to look, so that it may be so for longer."""
    moved_ms: int | None = None
    """When it last committed further; None: not since we look."""
    hold_up: dict[str, Any] | None = None
    """What a rebalance waits for. Only ottla's brokers say it."""


class LagRow(NamedTuple):
    """Of a group in one partition."""

    group: str
    topic: str
    partition: int
    committed: int | None
    log_start: int
    log_end: int
    lag: int
    seconds: float | None
    member: str | None = None
    """Who has it assigned."""


class MemberRow(NamedTuple):
    group: str
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[Place, ...]


class TransactionRow(NamedTuple):
    id: str | None
    """None: no coordinator knows it, so nobody will end it."""
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: int | None
    started_ms: int | None
    timeout_ms: int | None
    places: tuple[Place, ...]


class HoldRow(NamedTuple):
    """An open transaction holds back consumers of committed records in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int
    """When its producer last wrote there."""
    held_back: int
    """Records that exist and cannot be read."""


class EventRow(NamedTuple):
    """An entry of the event log."""

    id: str
    at_ms: int
    kind: str
    severity: int
    node: int
    about: str
    """`partition:orders-0`, `broker:2`, `group:billing`, `cluster`."""
    partition: str | None
    cause: str | None
    text: str
    fields: dict[str, Any]

    @property
    def place(self) -> Place | None:
        """The partition that it is about."""
        if self.partition is None:
            return None
        topic, _, number = self.partition.rpartition("-")
        return topic, int(number)

    @property
    def broker(self) -> int | None:
        """The one that was fenced or unfenced."""
        id = self.fields.get("broker")
        return id if isinstance(id, int) else None

    # What is taken over into other rows. Anybody who may write the event log can write anything there, and another version may
    # have written it: TypeError, or KeyError, at once, not where the row is used.

    def number(self, name: str) -> int:
        value = self.fields[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is no number: {value!r}")
        return value

    def ids(self, name: str) -> tuple[int, ...]:
        values = self.fields[name]
        if not isinstance(values, list | tuple) or not all(isinstance(id, int) for id in values):
            raise TypeError(f"{name} are no brokers: {values!r}")
        return tuple(values)


class Problem(NamedTuple):
    """Something that is wrong now."""

    id: str
    severity: int
    """NOTICE, DEGRADED or WRONG, as of explanations (`diagnosis.explanation`)."""
    text: str
    why: str
    since_ms: int
    """0: before we looked."""
    about: str
    """What to explain: `partition:orders-0`, `broker:2`, `group:billing`, `cluster`, `transaction:tx`."""
    places: tuple[str, ...] = ()
    """The partitions that it concerns; at most PLACES_MAX of them."""
    total: int = 0
    """How many they are in all."""
    rank: int = 0
    """Its place among all: the worst is first."""


PLACES_MAX = 50
