"""A decision in progress: the metadata after the decision, and the records that lead to it.

A command reads the cluster through a `Draft` and adds records to it; later reads see their effect at once. When the
command is done, all records go into the log as one batch. Before that batch is committed only later commands of
this controller can see the draft's changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.controller.elections import ChangeRule, Election, PartitionAssignment, Rules, change
from ottla.controller.placement import PlaceableBroker
from ottla.controller.states import check_edges
from ottla.events import Event
from ottla.events.replication import IsrCause, IsrReason
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERED,
    TOPIC_RESOURCE,
    MetadataRecord,
    PartitionChangeRecord,
)
from ottla.security.tokens import TokenRules
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import UNLISTED_TOPICS

UNCLEAN_ELECTION = "unclean.leader.election.enable"

RECORDS_PER_COMMAND_MAX = 10_000
"""Kafka's limit on the records that one user request may write."""


def limit_records(count: int) -> None:
    if count > RECORDS_PER_COMMAND_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


@dataclass(frozen=True, slots=True)
class ControllerResult:
    """The result of a command: records for the log (one atomic batch, empty if nothing changes), the response
    fields to send once they are committed, and the events to emit."""

    records: list[MetadataRecord]
    response: dict[str, Any] = field(default_factory=dict)
    events: Sequence[Event] = ()
    draft: Draft | None = None
    """What `committed_events` tells from; None if nothing was decided."""
    kraft_version: int | None = None
    """The quorum is to write this version, after the records (see `features`)."""

    @property
    def writes(self) -> bool:
        return bool(self.records) or self.kraft_version is not None


@dataclass(frozen=True)
class ControllerConfig:
    """The controller's settings. Times are in seconds."""

    cluster_id: str
    validate_topic_config: Callable[[Mapping[str, str]], None]
    """Raises KafkaError INVALID_CONFIG for an invalid name or value of a topic setting."""
    validate_broker_config: Callable[[Mapping[str, str]], None]
    validate_group_config: Callable[[Mapping[str, str]], None]
    validate_client_metrics_config: Callable[[Mapping[str, str]], None]
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """The value of each topic setting that neither the topic nor the cluster default overrides."""
    topic_defaults_given: Collection[str] = ()
    """The names in `topic_defaults` that the operator set in the node's own settings."""
    session_timeout: float = 9.0
    reconnect_grace: float = 0.1
    idle_interval: float = 0.5
    """Time between no-op records; 0 disables them."""
    num_partitions: int = 1
    replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    unclean_election_interval: float = 300.0
    rebalance_leaders: bool = True
    rebalance_interval: float = 300.0
    delete_topics: bool = True
    tokens: TokenRules | None = None
    """What holds for delegation tokens; None: there are none."""
    has_authorizer: bool = False
    """Whether ACLs decide anything. Without an authorizer none are written."""
    change: ChangeRule | None = None
    """Another design's rule of how partitions change, in place of `elections.change`."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A leader's proposal for one partition: the whole new ISR as (broker, its epoch as the leader knows it), and
    the partition state that the proposal is based on."""

    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovery: int = RECOVERED
    reasons: Mapping[int, IsrReason] = field(default_factory=dict)
    """Why which broker joins or leaves; for the event log only."""


@dataclass(frozen=True, slots=True)
class ShortOfRoom:
    """Log directories of live brokers whose disks are nearly full."""

    scarce: frozenset[UUID] = frozenset()
    """They take no records of clients: others should lead."""
    full: frozenset[UUID] = frozenset()
    """They take nothing: replicas there cannot stay in sync. All of them are in `scarce`, too."""

    def of(self, directories: Iterable[UUID]) -> ShortOfRoom:
        """Without what is not one of these."""
        if not self.scarce:
            return self
        return ShortOfRoom(
            self.scarce.intersection(directories), self.full.intersection(directories)
        )


NOBODY_SHORT = ShortOfRoom()


