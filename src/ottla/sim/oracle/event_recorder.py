"""What a node does within one event, and what is over or changed again when the event is looked at."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.node import Node
from ottla.events import Event
from ottla.events.replication import IsrProposed, Truncated
from ottla.raft.messages import Vote, VoteAnswer
from ottla.raft.raft import Raft
from ottla.raft.roles import Role
from ottla.raft.snapshots import Download, SnapshotContent
from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.sim.cluster.nodes import SimNode


class GrantedVote(NamedTuple):
    voter: int
    epoch: int
    candidate: int


class Told:
    """Listens to nodes; whoever checks empties the lists."""

    def __init__(self) -> None:
        self.votes: list[GrantedVote] = []
        self.installs: list[tuple[int, Role]] = []
        """Which node took over a checkpoint, and in which role."""
        self.truncations: list[tuple[int, Truncated]] = []
        self.proposals: list[tuple[Partition, Proposal]] = []
        self._rafts: dict[int, Raft] = {}

    @property
    def has_news(self) -> bool:
        return bool(self.truncations or self.proposals or self.votes or self.installs)

    def forget(self) -> None:
        """The news was looked at, or whoever did it died before anybody could hear of it."""
        for news in (self.truncations, self.proposals, self.votes, self.installs):
            news.clear()

    def listen(self, id: int, node: Node) -> None:
        """To the newest life of the node, once."""
        assert node.quorum is not None
        if self._rafts.get(id) is not node.quorum.raft:
            self._rafts[id] = node.quorum.raft
            self._listen_to_votes(id, node.quorum.raft)
            self._listen_to_installs(id, node.quorum.raft)

    def _listen_to_votes(self, id: int, raft: Raft) -> None:
        handle_vote = raft.handle_vote

        def voted(request: Vote, now: float) -> VoteAnswer:
            answer = handle_vote(request, now)
            if answer.granted and not request.pre_vote:
                self.votes.append(GrantedVote(id, answer.epoch, request.candidate.id))
            return answer

        raft.handle_vote = voted  # type: ignore[method-assign]

    def _listen_to_installs(self, id: int, raft: Raft) -> None:
        install = raft.journal.install

        def installed(download: Download) -> SnapshotContent:
            self.installs.append((id, raft.role))
            return install(download)

        raft.journal.install = installed  # type: ignore[method-assign]

    def replication_event(self, node: SimNode, event: Event) -> None:
        if isinstance(event, Truncated):
            self.truncations.append((node.id, event))
        elif isinstance(event, IsrProposed):
            assert node.node is not None and node.node.broker is not None
            partition = node.node.broker.replicas.partitions[event.partition]
            assert partition.proposal is not None
            self.proposals.append((partition, partition.proposal))
