"""What clients were answered, checked against what is committed (C2, D3, D11).

The clients write down what they were answered (`oracle.history`). After each event of a client the new entries are
checked here.
"""

from __future__ import annotations

from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import Ack, History, ProducedBatch
from ottla.wire.types import TopicPartition


class ClientChecker:
    def __init__(self, evidence: Evidence, history: History) -> None:
        self._evidence = evidence
        self._history = history
        self._acks_seen = 0
        self._reads_seen = 0
        self._anomalies_seen = 0

    def look(self) -> None:
        """At what clients were answered since the last look."""
        history = self._history
        if len(history.acknowledged) != self._acks_seen:
            self._check_acks()
        if len(history.shown) != self._reads_seen:
            self._check_reads()
        if len(history.anomalies) != self._anomalies_seen:
            self._check_anomalies()

    def _check_acks(self) -> None:
        """D3: nothing is acknowledged before it is committed."""
        for ack in self._history.acknowledged[self._acks_seen :]:
            self._check_ack(ack)
        self._acks_seen = len(self._history.acknowledged)

    def _check_ack(self, ack: Ack) -> None:
        key = ack.batch.partition
        ledger = self._evidence.ledger(key)
        end = ack.base_offset + len(ack.batch.values)
        if ack.base_offset < 0 or (end > ledger.end and not ledger.excuses(end - 1, ack.epoch)):
            raise self._evidence.violation(
                "D3",
                "a producer",
                key,
                f"offsets {ack.base_offset} to {end - 1} were acknowledged, but only offsets below "
                f"{ledger.end} are committed",
            )

    def _check_reads(self) -> None:
        """D11: consumers read only what is committed."""
        for key, end, epoch in self._history.shown[self._reads_seen :]:
            ledger = self._evidence.ledger(key)
            if end > ledger.end and not ledger.excuses(end - 1, epoch):
                what = (
                    f"read records below {end}, but only offsets below {ledger.end} are committed"
                )
                raise self._evidence.violation("D11", "a consumer", key, what)
        self._reads_seen = len(self._history.shown)

    def _check_anomalies(self) -> None:
        """What a client itself found to be wrong (C1, D3, D4). A broker may refuse a batch as out of order without
        fault if it cannot know the batches before it."""
        for anomaly in self._history.anomalies[self._anomalies_seen :]:
            self._anomalies_seen += 1
            refusal = anomaly.refusal
            if refusal is None or not (
                self._has_expired(refusal.batch)
                or self._evidence.leaders.had_successor(refusal)
                or self._has_damaged_log(refusal.by, refusal.batch.partition)
            ):
                raise self._evidence.violation(
                    anomaly.rule, "a client", anomaly.partition, anomaly.what
                )

    def _has_expired(self, batch: ProducedBatch) -> bool:
        """Whether this batch, or the one before it, is committed and lies below the start of some replica's log. A
        replica that restarts then, or begins its log there, knows only later batches of this producer. It does not
        recognize this batch when it is sent again, and takes an older one for the first (seed 163)."""
        key = batch.partition
        start = self._evidence.highest_start(key)
        return any(
            each.producer_id == batch.producer_id
            and batch.sequence in (each.sequence, each.sequence + each.end - each.base)
            for each in self._evidence.ledger(key).copy.batches
            if each.end <= start
        )

    def _has_damaged_log(self, node: int, key: TopicPartition) -> bool:
        """Whether the node may have rebuilt its producer state from a damaged log."""
        replica = self._evidence.nodes[node].replicas.get(key)
        return replica is not None and replica.is_wrong
