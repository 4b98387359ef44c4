"""What `ottla migrate check` refuses, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from ottla.balance.model import BalancedBroker, BalancedPartition, Tolerance
from ottla.client.admin import ConfigEntry, DescribedPartition, DescribedTopic
from ottla.client.cluster_picture import ClusterPicture
from ottla.client.migration import (
    Kind,
    Seen,
    findings,
    is_between_kinds,
    majority_without,
    may_run,
    migration_plan,
)
from ottla.client.model import QuorumInfo, QuorumReplica, Reassignment
from ottla.client.new_broker_file import STATIC, taken_over
from ottla.config.checking import faults_of
from ottla.config.values import STANDARD_AUTHORIZER

VOTERS = tuple(QuorumReplica(id, 100, directory=uuid4()) for id in (1, 2, 3))


def partition(topic: str = "orders", replicas: tuple[int, ...] = (1, 2, 3)) -> BalancedPartition:
    return BalancedPartition(topic, 0, replicas, replicas[0], 1_000_000, 0.0)


def topic(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> DescribedTopic:
    partition = DescribedPartition(0, leader, (1, 2, 3), isr, None, None)
    return DescribedTopic("orders", uuid4(), (partition,))


def picture(
    partitions: Sequence[BalancedPartition] = (partition(),), racks: str = "abcabc", **broker: Any
) -> ClusterPicture:
    brokers = [BalancedBroker(id, rack, **broker) for id, rack in enumerate(racks, 1)]
    return ClusterPicture(brokers, list(partitions), {})


def setting(name: str, value: str, *, sensitive: bool = False) -> ConfigEntry:
    return ConfigEntry(name, value, STATIC, sensitive, ())


def seen(to: Kind = Kind.OTTLA, **changes: Any) -> Seen:
    """A cluster of Apache Kafka that three brokers of ottla have joined."""
    kinds = {id: Kind.KAFKA if id <= 3 else Kind.OTTLA for id in range(1, 7)}
    ready = Seen(
        to,
        {"metadata.version": 30, "share.version": 1, "group.version": 1},
        {"metadata.version": (7, 30), "share.version": (0, 1), "group.version": (0, 1)},
        [("billing", "classic"), ("audit", "consumer")],
        {"orders": topic()},
        [],
        {1: [setting("authorizer.class.name", STANDARD_AUTHORIZER)]},
        {},
        kinds,
        picture(),
        0,
        QuorumInfo(1, 1, 100, VOTERS, ()),
        is_dynamic=True,
    )
    return ready._replace(**changes)


def refused(of: Seen) -> list[str]:
    return [f"{each.what}: {each.why}" for each in findings(of) if each.refused]


@pytest.mark.parametrize("to", list(Kind))
def test_a_cluster_without_obstacles_is_ready(to: Kind) -> None:
    assert refused(seen(to)) == []


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"features": {"metadata.version": 31}}, "metadata.version is 31, ottla knows up to 30"),
        ({"features": {"metadata.version": 30, "new.version": 1}}, "new.version is 1"),
        ({"groups": [("workers", "share")]}, "ottla does not serve workers (share)"),
        ({"groups": [("tasks", "streams")]}, "ottla does not serve tasks (streams)"),
        ({"tiered_topics": ["archive"]}, "archive have records in tiered storage"),
        ({"brokers": {1: [setting("authorizer.class.name", "com.example.Ranger")]}}, "com.example.Ranger is code"),
        ({"refused_settings": {"principal.builder.class": "broker 1: x"}}, "broker 1: x: brokers of ottla would have other rules"),
        ({"topics": {"orders": topic(isr=(1, 2))}}, "1 are not: orders-0"),
        ({"topics": {"orders": topic(leader=-1)}}, "1 are not: orders-0"),
        ({"kinds": dict.fromkeys((1, 2, 3), Kind.KAFKA)}, "0 live, 3 are needed for orders-0"),
        ({"kinds": dict.fromkeys((4, 5), Kind.OTTLA)}, "2 live, 3 are needed for orders-0"),
        ({"picture": picture(()), "kinds": {}}, "0 live, 1 are needed"),
        ({"picture": picture(disk_bytes=900_000)}, "there is no plan: orders-0: no disk has room"),
        ({"picture": picture(racks="abcaaa")}, "replicas of orders-0 would share racks"),
    ],
)  # fmt: skip
def test_an_obstacle_is_named_with_its_reason(changes: dict[str, Any], why: str) -> None:
    (said,) = refused(seen(**changes))
    assert why in said


def test_what_ottla_lacks_does_not_keep_a_cluster_from_going_back() -> None:
    changes: dict[str, Any] = {
        "features": {"metadata.version": 31},
        "groups": [("workers", "share")],
        "tiered_topics": ["archive"],
    }
    assert refused(seen(Kind.KAFKA, **changes)) == []


def test_static_voters_are_told_and_nothing_is_refused_for_them() -> None:
    of = seen(is_dynamic=False)
    assert refused(of) == []
    assert any("the voters are static" in each.why for each in findings(of))


def test_settings_are_checked_that_a_new_file_would_have() -> None:
    entries = [
        setting("node.id", "1"),
        setting("num.partitions", "3"),
        setting("ssl.keystore.password", "x", sensitive=True),
        setting("ssl.keystore.location", "/keys"),
        setting("principal.builder.class", "com.example.Builder"),
    ]
    assert taken_over(entries) == {
        "num.partitions": "3",
        "principal.builder.class": "com.example.Builder",
    }
    (fault,) = faults_of(taken_over(entries), "broker 1")
    assert fault.startswith("broker 1: principal.builder.class")


def test_a_setting_that_the_old_brokers_have_is_told_and_not_refused() -> None:
    said = "broker 1: metric.reporters: is not served"
    of = seen(refused_settings={"metric.reporters": said})
    assert refused(of) == []
    assert any(said in each.why for each in findings(of))


def test_in_place_a_file_stays_and_no_other_broker_is_needed() -> None:
    of = seen(kinds=dict.fromkeys((1, 2, 3), Kind.KAFKA))
    assert not any(each.refused for each in findings(of, in_place=True))
    told = of._replace(refused_settings={"metric.reporters": "is not served"})
    (line,) = [each for each in findings(told, in_place=True) if each.refused]
    assert "is not served" in line.why


def test_replicas_that_a_move_adds_are_not_needed_besides() -> None:
    """As after Ctrl-C: the cluster has six replicas of the partition, and will have three."""
    copied = DescribedPartition(0, 1, (4, 5, 6, 1, 2, 3), (4, 5, 6, 1, 2, 3), None, None)
    of = seen(
        topics={"orders": DescribedTopic("orders", uuid4(), (copied,))},
        picture=picture([partition(replicas=(4, 5, 6))]),
        moving=1,
    )
    assert refused(of) == []
    assert refused(of._replace(to=Kind.KAFKA)) == []


def test_ottlas_own_topics_ask_for_no_more_brokers_than_there_are() -> None:
    kinds = {1: Kind.KAFKA, 2: Kind.OTTLA, 3: Kind.OTTLA}
    now = picture([partition(replicas=(1,)), partition("__ottla_events", (1, 2, 3))], racks="abc")
    assert refused(seen(kinds=kinds, picture=now)) == []
    plan = migration_plan(now, Kind.OTTLA, kinds, kinds, Tolerance())
    after = {each.topic: each.after for each in plan.changes}
    assert sorted(after["__ottla_events"]) == [2, 3]
    back = migration_plan(now, Kind.KAFKA, kinds, kinds, Tolerance())
    assert {each.topic: each.after for each in back.changes} == {"__ottla_events": (1,)}


def test_who_died_meanwhile_keeps_its_replicas_and_gets_no_more() -> None:
    kinds = {id: Kind.KAFKA if id <= 2 else Kind.OTTLA for id in range(1, 6)}
    now = picture([partition("kept", (3, 1)), partition("moved", (1, 2))], racks="aaaaa")
    plan = migration_plan(now, Kind.OTTLA, kinds, {1, 2, 4, 5}, Tolerance())
    after = {each.topic: set(each.after) for each in plan.changes}
    assert after["moved"] == {4, 5}
    assert 3 in after["kept"] and after["kept"] <= {3, 4, 5}


@pytest.mark.parametrize(
    "adding, removing, is_ours",
    [
        ((4,), (1,), True),
        ((1,), (4,), True),
        ((5,), (4,), False),
        ((2,), (1,), False),
        ((6,), (1,), True),
    ],
)
def test_a_move_between_kinds_is_of_a_migration_also_if_a_broker_is_down(
    adding: tuple[int, ...], removing: tuple[int, ...], is_ours: bool
) -> None:
    kinds = {1: Kind.KAFKA, 2: Kind.KAFKA, 4: Kind.OTTLA, 5: Kind.OTTLA}
    change = Reassignment("orders", 0, (*adding, *removing), adding, removing)
    assert is_between_kinds(change, kinds) is is_ours


def quorum(*fetched_ms: int) -> QuorumInfo:
    """Voters 1, 2 and so on, of which 1 leads, and fetched last at these times."""
    voters = [QuorumReplica(id, 100, ms, ms, uuid4()) for id, ms in enumerate(fetched_ms, 1)]
    return QuorumInfo(1, 1, 100, tuple(voters), ())


@pytest.mark.parametrize(
    "others, goes_on",
    [
        (quorum(60_000, 59_500), False),
        (quorum(60_000, 59_500, 59_500), True),
        (quorum(60_000, 59_500, 20_000), False),
        (quorum(60_000, 59_500, -1), False),
        (quorum(60_000, 59_500, 20_000, 59_500), False),
        (quorum(60_000, 59_500, 59_500, 59_500), True),
    ],
)
def test_a_voter_may_stop_if_the_others_that_answer_are_a_majority_of_all(
    others: QuorumInfo, goes_on: bool
) -> None:
    assert majority_without(others, 1) is goes_on


def test_a_node_may_run_until_it_has_not_fetched_for_a_while() -> None:
    now = quorum(60_000, 59_500, 20_000, -1)
    assert [may_run(now, id) for id in (1, 2, 3, 4, 5)] == [True, True, False, True, False]
