"""A replica as leader: appends, the state of its followers, and the answers to their fetches.

`high_watermark` holds the rule by which the high watermark moves, `isr` how the ISR changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.events.replication import ProduceRefused
from ottla.log.errors import InMemory
from ottla.log.log import Appended
from ottla.records.batch import CRC_START, HEADER_BYTES, TRANSACTIONAL_BIT, read_batch
from ottla.replica import high_watermark
from ottla.replica.follower_progress import FollowerProgress
from ottla.replica.isr import IsrChanges
from ottla.replica.observer import News
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, fetched_partition

if TYPE_CHECKING:
    from ottla.replica.partition import Partition


class Verified(NamedTuple):
    """The state when the coordinator was asked about a new transaction: shows whether its answer is still valid."""

    epoch: int
    """The leader epoch at the time of the question."""
    guard: int
    producer_id: int
    producer_epoch: int
    sequence: int


def is_transactional(records: memoryview) -> bool:
    """Whether a client's batch is marked as part of a transaction."""
    return len(records) >= HEADER_BYTES and bool(records[CRC_START + 1] & TRANSACTIONAL_BIT)


class Leadership:
    """A replica as the leader of its partition in one leader epoch. `Partition.leadership` is the present one.

    Each leader epoch has its own object, so nothing that an earlier epoch knew of the followers can count in a later
    one (D9). A leader never truncates its log (D7). Callers take this object from the partition for each request and
    do not keep it.
    """

    __slots__ = (
        "epoch",
        "epoch_start",
        "followers",
        "isr_changes",
        "log",
        "partition",
        "written_epoch",
    )

    def __init__(self, partition: Partition, now: float) -> None:
        self.partition = partition
        self.log = partition.log
        self.epoch = partition.leader_epoch
        self.epoch_start = self.log.log_end
        """The log end when this epoch began. Everything that an earlier leader committed is below it."""
        self.written_epoch = partition.rules.truncation.written_epoch(self.epoch)
        self.log.epochs.assign(self.written_epoch, self.epoch_start)
        # Nothing is known of the followers in this epoch. Members of the ISR get the full lag time.
        self.followers = {
            id: FollowerProgress(id, caught_up_at=now if id in partition.isr else float("-inf"))
            for id in partition.replicas
            if id != partition.config.node_id
        }
        self.isr_changes = IsrChanges(self)

    def replicas_changed(self, left_isr: Iterable[int]) -> None:
        """A decision within this epoch may have added or removed replicas, and taken some out of the ISR."""
        partition = self.partition
        self.followers = {
            id: self.followers.get(id) or FollowerProgress(id)
            for id in partition.replicas
            if id != partition.config.node_id
        }
        for id in left_isr:
            if id in self.followers:
                self.followers[id].forget_proofs()

    def reconsider(self, now: float) -> None:
        """A broker was fenced or unfenced, or a setting changed. A replica outside of the ISR whose broker is fenced
        is no longer waited for, another replica may now join the ISR, and the minimum may be lower."""
        high_watermark.advance(self, now)
        self.isr_changes.maybe_expand(now)

    # -- writing -----------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        acks: int,
        now: float,
        now_ms: int,
        verified: Verified | None = None,
    ) -> Appended:
        """Append a producer's batch. With acks=all the answer is due once the high watermark has reached
        `last_offset + 1`, also for a duplicate whose first copy is not committed yet. A batch that begins
        a transaction must be `verified` by its coordinator."""
        partition, log = self.partition, self.log
        if is_transactional(records):
            guard = verified.guard if verified and verified.epoch == self.epoch else None
            log.producers.check_verified(read_batch(records, 0), guard)
        if acks == -1 and partition.is_under_min_isr:
            raise self._too_few_replicas()
        end_before = log.log_end
        appended = log.append_as_leader(records, self.written_epoch, now_ms)
        if not appended.duplicate:
            self._appended(end_before, now, records.nbytes)
        return appended

    def _too_few_replicas(self) -> KafkaError:
        partition = self.partition
        if ProduceRefused in partition.events:
            partition.events.emit(
                ProduceRefused(partition.key, self.epoch, partition.isr, partition.min_isr)
            )
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the ISR {list(partition.isr)} is smaller than min.insync.replicas={partition.min_isr}",
        )

    def append_marker(
        self, batch: bytearray, now: float, now_ms: int, *, bumps_epoch: bool
    ) -> Appended:
        """Append a transaction marker, with the rules of acks=all."""
        if self.partition.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_before = self.log.log_end
        appended = self.log.append_marker(
            batch, self.written_epoch, now_ms, bumps_epoch=bumps_epoch
        )
        self._appended(end_before, now, len(batch))
        return appended

    def append_own(
        self, records: memoryview, leader_epoch: int, now: float, now_ms: int
    ) -> Appended:
        """Append a coordinator's records, with the rules of acks=all, and only in the epoch in which they
        were decided."""
        if self.epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.partition.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_before = self.log.log_end
        appended = self.log.append_as_leader(records, self.written_epoch, now_ms, from_client=False)
        self._appended(end_before, now, records.nbytes)
        return appended

    def _appended(self, end_before: int, now: float, size: int) -> None:
        partition = self.partition
        records = self.log.log_end - end_before
        partition.bytes_in += size
        traffic = partition.traffic
        traffic.bytes_in += size
        traffic.messages_in += records
        every = traffic.every
        every.bytes_in += size
        every.messages_in += records
        assert partition.leadership is self, "only the leader of this epoch appends (D8)"
        partition.flush_if_asked()
        eligible_broker_epoch = partition.eligible_broker_epoch
        for follower in self.followers.values():
            if eligible_broker_epoch(follower.id) == follower.broker_epoch:
                follower.leader_appended(end_before, now)
        partition.observer.partition_changed(partition, News.LOG_END)
        high_watermark.advance(self, now)

    # -- beginning a transaction -------------------------------------------------------------------

    def begin_verification(self, records: memoryview, now_ms: int) -> Verified | None:
        """None if no question to the coordinator is needed before the batch is appended or refused: it belongs
        to a transaction that is open here, or to none."""
        if not is_transactional(records):
            return None
        batch = read_batch(records, 0)
        return self.begin_verification_of(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms
        )

    def begin_verification_of(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int
    ) -> Verified | None:
        producers = self.log.producers
        if producer_id < 0 or producers.has_open_transaction(producer_id, producer_epoch):
            return None
        guard = producers.begin_verification(producer_id, producer_epoch, sequence, now_ms)
        return Verified(self.epoch, guard, producer_id, producer_epoch, sequence)

    def is_verified(self, verified: Verified) -> bool:
        """Whether a positive answer is still valid: no batch or marker of the producer came between."""
        return self.epoch == verified.epoch and self.log.producers.is_verified(
            verified.producer_id, verified.guard
        )

    # -- serving followers -------------------------------------------------------------------------

    def serve_follower(
        self,
        fetch: FetchPartition,
        replica_id: int,
        broker_epoch: int,
        max_bytes: int,
        at_least_one: bool,
        now: float,
        in_memory: InMemory | None = None,
    ) -> FetchedPartition:
        """Answer a follower's fetch: record its position, and return the records from there or where its log
        diverges. Raises NotInMemory, after recording the position, if the read must not wait for the disk (see
        `Log.read`).

        One long function, because it runs for every fetch of every follower."""
        partition = self.partition
        _, _, _, named_epoch, offset, last_epoch, log_start, _, _, _ = fetch
        follower = self.followers.get(replica_id)
        if named_epoch != self.epoch and (error := partition.check_epoch(named_epoch)):
            return partition.refuse_fetch(error)
        if follower is None or broker_epoch < follower.broker_epoch:
            return partition.refuse_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        log_end = log.log_end
        if last_epoch != self.epoch or offset > log_end:
            diverging = partition.rules.truncation.diverging(log, fetch)
            if diverging is not None:
                return partition.answer(None, diverging)
        if not log.log_start <= offset <= log_end:
            return partition.refuse_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        advanced = offset != follower.log_end
        if log_start != follower.log_start:
            partition.observer.partition_changed(partition, News.LOG_START)
        if offset < follower.log_end:
            partition.observer.partition_changed(partition, News.FOLLOWER)
        follower.fetched(offset, log_start, broker_epoch, log_end, now)
        if replica_id not in partition.isr:
            # First, so that the high watermark waits for a follower that is proposed just now.
            self.isr_changes.maybe_expand(now, follower)
        if advanced:
            high_watermark.advance(self, now)
        records = None
        if offset < log_end:
            records = partition.read(offset, max_bytes, at_least_one, log_end, in_memory)[0]
        return fetched_partition(
            partition.topic,
            partition.topic_id,
            partition.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start,
            None,
            -1,
            None,
            None,
            None,
            records,
        )

    def nearest_replica(
        self, rack: str, offset: int, rack_of: Callable[[int], str | None]
    ) -> int | None:
        """The in-sync follower in the consumer's rack with the largest end offset, if it has the requested
        offset; None if the leader itself should answer."""
        partition = self.partition
        if rack_of(partition.config.node_id) == rack:
            return None
        near = [
            (follower.log_end, -follower.id)
            for follower in self.followers.values()
            if follower.id in partition.isr
            and rack_of(follower.id) == rack
            and partition.eligible_broker_epoch(follower.id) is not None
            and follower.log_start <= offset <= follower.log_end
        ]
        return -max(near)[1] if near else None

    @property
    def low_watermark(self) -> int:
        """The offset below which every live replica has deleted its records; DeleteRecords waits for it."""
        live = [
            follower.log_start
            for follower in self.followers.values()
            if self.partition.eligible_broker_epoch(follower.id) is not None
        ]
        return min([self.log.log_start, *live])

    # -- invariants --------------------------------------------------------------------------------

    def invariants(self) -> None:
        partition, log = self.partition, self.log
        assert partition.leadership is self, partition
        assert partition.leader == partition.config.node_id, partition
        assert partition.config.node_id in partition.isr, partition
        assert self.epoch == partition.leader_epoch, partition
        assert self.epoch_start <= log.log_end, f"a leader never truncates (D7): {partition}"
        assert log.epochs.latest == self.written_epoch, f"D6: {partition}"
        assert log.high_watermark <= log.log_end, f"D5: {partition}"
        assert set(self.followers) == set(partition.replicas) - {partition.config.node_id}, (
            partition
        )
        proposal = self.isr_changes.proposal
        if proposal is not None:
            assert proposal.leader_epoch == self.epoch, f"{proposal} of {partition}"
            assert proposal.partition_epoch == partition.partition_epoch, (
                f"{proposal} of {partition}"
            )
            assert set(partition.isr) <= set(self.isr_changes.maximal_isr), f"D9: {partition}"
