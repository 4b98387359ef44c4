"""Rare states of the coordinators, of groups and of transactions, marked from their events (see `coverage`)."""

from __future__ import annotations

from ottla.events import Event
from ottla.events.coordination import (
    AbortCause,
    CoordinatorFencedProducer,
    EndTransactionRepeated,
    MemberExpired,
    OffsetCommitRefused,
    ReplyTimedOut,
    ShardLoaded,
    ShardRestarted,
    ShardUnloaded,
    StaticMemberReplaced,
    TransactionAborted,
    UnstableOffset,
)
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.coverage import mark


def mark_coordination(node: SimNode, event: Event) -> None:
    match event:
        case ShardLoaded():
            _mark_loaded(event)
        case ShardUnloaded():
            if event.open_work.rebalancing_groups:
                mark("rebalance lost its coordinator")
            if event.lost_decisions:
                mark("replies lost their coordinator")
        case ShardRestarted():
            mark("shard began again")
        case ReplyTimedOut():
            mark("reply not committed in time")
        case OffsetCommitRefused():
            if event.producer_id < 0:
                mark("commit of a former member refused")
        case UnstableOffset():
            mark("offset unstable")
        case MemberExpired():
            mark("member fell silent")
        case StaticMemberReplaced():
            mark("static member came back")
        case CoordinatorFencedProducer():
            mark("producer fenced by its coordinator")
        case EndTransactionRepeated():
            mark("end of a transaction repeated")
        case TransactionAborted():
            mark("transaction aborted by its coordinator")
            if event.cause is AbortCause.TIMEOUT:
                mark("transaction timed out")
        case _:
            pass


def _mark_loaded(event: ShardLoaded) -> None:
    work = event.open_work
    for count, state in (
        (work.groups_with_offsets, "offsets loaded anew"),
        (work.groups_with_pending_offsets, "offsets of an open transaction loaded anew"),
        (work.ongoing_transactions, "open transaction got another coordinator"),
        (work.prepared_transactions, "decided transaction got another coordinator"),
    ):
        if count:
            mark(state)
