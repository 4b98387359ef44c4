"""What follows from a broker's departure: who takes its replicas, and why that may be impossible.

A departure keeps the number of replicas and the racks of every partition. Where that cannot be, it says so before anything
is moved. Nothing here asks a cluster: what is known of it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.balance.model import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Place,
    Standing,
    Tolerance,
)
from ottla.balance.planner import evacuation, foreseen


class TooFew(NamedTuple):
    """Partitions that no broker is left for, and the largest number of brokers that one of them needs."""

    places: tuple[Place, ...]
    needed: int
    left: tuple[int, ...]
    """Brokers that can take replicas."""


def leaving(brokers: Sequence[BalancedBroker], id: int) -> list[BalancedBroker]:
    """Also a broker that is not registered any more, and still has its places."""
    others = [each for each in brokers if each.id != id]
    (old,) = [each for each in brokers if each.id == id] or [BalancedBroker(id)]
    return [*others, old._replace(standing=Standing.LEAVING)]


def too_few(
    brokers: Iterable[BalancedBroker], partitions: Iterable[BalancedPartition], id: int
) -> TooFew | None:
    """Why a broker cannot leave without fewer replicas; None if it can."""
    members = {each.id for each in brokers if each.standing is Standing.MEMBER and each.id != id}
    stuck = [
        each for each in partitions if id in each.replicas and members <= set(each.replicas) - {id}
    ]
    if not stuck:
        return None
    needed = max(len(each.replicas) for each in stuck)
    return TooFew(tuple(each.place for each in stuck), needed, tuple(sorted(members)))


def crowded(brokers: Iterable[BalancedBroker], plan: BalancePlan) -> list[Place]:
    """Partitions whose replicas are in fewer racks afterwards."""
    rack = {each.id: each.rack for each in brokers}
    return [
        change.place
        for change in plan.changes
        if len({rack.get(id) for id in change.after}) < len({rack.get(id) for id in change.before})
    ]


def drain_plan(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    id: int,
    tolerance: Tolerance,
) -> BalancePlan:
    """All that a broker has goes to others, and nothing else moves."""
    return evacuation(leaving(brokers, id), partitions, tolerance)


def succession_plan(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    id: int,
    successor: int,
    tolerance: Tolerance,
) -> BalancePlan:
    """Another broker takes the place of this one in every partition. Where it has a replica already, or would share a
    rack that the lost one did not share, whoever is best takes it."""
    rack = {each.id: each.rack for each in brokers}
    mine = [each for each in partitions if id in each.replicas]
    targets: dict[Place, tuple[int, ...]] = {}
    for each in mine:
        after = tuple(successor if other == id else other for other in each.replicas)
        racks_before = {rack.get(other) for other in each.replicas}
        racks_after = {rack.get(other) for other in after}
        if successor not in each.replicas and len(racks_after) >= len(racks_before):
            targets[each.place] = after
    others = [each for each in mine if each.place not in targets]
    if others:
        found = evacuation(leaving(brokers, id), others, tolerance)
        targets |= {change.place: change.after for change in found.changes}
    return foreseen(leaving(brokers, id), partitions, targets, tolerance)


def settled(
    partitions: Iterable[BalancedPartition], ends: Mapping[Place, tuple[int, ...]]
) -> list[BalancedPartition]:
    """As they will be when the moves that go on are over; `ends` are the replicas after each of these. Who leads now may not
    be among them: then the first of them will."""
    found = []
    for each in partitions:
        if (end := ends.get(each.place)) is not None:
            stays = each.leader < 0 or each.leader in end
            each = each._replace(replicas=end, leader=each.leader if stays else end[0])
        found.append(each)
    return found
