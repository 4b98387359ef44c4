"""What is wrong, in the words that people read first."""

from __future__ import annotations

from typing import Any

from ottla.client.group_admin import ListedGroup
from ottla.client.group_lag import PartitionLag
from ottla.client.model import QuorumInfo, QuorumReplica, Reassignment
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.problems import STALLED_MS
from ottla.console.model.rows import DiskRow, HoldRow, LogSettingRow, Problem, TransactionRow
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG
from unit.console.test_model_structure import ELECTION, NOW, PLACE, a_model, a_topic, an_event


def problems(model: ClusterModel, now_ms: int = NOW) -> list[Problem]:
    model.settle(now_ms)
    return list(model.problems.values())


def the_problem(model: ClusterModel, id: str, now_ms: int = NOW) -> Problem:
    found = {each.id: each for each in problems(model, now_ms)}
    assert id in found, found.keys()
    return found[id]


def test_nothing_is_wrong_with_a_whole_cluster() -> None:
    assert problems(a_model(a_topic())) == []


def test_a_partition_without_a_leader_says_who_has_to_come_back_and_since_when() -> None:
    model = a_model(a_topic(isr=(2,), leader=2))
    model.event(an_event("fenced", None, broker=2, broker_epoch=1))
    model.event(an_event("offline", previous_leader=2, leader_epoch=6))
    found = the_problem(model, "offline:2")
    assert found.severity == WRONG
    assert found.text == "orders-0 has no leader: nobody can write or read there."
    assert found.why == (
        "Broker 2 was the last in sync, and broker 2 is down (why). Brokers 1 and 3 are alive, but out of sync."
    )
    assert found.since_ms == NOW + 5
    assert (found.about, found.places) == ("partition:orders-0", ("orders-0",))


def test_a_replica_outside_of_the_isr_that_may_lead_is_named() -> None:
    """KIP-966: below the minimum the ISR may be empty, and somebody has every committed record all the same."""
    model = a_model(a_topic(isr=(), leader=-1))
    assert the_problem(model, "offline:").why == "No replica is in sync."
    model.structure.eligible_told({PLACE: (3,)})
    model.event(an_event("fenced", None, broker=3, broker_epoch=1))
    found = the_problem(model, "offline:3")
    assert found.why.startswith("Broker 3 was the last in sync, and broker 3 is down (why).")
    model.event(an_event("election", **{**ELECTION, "leader": -1, "isr": []}))
    assert the_problem(model, "offline:").why == "No replica is in sync.", "asked anew"
    model.structure.eligible_told({PLACE: ()})
    assert "so none may lead" in the_problem(model, "offline:").why


def test_partitions_that_miss_the_same_broker_are_one_problem() -> None:
    model = a_model(a_topic(isr=(1, 3), partitions=5))
    model.event(an_event("fenced", None, broker=2, broker_epoch=1))
    found = problems(model)
    assert [each.id for each in found] == ["broker:2"]
    assert found[0].text == "Broker 2 is down."
    assert found[0].why == "The controller fenced it: why. 5 partitions have a replica fewer."
    assert found[0].total == 5


def test_a_replica_that_lags_while_its_broker_is_up_is_told_with_its_cause() -> None:
    model = a_model(a_topic())
    state = {"leader": 1, "leader_epoch": 5}
    shrink = an_event("isr_shrink", isr=[1, 3], previous_isr=[1, 2, 3], **state)
    model.event(shrink._replace(cause="slow"))
    found = the_problem(model, "behind:2")
    assert found.text == "Broker 2 is not in sync in 1 partition: orders-0."
    assert found.why == "Left the ISR as slow."


def test_too_few_replicas_in_sync_refuse_acks_all() -> None:
    model = a_model(a_topic(isr=(1,)))
    model.flow.settings.put("orders", LogSettingRow(2, False))
    found = the_problem(model, "minimum")
    assert found.severity == WRONG
    assert found.text == "orders-0 refuses records with acks=all."


def test_without_an_active_controller_nothing_can_be_decided() -> None:
    model = a_model(a_topic())
    model.structure.answers(NOW, None)
    voters = tuple(QuorumReplica(id, 10, 100, 100) for id in (1, 2, 3))
    model.structure.quorum_described(QuorumInfo(1, 3, 10, voters, ()), NOW)
    assert problems(model) == []
    model.structure.no_quorum(NOW + 1)
    assert the_problem(model, "controller").since_ms == NOW + 1


