"""Every event that the log tells becomes an entry of its kind, with the fields that the page promises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.event_log.entry import EventEntry, Told, decode
from ottla.event_log.kinds import KINDS, Severity, severity
from ottla.event_log.mapping import PARTITIONS_NAMED_MAX, TELLERS, told
from ottla.event_log.words import is_renewal, sentence
from ottla.events import Event
from ottla.events.controller import (
    BrokerFenced,
    BrokerUnfenced,
    ControllerActivated,
    ElectionKind,
    FenceCause,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    PartitionReassigned,
    PartitionWentOffline,
    ReassignmentStep,
    SettingChanged,
)
from ottla.events.coordination import (
    AbortCause,
    GroupRebalanced,
    MemberExpired,
    TransactionAborted,
)
from ottla.events.node import EventsDropped, NodeStarted, NodeStopping
from ottla.events.replication import (
    IsrCause,
    Lag,
    LeadershipStarted,
    Truncated,
    TruncationCause,
)
from ottla.events.requests import QuotaExceeded
from ottla.events.storage import (
    DirectoryMove,
    LogDirectoryFailed,
    LogDirectoryRoomChanged,
    LogSetAside,
    MoveStep,
)
from ottla.wire.types import TopicPartition

NODE = 7
ORDERS = TopicPartition("orders", 0)


def elected(kind: ElectionKind) -> LeaderElected:
    return LeaderElected("orders", 0, 2, 5, 1, (2, 3), kind)


def truncated(first: int, high_watermark: int) -> Truncated:
    cause = TruncationCause.DIVERGING
    return Truncated(
        ORDERS,
        cause,
        first,
        20,
        high_watermark,
        first,
        0,
        2,
        5,
        (4, first),
        committed_end=high_watermark,
        bytes=900,
        epochs=(3, 4),
        kept=None,
    )


LAG = {2: Lag(10, 1000, 31.2), 3: Lag(5, 500, None)}

EXAMPLES: list[tuple[Event, str, str, str]] = [
    # The event, its kind, its key, and its sentence.
    (
        elected(ElectionKind.IN_SYNC),
        "election",
        "partition:orders-0",
        "orders-0: broker 2 was elected leader instead of 1 from the ISR (epoch 5, ISR 2,3)",
    ),
    (
        PartitionWentOffline("orders", 0, 6, 2),
        "offline",
        "partition:orders-0",
        "orders-0: no leader any more, the last was broker 2: no replica that may lead is alive",
    ),
    (
        LeadershipStarted(ORDERS, 5, 120, 118),
        "leader_start",
        "partition:orders-0",
        "orders-0: broker 7 leads, epoch 5 starts at offset 120 (high watermark 118)",
    ),
    (
        IsrShrunk("orders", 0, 1, 5, (1,), (1, 2, 3), (2, 3), IsrCause.SILENT, LAG),
        "isr_shrink",
        "partition:orders-0",
        "orders-0: brokers 2, 3 left the ISR (silent), ISR 1; "
        "behind: broker 2 10 records, 1000 bytes, 31.2 s; broker 3 5 records, 500 bytes",
    ),
    (
        IsrExpanded("orders", 0, 1, 5, (1, 2), (1,), (2,), IsrCause.CAUGHT_UP, {}),
        "isr_expand",
        "partition:orders-0",
        "orders-0: broker 2 joined the ISR, ISR 1,2",
    ),
    (
        truncated(18, 18),
        "truncation",
        "partition:orders-0",
        "orders-0: dropped 2 records from offset 18 on, none of them known to be committed; leader 2, epoch 5: the leader's log has other records from there on",
    ),
    (
        BrokerFenced(2, 40, FenceCause.UNREACHABLE),
        "fenced",
        "broker:2",
        "broker 2 was fenced: its address refuses connections",
    ),
    (BrokerUnfenced(2, 41), "unfenced", "broker:2", "broker 2 was unfenced"),
    (
        LogDirectoryFailed("/data", "Input/output error", (ORDERS,)),
        "log_dir_failure",
        "broker:7",
        "log directory /data failed with 1 partition: Input/output error",
    ),
    (
        LogDirectoryRoomChanged("/data", "scarce", 5, 100),
        "log_dir_room",
        "broker:7",
        "the disk of /data is nearly full: it refuses records (5 of 100 bytes are free)",
    ),
    (
        DirectoryMove(ORDERS, MoveStep.CANCELLED, "/a", "/b", 7, "it is to lie in /a"),
        "directory_move",
        "partition:orders-0",
        "orders-0: move from /a to /b of broker 7 cancelled: it is to lie in /a",
    ),
    (
        ControllerActivated(3),
        "controller_change",
        "cluster",
        "node 7 is the active controller, epoch 3",
    ),
    (
        PartitionReassigned("orders", 0, ReassignmentStep.STARTED, (1, 3, 2), (3,), (2,)),
        "reassignment",
        "partition:orders-0",
        "orders-0: reassignment started, replicas 1,3,2",
    ),
    (
        SettingChanged("topic:orders", "retention.ms", None, "5", "admin at 10.0.0.3"),
        "setting_changed",
        "topic:orders",
        "topic:orders: retention.ms not set -> 5, by admin at 10.0.0.3",
    ),
    (
        QuotaExceeded("app", "producer_byte_rate", 100.0, 0.25, 150.0),
        "quota_exceeded",
        "client:app",
        "client app: above producer_byte_rate=100 (measured 150), throttled for 250 ms",
    ),
    (
        TransactionAborted("tx", 4000, 2, AbortCause.TIMEOUT, 3),
        "transaction_aborted",
        "transaction:tx",
        "transaction tx was aborted by its coordinator: the transaction was open for longer than its timeout",
    ),
    (
        GroupRebalanced("billing", 4, "members changed", 1),
        "rebalance",
        "group:billing",
        "group billing: rebalance to epoch 4 with 1 member: members changed",
    ),
    (
        MemberExpired("billing", "m-1", "session timeout"),
        "member_expired",
        "group:billing",
        "group billing: member m-1 expired: session timeout",
    ),
    (NodeStarted("0.1.0"), "node_start", "broker:7", "the node serves, ottla 0.1.0"),
    (NodeStopping("0.1.0"), "node_stop", "broker:7", "the node stops"),
    (
        EventsDropped(3, "no leader"),
        "events_dropped",
        "broker:7",
        "3 events of this node are missing here: no leader",
    ),
    (
        LogSetAside(ORDERS, "/data", "/data/orders-0.x-stray"),
        "stray_log",
        "partition:orders-0",
        "orders-0: log set aside as /data/orders-0.x-stray",
    ),
]


def test_there_is_an_example_of_every_event_and_of_every_kind() -> None:
    assert {type(event) for event, *_ in EXAMPLES} == TELLERS.keys()
    assert {kind for _, kind, *_ in EXAMPLES} == KINDS.keys()


@pytest.mark.parametrize(("event", "kind", "key", "words"), EXAMPLES)
def test_an_event_becomes_an_entry_that_tells_it(
    event: Event, kind: str, key: str, words: str
) -> None:
    entry = EventEntry(0, NODE, "7-a-1", told(event, NODE))
    assert entry.told.kind == kind
    assert entry.told.about == key
    assert tuple(entry.told.fields) == KINDS[kind].fields
    assert sentence(entry) == words
    read = decode(*entry.encode())
    assert sentence(read) == words, "also after the way through the log"
    assert json.loads(entry.encode()[1]) == json.loads(read.encode()[1])


def fields_of(event: Event) -> Any:
    return told(event, NODE).fields


def test_the_figures_of_an_isr_change_are_those_of_the_leader() -> None:
    event = IsrShrunk("orders", 0, 1, 5, (1,), (1, 2, 3), (2, 3), IsrCause.SLOW, LAG)
    assert fields_of(event)["lag"] == {
        "2": {"records": 10, "bytes": 1000, "seconds": 31.2},
        "3": {"records": 5, "bytes": 500, "seconds": None},
    }


def test_a_truncation_says_whether_committed_records_went() -> None:
    assert fields_of(truncated(18, 18))["below_high_watermark"] is False
    lost = fields_of(truncated(17, 18))
    assert (lost["records"], lost["below_high_watermark"], lost["epochs"]) == (3, True, (3, 4))


def test_a_directory_of_thousands_of_partitions_names_some_and_counts_all() -> None:
    many = tuple(TopicPartition("t", number) for number in range(5000))
    fields = fields_of(LogDirectoryFailed("/data", "", many))
    assert (len(fields["partitions"]), fields["partition_count"]) == (PARTITIONS_NAMED_MAX, 5000)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (elected(ElectionKind.IN_SYNC), Severity.INFO),
        (elected(ElectionKind.PREFERRED), Severity.INFO),
        (elected(ElectionKind.UNCLEAN), Severity.ERROR),
        (elected(ElectionKind.LAST_KNOWN_LEADER), Severity.ERROR),
        (truncated(18, 18), Severity.WARNING),
        (truncated(17, 18), Severity.ERROR),
        (IsrShrunk("t", 0, 1, 5, (1,), (1, 2), (2,), IsrCause.SHUTDOWN, {}), Severity.INFO),
        (IsrShrunk("t", 0, 1, 5, (1,), (1, 2), (2,), IsrCause.SILENT, {}), Severity.WARNING),
    ],
)
def test_what_may_lose_records_is_the_most_serious(event: Event, expected: Severity) -> None:
    assert severity(EventEntry(0, NODE, "", told(event, NODE))) is expected


def test_a_kind_that_a_newer_node_wrote_is_shown_as_it_is() -> None:
    value = b'{"at":"2026-11-16T17:31:41.465Z","kind":"new","node":1,"id":"1-a-1","partition":null,"cause":"why","x":1}'
    entry = decode(b"cluster", value)
    assert sentence(entry) == "x=1 why"
    assert severity(entry) is Severity.INFO


def test_a_name_that_a_client_chose_adds_no_line_and_rules_no_terminal() -> None:
    event = GroupRebalanced("g\x1b[2J\n2026-11-16 forged", 5, "a member joined", 1)
    entry = EventEntry(0, NODE, "7-a-1", told(event, NODE))
    assert sentence(entry).startswith(r"group g\x1b[2J\n2026-11-16 forged: rebalance")
    assert decode(*entry.encode()).told.fields["group"] == event.group_id, "the log has it exactly"


@pytest.mark.parametrize(
    "kind", sorted(KINDS.keys() - {"node_stop"})
)  # whose sentence needs no field
@pytest.mark.parametrize("value", [None, "text", [[]], {"2": 1}])
def test_an_entry_without_the_fields_of_its_kind_is_a_plain_line(kind: str, value: Any) -> None:
    bare = {"at": "2026-11-16T17:31:41.465Z", "kind": kind, "node": 1, "id": "1-a-1"}
    bare |= {"partition": "orders-0", "cause": 5, "x": value}
    assert sentence(decode(b"", json.dumps(bare).encode())) == f"orders-0 x={value} 5"
    wrong = {**bare, **dict.fromkeys(KINDS[kind].fields, value)}
    assert sentence(decode(b"", json.dumps(wrong).encode()))


@pytest.mark.parametrize(
    "event",
    [
        GroupRebalanced("g" * 32_000, 5, "c" * 32_000, 1),
        MemberExpired("g" * 32_000, "m" * 32_000, "c" * 32_000),
        TransactionAborted("t" * 32_000, 7, 0, AbortCause.TIMEOUT, 3),
        QuotaExceeded("c" * 32_000, "producer_byte_rate", 1.0, 1.0),
        SettingChanged("group:" + "g" * 32_000, "n" * 32_000, None, "v", "b" * 32_000),
    ],
)
def test_a_long_name_takes_no_room_from_other_entries(event: Event) -> None:
    key, value = EventEntry(0, NODE, "7-a-1", told(event, NODE)).encode()
    assert len(key) + len(value) < 1_500
    assert "…" in value.decode(), "it can be seen that it was cut"


def test_other_rates_of_a_throttle_are_renewals_and_its_beginning_and_end_are_not() -> None:
    def told(name: str, old: str | None, new: str | None) -> Told:
        return Told("setting_changed", "broker:1", None, {"name": name, "old": old, "new": new})

    rate = "leader.replication.throttled.rate"
    assert is_renewal(told(rate, "1000000", "1100000"))
    assert not is_renewal(told(rate, None, "1000000"))
    assert not is_renewal(told(rate, "1000000", None))
    assert not is_renewal(told("log.retention.ms", "1", "2"))
    assert not is_renewal(Told("fenced", "broker:1", None, {"broker": 1}))
