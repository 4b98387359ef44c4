"""A broker's ties to its cluster: where decisions come from, whom it asks for one, and how others know that it lives.

A node of the product makes them of the quorum. A node of the lab makes them of something else, and is the same broker.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerLifecycle, MetadataSource


class DecisionSource(MetadataSource, Protocol):
    """What publishes the images that a broker acts upon."""

    @property
    def failed(self) -> Exception | None:
        """Why it publishes nothing any more."""

    @property
    def kraft_version(self) -> int:
        """Of its quorum; 0 where the voters are static, or where there is none."""


class Membership(NamedTuple):
    source: DecisionSource
    to_controller: ControllerChannel
    """For what the broker itself asks."""
    for_clients: ControllerChannel
    """For what clients ask through it. A connection is answered in order: what the broker needs to go on does not wait behind them.
    It is opened when the first of them asks, and so is another one for large requests, which wait for their turns."""
    lifecycle: BrokerLifecycle
