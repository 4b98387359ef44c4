"""Ears at the product: whenever it does something rare, it is marked (see `coverage`).

All of it is put in place for the length of a run. Nothing here changes what the product does.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ottla.broker.apis.offsets import OffsetHandlers
from ottla.broker.apis.produce import ParkedProduce
from ottla.broker.replication.alter_partition import IsrProposals
from ottla.log.log import Appended
from ottla.records.batch import CorruptBatch
from ottla.replica.followers import Follower
from ottla.replica.partition import Partition, Proposal
from ottla.replica.sessions import FetchSession, SessionCache
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.oracle.coverage import mark
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition
from ottla.wire.types import TopicPartition


def observed() -> AbstractContextManager[None]:
    return patched(
        [
            *_replicas(),
            *_clients(),
            *_proposals(),
        ]
    )


def _replicas() -> list[Patch]:
    truncate, restart_within = Partition._truncate, Partition.restart_within
    check_epoch, follow = Partition._check_epoch, Partition.follow
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

    return [
        Patch(Partition, "_truncate", truncated),
        Patch(Partition, "follow", followed),
        Patch(Partition, "restart_within", restarted),
        Patch(Partition, "_check_epoch", epoch_checked),
    ]


def _clients() -> list[Patch]:
    append, latest_offset = Partition.append, Partition.latest_offset
    not_committed, time_is_up = ParkedProduce.not_committed, ParkedProduce.time_is_up
    create, begin_deleting = SessionCache.create, OffsetHandlers._begin_deleting

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
        Patch(SessionCache, "create", created),
    ]


def _proposals() -> list[Patch]:
    decided = IsrProposals._decided
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

    return [
        Patch(Partition, "_maybe_expand_isr", considered),
        Patch(IsrProposals, "_decided", answered),
    ]
