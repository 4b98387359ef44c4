"""Typed events inside a node, emitted where they happen, for any subscriber.

Each module here holds the events of one theme. An event is a frozen record whose docstring says when it is emitted.
A node has one `Events`, as part of its `Runtime`. An event that nobody subscribed to is not built:

    if Truncated in self._events:
        self._events.emit(Truncated(...))

A subscriber is called synchronously, within the node's operation: it must neither change the node nor raise. The event
log subscribes, and the simulator's coverage and checkers. Nothing in the product may depend on a subscriber: what one
part of a node needs from another is a call, not an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class Event:
    """Base class of all events. The annotations of a subclass are its fields, as in a frozen dataclass.

    It is none, because a dataclass compiles its methods when it is imported: that took every start of a node 25 ms."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        own, fields = self.__dict__, self._fields
        own.update(zip(fields, values, strict=False), **named)
        assert len(values) + len(named) == len(own), f"{type(self).__name__} has {fields}"
        assert len(own) == len(fields) or all(hasattr(self, name) for name in fields), own

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"an event does not change: {name}")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        named = zip(self._fields, self._values(), strict=True)
        fields = ", ".join(f"{name}={value!r}" for name, value in named)
        return f"{type(self).__name__}({fields})"


Subscriber = Callable[[Event], None]


class Events:
    """The events of one node."""

    __slots__ = ("_of_all", "_of_kind")

    def __init__(self) -> None:
        self._of_all: list[Subscriber] = []
        self._of_kind: dict[type[Event], list[Subscriber]] = {}

    def __contains__(self, kind: type[Event]) -> bool:
        """Whether anybody wants events of this kind."""
        return kind in self._of_kind or bool(self._of_all)

    def subscribe(self, subscriber: Subscriber, *kinds: type[Event]) -> None:
        """To these kinds of events, each named exactly; to all events if none is named."""
        for kind in kinds:
            self._of_kind.setdefault(kind, []).append(subscriber)
        if not kinds:
            self._of_all.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """From all that it subscribed to."""
        self._of_all = [each for each in self._of_all if each != subscriber]
        remaining = {
            kind: [each for each in subscribers if each != subscriber]
            for kind, subscribers in self._of_kind.items()
        }
        self._of_kind = {kind: some for kind, some in remaining.items() if some}

    def emit(self, event: Event) -> None:
        for subscriber in self._of_kind.get(type(event), ()):
            subscriber(event)
        for subscriber in self._of_all:
            subscriber(event)