def test_a_controller_that_does_not_follow_is_told_with_what_may_still_fail() -> None:
    model = a_model(a_topic())
    voters = (
        QuorumReplica(1, 10, 100_000, 100_000),
        QuorumReplica(2, 10, 100_000, 100_000),
        QuorumReplica(3, 5, 10_000, 10_000),
    )
    model.structure.quorum_described(QuorumInfo(1, 3, 10, voters, ()), NOW)
    found = the_problem(model, "voters")
    assert found.text == "Controller 3 does not follow the metadata log."
    assert found.why == "If another controller fails, nothing can be decided any more."
    assert found.about == "broker:3"
    young = QuorumReplica(3, 5, -1, -1)
    of_another = QuorumInfo(1, 4, 10, (*voters[:2], young), ())
    model.structure.quorum_described(of_another, NOW)
    assert problems(model) == [], "it may follow at once"
    model.structure.quorum_described(of_another, NOW + 6_000)
    assert the_problem(model, "voters").text.startswith("Controller 3 does not follow"), "never"
    apart = tuple(each._replace(id=each.id + 100) for each in voters)
    model.structure.quorum_described(QuorumInfo(101, 3, 10, apart, ()), NOW)
    assert the_problem(model, "voters").about == "cluster", "it is no broker"


def test_a_cluster_that_does_not_answer_is_the_only_problem_there_is() -> None:
    model = a_model(a_topic(leader=-1))
    model.structure.answers(NOW, "no broker answers: 127.0.0.1:9092 (connection refused)")
    (found,) = problems(model)
    assert found.text == "The cluster does not answer."
    assert "connection refused" in found.why


def a_lag(seconds: float, records: int = 10, committed: int = 5) -> PartitionLag:
    next_ms = None if not records else NOW - round(seconds * 1000)
    return PartitionLag("orders", 0, committed, 0, committed + records, next_ms)


def a_group_model() -> ClusterModel:
    model = a_model(a_topic())
    model.consumers.listed([ListedGroup("billing", "Stable", "consumer", "consumer", 1)])
    return model


def test_a_group_that_is_late_says_how_much_and_since_when() -> None:
    model = a_group_model()
    model.consumers.lag_told("billing", [a_lag(0, 0)], NOW)
    model.consumers.lag_told("billing", [a_lag(42)], NOW)
    found = the_problem(model, "group:billing")
    assert found.text == "Group billing is 42 s behind."
    assert found.severity == DEGRADED
    # It was late when its oldest unread record was ten seconds old.
    assert found.since_ms == NOW - 32_000
    assert not model.consumers.groups["billing"].late_at_least
    assert found.why.endswith("It has been more than 10 s behind since then.")


def test_since_when_a_group_is_late_does_not_move_while_it_is_late() -> None:
    model = a_group_model()
    model.consumers.lag_told("billing", [a_lag(42)], NOW)
    model.consumers.lag_told("billing", [a_lag(60)._replace(committed=6)], NOW + 30_000)
    row = model.consumers.groups["billing"]
    assert row.late_since_ms == NOW - 32_000
    assert row.late_at_least
    model.consumers.lag_told("billing", [a_lag(0, 0)], NOW + 31_000)
    assert model.consumers.groups["billing"].late_since_ms is None


def test_a_group_that_commits_nothing_is_said_to_stand() -> None:
    model = a_group_model()
    model.consumers.lag_told("billing", [a_lag(20, committed=5)], NOW)
    model.consumers.lag_told("billing", [a_lag(20, committed=6)], NOW)
    later = NOW + STALLED_MS + 5000
    model.consumers.lag_told("billing", [a_lag(20, committed=6)], later)
    assert "committed nothing for 65 s" in the_problem(model, "group:billing", later).why


def test_a_transaction_that_nobody_will_end_is_told() -> None:
    model = a_model(a_topic())
    hold = HoldRow("orders", 0, 77, 0, 0, 5, NOW - 120_000, 12)
    model.consumers.holds_told({(PLACE, 77): hold})
    found = the_problem(model, "transaction:77")
    assert found.severity == WRONG
    assert found.text == "A transaction of producer 77 holds back readers of orders-0."
    known = TransactionRow("tx", "Ongoing", 77, 0, 1, NOW - 120_000, 60_000, (PLACE,))
    model.consumers.transactions_told([known])
    assert the_problem(model, "transaction:77").severity == DEGRADED


