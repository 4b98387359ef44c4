"""Moves the leadership of a partition to a member of its ISR, and changes nothing else.

No request of Kafka's protocol does exactly that for any member, so the record is given to the controller directly.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.draft import Draft
from ottla.metadata.records import PartitionChangeRecord
from ottla.sim.cluster.nodes import SimNode
from ottla.wire.types import TopicPartition


def move_leader(active: SimNode, partition: TopicPartition, leader: int) -> None:
    """`active` is the active controller. If `leader` leads already, a new epoch begins."""

    async def decide() -> None:
        node = active.node
        assert node is not None and node.controller is not None and node.quorum is not None
        service, topic = node.controller, node.quorum.image.topics[partition.topic]
        record = PartitionChangeRecord(
            partition_id=partition.partition, topic_id=topic.id, leader=leader, isr=None
        )
        controller = service._controller

        def move(draft: Draft) -> dict[str, Any]:
            draft.add([record])
            return {}

        service._run(lambda: controller._decide(move))

    active.host.complete(decide())
