"""Rare states of the metadata quorum and its controller, marked by the events of the nodes."""

from __future__ import annotations

from ottla.events import Event
from ottla.events.controller import IsrProposalRefused
from ottla.events.quorum import (
    DecisionsLost,
    MetadataTruncated,
    QuorumLeaderResigned,
    ResignationCause,
    SnapshotInstalled,
    VoteRefused,
)
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.coverage import mark


def mark_quorum(node: SimNode, event: Event) -> None:
    match event:
        case VoteRefused(pre_vote=pre_vote):
            mark("pre-vote rejected" if pre_vote else "vote rejected")
        case QuorumLeaderResigned(cause=ResignationCause.NO_MAJORITY):
            mark("quorum leader gave up")
        case QuorumLeaderResigned(cause=ResignationCause.REMOVED):
            mark("removed leader resigned")
        case MetadataTruncated():
            mark("metadata truncated")
        case SnapshotInstalled():
            mark("snapshot fetched")
        case DecisionsLost():
            mark("decisions lost")
        case IsrProposalRefused(restarted=restarted) if restarted:
            mark("restarted member refused")
