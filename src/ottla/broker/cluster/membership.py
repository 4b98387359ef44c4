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


class Membership(NamedTuple):
    source: DecisionSource
    to_controller: ControllerChannel
    lifecycle: BrokerLifecycle
