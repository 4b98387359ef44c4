"""Many changes at once are a few lines of a log, and few changes are told one by one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from replicas_world import ELSEWHERE, ME, ReplicasWorld

from ottla.broker.replication.change_log import (
    FEW,
    TOPICS_MAX,
    Departure,
    RoleLog,
    departures,
    tell_of_departures,
    tell_of_isrs,
)
from ottla.metadata import records as r
from ottla.metadata.records import MetadataRecord
from ottla.wire.types import TopicPartition

CAUGHT_UP = "it has caught up"


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.broker.replication.change_log")


@pytest.fixture
def world() -> Iterator[ReplicasWorld]:
    with ReplicasWorld() as made:
        yield made


def at(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.name.endswith("change_log")
    ]


def told(caplog: pytest.LogCaptureFixture, *keys: TopicPartition) -> list[str]:
    """At INFO. All single partitions that are not told there are told at DEBUG."""
    caplog.clear()
    tell_of_isrs([(key, (1, 2), CAUGHT_UP) for key in keys])
    every = [f"ISR changed partition={key.topic}-{key.partition}" for key in keys]
    single = [line for line in caplog.messages if line.startswith("ISR changed")]
    assert [line.partition(" isr=")[0] for line in single] == every
    return at(caplog, logging.INFO)


# -- ISRs


def test_few_partitions_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, *[TopicPartition("t", number) for number in range(FEW)])
    assert lines == [
        f"ISR changed partition=t-{number} isr=1,2 cause={CAUGHT_UP}" for number in range(FEW)
    ]


@pytest.mark.parametrize("count", [FEW + 1, 100])
def test_many_partitions_of_a_topic_are_one_line(
    caplog: pytest.LogCaptureFixture, count: int
) -> None:
    (line,) = told(caplog, *[TopicPartition("t", number) for number in range(count)])
    assert line == f"ISRs changed topic=t partitions={count} cause={CAUGHT_UP}: {count}"


def test_some_topics_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    few = [TopicPartition(f"t{number}", 0) for number in range(TOPICS_MAX - 1)]
    many = [TopicPartition("u", number) for number in range(FEW + 1)]
    *single, last = told(caplog, *few, *many)
    assert len(single) == TOPICS_MAX - 1 and last.startswith("ISRs changed topic=u partitions=4")


def test_many_topics_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    keys = [TopicPartition(f"t{number}", 0) for number in range(TOPICS_MAX + 1)]
    (line,) = told(caplog, *keys)
    assert line == f"ISRs changed topics=9 partitions=9 cause={CAUGHT_UP}: 9"
    keys = [TopicPartition(key.topic, number) for key in keys for number in range(FEW + 1)]
    (line,) = told(caplog, *keys)
    assert line == f"ISRs changed topics=9 partitions=36 cause={CAUGHT_UP}: 36"


def test_the_most_frequent_causes_come_first_and_the_rest_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    causes = ["a", "b", "b", "c", "c", "c", "d", "d", "d", "d"]
    tell_of_isrs([(TopicPartition("t", n), (1,), cause) for n, cause in enumerate(causes)])
    assert at(caplog, logging.INFO) == ["ISRs changed topic=t partitions=10 cause=d: 4; c: 3; b: 2"]


# -- roles


def test_a_few_roles_are_told_with_where_the_replica_stands(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("t", (ME, 2), (2, ME), (3, 2))
    world.produce("t", 0, records=3)
    world.replicate("t", 0)
    world.produce("t", 0)
    caplog.clear()
    world.change("t", 0, isr=(ME,), leader=ME)
    assert at(caplog, logging.INFO) == [
        "role changed partition=t-0 role=leader leader=1 leader_epoch=6 isr=1 log_start=0"
        " high_watermark=3 log_end=4"
    ]


def many(world: ReplicasWorld, *partitions: tuple[str, int]) -> list[MetadataRecord]:
    """Of each topic so many partitions, in turn led and followed here."""
    return [
        record
        for name, count in partitions
        for record in world.topic_records(
            name, *[(ME, 2) if number % 3 == 0 else (2, ME) for number in range(count)]
        )
    ]


def test_the_roles_of_a_few_partitions_are_told_one_by_one(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.decide(*many(world, ("t", FEW)))
    lines = at(caplog, logging.INFO)
    assert [line.partition(" leader=")[0] for line in lines] == [
        "role changed partition=t-0 role=leader",
        "role changed partition=t-1 role=follower",
        "role changed partition=t-2 role=follower",
    ]
    assert at(caplog, logging.DEBUG) == []


def test_the_roles_of_many_partitions_are_one_line(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.decide(*many(world, ("t", FEW + 1), ("u", 1)))
    single, summary = sorted(at(caplog, logging.INFO))
    assert single.startswith("role changed partition=u-0 role=leader")
    assert summary == "roles changed topic=t partitions=4 leader=2 follower=2 offline=0"
    assert len(at(caplog, logging.DEBUG)) == FEW + 1
    caplog.clear()
    world.run(lambda: world.logs.mark_offline("/data", OSError("it is broken")))
    assert len(at(caplog, logging.INFO)) == FEW + 2, "outside of a change each is told at once"


@pytest.mark.parametrize("topics", [TOPICS_MAX, TOPICS_MAX + 1])
def test_the_roles_in_many_topics_are_one_line(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture, topics: int
) -> None:
    world.decide(*many(world, *[(f"t{number}", FEW + 1) for number in range(topics)]))
    lines = at(caplog, logging.INFO)
    if topics <= TOPICS_MAX:
        assert lines == [
            f"roles changed topic=t{number} partitions=4 leader=2 follower=2 offline=0"
            for number in range(topics)
        ]
    else:
        assert lines == ["roles changed topics=9 partitions=36 leader=18 follower=18 offline=0"]
    assert len(at(caplog, logging.DEBUG)) == topics * (FEW + 1)


def test_what_was_gathered_is_told_though_the_change_failed_and_only_once(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("t", (ME, 2))
    caplog.clear()
    role_log = RoleLog()
    role_log.add(world["t", 0])
    assert len(caplog.messages) == 1, "it is not open yet"
    caplog.clear()
    with pytest.raises(ValueError, match="mistake"), role_log:
        role_log.add(world["t", 0])
        assert caplog.messages == []
        raise ValueError("a mistake of ours")
    assert len(caplog.messages) == 1
    role_log.add(world["t", 0])
    assert len(caplog.messages) == 2, "it is open no more"
    with role_log:
        pass
    assert len(caplog.messages) == 2


def test_the_offline_ones_are_counted_too(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("t", *[(ME, 2)] * (FEW + 1))
    caplog.clear()
    world.decide(
        *[world.changed("t", number, leader=2, replicas=(2, 3), isr=(2,)) for number in range(2)],
        *[world.changed("t", number, leader=2) for number in range(2, FEW + 1)],
    )
    assert at(caplog, logging.INFO) == [
        "roles changed topic=t partitions=4 leader=0 follower=2 offline=2"
    ]


# -- brokers that left


class Leaving:
    """Partitions that broker 2 leads, that this broker leads with it, and that are led without either."""

    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world
        world.topic("t", (2, ME, 3), (ME, 2, 3), (2, 3, ME))
        self.before = world.image

    def found(self, *records: MetadataRecord) -> dict[int, Departure]:
        delta = self.world.learn(*records)
        return departures(self.before, self.world.image, delta, ME)

    def changed(self, number: int, **changes: Any) -> MetadataRecord:
        return self.world.changed("t", number, **changes)

    def fenced(self, broker: int = 2) -> MetadataRecord:
        return self.world.registered(broker, fenced=True)


@pytest.fixture
def leaving(world: ReplicasWorld) -> Leaving:
    return Leaving(world)


def test_what_a_broker_left_is_what_this_broker_leads_now(leaving: Leaving) -> None:
    found = leaving.found(
        leaving.changed(0, leader=ME, isr=(ME, 3)),
        leaving.changed(1, isr=(ME, 3)),
        leaving.changed(2, leader=3, isr=(3, ME)),
        leaving.fenced(),
    )
    assert found == {2: Departure(1, 2, Counter(t=2))}


def test_a_broker_that_is_only_slow_has_not_left(leaving: Leaving) -> None:
    assert leaving.found(leaving.changed(1, isr=(ME, 3))) == {}
    leaving.before = leaving.world.image
    assert leaving.found(leaving.changed(1, isr=(ME,)), leaving.fenced(0)) == {}


def test_a_broker_that_is_unregistered_has_left(leaving: Leaving) -> None:
    found = leaving.found(
        leaving.changed(0, leader=ME, isr=(ME, 3)),
        leaving.changed(1, isr=(ME, 3)),
        leaving.changed(2, leader=3, isr=(3, ME)),
        r.UnregisterBrokerRecord(broker_id=2, broker_epoch=102),
    )
    assert found == {2: Departure(1, 2, Counter(t=2))}


def test_a_broker_that_hands_over_its_leaders_leaves_them_and_may_stay_in_sync(
    leaving: Leaving,
) -> None:
    found = leaving.found(
        leaving.changed(0, leader=ME), leaving.world.registered(2, in_controlled_shutdown=True)
    )
    assert found == {2: Departure(1, 0, Counter(t=1))}


def test_several_brokers_may_leave_one_partition(leaving: Leaving) -> None:
    found = leaving.found(
        leaving.changed(0, leader=ME, isr=(ME,)),
        leaving.changed(1, isr=(ME,)),
        leaving.changed(2, leader=ME, isr=(ME,)),
        leaving.fenced(2),
        leaving.fenced(3),
    )
    assert found == {2: Departure(2, 3, Counter(t=3)), 3: Departure(0, 3, Counter(t=3))}


def test_a_leader_that_changes_while_another_broker_is_away_was_not_left_by_it(
    leaving: Leaving,
) -> None:
    assert leaving.found(leaving.changed(0, leader=ME), leaving.fenced(0)) == {}


def test_this_broker_does_not_leave_itself(leaving: Leaving) -> None:
    me = leaving.world.registered(ME, in_controlled_shutdown=True)
    assert leaving.found(leaving.changed(1, isr=(ME, 2)), me) == {}


def test_what_is_new_was_left_by_nobody(leaving: Leaving) -> None:
    world = leaving.world
    found = leaving.found(
        leaving.fenced(0),
        *world.topic_records("u", (ME, 2)),
        r.PartitionRecord(
            partition_id=3,
            topic_id=world.image.topics["t"].id,
            replicas=(ME, 2),
            isr=(ME, 2),
            leader=ME,
            leader_epoch=0,
            partition_epoch=0,
            directories=(world.home(ME), ELSEWHERE),
        ),
    )
    assert found == {}


def test_the_partitions_of_a_topic_that_is_deleted_then_are_nobodys(leaving: Leaving) -> None:
    id = leaving.world.image.topics["t"].id
    change = leaving.changed(1, isr=(ME, 3))
    delta = leaving.world.learn(change)
    leaving.world.learn(r.RemoveTopicRecord(topic_id=id), leaving.fenced())
    assert departures(leaving.before, leaving.world.image, delta, ME) == {}


@pytest.mark.parametrize(
    ("change", "level", "cause"),
    [
        ({"fenced": True}, logging.WARNING, "fenced"),
        ({"in_controlled_shutdown": True}, logging.INFO, "shutdown"),
    ],
)
def test_a_crash_is_a_warning_and_a_shutdown_is_none(
    leaving: Leaving,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, bool],
    level: int,
    cause: str,
) -> None:
    caplog.clear()
    changed = leaving.changed(0, leader=ME, isr=(ME, 3)), leaving.changed(1, isr=(ME, 3))
    rest = leaving.changed(2, leader=3, isr=(3,))
    delta = leaving.world.learn(*changed, rest, leaving.world.registered(2, **change))
    tell_of_departures(leaving.before, leaving.world.image, delta, ME)
    assert at(caplog, level) == [
        f"broker left, its partitions go on here broker=2 cause={cause} leaders_taken=1"
        " isr_shrunk=2 topics=t:2"
    ]


@pytest.mark.parametrize("topics", [TOPICS_MAX, TOPICS_MAX + 1])
def test_the_topics_that_were_left_most_are_named(
    world: ReplicasWorld, caplog: pytest.LogCaptureFixture, topics: int
) -> None:
    for number in range(topics):
        world.topic(f"t{number}", *[(2, ME)] * (number + 1))
    caplog.clear()
    world.decide(
        *[
            world.changed(f"t{topic}", number, leader=ME, isr=(ME,))
            for topic in range(topics)
            for number in range(topic + 1)
        ],
        world.registered(2, fenced=True),
    )
    (line,) = at(caplog, logging.WARNING)
    named = [f"t{number}:{number + 1}" for number in reversed(range(topics))][:TOPICS_MAX]
    more = ",…" if topics > TOPICS_MAX else ""
    assert line.partition(" topics=")[2] == ",".join(named) + more
