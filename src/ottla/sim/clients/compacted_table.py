"""A compacted topic under faults: the table of a run, for those seeds that have one.

Its replicas compact on their own, so no two of their logs need be alike, and the ledger of bytes that holds for all
other topics says nothing here. What must hold is what a reader of a table relies on: at rest every replica has, for
each key, the newest value that was acknowledged or one that came after it, all of them have the same, and nothing
is there that nobody wrote. Some writes delete their key: such a tombstone stays, and no older value comes back. In some
runs tombstones are forgotten soon (delete.retention.ms); a replica that was away for longer never hears of one then, and
keeps what it had, as Kafka's do, so nothing is concluded of keys that may have been deleted last.

When the cluster says itself that a leader may have lost its tail, what was sent before may be gone from that leader's
end on. And what is gone may have outlived what it replaced: a replica that had compacted by then has no value at all
for such a key, others still have the one before.
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
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}
FORGETFUL: Mapping[str, str] = {"delete.retention.ms": "1000"}
NODE_SETTINGS: Mapping[str, str] = {"log.cleaner.backoff.ms": "300"}


class Times(Protocol):
    """How hasty the clients of a run are."""

    pause_s: float
    backoff_s: float
    patience_s: float


class TableLoss(NamedTuple):
    """The last known leader, or one that an operator chose, leads with what it has."""

    epoch: int
    at: float
    end: int
    """Where its log ended then: all that was sent before, and lay beyond, may be gone."""


class CompactedTable:
    """The topic, its writers and what they were told."""

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
        if decided is None or decided.leader_recovery_state != RECOVERING:
            return
        for producer in self._producers:
            producer.allow_losses(decided.leader_epoch)
        if self.losses and self.losses[-1].epoch == decided.leader_epoch:
            return
        # Whoever died before it heard of its election has to be elected again.
        for id, log in self._logs():
            if id == decided.leader:
                now = self._cluster.world.loop.time()
                self.losses.append(TableLoss(decided.leader_epoch, now, log.log_end))

    def _lost_from(self, batch: ProducedBatch, offset: int | None) -> int | None:
        """Where the log ended that may have lost this; None if it cannot be lost. Without an offset nobody knows
        where it was, if anywhere."""
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
        left = [f"no last word of {each.name}" for each in self._producers if not each.is_done]
        logs = self._logs()
        if len(logs) != REPLICAS:
            left.append(f"the table is on {len(logs)} of {REPLICAS} nodes")
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
                    raise _wrong("D3", node, f"{record} was never written")
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
                    raise _wrong("C2", node, f"{value!r} was acknowledged at {offset}: {newest}")
                if newest is None or newest.offset < offset:
                    raise _wrong("D3", node, f"{value!r} of {offset} is gone, there is {newest}")
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
                        raise _wrong("D2", node, f"{found} is not what others have: {each}")

    def _written(self) -> dict[bytes, bytes]:
        """Each value that may be there, and its key."""
        sent = [ack.batch for ack in self.history.acknowledged] + self.history.unknown
        return {value: key_of(PARTITION, value) or b"" for batch in sent for value in batch.values}

    def _maybe_deleted_keys(self, acknowledged: Mapping[bytes, tuple[int, bytes]]) -> list[bytes]:
        """Those whose last write may have been a tombstone, which may be forgotten by now."""
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
        """Of what cannot be lost."""
        newest: dict[bytes, tuple[int, bytes]] = {}
        for ack in self.history.acknowledged:
            for offset, value in enumerate(ack.batch.values, ack.base_offset):
                if self._lost_from(ack.batch, offset) is None:
                    key, place = key_of(PARTITION, value) or b"", (offset, value)
                    newest[key] = max(place, newest.get(key, place))
        return newest

    def _uncertain_keys(self) -> dict[bytes, int]:
        """Keys of which a value may be lost, and from where on: what they had before may have been compacted
        away for its sake, and where a follower had copied some of the log before that, and the rest after it, something
        still older is the last that is left there."""
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
