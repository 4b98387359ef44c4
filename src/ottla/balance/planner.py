"""The plan: the fewest bytes found that bring every broker within the tolerance of its share.

1. What must move: replicas of brokers that leave, replicas that share a rack without need, replicas that are wanted or
   superfluous by another replication factor.
2. Leadership moves between brokers that have a replica already. That costs nothing, so it comes first.
3. Replicas move from brokers with too much, and to brokers with too little, in the order of what a byte gains.
4. Where no move helps any more, two replicas change places.
5. Moves without which the result is as good are taken back.

*Penalty* is what a broker is out of balance by: for each goal its distance from the allowed range, in shares. Every step
lowers the sum of all penalties, so the search ends. (Leadership may also move between equal sums if the leaders become
more even: so it gets to a broker with room by way of one that has none.) Nothing is drawn at random and all is sorted, so the
same cluster gets the same plan.

This is the inner loop of a plan for 100,000 partitions, so brokers and partitions are numbers here, and what belongs to
them is in lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from ottla.balance.bound import bytes_bound
from ottla.balance.model import (
    DISK_FULL,
    GOALS,
    AllowedRange,
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Limits,
    Loads,
    Place,
    PlannedChange,
    Standing,
    Tolerance,
    limits_of,
    loads_of,
    rack_limits,
)

NONE = -1
GAIN_MIN = 1e-9
"""Below this a gain is a rounding error."""
CHOICES = 3
"""Destinations that are weighed for one replica, of those that need it most."""
LOOKED_AT = 48
"""Brokers that are looked at for them."""
DONORS = 4
"""Brokers with too much from which one with too little takes."""
GOOD_ENOUGH = 0.9
"""A move is done that gains so much for its bytes, in parts of what the next one may gain."""
ROUNDS = 6
WORTHWHILE = 0.98
"""Another round needs so much less to be out of balance."""
PARTNERS = 4
"""Brokers with too little and with too much that are looked at for a swap."""
SWAPPED = 60
"""Replicas of a broker that are looked at for a swap."""
SWAPS_WEIGHED = 1_000_000


class Impossible(Exception):
    """There is no plan: more replicas are wanted than there are brokers, or than their disks have room for."""


class _Option(NamedTuple):
    """A replica of a partition moves from one broker to another, which leads the partition afterwards or does not."""

    gain: float
    partition: int
    source: int
    target: int
    leader: int


def plan(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    tolerance: Tolerance = Tolerance(),  # noqa: B008
) -> BalancePlan:
    """Brokers that partitions name and that are not given count as absent. Impossible if there are too few members."""
    brokers, partitions = _complete(brokers, partitions)
    limits = limits_of(brokers, partitions, tolerance)
    search = _Search(brokers, partitions, limits.ranges, limits.shares)
    search.run()
    return _found(brokers, partitions, limits, search, search.changes())


def evacuation(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    tolerance: Tolerance = Tolerance(),  # noqa: B008
) -> BalancePlan:
    """Only what brokers that leave have goes elsewhere, each to where it does least harm. Nothing else moves, so no plan
    needs fewer bytes. Impossible if there are too few members."""
    brokers, partitions = _complete(brokers, partitions)
    limits = limits_of(brokers, partitions, tolerance)
    search = _Search(brokers, partitions, limits.ranges, limits.shares)
    touched = search.evacuate()
    changes = [change for change in search.changes() if change.place in touched]
    return _found(brokers, partitions, limits, search, changes)


def _complete(
    brokers: Sequence[BalancedBroker], partitions: Sequence[BalancedPartition]
) -> tuple[list[BalancedBroker], list[BalancedPartition]]:
    known = {broker.id for broker in brokers}
    unknown = {id for each in partitions for id in each.replicas if id not in known}
    brokers = sorted(
        [*brokers, *(BalancedBroker(id, standing=Standing.ABSENT) for id in unknown)],
        key=lambda broker: broker.id,
    )
    partitions = sorted(partitions)
    members = sum(broker.standing is Standing.MEMBER for broker in brokers)
    most = max((each.wanted for each in partitions), default=0)
    if partitions and not members:
        raise Impossible("no broker is left to carry anything")
    if most > members + sum(broker.standing is Standing.ABSENT for broker in brokers):
        raise Impossible(f"{most} replicas are wanted, but there are {members} brokers for them")
    return brokers, partitions


def _found(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    limits: Limits,
    search: _Search,
    changes: Iterable[PlannedChange],
) -> BalancePlan:
    return BalancePlan(
        tuple(sorted(changes, key=lambda change: not change.is_leadership_only)),
        limits,
        loads_of(brokers, partitions),
        search.loads(),
        bytes_bound(brokers, partitions, limits),
    )


def foreseen(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    targets: Mapping[Place, Sequence[int]],
    tolerance: Tolerance,
) -> BalancePlan:
    """What somebody else's assignment would lead to."""
    limits = limits_of(brokers, partitions, tolerance)
    moved = [
        each._replace(replicas=tuple(wanted), leader=wanted[0])
        if (wanted := targets.get(each.place))
        else each
        for each in partitions
    ]
    changes = [
        PlannedChange(
            each.topic, each.partition, each.replicas, after.replicas, each.leader, each.size
        )
        for each, after in zip(partitions, moved, strict=True)
        if after.replicas != each.replicas
    ]
    changes.sort(key=lambda change: (not change.is_leadership_only, change.place))
    return BalancePlan(
        tuple(changes),
        limits,
        loads_of(brokers, partitions),
        loads_of(brokers, moved),
        bytes_bound(brokers, partitions, limits),
    )


