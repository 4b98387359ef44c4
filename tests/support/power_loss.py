"""What a power loss takes from a dead node: the end of files that was never flushed. Kafka flushes a log up to its recovery point."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from ottla.records.batch import CorruptBatch, batches
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CUT_SHARE = 0.7
"""Of the logs that have something to lose."""


def lose_unflushed(data: Path, chance: Random) -> dict[str, int]:
    """Cut some logs of a node that does not run, anywhere behind their recovery points; how many bytes each lost. The metadata
    log is flushed before anything is answered, so it loses nothing."""
    points = recovery_points(data)
    lost = {}
    for directory in sorted(path for path in data.iterdir() if path.is_dir()):
        name = directory.name
        logs = sorted(directory.glob("*.log"))
        if not logs or name.startswith(CLUSTER_METADATA_TOPIC) or name.endswith("-delete"):
            continue
        active = logs[-1]
        size = active.stat().st_size
        kept = _flushed_bytes(active, points.get(name, 0))
        if kept < size and chance.random() < CUT_SHARE:
            end = chance.randint(kept, size)
            os.truncate(active, end)
            lost[name] = size - end
    return lost


def recovery_points(data: Path) -> dict[str, int]:
    file = data / RECOVERY_POINTS
    if not file.exists():
        return {}
    rows = (line.rsplit(" ", 2) for line in file.read_text().splitlines()[2:])
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}


def _flushed_bytes(segment: Path, recovery_point: int) -> int:
    """Where the first batch begins that may not have been flushed."""
    flushed = 0
    try:
        for batch in batches(segment.read_bytes()):
            if batch.last_offset >= recovery_point:
                break
            flushed = batch.end
    except CorruptBatch:
        pass  # the process was killed while it wrote
    return flushed
