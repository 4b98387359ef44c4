"""Members of the ISR and of the ELR hold everything that is committed (D1, D9, D10).

D1 is checked when a high watermark advances and when a decision of the controller is committed, D9 when a leader
advances its high watermark, D10 when a replica is proposed for the ISR and when it is taken into it.
"""

from __future__ import annotations

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import RECOVERING
from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.oracle.evidence import Evidence, decision
from ottla.sim.oracle.last_seen import ReplicaLastSeen
from ottla.sim.oracle.ledger import LogCopy
from ottla.wire.types import TopicPartition


class IsrChecker:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def check_proposal(self, partition: Partition, proposal: Proposal) -> None:
        """D10: the current leader proposes no replica that lacks committed records, if the leader can know. The
        controller refuses proposals of former leaders, and of brokers that restarted since (KIP-903)."""
        decided = self._evidence.partition_image(partition.key)
        if decided is None or decided.leader_epoch != proposal.leader_epoch:
            return
        for member, epoch in proposal.isr:
            registered = self._evidence.image.brokers.get(member)
            if member not in decided.isr and registered is not None and registered.epoch == epoch:
                self.check_joined(member, partition.key, decided)

    def check_joined(self, member: int, key: TopicPartition, now: PartitionImage) -> None:
        """D10: a replica that joins holds all committed records, whatever the leader's own high watermark is."""
        ledger = self._evidence.ledger(key)
        replica = self._evidence.nodes[member].replicas.get(key)
        if replica is None:
            holds = ledger.end == 0
        else:
            holds = ledger.holds_all(replica.copy) or self._evidence.is_excused(member, replica)
        if replica is not None and ledger.losses and replica.copy.start > ledger.losses[-1][0]:
            holds = True  # its log begins where a leader's records are lost: nothing to compare
        if not holds and now.leader_epoch >= ledger.loss_epoch:
            lacks = _lacks(replica, ledger.copy, ledger.end)
            raise self._evidence.violation(
                "D10",
                member,
                key,
                f"is to be in the ISR without all records committed below {ledger.end}: {lacks}; "
                f"the controller decided {decision(now)}",
            )

    def check_strong_isr(
        self, key: TopicPartition, partition: Partition, leader: ReplicaLastSeen
    ) -> None:
        """D1: every member of the controller's ISR and ELR holds all below this leader's high watermark."""
        decided = self._evidence.partition_image(key)
        if (
            decided is not None
            and decided.leader_recovery_state == RECOVERING
            and decided.leader_epoch > partition.leader_epoch
        ):
            return  # the controller says that records of this former leader may be lost
        if decided is not None and decided.replicas == partition.replicas:
            for member in (*decided.isr, *decided.elr):
                self._check_holds(
                    member, key, leader, partition.log.high_watermark, "D1", partition
                )

    def check_all_leaders(self, key: TopicPartition) -> None:
        """D1 after a decision, for every node that believes itself to be the leader."""
        for seen in self._evidence.nodes.values():
            node = seen.machine.node
            if node is None or node.broker is None or not node.broker.is_serving:
                continue
            partition = node.broker.replicas.partitions.get(key)
            replica = seen.replicas.get(key)
            if (
                partition is not None
                and replica is not None
                and replica.state is not None
                and partition.role is Role.LEADER
                and partition.leader_epoch >= self._evidence.ledger(key).loss_epoch
            ):
                self.check_strong_isr(key, partition, replica)

    def check_members_hold(self, partition: Partition, leader: ReplicaLastSeen) -> None:
        """D9: every member of the leader's ISR, and every proposed member, holds all below the high watermark."""
        leadership = partition.leadership
        # None: its disk failed in the same event, after it had committed.
        proposal = None if leadership is None else leadership.isr_changes.proposal
        proposed = () if proposal is None else (id for id, _ in proposal.isr)
        members = dict.fromkeys((*partition.isr, *proposed))
        for member in members:
            if not self._has_restarted_since(member, partition):
                high_watermark = partition.log.high_watermark
                self._check_holds(member, partition.key, leader, high_watermark, "D9", partition)

    def _has_restarted_since(self, member: int, partition: Partition) -> bool:
        """Whether the leader counts a member as it was before that member restarted. Either it is only proposed,
        and the controller will refuse it (KIP-903), or the controller has removed it from the ISR and the leader
        does not know yet."""
        registered = self._evidence.image.brokers.get(member)
        if member in partition.isr:
            decided = self._evidence.partition_image(partition.key)
            leadership = partition.leadership
            follower = None if leadership is None else leadership.followers.get(member)
            return (
                decided is not None
                and member not in decided.isr
                and follower is not None
                and (registered is None or follower.broker_epoch != registered.epoch)
            )
        proposed = {} if partition.proposal is None else dict(partition.proposal.isr)
        return registered is None or proposed.get(member) != registered.epoch

    def _check_holds(
        self,
        member: int,
        key: TopicPartition,
        leader: ReplicaLastSeen,
        high_watermark: int,
        rule: str,
        partition: Partition,
    ) -> None:
        replica = self._evidence.nodes[member].replicas.get(key)
        if replica is leader or (
            replica is not None and self._evidence.is_excused(member, replica)
        ):
            return
        decided = self._evidence.partition_image(key)
        if decided is not None and member not in decided.replicas:
            return  # it held everything when it was removed from the partition
        if (
            replica is not None
            and replica.is_doubtful
            and decided is not None
            and member not in (*decided.isr, *decided.elr)
        ):
            return  # it held everything before it restarted, which its leader does not know yet
        committed = leader.copy.floor(high_watermark)
        if committed == leader.copy.start:
            return
        if replica is not None and committed < replica.copy.start <= self._evidence.ledger(key).end:
            return  # it held everything; a later leader committed more, and retention deleted it there
        if replica is None or replica.copy.hash_at(committed) != leader.copy.hash_at(committed):
            lacks = _lacks(replica, leader.copy, committed)
            raise self._evidence.violation(
                rule,
                member,
                key,
                f"must hold all below the high watermark {high_watermark}, but {lacks}; "
                f"leader: {partition!r}; controller: {self._evidence.describe(key)}",
            )


def _lacks(replica: ReplicaLastSeen | None, whole: LogCopy, end: int) -> str:
    """Which offsets below `end` this replica lacks, or holds with other content than `whole`."""
    if replica is None:
        return f"it has no replica and lacks {whole.start}..{end - 1}"
    return f"it lacks {whole.agreed(replica.copy)}..{end - 1} (its log ends at {replica.copy.end})"
