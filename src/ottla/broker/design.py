"""The seams of a node: the parts that another design may replace.

Every node is built with the product's design. `ottla.lab` builds nodes with one part exchanged, and runs them in the
simulator beside the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.controller.elections import ChangeRule
from ottla.replica.partition import ReplicationRules


@dataclass(frozen=True, slots=True)
class NodeDesign:
    rules: ReplicationRules = field(default_factory=ReplicationRules)
    """When a record is committed, and where a follower truncates."""
    change: ChangeRule | None = None
    """How the controller changes a partition, and whom it elects; None for `elections.change`."""


PRODUCT: Final = NodeDesign()
