"""Brokers: registration, heartbeats, fencing, controlled shutdown.

The metadata holds what must survive a failover: who is registered, fenced or shutting down. `Sessions` holds what
only the active controller knows: the time of each broker's last heartbeat. Each new active controller starts with
new sessions. Fencing a live broker is always safe: it is unfenced after its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ottla.controller.draft import NOBODY_SHORT, Draft, ShortOfRoom
from ottla.controller.elections import Election, PartitionAssignment
from ottla.controller.states import BrokerControlState, broker_state
from ottla.events.controller import BrokerFenced, BrokerUnfenced, FenceCause
from ottla.events.replication import IsrCause
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"

FENCE, UNFENCE = 1, -1

_LEAVES_BECAUSE = {
    FenceCause.SHUT_DOWN: IsrCause.SHUTDOWN,
    FenceCause.NO_DISK: IsrCause.DISK,
    FenceCause.RESTARTED: IsrCause.RESTART,
}

_RESERVED_DIRECTORIES_MAX = 100
"""Kafka reserves the first hundred directory ids."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's request to be registered. `previous_broker_epoch` is the broker epoch of its last clean
    shutdown, or -1 if the last shutdown was unclean. `has_log_dirs_away`: not all of its directories could be read, and
    it does not know the ids of those."""

    broker_id: int
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    previous_broker_epoch: int = -1
    has_log_dirs_away: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The offset of the last record that the broker has applied."""
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] | None = None
    short: ShortOfRoom = NOBODY_SHORT
    """Its directories that are nearly full."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A replica and its log directory on its broker."""

    directory: UUID
    topic_id: UUID
    index: int


@dataclass(slots=True)
class Session:
    """The state that the active controller keeps for one registered broker."""

    epoch: int
    caught_up_at: int
    """The metadata offset that the broker must have applied before it may be unfenced."""
    last_contact: float
    connected: bool = False
    """The broker has sent a heartbeat to this controller, and the connection is still open."""
    reconnect_by: float | None = None
    """The deadline for reconnecting, set while the connection is lost."""
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """The controlled shutdown is complete when every active broker has applied this offset."""
    short: ShortOfRoom = NOBODY_SHORT
    """As its last heartbeat said."""

    def touch(self, now: float, metadata_offset: int) -> None:
        self.last_contact, self.connected, self.reconnect_by = now, True, None
        self.metadata_offset = metadata_offset

    def deadline(self, timeout: float) -> float:
        end = self.last_contact + timeout
        return end if self.reconnect_by is None else min(end, self.reconnect_by)

    def why_over(self, now: float) -> FenceCause:
        """Of a session whose deadline has passed."""
        is_lost = self.reconnect_by is not None and now >= self.reconnect_by
        return FenceCause.DISCONNECTED if is_lost else FenceCause.SESSION_OVER


class Sessions(dict[int, Session]):
    """The sessions by broker id, one for every registered broker."""

    def __init__(self) -> None:
        super().__init__()
        self._said_short: dict[int, None] = {}
        """Brokers whose last heartbeat named directories that are nearly full. Every decision asks for these, so that
        a look at all sessions would make each heartbeat cost as much as there are brokers."""

    def note_short(self, broker_id: int, short: ShortOfRoom) -> None:
        self[broker_id].short = short
        if short.scarce:
            self._said_short[broker_id] = None
        else:
            self._said_short.pop(broker_id, None)

    @classmethod
    def after_failover(cls, image: MetadataImage, now: float) -> Sessions:
        """A new controller gives every broker a full session. Brokers must catch up with its own last
        offset."""
        sessions = cls()
        for broker in image.brokers.values():
            sessions[broker.id] = Session(broker.epoch, image.offset, now)
            if broker_state(broker) is BrokerControlState.SHUTTING_DOWN:
                sessions[broker.id].shutdown_offset = image.offset
        return sessions

    def alive(self, broker: BrokerImage, now: float, timeout: float) -> bool:
        """Whether this incarnation of the broker is known to be running."""
        session = self[broker.id]
        return session.connected and now < session.deadline(timeout)

    def stale(self, image: MetadataImage, now: float, timeout: float) -> list[int]:
        return [
            broker.id
            for _, broker in sorted(image.brokers.items())
            if not broker.fenced and self[broker.id].deadline(timeout) <= now
        ]

    def next_deadline(self, image: MetadataImage, timeout: float) -> float | None:
        deadlines = (self[b.id].deadline(timeout) for b in image.brokers.values() if not b.fenced)
        return min(deadlines, default=None)

    @property
    def short_of_room(self) -> ShortOfRoom:
        known = (self.get(broker_id) for broker_id in self._said_short)
        reports = [each.short for each in known if each is not None and each.short.scarce]
        if not reports:
            return NOBODY_SHORT
        return ShortOfRoom(
            frozenset().union(*(each.scarce for each in reports)),
            frozenset().union(*(each.full for each in reports)),
        )

    def everyone_has_applied(self, image: MetadataImage, offset: int) -> bool:
        return all(
            self[broker.id].metadata_offset >= offset
            for broker in image.brokers.values()
            if image.is_alive(broker.id)
        )


