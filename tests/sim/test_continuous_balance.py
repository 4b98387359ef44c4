"""`ottla balance apply --continuous` in virtual time: it acts only after the stated time, and moves few partitions at once (P39).

The client, the planner and the brokers are the product's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ottla.balance.model import Tolerance
from ottla.balance.patience import Patience
from ottla.client.balancing import BalanceLook, look
from ottla.client.client import Client
from ottla.client.reassigning import Reassigner
from ottla.metadata.image import MetadataImage
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey

TOPIC = "drifting"
PARTITIONS = 20
AFTER_S, EVERY_S, AT_ONCE = 600.0, 60.0, 3
TOLERANCE = Tolerance(0.25, 1_000_000, 10_000)


class Watched:
    """A cluster of four brokers, two of which have everything, and somebody who watches its balance."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimCluster(world, 4)
        self.host = world.node("operator")
        self.client = Client(self.host.runtime.network, self.cluster.bootstrap, timeout_s=10)
        self.looks: list[tuple[float, BalanceLook]] = []
        self.moving: list[tuple[float, int]] = []
        """How many partitions were being moved, whenever the metadata changed."""
        self.cluster.start()
        assert self.cluster.wait_ready(60)

    @property
    def now(self) -> float:
        return self.world.loop.time()

    @property
    def image(self) -> MetadataImage:
        quorum = self.cluster.nodes[1].node and self.cluster.nodes[1].node.quorum
        assert quorum
        return quorum.image

    def create(self, assignment: list[list[int]]) -> None:
        rows = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(assignment)]
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": rows,
            "configs": [],
        }
        fields = {"topics": [topic], "timeout": 3000, "validate_only": False}
        self.host.complete(self.client.connections.ask(ApiKey.CREATE_TOPICS, fields), 60)

    def count_moves(self, image: MetadataImage, delta: Any) -> None:
        moving = sum(
            bool(partition.adding or partition.removing)
            for topic in image.topics.values()
            for partition in topic.partitions
        )
        self.moving.append((self.now, moving))

    async def keep_balanced(self) -> None:
        moves, patience = Reassigner(self.client), Patience(AFTER_S)
        while True:
            found = await look(self.client, TOLERANCE, patience)
            self.looks.append((self.now, found))
            if found.acts:
                targets = {each.place: each.after for each in found.plan.changes}
                async for _ in moves.run(targets, None, at_once=AT_ONCE):
                    pass
            await asyncio.sleep(EVERY_S)

    def leaders(self) -> set[int]:
        return {partition.leader for partition in self.image.topics[TOPIC].partitions}


@contextmanager
def watched() -> Iterator[Watched]:
    with World(1) as world:
        made = Watched(world)
        node = made.cluster.nodes[1].node
        assert node is not None and node.quorum is not None
        node.quorum.on_image.append(made.count_moves)
        yield made
        with suppress(Exception):
            world.run_for(1)


def test_P39_a_cluster_out_of_balance_is_moved_after_the_stated_time_few_at_once() -> None:
    with watched() as made:
        made.create([[1, 2]] * PARTITIONS)
        made.host.run(made.keep_balanced())
        first = made.now
        made.world.run_for(AFTER_S - EVERY_S)
        assert made.looks and all(look.is_out for _, look in made.looks)
        assert not any(look.acts for _, look in made.looks), "it waits"
        assert made.leaders() == {1}
        assert made.world.run_until(lambda: len(made.leaders()) == 4, 300)
        acted = [at for at, look in made.looks if look.acts]
        assert acted and acted[0] - first >= AFTER_S
        most = max(count for _, count in made.moving)
        assert most == AT_ONCE, f"{most} partitions moved at once"
        assert all(at >= acted[0] for at, count in made.moving if count)
        made.world.run_for(2 * AFTER_S)
        assert not made.looks[-1][1].is_out, "and nothing is left to do"
        assert len([1 for _, look in made.looks if look.acts]) == 1


def test_P39_a_peak_that_passes_is_not_acted_upon() -> None:
    with watched() as made:
        made.create([[1, 2]] * PARTITIONS)
        made.host.run(made.keep_balanced())
        made.world.run_for(AFTER_S / 2)
        assert made.looks[-1][1].is_out
        # Somebody else evens it out.
        even = [[1 + n % 4, 1 + (n + 1) % 4] for n in range(PARTITIONS)]
        moves = Reassigner(made.client)

        async def by_hand() -> None:
            targets = {(TOPIC, n): replicas for n, replicas in enumerate(even)}
            async for _ in moves.run(targets, None):
                pass

        made.host.complete(by_hand(), 120)
        made.world.run_for(2 * AFTER_S)
        assert not any(look.acts for _, look in made.looks)
        assert len(made.looks) > 20