class _Search:
    def __init__(
        self,
        brokers: Sequence[BalancedBroker],
        partitions: Sequence[BalancedPartition],
        ranges: Mapping[int, tuple[AllowedRange, ...]],
        shares: Mapping[int, Loads],
    ) -> None:
        self._given = partitions
        self._ids = [broker.id for broker in brokers]
        number = {id: index for index, id in enumerate(self._ids)}
        self._member = [broker.standing is Standing.MEMBER for broker in brokers]
        self._absent = [broker.standing is Standing.ABSENT for broker in brokers]
        self._members = [index for index, is_member in enumerate(self._member) if is_member]
        racks = {rack: at for at, rack in enumerate(dict.fromkeys(each.rack for each in brokers))}
        self._rack = [racks[broker.rack] for broker in brokers]
        most = rack_limits(brokers, (each.wanted for each in partitions))
        self._rack_most = [most[each.wanted] for each in partitions]
        self._has_racks = len(racks) > 1
        self._full = [
            inf if each.disk_bytes is None else each.disk_bytes * DISK_FULL for each in brokers
        ]
        self._set_limits(brokers, ranges, shares)

        count = len(brokers)
        self._leaders, self._replicas, self._disk = [0] * count, [0] * count, [0] * count
        self._rate = [0.0] * count
        self._size = [each.size for each in partitions]
        self._traffic = [each.rate for each in partitions]
        self._origin = [tuple(number[id] for id in each.replicas) for each in partitions]
        self._at = [list(replicas) for replicas in self._origin]
        self._lead = [
            self._first_leader(replicas, number.get(each.leader, NONE))
            for replicas, each in zip(self._origin, partitions, strict=True)
        ]
        self._on: list[dict[int, None]] = [{} for _ in brokers]
        self._led: list[dict[int, None]] = [{} for _ in brokers]
        for p, replicas in enumerate(self._at):
            for b in replicas:
                self._on[b][p] = None
                self._replicas[b] += 1
                self._disk[b] += self._size[p]
            if (leader := self._lead[p]) != NONE:
                self._led[leader][p] = None
                self._leaders[leader] += 1
                self._rate[leader] += self._traffic[p]
        self._penalty = [self._penalty_of(b, 0, 0, 0, 0.0) for b in range(count)]
        self._needy: list[int] = []
        self._sort_needy()

    def _set_limits(
        self,
        brokers: Sequence[BalancedBroker],
        ranges: Mapping[int, tuple[AllowedRange, ...]],
        shares: Mapping[int, Loads],
    ) -> None:
        """Each goal has a list of lows, of highs, of shares, and the weight of one unit: the reciprocal of a share."""
        nothing = (AllowedRange(0.0, 0.0),) * len(GOALS)
        anything = (AllowedRange(-inf, inf),) * len(GOALS)
        of = {Standing.LEAVING: nothing, Standing.ABSENT: anything}
        found = [of.get(each.standing) or ranges[each.id] for each in brokers]
        lows = [[each[goal].low for each in found] for goal in range(len(GOALS))]
        highs = [[each[goal].high for each in found] for goal in range(len(GOALS))]
        self._low_leaders, self._low_replicas, self._low_disk, self._low_rate = lows
        self._high_leaders, self._high_replicas, self._high_disk, self._high_rate = highs
        means = [
            sum(each[goal] for each in shares.values()) / max(1, len(shares))
            for goal in range(len(GOALS))
        ]
        weights = [1 / mean if mean > 0 else 0.0 for mean in means]
        self._w_leaders, self._w_replicas, self._w_disk, self._w_rate = weights
        self._mean_leaders, self._mean_replicas, _, self._mean_rate = means
        zero = Loads(0, 0, 0, 0)
        self._share_disk = [shares.get(each.id, zero).disk for each in brokers]

    def _first_leader(self, replicas: Sequence[int], leader: int) -> int:
        """The preferred one, since leadership is given back to it; else whoever leads now, or could."""
        for b in (*replicas[:1], leader, *replicas):
            if b != NONE and self._member[b]:
                return b
        return NONE if leader == NONE or self._absent[leader] else leader

    # Loads

    def _penalty_of(self, b: int, leaders: int, replicas: int, disk: int, rate: float) -> float:
        """With so much more of each."""
        total = 0.0
        load: float = self._leaders[b] + leaders
        if load > self._high_leaders[b]:
            total = (load - self._high_leaders[b]) * self._w_leaders
        elif load < self._low_leaders[b]:
            total = (self._low_leaders[b] - load) * self._w_leaders
        load = self._replicas[b] + replicas
        if load > self._high_replicas[b]:
            total += (load - self._high_replicas[b]) * self._w_replicas
        elif load < self._low_replicas[b]:
            total += (self._low_replicas[b] - load) * self._w_replicas
        load = self._disk[b] + disk
        if load > self._high_disk[b]:
            total += (load - self._high_disk[b]) * self._w_disk
        elif load < self._low_disk[b]:
            total += (self._low_disk[b] - load) * self._w_disk
        load = self._rate[b] + rate
        if load > self._high_rate[b]:
            total += (load - self._high_rate[b]) * self._w_rate
        elif load < self._low_rate[b]:
            total += (self._low_rate[b] - load) * self._w_rate
        return total

    def _has_too_much(self, b: int) -> bool:
        return (
            self._leaders[b] > self._high_leaders[b]
            or self._replicas[b] > self._high_replicas[b]
            or self._disk[b] > self._high_disk[b] + GAIN_MIN
            or self._rate[b] > self._high_rate[b] + GAIN_MIN
        )

    def _leads_too_much(self, b: int) -> bool:
        return (
            self._leaders[b] > self._high_leaders[b]
            or self._rate[b] > self._high_rate[b] + GAIN_MIN
        )

    def _leads_too_little(self, b: int) -> bool:
        return (
            self._leaders[b] < self._low_leaders[b] or self._rate[b] < self._low_rate[b] - GAIN_MIN
        )

    def _need(self, b: int) -> float:
        """How much is missing to the shares, all goals together."""
        return (
            (self._mean_leaders - self._leaders[b]) * self._w_leaders
            + (self._mean_replicas - self._replicas[b]) * self._w_replicas
            + (self._share_disk[b] - self._disk[b]) * self._w_disk
            + (self._mean_rate - self._rate[b]) * self._w_rate
        )

    def _sort_needy(self) -> None:
        self._needy = sorted(self._members, key=lambda b: (-self._need(b), b))

    def _lead_by(self, p: int, leader: int) -> None:
        before = self._lead[p]
        if before == leader:
            return
        rate = self._traffic[p]
        for b, sign in ((before, -1), (leader, 1)):
            if b != NONE:
                self._leaders[b] += sign
                self._rate[b] += sign * rate
                self._penalty[b] = self._penalty_of(b, 0, 0, 0, 0.0)
        if before != NONE:
            del self._led[before][p]
        if leader != NONE:
            self._led[leader][p] = None
        self._lead[p] = leader

    def _hold(self, p: int, b: int, sign: int) -> None:
        if sign > 0:
            self._on[b][p] = None
            self._at[p].append(b)
        else:
            del self._on[b][p]
            self._at[p].remove(b)
        self._replicas[b] += sign
        self._disk[b] += sign * self._size[p]
        self._penalty[b] = self._penalty_of(b, 0, 0, 0, 0.0)

    def _apply(self, option: _Option) -> None:
        self._hold(option.partition, option.target, 1)
        self._lead_by(option.partition, option.leader)
        self._hold(option.partition, option.source, -1)

    # The search

    def run(self) -> None:
        self._do_what_must_be()
        self._spread_leaders()
        before = inf
        for _ in range(ROUNDS):
            left = sum(self._penalty[b] for b in self._members)
            if left <= GAIN_MIN or left >= WORTHWHILE * before:
                break
            before = left
            self._move_replicas()
            self._spread_leaders()
        self._swap_replicas()
        self._spread_leaders()
        self._take_back()
        self._spread_leaders()

    def evacuate(self) -> set[Place]:
        """Partitions of which brokers that leave have a replica. All others stay as they are."""
        tasks = [p for p, replicas in enumerate(self._at) if any(map(self._is_leaving, replicas))]
        tasks.sort(key=lambda p: (-self._size[p], p))
        for done, p in enumerate(tasks):
            if done % 64 == 0:
                self._sort_needy()
            for b in list(self._at[p]):
                if self._is_leaving(b):
                    self._replace(p, b)
            if self._is_leaving(self._origin[p][0]):
                self._lead_well(p)
        return {self._given[p].place for p in tasks}

    def _lead_well(self, p: int) -> None:
        """By the replica for which it is least of a burden."""
        rate = self._traffic[p]
        self._lead_by(p, NONE)
        members = [b for b in self._at[p] if self._member[b]]
        self._lead_by(
            p,
            min(
                members,
                key=lambda b: (
                    self._penalty_of(b, 1, 0, 0, rate) - self._penalty[b],
                    self._leaders[b],
                ),
                default=NONE,
            ),
        )

    # What must be

    def _is_leaving(self, b: int) -> bool:
        return not self._member[b] and not self._absent[b]

    def _do_what_must_be(self) -> None:
        tasks = sorted(self._tasks(), key=lambda p: (-self._size[p], p))
        for done, p in enumerate(tasks):
            if done % 64 == 0:
                self._sort_needy()
            self._mend(p)
        self._sort_needy()

    def _tasks(self) -> Iterator[int]:
        for p, each in enumerate(self._given):
            replicas = self._at[p]
            if (
                each.wanted != len(replicas)
                or any(map(self._is_leaving, replicas))
                or (self._has_racks and self._crowded(p) != NONE)
            ):
                yield p

    def _mend(self, p: int) -> None:
        wanted = self._given[p].wanted
        while len(self._at[p]) > wanted:
            self._drop(p)
        while len(self._at[p]) < wanted:
            target = self._best_target(p, NONE)
            self._hold(p, target, 1)
            if self._lead[p] == NONE:
                self._lead_by(p, target)
        for b in list(self._at[p]):
            if self._is_leaving(b):
                self._replace(p, b)
        while self._has_racks and (crowded := self._crowded(p)) != NONE:
            if not self._replace(p, crowded):
                break

    def _drop(self, p: int) -> None:
        """A replica that is wanted no more: one of an absent or leaving broker, one too many of its rack, else where it
        relieves most; the leader last."""
        counts = self._racks_of(p)
        size = self._size[p]

        def order(b: int) -> tuple[int, int, int, float, int]:
            relief = self._penalty[b] - self._penalty_of(b, 0, -1, -size, 0.0)
            is_leader = self._lead[p] == b
            return (
                -2 if self._absent[b] else -1 if not self._member[b] else 0,
                int(is_leader),
                -counts[self._rack[b]],
                -relief,
                -b,
            )

        b = min(self._at[p], key=order)
        if self._lead[p] == b:
            others = [other for other in self._at[p] if other != b and self._member[other]]
            self._lead_by(p, others[0] if others else NONE)
        self._hold(p, b, -1)

    def _replace(self, p: int, source: int) -> bool:
        """False if no broker is better."""
        if self._member[source] and not self._has_room_for(p):
            return False
        target = self._best_target(p, source)
        if self._member[source]:
            counts = self._racks_of(p)
            if counts.get(self._rack[target], 0) + 1 >= counts[self._rack[source]]:
                return False
        leader = target if self._lead[p] in (source, NONE) else self._lead[p]
        self._apply(_Option(0.0, p, source, target, leader))
        return True

    def _best_target(self, p: int, source: int) -> int:
        """Who takes a replica with the least harm, for which the racks are as good as they can be."""
        counts = self._racks_of(p)
        found = list(self._targets(p, source, 4 * CHOICES, LOOKED_AT * 4))
        if self._has_racks and source != NONE and counts[self._rack[source]] == 1:
            # Its rack would be gone: one in the same rack, or in one that has nothing yet.
            kept = {rack for rack in counts if rack != self._rack[source]}
            same = [b for b in self._needy if self._takes(b, p) and self._rack[b] not in kept]
            found = same[: 4 * CHOICES] or found
        if not found:
            free = [b for b in self._needy if self._takes(b, p)]
            if not free:
                given = self._given[p]
                why = "there is no broker for all its replicas"
                if any(b not in self._at[p] for b in self._needy):
                    why = f"no disk has room for another replica (none is filled beyond {DISK_FULL:.0%})"
                raise Impossible(f"{given.topic}-{given.partition}: {why}")
            fewest = min(counts.get(self._rack[b], 0) for b in free)
            found = [b for b in free if counts.get(self._rack[b], 0) == fewest][: 4 * CHOICES]
        size = self._size[p]
        leads = source != NONE and self._lead[p] == source
        rate = self._traffic[p] if leads else 0.0
        return min(
            found,
            key=lambda b: self._penalty_of(b, int(leads), 1, size, rate) - self._penalty[b],
        )

    def _has_room_for(self, p: int) -> bool:
        return any(self._takes(b, p) for b in self._members)

    def _takes(self, b: int, p: int) -> bool:
        """Whether it has no replica of the partition, and its disk has room for one."""
        size = self._size[p]
        return b not in self._at[p] and (size == 0 or self._disk[b] + size <= self._full[b])

    def _racks_of(self, p: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for b in self._at[p]:
            counts[self._rack[b]] = counts.get(self._rack[b], 0) + 1
        return counts

    def _crowded(self, p: int) -> int:
        """A replica that shares its rack without need, and may move: not the leader if there is another."""
        most = self._rack_most[p]
        counts = self._racks_of(p)
        found = [b for b in self._at[p] if counts[self._rack[b]] > most and not self._absent[b]]
        if not found:
            return NONE
        return max(found, key=lambda b: (self._lead[p] != b, -self._need(b), b))

    def _targets(self, p: int, source: int, choices: int, looked_at: int) -> Iterator[int]:
        """Brokers to which a replica could go, those that need it most first."""
        at = self._at[p]
        blocked: set[int] = set()
        if self._has_racks:
            most = self._rack_most[p]
            counts = self._racks_of(p)
            if source != NONE:
                counts[self._rack[source]] -= 1
            blocked = {rack for rack, count in counts.items() if count >= most}
        rack, disk, full, size = self._rack, self._disk, self._full, self._size[p]
        for b in self._needy[:looked_at]:
            if b not in at and rack[b] not in blocked and (size == 0 or disk[b] + size <= full[b]):
                yield b
                choices -= 1
                if choices == 0:
                    return

    # Leaders

    def _evenness(self, b: int, leaders: int, rate: float) -> float:
        return ((self._leaders[b] + leaders - self._mean_leaders) * self._w_leaders) ** 2 + (
            (self._rate[b] + rate - self._mean_rate) * self._w_rate
        ) ** 2

    def _lead_gain(self, p: int, to: int) -> float:
        """What it gains if another replica leads; 0 if it is worse."""
        b = self._lead[p]
        rate = self._traffic[p]
        gain = (
            self._penalty[b]
            + self._penalty[to]
            - self._penalty_of(b, -1, 0, 0, -rate)
            - self._penalty_of(to, 1, 0, 0, rate)
        )
        if gain < -GAIN_MIN:
            return 0.0
        evener = (
            self._evenness(b, 0, 0.0)
            + self._evenness(to, 0, 0.0)
            - self._evenness(b, -1, -rate)
            - self._evenness(to, 1, rate)
        )
        # A step that only makes leaders more even must not undo one that lowered penalties, nor go in circles.
        return gain + 1e-3 * evener if gain > GAIN_MIN or evener > GAIN_MIN else 0.0

    def _spread_leaders(self) -> None:
        out = [b for b in range(len(self._ids)) if not self._absent[b]]
        work = deque(b for b in out if self._leads_too_much(b) or self._leads_too_little(b))
        waiting = set(work)
        budget = 20 * len(self._given) + 1000
        while work and budget > 0:
            b = work.popleft()
            waiting.discard(b)
            for other in self._relieve_leader(b):
                budget -= 1
                if other not in waiting and self._penalty[other] > GAIN_MIN:
                    waiting.add(other)
                    work.append(other)

    def _relieve_leader(self, b: int) -> Iterator[int]:
        """Whose leaderships changed."""
        if self._leads_too_much(b):
            moves = [
                (-gain, p, to)
                for p in self._led[b]
                for to in self._at[p]
                if to != b and self._member[to] and (gain := self._lead_gain(p, to)) > GAIN_MIN
            ]
            go_on = self._leads_too_much
        else:
            moves = [
                (-gain, p, b)
                for p in self._on[b]
                if self._lead[p] not in (b, NONE) and (gain := self._lead_gain(p, b)) > GAIN_MIN
            ]
            go_on = self._leads_too_little
        moves.sort()
        for _, p, to in moves:
            if not go_on(b):
                return
            before = self._lead[p]
            if before in (to, NONE) or self._lead_gain(p, to) <= GAIN_MIN:
                continue
            self._lead_by(p, to)
            yield before
            yield to

    # Replicas

    def _move_replicas(self) -> None:
        out = sorted(
            (b for b in self._members if self._penalty[b] > GAIN_MIN),
            key=lambda b: (-self._penalty[b], b),
        )
        for b in out:
            self._sort_needy()
            if self._has_too_much(b):
                self._greedily(b, [(p, b) for p in self._on[b]], self._one_from, self._best_from)
            if self._penalty[b] > GAIN_MIN:
                self._sort_needy()
                donors = [d for d in reversed(self._needy) if d != b][:DONORS]
                held = self._on[b]
                offers = [(p, d) for d in donors for p in self._on[d] if p not in held]
                to_b = partial(self._best_to, b)
                self._greedily(b, offers, to_b, to_b)

    def _greedily(
        self,
        b: int,
        moves: Iterable[tuple[int, int]],
        quick: Callable[[int, int], _Option | None],
        best: Callable[[int, int], _Option | None],
    ) -> None:
        """Move replicas (partition and source) while that helps broker `b`, what gains most for its bytes first. What
        others gain changes with each move, so each is weighed again before it is done; before that quickly."""
        heap = []
        for p, source in moves:
            if (option := quick(p, source)) is not None:
                heap.append((-option.gain / (self._size[p] + 1), -option.gain, p, source))
        heapify(heap)
        while heap and self._penalty[b] > GAIN_MIN:
            _, _, p, source = heappop(heap)
            if source not in self._at[p]:
                continue
            option = best(p, source)
            if option is None:
                continue
            entry = (-option.gain / (self._size[p] + 1), -option.gain, p, source)
            if heap and entry[0] > GOOD_ENOUGH * heap[0][0]:
                heappush(heap, entry)
            else:
                self._apply(option)

    def _one_from(self, p: int, source: int) -> _Option | None:
        for target in self._targets(p, source, 1, LOOKED_AT):
            return self._best_to(target, p, source, checked=True)
        return None

    def _best_from(self, p: int, source: int) -> _Option | None:
        found: _Option | None = None
        for target in self._targets(p, source, CHOICES, LOOKED_AT):
            option = self._best_to(target, p, source, checked=True)
            if option is not None and (found is None or option.gain > found.gain):
                found = option
        return found

    def _best_to(
        self, target: int, p: int, source: int, *, checked: bool = False
    ) -> _Option | None:
        """The best way to move a replica there, as to who leads; None if none lowers the penalties."""
        if not checked and not self._may_go(p, source, target):
            return None
        size, rate, leader = self._size[p], self._traffic[p], self._lead[p]
        penalty, of = self._penalty, self._penalty_of
        before = penalty[source] + penalty[target]
        best, best_leader = GAIN_MIN, NONE
        taken, followed = of(target, 1, 1, size, rate), of(target, 0, 1, size, 0.0)
        if not checked and min(taken, followed) >= penalty[target]:
            return None  # it is of no use to the one that asks for it
        if leader == source:
            gone = of(source, -1, -1, -size, -rate)
            if (gain := before - gone - taken) > best:
                best, best_leader = gain, target
            follows = before - gone - followed
            for other in self._at[p]:
                if other != source and self._member[other]:
                    gain = follows + penalty[other] - of(other, 1, 0, 0, rate)
                    if gain > best:
                        best, best_leader = gain, other
        else:
            gone = of(source, 0, -1, -size, 0.0)
            if (gain := before - gone - followed) > best:
                best, best_leader = gain, leader
            if leader != NONE:
                gain = before + penalty[leader] - gone - taken - of(leader, -1, 0, 0, -rate)
                if gain > best:
                    best, best_leader = gain, target
        return None if best <= GAIN_MIN else _Option(best, p, source, target, best_leader)

    def _may_go(self, p: int, source: int, target: int) -> bool:
        at, rack = self._at[p], self._rack
        if source not in at or self._absent[source] or not self._takes(target, p):
            return False
        if not self._has_racks or rack[source] == rack[target]:
            return True
        most = self._rack_most[p]
        for b in at:
            if rack[b] == rack[target]:
                most -= 1
        return most > 0

    # Swaps

    def _swap_replicas(self) -> None:
        """Where no single move helps, a larger replica for a smaller one may: the numbers of replicas stay."""
        budget = SWAPS_WEIGHED
        again = True
        while again and budget > 0:
            again = False
            for b in self._members:
                while self._penalty[b] > GAIN_MIN and budget > 0:
                    best, weighed = self._best_swap(b)
                    budget -= weighed
                    if best is None:
                        break
                    for option in best:
                        self._apply(option)
                    again = True

    def _best_swap(self, b: int) -> tuple[tuple[_Option, _Option] | None, int]:
        """Two moves, of what gains most for its bytes; and how many were weighed."""
        self._sort_needy()
        others = [c for c in self._needy if c != b]
        others = [*others[:PARTNERS], *others[PARTNERS:][-PARTNERS:]]
        best: tuple[float, int, int, int] | None = None
        weighed = 1
        of, lead = self._penalty_of, self._lead
        mine = self._some_of(b)
        for c in others:
            before = self._penalty[b] + self._penalty[c]
            theirs = [q for q in self._some_of(c) if self._may_go(q, c, b)]
            for p in mine:
                if not self._may_go(p, b, c):
                    continue
                lp = int(lead[p] == b)
                for q in theirs:
                    weighed += 1
                    lq = int(lead[q] == c)
                    leaders = lq - lp
                    size = self._size[q] - self._size[p]
                    rate = lq * self._traffic[q] - lp * self._traffic[p]
                    gain = before - of(b, leaders, 0, size, rate) - of(c, -leaders, 0, -size, -rate)
                    if gain > GAIN_MIN:
                        price = self._size[p] + self._size[q] + 1
                        if best is None or gain / price > best[0]:
                            best = gain / price, p, q, c
        if best is None:
            return None, weighed
        _, p, q, c = best
        there = _Option(0.0, p, b, c, c if lead[p] == b else lead[p])
        back = _Option(0.0, q, c, b, b if lead[q] == c else lead[q])
        return (there, back), weighed

    def _some_of(self, b: int) -> list[int]:
        """Replicas of all sizes."""
        found = sorted(self._on[b], key=lambda p: (self._size[p], p))
        step = max(1, len(found) // SWAPPED)
        return found[::step]

    # Back

    def _take_back(self) -> None:
        moved = [
            p for p, origin in enumerate(self._origin) if any(b not in origin for b in self._at[p])
        ]
        moved.sort(key=lambda p: (-self._size[p], p))
        for p in moved:
            for new in [b for b in self._at[p] if b not in self._origin[p]]:
                for old in self._origin[p]:
                    if (
                        self._member[old]
                        and self._may_go(p, new, old)
                        and self._is_free(p, new, old)
                    ):
                        break

    def _is_free(self, p: int, new: int, old: int) -> bool:
        """Undo a move if nothing becomes worse by it."""
        size, rate = self._size[p], self._traffic[p]
        leads = self._lead[p] == new
        lead, traffic = (1, rate) if leads else (0, 0.0)
        before = self._penalty[new] + self._penalty[old]
        after = self._penalty_of(new, -lead, -1, -size, -traffic) + self._penalty_of(
            old, lead, 1, size, traffic
        )
        if after > before + GAIN_MIN:
            return False
        self._apply(_Option(0.0, p, new, old, old if leads else self._lead[p]))
        return True

    # The result

    def loads(self) -> dict[int, Loads]:
        return {
            id: Loads(self._leaders[b], self._replicas[b], self._disk[b], self._rate[b])
            for b, id in enumerate(self._ids)
        }

    def changes(self) -> Iterator[PlannedChange]:
        for p, each in enumerate(self._given):
            origin, now, leader = self._origin[p], self._at[p], self._lead[p]
            stayed = [b for b in origin if b in now]
            order = [*stayed, *sorted(b for b in now if b not in origin)]
            if leader != NONE:
                order.remove(leader)
                order.insert(0, leader)
            after = tuple(self._ids[b] for b in order)
            is_led = leader == NONE or each.leader == after[0]
            if after != each.replicas or not is_led:
                yield PlannedChange(
                    each.topic, each.partition, each.replicas, after, each.leader, each.size
                )
