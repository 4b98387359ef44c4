"""Ears at the product: whenever it does something rare, it is marked (see `coverage`).

All of it is put in place for the length of a run. Nothing here changes what the product does.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ottla.broker.cluster.raft_driver import Quorum
from ottla.controller import partitions
from ottla.controller.draft import Draft
from ottla.controller.partitions import IsrProposal
from ottla.log.log import Log
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
from ottla.records.batch import Batch
from ottla.sim.cluster.nodes import DATA
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.group_observers import coordinators
from ottla.sim.oracle.replica_checker import Checkers
from ottla.wire.errors import ErrorCode
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
    check_decision, check_decisions = Checkers._check_decision, Checkers._check_decisions
    fenced: set[tuple[int, int]] = set()
    deleted: set[str] = set()

    def decision(
        self: Checkers,
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
        self: Checkers, node: int, before: MetadataImage, after: MetadataImage, delta: Delta
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
        Patch(Checkers, "_check_decision", decision),
        Patch(Checkers, "_check_decisions", decisions),
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
    set_aside, mark_offline, start = (
        LogManager.set_aside,
        LogManager.mark_offline,
        LogManager.start,
    )

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
        Patch(LogManager, "set_aside", aside),
        Patch(LogManager, "mark_offline", offline),
        Patch(LogManager, "start", started),
    ]


def _clients() -> list[Patch]:
    check = ProducerState.check

    def checked(self: ProducerState, batch: Batch) -> Written | None:
        written = check(self, batch)
        if written is not None:
            mark("retry answered with its offset")
        return written

    return [
        Patch(ProducerState, "check", checked),
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
    error_of = partitions._proposal_error

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
        Patch(partitions, "_proposal_error", proposal_error),
    ]
