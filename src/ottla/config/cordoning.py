"""cordoned.log.dirs (KIP-1066): log directories that get no new replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CORDONED = "cordoned.log.dirs"
ALL = "*"


def wrong(cordoned: Sequence[str], log_dirs: Sequence[str]) -> Iterator[str]:
    """Why this cannot be set on a node with these log directories."""
    if len(set(cordoned)) < len(cordoned):
        yield "contains a directory twice"
    if ALL in cordoned:
        if len(cordoned) > 1:
            yield f"must not contain other values beside {ALL}"
        return
    missing = [directory for directory in cordoned if directory not in log_dirs]
    if missing:
        yield f"all entries must be in log.dirs or log.dir; not there: {', '.join(missing)}"


def cordoned(setting: Sequence[str], log_dirs: Sequence[str]) -> frozenset[str]:
    return frozenset(log_dirs if ALL in setting else setting)
