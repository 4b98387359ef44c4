"""Where a log may begin: what DeleteRecords asked for, and the most that retention may delete.

A node's own log start is no evidence: it would excuse any node that loses the beginning of its log.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.apis.offsets import HIGH_WATERMARK
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.sim.oracle.ledger import LogCopy
from ottla.wire.types import TopicPartition

RETENTION_BYTES = "retention.bytes"
LATE_S = 60.0
"""A request that its client gave up may still take effect within this time: no node is paused for longer."""


class ExpiryRules:
    """D11: what may have been deleted from the beginning of each partition."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._starts: dict[TopicPartition, int] = {}
        """The highest permitted log start of any replica: other replicas may take it over."""
        self._asked: dict[TopicPartition, list[tuple[float, int]]] = {}
        """DeleteRecords requests: time and offset. By name: a late request may reach the next topic of that name."""
        self._bytes_kept: dict[str, int] = {}
        """By topic, the lowest retention.bytes so far: brokers do not all apply the newest at once."""

    def asked(self, key: TopicPartition, offset: int) -> None:
        """A client sends DeleteRecords."""
        self._asked.setdefault(key, []).append((self._now(), offset))

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        for topic in delta.deleted_topics:
            self._bytes_kept.pop(topic.name, None)
            for number in range(len(topic.partitions)):
                self._forget(TopicPartition(topic.name, number))
        for kind, name in delta.changed_configs:
            value = int(after.config(TOPIC_RESOURCE, name).get(RETENTION_BYTES, "-1"))
            if kind == TOPIC_RESOURCE and value >= 0:
                self._bytes_kept[name] = min(value, self._bytes_kept.get(name, value))

    def _forget(self, key: TopicPartition) -> None:
        self._starts.pop(key, None)
        late = [(at, offset) for at, offset in self._asked.pop(key, []) if self._is_late(at)]
        if late:
            self._asked[key] = late

    def _is_late(self, asked_at: float) -> bool:
        return asked_at >= self._now() - LATE_S

    def excuse(self, key: TopicPartition, start: int) -> None:
        """It begins there because of records that are lost now."""
        self._starts[key] = max(start, self._starts.get(key, 0))

    def permits(self, key: TopicPartition, start: int, copy: LogCopy, committed: int) -> bool:
        """Whether this log may begin there; `copy` is what it holds above."""
        if start <= self._starts.get(key, 0):
            return True
        asked = (
            committed if offset == HIGH_WATERMARK else offset
            for at, offset in self._asked.get(key, [])
            if offset != HIGH_WATERMARK or self._is_late(at)
        )
        kept = self._bytes_kept.get(key.topic)
        too_much = kept is not None and sum(batch.size for batch in copy.after(start)) >= kept
        if start > committed or not (too_much or start <= max(asked, default=0)):
            return False
        self._starts[key] = start
        return True
