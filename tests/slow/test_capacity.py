"""How many groups, members and transactional producers three brokers carry, and what each costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.cluster import ProcessCluster
from support.crowd import (
    ClassicMember,
    Crowd,
    NewMember,
    TransactionalProducer,
    all_of,
    stop,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

GROUPS = 1000
PRODUCERS = 1000
PARTITIONS = 10
MEMBERS = 100
HEARTBEAT_S = 0.5
REBALANCE_S_MAX = 2.0
GROUP_BYTES_MAX = 20 << 10
PRODUCER_BYTES_MAX = 20 << 10
"""Memory of all three brokers together, for each."""

SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_assignment_interval_ms": "0",
}
"""No waiting for others who may come: what is measured is the work."""


def memory(cluster: ProcessCluster) -> int:
    return sum(cluster.proportional_bytes(node_id) for node_id in cluster.nodes)


def test_a_thousand_groups_and_a_thousand_transactional_producers_cost_little(
    new_cluster: Callable[..., Any],
) -> None:
    cluster: ProcessCluster = new_cluster(3, **SETTINGS)
    topic = cluster.create_topic("t", PARTITIONS)

    async def groups(crowd: Crowd, names: list[str]) -> None:
        at = await crowd.coordinators(0, names)
        channels = {broker: await crowd.connect(broker) for broker in set(at.values())}

        async def one(name: str) -> None:
            member = ClassicMember(crowd, channels[at[name]], name, topic, PARTITIONS, 1.0)
            while not await member.join():
                pass
            await member.commit(dict.fromkeys(range(PARTITIONS), 1))

        await all_of([partial(one, name) for name in names])

    async def producers(crowd: Crowd, ids: list[str]) -> None:
        at = await crowd.coordinators(1, ids)
        leaders = [cluster.leader(topic, number) for number in range(PARTITIONS)]
        # A connection's requests are answered in order: one per producer at a time.
        channels = [await crowd.connect(broker) for broker in sorted(cluster.nodes)]
        by_broker = dict(zip(sorted(cluster.nodes), channels, strict=True))
        work = [
            partial(
                TransactionalProducer(
                    crowd, by_broker[at[id]], by_broker[leaders[number % PARTITIONS]], id
                ).run,
                topic,
                number % PARTITIONS,
            )
            for number, id in enumerate(ids)
        ]
        await all_of(work)

    async def main() -> None:
        async with Crowd(cluster.bootstrap) as crowd:
            await groups(crowd, ["warm-up"])
            await producers(crowd, ["warm-up"])
            before = memory(cluster)
            began = time.monotonic()
            await groups(crowd, [f"group-{number}" for number in range(GROUPS)])
            groups_s = time.monotonic() - began
            with_groups = memory(cluster)
            began = time.monotonic()
            await producers(crowd, [f"producer-{number}" for number in range(PRODUCERS)])
            producers_s = time.monotonic() - began
            per_group = (with_groups - before) / GROUPS
            per_producer = (memory(cluster) - with_groups) / PRODUCERS
            print(
                f"{GROUPS} groups in {groups_s:.1f} s, {per_group / 1024:.1f} KiB each;"
                f" {PRODUCERS} transactional producers in {producers_s:.1f} s,"
                f" {per_producer / 1024:.1f} KiB each; three brokers: {memory(cluster) >> 20} MiB"
            )
            assert per_group < GROUP_BYTES_MAX
            assert per_producer < PRODUCER_BYTES_MAX

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_hundred_members_are_rebalanced_within_two_seconds(
    new_cluster: Callable[..., Any], protocol: str
) -> None:
    """They hear of it with their next heartbeat, so these come every half second."""
    cluster: ProcessCluster = new_cluster(3, **SETTINGS)
    topic = cluster.create_topic("t", 2 * MEMBERS)

    async def main() -> None:
        async with Crowd(cluster.bootstrap) as crowd:
            (broker,) = (await crowd.coordinators(0, ["g"])).values()

            async def new_member() -> ClassicMember | NewMember:
                channel = await crowd.connect(broker)
                if protocol == "consumer":
                    return NewMember(crowd, channel, "g", topic, HEARTBEAT_S)
                return ClassicMember(crowd, channel, "g", topic, 2 * MEMBERS, HEARTBEAT_S)

            members = [await new_member() for _ in range(MEMBERS)]
            tasks = [asyncio.ensure_future(member.live()) for member in members]

            def settled() -> bool:
                assert not any(task.done() for task in tasks), [t for t in tasks if t.done()]
                generations = {member.generation for member in members}
                if len(generations) != 1:
                    return False
                if protocol == "classic":
                    return members[0].generation > 0 and owned(members) == 2 * MEMBERS
                return owned(members) == 2 * MEMBERS and all(member.owned for member in members)

            try:
                first_s = await until(settled, 60, "a hundred members have joined")
                members.append(await new_member())
                tasks.append(asyncio.ensure_future(members[-1].live()))
                joined_s = await until(settled, 60, "one more has joined")
                await stop([tasks.pop()])
                members.pop()
                print(
                    f"{protocol}: {MEMBERS} members joined in {first_s:.2f} s, one more in {joined_s:.2f} s"
                )
                assert joined_s < REBALANCE_S_MAX
            finally:
                await stop(tasks)

    asyncio.run(main())


def owned(members: list[Any]) -> int:
    return sum(
        sum(map(len, member.owned.values()))
        if isinstance(member.owned, dict)
        else len(member.owned)
        for member in members
    )
