"""How many bytes every plan must move that ends in balance: beside a plan's own bytes it says how good the plan is.

It is a true bound, not the best one. Bytes that arrive at one broker and bytes that arrive at another are different
bytes, so what each broker must get at least, by the goal that asks the most of it, can be added up. The same holds for
what must leave each broker. With the numbers of replicas known, bytes that arrive and bytes that leave are two ways to
count the same moves.

How little can arrive at a broker so that a goal is met is a knapsack. Here a part of a partition may arrive, which makes
it easy and the bound lower: first comes what gives most for its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil

from ottla.balance.model import (
    BalancedBroker,
    BalancedPartition,
    Limits,
    Standing,
    rack_limits,
)


def bytes_bound(
    brokers: Sequence[BalancedBroker], partitions: Sequence[BalancedPartition], limits: Limits
) -> int:
    here: dict[int, list[BalancedPartition]] = {broker.id: [] for broker in brokers}
    for each in partitions:
        for id in each.replicas:
            if id in here:
                here[id].append(each)
    cheap = _Cheap(partitions)
    standing = {broker.id: broker.standing for broker in brokers}
    arriving = sum(_arriving(id, here[id], limits, cheap) for id in sorted(limits.ranges))
    leaving = sum(_leaving(id, here[id], limits, standing) for id in sorted(here))
    added = sum(max(0, each.wanted - len(each.replicas)) * each.size for each in partitions)
    dropped = sum(max(0, len(each.replicas) - each.wanted) * each.size for each in partitions)
    by_rack = _crowded(brokers, partitions)
    # Bytes are whole. A sum of floats may be a little above the true one.
    return ceil(max(arriving, leaving + added - dropped, added, by_rack, 0) * (1 - 1e-9))


class _Cheap:
    """Partitions by what one byte of theirs gives: of replicas and leaders, or of traffic."""

    def __init__(self, partitions: Sequence[BalancedPartition]) -> None:
        self.of_counts = sorted(partitions, key=lambda each: each.size)
        self.of_rates = sorted(
            (each for each in partitions if each.rate > 0), key=lambda each: each.size / each.rate
        )


def _arriving(id: int, here: Collection[BalancedPartition], limits: Limits, cheap: _Cheap) -> float:
    """Bytes that must come to this broker."""
    leaders, replicas, disk, rate = limits.ranges[id]
    count = len(here)
    missing = max(replicas.low, leaders.low) - count
    held = sum(each.rate for each in here)
    return max(
        0.0,
        disk.low - sum(each.size for each in here),
        _fewest(id, cheap.of_counts, missing) if missing > 0 else 0.0,
        _fewest_for_rate(id, cheap.of_rates, rate.low - held) if rate.low > held else 0.0,
    )


def _fewest(id: int, by_size: Iterable[BalancedPartition], count: float) -> float:
    """Bytes of so many partitions that are not here."""
    total = 0.0
    for each in by_size:
        if count <= 0:
            break
        if id not in each.replicas:
            total += each.size
            count -= 1
    return total


def _fewest_for_rate(
    id: int, by_price: Iterable[BalancedPartition], rate: float, *, here: bool = False
) -> float:
    """Bytes of partitions that are not here (or are here), with so much traffic."""
    total = 0.0
    for each in by_price:
        if rate <= 0:
            break
        if (id in each.replicas) is here:
            total += each.size * min(1.0, rate / each.rate)
            rate -= each.rate
    return total


def _leaving(
    id: int,
    here: Sequence[BalancedPartition],
    limits: Limits,
    standing: Mapping[int, Standing],
) -> float:
    """Bytes that must go from this broker."""
    if standing[id] is Standing.ABSENT:
        return 0.0
    if standing[id] is Standing.LEAVING:
        return float(sum(each.size for each in here))
    leaders, replicas, disk, rate = limits.ranges[id]
    alone = [each for each in here if not _others(id, each, standing)]
    by_size = sorted(each.size for each in here)
    too_many = int(len(here) - replicas.high)
    led_too_many = int(len(alone) - leaders.high)
    too_hot = sum(each.rate for each in alone) - rate.high
    by_price = sorted(
        (each for each in alone if each.rate > 0), key=lambda each: each.size / each.rate
    )
    return max(
        0.0,
        sum(by_size) - disk.high,
        float(sum(by_size[: max(0, too_many)])),
        float(sum(sorted(each.size for each in alone)[: max(0, led_too_many)])),
        _fewest_for_rate(id, by_price, too_hot, here=True) if too_hot > 0 else 0.0,
    )


def _others(id: int, each: BalancedPartition, standing: Mapping[int, Standing]) -> bool:
    """Whether another broker could lead it without a move, or will have to get it in any case."""
    return each.wanted > len(each.replicas) or any(
        other != id and standing.get(other) is not Standing.ABSENT for other in each.replicas
    )


def _crowded(brokers: Sequence[BalancedBroker], partitions: Sequence[BalancedPartition]) -> float:
    """Bytes of replicas that share a rack without need."""
    racks = {broker.id: broker.rack for broker in brokers}
    fixed = {broker.id for broker in brokers if broker.standing is Standing.ABSENT}
    most = rack_limits(brokers, (each.wanted for each in partitions))
    if len(set(racks.values())) < 2:
        return 0.0
    total = 0
    for each in partitions:
        if each.wanted < len(each.replicas):
            continue  # the superfluous ones may be those that are dropped
        counts: dict[str | None, int] = {}
        movable: dict[str | None, int] = {}
        for id in each.replicas:
            if id in racks:
                counts[racks[id]] = counts.get(racks[id], 0) + 1
                movable[racks[id]] = movable.get(racks[id], 0) + (id not in fixed)
        over = (
            min(count - most[each.wanted], movable[rack])
            for rack, count in counts.items()
            if count > most[each.wanted]
        )
        total += sum(over) * each.size
    return float(total)
