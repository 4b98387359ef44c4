"""What `ottla migrate check` refuses, and why."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ottla.client.admin import ConfigEntry, DescribedPartition, DescribedTopic
from ottla.client.migration import Kind, Seen, findings, majority_without, may_run
from ottla.client.model import QuorumInfo, QuorumReplica
from ottla.client.new_broker_file import STATIC, taken_over
from ottla.config.checking import faults_of
from ottla.config.values import STANDARD_AUTHORIZER

VOTERS = tuple(QuorumReplica(id, 100, directory=uuid4()) for id in (1, 2, 3))


def topic(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> DescribedTopic:
    partition = DescribedPartition(0, leader, (1, 2, 3), isr, None, None)
    return DescribedTopic("orders", uuid4(), (partition,))


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
        [],
        kinds,
        0,
        QuorumInfo(1, 1, 100, VOTERS, ()),
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
        ({"refused_settings": ["broker 1: x: is not served"]}, "broker 1: x: is not served"),
        ({"topics": {"orders": topic(isr=(1, 2))}}, "1 are not: orders-0"),
        ({"topics": {"orders": topic(leader=-1)}}, "1 are not: orders-0"),
        ({"kinds": dict.fromkeys((1, 2, 3), Kind.KAFKA)}, "a partition has 3 replicas, and 0 live"),
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
    static = tuple(each._replace(directory=None) for each in VOTERS)
    of = seen(quorum=QuorumInfo(1, 1, 100, static, ()))
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
