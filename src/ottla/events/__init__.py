"""What happens inside a node: typed events, emitted where they happen, to whoever subscribes.

Each module here holds the events of one theme; an event is a frozen dataclass whose docstring says when it is emitted.
A node has one `Events`, as part of its `Runtime`. Whoever emits pays for one look at an empty list while nobody
subscribes:

    if self._events:
        self._events.emit(Truncated(...))

A subscriber is called at once, in the midst of what the node does: it must neither change the node nor raise. The
simulator's coverage and checkers subscribe; metrics, the event log and the console will. Nothing in the product may
depend on a subscriber: what one part of a node needs from another is a call, not an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Every event is a subclass."""


Subscriber = Callable[[Event], None]


class Events:
    """The events of one node."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def __bool__(self) -> bool:
        """Whether anybody would hear of an event."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)
