"""Whom each broker takes for the leader of each partition, and when two of them lead or one follows a leader that is none.

The views come from the replicas themselves: each reports its role when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.events import Event
from ottla.events.replication import RoleChanged
from ottla.sim.cluster.nodes import SimNode
from ottla.wire.types import TopicPartition


class Period(NamedTuple):
    key: TopicPartition
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def seconds_before(self, moment: float) -> float:
        return max(0.0, min(self.ended, moment) - self.began)


class Periods:
    """When something was true of each partition."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._over: list[Period] = []

    def note(self, key: TopicPartition, is_true: bool, now: float) -> None:
        if not is_true:
            began = self._since.pop(key, None)
            if began is not None and now > began:
                self._over.append(Period(key, began, now))
        else:
            self._since.setdefault(key, now)

    def until(self, now: float) -> list[Period]:
        """All of them, the unfinished ones until now."""
        return self._over + [Period(key, began, now) for key, began in self._since.items()]


class LeaderViews:
    """Every broker has a replica of every partition."""

    def __init__(self, brokers: Iterable[int], clock: Callable[[], float]) -> None:
        self._clock = clock
        self.active = dict.fromkeys(brokers)
        """Brokers that run: not dead, not paused."""
        self._views: dict[TopicPartition, dict[int, int]] = {}
        """Partition → broker → its leader, who may be that broker itself."""
        self.unsettled: dict[TopicPartition, None] = {}
        """Partitions on whose leader the active brokers do not agree, or whose leader is not active."""
        self.settled_at = 0.0
        """When a partition was settled last."""
        self.forget_history()

    def forget_history(self) -> None:
        self.split = Periods()
        """Two active brokers both lead the partition."""
        self.wrong = Periods()
        """One leads it, and another follows somebody else."""

    def expect(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._views[key] = {}
            self.unsettled[key] = None

    @property
    def is_settled(self) -> bool:
        return not self.unsettled

    def leader(self, key: TopicPartition) -> int:
        """Whom all take for it."""
        assert key not in self.unsettled
        return self._views[key][next(iter(self.active))]

    def led_by(self, broker: int) -> list[TopicPartition]:
        return [key for key, views in self._views.items() if views.get(broker) == broker]

    def observe(self, node: SimNode, event: Event) -> None:
        if isinstance(event, RoleChanged) and event.partition in self._views:
            leader = None if event.role == "offline" else event.leader
            self.see(node.id, event.partition, leader)

    def see(self, broker: int, key: TopicPartition, leader: int | None) -> None:
        """A broker takes that one for the leader, or has no replica any more."""
        if leader is None:
            self._views[key].pop(broker, None)
        else:
            self._views[key][broker] = leader
        self._look(key)

    def died(self, broker: int) -> None:
        del self.active[broker]
        for key, views in self._views.items():
            views.pop(broker, None)
            self._look(key)

    def paused(self, broker: int) -> None:
        del self.active[broker]
        self._look_at_all()

    def resumed(self, broker: int) -> None:
        self.active[broker] = None
        self._look_at_all()

    def _look_at_all(self) -> None:
        for key in self._views:
            self._look(key)

    def _look(self, key: TopicPartition) -> None:
        views = {id: leader for id, leader in self._views[key].items() if id in self.active}
        leading = [id for id, leader in views.items() if id == leader]
        now = self._clock()
        self.split.note(key, len(leading) > 1, now)
        strays = any(leader not in leading for leader in views.values())
        self.wrong.note(key, bool(leading) and strays, now)
        if len(views) == len(self.active) and len(leading) == 1 and not strays:
            if key in self.unsettled:
                del self.unsettled[key]
                self.settled_at = now
        else:
            self.unsettled[key] = None
