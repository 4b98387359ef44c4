"""Which refusals a leader is excused for that has a successor it does not know of."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.sim.oracle.history import ProducedBatch, Refusal
from ottla.sim.oracle.leader_history import LeaderHistory
from ottla.wire.types import TopicPartition

TOPIC = UUID(int=1)
BATCH = ProducedBatch(TopicPartition("t", 0), 1000, 46, (b"v",), 0.0)


class Decisions:
    def __init__(self) -> None:
        self.now = 0.0
        self.leaders = LeaderHistory(lambda: self.now)
        self._image = MetadataImage()

    def elect(self, leader: int, at: float, *, recovering: bool = False) -> None:
        self.now = at
        before = self._image
        epoch = before.offset + 1
        records: list[MetadataRecord] = [] if epoch else [TopicRecord(name="t", topic_id=TOPIC)]
        records.append(
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=(1, 2, 3),
                isr=(1, 2, 3),
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=epoch,
                leader_recovery_state=RECOVERING if recovering else RECOVERED,
            )
        )
        self._image, delta = before.apply(records, epoch, 1)
        self.leaders.decided(1, before, self._image, delta)

    def excuse(self, node: int, asked_at: float) -> bool:
        return self.leaders.had_successor(Refusal(BATCH, node, asked_at))


@pytest.fixture
def decisions() -> Decisions:
    made = Decisions()
    made.elect(1, at=1.0)
    return made


def test_C1_a_deposed_leader_may_not_know_what_its_successor_wrote(decisions: Decisions) -> None:
    decisions.elect(2, at=5.0)
    assert decisions.excuse(1, asked_at=6.0)


def test_C1_who_leads_knows_all_that_was_acknowledged(decisions: Decisions) -> None:
    decisions.elect(2, at=5.0)
    assert not decisions.excuse(2, asked_at=6.0)


def test_C1_a_leader_that_was_deposed_after_it_was_asked_had_no_successor(
    decisions: Decisions,
) -> None:
    decisions.elect(2, at=5.0)
    assert not decisions.excuse(1, asked_at=4.0)


def test_C1_a_deposed_leader_without_a_successor_still_knows_all(decisions: Decisions) -> None:
    decisions.elect(NO_LEADER, at=5.0)
    assert not decisions.excuse(1, asked_at=6.0)


def test_C1_a_leader_that_is_elected_again_though_it_may_lack_records_is_excused(
    decisions: Decisions,
) -> None:
    """Simulator seeds 943 and 1641: it had not heard yet that it leads again, nor that another had."""
    decisions.elect(2, at=5.0)
    decisions.elect(1, at=6.0, recovering=True)
    assert decisions.excuse(1, asked_at=7.0)
    decisions.elect(2, at=8.0)
    decisions.elect(1, at=9.0)
    assert not decisions.excuse(1, asked_at=10.0)
