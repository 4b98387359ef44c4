"""The process of a node: memory, processor, files; its listeners and its disks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

import ottla
from ottla.broker.observability.observed import ObservedNode
from ottla.metrics.families import Family, Kind, Labels, Sample, counter, gauge
from ottla.runtime.process import process_figures


class ProcessMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        settings = node.settings
        version = sys.version_info
        self._info = Labels(
            version=ottla.__version__,
            python=f"{version.major}.{version.minor}.{version.micro}",
            node=str(settings.node_id),
            roles=",".join(sorted(settings.process_roles)),
        )

    def collect(self) -> Iterator[Family]:
        yield gauge(
            "ottla_build_info", "Version of ottla and Python, node and roles.", 1, self._info
        )
        yield from self._process()
        servers = list(self._node.servers.values())
        yield Family(
            "kafka_server_socket_server_metrics_connection_count",
            Kind.GAUGE,
            "Open connections.",
            [
                Sample(Labels(listener=server.name, networkProcessor="0"), len(server.connections))
                for server in servers
            ],
        )
        yield from self._directories()

    def _process(self) -> Iterator[Family]:
        figures = process_figures()
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
            Kind.GAUGE,
            "1 if the disk of the log directory failed.",
            [
                Sample(Labels(logDirectory=directory), int(directory in offline))
                for directory in logs.directories
            ],
        )
        usage: dict[str, tuple[int, int]] = {}
        for directory in logs.directories:
            with suppress(OSError):
                usage[directory] = self._node.runtime.disk.usage(directory)
        for index, name in enumerate(("size", "free")):
            yield Family(
                f"ottla_log_directory_{name}_bytes",
                Kind.GAUGE,
                f"Bytes of the file system under a log directory, {name}.",
                [
                    Sample(Labels(directory=directory), found[index])
                    for directory, found in usage.items()
                ],
            )
