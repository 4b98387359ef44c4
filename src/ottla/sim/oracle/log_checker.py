"""The bytes of a replica's log: what it opens with, appends, cuts and lets expire (D2, D6, D7, D8, D11)."""

from __future__ import annotations

from ottla.log.log import Log
from ottla.replica.partition import Partition, Role, Truncation
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import TABLE
from ottla.sim.oracle.last_seen import ComparedState, NodeLastSeen, ReplicaLastSeen
from ottla.sim.oracle.ledger import EMPTY, LogCopy
from ottla.wire.types import TopicPartition


class LogChecker:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def opened(
        self, seen: NodeLastSeen, key: TopicPartition, partition: Partition
    ) -> ReplicaLastSeen:
        """A log begins, or is there again after a restart: what was flushed is, and without a power loss
        everything is."""
        node = seen.machine.id
        before = seen.replicas.get(key)
        start = partition.log.segment_bases[0]
        ledger = self._evidence.ledger(key)
        known = before.copy.hash_at(start) if before is not None else None
        replica = ReplicaLastSeen(LogCopy(start, known or ledger.copy.hash_at(start) or EMPTY))
        replica.partition = partition
        seen.replicas[key] = replica
        disk = seen.machine.host.disk
        replica.copy.follow(disk, partition.log)
        lost = []
        if before is not None:
            # Before what has expired is forgotten: that may count as something else than it did then.
            missing = replica.copy.missing(before.copy, disk, partition.log)
            # Whoever died within something may have been about to begin anew where its leader's log begins.
            expired = max(
                before.log_start, self._evidence.highest_start(key) if before.died_midway else 0
            )
            lost = [
                batch
                for batch in missing
                if batch.end > expired
                and not (before.died_midway and ledger.copy.hash_at(batch.end) != batch.hash)
            ]
        self.forget_expired(seen, key, partition.log, replica)
        if before is not None:
            kept = replica.copy.end
            holds_all = ledger.holds_all(replica.copy)
            replica.is_doubtful = not holds_all and (before.is_doubtful or before.is_wrong)
            replica.lost_in, replica.committed_in = before.lost_in, before.committed_in
            replica.is_wrong = before.is_wrong and disk.may_be_wrong(partition.log.path)
            if lost and before.is_wrong:
                self._evidence.note(key, node, "noticed what its disk did to it")
            elif lost and not before.is_doubtful:
                raise self._evidence.violation(
                    "D7",
                    node,
                    key,
                    f"had offsets up to {before.copy.end}, after a restart without power loss "
                    f"it agrees with that only below {lost[0].base} and ends at {kept}",
                )
            broker = seen.machine.node.broker if seen.machine.node else None
            # It may have come and gone meanwhile, without serving: that life had no more than is here now.
            stopped_as = -1 if broker is None else broker.logs.previous_broker_epoch
            stopped_cleanly = stopped_as >= 0 and stopped_as == seen.served_as
            if lost and stopped_cleanly and not before.is_wrong:
                raise self._evidence.violation(
                    "D7", node, key, f"says that it stopped cleanly, and lost {lost[0].base}"
                )
            if lost and lost[0].base < before.recovery_point and not before.is_wrong:
                raise self._evidence.violation(
                    "D7",
                    node,
                    key,
                    f"flushed up to {before.recovery_point}, lost {lost[0].base} in a power loss",
                )
            if lost:
                mark("tail lost")
            self._evidence.note(
                key, node, f"opened its log, end {kept}" + (", a tail is lost" if lost else "")
            )
        self.check_same_batches(seen, key, replica)
        return replica

    def changed(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        before: ComparedState | None,
    ) -> None:
        node, disk, log = seen.machine.id, seen.machine.host.disk, partition.log
        gone = replica.copy.cut_like(disk, log)
        start = log.segment_bases[0]
        if start > replica.copy.end or (start < replica.copy.start and not replica.copy.batches):
            # Begun anew where its leader's log begins, perhaps within a batch, or parts from all that was
            # left here.
            replica.copy = LogCopy(start, self._evidence.ledger(key).copy.hash_at(start) or EMPTY)
        end_before = replica.copy.end
        replica.copy.follow(disk, log)
        self.forget_expired(seen, key, log, replica)
        if gone:
            self._evidence.note(key, node, f"cut from {gone[-1].end} to {gone[0].base}")
            if before is not None and before.role is partition.role is Role.LEADER:
                raise self._evidence.violation(
                    "D7", node, key, f"a leader cut its log: {partition!r}"
                )
            ledger = self._evidence.ledger(key)
            # A cut that meets damage takes more than it was asked to; the leader has the rest.
            excused = replica.is_doubtful or replica.is_wrong
            # What it had deleted, and what was still in its files, may go with the rest.
            deleted = 0 if before is None else before.log_start
            for batch in gone:
                if (
                    not excused
                    and batch.end > deleted
                    and ledger.copy.hash_at(batch.end) == batch.hash
                ):
                    raise self._evidence.violation(
                        "D7",
                        node,
                        key,
                        f"cut {batch.base} of epoch {batch.epoch}, which is committed",
                    )
        appended = replica.copy.after(end_before)
        if appended:
            newest = appended[-1]
            if newest.epoch > partition.leader_epoch:
                what = f"took {newest.base} of epoch {newest.epoch}, being in an earlier one"
                raise self._evidence.violation("D8", node, key, f"{what}: {partition!r}")
            self.check_same_batches(seen, key, replica)
        told = partition.log.epochs.entries
        rebuilt = replica.copy.epochs_from(partition.log.log_start)
        if told[: len(rebuilt)] != rebuilt or any(
            start < replica.copy.end for _, start in told[len(rebuilt) :]
        ):
            raise self._evidence.violation(
                "D6", node, key, f"epochs are {told}, the batches say {rebuilt}"
            )

    def forget_expired(
        self, seen: NodeLastSeen, key: TopicPartition, log: Log, replica: ReplicaLastSeen
    ) -> None:
        """A follower that parts from its leader only below the leader's log start takes that start over."""
        mine = replica.copy.hash_at(log.log_start)
        known = self._evidence.ledger(key).copy.hash_at(log.log_start)
        if None not in (mine, known) and mine != known:
            assert known is not None
            replica.copy.begin_at(log.log_start, known, seen.machine.host.disk, log)

    def check_same_batches(
        self, seen: NodeLastSeen, key: TopicPartition, mine: ReplicaLastSeen
    ) -> None:
        """D2: where two logs have the same batch end in the same epoch, all before is the same too."""
        if not mine.copy.batches:
            return
        last = mine.copy.batches[-1]
        for other in self._evidence.nodes.values():
            theirs = other.replicas.get(key)
            if other is seen or theirs is None or last.end <= theirs.log_start:
                continue  # nobody is shown what has expired there
            at = [b for b in theirs.copy.after(last.end - 1)[:1] if b.end == last.end]
            if at and at[0].epoch == last.epoch and at[0].hash != last.hash:
                raise self._evidence.violation(
                    "D2",
                    seen.machine.id,
                    key,
                    f"offset {last.base} of epoch {last.epoch} is here and on node "
                    f"{other.machine.id}, and the logs up to it differ",
                )

    def check_log_start(
        self, node: int, key: TopicPartition, partition: Partition, replica: ReplicaLastSeen
    ) -> None:
        """D11: a log begins no higher than somebody asked for, or retention may delete; all of it committed."""
        start, ledger = partition.log.log_start, self._evidence.ledger(key)
        follows = partition.role is not Role.LEADER
        if partition.leader_epoch < ledger.loss_epoch or (
            # It may still take for committed what is lost, until it has met a leader.
            follows and replica.committed_in < ledger.loss_epoch
        ):
            self._evidence.expiry.excuse(key, start)
        elif not self._evidence.expiry.permits(key, start, replica.copy, ledger.end):
            what = f"begins at {start}, which nobody asked for and no limit explains"
            raise self._evidence.violation(
                "D11", node, key, f"{what}; committed is what is below {ledger.end}"
            )

    def check_truncation(self, node: int, truncation: Truncation) -> None:
        """D8: what a replica cuts has not counted as committed there, not even for a moment (KAFKA-14704)."""
        key = truncation.partition
        if key.topic == TABLE:
            return  # cut in a gap, a log ends before it, and with it what it knows of commits
        seen = self._evidence.nodes[node]
        machine = seen.machine.node
        assert machine is not None and machine.broker is not None, "only brokers cut"
        partition = machine.broker.replicas.partitions.get(key)
        if partition is not None and self._evidence.is_deleted(partition):
            return
        replica = seen.replicas.get(key)
        ledger = self._evidence.ledger(key)
        excused = replica is not None and (
            replica.is_doubtful or replica.committed_in < ledger.recovered_in
        )
        if truncation.below_high_watermark and not excused:
            raise self._evidence.violation(
                "D8", node, key, f"cut what it says is committed: {truncation}"
            )
