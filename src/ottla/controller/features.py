"""Feature levels, finalized for the whole cluster (UpdateFeatures, KIP-584, KIP-1022).

A level is finalized only when every registered broker and controller supports it. Either all updates of a request
are applied, or none.

kraft.version is the quorum's own: it says whether it can be raised, and writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from ottla.controller.draft import Draft
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED, UNSERVED
from ottla.metadata.image import ELR_FEATURE
from ottla.metadata.records import FeatureLevelRecord
from ottla.wire.errors import ErrorCode, KafkaError

NEVER_LESS = {
    METADATA_VERSION: "Refusing to perform the requested downgrade because it might delete metadata "
    "information.",
    KRAFT_VERSION: "Can't downgrade the version of this feature.",
    ELR_FEATURE: "Eligible leader replicas are part of every election here.",
}


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int


class QuorumVersion(Protocol):
    """What is asked of the quorum about its own feature (Kafka's KRaftVersionAccessor)."""

    @property
    def kraft_version(self) -> int: ...

    def check_kraft_version(self, version: int) -> None:
        """Raises KafkaError if the version cannot become this one."""


def update(draft: Draft, updates: Sequence[FeatureUpdate], quorum: QuorumVersion) -> dict[str, Any]:
    if len({update.name for update in updates}) != len(updates):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A feature may be updated once only.")
    records = []
    for name, level, upgrade_type in updates:
        current = (
            quorum.kraft_version if name == KRAFT_VERSION else draft.image.features.get(name, 0)
        )
        _check(draft, name, level, upgrade_type, current)
        if name == KRAFT_VERSION:
            quorum.check_kraft_version(level)
            draft.kraft_version = level if level > current else None
        elif level != current:
            records.append(FeatureLevelRecord(name=name, feature_level=level))
    draft.add(records)
    results = [
        {"feature": update.name, "error_code": 0, "error_message": None} for update in updates
    ]
    return {"error_code": 0, "error_message": None, "results": results}


def _check(draft: Draft, name: str, level: int, upgrade_type: int, current: int) -> None:
    def refuse(why: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {level} for feature {name}. {why}",
        )

    if upgrade_type not in UpgradeType.__members__.values():
        raise refuse("The controller does not support the given upgrade type.")
    if level < 0:
        raise refuse("A feature version cannot be less than 0.")
    why = _unsupported_by(draft, name, level)
    if why is not None:
        raise refuse(why)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise refuse(
            "Can't downgrade the version of this feature without setting the upgrade type to either "
            "safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise refuse("Can't downgrade to a newer version.")
    if name in NEVER_LESS and level < current:
        raise refuse(NEVER_LESS[name])


def _unsupported_by(draft: Draft, name: str, level: int) -> str | None:
    """The reason for which a node does not support the level; this controller is checked first."""
    if name in UNSERVED and level == 0:
        return None  # a feature that is switched on can always be switched off
    if name not in SUPPORTED:
        return "The controller does not support this feature."
    low, high = SUPPORTED[name]
    if not low <= level <= high:
        return f"The controller only supports versions {low}-{high}"
    nodes = [
        *((f"Broker {id}", broker.features) for id, broker in sorted(draft.image.brokers.items())),
        *(
            (f"Controller {id}", one.features)
            for id, one in sorted(draft.image.controllers.items())
        ),
    ]
    for who, features in nodes:
        known = next((feature for feature in features if feature.name == name), None)
        low, high = (0, 0)
        if known is not None:
            low, high = known.min_supported_version, known.max_supported_version
        if not low <= level <= high:
            return f"{who} only supports versions {low}-{high}"
    return None
