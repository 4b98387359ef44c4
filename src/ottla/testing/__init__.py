"""Real clusters for tests: `with Cluster(3) as cluster: …`, `async with`, or pytest's fixtures.

A cluster is what `ottla up` starts: node processes on free ports, with their own directory. Its brokers can be killed,
paused, stopped, restarted and cut off. Processes and files are removed when the process that made the cluster ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.cluster import ExistingCluster as ExistingCluster
    from ottla.testing.network import CLIENT as CLIENT

__all__ = ["CLIENT", "Cluster", "ExistingCluster"]


def __getattr__(name: str) -> Any:
    """Import late: pytest loads this package in every run, also in those without a cluster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing import cluster

    return getattr(cluster, name)
