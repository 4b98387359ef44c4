"""Replicas of one node: leadership, high watermark and ISR minimum after each event (D3, D4, D5, D9, M8).

Each check costs what changed: a node's partitions are compared with how they were last seen, and only those that
differ are read. What the log itself must keep to is in `log_checker`, what the other members of the ISR must hold in
`isr_checker`.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.metadata.records import RECOVERING
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
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
        """At all replicas of a node that did something."""
        known = seen.replicas
        for key, partition in partitions.items():
            log = partition.log
            if self._evidence.is_deleted(partition):
                continue
            if key.topic == TABLE:
                continue  # its replicas compact on their own: `clients.compacted_table` checks it
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
                replica = self._log.check_opened(seen, key, partition)
            elif replica.directory != log.directory:
                # It has moved, and is held to what a restart is held to: it lost nothing.
                state_before = replica.state
                replica = self._log.check_opened(seen, key, partition)
                replica.state = state_before
            if replica.state != state:
                self._check_changed(seen, key, partition, replica, ComparedState(*state))
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
                # Or it was removed and assigned again, and its node has applied only the removal.
                or replica.removed_in is not None
            ):
                self._evidence.note(key, node, "no longer has a replica")
                del seen.replicas[key]
            elif replica.log is not None:
                self._evidence.note(key, node, "no longer serves its replica")
                self._check_last_commits(seen, key, replica)
                self._evidence.mark_doubtful(node, replica)
                replica.died_midway = True  # its disk may have failed between two of its changes
                replica.partition, replica.state = None, None

    def _check_last_commits(
        self, seen: NodeLastSeen, key: TopicPartition, replica: ReplicaLastSeen
    ) -> None:
        """Several requests may be handled in one event. If the disk fails in the second one, what the first wrote
        may be committed and acknowledged already."""
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
            self._check_high_watermark(seen, key, partition, replica, state.role)

    def _check_changed(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        state: ComparedState,
    ) -> None:
        """Everything that is checked when a replica differs from how it was last seen. D4: within an epoch, the high
        watermark of a leader does not fall."""
        node = seen.machine.id
        before, replica.state = replica.state, state
        if replica.removed_in is not None and state.partition_epoch > replica.removed_in:
            replica.removed_in = None
        self._evidence.note(key, node, repr(partition))
        partition.invariants()  # D5, D6
        if before is None or before.log_end != state.log_end or before.role is not state.role:
            self._log.check_changed(seen, key, partition, replica, before)
        elif before.log_start != state.log_start:
            self._log.forget_expired(seen, key, partition.log, replica)
        led_before = before is not None and before.role is Role.LEADER
        same_epoch = before is not None and before.leader_epoch == state.leader_epoch
        took_over = state.role is Role.LEADER and not (led_before and same_epoch)
        if state.role is Role.LEADER:
            if took_over:
                self._check_new_leader(seen, key, partition, replica)
            elif before is not None and state.high_watermark < before.high_watermark:
                raise self._evidence.violation(
                    "D4",
                    node,
                    key,
                    f"the HW fell from {before.high_watermark} to {state.high_watermark} within one epoch: "
                    f"{partition!r}",
                )
        advanced = before is None or state.high_watermark > before.high_watermark
        if before is not None and advanced:
            replica.committed_in = state.leader_epoch
        if before is None and state.role is Role.FOLLOWER and self._evidence.ledger(key).losses:
            advanced = False  # until it has truncated, its HW may cover records that are lost
        if advanced and state.role is not Role.OFFLINE:
            self._check_high_watermark(seen, key, partition, replica, state.role)
        elif took_over:
            # While it followed, its HW did not count (above): it counts now.
            self._check_committed(seen, key, partition, replica)
        if self._evidence.losses is not None and state.role is Role.LEADER:
            disk = seen.machine.host.disk
            self._evidence.losses.leads(partition.log, disk, replica.copy, begins=took_over)
        self._log.check_log_start(node, key, partition, replica)
        self._check_min_isr(seen, key, partition)
        replica.under_min_isr = partition.is_under_min_isr
        if replica.is_doubtful and self._evidence.ledger(key).holds_all(replica.copy):
            replica.is_doubtful = False

    def _check_min_isr(self, seen: NodeLastSeen, key: TopicPartition, partition: Partition) -> None:
        """D9: a leader that has applied every decision requires the configured number of in-sync replicas."""
        node = seen.machine.node
        assert node is not None and node.quorum is not None
        if (
            partition.role is Role.LEADER
            and node.quorum.image.offset == self._evidence.image.offset
        ):
            enough = self._evidence.quorum.replay.enough_in_sync(key.topic, len(partition.replicas))
            if partition.min_isr != enough:
                what = f"requires {partition.min_isr} in-sync replicas; configured are {enough}"
                raise self._evidence.violation("D9", seen.machine.id, key, what)

    def _check_new_leader(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
    ) -> None:
        """M8: it is the only leader of its epoch. D3: it holds everything committed, unless the controller said
        that records may be lost (RECOVERING)."""
        node = seen.machine.id
        epoch = partition.leader_epoch
        other = self._leaders.setdefault((partition.topic_id, key.partition, epoch), node)
        if other != node:
            raise self._evidence.violation(
                "M8", node, key, f"leads epoch {epoch}, which node {other} has led"
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
            self._record_loss(node, key, epoch, replica)
            return
        if decided is not None and decided.leader_epoch > epoch:
            return  # another was elected before it knew of its election: it will never act as leader
        raise self._evidence.violation(
            "D3",
            node,
            key,
            f"leads epoch {epoch} with log end {replica.copy.end}, but lacks records that are committed "
            f"below {ledger.end}",
        )

    def _record_loss(
        self, node: int, key: TopicPartition, epoch: int, replica: ReplicaLastSeen
    ) -> None:
        """The ledger ends where this leader's log agrees with it. D7: where every record is flushed before it counts,
        nothing may be lost."""
        ledger = self._evidence.ledger(key)
        self._evidence.note(key, node, f"leads, maybe with losses, with end {replica.copy.end}")
        agreed = ledger.copy.agreed(replica.copy)
        must_have = (
            self._evidence.is_durable
            and self._evidence.disks_are_whole
            and not self._evidence.allows_unclean(key)
        )
        if must_have and agreed < ledger.end:
            raise self._evidence.violation(
                "D7",
                node,
                key,
                f"leads with log end {replica.copy.end}, but lost flushed and committed records "
                f"{agreed} to {ledger.end - 1}",
            )
        ledger.lose_from(agreed, epoch, replica.copy)
        if ledger.loss_epoch == epoch:
            for callback in self.on_loss:
                callback(key, ledger.losses[-1])

    def _check_high_watermark(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        role: Role,
    ) -> None:
        """D9: it waits for the whole ISR, does not move below min.insync.replicas, and no follower is ahead of the
        leaders. D1: the members of the controller's ISR hold all below it."""
        node = seen.machine.id
        ledger = self._evidence.ledger(key)
        high_watermark = partition.log.high_watermark
        was = ledger.end
        if not self._check_committed(seen, key, partition, replica):
            return
        if role is not Role.LEADER:
            if ledger.end > was:
                what = f"leaders have committed only up to {was}"
                raise self._evidence.violation(
                    "D9", node, key, f"HW {high_watermark}, but {what}: {partition!r}"
                )
            return
        if replica.under_min_isr and partition.is_under_min_isr and high_watermark > was:
            raise self._evidence.violation(
                "D9",
                node,
                key,
                f"the HW advanced while the ISR was below min.insync.replicas: {partition!r}",
            )
        if ledger.losses:
            self._log.forget_lost(key, ledger.losses[-1])
        self._isr.check_members_hold(partition, replica)
        self._isr.check_strong_isr(key, partition, replica)

    def _check_committed(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
    ) -> bool:
        """D3: what is committed stays the same. False if this replica's high watermark does not count, because
        it is from before a recorded loss."""
        ledger = self._evidence.ledger(key)
        if partition.leader_epoch < ledger.loss_epoch:
            return False
        high_watermark = partition.log.high_watermark
        problem = ledger.commit(replica.copy, high_watermark)
        if problem is not None and not replica.is_doubtful:
            what = f"HW {high_watermark}, but {problem}"
            raise self._evidence.violation("D3", seen.machine.id, key, what)
        return True
