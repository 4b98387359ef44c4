"""Typed events inside a node, emitted where they happen, for any subscriber.

Each module here holds the events of one theme. An event is a frozen dataclass whose docstring says when it is emitted.
A node has one `Events`, as part of its `Runtime`. Without subscribers, emitting costs one check of an empty list:

    if self._events:
        self._events.emit(Truncated(...))

A subscriber is called synchronously, within the node's operation: it must neither change the node nor raise. The
simulator's coverage and checkers subscribe; metrics, the event log and the console will. Nothing in the product may
depend on a subscriber: what one part of a node needs from another is a call, not an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of all events."""


Subscriber = Callable[[Event], None]


class Events:
    """The events of one node."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def __bool__(self) -> bool:
        """Whether there is any subscriber."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)
