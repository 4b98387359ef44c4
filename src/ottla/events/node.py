"""Events of a node as a whole."""

from __future__ import annotations

from ottla.events import Event


class NodeStarted(Event):
    """A node serves: it is in the quorum, and a broker of it is unfenced."""

    version: str


class NodeStopping(Event):
    """A node begins its orderly stop."""

    version: str


class EventsDropped(Event):
    """The event log of this node could not be written for so long that events were dropped."""

    count: int
    cause: str
