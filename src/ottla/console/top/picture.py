"""What a screen is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.console.model.cluster_model import ClusterModel

K = TypeVar("K")
ORDERS_MAX = 20
"""Lists that are kept in order: those that were seen last."""


class Explained(NamedTuple):
    """The answer to what somebody wants explained; no text while it is being found out."""

    text: str | None = None


class Picture(NamedTuple):
    model: ClusterModel
    now_ms: int
    target: str
    """The brokers that we were told to ask."""
    explanations: Mapping[str, Explained] = {}
    """By what they are about: `partition:orders-0`, `group:billing`, `broker:2`."""
    note: str = ""
    """Something about this program itself that its user should know."""


class Size(NamedTuple):
    """Of a terminal."""

    columns: int
    rows: int


class Orders:
    """Lists in order, each kept until what it follows from has changed: to sort 15,000 rows takes longer than to draw a screen."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Hashable, list[Any]]] = {}

    def get(self, name: Hashable, since: Hashable, make: Callable[[], list[K]]) -> list[K]:
        """`since`: all that the list follows from."""
        kept = self._kept.pop(name, None)
        if kept is None or kept[0] != since:
            kept = (since, make())
        self._kept[name] = kept
        if len(self._kept) > ORDERS_MAX:
            del self._kept[next(iter(self._kept))]
        return kept[1]


class Scene(NamedTuple):
    """All that a screen and the keys need, but where somebody is."""

    picture: Picture
    size: Size
    orders: Orders
    cursor: bool = True
    """Whether there is one: on a terminal, not in a file."""
