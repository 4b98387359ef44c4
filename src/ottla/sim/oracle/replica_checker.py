"""What must always hold, looked at after everything that any node does (RELIABILITY §1).

Each check costs what changed: a node's partitions are compared with how they were last seen, and only those
that differ are read. The names D1 to D12 and M1 to M9 are those of the invariants.

Outside the contract, and so exempt: a replica that lost an unflushed tail with its power, until it has
everything again (it must not be elected meanwhile); and what a last known leader lost, which the cluster
itself marks as a recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.events.replication import Truncated
from ottla.log.log import Log
from ottla.metadata.image import Delta, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER, RECOVERING
from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.process import Process
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.evidence import Books, decision
from ottla.sim.oracle.expiry import Expiry
from ottla.sim.oracle.history import TABLE, Ack, Batch, History
from ottla.sim.oracle.last_seen import Replica, State, Watched
from ottla.sim.oracle.leader_history import Leaders
from ottla.sim.oracle.ledger import EMPTY, Copy, Loss
from ottla.wire.types import TopicPartition


class Checkers(Books):
    def __init__(self, cluster: SimCluster, history: History) -> None:
        super().__init__(cluster)
        self.history = history
        self.on_loss: list[Callable[[TopicPartition, Loss], None]] = []
        self.on_deletion: list[Callable[[TopicPartition, UUID], None]] = []
        """A partition is gone, and all that clients were told of it with it."""
        self.on_proposal: list[Callable[[Partition, Proposal], None]] = []
        """A leader wants to change its ISR."""
        self.checks = 0
        self.is_durable = False
        """Whether everything is flushed before it counts: then no loss of power explains that it is gone."""
        # Looked up when it is called: `observers` listens there.
        self._quorum.on_decisions.append(lambda *what: self._check_decisions(*what))
        self.on_decisions = self._quorum.on_decisions
        self.leaders = Leaders(self._now)
        self.on_decisions.append(self.leaders.decided)
        self.on_decisions.append(self._claims.decided)
        self.expiry = Expiry(self._now)
        self.on_decisions.append(self.expiry.decided)
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        self._by_process: dict[Process, Watched] = {}
        self._acks_seen = 0
        self._reads_seen = 0
        self._anomalies_seen = 0
        cluster.on_change.append(self._machine_changed)
        cluster.subscribe(self._told.replication_event)
        cluster.world.loop.after_event = self._after_event

    # What happens

    def _machine_changed(self, machine: SimNode) -> None:
        watched = self._watched[machine.id]
        self._by_process = {p: w for p, w in self._by_process.items() if w is not watched}
        if machine.process is not None:
            self._by_process[machine.process] = watched
            self._quorum.voters[machine.id].restarted()
            watched.has_served = False

    def _after_event(self, process: Process) -> None:
        watched = self._by_process.get(process)
        if watched is None:
            if len(self.history.acknowledged) != self._acks_seen:
                self._check_acks()
            if len(self.history.shown) != self._reads_seen:
                self._check_reads()
            if len(self.history.anomalies) != self._anomalies_seen:
                self._check_anomalies()
            return
        node = watched.machine.node
        if node is None or node.quorum is None:
            return
        broker = node.broker
        if watched.heard is not (broker or node):
            watched.heard = broker or node
            self._told.listen(watched.machine.id, node)
        self._quorum.look(watched.machine.id, node)
        if broker is not None and (watched.has_served or broker.is_serving):
            watched.has_served = True  # also while it stops: followers go on until their logs close
            self._look_at_replicas(watched, broker.replicas.partitions)
            watched.served_as = broker.lifecycle.broker_epoch
        if self._told.has_news:
            self._check_told()

    def _check_told(self) -> None:
        told = self._told
        for node, truncation in told.truncations:
            self._check_truncation(node, truncation)
        for partition, proposal in told.proposals:
            self._check_proposal(partition, proposal)
            for callback in self.on_proposal:
                callback(partition, proposal)
        for vote in told.votes:
            self._quorum.check_vote(vote)
        for node, role in told.installs:
            self._quorum.check_install(node, role)
        told.forget()

    def _check_truncation(self, node: int, truncation: Truncated) -> None:
        """D8: what a replica cuts has not counted as committed there, not even for a moment (KAFKA-14704)."""
        key = truncation.partition
        if key.topic == TABLE:
            return  # cut in a gap, a log ends before it, and with it what it knows of commits
        watched = self._watched[node]
        machine = watched.machine.node
        assert machine is not None and machine.broker is not None, "only brokers cut"
        partition = machine.broker.replicas.partitions.get(key)
        if partition is not None and self._is_deleted(partition):
            return
        replica = watched.replicas.get(key)
        ledger = self._ledger(key)
        excused = replica is not None and (
            replica.is_doubtful or replica.committed_in < ledger.recovered_in
        )
        if truncation.below_high_watermark and not excused:
            raise self._fail("D8", node, key, f"cut what it says is committed: {truncation}")

    def _check_proposal(self, partition: Partition, proposal: Proposal) -> None:
        """D10: a leader proposes nobody who lacks something committed, and of whom it can know that. What
        a former leader proposes, or of a former life, the controller refuses."""
        decided = self._partition_image(partition.key)
        if decided is None or decided.leader_epoch != proposal.leader_epoch:
            return
        for member, epoch in proposal.isr:
            registered = self.image.brokers.get(member)
            if member not in decided.isr and registered is not None and registered.epoch == epoch:
                self._check_joined(member, partition.key, decided)

    # Clients

    def _check_acks(self) -> None:
        for ack in self.history.acknowledged[self._acks_seen :]:
            self._check_ack(ack)
        self._acks_seen = len(self.history.acknowledged)

    def _check_ack(self, ack: Ack) -> None:
        """C2, and that nothing is acknowledged before it is committed."""
        key = ack.batch.partition
        ledger = self._ledger(key)
        end = ack.base_offset + len(ack.batch.values)
        if ack.base_offset < 0 or (end > ledger.end and not ledger.excuses(end - 1, ack.epoch)):
            raise self._fail(
                "D3",
                "a producer",
                key,
                f"offsets {ack.base_offset} to {end - 1} were acknowledged, "
                f"committed is what is below {ledger.end}",
            )

    def _check_reads(self) -> None:
        """D11: nobody is shown what is not committed."""
        for key, end, epoch in self.history.shown[self._reads_seen :]:
            ledger = self._ledger(key)
            if end > ledger.end and not ledger.excuses(end - 1, epoch):
                what = f"was shown records up to {end}, committed is what is below {ledger.end}"
                raise self._fail("D11", "a consumer", key, what)
        self._reads_seen = len(self.history.shown)

    def _check_anomalies(self) -> None:
        for anomaly in self.history.anomalies[self._anomalies_seen :]:
            self._anomalies_seen += 1
            refusal = anomaly.refusal
            if refusal is None or not (
                self._has_expired(refusal.batch)
                or self.leaders.had_successor(refusal)
                or self._reads_wrongly(refusal.by, refusal.batch.partition)
            ):
                raise self._fail(anomaly.rule, "a client", anomaly.partition, anomaly.what)

    def _has_expired(self, batch: Batch) -> bool:
        """Whether this batch, or the one before it, is committed, and below the start of somebody's log: one that
        restarts then, or begins anew there, knows of its producer only what came later, not this one sent again,
        and takes an older one sent again for the first (seed 163)."""
        key = batch.partition
        start = self._highest_start(key)
        return any(
            each.producer_id == batch.producer_id
            and batch.sequence in (each.sequence, each.sequence + each.end - each.base)
            for each in self._ledger(key).copy.batches
            if each.end <= start
        )

    def _highest_start(self, key: TopicPartition) -> int:
        """Of all replicas: what is below may be gone from any of them."""
        seen = (watched.replicas.get(key) for watched in self._watched.values())
        return max((replica.log_start for replica in seen if replica is not None), default=0)

    def _reads_wrongly(self, node: int, key: TopicPartition) -> bool:
        """What it rebuilt its producers from after a restart may not be what was written."""
        replica = self._watched[node].replicas.get(key)
        return replica is not None and replica.is_wrong

    # Partitions

    def _look_at_replicas(
        self, watched: Watched, partitions: dict[TopicPartition, Partition]
    ) -> None:
        known = watched.replicas
        for key, partition in partitions.items():
            log = partition.log
            if self._is_deleted(partition):
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
                replica = self._open(watched, key, partition)
            if replica.state != state:
                self._changed(watched, key, partition, replica, State(*state))
            replica.recovery_point, replica.log_start = log.recovery_point, log.log_start
        if len(partitions) < len(known) or TABLE in self.image.topics:
            self._look_at_missing(watched, [key for key in known if key not in partitions])

    def _is_deleted(self, partition: Partition) -> bool:
        """Its topic is, whatever has that name now, and its replica has not heard of it yet."""
        topic = self.image.topics.get(partition.topic)
        return topic is None or topic.id != partition.topic_id

    def _look_at_missing(self, watched: Watched, missing: list[TopicPartition]) -> None:
        node = watched.machine.id
        for key in missing:
            replica = watched.replicas[key]
            decided = self._partition_image(key)
            if (
                decided is None
                or node not in decided.replicas
                or replica.dismissed_in
                is not None  # and given back since, which its node has yet to hear
            ):
                self._note(key, node, "has no replica any more")
                del watched.replicas[key]
            elif replica.log is not None:
                self._note(key, node, "no longer serves its replica")
                self._look_a_last_time(watched, key, replica)
                self._doubt(node, replica)
                replica.died_midway = True  # its disk may have failed within something
                replica.partition, replica.state = None, None

    def _look_a_last_time(self, watched: Watched, key: TopicPartition, replica: Replica) -> None:
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
            replica.copy.follow(watched.machine.host.disk, partition.log)
            self._compare_with_others(watched, key, replica)
            self._high_watermark_advanced(watched, key, partition, replica, state.role)

    def _forget_topic(self, topic: TopicImage) -> None:
        """Deleted: one of the same name is another topic."""
        for number in range(len(topic.partitions)):
            key = TopicPartition(topic.name, number)
            for watched in self._watched.values():
                watched.replicas.pop(key, None)
            self.ledgers.pop(key, None)
            self.given_up.discard(key)
            self._note(key, "controller", "one of that name was deleted")
            for callback in self.on_deletion:
                callback(key, topic.id)

    def _open(self, watched: Watched, key: TopicPartition, partition: Partition) -> Replica:
        """A log begins, or is there again after a restart: what was flushed is, and without a power loss
        everything is."""
        node = watched.machine.id
        before = watched.replicas.get(key)
        start = partition.log.segment_bases[0]
        ledger = self._ledger(key)
        known = before.copy.hash_at(start) if before is not None else None
        replica = Replica(Copy(start, known or ledger.copy.hash_at(start) or EMPTY))
        replica.partition = partition
        watched.replicas[key] = replica
        disk = watched.machine.host.disk
        replica.copy.follow(disk, partition.log)
        lost = []
        if before is not None:
            # Before what has expired is forgotten: that may count as something else than it did then.
            missing = replica.copy.missing(before.copy, disk, partition.log)
            # Whoever died within something may have been about to begin anew where its leader's log begins.
            expired = max(before.log_start, self._highest_start(key) if before.died_midway else 0)
            lost = [
                batch
                for batch in missing
                if batch.end > expired
                and not (before.died_midway and ledger.copy.hash_at(batch.end) != batch.hash)
            ]
        self._forget_expired(watched, key, partition.log, replica)
        if before is not None:
            kept = replica.copy.end
            holds_all = ledger.holds_all(replica.copy)
            replica.is_doubtful = not holds_all and (before.is_doubtful or before.is_wrong)
            replica.lost_in, replica.committed_in = before.lost_in, before.committed_in
            replica.is_wrong = before.is_wrong and disk.may_be_wrong(partition.log.path)
            if lost and before.is_wrong:
                self._note(key, node, "noticed what its disk did to it")
            elif lost and not before.is_doubtful:
                raise self._fail(
                    "D7",
                    node,
                    key,
                    f"had offsets up to {before.copy.end}, after a restart without power loss "
                    f"it agrees with that only below {lost[0].base} and ends at {kept}",
                )
            broker = watched.machine.node.broker if watched.machine.node else None
            # It may have come and gone meanwhile, without serving: that life had no more than is here now.
            stopped_as = -1 if broker is None else broker.logs.previous_broker_epoch
            stopped_cleanly = stopped_as >= 0 and stopped_as == watched.served_as
            if lost and stopped_cleanly and not before.is_wrong:
                raise self._fail(
                    "D7", node, key, f"says that it stopped cleanly, and lost {lost[0].base}"
                )
            if lost and lost[0].base < before.recovery_point and not before.is_wrong:
                raise self._fail(
                    "D7",
                    node,
                    key,
                    f"flushed up to {before.recovery_point}, lost {lost[0].base} in a power loss",
                )
            if lost:
                mark("tail lost")
            self._note(
                key, node, f"opened its log, end {kept}" + (", a tail is lost" if lost else "")
            )
        self._compare_with_others(watched, key, replica)
        return replica

    def _changed(
        self,
        watched: Watched,
        key: TopicPartition,
        partition: Partition,
        replica: Replica,
        state: State,
    ) -> None:
        self.checks += 1
        node = watched.machine.id
        before, replica.state = replica.state, state
        if replica.dismissed_in is not None and state.partition_epoch > replica.dismissed_in:
            replica.dismissed_in = None
        self._note(key, node, repr(partition))
        partition.invariants()  # D5, D6
        if before is None or before.log_end != state.log_end or before.role is not state.role:
            self._log_changed(watched, key, partition, replica, before)
        elif before.log_start != state.log_start:
            self._forget_expired(watched, key, partition.log, replica)
        led_before = before is not None and before.role is Role.LEADER
        same_epoch = before is not None and before.leader_epoch == state.leader_epoch
        took_over = state.role is Role.LEADER and not (led_before and same_epoch)
        if state.role is Role.LEADER:
            if took_over:
                self._took_leadership(watched, key, partition, replica)
            elif before is not None and state.high_watermark < before.high_watermark:
                raise self._fail(
                    "D4", node, key, f"HW went back to {state.high_watermark}: {partition!r}"
                )
        advanced = before is None or state.high_watermark > before.high_watermark
        if before is not None and advanced:
            replica.committed_in = state.leader_epoch
        if before is None and state.role is Role.FOLLOWER and self._ledger(key).losses:
            advanced = False  # it may still take for committed what is lost, until it has cut that
        if advanced and state.role is not Role.OFFLINE:
            self._high_watermark_advanced(watched, key, partition, replica, state.role)
        elif took_over:
            # As long as it followed, after a loss, what it took for committed was not believed.
            self._commit(watched, key, partition, replica)
        self._check_start(node, key, partition, replica)
        self._check_minimum(watched, key, partition)
        replica.under_min_isr = partition.is_under_min_isr
        if replica.is_doubtful and self._ledger(key).holds_all(replica.copy):
            replica.is_doubtful = False

    def _check_minimum(self, watched: Watched, key: TopicPartition, partition: Partition) -> None:
        """D9: a leader that has heard of every decision asks for as many in-sync replicas as was decided."""
        node = watched.machine.node
        assert node is not None and node.quorum is not None
        if partition.role is Role.LEADER and node.quorum.image.offset == self.image.offset:
            enough = self._quorum.replay.enough_in_sync(key.topic, len(partition.replicas))
            if partition.min_isr != enough:
                what = f"takes {partition.min_isr} in-sync replicas for enough, {enough} were asked for"
                raise self._fail("D9", watched.machine.id, key, what)

    def _check_start(
        self, node: int, key: TopicPartition, partition: Partition, replica: Replica
    ) -> None:
        """D11: a log begins no higher than somebody asked for, or retention may delete; all of it committed."""
        start, ledger = partition.log.log_start, self._ledger(key)
        follows = partition.role is not Role.LEADER
        if partition.leader_epoch < ledger.loss_epoch or (
            # It may still take for committed what is lost, until it has met a leader.
            follows and replica.committed_in < ledger.loss_epoch
        ):
            self.expiry.excuse(key, start)
        elif not self.expiry.permits(key, start, replica.copy, ledger.end):
            what = f"begins at {start}, which nobody asked for and no limit explains"
            raise self._fail("D11", node, key, f"{what}; committed is what is below {ledger.end}")

    def _log_changed(
        self,
        watched: Watched,
        key: TopicPartition,
        partition: Partition,
        replica: Replica,
        before: State | None,
    ) -> None:
        node, disk, log = watched.machine.id, watched.machine.host.disk, partition.log
        gone = replica.copy.cut_like(disk, log)
        start = log.segment_bases[0]
        if start > replica.copy.end or (start < replica.copy.start and not replica.copy.batches):
            # Begun anew where its leader's log begins, perhaps within a batch, or parts from all that was
            # left here.
            replica.copy = Copy(start, self._ledger(key).copy.hash_at(start) or EMPTY)
        end_before = replica.copy.end
        replica.copy.follow(disk, log)
        self._forget_expired(watched, key, log, replica)
        if gone:
            self._note(key, node, f"cut from {gone[-1].end} to {gone[0].base}")
            if before is not None and before.role is partition.role is Role.LEADER:
                raise self._fail("D7", node, key, f"a leader cut its log: {partition!r}")
            ledger = self._ledger(key)
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
                    raise self._fail(
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
                raise self._fail("D8", node, key, f"{what}: {partition!r}")
            self._compare_with_others(watched, key, replica)
        told = partition.log.epochs.entries
        rebuilt = replica.copy.epochs_from(partition.log.log_start)
        if told[: len(rebuilt)] != rebuilt or any(
            start < replica.copy.end for _, start in told[len(rebuilt) :]
        ):
            raise self._fail("D6", node, key, f"epochs are {told}, the batches say {rebuilt}")

    def _forget_expired(
        self, watched: Watched, key: TopicPartition, log: Log, replica: Replica
    ) -> None:
        """A follower that parts from its leader only below the leader's log start takes that start over."""
        mine = replica.copy.hash_at(log.log_start)
        known = self._ledger(key).copy.hash_at(log.log_start)
        if None not in (mine, known) and mine != known:
            assert known is not None
            replica.copy.begin_at(log.log_start, known, watched.machine.host.disk, log)

    def _compare_with_others(self, watched: Watched, key: TopicPartition, mine: Replica) -> None:
        """D2: where two logs have the same batch end in the same epoch, all before is the same too."""
        if not mine.copy.batches:
            return
        last = mine.copy.batches[-1]
        for other in self._watched.values():
            theirs = other.replicas.get(key)
            if other is watched or theirs is None or last.end <= theirs.log_start:
                continue  # nobody is shown what has expired there
            at = [b for b in theirs.copy.after(last.end - 1)[:1] if b.end == last.end]
            if at and at[0].epoch == last.epoch and at[0].hash != last.hash:
                raise self._fail(
                    "D2",
                    watched.machine.id,
                    key,
                    f"offset {last.base} of epoch {last.epoch} is here and on node "
                    f"{other.machine.id}, and the logs up to it differ",
                )

    def _took_leadership(
        self, watched: Watched, key: TopicPartition, partition: Partition, replica: Replica
    ) -> None:
        """D3: a clean leader has everything. M8: it is the only one of its epoch."""
        node = watched.machine.id
        epoch = partition.leader_epoch
        other = self._leaders.setdefault((partition.topic_id, key.partition, epoch), node)
        if other != node:
            raise self._fail("M8", node, key, f"leads epoch {epoch}, which node {other} led")
        ledger = self._ledger(key)
        holds_all = ledger.holds_all(replica.copy)
        if holds_all and ledger.unclean_in != epoch:
            return
        decided = self._partition_image(key)
        if (
            decided is not None
            and decided.leader_epoch == epoch
            and decided.leader_recovery_state == RECOVERING
            and (holds_all or replica.is_doubtful or replica.is_wrong or self._allows_unclean(key))
        ):
            self._note(key, node, f"leads, maybe with losses, with end {replica.copy.end}")
            agreed = ledger.copy.agreed(replica.copy)
            must_have = self.is_durable and self.disks_are_whole and not self._allows_unclean(key)
            if must_have and agreed < ledger.end:
                what = f"lost what was flushed before it counted: {agreed} of {ledger.end}"
                raise self._fail("D7", node, key, f"leads with end {replica.copy.end}, and {what}")
            ledger.lose_from(agreed, epoch, replica.copy)
            if ledger.loss_epoch == epoch:
                for callback in self.on_loss:
                    callback(key, ledger.losses[-1])
            return
        if decided is not None and decided.leader_epoch > epoch:
            return  # deposed before it knew that it was elected, and so it will never act on it
        raise self._fail(
            "D3",
            node,
            key,
            f"leads epoch {epoch} with end {replica.copy.end} and without all that is committed "
            f"below {ledger.end}",
        )

    def _high_watermark_advanced(
        self,
        watched: Watched,
        key: TopicPartition,
        partition: Partition,
        replica: Replica,
        role: Role,
    ) -> None:
        node = watched.machine.id
        ledger = self._ledger(key)
        high_watermark = partition.log.high_watermark
        was = ledger.end
        if not self._commit(watched, key, partition, replica):
            return
        if role is not Role.LEADER:
            if ledger.end > was:
                what = f"the highest that a leader has committed is {was}"
                raise self._fail("D9", node, key, f"HW {high_watermark}, but {what}: {partition!r}")
            return
        if replica.under_min_isr and partition.is_under_min_isr and high_watermark > was:
            raise self._fail("D9", node, key, f"HW moved below min.insync.replicas: {partition!r}")
        assert partition.leadership is not None
        for member in partition.leadership.isr_changes.maximal_isr:
            if not self._is_former_self(member, partition):
                self._holds(member, key, replica, high_watermark, "D9", partition)
        self._strong_isr(key, partition, replica)

    def _is_former_self(self, member: int, partition: Partition) -> bool:
        """Whether it counts as it was before it restarted: only proposed, which the controller refuses (KIP-903),
        or put out of the ISR, of which the leader has not heard."""
        registered = self.image.brokers.get(member)
        if member in partition.isr:
            decided = self._partition_image(partition.key)
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

    def _commit(
        self, watched: Watched, key: TopicPartition, partition: Partition, replica: Replica
    ) -> bool:
        """D3: what is committed is, and stays, the same. Whether this replica has a say in it."""
        ledger = self._ledger(key)
        if partition.leader_epoch < ledger.loss_epoch:
            return False
        high_watermark = partition.log.high_watermark
        problem = ledger.commit(replica.copy, high_watermark)
        if problem is not None and not replica.is_doubtful:
            what = f"HW {high_watermark}, but {problem}"
            raise self._fail("D3", watched.machine.id, key, what)
        return True

    def _strong_isr(self, key: TopicPartition, partition: Partition, leader: Replica) -> None:
        """D1, against the controller's sets."""
        decided = self._partition_image(key)
        if (
            decided is not None
            and decided.leader_recovery_state == RECOVERING
            and decided.leader_epoch > partition.leader_epoch
        ):
            return  # the records of this former leader may be lost, as the controller says
        if decided is not None and decided.replicas == partition.replicas:
            for member in (*decided.isr, *decided.elr):
                self._holds(member, key, leader, partition.log.high_watermark, "D1", partition)

    def _holds(
        self,
        member: int,
        key: TopicPartition,
        leader: Replica,
        high_watermark: int,
        rule: str,
        partition: Partition,
    ) -> None:
        replica = self._watched[member].replicas.get(key)
        if replica is leader or (replica is not None and self._is_excused(member, replica)):
            return
        decided = self._partition_image(key)
        if decided is not None and member not in decided.replicas:
            return  # it had all that when it was taken off the partition
        if (
            replica is not None
            and replica.is_doubtful
            and decided is not None
            and member not in (*decided.isr, *decided.elr)
        ):
            return  # it had all that, in a life of which its leader has not heard that it is over
        committed = leader.copy.floor(high_watermark)
        if committed == leader.copy.start:
            return
        if replica is not None and committed < replica.copy.start <= self._ledger(key).end:
            return  # it had all that: a later leader committed more, and retention took it there
        if replica is None or replica.copy.hash_at(committed) != leader.copy.hash_at(committed):
            lacks = _lacks(replica, leader.copy, committed)
            raise self._fail(
                rule,
                member,
                key,
                f"is taken to hold all below {high_watermark}, and {lacks}; "
                f"the leader says {partition!r}, the controller {self.describe(key)}",
            )

    # Decisions of the controller

    def _check_decisions(
        self, node: int, before: MetadataImage, after: MetadataImage, delta: Delta
    ) -> None:
        for deleted in delta.deleted_topics:
            self._forget_topic(deleted)
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is None:
                continue
            key = TopicPartition(topic.name, number)
            now = topic.partitions[number]
            self._note(key, "controller", decision(now))
            former = before.topics_by_id.get(topic_id)
            if former is not None and number < len(former.partitions):
                self._dismiss(key, former.partitions[number], now)
                self._check_decision(node, key, former.partitions[number], now, after)
            self._check_strong_isr(key)

    def _dismiss(self, key: TopicPartition, was: PartitionImage, now: PartitionImage) -> None:
        """Replicas that are taken off a partition may be deleted, flushed or not."""
        for id in was.replicas:
            replica = self._watched[id].replicas.get(key)
            if id not in now.replicas and replica is not None:
                replica.dismissed_in = now.partition_epoch

    def _check_decision(
        self,
        node: int,
        key: TopicPartition,
        was: PartitionImage,
        now: PartitionImage,
        image: MetadataImage,
    ) -> None:
        """M8: epochs rise. D12: who leads was entitled to. D10: who joins is alive and stays."""
        if now.leader_epoch < was.leader_epoch or now.partition_epoch <= was.partition_epoch:
            raise self._fail("M8", node, key, f"epochs fell: {_change(was, now)}")
        if now.leader != NO_LEADER and now.leader_recovery_state == RECOVERING:
            self._ledger(key).recovered_in = now.leader_epoch
        if now.leader not in (was.leader, NO_LEADER):
            entitled = (*was.isr, *was.elr)
            if now.replicas != was.replicas:
                entitled += now.isr  # one joins and takes over at once: it is checked as a joiner
            topic_id = image.topics[key.topic].id
            last_resort = self._claims.last_resort(image, topic_id, key.partition)
            recovers = now.leader_recovery_state == RECOVERING and (
                now.leader in last_resort or self._allows_unclean(key)
            )
            if now.leader not in (*entitled, *last_resort):
                self._ledger(key).unclean_in = now.leader_epoch
            if now.leader not in entitled and not recovers:
                raise self._fail(
                    "D12", node, key, f"the new leader was not entitled: {_change(was, now)}"
                )
            if not self._quorum.replay.is_alive(now.leader):
                raise self._fail("D12", node, key, f"the new leader is not alive: {decision(now)}")
        for member in now.isr:
            broker = image.brokers.get(member)
            if member not in was.isr and (broker is None or broker.in_controlled_shutdown):
                what = f"{member} joined while it leaves: {decision(now)}"
                raise self._fail("D10", node, key, what)
            elected = now.leader_epoch > was.leader_epoch and now.replicas == was.replicas
            if member not in was.isr and not elected:
                self._check_joined(member, key, now)

    def _check_joined(self, member: int, key: TopicPartition, now: PartitionImage) -> None:
        """D10: whoever joins has everything committed, whatever the leader's own high watermark is."""
        ledger = self._ledger(key)
        replica = self._watched[member].replicas.get(key)
        if replica is None:
            holds = ledger.end == 0
        else:
            holds = ledger.holds_all(replica.copy) or self._is_excused(member, replica)
        if replica is not None and ledger.losses and replica.copy.start > ledger.losses[-1][0]:
            holds = True  # it began anew at a leader whose records are lost: nothing to compare
        if not holds and now.leader_epoch >= ledger.loss_epoch:
            lacks = _lacks(replica, ledger.copy, ledger.end)
            raise self._fail(
                "D10",
                member,
                key,
                f"is to be in the ISR without all that is committed below {ledger.end}: {lacks}; "
                f"the controller: {decision(now)}",
            )

    def _check_strong_isr(self, key: TopicPartition) -> None:
        for watched in self._watched.values():
            node = watched.machine.node
            if node is None or node.broker is None or not node.broker.is_serving:
                continue
            partition = node.broker.replicas.partitions.get(key)
            replica = watched.replicas.get(key)
            if (
                partition is not None
                and replica is not None
                and replica.state is not None
                and partition.role is Role.LEADER
                and partition.leader_epoch >= self._ledger(key).loss_epoch
            ):
                self._strong_isr(key, partition, replica)


def _lacks(replica: Replica | None, whole: Copy, end: int) -> str:
    """Which offsets below `end` of a log that has them all it has not, or has otherwise."""
    if replica is None:
        return f"it has no replica, and lacks {whole.start}..{end - 1}"
    return f"it lacks {whole.agreed(replica.copy)}..{end - 1} (its log ends at {replica.copy.end})"


def _change(was: PartitionImage, now: PartitionImage) -> str:
    return f"from {decision(was)} to {decision(now)}"
