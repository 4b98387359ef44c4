"""What a plan is made from and what it says.

Four things are balanced between brokers, here called *goals*: the partitions that a broker leads, the replicas that it
has, the bytes on its disks, and the bytes per second that go in and out of the partitions that it leads. A broker is in
balance if each of them is within a tolerance of its share. Shares are equal, but for disks: a larger one takes more.

The same limits are used by the planner, by the lower bound and by the tests, so that they mean the same by "in balance".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import ceil, floor
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""

DISK_FULL = 0.9
"""No plan fills a disk beyond this part of it."""
ROUNDING = 1e-9


class Goal(Enum):
    """In the order of all tuples of loads."""

    LEADERS = "leaders"
    REPLICAS = "replicas"
    DISK = "disk"
    RATE = "bytes/s"


GOALS = tuple(Goal)


class Standing(Enum):
    MEMBER = "carries its share"
    LEAVING = "shall carry nothing"
    ABSENT = "does not answer: what it has stays as it is, and counts for nobody"


class BalancedBroker(NamedTuple):
    id: int
    rack: str | None = None
    disk_bytes: int | None = None
    """What logs may take: their bytes now and the free ones. None: unknown."""
    standing: Standing = Standing.MEMBER


class BalancedPartition(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    leader: int
    """-1: nobody leads."""
    size: int
    """Bytes of one replica on disk."""
    rate: float
    """Bytes per second, in and out of the leader."""
    factor: int | None = None
    """How many replicas it shall have. None: as many as now."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def wanted(self) -> int:
        return len(self.replicas) if self.factor is None else self.factor


class Tolerance(NamedTuple):
    """How far from its share a broker may be: by this part of the share, or by so much, whichever is more."""

    part: float = 0.1
    disk_bytes: int = 0
    rate: float = 0.0


class Loads(NamedTuple):
    """Of one broker, one figure for each goal."""

    leaders: float
    replicas: float
    disk: float
    rate: float


class AllowedRange(NamedTuple):
    low: float
    high: float


class Limits(NamedTuple):
    """What each member may carry."""

    shares: Mapping[int, Loads]
    ranges: Mapping[int, tuple[AllowedRange, ...]]
    """In the order of the goals."""

    def misses(self, loads: Mapping[int, Loads]) -> list[Miss]:
        """Where the loads are out of balance."""
        return [
            Miss(broker, goal, load, self.shares[broker][index])
            for broker, ranges in self.ranges.items()
            for index, (goal, load, range) in enumerate(
                zip(GOALS, loads[broker], ranges, strict=True)
            )
            if not range.low - ROUNDING <= load <= range.high + ROUNDING
        ]


class Miss(NamedTuple):
    """A broker that is out of balance."""

    broker: int
    goal: Goal
    load: float
    share: float


class PlannedChange(NamedTuple):
    """Of one partition."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    """The leader first."""
    leader_before: int
    size: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def bytes_moved(self) -> int:
        return self.size * len(self.added)

    @property
    def is_leadership_only(self) -> bool:
        return set(self.before) == set(self.after)


class BalancePlan(NamedTuple):
    changes: tuple[PlannedChange, ...]
    """Those that only move leadership first: they cost nothing."""
    limits: Limits
    before: Mapping[int, Loads]
    after: Mapping[int, Loads]
    bytes_bound: int
    """No plan that ends in balance moves fewer bytes."""

    @property
    def bytes_moved(self) -> int:
        return sum(change.bytes_moved for change in self.changes)

    @property
    def misses_before(self) -> list[Miss]:
        return self.limits.misses(self.before)

    @property
    def misses(self) -> list[Miss]:
        """What is out of balance afterwards: no better plan was found."""
        return self.limits.misses(self.after)


def loads_of(
    brokers: Iterable[BalancedBroker], partitions: Iterable[BalancedPartition]
) -> dict[int, Loads]:
    """Of each broker, as the partitions are now."""
    sums = {broker.id: [0, 0, 0, 0.0] for broker in brokers}
    for each in partitions:
        for id in each.replicas:
            if id in sums:
                sums[id][1] += 1
                sums[id][2] += each.size
        if each.leader in sums:
            sums[each.leader][0] += 1
            sums[each.leader][3] += each.rate
    return {id: Loads(*found) for id, found in sums.items()}


def limits_of(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    tolerance: Tolerance,
) -> Limits:
    """What members may carry once everything is where it shall be. What absent brokers have is left out."""
    members = sorted(each.id for each in brokers if each.standing is Standing.MEMBER)
    capacity = {each.id: each.disk_bytes for each in brokers}
    absent = {each.id for each in brokers if each.standing is Standing.ABSENT}
    leaders = replicas = disk = 0
    rate = 0.0
    for each in partitions:
        superfluous = max(0, len(each.replicas) - each.wanted)
        # What is superfluous is taken from absent brokers first.
        count = each.wanted - max(0, sum(id in absent for id in each.replicas) - superfluous)
        replicas += count
        disk += count * each.size
        if count > 0:
            leaders += 1
            rate += each.rate
    parts = _disk_parts(members, capacity)
    shares, ranges = {}, {}
    for id in members:
        equal = 1 / len(members)
        share = Loads(leaders * equal, replicas * equal, disk * parts[id], rate * equal)
        shares[id] = share
        full = capacity[id]
        ranges[id] = (
            _count_range(share.leaders, tolerance.part),
            _count_range(share.replicas, tolerance.part),
            _range(share.disk, max(share.disk * tolerance.part, tolerance.disk_bytes), full),
            _range(share.rate, max(share.rate * tolerance.part, tolerance.rate), None),
        )
    return Limits(shares, ranges)


def _disk_parts(members: Sequence[int], capacity: Mapping[int, int | None]) -> dict[int, float]:
    sizes = [capacity[id] for id in members]
    total = sum(size or 0 for size in sizes)
    if total and all(sizes):
        return {id: (capacity[id] or 0) / total for id in members}
    return {id: 1 / len(members) for id in members}


def _count_range(share: float, part: float) -> AllowedRange:
    """Whole numbers within the tolerance, and those next to the share: nobody leads half a partition."""
    lowest = min(floor(share + ROUNDING), ceil(share * (1 - part) - ROUNDING))
    highest = max(ceil(share - ROUNDING), floor(share * (1 + part) + ROUNDING))
    return AllowedRange(lowest, highest)


def _range(share: float, within: float, full: int | None) -> AllowedRange:
    high = share + within
    if full is not None:
        high = max(share - within, min(high, full * DISK_FULL))
    return AllowedRange(max(0.0, share - within), high)


def rack_limits(brokers: Iterable[BalancedBroker], factors: Iterable[int]) -> dict[int, int]:
    """How many replicas of a partition one rack may have, by the number of replicas: the fewest that are possible.
    Brokers without a rack are one rack. A rack whose brokers are down is still one: its replicas come back, and until
    then the others must not move together."""
    sizes: dict[str | None, int] = {}
    for broker in brokers:
        is_down = broker.standing is Standing.ABSENT and broker.rack is not None
        if broker.standing is Standing.MEMBER or is_down:
            sizes[broker.rack] = sizes.get(broker.rack, 0) + 1
    found = {}
    for factor in sorted(set(factors)):
        limit = 1
        while limit < factor and sum(min(limit, size) for size in sizes.values()) < factor:
            limit += 1
        found[factor] = limit
    return found
