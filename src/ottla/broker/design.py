"""The seams of a node: the parts that another design may replace.

Every node is built with the product's design. `ottla.lab` builds nodes with one part exchanged, and runs them in the
simulator beside the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.replication.fetchers import Replication
from ottla.broker.replication.listener import Transfer
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.config.node_settings import Settings
from ottla.controller.elections import ChangeRule
from ottla.replica.partition import ReplicationRules
from ottla.runtime import Runtime

MakeTransfer: TypeAlias = Callable[
    [Settings, Runtime, ReplicaManager, ClusterView, Callable[[], int], ReplicationThrottle],
    Transfer,
]
"""The callable among its arguments returns the broker's present epoch."""


@dataclass(frozen=True, slots=True)
class NodeDesign:
    rules: ReplicationRules = field(default_factory=ReplicationRules)
    """When a record is committed, where a follower truncates, and which role a replica takes."""
    change: ChangeRule | None = None
    """How the controller changes a partition, and whom it elects; None for `elections.change`."""
    transfer: MakeTransfer = Replication
    """How records get from one replica to the others."""


PRODUCT: Final = NodeDesign()