def test_disks_that_failed_or_are_full_are_told() -> None:
    model = a_model(a_topic())
    model.flow.disk_told(1, DiskRow(2, ("/a",), (), 0, 100, 50))
    model.flow.disk_told(2, DiskRow(1, (), ("/b",), 0, 100, 1))
    model.flow.disk_told(3, DiskRow(1, (), (), 0, 100, 5))
    assert {each.id for each in problems(model)} == {"disk:1", "full:2", "full:3"}
    assert the_problem(model, "full:3").why == "That is 5% of 100 B."


def test_a_move_is_told_and_one_that_stands_still_more_so() -> None:
    model = a_model(a_topic())
    model.structure.reassignments([Reassignment("orders", 0, (1, 2, 3), (3,), ())], NOW)
    model.structure.copied({PLACE: (1, 100)}, NOW)
    assert the_problem(model, "moves").severity == NOTICE
    assert the_problem(model, "moves", NOW + STALLED_MS + 1).severity == DEGRADED


LOSS: dict[str, Any] = {
    "kind": "truncation",
    "partition": "orders-0",
    "first_offset": 334,
    "end_offset": 346,
    "possible_end_offset": 350,
    "at": "2026-11-16T17:31:41.465Z",
    "cause": "the leader's log diverges",
    "leader": 2,
    "leader_epoch": 6,
    "held_by": [{"broker": 1}],
    "recovered": None,
}
LOST_MS = 1_794_850_301_465


def test_lost_records_are_named_by_their_offsets_until_they_are_recovered() -> None:
    model = a_model(a_topic())
    model.happenings.losses_told([LOSS])
    (found,) = problems(model, LOST_MS + 1000)
    assert found.text == "orders-0 lost 12 committed records: offsets 334 to 345."
    assert "4 more records may have been committed" in found.why
    assert (
        "Broker 1 keeps a copy of them beside its log, where no consumer sees it: ottla recover brings it back."
        in found.why
    )
    assert found.since_ms == LOST_MS
    model.happenings.losses_told([{**LOSS, "recovered": "orders-again"}])
    assert problems(model, LOST_MS + 1000) == []


def test_a_loss_says_who_was_elected_then_and_who_leads_now_if_it_is_another() -> None:
    unclean = {**LOSS, "cause": "unclean election", "possible_end_offset": 346}
    model = a_model(a_topic(leader=1))
    model.happenings.losses_told([unclean])
    (found,) = problems(model, LOST_MS + 1000)
    assert found.why.startswith(
        "Unclean election. Broker 2 was elected then, in epoch 6. Broker 1 leads now, in epoch 5."
    )
    model = a_model(a_topic(leader=2))
    model.happenings.losses_told([unclean])
    (found,) = problems(model, LOST_MS + 1000)
    assert "was elected then" in found.why and "leads now" not in found.why


def test_an_unclean_election_whose_cost_is_unknown_is_told() -> None:
    model = a_model(a_topic())
    election = {
        "kind": "open_election",
        "partition": "orders-0",
        "first_offset": 334,
        "end_offset": None,
        "possible_end_offset": None,
        "at": LOSS["at"],
        "cause": "unclean",
        "leader": 2,
        "leader_epoch": 6,
        "may_be_held_by": [1, 3],
    }
    model.happenings.losses_told([election])
    (found,) = problems(model, LOST_MS + 1000)
    assert found.text == "orders-0 may have lost records by an unclean election."
    assert (
        found.why
        == "Broker 2 was elected without what brokers 1 or 3 may still have, from offset 334 on."
        " Broker 1 leads now, in epoch 5."
    )


def test_the_worst_comes_first() -> None:
    model = a_model(a_topic(leader=-1, isr=()))
    model.flow.disk_told(3, DiskRow(1, (), (), 0, 100, 5))
    severities = [each.severity for each in problems(model)]
    assert severities == sorted(severities, reverse=True)
    assert len(severities) == 2
