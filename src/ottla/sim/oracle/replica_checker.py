"""Replicas of one node: leadership, high watermark and ISR minimum after each event (D3, D4, D5, D9, M8).

Each check costs what changed: a node's partitions are compared with how they were last seen, and only those that
differ are read. What the log itself must keep to is in `log_checker`, what the other members of the ISR must hold in
`isr_checker`.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.metadata.records import RECOVERING
from ottla.replica.partition import Partition, Role
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import TABLE
from ottla.sim.oracle.isr_checker import IsrChecker
from ottla.sim.oracle.last_seen import ComparedState, NodeLastSeen, ReplicaLastSeen
from ottla.sim.oracle.ledger import RecordedLoss
from ottla.sim.oracle.log_checker import LogChecker
from ottla.wire.types import TopicPartition


class ReplicaChecker:
    def __init__(self, evidence: Evidence, log: LogChecker, isr: IsrChecker) -> None:
        self.on_loss: list[Callable[[TopicPartition, RecordedLoss], None]] = []
        """A leader began without records that were committed, and the controller had said that this may happen."""
        self._evidence = evidence
        self._log = log
        self._isr = isr
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        """Which node led a partition in an epoch."""

    def look(self, seen: NodeLastSeen, partitions: dict[TopicPartition, Partition]) -> None:
        known = seen.replicas
        for key, partition in partitions.items():
            log = partition.log
            if self._evidence.is_deleted(partition):
                continue
            if key.topic == TABLE:
                continue  # compacted: `tables` looks at it
            state = (
                log.log_end,
                log.high_watermark,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.role,
                log.log_start,
                log.config.min_insync_replicas,
            )
            replica = known.get(key)
            if replica is None or replica.log is not log:
                replica = self._log.opened(seen, key, partition)
            if replica.state != state:
                self._changed(seen, key, partition, replica, ComparedState(*state))
            replica.recovery_point, replica.log_start = log.recovery_point, log.log_start
        if len(partitions) < len(known) or TABLE in self._evidence.image.topics:
            self._look_at_missing(seen, [key for key in known if key not in partitions])

    def _look_at_missing(self, seen: NodeLastSeen, missing: list[TopicPartition]) -> None:
        node = seen.machine.id
        for key in missing:
            replica = seen.replicas[key]
            decided = self._evidence.partition_image(key)
            if (
                decided is None
                or node not in decided.replicas
                or replica.dismissed_in
                is not None  # and given back since, which its node has yet to hear
            ):
                self._evidence.note(key, node, "has no replica any more")
                del seen.replicas[key]
            elif replica.log is not None:
                self._evidence.note(key, node, "no longer serves its replica")
                self._look_a_last_time(seen, key, replica)
                self._evidence.mark_doubtful(node, replica)
                replica.died_midway = True  # its disk may have failed within something
                replica.partition, replica.state = None, None

    def _look_a_last_time(
        self, seen: NodeLastSeen, key: TopicPartition, replica: ReplicaLastSeen
    ) -> None:
        """Requests that come together are one event: when the disk fails in the second, what the first
        wrote may be committed, and acknowledged."""
        partition, state = replica.partition, replica.state
        assert partition is not None
        if (
            state is not None
            and state.role is Role.LEADER
            and state.leader_epoch == partition.leader_epoch
            and state.high_watermark < partition.log.high_watermark
        ):
            replica.copy.follow(seen.machine.host.disk, partition.log)
            self._log.check_same_batches(seen, key, replica)
            self._high_watermark_advanced(seen, key, partition, replica, state.role)

    def _changed(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        state: ComparedState,
    ) -> None:
        node = seen.machine.id
        before, replica.state = replica.state, state
        if replica.dismissed_in is not None and state.partition_epoch > replica.dismissed_in:
            replica.dismissed_in = None
        self._evidence.note(key, node, repr(partition))
        partition.invariants()  # D5, D6
        if before is None or before.log_end != state.log_end or before.role is not state.role:
            self._log.changed(seen, key, partition, replica, before)
        elif before.log_start != state.log_start:
            self._log.forget_expired(seen, key, partition.log, replica)
        led_before = before is not None and before.role is Role.LEADER
        same_epoch = before is not None and before.leader_epoch == state.leader_epoch
        took_over = state.role is Role.LEADER and not (led_before and same_epoch)
        if state.role is Role.LEADER:
            if took_over:
                self._took_leadership(seen, key, partition, replica)
            elif before is not None and state.high_watermark < before.high_watermark:
                raise self._evidence.violation(
                    "D4", node, key, f"HW went back to {state.high_watermark}: {partition!r}"
                )
        advanced = before is None or state.high_watermark > before.high_watermark
        if before is not None and advanced:
            replica.committed_in = state.leader_epoch
        if before is None and state.role is Role.FOLLOWER and self._evidence.ledger(key).losses:
            advanced = False  # it may still take for committed what is lost, until it has cut that
        if advanced and state.role is not Role.OFFLINE:
            self._high_watermark_advanced(seen, key, partition, replica, state.role)
        elif took_over:
            # As long as it followed, after a loss, what it took for committed was not believed.
            self._commit(seen, key, partition, replica)
        self._log.check_log_start(node, key, partition, replica)
        self._check_minimum(seen, key, partition)
        replica.under_min_isr = partition.is_under_min_isr
        if replica.is_doubtful and self._evidence.ledger(key).holds_all(replica.copy):
            replica.is_doubtful = False

    def _check_minimum(self, seen: NodeLastSeen, key: TopicPartition, partition: Partition) -> None:
        """D9: a leader that has heard of every decision asks for as many in-sync replicas as was decided."""
        node = seen.machine.node
        assert node is not None and node.quorum is not None
        if (
            partition.role is Role.LEADER
            and node.quorum.image.offset == self._evidence.image.offset
        ):
            enough = self._evidence.quorum.replay.enough_in_sync(key.topic, len(partition.replicas))
            if partition.min_isr != enough:
                what = f"takes {partition.min_isr} in-sync replicas for enough, {enough} were asked for"
                raise self._evidence.violation("D9", seen.machine.id, key, what)

    def _took_leadership(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
    ) -> None:
        """D3: a clean leader has everything. M8: it is the only one of its epoch."""
        node = seen.machine.id
        epoch = partition.leader_epoch
        other = self._leaders.setdefault((partition.topic_id, key.partition, epoch), node)
        if other != node:
            raise self._evidence.violation(
                "M8", node, key, f"leads epoch {epoch}, which node {other} led"
            )
        ledger = self._evidence.ledger(key)
        holds_all = ledger.holds_all(replica.copy)
        if holds_all and ledger.unclean_in != epoch:
            return
        decided = self._evidence.partition_image(key)
        if (
            decided is not None
            and decided.leader_epoch == epoch
            and decided.leader_recovery_state == RECOVERING
            and (
                holds_all
                or replica.is_doubtful
                or replica.is_wrong
                or self._evidence.allows_unclean(key)
            )
        ):
            self._evidence.note(key, node, f"leads, maybe with losses, with end {replica.copy.end}")
            agreed = ledger.copy.agreed(replica.copy)
            must_have = (
                self._evidence.is_durable
                and self._evidence.disks_are_whole
                and not self._evidence.allows_unclean(key)
            )
            if must_have and agreed < ledger.end:
                what = f"lost what was flushed before it counted: {agreed} of {ledger.end}"
                raise self._evidence.violation(
                    "D7", node, key, f"leads with end {replica.copy.end}, and {what}"
                )
            ledger.lose_from(agreed, epoch, replica.copy)
            if ledger.loss_epoch == epoch:
                for callback in self.on_loss:
                    callback(key, ledger.losses[-1])
            return
        if decided is not None and decided.leader_epoch > epoch:
            return  # deposed before it knew that it was elected, and so it will never act on it
        raise self._evidence.violation(
            "D3",
            node,
            key,
            f"leads epoch {epoch} with end {replica.copy.end} and without all that is committed "
            f"below {ledger.end}",
        )

    def _high_watermark_advanced(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        role: Role,
    ) -> None:
        node = seen.machine.id
        ledger = self._evidence.ledger(key)
        high_watermark = partition.log.high_watermark
        was = ledger.end
        if not self._commit(seen, key, partition, replica):
            return
        if role is not Role.LEADER:
            if ledger.end > was:
                what = f"the highest that a leader has committed is {was}"
                raise self._evidence.violation(
                    "D9", node, key, f"HW {high_watermark}, but {what}: {partition!r}"
                )
            return
        if replica.under_min_isr and partition.is_under_min_isr and high_watermark > was:
            raise self._evidence.violation(
                "D9", node, key, f"HW moved below min.insync.replicas: {partition!r}"
            )
        for member in partition.maximal_isr:
            if not self._isr.is_former_self(member, partition):
                self._isr.check_holds(member, key, replica, high_watermark, "D9", partition)
        self._isr.check_strong_isr(key, partition, replica)

    def _commit(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
    ) -> bool:
        """D3: what is committed is, and stays, the same. Whether this replica has a say in it."""
        ledger = self._evidence.ledger(key)
        if partition.leader_epoch < ledger.loss_epoch:
            return False
        high_watermark = partition.log.high_watermark
        problem = ledger.commit(replica.copy, high_watermark)
        if problem is not None and not replica.is_doubtful:
            what = f"HW {high_watermark}, but {problem}"
            raise self._evidence.violation("D3", seen.machine.id, key, what)
        return True