def register(draft: Draft, request: Registration, sessions: Sessions, now: float) -> dict[str, Any]:
    config = draft.config
    if request.cluster_id != config.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {config.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = draft.image.brokers.get(request.broker_id)
    again = existing is not None and existing.incarnation == request.incarnation
    if existing and not again and sessions.alive(existing, now, config.session_timeout):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id.",
        )
    _check_directories(draft.image, request)
    _check_features(draft.image, request)
    epoch = draft.offset
    if existing and again:
        epoch = existing.epoch
    else:
        _leave_previous_life(draft, request, existing)
        if existing and not existing.fenced:
            draft.events.append(BrokerFenced(existing.id, existing.epoch, FenceCause.RESTARTED))
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation,
        broker_epoch=epoch,
        end_points=request.endpoints,
        features=request.features,
        rack=request.rack,
        fenced=existing.fenced if existing and again else True,
        in_controlled_shutdown=bool(existing and again and existing.in_controlled_shutdown),
        log_dirs=request.log_dirs,
    )
    draft.add([record])
    if not again:
        sessions[request.broker_id] = Session(epoch, draft.image.offset, now)
    sessions[request.broker_id].caught_up_at = draft.image.offset
    return {"error_code": 0, "broker_epoch": epoch}


def _leave_previous_life(draft: Draft, request: Registration, existing: BrokerImage | None) -> None:
    """Remove the previous incarnation from every ISR. After an unclean shutdown the replica may miss the
    tail of its log, so it leaves the ELR too. On a replaced disk it has no data at all. A disk that is away may come back
    with all of it: while the directory of a replica is not there, it cannot be elected."""
    broker = request.broker_id
    draft.leaving_because[broker] = IsrCause.RESTART
    clean = existing is not None and existing.epoch == request.previous_broker_epoch
    known = existing.directories if existing else ()
    disk_replaced = not request.has_log_dirs_away and any(
        directory not in known for directory in request.log_dirs
    )
    home = request.log_dirs[0] if len(request.log_dirs) == 1 else DIRECTORY_UNASSIGNED
    changes = []
    for topic, index, partition in draft.partitions():
        if broker not in partition.replicas:
            continue
        directory = _directory_of(partition, broker)
        if (
            disk_replaced
            and directory != DIRECTORY_UNASSIGNED
            and directory not in request.log_dirs
        ):
            moved = PartitionAssignment.of(partition).moved(broker, home)
            changes.append(draft.change(topic, index, emptied=[broker], assignment=moved))
        elif broker in partition.isr or (broker in partition.elr and not clean):
            leaving, lost = ([broker], []) if clean else ([], [broker])
            changes.append(draft.change(topic, index, leaving=leaving, lost=lost))
    draft.add([record for record in changes if record is not None])


def _check_directories(image: MetadataImage, request: Registration) -> None:
    directories = request.log_dirs
    why = ""
    if not directories:
        why = "No directories specified in request"
    elif any(directory.int < _RESERVED_DIRECTORIES_MAX for directory in directories):
        why = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        why = "Duplicate directory ID in request"
    for _, other in sorted(image.brokers.items()):
        shared = [
            d for d in directories if d in other.directories and other.id != request.broker_id
        ]
        if shared and not why:
            why = f"Broker {other.id} is already registered with directory {shared[0]}"
    if why:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, why)


def _check_features(image: MetadataImage, request: Registration) -> None:
    """Every finalized feature must lie in the range that the broker supports."""
    ranges = {feature.name: feature for feature in request.features}
    if METADATA_VERSION not in ranges:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"The broker names no range of {METADATA_VERSION}"
        )
    for name, level in sorted(image.features.items()):
        low, high = (0, 0)
        if name in ranges:
            low, high = ranges[name].min_supported_version, ranges[name].max_supported_version
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {low} and {high}, inclusive.",
            )


