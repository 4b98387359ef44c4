"""Whether the replicas of a partition agree: the same record at each offset that all of them hold for committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

ReplicaLogs: TypeAlias = Mapping[int, tuple[int, Mapping[int, str]]]
"""By broker: its high watermark, and its records by offset."""


def differences(replicas: ReplicaLogs) -> list[int]:
    """The offsets below the lowest high watermark at which not all replicas have the same record."""
    if not replicas:
        return []
    common = min(high_watermark for high_watermark, _ in replicas.values())
    return [
        offset
        for offset in range(common)
        if len({log.get(offset) for _, log in replicas.values()}) > 1
    ]


def first_difference_text(replicas: ReplicaLogs) -> str:
    """`offset 1 is m1 on broker 1 and x on broker 2`."""
    offset = differences(replicas)[0]
    texts = [
        f"{log.get(offset, 'missing')} on broker {broker}" for broker, (_, log) in replicas.items()
    ]
    return f"offset {offset} is {' and '.join(texts)}"
