"""Which of two sources counts: the event log is at once, an answer to Metadata may be of a broker that knows less."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.model import (
    BrokerInfo,
    ClusterDescription,
    PartitionInfo,
    QuorumInfo,
    QuorumReplica,
    Reassignment,
    Topic,
)
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.rows import BrokerStanding, EventRow
from ottla.console.model.structure import THE

NOW = 1_000_000


def a_topic(
    name: str = "orders",
    *,
    leader: int = 1,
    epoch: int = 5,
    isr: tuple[int, ...] = (1, 2, 3),
    id: int = 1,
    partitions: int = 1,
) -> Topic:
    return Topic(
        name,
        UUID(int=id),
        False,
        tuple(
            PartitionInfo(name, number, leader, epoch, (1, 2, 3), isr, ())
            for number in range(partitions)
        ),
    )


def a_model(*topics: Topic) -> ClusterModel:
    model = ClusterModel()
    brokers = tuple(BrokerInfo(id, "host", 9090 + id, None) for id in (1, 2, 3))
    model.structure.described(ClusterDescription("id", 1, brokers), NOW)
    model.structure.all_topics(topics, model.version, NOW)
    model.settle(NOW)
    return model


def an_event(kind: str, partition: str | None = "orders-0", /, **fields: Any) -> EventRow:
    return EventRow("1", NOW + 5, kind, 0, 1, "", partition, "why", "", fields)


ELECTION = {"leader": 2, "leader_epoch": 6, "previous_leader": 1, "isr": [2, 3], "how": "clean"}
PLACE = ("orders", 0)


def test_an_entry_of_the_event_log_counts_at_once() -> None:
    model = a_model(a_topic())
    model.event(an_event("election", **ELECTION))
    row = model.partitions[PLACE]
    assert (row.leader, row.epoch, row.isr) == (2, 6, (2, 3))
    assert (row.since_ms, row.cause) == (NOW + 5, "why")


def test_an_answer_of_a_broker_that_knows_less_is_ignored() -> None:
    model = a_model(a_topic())
    model.event(an_event("election", **ELECTION))
    model.structure.all_topics([a_topic(epoch=5)], model.version, NOW + 10)
    assert model.partitions[PLACE].leader == 2


def test_an_answer_that_was_asked_for_before_the_change_is_ignored() -> None:
    model = a_model(a_topic())
    asked_at = model.version
    shrink = {"leader": 1, "leader_epoch": 5, "isr": [1], "previous_isr": [1, 2, 3]}
    model.event(an_event("isr_shrink", **shrink))
    model.structure.all_topics([a_topic()], asked_at, NOW + 10)
    assert model.partitions[PLACE].isr == (1,)
    model.structure.all_topics([a_topic()], model.version, NOW + 20)
    assert model.partitions[PLACE].isr == (1, 2, 3)


def test_an_old_entry_changes_nothing() -> None:
    model = a_model(a_topic(epoch=7, leader=3))
    model.event(an_event("election", **ELECTION))
    assert model.partitions[PLACE].leader == 3


def test_a_topic_that_was_deleted_and_made_again_begins_anew() -> None:
    model = a_model(a_topic(epoch=9))
    model.structure.all_topics([a_topic(epoch=0, id=2)], model.version, NOW + 10)
    assert model.partitions[PLACE].epoch == 0


def test_a_deleted_topic_leaves_nothing() -> None:
    model = a_model(a_topic(isr=(1,), partitions=3))
    model.structure.all_topics([], model.version, NOW)
    model.settle(NOW)
    assert not len(model.partitions)
    assert not model.structure.unwell
    assert {row.replicas for row in model.brokers.values()} == {0}


def test_a_broker_that_does_not_know_of_new_partitions_takes_none_away() -> None:
    model = a_model(a_topic(partitions=3))
    model.structure.all_topics([a_topic(partitions=2)], model.version, NOW)
    assert model.topics["orders"].partitions == 3


def test_a_topic_that_came_while_the_answer_was_under_way_stays() -> None:
    model = a_model()
    asked_at = model.version
    model.structure.topic(a_topic(), model.version, NOW)
    model.structure.all_topics([], asked_at, NOW)
    assert "orders" in model.topics


PARTITIONS = {"a": 1, "b": 2, "c": 3}
states = st.builds(
    lambda name, **state: a_topic(name, partitions=PARTITIONS[name], **state),
    st.sampled_from("abc"),
    leader=st.sampled_from([-1, 1, 2, 3]),
    epoch=st.just(5),
    isr=st.sets(st.sampled_from([1, 2, 3])).map(tuple),
)


@given(st.lists(st.lists(states, unique_by=lambda topic: topic.name), max_size=4))
def test_counts_are_those_of_what_there_is_at_the_end(looks: list[list[Topic]]) -> None:
    model = a_model()
    for look in looks:
        model.structure.all_topics(look, model.version, NOW)
    model.settle(NOW)
    last = [part for topic in (looks[-1] if looks else []) for part in topic.partitions]
    totals = model.structure.totals[THE]
    assert totals.partitions == len(last)
    assert totals.offline == sum(part.leader < 0 for part in last)
    assert totals.under_replicated == sum(len(part.isr) < 3 for part in last)
    assert totals.not_preferred == sum(part.leader not in (-1, 1) for part in last)
    for id, row in model.brokers.items():
        assert row.leaders == sum(part.leader == id for part in last)
        assert row.out_of_sync == sum(id not in part.isr for part in last)


def test_a_broker_that_does_not_answer_is_silent_until_the_controller_fences_it() -> None:
    model = a_model(a_topic())
    model.structure.silent({2: NOW - 3000})
    row = model.brokers[2]
    assert (row.standing, row.since_ms) == (BrokerStanding.SILENT, NOW - 3000)
    model.event(an_event("fenced", None, broker=2, broker_epoch=1))
    assert model.brokers[2].standing is BrokerStanding.FENCED
    assert model.brokers[2].cause == "why"


def test_a_broker_that_left_the_cluster_and_has_replicas_is_gone() -> None:
    model = a_model(a_topic())
    two = tuple(BrokerInfo(id, "host", 1, None) for id in (1, 2))
    model.structure.described(ClusterDescription("id", 1, two), NOW)
    assert model.brokers[3].standing is BrokerStanding.GONE
    model.structure.all_topics([], model.version, NOW)
    model.settle(NOW)
    assert 3 not in model.brokers


def test_the_lag_of_a_voter_is_measured_by_the_clock_of_the_leader() -> None:
    model = a_model()
    voters = (QuorumReplica(1, 100, 5000, 5000), QuorumReplica(2, 90, 4900, 2000))
    model.structure.quorum_described(QuorumInfo(1, 3, 100, voters, ()), NOW)
    late = model.quorum[THE].voters[1]
    assert (late.lag, late.behind_ms) == (10, 3000)


def test_a_move_remembers_since_when_and_how_far_it_is() -> None:
    model = a_model(a_topic())
    move = Reassignment("orders", 0, (1, 2, 3, 4), (4,), (3,))
    model.structure.reassignments([move], NOW)
    model.structure.copied({PLACE: (0, 1000)}, NOW)
    model.structure.reassignments([move], NOW + 2000)
    model.structure.copied({PLACE: (500, 1000)}, NOW + 2000)
    row = model.structure.moves[PLACE]
    assert (row.since_ms, row.copied, row.total, row.rate) == (NOW, 500, 1000, 250.0)
    model.structure.reassignments([], NOW + 3000)
    assert not len(model.structure.moves)


def test_nothing_is_counted_before_the_cluster_has_told_its_topics() -> None:
    """Zeros would look like a cluster that is well."""
    model = ClusterModel()
    model.settle(NOW)
    assert model.structure.totals.get(THE) is None
    brokers = (BrokerInfo(1, "host", 9091, None),)
    model.structure.described(ClusterDescription("id", 1, brokers), NOW)
    model.settle(NOW)
    assert model.structure.totals.get(THE) is None
    model.structure.all_topics([], model.version, NOW)
    model.settle(NOW)
    assert model.structure.totals[THE].topics == 0
