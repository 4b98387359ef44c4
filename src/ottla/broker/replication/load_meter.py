"""What this broker carries: read from counters that are kept anyway, every few seconds.

The active controller gets it with the heartbeats. Whoever plans moves asks for the traffic of each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from ottla.balance.load import BrokerLoad, LoadCounters, LoadHistory, PartitionTraffic
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.runtime.threads import in_thread
from ottla.wire.types import TopicPartition

SAMPLE_S = 10.0
DISK_SAMPLES = 3
"""Disks and the size of each log are looked at in every third sample."""


class PartitionLoad(NamedTuple):
    """Of one replica here."""

    key: TopicPartition
    leads: bool
    size: int
    rate_in: float
    """Bytes per second from producers, 0 unless it leads, as the next."""
    rate_out: float
    copied_in: int
    """Bytes since the start of the node, from its leader."""
    copied_out: int


class LoadMeter:
    def __init__(self, runtime: Runtime, replicas: ReplicaManager) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._replicas = replicas
        self._history = LoadHistory()
        self._traffic: dict[TopicPartition, PartitionTraffic] = {}
        self._disk = (0, 0, 0)
        """Bytes of all logs; size and free bytes of their disks."""
        self._text = ""
        self.history_s = 0.0
        """How long it has looked, up to the longest window of a load."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def text(self) -> str:
        """For heartbeats: as of the last sample."""
        return self._text

    async def _run(self) -> None:
        while True:
            for number in range(DISK_SAMPLES):
                if number == 0:
                    await self._look_at_disks()
                    self._look_at_partitions()
                self._sample()
                await asyncio.sleep(SAMPLE_S)

    async def now(self) -> BrokerLoad:
        """With a look at everything."""
        await self._look_at_disks()
        self._look_at_partitions()
        return self._sample()

    def partitions(self) -> Iterator[PartitionLoad]:
        """As of the last look."""
        for key, partition in sorted(self._replicas.partitions.items()):
            traffic = self._traffic.get(key)
            leads = partition.leadership is not None and traffic is not None
            yield PartitionLoad(
                key,
                partition.leadership is not None,
                partition.log.size_bytes,
                traffic.rate_in if leads and traffic is not None else 0.0,
                traffic.rate_out if leads and traffic is not None else 0.0,
                partition.copied_in,
                partition.copied_out,
            )

    def _sample(self) -> BrokerLoad:
        traffic = self._replicas.traffic
        cpu_s = self._runtime.cpu_s
        logs, size, free = self._disk
        counters = LoadCounters(
            self._clock.monotonic(),
            traffic.bytes_in,
            traffic.bytes_out,
            traffic.replication_bytes_in,
            traffic.replication_bytes_out,
            traffic.produces + traffic.fetches,
            0.0 if cpu_s is None else cpu_s(),
            logs,
        )
        self._history.add(counters)
        self.history_s = self._history.seconds(counters)
        leaders = 0
        for partition in self._replicas.partitions.values():
            if partition.leadership is not None:
                leaders += 1
        load = BrokerLoad(
            leaders,
            len(self._replicas.partitions),
            logs,
            size,
            free,
            self._history.rates(counters),
        )
        self._text = load.as_text()
        return load

    async def _look_at_disks(self) -> None:
        """In a thread, because a disk may not answer. Directories on one disk count it once."""
        logs = self._replicas.logs
        working = [path for path in logs.directories if path not in logs.offline_directories]
        disk = self._runtime.disk

        def look() -> list[tuple[int, int]]:
            one_of_each = {disk.device(path): path for path in working}
            return [disk.usage(path) for path in one_of_each.values()]

        try:
            found = await in_thread(look)
        except OSError:
            return  # the log manager takes such a directory offline
        self._disk = (self._disk[0], sum(size for size, _ in found), sum(free for _, free in found))

    def _look_at_partitions(self) -> None:
        """Without a call for a partition that is idle."""
        now = self._clock.monotonic()
        size = 0
        before, self._traffic = self._traffic, {}
        for key, partition in self._replicas.partitions.items():
            for segment in partition.log.segments:
                size += segment.size
            if partition.leadership is None:
                continue
            bytes_in, bytes_out = partition.bytes_in, partition.bytes_out
            try:
                known = before[key]
            except KeyError:
                known = PartitionTraffic(now, bytes_in, bytes_out)
            if known.rate_in or known.rate_out or known.bytes_in != bytes_in or known.bytes_out != bytes_out:  # fmt: skip
                known.add(now, bytes_in, bytes_out)
            self._traffic[key] = known
        self._disk = (size, *self._disk[1:])
