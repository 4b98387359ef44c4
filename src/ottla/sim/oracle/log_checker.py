"""The bytes of a replica's log: what it opens with, appends, cuts and lets expire (D2, D6, D7, D8, D11)."""

from __future__ import annotations

from ottla.events.replication import Truncated
from ottla.log.log import Log
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import TABLE
from ottla.sim.oracle.last_seen import ComparedState, NodeLastSeen, ReplicaLastSeen
from ottla.sim.oracle.ledger import EMPTY, LogCopy, RecordedLoss, SeenBatch, content
from ottla.wire.types import TopicPartition


class LogChecker:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def check_opened(
        self, seen: NodeLastSeen, key: TopicPartition, partition: Partition
    ) -> ReplicaLastSeen:
        """A replica's log is new, or open again after a restart."""
        before = seen.replicas.get(key)
        start = partition.log.segment_bases[0]
        ledger = self._evidence.ledger(key)
        known = before.copy.hash_at(start) if before is not None else None
        replica = ReplicaLastSeen(LogCopy(start, known or ledger.copy.hash_at(start) or EMPTY))
        replica.partition, replica.directory = partition, partition.log.directory
        seen.replicas[key] = replica
        disk = seen.machine.host.disk
        replica.copy.follow(disk, partition.log)
        lost: list[SeenBatch] = []
        if before is not None:
            # Compared before `forget_expired`, which may replace the hashes below the log start.
            missing = replica.copy.missing(before.copy, disk, partition.log)
            # A process that died between two changes may have been about to begin its log at its leader's log start.
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
            holds_all = ledger.holds_all(replica.copy)
            replica.is_doubtful = not holds_all and (before.is_doubtful or before.is_wrong)
            replica.lost_in, replica.committed_in = before.lost_in, before.committed_in
            replica.is_wrong = before.is_wrong and disk.may_be_wrong(partition.log.path)
            if lost:
                self._check_lost(seen, key, before, replica, lost[0].base)
                mark("tail lost")
            self._evidence.note(
                key,
                seen.machine.id,
                f"opened its log, end {replica.copy.end}" + (", a tail is lost" if lost else ""),
            )
        self.check_same_batches(seen, key, replica)
        return replica

    def _check_lost(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        before: ReplicaLastSeen,
        replica: ReplicaLastSeen,
        first_lost: int,
    ) -> None:
        """D7: a restart without power loss, or after a clean stop, loses nothing; a power loss nothing flushed."""
        node = seen.machine.id
        if before.is_wrong:
            self._evidence.note(key, node, "recovery found the damage on its disk")
            return
        if not before.is_doubtful:
            raise self._evidence.violation(
                "D7",
                node,
                key,
                f"restarted without power loss; its log ended at {before.copy.end}, now it ends at "
                f"{replica.copy.end} and is the same only below {first_lost}",
            )
        broker = seen.machine.node.broker if seen.machine.node else None
        # The broker may have started and stopped once more without serving: it cannot have written more then.
        stopped_as = -1 if broker is None else broker.logs.previous_broker_epoch
        if stopped_as >= 0 and stopped_as == seen.served_as:
            what = f"has the marker of a clean shutdown, but lost records from {first_lost} on"
            raise self._evidence.violation("D7", node, key, what)
        if first_lost < before.recovery_point:
            raise self._evidence.violation(
                "D7",
                node,
                key,
                f"had flushed all below {before.recovery_point}, but lost records from {first_lost} on "
                "in a power loss",
            )

    def check_changed(
        self,
        seen: NodeLastSeen,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        before: ComparedState | None,
    ) -> None:
        """A replica's log was appended to, truncated, or both."""
        disk, log = seen.machine.host.disk, partition.log
        cut = replica.copy.cut_like(disk, log)
        start = log.segment_bases[0]
        if start > replica.copy.end or (start < replica.copy.start and not replica.copy.batches):
            # It begins again where its leader's log begins, perhaps within a batch, or below all that it had.
            replica.copy = LogCopy(start, self._evidence.ledger(key).copy.hash_at(start) or EMPTY)
        end_before = replica.copy.end
        replica.copy.follow(disk, log)
        self.forget_expired(seen, key, log, replica)
        if cut:
            self._check_cut(seen.machine.id, key, partition, replica, before, cut)
        appended = replica.copy.after(end_before)
        if appended:
            self._check_appended(seen, key, partition, appended[-1])
            self.check_same_batches(seen, key, replica)
        self._check_epochs(seen.machine.id, key, partition, replica)

    def _check_cut(
        self,
        node: int,
        key: TopicPartition,
        partition: Partition,
        replica: ReplicaLastSeen,
        before: ComparedState | None,
        cut: list[SeenBatch],
    ) -> None:
        """D7: a leader does not truncate its log, and no replica truncates what is committed."""
        self._evidence.note(key, node, f"truncated from {cut[-1].end} to {cut[0].base}")
        if before is not None and before.role is partition.role is Role.LEADER:
            raise self._evidence.violation(
                "D7", node, key, f"truncated its log while it led: {partition!r}"
            )
        if replica.is_doubtful or replica.is_wrong:
            return  # a truncation that finds damage removes more than it was asked to; the leader has the rest
        ledger = self._evidence.ledger(key)
        # Records below the log start are deleted; those that were still in the files may go with the rest.
        log_start = 0 if before is None else before.log_start
        for batch in cut:
            if batch.end > log_start and ledger.copy.hash_at(batch.end) == batch.hash:
                raise self._evidence.violation(
                    "D7",
                    node,
                    key,
                    f"truncated offset {batch.base} of epoch {batch.epoch}, which is committed",
                )

    def _check_appended(
        self, seen: NodeLastSeen, key: TopicPartition, partition: Partition, newest: SeenBatch
    ) -> None:
        """D8: no batch is of a later epoch than its replica."""
        if newest.epoch > partition.leader_epoch:
            raise self._evidence.violation(
                "D8",
                seen.machine.id,
                key,
                f"appended offset {newest.base} of epoch {newest.epoch}, but its own epoch is "
                f"{partition.leader_epoch}: {partition!r}",
            )

    def _check_epochs(
        self, node: int, key: TopicPartition, partition: Partition, replica: ReplicaLastSeen
    ) -> None:
        """D6: the leader epoch cache is what the batches say, and perhaps the start of the leader's own epoch."""
        cache = partition.log.epochs.entries
        rebuilt = replica.copy.epochs_from(partition.log.log_start)
        if cache[: len(rebuilt)] != rebuilt or any(
            start < replica.copy.end for _, start in cache[len(rebuilt) :]
        ):
            raise self._evidence.violation(
                "D6", node, key, f"the leader epoch cache is {cache}, the batches say {rebuilt}"
            )

    def forget_expired(
        self, seen: NodeLastSeen, key: TopicPartition, log: Log, replica: ReplicaLastSeen
    ) -> None:
        """A follower whose log differs from its leader's only below the leader's log start takes that start over:
        what it had below no longer counts."""
        mine = replica.copy.hash_at(log.log_start)
        known = self._evidence.ledger(key).copy.hash_at(log.log_start)
        if None not in (mine, known) and mine != known:
            assert known is not None
            replica.copy.begin_at(log.log_start, known, seen.machine.host.disk, log)

    def forget_lost(self, key: TopicPartition, loss: RecordedLoss) -> None:
        """A leader commits where another one's records are lost. A log that begins above them holds nothing that could
        differ; whether it may begin there is D11's."""
        for seen in self._evidence.nodes.values():
            replica = seen.replicas.get(key)
            if replica is not None and replica.log is not None and replica.log_start > loss.first:
                self.forget_expired(seen, key, replica.log, replica)

    def check_same_batches(
        self, seen: NodeLastSeen, key: TopicPartition, mine: ReplicaLastSeen
    ) -> None:
        """D2: if two logs have a batch with the same end and epoch, they are the same up to there."""
        if not mine.copy.batches:
            return
        last = mine.copy.batches[-1]
        for other in self._evidence.nodes.values():
            theirs = other.replicas.get(key)
            if other is seen or theirs is None or last.end <= theirs.log_start:
                continue  # no client reads what has expired there
            at = [b for b in theirs.copy.after(last.end - 1)[:1] if b.end == last.end]
            if (
                at
                and at[0].epoch == last.epoch
                and at[0].hash != last.hash
                and not _same_where_both_begin(seen, mine, other, theirs)
            ):
                raise self._evidence.violation(
                    "D2",
                    seen.machine.id,
                    key,
                    f"offset {last.base} of epoch {last.epoch} is here and on node "
                    f"{other.machine.id}, but the two logs differ at or below it",
                )

    def check_log_start(
        self, node: int, key: TopicPartition, partition: Partition, replica: ReplicaLastSeen
    ) -> None:
        """D11: all below the log start was committed, and DeleteRecords or retention accounts for its deletion."""
        start, ledger = partition.log.log_start, self._evidence.ledger(key)
        follows = partition.role is not Role.LEADER
        if partition.leader_epoch < ledger.loss_epoch or (
            # Until it has fetched from a leader again, its HW may cover records that are lost.
            follows and replica.committed_in < ledger.loss_epoch
        ):
            self._evidence.expiry.excuse(key, start)
        elif not self._evidence.expiry.permits(key, start, replica.copy, ledger.end):
            raise self._evidence.violation(
                "D11",
                node,
                key,
                f"its log begins at {start}, but neither DeleteRecords nor retention explains that; "
                f"offsets below {ledger.end} are committed",
            )

    def check_truncation(self, node: int, truncation: Truncated) -> None:
        """D8: a replica truncates before it advances its high watermark, so never below it (KAFKA-14704)."""
        key = truncation.partition
        if key.topic == TABLE:
            return  # truncated within a gap, a compacted log ends before the gap, perhaps below its HW
        seen = self._evidence.nodes[node]
        machine = seen.machine.node
        assert machine is not None and machine.broker is not None, "only brokers have replicas"
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
                "D8", node, key, f"truncated below its own high watermark: {truncation}"
            )


def _same_where_both_begin(
    seen: NodeLastSeen, mine: ReplicaLastSeen, other: NodeLastSeen, theirs: ReplicaLastSeen
) -> bool:
    """A process that died before it had written where its log begins has again what had expired, perhaps records that its
    leader never had (seed 152). The next answer of its leader takes them away; what they have from there on is compared."""
    if mine.log is None or theirs.log is None or mine.log.log_start >= theirs.log_start:
        return False
    end = mine.copy.end
    here = [
        content(seen.machine.host.disk, mine.log, each)
        for each in mine.copy.after(theirs.log_start)
    ]
    there = [
        content(other.machine.host.disk, theirs.log, each)
        for each in theirs.copy.after(theirs.log_start)
        if each.end <= end
    ]
    return here == there
