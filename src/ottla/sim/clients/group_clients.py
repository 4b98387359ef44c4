"""Clients of groups: members that only commit offsets, and readers with read_committed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.records.batch import CorruptBatch, batches, check_crc
from ottla.records.record import ControlType, control_type
from ottla.records.record import records as records_of
from ottla.sim.clients.connections import BACKOFF_S, ClientConnections
from ottla.sim.clients.group_members import COMMIT_VERSION, FETCH_VERSION, MemberClient
from ottla.sim.oracle.group_oracle import GroupOracle
from ottla.sim.oracle.offset_register import OffsetCommit
from ottla.wire.apis import ApiKey
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

READ_COMMITTED = 1
CALM_PAUSE_S = 0.1
REST_S_MAX = 1.5
NO_ANSWER = (OSError, TimeoutError, InvalidFrame)


@dataclass
class ClientBehaviour:
    """How often clients act, and with which probability they do what disturbs others."""

    pause_s: float
    """The mean time between two rounds."""
    abort: float = 0.0
    pause: float = 0.0
    """In the middle of a transaction, perhaps for longer than the session timeout."""
    crash: float = 0.0
    leave: float = 0.0
    late: float = 0.0
    """A request of the last transaction arrives during the next one."""
    stale: float = 0.0
    """A commit names a generation that is over."""
    rewind: float = 0.0

    is_calm: bool = False

    def calm(self) -> None:
        """From now on no client disturbs others."""
        self.pause_s, self.is_calm = CALM_PAUSE_S, True
        self.abort = self.pause = self.crash = self.leave = 0.0
        self.late = self.stale = self.rewind = 0.0

    async def rest(self, chance: random.Random) -> None:
        """Shorter than the session timeout."""
        await asyncio.sleep(min(chance.expovariate(1 / self.pause_s), REST_S_MAX))


def topics_of(rows: Sequence[tuple[TopicPartition, dict[str, Any]]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, fields in rows:
        row = {"partition_index": partition.partition, **fields}
        topics.setdefault(partition.topic, []).append(row)
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


async def fetch_committed(
    member: MemberClient, oracle: GroupOracle, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """OffsetFetch with require_stable: offsets that an open transaction changes are left out."""
    begun = asyncio.get_running_loop().time()
    indexes: dict[str, list[int]] = {}
    for topic, number in partitions:
        indexes.setdefault(topic, []).append(number)
    asked = [{"name": name, "partition_indexes": numbers} for name, numbers in indexes.items()]
    group = {"group_id": member.group, "member_id": None, "member_epoch": -1, "topics": asked}
    fields = {"groups": [group], "require_stable": True}
    answer = await member.coordinator.ask(ApiKey.OFFSET_FETCH, fields, FETCH_VERSION)
    by = member.coordinator.answered_by
    (found_group,) = answer.groups
    if int(found_group.error_code) != ErrorCode.NONE:
        member.coordinator.forget()
        return {}
    found = {}
    for topic in found_group.topics:
        for row in topic.partitions:
            if int(row.error_code) == ErrorCode.NONE:
                partition = TopicPartition(topic.name, int(row.partition_index))
                offset = int(row.committed_offset)
                oracle.read((member.group, partition), row.metadata or "", offset, begun, by)
                found[partition] = offset
    return found


class Committer:
    """A member of a group that commits offsets, and reads them back whenever its partitions change."""

    def __init__(
        self,
        member: MemberClient,
        oracle: GroupOracle,
        chance: random.Random,
        behaviour: ClientBehaviour,
    ) -> None:
        self.member = member
        self.has_read_back = False
        """It has read its committed offsets after everything was healed."""
        self._oracle = oracle
        self._random = chance
        self._behaviour = behaviour
        self._positions: dict[TopicPartition, int] = {}
        self._count = 0
        self._past: tuple[str, int] | None = None
        """Member id and generation of before."""
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while True:
            try:
                await self._round()
            except NO_ANSWER:
                self.has_read_back = False
            await self._behaviour.rest(self._random)

    async def _round(self) -> None:
        member, behaviour = self.member, self._behaviour
        before = member.member_id, member.generation
        await member.poll()
        now = member.member_id, member.generation
        if before != now:
            self._past = before
            self._positions.clear()
        if not member.is_joined or not member.owned:
            self.has_read_back = self._stopping and member.is_joined
            return
        missing = [each for each in member.owned if each not in self._positions]
        if missing or self._stopping:
            asked = missing or member.owned
            found = await fetch_committed(member, self._oracle, asked)
            self._positions.update(found)
            self.has_read_back = self._stopping and len(found) == len(asked)
        if self._stopping:
            return
        if self._random.random() < behaviour.stale and self._past is not None:
            await self._commit_as_of_before(*self._past)
        elif self._random.random() < behaviour.leave:
            await member.leave()
        elif self._random.random() < behaviour.crash:
            member.crash()
        elif self._random.random() < behaviour.pause:
            await asyncio.sleep(self._random.uniform(1.0, 10.0))
        await self._commit()

    async def _commit(self) -> None:
        member = self.member
        wanted: list[tuple[TopicPartition, OffsetCommit]] = []
        for partition in member.owned:
            position = self._positions.get(partition)
            if position is None:
                continue
            rewinds = self._random.random() < self._behaviour.rewind
            offset = 0 if rewinds else max(0, position) + self._random.randint(1, 5)
            wanted.append((partition, self._begin(partition, offset)))
        if not wanted:
            return
        codes = await self._send(member.member_id, member.generation, wanted)
        for partition, commit in wanted:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            place = member.group, partition
            if code is ErrorCode.NONE:
                self._oracle.committed(place, commit)
                self._positions[partition] = commit.offset
            elif code not in RETRIABLE:
                self._oracle.not_committed(place, commit, code.name)
            if code is not ErrorCode.NONE:
                self._positions.pop(partition, None)
                member.refused(code)

    def _begin(self, partition: TopicPartition, offset: int) -> OffsetCommit:
        self._count += 1
        name = f"{self.member.name}.{self._count}"
        return self._oracle.begin_commit((self.member.group, partition), name, offset)

    async def _commit_as_of_before(self, member_id: str, generation: int) -> None:
        """C4: a member of a former generation cannot commit."""
        member = self.member
        if generation < 0 or not member_id:
            return
        wanted = [(each, self._begin(each, 0)) for each in member.owned]
        is_over = member.is_over(member_id, generation)
        codes = await self._send(member_id, generation, wanted)
        for partition, commit in wanted:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            place = member.group, partition
            if code is ErrorCode.NONE and is_over:
                what = f"named generation {generation} after {member.generation} had begun"
                self._oracle.took_a_stale_commit(member.group, member_id, generation, what)
            elif code is ErrorCode.NONE:
                self._oracle.committed(place, commit)
            elif code not in RETRIABLE:
                self._oracle.not_committed(place, commit, code.name)
        self._positions.clear()

    async def _send(
        self, member_id: str, generation: int, wanted: Sequence[tuple[TopicPartition, OffsetCommit]]
    ) -> dict[TopicPartition, ErrorCode]:
        fields = {
            "group_id": self.member.group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": self.member.instance_id,
            "topics": topics_of(
                [
                    (each, {"committed_offset": it.offset, "committed_metadata": it.name})
                    for each, it in wanted
                ]
            ),
        }
        answer = await self.member.coordinator.ask(ApiKey.OFFSET_COMMIT, fields, COMMIT_VERSION)
        return {
            TopicPartition(topic.name, int(row.partition_index)): ErrorCode(int(row.error_code))
            for topic in answer.topics
            for row in topic.partitions
        }


class CommittedReader:
    """Reads one partition with read_committed, and skips aborted transactions, as consumers do."""

    def __init__(
        self,
        connections: ClientConnections,
        oracle: GroupOracle,
        partition: TopicPartition,
        group: str,
    ) -> None:
        self.partition = partition
        self.position = 0
        self._connections = connections
        self._oracle = oracle
        self._group = group
        self._epoch = -1
        self._losses_seen = 0

    async def run(self) -> None:
        while True:
            try:
                self._look_for_losses()
                await self._poll()
            except (*NO_ANSWER, CorruptBatch):
                self._connections.forget(self.partition)
                await asyncio.sleep(BACKOFF_S)

    def _look_for_losses(self) -> None:
        losses = self._oracle.losses.get(self.partition, ())
        if len(losses) > self._losses_seen:
            self._losses_seen = len(losses)
            self._go_back()

    def _go_back(self) -> None:
        """To the first offset that the partition lost: from there on it may differ, and records may be read again."""
        self.position = int(min(self.position, self._oracle.lost_from(self.partition)))
        self._epoch = -1

    async def _poll(self) -> None:
        place, channel = await self._connections.leader(self.partition)
        answer, data = await self._connections.fetch(
            place, channel, self.partition, self.position, self._epoch, isolation=READ_COMMITTED
        )
        code = ErrorCode(answer.error)
        if code is not ErrorCode.NONE or answer.diverging is not None:
            if code not in RETRIABLE or answer.diverging is not None:
                what = code.name if answer.diverging is None else f"diverging {answer.diverging}"
                if self.position < self._oracle.lost_from(self.partition):
                    self._fail(f"a fetch at {self.position} failed: {what}")
                self._go_back()
            self._connections.forget(self.partition)
            await asyncio.sleep(BACKOFF_S)
            return
        self._take(data, answer.last_stable_offset, answer.aborted or ())

    def _take(
        self, data: bytes, last_stable_offset: int, aborted: Sequence[tuple[int, int]]
    ) -> None:
        to_come = sorted(aborted, key=lambda each: each[1])
        doomed: set[int] = set()
        for batch in batches(data):
            check_crc(data, batch)
            if batch.next_offset > last_stable_offset:
                self._fail(
                    f"offset {batch.base_offset} was returned, above the LSO {last_stable_offset}"
                )
            if batch.base_offset > self.position:
                self._fail(f"a fetch at {self.position} skipped to {batch.base_offset}")
            while to_come and to_come[0][1] <= batch.last_offset:
                doomed.add(to_come.pop(0)[0])
            for record in records_of(data, batch):
                if batch.is_control:
                    if control_type(record) == ControlType.ABORT:
                        doomed.discard(batch.producer_id)
                elif record.offset >= self.position and not (
                    batch.is_transactional and batch.producer_id in doomed
                ):
                    value = record.value or b""
                    self._oracle.saw(
                        self._group, self.partition, record.offset, batch.leader_epoch, value
                    )
            self.position = max(self.position, batch.next_offset)
            self._oracle.read_up_to[self.partition] = self.position
            self._epoch = batch.leader_epoch

    def _fail(self, what: str) -> None:
        topic, number = self.partition
        self._oracle.fail("C3", f"a reader of {topic}-{number}", what, [f"{topic}-{number}"])
