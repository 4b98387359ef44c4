"""The files of a cluster's nodes. They are only read, and byte by byte: opening a log as a node does would repair it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.config.sources import read_properties
from ottla.config.values import ConfigError


def log_directories(node: Path) -> list[Path]:
    """Of a node's directory: those that its settings name."""
    try:
        settings = {
            each.name: each.value for each in read_properties(str(node / "server.properties"))
        }
    except ConfigError:
        settings = {}
    names = settings.get("log.dirs") or settings.get("log.dir") or str(node / "data")
    more = [settings["metadata.log.dir"]] if settings.get("metadata.log.dir") else []
    return [Path(name.strip()) for name in [*names.split(","), *more]]


def segments(directory: Path) -> Iterator[bytes]:
    """The content of each segment of a log, the oldest first."""
    for path in sorted(directory.glob("*.log")):
        yield path.read_bytes()
