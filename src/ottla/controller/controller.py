"""The rules of the active controller: commands in, metadata records out.

`Controller` holds the newest metadata image *including its own records that are not committed yet*, so that
commands can follow each other without waiting for the log. Each command runs to its end without interruption and
returns a `ControllerResult`: the records to append as one atomic batch, and the answer to send once that batch is
committed (P34). The commands are in modules by theme: `brokers`, `partitions`, `reassignments`, `topics`, `configs`,
`quotas`, `acls`, `features`.

This module is pure: no clock, no log, no network. The owner must append the records of each decision before it
runs the next command. If the append fails, leadership is lost, and `deactivate` drops everything uncommitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from ottla.controller import (
    acls,
    brokers,
    configs,
    credentials,
    features,
    partitions,
    quotas,
    reassignments,
    tokens,
    topics,
)
from ottla.controller.brokers import Assignment, Heartbeat, Registration, Sessions
from ottla.controller.configs import ConfigChanges
from ottla.controller.credentials import CredentialDeletion, CredentialUpsertion
from ottla.controller.draft import ControllerConfig, ControllerResult, Draft, IsrProposal
from ottla.controller.features import FeatureUpdate, QuorumVersion
from ottla.controller.partitions import ElectionType
from ottla.controller.quotas import QuotaChanges
from ottla.controller.reassignments import ReassignedPartition
from ottla.controller.tokens import NewToken
from ottla.controller.topics import MorePartitions, NewTopic, Permit, unlimited
from ottla.events.controller import FenceCause
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    BeginTransactionRecord,
    ConfigRecord,
    Endpoint,
    EndTransactionRecord,
    FeatureRange,
    MetadataRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from ottla.security.acls import Acl, AclFilter
from ottla.security.principals import Principal
from ottla.wire.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK = 1_000
PRODUCER_ID_MAX = 2**63 - 1


@dataclass(slots=True)
class _Timers:
    """The next due time of each recurring task (monotonic seconds)."""

    no_op: float
    balance: float
    unclean: float
    last_tick: float


class Controller:
    def __init__(
        self,
        config: ControllerConfig,
        random: Random,
        next_offset: Callable[[], int],
        quorum: QuorumVersion,
    ) -> None:
        """`next_offset` is the offset of the next batch in the metadata log."""
        self.config = config
        self._random = random
        self._image: MetadataImage | None = None
        self._epoch = -1
        self._sessions = Sessions()
        self._timers = _Timers(0.0, 0.0, 0.0, 0.0)
        self._next_offset = next_offset
        self._quorum = quorum

    # Activation and deactivation

    @property
    def active(self) -> bool:
        return self._image is not None

    @property
    def epoch(self) -> int:
        """The epoch in which this controller is, or was last, active."""
        return self._epoch

    @property
    def image(self) -> MetadataImage:
        """The newest metadata, including uncommitted records."""
        return self._active_image()

    def activate(self, image: MetadataImage, epoch: int, now: float) -> None:
        """Called once a record of this epoch is committed and applied."""
        assert not self.active
        assert epoch > self._epoch, "an epoch has one active controller, once"
        self._image, self._epoch = image, epoch
        self._sessions = Sessions.after_failover(image, now)
        self._timers = _Timers(
            no_op=now + self.config.idle_interval,
            balance=now + self.config.rebalance_interval,
            unclean=now + self.config.unclean_election_interval,
            last_tick=now,
        )

    def deactivate(self) -> None:
        self._image = None
        self._sessions = Sessions()

    def bootstrap(self, levels: Sequence[MetadataRecord]) -> ControllerResult:
        """The first records of a new cluster: its feature levels, and the cluster-wide minimum ISR that
        every node must agree on."""
        minimum = ConfigRecord(
            resource_type=BROKER_RESOURCE,
            resource_name="",
            name=configs.MIN_ISR,
            value=str(self.config.min_insync_replicas),
        )

        def decide(draft: Draft) -> dict[str, Any]:
            begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
            draft.add([begin, *levels, minimum, end])
            return {}

        return self.decide(decide)

    # Brokers and controllers

    def register_broker(self, request: Registration, now: float) -> ControllerResult:
        return self.decide(lambda draft: brokers.register(draft, request, self._sessions, now))

    def heartbeat(self, beat: Heartbeat, now: float) -> ControllerResult:
        return self.decide(lambda draft: brokers.heartbeat(draft, beat, self._sessions, now))

    def unregister_broker(self, broker_id: int) -> ControllerResult:
        return self.decide(lambda draft: brokers.unregister(draft, broker_id, self._sessions))

    def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[Assignment]
    ) -> ControllerResult:
        return self.decide(
            lambda draft: brokers.assign_directories(draft, broker_id, broker_epoch, assignments)
        )

    def register_controller(
        self,
        controller_id: int,
        incarnation: UUID,
        endpoints: tuple[Endpoint, ...],
        ranges: tuple[FeatureRange, ...],
    ) -> ControllerResult:
        return self.decide(
            lambda draft: brokers.register_controller(
                draft, controller_id, incarnation, endpoints, ranges
            )
        )

    def broker_disconnected(self, broker_id: int, epoch: int, now: float) -> None:
        """The heartbeat connection closed. The broker has a short time to reconnect."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.connected = False
            session.reconnect_by = now + self.config.reconnect_grace

    def broker_unreachable(self, broker_id: int, epoch: int) -> ControllerResult:
        """The broker's address refuses connections, so its process is gone. Fence it at once, unless it has sent
        a heartbeat since."""

        def decide(draft: Draft) -> dict[str, Any]:
            broker = draft.image.brokers.get(broker_id)
            known = broker is not None and broker.epoch == epoch and not broker.fenced
            if known and not self._sessions[broker_id].connected:
                brokers.fence(draft, {broker_id: FenceCause.UNREACHABLE})
            return {}

        return self.decide(decide)

    def silent_brokers(self) -> list[int]:
        """Unfenced brokers that have sent this controller no heartbeat, or whose connection is lost."""
        return [
            broker.id
            for _, broker in sorted(self.image.brokers.items())
            if not broker.fenced and not self._sessions[broker.id].connected
        ]

    # Partitions

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> ControllerResult:
        return self.decide(
            lambda draft: partitions.alter_partitions(draft, broker_id, broker_epoch, proposals)
        )

    def elect_leaders(
        self, kind: ElectionType, wanted: Sequence[tuple[str, int]] | None
    ) -> ControllerResult:
        return self.decide(lambda draft: partitions.elect_leaders(draft, kind, wanted))

    def alter_reassignments(
        self, wanted: Sequence[ReassignedPartition], *, allow_factor_change: bool = True
    ) -> ControllerResult:
        return self.decide(
            lambda draft: reassignments.alter(
                draft, wanted, allow_factor_change=allow_factor_change
            )
        )

    def list_reassignments(self, wanted: Sequence[tuple[str, int]] | None) -> ControllerResult:
        return self.decide(lambda draft: reassignments.ongoing(draft, wanted))

    # Topics

    def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        permit: Permit = unlimited,
    ) -> ControllerResult:
        return self.decide(
            lambda draft: topics.create_topics(draft, wanted, self._random, permit), validate_only
        )

    def delete_topics(
        self, names: Sequence[str], ids: Sequence[UUID], *, permit: Permit = unlimited
    ) -> ControllerResult:
        return self.decide(lambda draft: topics.delete_topics(draft, names, ids, permit))

    def create_partitions(
        self,
        wanted: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        permit: Permit = unlimited,
    ) -> ControllerResult:
        return self.decide(
            lambda draft: topics.create_partitions(draft, wanted, permit), validate_only
        )

    # Settings, quotas, ACLs, features and producer ids

    def alter_scram_credentials(
        self,
        deletions: Sequence[CredentialDeletion],
        upsertions: Sequence[CredentialUpsertion],
    ) -> ControllerResult:
        return self.decide(lambda draft: credentials.alter(draft, deletions, upsertions))

    def alter_client_quotas(
        self, wanted: Sequence[QuotaChanges], *, validate_only: bool = False
    ) -> ControllerResult:
        return self.decide(lambda draft: quotas.alter(draft, wanted), validate_only)

    def create_acls(self, wanted: Sequence[Acl]) -> ControllerResult:
        return self.decide(lambda draft: acls.create(draft, wanted, self._random))

    def delete_acls(self, filters: Sequence[AclFilter]) -> ControllerResult:
        return self.decide(lambda draft: acls.delete(draft, filters))

    def create_token(self, wanted: NewToken, wall_ms: int) -> ControllerResult:
        return self.decide(lambda draft: tokens.create(draft, wanted, self._random, wall_ms))

    def renew_token(
        self, requester: Principal, hmac: bytes, period_ms: int, wall_ms: int
    ) -> ControllerResult:
        return self.decide(lambda draft: tokens.renew(draft, requester, hmac, period_ms, wall_ms))

    def expire_token(
        self, requester: Principal, hmac: bytes, period_ms: int, wall_ms: int
    ) -> ControllerResult:
        return self.decide(lambda draft: tokens.expire(draft, requester, hmac, period_ms, wall_ms))

    def sweep_tokens(self, wall_ms: int) -> ControllerResult:
        return self.decide(lambda draft: tokens.sweep(draft, wall_ms))

    def update_features(
        self, wanted: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> ControllerResult:
        return self.decide(
            lambda draft: features.update(draft, wanted, self._quorum), validate_only
        )

    def alter_configs(
        self, wanted: Sequence[ConfigChanges], *, validate_only: bool = False
    ) -> ControllerResult:
        return self.decide(lambda draft: configs.alter(draft, wanted), validate_only)

    def incremental_alter_configs(
        self, wanted: Sequence[ConfigChanges], *, validate_only: bool = False
    ) -> ControllerResult:
        return self.decide(lambda draft: configs.incremental_alter(draft, wanted), validate_only)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ControllerResult:
        def decide(draft: Draft) -> dict[str, Any]:
            draft.broker(broker_id, broker_epoch)
            first = draft.image.next_producer_id
            if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up")
            draft.add(
                [
                    ProducerIdsRecord(
                        broker_id=broker_id,
                        broker_epoch=broker_epoch,
                        next_producer_id=first + PRODUCER_ID_BLOCK,
                    )
                ]
            )
            return {
                "error_code": 0,
                "producer_id_start": first,
                "producer_id_len": PRODUCER_ID_BLOCK,
            }

        return self.decide(decide)

    # Time

    def tick(self, now: float) -> ControllerResult:
        """Do what is due: fence brokers whose sessions ended (all in one batch, P32), run unclean elections,
        balance leaders, and write a no-op record, by which the progress of all nodes shows in an idle log."""
        return self.decide(lambda draft: self._tick(draft, now))

    def _tick(self, draft: Draft, now: float) -> dict[str, Any]:
        config, timers = self.config, self._timers
        if now - timers.last_tick > config.session_timeout / 2:
            # This process was paused and could receive no heartbeat: restart all sessions.
            for session in self._sessions.values():
                session.last_contact = max(session.last_contact, now)
        timers.last_tick = now
        stale = self._sessions.stale(draft.image, now, config.session_timeout)
        if stale:
            brokers.fence(draft, {each: self._sessions[each].why_over(now) for each in stale})
            for broker_id in stale:
                self._sessions[broker_id].connected = False
        if now >= timers.unclean:
            timers.unclean = now + config.unclean_election_interval
            draft.elect_where_leaderless()
        if config.rebalance_leaders and now >= timers.balance:
            more = partitions.balance_leaders(draft)
            timers.balance = now if more else now + config.rebalance_interval
        if config.idle_interval and now >= timers.no_op:
            timers.no_op = now + config.idle_interval
            draft.add([NoOpRecord()])
        return {}

    def next_deadline(self) -> float:
        """When `tick` is due next. At most a fraction of the session timeout from now, so that a pause of this
        process can be distinguished from a pause of a broker."""
        config, timers = self.config, self._timers
        deadlines = [timers.last_tick + config.session_timeout / 4, timers.unclean]
        session = self._sessions.next_deadline(self.image, config.session_timeout)
        if session is not None:
            deadlines.append(session)
        if config.rebalance_leaders:
            deadlines.append(timers.balance)
        if config.idle_interval:
            deadlines.append(timers.no_op)
        return min(deadlines)

    # The common path of every command

    def _active_image(self) -> MetadataImage:
        if self._image is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._image

    def withdraw(self, before: MetadataImage) -> None:
        """The last decision is not written: what it would have changed is as it was `before`."""
        self._image = before

    def decide(
        self, command: Callable[[Draft], dict[str, Any]], validate_only: bool = False
    ) -> ControllerResult:
        """Run a command on a draft. A command that raises, or only validates, changes nothing."""
        image, short = self._active_image(), self._sessions.short_of_room
        draft = Draft(image, self.config, self._epoch, self._next_offset(), short)
        response = command(draft)
        if validate_only:
            return ControllerResult([], response)
        result = draft.finish(response)
        self._image = draft.image
        return result
