"""A consumer of a simulated cluster: it reads one partition and reports what a consumer must never see."""

from __future__ import annotations

import asyncio
from uuid import UUID

from ottla.records.batch import CorruptBatch, batches, check_crc
from ottla.records.record import records as records_of
from ottla.sim.clients.connections import (
    BACKOFF_S,
    NEW_SESSION,
    REQUEST_TIMEOUT_S,
    SESSIONLESS,
    ClientConnections,
    PartitionLeader,
)
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.history import Anomaly, History, Read
from ottla.sim.oracle.ledger import RecordedLoss
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

LATEST, EARLIEST = -1, -2
REWIND_AFTER = 4
"""After so many empty fetches a consumer goes back and reads again what it has read: it must be the same."""
NEARBY_EVERY = 5
"""One of so many fetches goes to a follower."""


class SimConsumer:
    """Reads one partition from its beginning, from its leader and sometimes from a follower."""

    def __init__(
        self, connections: ClientConnections, partition: TopicPartition, history: History, name: str
    ) -> None:
        self.stopping = False
        self.may_rewind = True
        self.disks_are_wrong = False
        """Whether the disk of some replica returns other bytes than were written."""
        self.position = 0
        self._connections = connections
        self.partition = partition
        self._history = history
        self.name = name
        self._epoch = -1
        """The epoch of the last record read: with it the leader can tell whether our position is on its log."""
        self._known_end = 0
        self._losses: list[RecordedLoss] = []
        """Recorded losses that may still show, until a leader that began without the records has answered us."""
        self._had_losses = False
        """A follower that has not truncated yet may still return lost records."""
        self._served: set[tuple[UUID, int]] = set()
        """(topic, broker): brokers that have answered a Fetch, which names its topic by id."""
        self._rounds = 0
        self._idle_rounds = 0

    def forget(self) -> None:
        """The topic was deleted. A new topic of the same name begins at 0."""
        self.position, self._epoch, self._known_end = 0, -1, 0
        self._losses, self._had_losses = [], False
        self._connections.forget(self.partition)

    def allow_losses(self, loss: RecordedLoss) -> None:
        self._losses.append(loss)
        self._had_losses = True

    def _reconcile(self, epoch: int) -> None:
        """Forget what we read before the losses up to this leader's epoch."""
        met = [loss for loss in self._losses if loss.epoch <= epoch]
        if not met:
            return
        self._losses = [loss for loss in self._losses if loss.epoch > epoch]
        self._known_end = 0
        read = self._history.read.get(self.partition, {})
        for offset, (_, read_in) in list(read.items()):
            if any(offset >= loss.first and read_in < loss.epoch for loss in met):
                del read[offset]

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._poll()
            except (OSError, TimeoutError, InvalidFrame):
                self._connections.forget(self.partition)
                await asyncio.sleep(BACKOFF_S)

    async def _poll(self) -> None:
        place, channel = await self._connections.leader(self.partition)
        self._rounds += 1
        if self._rounds % 3 == 0:
            await self._ask_end(place, channel)
        if self._rounds % NEARBY_EVERY == 0 and not self._had_losses:
            await self._read_nearby(place)
        # Sometimes a fetch session that is never used again, as real clients leave behind.
        session_epoch = NEW_SESSION if self._rounds % 7 == 0 else SESSIONLESS
        answer, data = await self._connections.fetch(
            place, channel, self.partition, self.position, self._epoch, session_epoch
        )
        if place.topic_id in self._history.deleted:
            self._connections.forget(self.partition)
            return
        code = ErrorCode(answer.error)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and await self._may_have_expired(place, channel):
            return
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE and not self._losses:
                self._report("D4", f"a fetch at {self.position} was refused with {code.name}")
            self._connections.forget(self.partition)
            await asyncio.sleep(BACKOFF_S)
            return
        self._served.add((place.topic_id, place.leader))
        if answer.diverging is not None:
            if not self._losses:
                self._report(
                    "D3",
                    f"read up to {self.position}/{self._epoch}, the leader's log "
                    f"diverges from that at {answer.diverging}",
                )
            self.position, self._epoch = min(self.position, answer.diverging[1]), -1
            return
        self._reconcile(place.leader_epoch)
        self._idle_rounds = 0 if data else self._idle_rounds + 1
        if self._idle_rounds == REWIND_AFTER and self.may_rewind:
            self.position, self._epoch = self.position // 2, -1
            return
        try:
            self._take(data)
        except CorruptBatch as error:
            await self._saw_damage(error)

    async def _saw_damage(self, error: CorruptBatch) -> None:
        if not self.disks_are_wrong:
            self._report("D3", f"after {self.position}: {error}")
        mark("damage seen by a consumer")
        self._connections.forget(self.partition)
        await asyncio.sleep(BACKOFF_S)

    async def _read_nearby(self, place: PartitionLeader) -> None:
        """From a follower (KIP-392). It may be behind the leader, and an error means nothing; what it returns is
        committed."""
        channel = await self._connections.follower(self.partition, place.leader)
        if channel is None:
            return
        answer, data = await self._connections.fetch(
            place, channel, self.partition, self.position, self._epoch
        )
        refused = answer.error != ErrorCode.NONE or answer.diverging is not None
        if not data or refused or place.topic_id in self._history.deleted or self._had_losses:
            return
        mark("read from a follower")
        try:
            self._take(data)
        except CorruptBatch as error:
            await self._saw_damage(error)

    def _take(self, data: bytes) -> None:
        """D3: what was read once stays the same. CorruptBatch if a batch is not what its producer sent: none of it is
        kept."""
        read = self._history.read.setdefault(self.partition, {})
        for batch in batches(data):
            check_crc(data, batch)
            epoch = batch.leader_epoch
            self._history.shown.append((self.partition, batch.next_offset, epoch))
            if batch.last_offset < self.position:
                self._report(
                    "poll",
                    f"offset {batch.base_offset} was returned for a fetch at {self.position}",
                )
            if batch.base_offset > self.position:
                self._report("poll", f"a fetch at {self.position} skipped to {batch.base_offset}")
            for record in records_of(data, batch):
                if record.offset < self.position:
                    continue
                self._history.reads += 1
                value = record.value or b""
                before = read.get(record.offset)
                if before is not None and before.value != value and not self._losses:
                    self._report("D3", f"offset {record.offset} was {before.value!r}, is {value!r}")
                read[record.offset] = Read(value, epoch)
            self.position = batch.next_offset
            self._epoch = epoch

    async def _may_have_expired(self, place: PartitionLeader, channel: Channel) -> bool:
        """Our position may have been deleted: go on at the log start. If the broker does not say where its log begins
        (it may no longer lead), nothing is known, and the current leader is asked again."""
        start = await self._offset(place, channel, EARLIEST)
        if start is None:
            self._connections.forget(self.partition)
            await asyncio.sleep(BACKOFF_S)
            return True
        if start <= self.position:
            return False
        self.position, self._epoch = start, -1
        return True

    async def _ask_end(self, place: PartitionLeader, channel: Channel) -> None:
        """D4: for one client, whose requests carry the newest epoch that it knows, the end never falls."""
        end = await self._offset(place, channel, LATEST)
        if self.partition in self._history.born and (
            (place.topic_id, place.leader) not in self._served
        ):
            return  # ListOffsets names its topic by name: this may be the end of the deleted topic
        if end is not None:
            if end < self._known_end and not self._losses:
                self._report("D4", f"the end fell from {self._known_end} to {end}")
            self._known_end = end

    async def _offset(self, place: PartitionLeader, channel: Channel, which: int) -> int | None:
        asked = {
            "partition_index": self.partition.partition,
            "current_leader_epoch": place.leader_epoch,
            "timestamp": which,
        }
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": self.partition.topic, "partitions": [asked]}],
        }
        answer = await self._connections.answer(
            channel,
            channel.request(ApiKey.LIST_OFFSETS, fields, version=9, timeout_s=REQUEST_TIMEOUT_S),
        )
        found = answer.topics[0].partitions[0]
        if place.topic_id in self._history.deleted or int(found.error_code) != ErrorCode.NONE:
            return None
        return int(found.offset)

    def _report(self, rule: str, what: str) -> None:
        self._history.anomalies.append(Anomaly(rule, self.partition, f"{self.name}: {what}"))
