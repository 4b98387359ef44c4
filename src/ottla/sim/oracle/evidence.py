"""What is known of the cluster, seen from outside: the ledgers, what each node's disk held when it was last seen, who may
miss something and why. `checkers` holds what happens against it; the nemesis asks whom it may harm.
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
from ottla.sim.oracle.quorum_checker import METADATA, QuorumChecker
from ottla.wire.types import TopicPartition


class Evidence:
    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.allows_unclean_elections = False
        """Whether a leader may be elected that surely lacks records, if the controller says so with it."""
        self.disks_are_whole = True
        """None was replaced, or got something wrong."""
        self.given_up: set[TopicPartition] = set()
        """Partitions of which whoever had all that was committed lost it: an operator chose another leader."""
        self.quorum = QuorumChecker(cluster)
        self.eligible_leaders = EligibleLeaders()
        self.recorder = EventRecorder()
        cluster.subscribe(self.recorder.happened)
        self.leaders = LeaderHistory(self.now)
        self.expiry = ExpiryRules(self.now)
        self.is_durable = False
        """Whether everything is flushed before it counts: then no power loss explains that it is gone."""
        self.nodes = {node.id: NodeLastSeen(node) for node in cluster.nodes.values()}

    @property
    def image(self) -> MetadataImage:
        """What the committed metadata adds up to."""
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
        """Its topic is, whatever has that name now, and its replica has not heard of it yet."""
        topic = self.image.topics.get(partition.topic)
        return topic is None or topic.id != partition.topic_id

    def highest_start(self, key: TopicPartition) -> int:
        """Of all replicas: what is below may be gone from any of them."""
        replicas = (node.replicas.get(key) for node in self.nodes.values())
        return max((replica.log_start for replica in replicas if replica is not None), default=0)

    def note_everywhere(self, what: str) -> None:
        """Something happened to machines or the network."""
        for ledger in (*self.ledgers.values(), self.quorum.ledger):
            ledger.remember(self.now(), "nemesis", what)

    def violation(self, rule: str, who: int | str, key: TopicPartition, what: str) -> Violation:
        ledger = self.quorum.ledger if key == METADATA else self.ledger(key)
        name = f"node {who}" if isinstance(who, int) else who
        return ledger.violation(rule, name, self.now(), what)

    def power_lost(self, node: int) -> None:
        """Told before the machine is started again: what it has unflushed may be gone."""
        for replica in self.nodes[node].replicas.values():
            self.mark_doubtful(node, replica)

    def died_midway(self, node: int) -> None:
        """Told when a process died within an event. What it sent in that event never left it, so nobody can know of
        anything that it did there; on its disk some of it is."""
        self.recorder.forget()
        self.quorum.voters[node].died_midway = True
        for replica in self.nodes[node].replicas.values():
            replica.died_midway = True

    def disk_replaced(self, node: int) -> None:
        """Told before the machine is started again, with an empty disk."""
        self.logs_erased(node)
        self.quorum.voters[node].lost_its_disk()

    def logs_erased(self, node: int) -> None:
        """The same, but for the log of the metadata."""
        self.power_lost(node)
        self.disks_are_whole = False
        for replica in self.nodes[node].replicas.values():
            replica.recovery_point = 0
            replica.is_wrong = False

    def disk_is_wrong(self, node: int, key: TopicPartition) -> None:
        """Some of what this replica has is not what it wrote, and it cannot know."""
        self.disks_are_whole = False
        replica = self.nodes[node].replicas.get(key)
        if replica is not None:
            replica.is_wrong = True

    def may_lose(self, node: int) -> bool:
        """Whether everything that this node holds is surely held by another in sync, or eligible to lead."""
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
        """Partitions that nobody leads, though all of their nodes are there: who might, and why. If nobody,
        whoever had everything committed was given an empty disk, or lost its log's name with its power."""
        return {
            TopicPartition(topic.name, number): {
                id: why
                for id, why in self.eligible_leaders.heirs(
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
        """And says so. With its power: it was too new to be flushed, and nothing can be read there. Or it stopped
        cleanly before it had made it: nothing was ever committed, but it cannot know that."""
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
        """It may miss what it is taken to hold, because the controller cannot know yet: as soon as its
        broker has registered anew, it is in no set until it has everything."""
        registered = self.image.brokers.get(node)
        return replica.is_doubtful and (registered is None or registered.epoch <= replica.lost_in)

    def allows_unclean(self, key: TopicPartition) -> bool:
        return (
            self.allows_unclean_elections
            or key in self.given_up
            or self.quorum.replay.setting(key.topic, UNCLEAN_ELECTION) == "true"
        )

    def has_vote(self, node: int) -> bool:
        """Whether it had one in the quorum when it was last there, and has not lost its disk since."""
        return self.quorum.voters[node].has_vote

    def doubtful_nodes(self) -> list[int]:
        """Nodes that may miss something that was committed, and that they are to hold."""
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
        """Of what is committed."""
        ledger = self.ledgers.get(key)
        return 0 if ledger is None else ledger.end

    def copy_of(self, node: int, key: TopicPartition) -> LogCopy:
        return self.nodes[node].replicas[key].copy

    def replicas_on(self, node: int) -> list[TopicPartition]:
        """Those that are open there."""
        replicas = self.nodes[node].replicas
        return [key for key, replica in sorted(replicas.items()) if replica.log is not None]

    def log_of(self, node: int, key: TopicPartition) -> Log:
        log = self.nodes[node].replicas[key].log
        assert log is not None
        return log

    def describe(self, key: TopicPartition) -> str:
        """What the controller has decided about it."""
        decided = self.partition_image(key)
        return "unknown" if decided is None else decision(decided)

    def standing(self, key: TopicPartition) -> str:
        """Who takes itself for its leader, and what the controller has decided."""
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
