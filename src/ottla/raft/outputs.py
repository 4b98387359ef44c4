"""What comes out of `Raft`: requests to send, and events.

Whoever drives Raft empties both lists after each input. Subscribers to the node's `Events` get each event at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.events import Event, Events
from ottla.raft.messages import QuorumRequest


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A request that waits to be sent. It is given back with its answer or failure."""

    peer: int
    request: QuorumRequest


class Outputs:
    __slots__ = ("events", "outbox", "subscribed")

    def __init__(self, subscribed: Events) -> None:
        self.outbox: list[Send] = []
        self.events: list[Event] = []
        self.subscribed = subscribed

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.subscribed.emit(event)
