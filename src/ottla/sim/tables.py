"""A compacted topic under faults: the table of a run, for those seeds that have one.

Its replicas compact on their own, so no two of their logs need be alike, and the ledger of bytes that holds for all
other topics says nothing here. What must hold is what a reader of a table relies on: at rest every replica has, for
each key, the newest value that was acknowledged or one that came after it, all of them have the same, and nothing
is there that nobody wrote.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Protocol

from ottla.log.log import Log
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import RECOVERING
from ottla.records.batch import CorruptBatch, batches, check_crc
from ottla.records.record import Record, records
from ottla.sim.cluster import SimCluster
from ottla.sim.coverage import mark
from ottla.sim.oracle import Violation
from ottla.sim.workload import TABLE, History, Producer, Workload, key_of
from ottla.sim.world import SimHost
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
NODE_SETTINGS: Mapping[str, str] = {"log.cleaner.backoff.ms": "300"}


class Times(Protocol):
    """How hasty the clients of a run are."""

    pause_s: float
    backoff_s: float
    patience_s: float


class Table:
    """The topic, its writers and what they were told."""

    def __init__(self, cluster: SimCluster, chance: random.Random) -> None:
        self.history = History()
        self.lost_until = -math.inf
        """What was begun by then may be gone: the cluster said so itself when somebody was elected who may
        not have had everything, a last known leader for instance."""
        self.disks_are_wrong = False
        """They hold what was never written there: a replica may be unreadable."""
        self._cluster = cluster
        self._random = chance
        self._producers: list[Producer] = []

    def begin(self, workload: Workload, host: SimHost, times: Times) -> None:
        for number in range(PRODUCERS):
            name = f"{TABLE}-p{number}"
            producer = Producer(
                workload.connections(name),
                PARTITION,
                self.history,
                name,
                random.Random(self._random.getrandbits(64)),
                pause_s=times.pause_s,
                backoff_s=times.backoff_s,
                patience_s=times.patience_s,
            )
            producer.losses_are_allowed = self.lost_until > -math.inf
            self._producers.append(producer)
            host.run(producer.run(), name=name)

    def stop_producing(self) -> None:
        for producer in self._producers:
            producer.stopping = True

    def expect_wrong_disks(self) -> None:
        self.disks_are_wrong = True
        self._allow_losses(until=math.inf)

    def _allow_losses(self, until: float) -> None:
        self.lost_until = max(self.lost_until, until)
        for producer in self._producers:
            producer.losses_are_allowed = True

    def decided(self, node: int, before: MetadataImage, after: MetadataImage, _: Delta) -> None:
        topic = after.topics.get(TABLE)
        if topic is not None and topic.partitions[0].leader_recovery_state == RECOVERING:
            self._allow_losses(until=self._cluster.world.loop.time())

    def _logs(self) -> list[tuple[int, Log]]:
        found = []
        for node in self._cluster.nodes.values():
            broker = node.node.broker if node.node is not None else None
            partition = None if broker is None else broker.replicas.partitions.get(PARTITION)
            if partition is not None:
                found.append((node.id, partition.log))
        return found

    def unsettled(self) -> list[str]:
        left = []
        if self.history.under_way:
            left.append(f"{len(self.history.under_way)} batches to the table without an outcome")
        logs = self._logs()
        if len(logs) != REPLICAS:
            left.append(f"the table is on {len(logs)} of {REPLICAS} nodes")
        ends = {(log.high_watermark, log.log_end) for _, log in logs}
        if len(ends) > 1 or any(high_watermark != end for high_watermark, end in ends):
            left.append(f"replicas of the table differ: {[log for _, log in logs]}")
        return left

    def check_end(self) -> None:
        if self.history.anomalies:
            anomaly = self.history.anomalies[0]
            raise Violation(anomaly.rule, TABLE, anomaly.what, [])
        written = self._written()
        acknowledged = self._newest_acknowledged()
        tables: dict[int, dict[bytes, Record]] = {}
        for node, log in self._logs():
            table = tables[node] = {}
            try:
                found = _records(log)
            except CorruptBatch:
                if self.disks_are_wrong:
                    continue
                raise
            for record in found:
                if record.key is None or written.get(record.value or b"") != record.key:
                    raise _wrong("D3", node, f"{record} was never written")
                table[record.key] = record
            for key, (offset, value) in acknowledged.items():
                newest = table.get(key)
                if newest is not None and newest.offset == offset and newest.value != value:
                    raise _wrong("C2", node, f"{value!r} was acknowledged at {offset}: {newest}")
                if newest is None or newest.offset < offset:
                    raise _wrong("D3", node, f"{value!r} of {offset} is gone, there is {newest}")
            if log.cleaned is not None and log.cleaned > log.log_start:
                mark("log compacted")
        if self.disks_are_wrong:
            return
        first = min(tables)
        for node, table in tables.items():
            if table != tables[first]:
                raise _wrong("D2", node, f"{table} is not what node {first} has: {tables[first]}")

    def _written(self) -> dict[bytes, bytes]:
        """Each value that may be there, and its key."""
        sent = [ack.batch for ack in self.history.acknowledged] + self.history.unknown
        return {value: key_of(PARTITION, value) or b"" for batch in sent for value in batch.values}

    def _newest_acknowledged(self) -> dict[bytes, tuple[int, bytes]]:
        """Of what was begun after the last loss: before, an offset, too, may have been given out again."""
        newest: dict[bytes, tuple[int, bytes]] = {}
        for ack in self.history.acknowledged:
            if ack.batch.begun_at <= self.lost_until:
                continue
            for number, value in enumerate(ack.batch.values):
                key, place = key_of(PARTITION, value) or b"", (ack.base_offset + number, value)
                newest[key] = max(place, newest.get(key, place))
        return newest


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
