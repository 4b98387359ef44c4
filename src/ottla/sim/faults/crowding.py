"""Disks that others fill up and free again, in some seeds.

The brokers have to notice in time (`ottla.disk.watermark.percent`): no record is taken where there is no room, nothing that
was acknowledged is lost, and everything goes on when there is room again. The room is measured here, not asked of the
brokers.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

from ottla.sim.cluster.nodes import DATA, WATERMARK, SimCluster, SimNode
from ottla.sim.oracle.ledger import Violation
from ottla.wire.types import TopicPartition

PERCENT = 90
HEADROOM_BYTES = 400_000
SETTINGS = {WATERMARK: str(PERCENT), "ottla.disk.headroom.max.bytes": str(HEADROOM_BYTES)}
LEFT_BYTES = (300_000, 150_000, 100_000)
"""What is left free: too little for records of clients, or for anything."""
NOTICED_S = 3.0
"""A broker looks every second. What was under way by then may still be written."""
CHECK_S = 0.5


class CrowdedDisks:
    def __init__(self, cluster: SimCluster, random: Random) -> None:
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._random = random
        self._is_over = False
        self._since: dict[int, float] = {}
        """Since when a node that runs has had no room at all."""
        self._ends: dict[int, dict[TopicPartition, LogSpan]] = {}
        self._processes: dict[int, object] = {}
        self.times = 0

    async def run(self) -> None:
        checking = asyncio.get_running_loop().create_task(self._check_all())
        while not self._is_over:
            await asyncio.sleep(self._random.uniform(1.0, 8.0))
            nodes = list(self._cluster.nodes.values())
            # Often all of them at once: nodes of one machine may share a disk.
            some = nodes if self._random.random() < 0.3 else [self._random.choice(nodes)]
            if self._is_over:
                break
            self.times += 1
            left = self._random.choice(LEFT_BYTES)
            for node in some:
                self._take(node, left)
            await asyncio.sleep(self._random.uniform(2.0, 12.0))
            for node in some:
                node.host.disk.taken_bytes = 0
        checking.cancel()

    def end(self) -> None:
        self._is_over = True
        for node in self._cluster.nodes.values():
            node.host.disk.taken_bytes = 0

    @staticmethod
    def _take(node: SimNode, left: int) -> None:
        disk = node.host.disk
        disk.taken_bytes = max(0, disk.capacity_bytes - disk.used_bytes - left)

    async def _check_all(self) -> None:
        now = asyncio.get_running_loop().time
        while not self._is_over:
            await asyncio.sleep(CHECK_S)
            for node in self._cluster.nodes.values():
                self.check(node, now())

    def check(self, node: SimNode, now: float) -> None:
        process = node.process
        is_full = node.host.disk.free_bytes < HEADROOM_BYTES // 2
        is_awake = process is not None and not process.paused and node.is_ready
        if not (is_full and is_awake) or self._processes.get(node.id) is not process:
            self._processes[node.id] = process
            self._since[node.id] = now
            self._ends.pop(node.id, None)
            return
        full_s = now - self._since[node.id]
        if full_s < NOTICED_S:
            return
        ends = _log_ends(node)
        for key, before in self._ends.get(node.id, {}).items():
            if key in ends and grew(before, ends[key]):
                what = (
                    f"it grew from {before} to {ends[key]}, although its disk has had {node.host.disk.free_bytes}"
                    f" bytes left for {full_s:.1f} s"
                )
                where = f"node {node.id}, {key.topic}-{key.partition}, at {now:.6f}"
                self.violations.append(Violation("D13", where, what, []))
        self._ends[node.id] = ends


class LogSpan(NamedTuple):
    start: int
    end: int


def grew(before: LogSpan, now: LogSpan) -> bool:
    """A log that begins anew where its leader's begins ends later, and has no record more."""
    return now.end > max(before.end, now.start)


def _log_ends(node: SimNode) -> dict[TopicPartition, LogSpan]:
    logs = None if node.node is None else node.node.logs
    if logs is None:
        return {}
    return {
        key: LogSpan(log.log_start, log.log_end)
        for key, log in logs.logs.items()
        if log.path.startswith(DATA)
    }
