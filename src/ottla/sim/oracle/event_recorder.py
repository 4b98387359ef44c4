"""What a node does within one event, and what is over or changed again when the event is looked at."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.node import Broker, Node
from ottla.events import Event
from ottla.events.quorum import SnapshotInstalled, VoteGranted
from ottla.raft.roles import RaftRole
from ottla.replica.partition import Partition, Proposal, Truncation
from ottla.sim.cluster.nodes import SimNode


class GrantedVote(NamedTuple):
    voter: int
    epoch: int
    candidate: int


class EventRecorder:
    """Listens to nodes; whoever checks empties the lists."""

    def __init__(self) -> None:
        self.votes: list[GrantedVote] = []
        self.installs: list[tuple[int, RaftRole]] = []
        """Which node took over a checkpoint, and in which role."""
        self.truncations: list[tuple[int, Truncation]] = []
        self.proposals: list[tuple[Partition, Proposal]] = []
        self._brokers: dict[int, Broker] = {}

    @property
    def has_news(self) -> bool:
        return bool(self.truncations or self.proposals or self.votes or self.installs)

    def forget(self) -> None:
        """The news was looked at, or whoever did it died before anybody could hear of it."""
        for news in (self.truncations, self.proposals, self.votes, self.installs):
            news.clear()

    def listen(self, id: int, node: Node) -> None:
        """To the broker in the newest life of the node, once."""
        if node.broker is not None and self._brokers.get(id) is not node.broker:
            self._brokers[id] = node.broker
            replicas = node.broker.replicas
            replicas.on_truncation.append(lambda cut: self.truncations.append((id, cut)))
            replicas.on_proposal.append(self._proposed)

    def happened(self, node: SimNode, event: Event) -> None:
        if isinstance(event, VoteGranted) and not event.pre_vote:
            self.votes.append(GrantedVote(node.id, event.epoch, event.candidate))
        elif isinstance(event, SnapshotInstalled):
            assert node.node is not None and node.node.quorum is not None
            self.installs.append((node.id, node.node.quorum.raft.role))

    def _proposed(self, partition: Partition) -> None:
        if partition.proposal is not None:
            self.proposals.append((partition, partition.proposal))
