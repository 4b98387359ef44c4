"""What is known about the cluster from outside: what is committed, what each disk held when it was last seen, which
replicas may lack records and why.

The checkers compare nodes with it, and the nemesis asks it which node it may harm. Faults report here what they do to
disks (`power_lost`, `disk_replaced`, …), because only they know.
"""

from __future__ import annotations

from ottla.controller.draft import UNCLEAN_ELECTION
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import DIRECTORY_LOST, NO_LEADER, RECOVERING
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.oracle.eligibility import EligibleLeaders
from ottla.sim.oracle.event_recorder import EventRecorder
from ottla.sim.oracle.expiry import ExpiryRules
from ottla.sim.oracle.last_seen import NodeLastSeen, ReplicaLastSeen
from ottla.sim.oracle.leader_history import LeaderHistory
from ottla.sim.oracle.ledger import Ledger, LogCopy, Violation
from ottla.sim.oracle.loss_checker import LossChecker
from ottla.sim.oracle.quorum_checker import METADATA, QuorumChecker
from ottla.wire.types import TopicPartition


class Evidence:
    """Shared by all checkers of a run. It never changes a node."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.allows_unclean_elections = False
        """Whether the controller may elect a leader that lacks records, if it marks it as RECOVERING."""
        self.disks_are_whole = True
        """No disk was replaced or damaged."""
        self.given_up: set[TopicPartition] = set()
        """Partitions that no replica can lead without loss any more: an operator has chosen a leader."""
        self.quorum = QuorumChecker(cluster)
        self.eligible_leaders = EligibleLeaders()
        self.recorder = EventRecorder()
        cluster.subscribe(self.recorder.happened, *EventRecorder.KINDS)
        self.leaders = LeaderHistory(self.now)
        self.expiry = ExpiryRules(self.now)
        self.losses: LossChecker | None = None
        """In runs in which only processes and lines fail: what is lost must be named and kept exactly."""
        self.is_durable = False
        """Whether everything is flushed before it counts: then no power loss explains that it is gone."""
        self.nodes = {node.id: NodeLastSeen(node) for node in cluster.nodes.values()}

    @property
    def image(self) -> MetadataImage:
        """The image of all committed metadata."""
        return self.quorum.image

    def now(self) -> float:
        return self.cluster.world.loop.time()

    def ledger(self, key: TopicPartition) -> Ledger:
        found = self.ledgers.get(key)
        if found is None:
            found = self.ledgers[key] = Ledger(key, self.cluster.world.loop.trace.tell)
        return found

    def note(self, key: TopicPartition, who: int | str, what: str) -> None:
        name = f"node {who}" if isinstance(who, int) else who
        (self.quorum.ledger if key == METADATA else self.ledger(key)).note(self.now(), name, what)

    def is_deleted(self, partition: Partition) -> bool:
        """Whether its topic was deleted, and the replica does not know yet. Another topic may have its name."""
        topic = self.image.topics.get(partition.topic)
        # Comparing two UUIDs costs more than all else here.
        return topic is None or (
            topic.id is not partition.topic_id and topic.id != partition.topic_id
        )

    def highest_start(self, key: TopicPartition) -> int:
        """The highest log start of all replicas: any of them may have deleted what is below."""
        replicas = (node.replicas.get(key) for node in self.nodes.values())
        return max((replica.log_start for replica in replicas if replica is not None), default=0)

    def note_everywhere(self, what: str) -> None:
        """A fault of machines or the network: it belongs to the notes of every partition."""
        for ledger in (*self.ledgers.values(), self.quorum.ledger):
            ledger.remember(self.now(), "nemesis", what)

    def violation(self, rule: str, who: int | str, key: TopicPartition, what: str) -> Violation:
        ledger = self.quorum.ledger if key == METADATA else self.ledger(key)
        name = f"node {who}" if isinstance(who, int) else who
        return ledger.violation(rule, name, self.now(), what)

    def power_lost(self, node: int) -> None:
        """Reported before the machine is started again: what it had not flushed may be lost."""
        for replica in self.nodes[node].replicas.values():
            self.mark_doubtful(node, replica)

    def died_midway(self, node: int) -> None:
        """Reported when a process died within an event. Nothing that it sent in that event left it, so no other node
        knows what it did there; some of that is on its disk."""
        self.recorder.forget()
        self.quorum.voters[node].died_midway = True
        for replica in self.nodes[node].replicas.values():
            replica.died_midway = True

    def disk_replaced(self, node: int) -> None:
        """Reported before the machine is started again, with an empty disk."""
        self.logs_erased(node)
        self.quorum.voters[node].lost_its_disk()

    def logs_erased(self, node: int) -> None:
        """As `disk_replaced`, but the metadata log is still there."""
        self.power_lost(node)
        self.disks_are_whole = False
        for replica in self.nodes[node].replicas.values():
            replica.recovery_point = 0
            replica.is_wrong = False

    def disk_is_wrong(self, node: int, key: TopicPartition) -> None:
        """The disk of this replica holds other bytes than it wrote, and it cannot know."""
        self.disks_are_whole = False
        replica = self.nodes[node].replicas.get(key)
        if replica is not None:
            replica.is_wrong = True

    def may_lose(self, node: int) -> bool:
        """Whether another member of the ISR or ELR surely holds everything that this node holds."""
        doubtful = self.doubtful_nodes()
        return not any(id != node for id in doubtful) and all(
            any(id != node for id in (*decided.isr, *decided.elr))
            for decided in self._hosted(node).values()
        )

    def _hosted(self, node: int) -> dict[TopicPartition, PartitionImage]:
        return {
            TopicPartition(topic.name, number): partition
            for topic in self.image.topics.values()
            for number, partition in enumerate(topic.partitions)
            if node in partition.replicas
        }

    def leaderless(self) -> dict[TopicPartition, dict[int, str]]:
        """Partitions without a leader although all their nodes are alive: which replicas might lead, and why. If there
        are none, every replica that held everything got an empty disk, or lost its log in a power loss."""
        return {
            TopicPartition(topic.name, number): {
                id: why
                for id, why in self.eligible_leaders.candidates(
                    self.image, topic.id, number, partition
                ).items()
                if not self._lost_its_log(id, TopicPartition(topic.name, number), partition)
            }
            for topic in self.image.topics.values()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == NO_LEADER
            and all(self.quorum.replay.is_alive(id) for id in partition.replicas)
        }

    def _lost_its_log(self, node: int, key: TopicPartition, partition: PartitionImage) -> bool:
        """Whether the node reports its log as lost, and is right. Either the log was too new to be flushed when the power
        was lost, or the node stopped cleanly before it had created the log: then nothing was ever committed."""
        if partition.directories[partition.replicas.index(node)] != DIRECTORY_LOST:
            return False
        replica = self.nodes[node].replicas.get(key)
        lost = replica is not None and replica.is_doubtful and replica.log is None
        return lost or self.end_of(key) == 0

    def mark_doubtful(self, node: int, replica: ReplicaLastSeen) -> None:
        registered = self.image.brokers.get(node)
        replica.is_doubtful = True
        replica.lost_in = -1 if registered is None else registered.epoch

    def is_excused(self, node: int, replica: ReplicaLastSeen) -> bool:
        """Whether the replica may lack records while it is in the ISR or ELR. The controller cannot know of its loss
        before its broker registers again; from then on it is in neither until it has everything."""
        registered = self.image.brokers.get(node)
        return replica.is_doubtful and (registered is None or registered.epoch <= replica.lost_in)

    def allows_unclean(self, key: TopicPartition) -> bool:
        return (
            self.allows_unclean_elections
            or key in self.given_up
            or self.quorum.replay.setting(key.topic, UNCLEAN_ELECTION) == "true"
        )

    def has_vote(self, node: int) -> bool:
        """Whether it had a vote in the quorum when it was last up, and has not lost its disk since."""
        return self.quorum.voters[node].has_vote

    def doubtful_nodes(self) -> list[int]:
        """Nodes that may lack committed records of partitions that are assigned to them."""
        return [
            id
            for id, seen in self.nodes.items()
            if any(
                (replica.is_doubtful or replica.is_wrong) and key in hosted
                for hosted in [self._hosted(id)]
                for key, replica in seen.replicas.items()
            )
        ]

    def end_of(self, key: TopicPartition) -> int:
        """The end of what is committed."""
        ledger = self.ledgers.get(key)
        return 0 if ledger is None else ledger.end

    def copy_of(self, node: int, key: TopicPartition) -> LogCopy:
        return self.nodes[node].replicas[key].copy

    def replicas_on(self, node: int) -> list[TopicPartition]:
        """The partitions whose logs are open there."""
        replicas = self.nodes[node].replicas
        return [key for key, replica in sorted(replicas.items()) if replica.log is not None]

    def log_of(self, node: int, key: TopicPartition) -> Log:
        log = self.nodes[node].replicas[key].log
        assert log is not None
        return log

    def describe(self, key: TopicPartition) -> str:
        """The controller's last decision about it."""
        decided = self.partition_image(key)
        return "unknown" if decided is None else decision(decided)

    def standing(self, key: TopicPartition) -> str:
        """Which nodes believe that they lead it, and the controller's last decision."""
        leaders = [
            f"{node.host.name} says {partition!r}"
            for node in self.cluster.nodes.values()
            if node.node is not None
            and node.node.broker is not None
            and (partition := node.node.broker.replicas.partitions.get(key)) is not None
            and partition.role is Role.LEADER
        ]
        decided = f"the controller of {key.topic}-{key.partition} {self.describe(key)}"
        return "; ".join([*leaders, decided])

    def partition_image(self, key: TopicPartition) -> PartitionImage | None:
        topic = self.image.topics.get(key.topic)
        if topic is None or key.partition >= len(topic.partitions):
            return None
        return topic.partitions[key.partition]


def decision(partition: PartitionImage) -> str:
    return (
        f"leader {partition.leader} epoch {partition.leader_epoch}/{partition.partition_epoch} "
        f"ISR {list(partition.isr)} ELR {list(partition.elr)} "
        f"last known {list(partition.last_known_elr)}"
        + (" RECOVERING" if partition.leader_recovery_state == RECOVERING else "")
    )
