"""The checker of moves: it compares what the controller decides with what somebody asked for."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from ottla.metadata import records as r
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import World
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.ledger import Violation
from ottla.sim.oracle.move_checker import MoveChecker
from ottla.wire.types import TopicPartition

TOPIC, PARTITION = UUID(int=1), TopicPartition("t", 0)
MADE: list[MetadataRecord] = [
    r.TopicRecord(name="t", topic_id=TOPIC),
    r.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    ),
]


def changed(
    replicas: tuple[int, ...],
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    isr: tuple[int, ...] = (1, 2),
) -> MetadataRecord:
    return r.PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        isr=isr,
        leader=isr[0],
    )


class Decisions:
    def __init__(self, cluster: SimCluster) -> None:
        self.evidence = Evidence(cluster)
        self.checker = MoveChecker(self.evidence)
        self._image = MetadataImage()
        self._offset = 0
        self.decide(*MADE)

    def decide(self, *records: MetadataRecord) -> None:
        self.evidence.quorum.replay.apply(records)
        before = self._image
        self._image, delta = before.apply(list(records), self._offset, 0)
        self._offset += len(records)
        self.checker.decided(1, before, self._image, delta)

    def ask(self, replicas: tuple[int, ...] | None) -> None:
        self.checker.asked(PARTITION, replicas)


@pytest.fixture
def decisions() -> Iterator[Decisions]:
    with World(1) as world:
        yield Decisions(SimCluster(world))


BEGUN = changed((3, 2, 1), adding=(3,), removing=(1,))


def test_O1_a_move_that_ends_as_it_was_asked_for_is_right(decisions: Decisions) -> None:
    decisions.ask((3, 2))
    decisions.decide(BEGUN)
    assert decisions.checker.moving() and not decisions.checker.moving(absent=3)
    decisions.decide(changed((3, 2), isr=(2, 3)))
    assert not decisions.checker.moving()


def test_O1_a_cancelled_move_restores_what_was(decisions: Decisions) -> None:
    decisions.ask((3, 2))
    decisions.ask(None)
    decisions.decide(BEGUN)
    decisions.decide(changed((2, 1)))


@pytest.mark.parametrize(
    ("decided", "wrong"),
    [
        ([changed((1, 3, 2), (3,), (2,))], "nobody asked"),
        ([changed((3, 2), (3,), isr=(2,))], "a replica leaves"),
        ([changed((3, 2, 1), removing=(1,))], "before the move the replicas were"),
        ([BEGUN, changed((2, 3), isr=(2, 3))], "nobody asked"),
        ([BEGUN, changed((3, 2), isr=(2,))], "before all replicas are in sync"),
        ([BEGUN, changed((2, 1))], "nobody asked"),
    ],
)
def test_O1_replicas_change_only_as_somebody_asked(
    decisions: Decisions, decided: list[MetadataRecord], wrong: str
) -> None:
    decisions.ask((3, 2))
    with pytest.raises(Violation, match=f"O1.*{wrong}"):
        for record in decided:
            decisions.decide(record)


def throttle(name: str, value: str | None) -> MetadataRecord:
    return r.ConfigRecord(resource_type=r.TOPIC_RESOURCE, resource_name="t", name=name, value=value)


def test_O3_a_list_of_throttled_replicas_must_be_gone_with_the_move(decisions: Decisions) -> None:
    name = "follower.replication.throttled.replicas"
    decisions.ask((3, 2))
    decisions.decide(BEGUN, throttle(name, "0:3"))
    decisions.decide(changed((3, 2), isr=(2, 3)))
    decisions.checker.command_ended({("t", 0): (3, 2)}, decisions.evidence.now())
    assert [each.rule for each in decisions.checker.violations] == ["O3"]
    decisions.decide(throttle(name, None))
    decisions.checker.violations.clear()
    decisions.checker.command_ended({("t", 0): (3, 2)}, decisions.evidence.now())
    assert decisions.checker.violations == []


def test_O3_what_somebody_else_moves_elsewhere_keeps_its_throttle(decisions: Decisions) -> None:
    """The command looked while that move went on. Whoever copies last removes it (seed 9600145)."""
    decisions.ask((3, 2))
    decisions.ask((1, 2))
    decisions.decide(BEGUN, throttle("leader.replication.throttled.replicas", "0:1"))
    decisions.decide(changed((3, 2), isr=(2, 3)))
    decisions.decide(changed((1, 2, 3), adding=(1,), removing=(3,), isr=(2, 3)))
    decisions.decide(changed((1, 2), isr=(2, 1)))
    decisions.checker.command_ended({("t", 0): (3, 2)}, decisions.evidence.now())
    assert decisions.checker.violations == []
    decisions.checker.command_ended({("t", 0): (3, 2)}, decisions.evidence.now() + 1)
    assert [each.rule for each in decisions.checker.violations] == ["O3"], "but not for ever"