def unregister(draft: Draft, broker_id: int, sessions: Sessions) -> dict[str, Any]:
    broker = draft.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {broker_id} is not currently registered",
        )
    draft.change_where(lambda partition: broker_id in partition.isr, leaving=[broker_id])
    draft.add([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)])
    del sessions[broker_id]
    return {"error_code": 0}


def register_controller(
    draft: Draft,
    controller_id: int,
    incarnation: UUID,
    endpoints: tuple[Endpoint, ...],
    features: tuple[FeatureRange, ...],
) -> dict[str, Any]:
    draft.add(
        [
            RegisterControllerRecord(
                controller_id=controller_id,
                incarnation_id=incarnation,
                end_points=endpoints,
                features=features,
            )
        ]
    )
    return {"error_code": 0}


def heartbeat(draft: Draft, beat: Heartbeat, sessions: Sessions, now: float) -> dict[str, Any]:
    broker = draft.broker(beat.broker_id, beat.broker_epoch)
    session = sessions[beat.broker_id]
    session.touch(now, beat.metadata_offset)
    caught_up = beat.metadata_offset >= session.caught_up_at
    has_a_disk = any(directory not in beat.offline_log_dirs for directory in broker.directories)

    match broker_state(broker):
        case BrokerControlState.FENCED:
            may_stop = beat.want_shutdown
            stays = not (beat.want_fence or beat.want_shutdown or broker.in_controlled_shutdown)
            if stays and caught_up and has_a_disk:
                _unfence(draft, broker)
        case BrokerControlState.ACTIVE:
            may_stop = beat.want_shutdown and (beat.want_fence or not draft.leads_any(broker.id))
            if beat.want_fence or may_stop:
                fence(draft, {broker.id: FenceCause.SHUT_DOWN if may_stop else FenceCause.ASKED})
            elif beat.want_shutdown:
                _begin_shutdown(draft, broker)
                session.shutdown_offset = draft.image.offset
        case BrokerControlState.SHUTTING_DOWN:
            assert session.shutdown_offset is not None, "it began by a record"
            may_stop = not draft.leads_any(broker.id) and sessions.everyone_has_applied(
                draft.image, session.shutdown_offset
            )
            if may_stop:
                fence(draft, {broker.id: FenceCause.SHUT_DOWN})
    if may_stop:
        session.connected = (
            False  # so that it can register again without waiting for this session's end
        )
    if beat.offline_log_dirs:
        _take_directories_offline(draft, beat)
    sessions.note_short(broker.id, beat.short.of(broker.directories))
    if session.short.scarce:
        draft.short = sessions.short_of_room
        _make_way(draft, broker.id)
    if beat.cordoned_log_dirs is not None and beat.cordoned_log_dirs != broker.cordoned:
        draft.add([_registration_change(broker, cordoned_log_dirs=beat.cordoned_log_dirs)])
    return {
        "error_code": 0,
        "is_caught_up": caught_up,
        "is_fenced": draft.image.brokers[broker.id].fenced,
        "should_shut_down": may_stop,
    }


def fence(draft: Draft, causes: Mapping[int, FenceCause]) -> None:
    """Fence all of these brokers, with every partition concerned, in one batch (P32)."""
    gone = frozenset(causes)
    for id, cause in causes.items():
        draft.leaving_because.setdefault(id, _LEAVES_BECAUSE.get(cause, IsrCause.FENCED))
    draft.change_where(lambda partition: not gone.isdisjoint(partition.isr), leaving=gone)
    brokers = [draft.image.brokers[broker_id] for broker_id in causes]
    draft.add([_registration_change(broker, fenced=FENCE) for broker in brokers])
    draft.events += [BrokerFenced(each.id, each.epoch, causes[each.id]) for each in brokers]


def _unfence(draft: Draft, broker: BrokerImage) -> None:
    draft.add([_registration_change(broker, fenced=UNFENCE)])
    draft.events.append(BrokerUnfenced(broker.id, broker.epoch))
    draft.elect_where_leaderless()


def _begin_shutdown(draft: Draft, broker: BrokerImage) -> None:
    draft.leaving_because[broker.id] = IsrCause.SHUTDOWN
    draft.add([_registration_change(broker, in_controlled_shutdown=1)])
    draft.change_where(lambda partition: broker.id in partition.isr, leaving=[broker.id])


