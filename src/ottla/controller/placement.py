"""Which brokers hold a new partition, and which of them is its preferred leader.

The rule (P36): brokers are sorted by id; partition i's j-th replica goes to broker (start + i + j) mod n, and the
first replica is the preferred one. With racks the sorted list alternates between racks, and a partition skips a
rack that it already uses while an unused rack is left.

`start` is a parameter. It is 0 for a cluster's first topic. Kafka draws it at random so that topics with one
partition do not all begin at the first broker. This controller passes the number of partitions placed so far
instead: such topics spread evenly, and the same history gives the same placement.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ottla.wire.errors import ErrorCode, KafkaError

Replicas = tuple[int, ...]


class PlaceableBroker(NamedTuple):
    id: int
    rack: str | None
    alive: bool
    """Unfenced and not shutting down. Such brokers are chosen first, and only they may lead."""


def place(
    brokers: Sequence[PlaceableBroker], partitions: int, factor: int, start: int = 0
) -> list[Replicas]:
    """The replicas of `partitions` new partitions. INVALID_REPLICATION_FACTOR if there are too few
    brokers. Brokers that are not alive are used only if there are too few live ones."""
    assert partitions >= 0
    _check_factor(brokers, factor)
    alive = dealt_by_rack([broker for broker in brokers if broker.alive])
    spare = dealt_by_rack([broker for broker in brokers if not broker.alive])
    racks = len({broker.rack for broker in brokers})
    placed = []
    for index in range(start, start + partitions):
        walk = chain(_walked(alive, index), _walked(spare, index))
        placed.append(_first_on_distinct_racks(walk, factor, racks))
    return placed


def dealt_by_rack(brokers: Sequence[PlaceableBroker]) -> list[PlaceableBroker]:
    """Sorted by id. With racks, the list takes one broker of each rack in turn, so that neighbours differ."""
    by_rack: dict[str, list[PlaceableBroker]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker.rack or "", []).append(broker)
    if len(by_rack) <= 1:
        return sorted(brokers)
    decks = [by_rack[rack] for rack in sorted(by_rack)]
    rounds = max(len(deck) for deck in decks)
    return [deck[turn] for turn in range(rounds) for deck in decks if turn < len(deck)]


def start_after(brokers: Sequence[PlaceableBroker], first_leader: int) -> int:
    """The `start` that continues a topic whose partition 0 prefers `first_leader`; 0 if that broker may
    not lead."""
    alive = dealt_by_rack([broker for broker in brokers if broker.alive])
    ids = [broker.id for broker in alive]
    return ids.index(first_leader) if first_leader in ids else 0


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Sequence[PlaceableBroker],
    first_partition: int = 0,
    factor: int | None = None,
) -> list[Replicas]:
    """A manual assignment in order of partitions. INVALID_REPLICA_ASSIGNMENT for gaps, duplicates, unknown
    brokers, differing replication factors, or a partition without a live broker."""
    known = {broker.id: broker for broker in brokers}
    checked: list[Replicas] = []
    for index in range(first_partition, first_partition + len(assignment)):
        if index not in assignment:
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        replicas = tuple(assignment[index])
        check_replicas(replicas, known)
        if factor is not None and len(replicas) != factor:
            raise _bad_assignment(
                f"The manual partition assignment includes a partition with {len(replicas)} "
                "replica(s), but this is not consistent with previous partitions, which have "
                f"{factor} replica(s)."
            )
        if not any(known[replica].alive for replica in replicas):
            raise _bad_assignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
        factor = len(replicas)
        checked.append(replicas)
    return checked


def check_replicas(replicas: Replicas, known: Container[int]) -> None:
    """INVALID_REPLICA_ASSIGNMENT if these brokers cannot be the replicas of a partition."""
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for replica in sorted(replicas):
        if replica not in known:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {replica}, but no such broker "
                "is registered."
            )
        if replicas.count(replica) > 1:
            raise _bad_assignment(
                f"The manual partition assignment includes the broker {replica} more than once."
            )


def _check_factor(brokers: Sequence[PlaceableBroker], factor: int) -> None:
    if factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    why = ""
    if factor > len(brokers):
        why = (
            f"The target replication factor of {factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
    elif not any(broker.alive for broker in brokers):
        why = "All brokers are currently fenced, or have all their log directories cordoned."
    if why:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): {why}",
        )


def _walked(brokers: list[PlaceableBroker], start: int) -> Iterator[PlaceableBroker]:
    """All of them, beginning at the one whose turn it is. A walk ends after a few: a partition must not cost a look at
    every broker."""
    for step in range(len(brokers)):
        yield brokers[(start + step) % len(brokers)]


def _first_on_distinct_racks(walk: Iterable[PlaceableBroker], factor: int, racks: int) -> Replicas:
    """The first `factor` brokers of the walk, skipping racks already used until all racks are used."""
    if racks == 1:
        return tuple(broker.id for broker in islice(walk, factor))
    chosen: list[int] = []
    waiting = walk
    while True:
        used: set[str | None] = set()
        passed_over = []
        for broker in waiting:
            if broker.rack in used:
                passed_over.append(broker)
                continue
            used.add(broker.rack)
            chosen.append(broker.id)
            if len(chosen) == factor:
                return tuple(chosen)
        waiting = passed_over


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
