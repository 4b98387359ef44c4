"""How far a group is behind, in records and in seconds, found with requests that every Kafka answers.

The seconds are the age of the first record that the group has not read. It is fetched, not estimated: the record at the
committed offset may be a marker, may be gone by compaction, or may be of a transaction that was aborted. Only of a batch
that unpacks to much the head must do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.client import CONSUMER, EARLIEST, LATEST, READ_UNCOMMITTED, Client
from ottla.client.model import Topic
from ottla.client.opening import Opening
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

Place = tuple[str, int]
"""Topic and partition."""

AT_ONCE_MAX = 16
"""Fetches under way at the same time."""
FIRST_BYTES, MORE_BYTES = 1, 1 << 20
"""One batch is usually enough."""
UNPACKED_BYTES = 1 << 20
"""Lags are asked for again and again: nobody must make that expensive by one record."""
PATIENCE_S = 5.0
"""How long to wait for a partition that has no leader now."""
PAUSE_S = 0.2


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition."""

    topic: str
    partition: int
    committed: int | None
    """None: nothing was committed."""
    log_start: int
    log_end: int
    next_timestamp_ms: int | None
    """Of the next record that the group will read; None if it has read all there is."""

    @property
    def lag(self) -> int:
        """Records that exist and were not read, as Kafka's tools count them: by offsets."""
        return self.log_end - min(max(self.committed or 0, self.log_start), self.log_end)

    def seconds(self, now_ms: float) -> float | None:
        """How old the next record to read is; 0 if there is none, None if its producer gave it no time that can be."""
        if self.next_timestamp_ms is None:
            return 0.0
        if self.next_timestamp_ms <= 0:
            return None
        return max(0.0, (now_ms - self.next_timestamp_ms) / 1000)


def most_seconds(lags: Iterable[PartitionLag], now_ms: float) -> float | None:
    """Of the partition that is furthest behind, as far as that can be said; None if it cannot."""
    ages = [lag.seconds(now_ms) for lag in lags]
    return max((age for age in ages if age), default=None if None in ages else 0.0)


class LagReader:
    """Reads the lag of many groups. What several of them need is asked for once."""

    def __init__(self, client: Client, *, read_committed: bool = False) -> None:
        """`read_committed`: whether the groups read committed transactions only."""
        self._client = client
        self._read_committed = read_committed
        self._bounds: dict[Place, tuple[int, int]] = {}
        self._next: dict[tuple[Place, int], asyncio.Task[int | None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def locate(self, places: Iterable[Place]) -> list[Place]:
        """Ask where these partitions begin and end. Those that nobody answers for in time are returned."""
        missing = sorted(set(places) - self._bounds.keys())
        deadline = asyncio.get_running_loop().time() + min(
            PATIENCE_S, self._client.connections.timeout_s
        )
        while missing:
            by_leader = await self._by_leader(missing)
            for leader, some in by_leader.items():
                try:
                    starts = await self._list_offsets(leader, some, EARLIEST)
                    ends = await self._list_offsets(leader, some, LATEST)
                except (OSError, KafkaError):
                    continue
                for place in starts.keys() & ends.keys():
                    self._bounds[place] = starts[place], ends[place]
            missing = [place for place in missing if place not in self._bounds]
            if not missing or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(PAUSE_S)
        return missing

    async def lags(self, committed: Mapping[Place, int | None]) -> list[PartitionLag]:
        """Of the partitions that were located."""
        known = [place for place in sorted(committed) if place in self._bounds]
        return list(await asyncio.gather(*(self._lag(place, committed[place]) for place in known)))

    async def _lag(self, place: Place, committed: int | None) -> PartitionLag:
        start, end = self._bounds[place]
        offset = max(start if committed is None else committed, start)
        timestamp = None
        if offset < end:
            key = place, offset
            if key not in self._next:
                self._next[key] = asyncio.ensure_future(self._next_timestamp(place, offset, end))
            timestamp = await self._next[key]
        return PartitionLag(*place, committed, start, end, timestamp)

    async def _next_timestamp(self, place: Place, offset: int, end: int) -> int | None:
        max_bytes = FIRST_BYTES
        while offset < end:
            async with self._turns:
                fetched = await self._client.fetch(
                    *place,
                    offset,
                    max_bytes=max_bytes,
                    max_wait_ms=0,
                    committed=self._read_committed,
                    opening=Opening(UNPACKED_BYTES, kept_bytes=1),
                )
            if fetched.first_timestamp is not None:
                return fetched.first_timestamp
            if fetched.next_offset == offset:
                return None
            offset, max_bytes = fetched.next_offset, MORE_BYTES
        return None

    async def _by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        """Partitions that are gone, or have no leader, are left out."""
        wanted = set(places)
        names = sorted({topic for topic, _ in wanted})
        described: list[Topic] = []
        try:
            described += (await self._client.metadata(names)).topics
        except KafkaError:  # one of them is gone: which one, only one at a time tells
            for name in names:
                try:
                    described += (await self._client.metadata([name])).topics
                except KafkaError:
                    continue
        found: dict[int, list[Place]] = {}
        for topic in described:
            for each in topic.partitions:
                place = topic.name, each.partition
                if place in wanted and each.leader >= 0:
                    found.setdefault(each.leader, []).append(place)
        return found

    async def _list_offsets(
        self, leader: int, places: Iterable[Place], timestamp: int
    ) -> dict[Place, int]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp,
                }
            )
        fields = {
            "replica_id": CONSUMER,
            "isolation_level": READ_UNCOMMITTED,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        answer = await self._client.connections.ask(ApiKey.LIST_OFFSETS, fields, broker=leader)
        return {
            (topic.name, int(found.partition_index)): int(found.offset)
            for topic in answer.topics
            for found in topic.partitions
            if int(found.error_code) == ErrorCode.NONE
        }