def _take_directories_offline(draft: Draft, beat: Heartbeat) -> None:
    """Replicas on a failed disk leave their ISRs. A broker without any working disk is fenced."""
    broker = draft.image.brokers[beat.broker_id]
    failed = [directory for directory in beat.offline_log_dirs if directory in broker.directories]
    online = tuple(directory for directory in broker.directories if directory not in failed)
    if not failed:
        return
    if not online:
        if not broker.fenced:
            fence(draft, {broker.id: FenceCause.NO_DISK})
        return
    draft.leaving_because[broker.id] = IsrCause.DISK
    changes = [
        draft.change(topic, index, leaving=[broker.id])
        for topic, index, partition in draft.partitions()
        if broker.id in partition.isr and _directory_of(partition, broker.id) in failed
    ]
    draft.add([record for record in changes if record is not None])
    draft.add([_registration_change(broker, log_dirs=online)])


def _make_way(draft: Draft, broker_id: int) -> None:
    """Where the broker's disks are nearly full, leaders move to replicas with room, and replicas that can copy nothing any
    more leave the ISRs of leaders that go on. Where all replicas are on full disks nothing changes: nobody takes records
    there, so nobody falls behind. With every heartbeat, because others may have got room since the last one."""
    draft.leaving_because[broker_id] = IsrCause.FULL
    short = draft.short
    changes = []
    for topic, index, partition in draft.partitions():
        if broker_id not in partition.isr:
            continue
        directory = _directory_of(partition, broker_id)
        if partition.leader == broker_id:
            if directory in short.scarce:
                changes.append(draft.change(topic, index, election=Election.WITH_ROOM))
        elif (
            directory in short.full
            and partition.leader in partition.replicas
            and _directory_of(partition, partition.leader) not in short.scarce
        ):
            changes.append(draft.change(topic, index, leaving=[broker_id]))
    draft.add([record for record in changes if record is not None])


def assign_directories(
    draft: Draft, broker_id: int, broker_epoch: int, assignments: Iterable[Assignment]
) -> dict[str, Any]:
    """Record the directory of each replica, as a broker with several disks reports it. A replica in a directory
    that is not online leaves the ISR. LOST means that its data is gone: it leaves the ELR too, and may not lead
    before the broker is in sync again and names another directory. A replica that had no directory may lead now."""
    broker = draft.broker(broker_id, broker_epoch)
    draft.leaving_because[broker_id] = IsrCause.DISK
    answers: dict[UUID, dict[UUID, list[dict[str, Any]]]] = {}
    changes: dict[tuple[UUID, int], MetadataRecord | None] = {}
    for assigned in assignments:
        key = assigned.topic_id, assigned.index
        topic = draft.image.topics_by_id.get(assigned.topic_id)
        error = _assignment_error(topic, assigned.index, broker_id)
        if key in changes:
            error = ErrorCode.INVALID_REQUEST  # a replica has exactly one directory
        rows = answers.setdefault(assigned.directory, {}).setdefault(assigned.topic_id, [])
        rows.append({"partition_index": assigned.index, "error_code": error})
        if topic is not None and not error:
            changes[key] = _assigned(draft, topic, assigned, broker)
    draft.add([record for record in changes.values() if record is not None])
    return {
        "error_code": 0,
        "directories": [
            {
                "id_": directory,
                "topics": [
                    {"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()
                ],
            }
            for directory, topics in answers.items()
        ],
    }


def _assigned(
    draft: Draft, topic: TopicImage, assigned: Assignment, broker: BrokerImage
) -> MetadataRecord | None:
    partition = topic.partitions[assigned.index]
    leaving: Collection[int] = ()
    lost: Collection[int] = ()
    if assigned.directory == DIRECTORY_LOST:
        lost = [broker.id]
    elif assigned.directory not in broker.directories and broker.id in partition.isr:
        leaving = [broker.id]
    moved = PartitionAssignment.of(partition).moved(broker.id, assigned.directory)
    return draft.change(topic, assigned.index, leaving=leaving, lost=lost, assignment=moved)


def _assignment_error(topic: TopicImage | None, index: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[index].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _directory_of(partition: PartitionImage, broker_id: int) -> UUID:
    return partition.directories[partition.replicas.index(broker_id)]


def _registration_change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: tuple[UUID, ...] = (),
    cordoned_log_dirs: tuple[UUID, ...] | None = None,
) -> MetadataRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs,
        cordoned_log_dirs=cordoned_log_dirs,
    )
