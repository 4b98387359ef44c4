"""A coordinator that others have replaced, while nobody can tell it so."""

from __future__ import annotations

import pytest
from disk_cluster import TOPIC, DiskCluster

from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.client.group_admin import GroupAdmin
from ottla.sim.engine.world import World
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC

PLACE = TOPIC, 0
SINGLE = {"group_id": "g", "topics": None}


def _asked_after_it_was_replaced() -> tuple[int, list[int]]:
    """(error, offsets) that the old coordinator tells, when the new one has taken another commit."""
    with World(21) as world:
        cluster = DiskCluster(world, offsets_topic_num_partitions="1")
        cluster.create([1, 2, 3])
        groups = GroupAdmin(cluster.client)
        cluster.do(groups.commit("g", {PLACE: 10}))
        cluster.wait(lambda: cluster.is_whole(topic=GROUP_METADATA_TOPIC))
        controller = cluster.active_controller()
        old = cluster.decided(topic=GROUP_METADATA_TOPIC).leader
        if old == controller:
            cluster.stop(old)
            cluster.restart(old)
            controller = cluster.active_controller()
            cluster.wait(lambda: cluster.is_whole(topic=GROUP_METADATA_TOPIC))
            old = cluster.decided(topic=GROUP_METADATA_TOPIC).leader
        assert old != controller
        world.network.partition([f"n{old}"], [f"n{controller}"])
        cluster.wait(lambda: cluster.decided(topic=GROUP_METADATA_TOPIC).leader not in (old, -1))

        async def commit_elsewhere() -> None:
            while await groups.coordinator("g") == old:  # it may be asked, and believes in itself
                pass
            await groups.commit("g", {PLACE: 20})

        async def ask_the_old_one() -> tuple[int, list[int]]:
            channel = await cluster.client.connections.to(old)
            answer = await channel.request(
                ApiKey.OFFSET_FETCH, {"groups": [SINGLE]}, version=8, timeout_s=30
            )
            found = answer.groups[0]
            rows = [row for topic in found.topics for row in topic.partitions]
            return int(found.error_code), [row.committed_offset for row in rows]

        cluster.do(commit_elsewhere())
        return cluster.do(ask_the_old_one())


def test_C4_a_deposed_coordinator_that_cannot_hear_of_it_tells_no_old_offsets() -> None:
    error, offsets = _asked_after_it_was_replaced()
    assert ErrorCode(error) in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    assert offsets == []


def test_without_its_doubts_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above is about something."""
    monkeypatch.setattr(BrokerLifecycle, "is_in_doubt", property(lambda _: False))
    assert _asked_after_it_was_replaced() == (ErrorCode.NONE, [10])
