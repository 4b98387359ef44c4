"""What excuses the loss of an acknowledged record, for all designs alike.

A record is excused if it was written before an election of which the controller itself says that it may lose records
(RECOVERING): the new leader was not in the ISR. Without unclean elections that happens only after the last in-sync replica
failed. The controller then trusts the last known leader with what its disk kept, as Kafka does.
"""

from __future__ import annotations

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERING


def may_lose_records(before: PartitionImage | None, now: PartitionImage) -> bool:
    """Whether such an election lies between the two decisions. The mark stays until the leader changes its ISR, so a mark
    alone says nothing about the newest epoch."""
    if now.leader_recovery_state != RECOVERING or now.leader == NO_LEADER:
        return False
    return (
        before is None or before.leader_recovery_state != RECOVERING or before.leader == NO_LEADER
    )
