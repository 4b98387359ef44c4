"""An unclean election that loses the least: the living replica with the longest log is elected.

Kafka's controller takes the first living replica of the assignment, also an empty one. So the longest is put first, by a
reassignment among the same brokers, which moves nothing; after the election the order is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.model import ReplicaInfo


class Candidate(NamedTuple):
    """A living replica of a partition without a leader."""

    broker: int
    last_epoch: int
    """The leader epoch of its last record; -1 if it has none, or does not say it."""
    log_end: int
    lacks: int
    """Records by which the longest log of the living ones is longer."""


def ranked(replicas: Iterable[ReplicaInfo]) -> tuple[Candidate, ...]:
    """Those that answered, the longest log first: by the leader epoch of its last record, then by its end. The order of the
    assignment decides among equals."""
    living = [
        (each.last_epoch, each.log_end, each.broker)
        for each in replicas
        if each.log_end is not None
    ]
    living.sort(key=lambda each: each[:2], reverse=True)
    longest = living[0][1] if living else 0
    return tuple(
        Candidate(broker, epoch, end, max(0, longest - end)) for epoch, end, broker in living
    )


class UncleanChoice(NamedTuple):
    partition: int
    replicas: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    """The longest log first."""
    moving: bool
    """Its replicas are being moved: another order would cancel that."""

    @property
    def silent(self) -> tuple[int, ...]:
        """Replicas of which nothing is known. What only they have is lost, whoever is elected."""
        known = {each.broker for each in self.candidates}
        return tuple(id for id in self.replicas if id not in known)

    @property
    def order(self) -> tuple[int, ...] | None:
        """In which the controller takes the longest log. None: it does so already, or nothing can be done."""
        if not self.candidates or self.moving:
            return None
        longest = self.candidates[0].broker
        living = {each.broker for each in self.candidates}
        if next(id for id in self.replicas if id in living) == longest:
            return None
        return (longest, *(id for id in self.replicas if id != longest))


async def unclean_choices(client: Client, topic: str, wanted: Iterable[int]) -> list[UncleanChoice]:
    """Of the wanted partitions, for those that nobody leads."""
    described = await client.topic(topic, fresh=True)
    numbers = set(wanted)
    leaderless = sorted(
        (each for each in described.partitions if each.leader < 0 and each.partition in numbers),
        key=lambda each: each.partition,
    )
    if not leaderless:
        return []
    living = {each.id for each in (await client.metadata([])).brokers}
    held = {id for each in described.partitions for id in each.replicas}
    replicas = await client.replicas(topic, unasked=held - living)
    moving = {each.partition for each in await client.reassignments() if each.topic == topic}
    return [
        UncleanChoice(
            each.partition,
            each.replicas,
            ranked(replica for replica in replicas if replica.partition == each.partition),
            each.partition in moving,
        )
        for each in leaderless
    ]


async def elect_longest(
    client: Client, topic: str, choices: Sequence[UncleanChoice]
) -> Mapping[int, str | None]:
    """By partition: None, or why nobody was elected."""
    ordered = [(each, each.order) for each in choices]
    changed = [(each, order) for each, order in ordered if order is not None]
    try:
        for each, order in changed:
            await client.reassign(topic, each.partition, order)
        wanted = {topic: [each.partition for each in choices]}
        outcome = await client.elect_leaders(wanted, unclean=True)
    finally:
        for each, _ in changed:
            await client.reassign(topic, each.partition, each.replicas)
    return {number: why for (_, number), why in outcome.items()}