class Draft:
    def __init__(
        self,
        image: MetadataImage,
        config: ControllerConfig,
        epoch: int,
        offset: int,
        short: ShortOfRoom = NOBODY_SHORT,
    ) -> None:
        self.before = image
        self.image = image
        self.config = config
        self.short = short
        self.offset = offset
        """The offset at which the batch will begin."""
        self.records: list[MetadataRecord] = []
        self.events: list[Event] = []
        self.leaving_because: dict[int, IsrCause] = {}
        """Why these brokers leave ISRs, where the controller removes them."""
        self.proposals: dict[tuple[UUID, int], IsrProposal] = {}
        """The proposals of leaders that are accepted."""
        self.preferred: set[tuple[UUID, int]] = set()
        """Partitions whose leadership moves to the preferred replica."""
        self.kraft_version: int | None = None
        """Another version of the quorum, which is no record of the metadata."""
        self._epoch = epoch
        self._brokers: dict[int, None] = {}
        self._partitions: dict[tuple[UUID, int], None] = {}
        self._leaders: Counter[int] | None = None
        self._leader_moves: Counter[int] = Counter()
        self._topic_rules: dict[str, tuple[Election, int]] = {}
        """By topic: the election that it allows, and its minimum of in-sync replicas; both as of the last `add`."""

    def add(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        self.records.extend(records)
        self.image, delta = self.image.apply(
            records, self.offset + len(self.records) - 1, self._epoch
        )
        self._brokers.update(dict.fromkeys(delta.changed_brokers))
        self._partitions.update(dict.fromkeys(delta.changed_partitions))
        for topic in delta.deleted_topics:
            keys = ((topic.id, index) for index in range(len(topic.partitions)))
            self._partitions.update(dict.fromkeys(keys))
        self._leaders = None
        self._leader_moves.clear()
        self._topic_rules.clear()

    def limit(self, more: int = 0) -> None:
        """Refuse a user's request that would write too many records, as a whole. `more`: those that are not added yet."""
        limit_records(len(self.records) + more)

    def finish(self, response: dict[str, Any]) -> ControllerResult:
        check_edges(self.before, self.image, self._brokers, self._partitions)
        return ControllerResult(
            self.records, response, self.events, self, kraft_version=self.kraft_version
        )

    @property
    def changed_partitions(self) -> Iterable[tuple[UUID, int]]:
        return self._partitions

    # Brokers

    def broker(self, broker_id: int, epoch: int) -> BrokerImage:
        """The registered broker that sent a request; raises STALE_BROKER_EPOCH."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker {broker_id}"
            )
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {epoch}",
            )
        return broker

    def placeable(self) -> list[PlaceableBroker]:
        return [
            PlaceableBroker(broker.id, broker.rack, self.image.is_alive(broker.id))
            for _, broker in sorted(self.image.brokers.items())
            if _usable_directories(broker) != ()
        ]

    def directory_for_new_replica(self, broker_id: int) -> UUID:
        """The only usable directory, if there is exactly one; otherwise the broker chooses."""
        directories = _usable_directories(self.image.brokers[broker_id])
        return directories[0] if directories and len(directories) == 1 else DIRECTORY_UNASSIGNED

    # Topics and partitions

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def unclean_election_allowed(self, topic: str) -> bool:
        for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
            value = self.image.config(*resource).get(UNCLEAN_ELECTION)
            if value is not None:
                return value.lower() == "true"
        return self.config.unclean_leader_election

    def leads_any(self, broker_id: int) -> bool:
        return any(partition.leader == broker_id for _, _, partition in self.partitions())

    def change(
        self,
        topic: TopicImage,
        index: int,
        *,
        election: Election | None = None,
        isr: Sequence[int] | None = None,
        leaving: Collection[int] = (),
        lost: Collection[int] = (),
        emptied: Collection[int] = (),
        recovery: int | None = None,
        assignment: PartitionAssignment | None = None,
    ) -> PartitionChangeRecord | None:
        """The change of one partition (see `elections.change`), with the rules that its topic has now.
        `leaving` brokers leave the ISR and may not lead. The record is not added to the draft: the caller
        collects changes and adds them together."""
        partition = topic.partitions[index]
        assignment = assignment or PartitionAssignment.of(partition)
        places = dict(zip(assignment.replicas, assignment.directories, strict=True))
        away = {*leaving, *lost, *emptied}
        if isr is None and leaving:
            isr = [replica for replica in partition.isr if replica not in away]
        allowed, min_isr = self._rules_of(topic)
        election = election or allowed
        record = (self.config.change or change)(
            topic.id,
            index,
            partition,
            Rules(
                may_lead=lambda r: r not in away and self._alive(r, places[r]),
                min_isr=min_isr,
                election=election,
                leads=self._leads,
                has_room=lambda r: places[r] not in self.short.scarce,
            ),
            isr=isr,
            lost=lost,
            emptied=emptied,
            recovery=recovery,
            assignment=assignment,
        )
        if record is not None and record.leader != LEADER_UNCHANGED:
            if election is Election.PREFERRED:
                self.preferred.add((topic.id, index))
            if topic.name not in UNLISTED_TOPICS:
                self._leader_moves[partition.leader] -= 1
                self._leader_moves[record.leader] += 1
        return record

    def _rules_of(self, topic: TopicImage) -> tuple[Election, int]:
        found = self._topic_rules.get(topic.name)
        if found is None:
            unclean = self.unclean_election_allowed(topic.name)
            found = self._topic_rules[topic.name] = (
                Election.UNCLEAN if unclean else Election.CLEAN,
                self.image.configured_min_isr(topic),
            )
        return found

    def change_where(
        self,
        concerned: Callable[[PartitionImage], bool],
        *,
        leaving: Collection[int] = (),
        lost: Collection[int] = (),
    ) -> None:
        """Add the changes of all partitions that one event affects."""
        changes = [
            self.change(topic, index, leaving=leaving, lost=lost)
            for topic, index, partition in self.partitions()
            if concerned(partition)
        ]
        self.add([record for record in changes if record is not None])

    def elect_where_leaderless(self) -> None:
        self.change_where(lambda partition: partition.leader == NO_LEADER)

    def _leads(self, broker_id: int) -> int:
        """The number of partitions that the broker leads, including the changes collected since the last `add`.
        Counted only when an election must choose among equal candidates."""
        if self._leaders is None:
            # Who is elected must not depend on where the cluster has its event log.
            self._leaders = Counter(
                partition.leader
                for topic, _, partition in self.partitions()
                if topic.name not in UNLISTED_TOPICS
            )
        return self._leaders[broker_id] + self._leader_moves[broker_id]

    def _alive(self, replica: int, directory: UUID) -> bool:
        if not self.image.is_alive(replica):
            return False
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        return directory != DIRECTORY_LOST and directory in self.image.brokers[replica].directories


def _usable_directories(broker: BrokerImage) -> tuple[UUID, ...] | None:
    """The directories that are online and not cordoned; None for a broker that names no directories."""
    if not broker.directories:
        return None
    cordoned = broker.cordoned or ()
    return tuple(directory for directory in broker.directories if directory not in cordoned)
