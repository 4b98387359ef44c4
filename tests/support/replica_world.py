"""A partition with replicas on several brokers, joined by hand instead of by sockets.

Tests play the controller (`decide`), the producer (`produce`) and the network (`fetch`), one step at a
time, so that each line of a test is one message of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.events import Event, Events
from ottla.events.replication import Truncated
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.batch import batches
from ottla.records.record import Record, build, records
from ottla.replica import follower as following
from ottla.replica.isr import IsrChanges, Proposal
from ottla.replica.leader import Leadership
from ottla.replica.observer import News
from ottla.replica.partition import Partition, ReplicaConfig
from ottla.replica.roles import Role
from ottla.runtime.files import RealDisk
from ottla.runtime.seams import FileRange
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition

TOPIC_ID = UUID(int=42)
LAG_S = 30.0


@dataclass(frozen=True)
class Decided:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


class Seen:
    """Notes what a replica tells its observer, and its events."""

    def __init__(self) -> None:
        self.events = Events()
        self.events.subscribe(self._happened)
        self.happened: list[Event] = []
        self.truncations: list[Truncated] = []
        self.proposed: list[Partition] = []
        self.high_watermarks: list[int] = []
        self.shrunk = 0
        self.went_back = 0

    def partition_changed(self, partition: Partition, news: int) -> None:
        self.went_back += bool(news & News.FOLLOWER)
        self.shrunk += bool(news & News.ISR_SHRUNK)
        if news & News.HIGH_WATERMARK:
            self.high_watermarks.append(partition.log.high_watermark)

    def isr_proposed(self, partition: Partition) -> None:
        self.proposed.append(partition)

    def role_changed(self, partition: Partition) -> None: ...

    def _happened(self, event: Event) -> None:
        self.happened.append(event)
        if isinstance(event, Truncated):
            self.truncations.append(event)


class World:
    def __init__(self, path: Path, brokers: int = 2, min_isr: int = 1) -> None:
        self.now = 1000.0
        self.disk = RealDisk()
        self.ids = tuple(range(1, brokers + 1))
        self.epochs = {id: 100 + id for id in self.ids}
        self.eligible: dict[int, int | None] = dict(self.epochs)
        self.seen = {id: Seen() for id in self.ids}
        self.config = LogConfig(min_insync_replicas=min_isr)
        self.path = path
        self.replicas = {id: self._replica(id) for id in self.ids}
        self.decision = Decided(self.ids, self.ids, 1, 0, 0)
        self.spread()

    def _replica(self, id: int) -> Partition:
        directory = self.path / str(id)
        directory.mkdir(exist_ok=True)
        log = Log.create(
            LogResources(self.disk),
            str(directory),
            "t",
            0,
            self.config,
            topic_id=TOPIC_ID,
            now_ms=0,
        )
        return Partition(
            "t",
            TOPIC_ID,
            0,
            log,
            ReplicaConfig(node_id=id, lag_time_max_s=LAG_S),
            self.seen[id],
            self.eligible.get,
            self.seen[id].events,
        )

    def __getitem__(self, id: int) -> Partition:
        return self.replicas[id]

    def leading(self, id: int) -> Leadership:
        leadership = self.replicas[id].leadership
        assert leadership is not None, f"{id} does not lead"
        return leadership

    def isr_changes(self, id: int) -> IsrChanges:
        return self.leading(id).isr_changes

    def follow(self, id: int, answer: FetchedPartition, leader_epoch: int | None = None) -> int:
        replica = self.replicas[id]
        epoch = replica.leader_epoch if leader_epoch is None else leader_epoch
        return following.apply_fetch_answer(replica, answer, epoch)

    # -- the controller

    def decide(self, *, to: tuple[int, ...] | None = None, **changes: Any) -> None:
        """Commit a decision; a new leader gets a new epoch. It reaches the brokers in `to` (all)."""
        old = self.decision
        new = replace(old, partition_epoch=old.partition_epoch + 1, **changes)
        if "leader" in changes:
            new = replace(new, leader_epoch=old.leader_epoch + 1)
        self.decision = new
        self.spread(to)

    def spread(self, to: tuple[int, ...] | None = None) -> None:
        for id in self.ids if to is None else to:
            if self.decision.leader == id:
                self.replicas[id].become_leader(self.decision, self.now)
            else:
                self.replicas[id].become_follower(self.decision)
            self.replicas[id].invariants()

    def proposal(self, leader: int) -> Proposal:
        proposal = self[leader].proposal
        assert proposal is not None, "there is no proposal"
        return proposal

    def accept_proposal(self, leader: int) -> None:
        proposal = self.proposal(leader)
        assert proposal.partition_epoch == self.decision.partition_epoch
        self.decide(isr=tuple(id for id, _ in proposal.isr))

    # -- the producer

    def produce(self, leader: int, *values: str, acks: int = 1) -> int:
        """One batch; returns the offset that acks=all waits for."""
        batch = build(
            [Record(offset, 1000, None, value.encode(), ()) for offset, value in enumerate(values)]
        )
        appended = self[leader].leading().append(memoryview(batch), acks, self.now, 1000)
        self[leader].invariants()
        return appended.last_offset + 1

    # -- the network

    def position(self, follower: int) -> FetchPartition:
        """What it would fetch next."""
        replica = self[follower]
        offset, last_epoch = following.next_fetch_position(replica)
        return FetchPartition(
            topic="t",
            topic_id=TOPIC_ID,
            partition=0,
            current_leader_epoch=replica.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=replica.log.log_start,
            max_bytes=1 << 20,
        )

    def ask(
        self, follower: int, leader: int, fetch: FetchPartition | None = None
    ) -> FetchedPartition:
        """The follower's fetch reaches the leader; the answer is on its way."""
        fetch = fetch or self.position(follower)
        epoch = self.epochs[follower]
        leadership = self[leader].leadership
        if leadership is None:
            return self[leader].refuse_follower(fetch.current_leader_epoch)
        answer = leadership.serve_follower(fetch, follower, epoch, 1 << 20, True, self.now)
        if answer.records is not None:
            assert isinstance(answer.records, FileRange)
            answer = answer._replace(records=memoryview(bytearray(answer.records.read())))
        return answer

    def fetch(self, follower: int, leader: int, times: int = 1) -> FetchedPartition:
        for _ in range(times):
            answer = self.ask(follower, leader)
            if not answer.error:
                self.follow(follower, answer)
            self[follower].invariants()
            self[leader].invariants()
        return answer

    def settle(self) -> None:
        """Fetch until every follower has everything and the ISR is whole."""
        leader = self.decision.leader
        for _ in range(10):
            for id in self.ids:
                if id != leader and self[id].role is Role.FOLLOWER:
                    self.fetch(id, leader)
            if self[leader].proposal is not None:
                self.accept_proposal(leader)

    # -- what is on disk

    def values(self, id: int) -> list[str]:
        return [value for _, _, value in self.entries(id)]

    def entries(self, id: int) -> list[tuple[int, int, str]]:
        """(offset, epoch, value) of every record."""
        data = self.bytes_of(id)
        return [
            (record.offset, batch.leader_epoch, (record.value or b"").decode())
            for batch in batches(data)
            for record in records(data, batch)
        ]

    def bytes_of(self, id: int) -> bytes:
        log = self[id].log
        if log.log_start == log.log_end:
            return b""
        read = log.read(log.log_start, max_bytes=1 << 30, end_offset=log.log_end)
        assert read.range is not None
        return read.range.read()

    def assert_identical(self) -> None:
        first = self.bytes_of(self.ids[0])
        for id in self.ids[1:]:
            assert self.bytes_of(id) == first, (self.entries(self.ids[0]), self.entries(id))
