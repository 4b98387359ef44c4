"""C6: what a coordinator learns from leaders about unread records, against the logs, when everything is at rest.

Every node asks about offsets in every partition, whoever leads it: so both ways are checked, and what elections, truncation,
transactions, compaction and retention have left in the logs.
"""

from __future__ import annotations

from random import Random

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.coordination.offset_lag import OffsetLag, PartitionLeaders
from ottla.log.log import Log
from ottla.log.unread import FirstRecord
from ottla.records.batch import batches
from ottla.records.record import ControlType, control_type, records
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.oracle.ledger import Violation
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from ottla.wire.types import TopicPartition

OFFSETS_EACH = 6
ATTEMPTS = 3
ANSWER_S_MAX = 60.0


class _Truth:
    """One partition, read from its beginning to its end as nobody but a test would."""

    def __init__(self, log: Log) -> None:
        self.end = log.high_watermark
        self.start = log.log_start
        self.timestamps: dict[int, int] = {}
        self.aborted: set[int] = set()
        undecided: dict[int, list[int]] = {}
        at = log.log_start
        while at < self.end:
            read = log.read(at, max_bytes=1 << 20, end_offset=self.end)
            if read.range is None:
                break
            data, at = read.range.read(), read.next_offset
            for batch in batches(data):
                found = list(records(data, batch))
                if batch.is_control:
                    offsets = undecided.pop(batch.producer_id, [])
                    if control_type(found[0]) == ControlType.ABORT:
                        self.aborted.update(offsets)
                    continue
                for record in found:
                    if record.offset >= self.start:
                        self.timestamps[record.offset] = record.timestamp
                if batch.is_transactional:
                    open = undecided.setdefault(batch.producer_id, [])
                    open += range(batch.base_offset, batch.next_offset)
        self.stable = min((offsets[0] for offsets in undecided.values()), default=self.end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Truth) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def first(self, offset: int, *, read_committed: bool) -> FirstRecord | None:
        for at in sorted(self.timestamps):
            if at < offset or (read_committed and (at in self.aborted or at >= self.stable)):
                continue
            return FirstRecord(self.timestamps[at], at)
        return None


def check_lag(cluster: SimCluster, random: Random) -> None:
    led = {
        key: (node, partition.log)
        for node in cluster.nodes.values()
        if node.node is not None and node.node.broker is not None
        for key, partition in node.node.broker.replicas.partitions.items()
        # A disk that damaged what it holds answers with anything. The event log is never at rest.
        if partition.leadership is not None
        and key.topic != EVENT_LOG_TOPIC
        and not node.host.disk.may_be_wrong(partition.log.path)
    }
    for node in cluster.nodes.values():
        asked = {key: _some_offsets(log, random) for key, (_, log) in sorted(led.items())}
        before = {key: _Truth(log) for key, (_, log) in led.items()}
        lags = _answers(node, asked)
        for key, (leader, log) in led.items():
            if before[key] == _Truth(log):  # no compaction and no marker came in between
                _compare(node, leader, key, before[key], lags[key])


def _some_offsets(log: Log, random: Random) -> set[int]:
    known = {0, log.log_start, max(0, log.high_watermark - 1), log.high_watermark}
    return known | {random.randint(0, log.high_watermark) for _ in range(OFFSETS_EACH)}


def _answers(
    node: SimNode, asked: dict[TopicPartition, set[int]]
) -> dict[TopicPartition, list[OffsetLag]]:
    assert node.node is not None and node.node.broker is not None
    broker = node.node.broker
    listener = node.settings.inter_broker_listener_name or ""
    network = node.node.to_brokers.network
    peers = BrokerChannels(network, broker.cluster, listener, "lag-check")
    leaders = PartitionLeaders(node.id, broker.replicas, broker.cluster, peers)
    for _ in range(ATTEMPTS):
        answers = node.host.complete(leaders.ask(asked), ANSWER_S_MAX)
        found = {
            key: [answers.lag(key, offset) for offset in sorted(offsets)]
            for key, offsets in asked.items()
        }
        known = {key: [lag for lag in lags if lag is not None] for key, lags in found.items()}
        if known == found:
            break
    else:
        missing = [key for key in asked if known[key] != found[key]]
        raise Violation("C6", f"node {node.id}, at the end", f"nobody answers for {missing}", [])
    peers.stop()
    return known


def _compare(
    node: SimNode, leader: SimNode, key: TopicPartition, truth: _Truth, lags: list[OffsetLag]
) -> None:
    for lag in lags:
        expected = (
            truth.end,
            truth.first(lag.committed, read_committed=False),
            truth.first(lag.committed, read_committed=True),
        )
        found = (lag.end, lag.unread, lag.unread_committed)
        if found != expected:
            raise Violation(
                "C6",
                f"{key.topic}-{key.partition}, at the end",
                f"node {node.id} learnt from node {leader.id} about offset {lag.committed}: "
                f"{found}, but it is {expected}",
                [],
            )
