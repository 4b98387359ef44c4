"""Facts about this machine, and about a cluster whose directory is on it. They also exist when no node answers."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import ottla
from ottla.config.sources import read_properties
from ottla.config.values import ConfigError
from ottla.diagnosis.facts import FileSystem, MachineFacts, NodeProcessFacts
from ottla.diagnosis.lost_disks import data_of
from ottla.local.cluster import LocalCluster, LocalNode
from ottla.local.processes import is_paused

KERNEL = (
    "vm.swappiness",
    "vm.overcommit_memory",
    "vm.max_map_count",
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "net.core.somaxconn",
    "fs.file-max",
)
TAIL_BYTES = 4 << 20
"""How much of a log's end is searched for the node's last start."""


def machine(cluster: LocalCluster | None) -> MachineFacts:
    memory = _memory()
    return MachineFacts(
        f"{platform.system()} {platform.release()}",
        platform.python_version(),
        ottla.__version__,
        () if cluster is None else tuple(_node(cluster, each) for each in cluster.nodes.values()),
        _kernel(),
        memory.get("MemTotal"),
        memory["SwapTotal"] - memory["SwapFree"] if "SwapFree" in memory else None,
    )


def _node(cluster: LocalCluster, node: LocalNode) -> NodeProcessFacts:
    ended = cluster.end_time(node.id)
    pid = node.pid if node.running else None
    settings = _settings(cluster.config_file(node.id))
    return NodeProcessFacts(
        node.id,
        node.state,
        pid,
        None if ended is None else int(ended * 1000),
        _version(cluster.log_file(node.id)),
        None if pid is None else _open_files(pid),
        None if pid is None else _open_files_max(pid),
        tuple(_disk(path) for path in settings.get("log.dirs", "").split(",") if path),
        settings,
        pid is not None and is_paused(pid),
        data_of(cluster, node.id),
    )


def _settings(file: Path) -> dict[str, str]:
    """As they are in the file, right or wrong."""
    try:
        return {entry.name: entry.value for entry in read_properties(str(file))}
    except ConfigError:
        return {}


def _version(log: Path) -> str | None:
    # In either format of the log.
    starts = re.findall(r'node starts.*version(?:=|": ")([^\s"]+)', tail(log, TAIL_BYTES))
    return starts[-1] if starts else None


def tail(file: Path, size: int) -> str:
    """The last bytes of a file, from the beginning of a line on; empty if there is none."""
    try:
        with open(file, "rb") as opened:
            skipped = max(0, os.fstat(opened.fileno()).st_size - size)
            opened.seek(skipped)
            data = opened.read(size)
    except OSError:
        return ""
    text = data.decode(errors="replace")
    return text.partition("\n")[2] if skipped else text


def _open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # of another user, ended meanwhile, or no Linux
        return None


def _open_files_max(pid: int) -> int | None:
    text = _read(Path(f"/proc/{pid}/limits"))
    found = re.search(r"^Max open files\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _disk(path: str) -> FileSystem:
    try:
        found, device = os.statvfs(path), os.stat(path).st_dev
    except OSError:
        return FileSystem(path, 0, 0, 0, 0)
    return FileSystem(
        path,
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_favail,
        found.f_files,
        device,
    )


def _kernel() -> dict[str, str]:
    found = {name: _read(Path("/proc/sys") / name.replace(".", "/")).strip() for name in KERNEL}
    return {name: value for name, value in found.items() if value}


def _memory() -> Mapping[str, int]:
    text = _read(Path("/proc/meminfo"))
    return {name: int(kilo) * 1024 for name, kilo in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
