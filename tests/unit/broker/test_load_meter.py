"""What a broker says about itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.replication.load_meter import LoadMeter

TERABYTE = 1 << 40


class Disks:
    """Directories and their disks, all of them equal; whoever looks at one finds a byte less free than before."""

    def __init__(self, devices: dict[str, int]) -> None:
        self.devices = devices
        self.free = TERABYTE // 2

    def device(self, path: str) -> int:
        return self.devices[path]

    def usage(self, path: str) -> tuple[int, int]:
        self.free -= 1
        return TERABYTE, self.free


def size_with(devices: dict[str, int]) -> int:
    counters = ("bytes_in", "bytes_out", "replication_bytes_in", "replication_bytes_out")
    traffic = SimpleNamespace(**dict.fromkeys((*counters, "produces", "fetches"), 0))
    logs = SimpleNamespace(directories=list(devices), offline_directories={})
    replicas: Any = SimpleNamespace(logs=logs, partitions={}, traffic=traffic)
    clock = SimpleNamespace(monotonic=lambda: 1.0)
    runtime: Any = SimpleNamespace(clock=clock, cpu_s=None, disk=Disks(devices))
    return asyncio.run(LoadMeter(runtime, replicas).now()).disk_size


def test_equal_disks_count_each_and_directories_of_one_disk_count_it_once() -> None:
    assert size_with({f"/disk{number}": number for number in range(4)}) == 4 * TERABYTE
    assert size_with({"/disk/a": 1, "/disk/b": 1}) == TERABYTE
