"""Ears at the product: whenever it does something rare, it is marked (see `coverage`).

All of it is put in place for the length of a run. Nothing here changes what the product does.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ottla.broker.apis.offsets import OffsetHandlers
from ottla.broker.apis.produce import ParkedProduce
from ottla.broker.cluster.raft_driver import Quorum
from ottla.broker.replication.alter_partition import IsrProposals
from ottla.controller import partitions
from ottla.controller.draft import Draft
from ottla.controller.partitions import IsrProposal
from ottla.log.log import Appended, Log
from ottla.log.manager import LogManager
from ottla.log.producer_state import ProducerState, Written
from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.raft.follower import Puller
from ottla.raft.journal import Diverges, Journal
from ottla.raft.messages import Vote
from ottla.raft.raft import Raft
from ottla.raft.roles import Event
from ottla.raft.roles import Role as RaftRole
from ottla.raft.snapshots import Download
from ottla.records.batch import Batch, CorruptBatch
from ottla.replica.followers import Follower
from ottla.replica.partition import Partition, Proposal
from ottla.replica.sessions import FetchSession, SessionCache
from ottla.sim.cluster.nodes import DATA
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.decision_checker import DecisionChecker
from ottla.sim.oracle.group_observers import coordinators
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition
from ottla.wire.types import TopicPartition


def observed() -> AbstractContextManager[None]:
    return patched(
        [
            *_decisions(),
            *_replicas(),
            *_clients(),
            *_logs(),
            *_quorum(),
            *_proposals(),
            *coordinators(),
        ]
    )


def _decisions() -> list[Patch]:
    """As they are committed."""
    check_decision, check_decisions = (
        DecisionChecker._check_decision,
        DecisionChecker.check_decisions,
    )
    fenced: set[tuple[int, int]] = set()
    deleted: set[str] = set()

    def decision(
        self: DecisionChecker,
        node: int,
        key: TopicPartition,
        was: PartitionImage,
        now: PartitionImage,
        image: MetadataImage,
    ) -> None:
        if now.leader == NO_LEADER != was.leader:
            mark("no leader")
        elif now.leader != was.leader:
            _mark_election(was, now)
        if set(now.elr) - set(was.elr):
            mark("in the ELR")
        if (was.adding or was.removing) and not (now.adding or now.removing):
            original = [replica for replica in was.replicas if replica not in was.adding]
            mark("reassignment cancelled" if list(now.replicas) == original else "reassigned")
        check_decision(self, node, key, was, now, image)

    def decisions(
        self: DecisionChecker, node: int, before: MetadataImage, after: MetadataImage, delta: Delta
    ) -> None:
        if any(name in deleted and name not in before.topics for name in after.topics):
            mark("topic made anew")
        deleted.update(topic.name for topic in delta.deleted_topics)
        for id in delta.changed_brokers:
            was, now = before.brokers.get(id), after.brokers.get(id)
            if was is None or now is None or was.epoch != now.epoch or was.fenced == now.fenced:
                continue
            if now.fenced:
                fenced.add((id, now.epoch))
            elif (id, now.epoch) in fenced:
                mark("fenced and back")
        check_decisions(self, node, before, after, delta)

    return [
        Patch(DecisionChecker, "_check_decision", decision),
        Patch(DecisionChecker, "check_decisions", decisions),
    ]


def _mark_election(was: PartitionImage, now: PartitionImage) -> None:
    if now.leader in was.isr:
        if now.isr == was.isr:
            mark("leader moved in sync")
    elif now.leader in was.elr:
        mark("leader from the ELR")
    elif now.leader_recovery_state == RECOVERING:
        mark("last known leader" if now.leader in was.last_known_elr else "unclean election")


def _replicas() -> list[Patch]:
    truncate, restart_within = Partition._truncate, Partition.restart_within
    check_epoch, set_aside = Partition._check_epoch, LogManager.set_aside
    mark_offline, start = LogManager.mark_offline, LogManager.start
    follow = Partition.follow
    last_cut: dict[tuple[int, TopicPartition], tuple[int, int]] = {}

    def truncated(self: Partition, diverging: tuple[int, int], leader_log_start: int) -> None:
        log = self.log
        end, high_watermark, segments = log.log_end, log.high_watermark, len(log.segment_bases)
        truncate(self, diverging, leader_log_start)
        if log.log_end == end:
            return
        mark("truncation")
        who = self.config.node_id, self.key
        if last_cut.get(who) == (self.leader_epoch, end):
            mark("truncation in two rounds")
        last_cut[who] = self.leader_epoch, log.log_end
        if log.log_end < high_watermark:
            mark("committed records truncated")
        if len(log.segment_bases) < segments:
            mark("truncation across segments")

    def followed(self: Partition, answer: FetchedPartition, leader_epoch: int) -> int:
        try:
            return follow(self, answer, leader_epoch)
        except CorruptBatch:
            mark("damage seen by a follower")
            raise

    def restarted(self: Partition, leader_log_start: int, leader_log_end: int) -> None:
        end = self.log.log_end
        restart_within(self, leader_log_start, leader_log_end)
        if self.log.log_end > end:
            mark("began anew")

    def epoch_checked(self: Partition, named_epoch: int) -> ErrorCode | None:
        error = check_epoch(self, named_epoch)
        if error is not None:
            older = error is ErrorCode.FENCED_LEADER_EPOCH
            mark("older epoch refused" if older else "newer epoch refused")
        return error

    def aside(self: LogManager, key: TopicPartition) -> str:
        mark("log set aside")
        return set_aside(self, key)

    def offline(self: LogManager, directory: str, cause: Exception) -> None:
        if directory not in self.offline_directories:
            mark("log directory failed")
        mark_offline(self, directory, cause)

    def started(self: LogManager, *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        if self.previous_broker_epoch >= 0:
            mark("clean stop recognized")

    return [
        Patch(Partition, "_truncate", truncated),
        Patch(Partition, "follow", followed),
        Patch(Partition, "restart_within", restarted),
        Patch(Partition, "_check_epoch", epoch_checked),
        Patch(LogManager, "set_aside", aside),
        Patch(LogManager, "mark_offline", offline),
        Patch(LogManager, "start", started),
    ]


def _clients() -> list[Patch]:
    append, latest_offset = Partition.append, Partition.latest_offset
    not_committed, time_is_up = ParkedProduce.not_committed, ParkedProduce.time_is_up
    check, create = ProducerState.check, SessionCache.create
    begin_deleting = OffsetHandlers._begin_deleting

    def begun(self: OffsetHandlers, topic: str, number: int, offset: int) -> tuple[Partition, int]:
        partition, target = begin_deleting(self, topic, number, offset)
        mark("records deleted")
        return partition, target

    def appended(self: Partition, *arguments: Any) -> Appended:
        try:
            return append(self, *arguments)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                mark("too few replicas")
            raise

    def latest(self: Partition, read_committed: bool) -> int:
        try:
            return latest_offset(self, read_committed)
        except KafkaError:
            mark("end not available")
            raise

    def failed(self: ParkedProduce, partition: Partition, error: ErrorCode) -> None:
        left = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        mark("parked produce lost its leader" if left else "too few replicas after append")
        not_committed(self, partition, error)

    def timed_out(self: ParkedProduce) -> None:
        mark("parked produce timed out")
        time_is_up(self)

    def checked(self: ProducerState, batch: Batch) -> Written | None:
        written = check(self, batch)
        if written is not None:
            mark("retry answered with its offset")
        return written

    def created(
        self: SessionCache, *arguments: Any, **named: Any
    ) -> tuple[FetchSession, FetchSession | None]:
        session, evicted = create(self, *arguments, **named)
        if evicted is not None:
            mark("session evicted")
        return session, evicted

    return [
        Patch(Partition, "append", appended),
        Patch(OffsetHandlers, "_begin_deleting", begun),
        Patch(Partition, "latest_offset", latest),
        Patch(ParkedProduce, "not_committed", failed),
        Patch(ParkedProduce, "time_is_up", timed_out),
        Patch(ProducerState, "check", checked),
        Patch(SessionCache, "create", created),
    ]


def _logs() -> list[Patch]:
    initialize, delete_old_segments = Log.__init__, Log.delete_old_segments

    def initialized(self: Log, *arguments: Any, **named: Any) -> None:
        initialize(self, *arguments, **named)
        if self.bytes_cut_at_open and self.path.startswith(DATA):
            mark("torn tail cut")

    def deleted(self: Log, now_ms: int) -> int:
        count = delete_old_segments(self, now_ms)
        if count and self.path.startswith(DATA):
            mark("records expired")
        return count

    return [Patch(Log, "__init__", initialized), Patch(Log, "delete_old_segments", deleted)]


def _quorum() -> list[Patch]:
    grants, tick, truncate = Raft._grants, Raft.tick, Puller._truncate
    install, fail_appends = Journal.install, Quorum._fail_appends

    def granted(self: Raft, request: Vote) -> bool:
        given = grants(self, request)
        if not given:
            mark("pre-vote rejected" if request.pre_vote else "vote rejected")
        return given

    def ticked(self: Raft, now: float) -> None:
        led = self.role is RaftRole.LEADER
        tick(self, now)
        if led and self.role is RaftRole.RESIGNED:
            mark("quorum leader gave up")

    def truncated(self: Puller, diverges: Diverges) -> list[Event]:
        events = truncate(self, diverges)
        if events:
            mark("metadata truncated")
        return events

    def installed(self: Journal, download: Download) -> Any:
        content = install(self, download)
        mark("snapshot fetched")
        return content

    def failed(self: Quorum, error: Exception) -> None:
        if self._appends:
            mark("decisions lost")
        fail_appends(self, error)

    return [
        Patch(Raft, "_grants", granted),
        Patch(Raft, "tick", ticked),
        Patch(Puller, "_truncate", truncated),
        Patch(Journal, "install", installed),
        Patch(Quorum, "_fail_appends", failed),
    ]


def _proposals() -> list[Patch]:
    decided, error_of = IsrProposals._decided, partitions._proposal_error
    maybe_expand_isr = Partition._maybe_expand_isr

    def considered(self: Partition, now: float, fetching: Follower | None = None) -> None:
        if self.log.high_watermark < self.epoch_start and any(
            follower.id not in self.isr
            and self.log.high_watermark <= follower.log_end < self.epoch_start
            and self.eligible_broker_epoch(follower.id) == follower.broker_epoch
            for follower in self.followers.values()
        ):
            mark("below the epoch's start")
        maybe_expand_isr(self, now, fetching)

    def answered(
        self: IsrProposals, partition: Partition, proposal: Proposal, result: Any, now: float
    ) -> bool:
        if int(result.error_code) != ErrorCode.NONE:
            grows = len(proposal.isr) > len(partition.isr)
            mark("ISR expansion refused" if grows else "ISR shrink refused")
        return decided(self, partition, proposal, result, now)

    def proposal_error(
        draft: Draft, broker_id: int, topic: TopicImage | None, proposal: IsrProposal
    ) -> ErrorCode:
        error = error_of(draft, broker_id, topic, proposal)
        if error is ErrorCode.INELIGIBLE_REPLICA:
            known = draft.image.brokers
            if any(
                draft.image.is_alive(member) and epoch not in (known[member].epoch, -1)
                for member, epoch in proposal.isr
            ):
                mark("restarted member refused")
        return error

    return [
        Patch(Partition, "_maybe_expand_isr", considered),
        Patch(IsrProposals, "_decided", answered),
        Patch(partitions, "_proposal_error", proposal_error),
    ]
