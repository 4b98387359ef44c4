"""The compacted topic of a run, `table`, in those seeds that have one.

Its replicas compact on their own, so their logs may differ, and the ledger of bytes does not apply. What must hold is what
a reader of a table relies on. At rest every replica has, for each key, the newest acknowledged value or a later one; all
replicas have the same; and nothing is there that no producer wrote. Some writes delete their key: the tombstone stays,
and no older value comes back. In some runs tombstones expire soon (delete.retention.ms). A replica that was away for
longer never sees the tombstone and keeps its value, as in Kafka, so keys that may have been deleted last are not checked.

When the controller marks a leader as RECOVERING, what was sent before may be lost from that leader's log end on. A lost
value may already have replaced an older one: a replica that had compacted by then has no value for the key, others still
have the older one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.log.log import Log
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import RECOVERING
from ottla.records.batch import batches, check_crc
from ottla.records.record import Record, records
from ottla.sim.clients.producer import SimProducer
from ottla.sim.clients.record_content import is_tombstone, key_of, name_of
from ottla.sim.clients.workload import Workload
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.history import TABLE, History, ProducedBatch
from ottla.sim.oracle.leader_history import LeaderHistory
from ottla.sim.oracle.ledger import Violation
from ottla.wire.types import TopicPartition

PARTITION = TopicPartition(TABLE, 0)
PRODUCERS = 2
REPLICAS = 3
TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}
FORGETFUL: Mapping[str, str] = {"delete.retention.ms": "1000"}
NODE_SETTINGS: Mapping[str, str] = {"log.cleaner.backoff.ms": "300"}


class Times(Protocol):
    """How fast the clients of a run send and retry."""

    pause_s: float
    backoff_s: float
    patience_s: float


class TableLoss(NamedTuple):
    """A leader that was marked as RECOVERING."""

    epoch: int
    at: float
    end: int
    """Its log end at that time: what was sent before and lay above may be lost."""


class CompactedTable:
    """The topic, its producers and what they were answered."""

    def __init__(
        self,
        cluster: SimCluster,
        leaders: LeaderHistory,
        chance: random.Random,
        *,
        forgets_tombstones: bool = False,
    ) -> None:
        self.topic_settings = {**TOPIC_SETTINGS, **(FORGETFUL if forgets_tombstones else {})}
        self._forgets_tombstones = forgets_tombstones
        self.history = History()
        self.losses: list[TableLoss] = []
        self._replicas: set[int] = set()
        """The nodes that have one, by the metadata."""
        self._cluster = cluster
        self._leaders = leaders
        self._random = chance
        self._producers: list[SimProducer] = []

    def begin(self, workload: Workload, host: SimHost, times: Times) -> None:
        for number in range(PRODUCERS):
            name = f"{TABLE}-p{number}"
            producer = SimProducer(
                workload.connections(name),
                PARTITION,
                self.history,
                name,
                random.Random(self._random.getrandbits(64)),
                pause_s=times.pause_s,
                backoff_s=times.backoff_s,
                patience_s=times.patience_s,
            )
            if self.losses:
                producer.allow_losses(self.losses[-1].epoch)
            self._producers.append(producer)
            host.run(producer.run(), name=name)

    def stop_producing(self) -> None:
        for producer in self._producers:
            producer.stopping = True

    def decided(self, node: int, before: MetadataImage, after: MetadataImage, _: Delta) -> None:
        topic = after.topics.get(TABLE)
        decided = None if topic is None else topic.partitions[0]
        self._replicas = set() if decided is None else set(decided.replicas)
        if decided is None or decided.leader_recovery_state != RECOVERING:
            return
        for producer in self._producers:
            producer.allow_losses(decided.leader_epoch)
        if self.losses and self.losses[-1].epoch == decided.leader_epoch:
            return
        # If the leader is down and does not know of its election yet, it will be elected again.
        for id, log in self._logs():
            if id == decided.leader:
                now = self._cluster.world.loop.time()
                self.losses.append(TableLoss(decided.leader_epoch, now, log.log_end))

    def _lost_from(self, batch: ProducedBatch, offset: int | None) -> int | None:
        """The log end of the leader that may have lost this batch; None if it cannot be lost. `offset` None: the batch
        was not acknowledged, so its offset is unknown."""
        return max(
            (
                loss.end
                for loss in self.losses
                if batch.begun_at < loss.at and (offset is None or offset >= loss.end)
            ),
            default=None,
        )

    def _logs(self) -> list[tuple[int, Log]]:
        found = []
        for node in self._cluster.nodes.values():
            broker = node.node.broker if node.node is not None else None
            partition = None if broker is None else broker.replicas.partitions.get(PARTITION)
            if partition is not None:
                found.append((node.id, partition.log))
        return found

    def unsettled(self) -> list[str]:
        left = [
            f"no batch of {each.name} was acknowledged since then"
            for each in self._producers
            if not each.is_done
        ]
        logs = self._logs()
        if (nodes := {id for id, _ in logs}) != self._replicas:
            left.append(f"the table is on nodes {nodes}, not on {self._replicas}")
        ends = {(log.high_watermark, log.log_end) for _, log in logs}
        if len(ends) > 1 or any(high_watermark != end for high_watermark, end in ends):
            left.append(f"replicas of the table differ: {[log for _, log in logs]}")
        return left

    def check_end(self) -> None:
        for anomaly in self.history.anomalies:
            if anomaly.refusal is None or not self._leaders.had_successor(anomaly.refusal):
                raise Violation(anomaly.rule, TABLE, anomaly.what, [])
        written = self._written()
        uncertain = self._uncertain_keys()
        acknowledged = self._newest_acknowledged()
        maybe_deleted = self._maybe_deleted_keys(acknowledged) if self._forgets_tombstones else []
        tables: dict[int, dict[bytes, Record]] = {}
        for node, log in self._logs():
            table = tables[node] = {}
            for record in _records(log):
                name = name_of(record)
                is_deletion = record.value is None
                if (
                    record.key is None
                    or written.get(name) != record.key
                    or is_deletion != is_tombstone(PARTITION, name)
                ):
                    raise _wrong("D3", node, f"{record} was never sent")
                table[record.key] = record
                if is_deletion:
                    mark("tombstone kept")
            for key, (offset, value) in acknowledged.items():
                newest = table.get(key)
                if key in maybe_deleted:
                    if newest is None:
                        mark("tombstone forgotten")
                    continue
                if key in uncertain and offset < uncertain[key]:
                    continue
                if newest is not None and newest.offset == offset and name_of(newest) != value:
                    raise _wrong(
                        "C2", node, f"{value!r} was acknowledged at {offset}, but there is {newest}"
                    )
                if newest is None or newest.offset < offset:
                    raise _wrong(
                        "D3",
                        node,
                        f"{value!r} was acknowledged at {offset}, but the newest of its key is {newest}",
                    )
            if log.cleaned is not None and log.cleaned > log.log_start:
                mark("log compacted")
        for key in sorted(set(written.values()) - set(maybe_deleted)):
            alike: dict[int, dict[int, Record | None]] = {}
            for node, table in tables.items():
                found = table.get(key)
                if key not in uncertain:
                    alike.setdefault(0, {})[node] = found
                elif found is not None:  # of different ages
                    alike.setdefault(found.offset, {})[node] = found
            for each in alike.values():
                for node, found in each.items():
                    if found != each[min(each)]:
                        raise _wrong("D2", node, f"{found} differs from other replicas: {each}")

    def _written(self) -> dict[bytes, bytes]:
        """Each value that may be in the log, and its key."""
        sent = [ack.batch for ack in self.history.acknowledged] + self.history.unknown
        return {value: key_of(PARTITION, value) or b"" for batch in sent for value in batch.values}

    def _maybe_deleted_keys(self, acknowledged: Mapping[bytes, tuple[int, bytes]]) -> list[bytes]:
        """Keys whose last write may have been a tombstone, which may have expired."""
        found = [key for key, (_, value) in acknowledged.items() if is_tombstone(PARTITION, value)]
        certain = {
            value
            for ack in self.history.acknowledged
            for offset, value in enumerate(ack.batch.values, ack.base_offset)
            if self._lost_from(ack.batch, offset) is None
        }
        return found + [
            key
            for value, key in self._written().items()
            if is_tombstone(PARTITION, value) and value not in certain
        ]

    def _newest_acknowledged(self) -> dict[bytes, tuple[int, bytes]]:
        """By key: offset and value of the newest acknowledged write that cannot be lost."""
        newest: dict[bytes, tuple[int, bytes]] = {}
        for ack in self.history.acknowledged:
            for offset, value in enumerate(ack.batch.values, ack.base_offset):
                if self._lost_from(ack.batch, offset) is None:
                    key, place = key_of(PARTITION, value) or b"", (offset, value)
                    newest[key] = max(place, newest.get(key, place))
        return newest

    def _uncertain_keys(self) -> dict[bytes, int]:
        """Keys of which a value may be lost, each with the log end of the leader that lost it. The older value may have
        been compacted away before; and a follower that copied a part of the log before the compaction and the rest after
        it may only have a still older one."""
        sent = [
            (ack.batch, offset, value)
            for ack in self.history.acknowledged
            for offset, value in enumerate(ack.batch.values, ack.base_offset)
        ]
        unknown = [(batch, None, value) for batch in self.history.unknown for value in batch.values]
        uncertain: dict[bytes, int] = {}
        for batch, offset, value in (*sent, *unknown):
            start = self._lost_from(batch, offset)
            if start is not None:
                key = key_of(PARTITION, value) or b""
                uncertain[key] = max(start, uncertain.get(key, start))
        return uncertain


def _records(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start
    while True:
        result = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end)
        if result.range is None:
            return found
        data = result.range.read()
        for batch in batches(data):
            check_crc(data, batch)
            found += records(data, batch)
        offset = result.next_offset


def _wrong(rule: str, node: int, what: str) -> Violation:
    return Violation(rule, f"node {node}, {TABLE}, at the end", what, [])
