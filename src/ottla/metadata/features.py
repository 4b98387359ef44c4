"""The features of this release: the supported levels, and those of a new cluster (Kafka's 4.3-IV0).

`kraft.version` is finalized by a control record of the quorum, the others by FeatureLevel records.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.metadata.records import FeatureRange


class LevelRange(NamedTuple):
    min: int
    max: int


METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"

SUPPORTED: Mapping[str, LevelRange] = MappingProxyType(
    {
        METADATA_VERSION: LevelRange(7, 30),
        KRAFT_VERSION: LevelRange(0, 1),
        "transaction.version": LevelRange(0, 2),
        "group.version": LevelRange(0, 1),
        "eligible.leader.replicas.version": LevelRange(0, 1),
    }
)

UNSERVED: Mapping[str, LevelRange] = MappingProxyType(
    {"share.version": LevelRange(0, 1), "streams.version": LevelRange(0, 1)}
)
"""Share groups and streams groups are not served and not announced to clients. A cluster that Kafka formatted has
them switched on, and must still accept our nodes."""

DEFAULT_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        METADATA_VERSION: 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
)
"""The FeatureLevel records of a new cluster, metadata.version first as in Kafka."""


def supported_ranges() -> tuple[FeatureRange, ...]:
    """The ranges that a broker or controller registers."""
    return tuple(
        FeatureRange(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
        for name, levels in {**SUPPORTED, **UNSERVED}.items()
    )
