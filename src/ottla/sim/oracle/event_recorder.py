"""What nodes did within one step of the loop: it may be over, or changed again, when the checkers look."""

from __future__ import annotations

from typing import NamedTuple

from ottla.events import Event
from ottla.events.quorum import SnapshotInstalled, VoteGranted
from ottla.events.replication import IsrProposed, Truncated
from ottla.raft.roles import RaftRole
from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.sim.cluster.nodes import SimNode


class GrantedVote(NamedTuple):
    voter: int
    epoch: int
    candidate: int


class EventRecorder:
    """Subscribes to the events of all nodes; the checkers empty its lists."""

    KINDS = VoteGranted, SnapshotInstalled, Truncated, IsrProposed

    def __init__(self) -> None:
        self.votes: list[GrantedVote] = []
        self.installs: list[tuple[int, RaftRole]] = []
        """Which node took over a checkpoint, and in which role."""
        self.truncations: list[tuple[int, Truncated]] = []
        self.proposals: list[tuple[Partition, Proposal]] = []

    @property
    def has_news(self) -> bool:
        return bool(self.truncations or self.proposals or self.votes or self.installs)

    def forget(self) -> None:
        """The events were checked, or the process that emitted them died before anything left it."""
        for news in (self.truncations, self.proposals, self.votes, self.installs):
            news.clear()

    def happened(self, node: SimNode, event: Event) -> None:
        match event:
            case VoteGranted(pre_vote=False):
                self.votes.append(GrantedVote(node.id, event.epoch, event.candidate))
            case SnapshotInstalled():
                assert node.node is not None and node.node.quorum is not None
                self.installs.append((node.id, node.node.quorum.raft.role))
            case Truncated():
                self.truncations.append((node.id, event))
            case IsrProposed():
                assert node.node is not None and node.node.broker is not None
                partition = node.node.broker.replicas.partitions[event.partition]
                assert partition.proposal is not None
                self.proposals.append((partition, partition.proposal))
