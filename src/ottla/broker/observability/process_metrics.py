"""The process of a node: memory, processor, files; its listeners and its disks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import ottla
from ottla.broker.observability.observed import ObservedNode
from ottla.metrics.families import Family, Labels, MetricKind, Sample, counter, gauge
from ottla.runtime.process import ProcessFigures, process_figures

PATIENCE_S = 1.0
"""A disk that does not answer must not hold up the page that says so."""


class Readings(NamedTuple):
    process: ProcessFigures
    usage: dict[str, tuple[int, int]]
    """(size, free) of the file system under each log directory."""


class ProcessMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._readings: Readings | None = None
        self._reading: asyncio.Future[Readings] | None = None
        settings = node.settings
        version = sys.version_info
        self._info = Labels(
            version=ottla.__version__,
            python=f"{version.major}.{version.minor}.{version.micro}",
            node=str(settings.node_id),
            roles=",".join(sorted(settings.process_roles)),
        )

    async def read(self) -> None:
        """Ask the system, in a thread: a process may have thousands of files, and a disk may not answer."""
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(None, self._read)
        done, _ = await asyncio.wait([self._reading], timeout=PATIENCE_S)
        if done:
            self._readings = self._reading.result()
            self._reading = None

    def _read(self) -> Readings:
        usage: dict[str, tuple[int, int]] = {}
        logs = self._node.logs
        for directory in () if logs is None else logs.directories:
            with suppress(OSError):
                usage[directory] = self._node.runtime.disk.usage(directory)
        return Readings(process_figures(), usage)

    def collect(self) -> Iterator[Family]:
        yield gauge(
            "ottla_build_info", "Version of ottla and Python, node and roles.", 1, self._info
        )
        yield from self._process()
        servers = list(self._node.servers.values())
        yield Family(
            "kafka_server_socket_server_metrics_connection_count",
            MetricKind.GAUGE,
            "Open connections.",
            [
                Sample(Labels(listener=server.name, networkProcessor="0"), len(server.connections))
                for server in servers
            ],
        )
        yield from self._directories()

    def _process(self) -> Iterator[Family]:
        if self._readings is None:
            return
        figures = self._readings.process
        yield counter("process_cpu_seconds_total", "Processor time of the process.", figures.cpu_s)
        yield gauge("ottla_process_threads", "Threads of the process.", figures.threads)
        yield gauge("process_max_fds", "Files that the process may have open.", figures.fds_max)
        optional = {
            "process_resident_memory_bytes": ("Memory in use.", figures.resident_bytes),
            "process_virtual_memory_bytes": ("Address space in use.", figures.virtual_bytes),
            "process_open_fds": ("Open files and sockets.", figures.open_fds),
            "process_start_time_seconds": ("When the process began.", figures.started_s),
            "kafka_server_kafkaserver_linux_disk_read_bytes": (
                "Bytes that the disks read for this process.",
                figures.disk_read_bytes,
            ),
            "kafka_server_kafkaserver_linux_disk_write_bytes": (
                "Bytes that the disks wrote for this process.",
                figures.disk_written_bytes,
            ),
        }
        for name, (help, value) in optional.items():
            if value is not None:
                yield gauge(name, help, value)

    def _directories(self) -> Iterator[Family]:
        logs = self._node.logs
        if logs is None:
            return
        offline = logs.offline_directories
        yield gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories whose disk failed.",
            len(offline),
        )
        yield Family(
            "kafka_log_logmanager_logdirectoryoffline",
            MetricKind.GAUGE,
            "1 if the disk of the log directory failed.",
            [
                Sample(Labels(logDirectory=directory), int(directory in offline))
                for directory in logs.directories
            ],
        )
        yield Family(
            "ottla_log_directory_room",
            MetricKind.GAUGE,
            "0 if the disk of the log directory has room, 1 if it refuses records, 2 if replicas copy nothing either.",
            [
                Sample(Labels(directory=directory), int(room.level))
                for directory, room in logs.rooms.items()
            ],
        )
        if self._readings is None:
            return
        usage = self._readings.usage
        for index, name in enumerate(("size", "free")):
            yield Family(
                f"ottla_log_directory_{name}_bytes",
                MetricKind.GAUGE,
                f"Bytes of the file system under a log directory, {name}.",
                [
                    Sample(Labels(directory=directory), found[index])
                    for directory, found in usage.items()
                ],
            )
