"""Availability against durability: acks, min.insync.replicas and unclean elections over random failures (P20, P30, P31).

Every combination is a topic of its own, and all of them are in one cluster: three replicas on three brokers, the same leader at
the start. So each schedule of failures strikes all combinations at the same moments. A probe sends a record to each topic twice a
second and never retries. The share of acknowledged probes is the share of the time in which the topic could be written. At the
end everything is back, and whatever was acknowledged and cannot be read is lost. If a partition then has no leader, an operator
gives up waiting and orders an unclean election. What is lost in such a schedule is counted apart.

The figures depend on the mix of failures (`MIX`), also whether a combination loses anything at all. Machines are killed, lose their
power with what was not flushed, come back on empty disks, are cut off, or have slow lines, far more often than in a real cluster.
Two or three may be out at a time, more than a minimum of two is made for. Nothing happens to the controller. This is the second
mix (`MIX_HISTORY`). 20 longer schedules of it lost nothing with acks=all, a minimum of two and clean elections, and ten more did.
So few schedules say little, and what compares is the order of the combinations.

Left out is what teaches nothing more: acks=1 with a minimum above one, which is asked for with acks=all only, acks=0 with unclean
elections, and clusters without the ELR with other acks than all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from ottla.lab.commit.clients import (
    ALL,
    OpenLoopProducer,
    PartitionReader,
    create_assigned_topics,
    elect_uncleanly,
)
from ottla.lab.commit.design import CommitDesign
from ottla.lab.commit.faults import OutageKind, OutageMix, OutageRun, outages
from ottla.lab.design import design_named
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.sim.clients.connections import ClientConnections
from ottla.wire.types import TopicPartition

NAME = "min-insync"
QUESTION = (
    "What do acks, min.insync.replicas and unclean elections give and take, in time and in records?"
)

BROKERS = (1, 2, 3)
PRODUCT, FORMER = "isr", "isr-without-elr"
INTERVAL_S = 0.5
READ_PAUSE_S = 2.0
SETTLE_S = 60.0
NONE_LOST = 1.0
"""Where a combination that lost nothing is drawn: a logarithm has no zero."""

MIX = OutageMix(
    up_s=30.0,
    kinds={
        OutageKind.KILL: 3,
        OutageKind.POWER_LOSS: 3,
        OutageKind.NEW_DISK: 0.3,
        OutageKind.CUT_OFF: 1,
        OutageKind.SLOW_LINE: 3,
    },
    lasting_s=((0.5, 5.0), (5.0, 20.0), (30.0, 60.0)),
)

MIX_HISTORY = (
    "A first mix, with failures every 20 s and more empty disks, was replaced after its results were seen: in it acks=all with "
    "clean elections lost records with a minimum of two and of three, too"
)

SETTINGS = {
    # In proportion to failures that come every 30 s.
    "replica.lag.time.max.ms": "10000",
    # Stands for the write-back of the operating system; by default nothing else flushes (P22).
    "log.flush.interval.ms": "5000",
    "metadata.max.idle.interval.ms": "5000",
}


class Combination(NamedTuple):
    acks: int
    min_insync: int
    unclean: bool

    @property
    def label(self) -> str:
        acks = "all" if self.acks == ALL else str(self.acks)
        return f"acks={acks} min={self.min_insync} {'unclean' if self.unclean else 'clean'}"

    @property
    def topic(self) -> str:
        return f"acks{self.acks}-min{self.min_insync}-{'unclean' if self.unclean else 'clean'}"

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "min.insync.replicas": str(self.min_insync),
            "unclean.leader.election.enable": str(self.unclean).lower(),
        }


DURABLE = Combination(ALL, 2, unclean=False)
AVAILABLE = Combination(1, 1, unclean=True)


def combinations(design: str) -> list[Combination]:
    """The minimum is asked for with acks=all only. Without the ELR: what the ELR is compared with."""
    clean = [Combination(ALL, min_insync, unclean=False) for min_insync in (1, 2, 3)]
    if design != PRODUCT:
        return clean
    unclean = [each._replace(unclean=True) for each in clean]
    return [
        Combination(0, 1, unclean=False),
        Combination(1, 1, unclean=False),
        AVAILABLE,
        *clean,
        *unclean,
    ]


@dataclass(frozen=True)
class RecordTally:
    """What became of the records of one combination in one schedule, or in several."""

    design: str
    combination: Combination
    sent: int = 0
    acknowledged: int = 0
    lost: int = 0
    """Acknowledged, and cannot be read at the end."""
    lost_by_operator: int = 0
    """Those of them in schedules that an operator ended with an unclean election."""
    schedules: int = 0
    schedules_with_loss: int = 0
    read_and_lost: int = 0
    """Returned to a consumer, and cannot be read at the end."""
    left_offline: int = 0
    """Schedules after which only an unclean election, ordered by an operator, gave the partition a leader."""

    @property
    def writable(self) -> float:
        return self.acknowledged / self.sent

    @property
    def lost_unattended(self) -> int:
        """Without an order of an operator."""
        return self.lost - self.lost_by_operator

    @property
    def lost_per_million(self) -> float:
        return 1e6 * self.lost / self.acknowledged if self.acknowledged else 0.0

    def __add__(self, other: RecordTally) -> RecordTally:
        return RecordTally(
            self.design,
            self.combination,
            self.sent + other.sent,
            self.acknowledged + other.acknowledged,
            self.lost + other.lost,
            self.lost_by_operator + other.lost_by_operator,
            self.schedules + other.schedules,
            self.schedules_with_loss + other.schedules_with_loss,
            self.read_and_lost + other.read_and_lost,
            self.left_offline + other.left_offline,
        )


def strike(seed: int, design_name: str, duration_s: float) -> list[RecordTally]:
    """One schedule, for all combinations at once."""
    design = design_named(design_name)
    assert isinstance(design.part, CommitDesign)
    chosen = combinations(design_name)
    schedule = outages(Random(seed), BROKERS, duration_s, MIX, at_once_max=len(BROKERS))
    with simulated(
        seed,
        nodes=len(BROKERS) + 1,
        controllers=1,
        make_node=design.part.make_node(),
        settings={**SETTINGS, **design.settings},
    ) as cluster:
        cluster.start()
        _create(cluster, chosen)
        producers = {
            each: OpenLoopProducer(
                _connections(cluster, f"producer of {each.topic}"),
                each.partition,
                each.topic,
                acks=each.acks,
                interval_s=INTERVAL_S,
            )
            for each in chosen
        }
        readers = {
            each: PartitionReader(
                _connections(cluster, f"reader of {each.topic}"), each.partition, READ_PAUSE_S
            )
            for each in chosen
        }
        clients: list[OpenLoopProducer | PartitionReader] = [*producers.values(), *readers.values()]
        for client in clients:
            cluster.clients.run(client.run())
        OutageRun(cluster, schedule)
        cluster.run_for(duration_s)
        for client in clients:
            client.is_running = False
        ends_s = max((outage.end_s for outage in schedule), default=duration_s)
        cluster.run_for(max(0.0, ends_s - duration_s) + SETTLE_S)
        found = []
        for each in chosen:
            offline = _elect_if_offline(cluster, each.partition)
            producer, read = producers[each], set(readers[each].read)
            readable = _read_all(cluster, each.partition)
            acknowledged = set(producer.acknowledged_at)
            lost = len(acknowledged - readable)
            found.append(
                RecordTally(
                    design_name,
                    each,
                    len(producer.sent_at),
                    len(acknowledged),
                    lost,
                    lost if offline else 0,
                    1,
                    int(lost > 0),
                    len(read - readable),
                    int(offline),
                )
            )
        assert not cluster.failures, cluster.failures
        return found


def _connections(cluster: LabCluster, name: str) -> ClientConnections:
    return ClientConnections(cluster.clients, cluster.sim.bootstrap[: len(BROKERS)], name)


def _create(cluster: LabCluster, chosen: Iterable[Combination]) -> None:
    wanted = {each.topic: each.settings for each in chosen}
    cluster.clients.complete(
        create_assigned_topics(_connections(cluster, "admin"), BROKERS, wanted)
    )


def _has_leader(cluster: LabCluster, partition: TopicPartition) -> bool:
    replicas = [cluster.replica(id, partition) for id in BROKERS]
    return any(each is not None and each.leadership is not None for each in replicas)


def _elect_if_offline(cluster: LabCluster, partition: TopicPartition) -> bool:
    """An operator orders an unclean election, if the partition has no leader. Whether it had none."""
    if _has_leader(cluster, partition):
        return False
    cluster.clients.complete(elect_uncleanly(_connections(cluster, "operator"), partition))
    cluster.run_until(lambda: _has_leader(cluster, partition), SETTLE_S)
    cluster.run_for(1.0)
    return True


def _read_all(cluster: LabCluster, partition: TopicPartition) -> set[str]:
    reader = PartitionReader(_connections(cluster, "final reader"), partition)
    cluster.clients.complete(reader.read_to_end())
    return set(reader.read)


# -- one schedule, step by step ----------------------------------------------------------------------


@dataclass(frozen=True)
class LastReplica:
    """What acks=all did while its leader was alone, and after the leader was gone."""

    combination: Combination
    keeps_disk: bool
    """Whether the leader comes back with all that it wrote, or on an empty disk."""
    acknowledged_alone: int
    writable_without_leader: bool
    readable_without_leader: int
    """Of the records that were acknowledged alone."""
    lost: int
    """Of those, at the end."""
    left_offline: bool
    """Only an unclean election, ordered by an operator, gave the partition a leader."""


def last_replica_standing(seed: int, keeps_disk: bool) -> list[LastReplica]:
    """Both followers die, the leader writes on alone and dies, the followers return, and later the leader too."""
    chosen = [
        Combination(ALL, min_insync, unclean) for min_insync in (1, 2) for unclean in (False, True)
    ]
    design = design_named(PRODUCT)
    with simulated(
        seed,
        nodes=len(BROKERS) + 1,
        controllers=1,
        make_node=design.part.make_node(),
        settings=SETTINGS,
    ) as cluster:
        cluster.start()
        _create(cluster, chosen)
        leader, *followers = (cluster.sim.nodes[id] for id in BROKERS)
        _produce(cluster, chosen, "together")
        for node in followers:
            node.kill()
        alone = _produce(cluster, chosen, "alone")
        leader.kill()
        if not keeps_disk:
            leader.host.disk.wipe()
        for node in followers:
            node.start()
        cluster.sim.wait_ready(SETTLE_S)
        without = _produce(cluster, chosen, "without")
        readable = {
            each: _read_all(cluster, each.partition)
            if _has_leader(cluster, each.partition)
            else set()
            for each in chosen
        }
        leader.start()
        cluster.run_for(SETTLE_S)
        offline = {each: _elect_if_offline(cluster, each.partition) for each in chosen}
        return [
            LastReplica(
                each,
                keeps_disk,
                len(alone[each]),
                bool(without[each]),
                len(alone[each] & readable[each]),
                len(alone[each] - _read_all(cluster, each.partition)),
                offline[each],
            )
            for each in chosen
        ]


def _produce(
    cluster: LabCluster, chosen: Sequence[Combination], name: str
) -> dict[Combination, set[str]]:
    """What is acknowledged within a few seconds."""
    producers = {
        each: OpenLoopProducer(
            _connections(cluster, name), each.partition, name, interval_s=INTERVAL_S
        )
        for each in chosen
    }
    for producer in producers.values():
        cluster.clients.run(producer.run())
    cluster.run_for(10 * INTERVAL_S)
    for producer in producers.values():
        producer.is_running = False
    cluster.run_for(2 * INTERVAL_S)
    return {each: set(producer.acknowledged_at) for each, producer in producers.items()}


# -- the experiment --------------------------------------------------------------------------------


def _designs() -> list[str]:
    return [PRODUCT, FORMER]


def runs(options: LabOptions) -> list[Run]:
    chosen = options.designs or tuple(_designs())
    duration_s = 40.0 if options.is_small else 120.0
    found = [Run(strike, (seed, name, duration_s)) for seed in options.seeds for name in chosen]
    if PRODUCT in chosen:
        found += [
            Run(last_replica_standing, (options.seeds.start, keeps_disk))
            for keeps_disk in (True, False)
        ]
    return found


def summarize(
    options: LabOptions, results: Sequence[Sequence[RecordTally] | Sequence[LastReplica]]
) -> ExperimentResult:
    totals: dict[tuple[str, Combination], RecordTally] = {}
    scripted: list[LastReplica] = []
    for each in (each for result in results for each in result):
        if isinstance(each, LastReplica):
            scripted.append(each)
        else:
            key = each.design, each.combination
            totals[key] = totals[key] + each if key in totals else each
    tallies = list(totals.values())
    return ExperimentResult(
        experiment=NAME,
        question=QUESTION,
        designs=options.designs or _designs(),
        finding=_finding(totals, scripted),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(NAME, options),
        tables=[_trade_table(tallies, len(options.seeds)), _scripted_table(scripted)],
        charts=[_trade(tallies)],
        failed_expectations=[
            *_not_shown_by_script(scripted),
            *([] if options.is_small else _not_shown_by_chance(totals)),
        ],
    )


def _trade_table(tallies: Sequence[RecordTally], schedules: int) -> Table:
    return Table(
        f"{schedules} schedules of random failures, three replicas, each up for {MIX.up_s:g} s on average, "
        f"{MIX.kinds[OutageKind.NEW_DISK] / sum(MIX.kinds.values()):.0%} of the failures with an empty disk. "
        f"The figures depend on this mix, also whether anything is lost. {MIX_HISTORY}",
        (
            "design",
            "acks",
            "min.insync",
            "unclean",
            "writable, % of the time",
            "acknowledged",
            "lost",
            "lost without an operator",
            "lost after an operator's election",
            "schedules with losses",
            "schedules that an operator ended",
            "read and lost",
        ),
        [
            (
                each.design,
                "all" if each.combination.acks == ALL else each.combination.acks,
                each.combination.min_insync,
                str(each.combination.unclean).lower(),
                round(100 * each.writable, 1),
                each.acknowledged,
                each.lost,
                each.lost_unattended,
                each.lost_by_operator,
                each.schedules_with_loss,
                each.left_offline,
                each.read_and_lost,
            )
            for each in tallies
        ],
    )


def _scripted_table(scripted: Sequence[LastReplica]) -> Table:
    return Table(
        "acks=all, step by step: both followers die, the leader writes on alone and dies, the followers return, "
        "then the leader",
        (
            "min.insync",
            "unclean",
            "leader's disk",
            "acknowledged alone",
            "writable without it",
            "of these readable without it",
            "lost in the end",
            "left offline",
        ),
        [
            (
                each.combination.min_insync,
                str(each.combination.unclean).lower(),
                "kept" if each.keeps_disk else "lost",
                each.acknowledged_alone,
                "yes" if each.writable_without_leader else "no",
                each.readable_without_leader,
                each.lost,
                "yes" if each.left_offline else "no",
            )
            for each in scripted
        ],
    )


def _trade(tallies: Sequence[RecordTally]) -> Chart:
    return Chart(
        "The trade: time in which one can write, against acknowledged records that are lost",
        "scatter",
        "% of the time writable",
        f"records lost per million acknowledged (none: drawn at {NONE_LOST:g})",
        {
            each.combination.label + ("" if each.design == PRODUCT else f" ({each.design})"): [
                (round(100 * each.writable, 2), max(NONE_LOST, each.lost_per_million))
            ]
            for each in tallies
        },
        log_y=True,
    )


def _finding(
    totals: dict[tuple[str, Combination], RecordTally], scripted: Sequence[LastReplica]
) -> str:
    durable, available = (totals.get((PRODUCT, each)) for each in (DURABLE, AVAILABLE))
    if durable is None or available is None:
        return "The product was not measured; the table has the figures."
    alone = [each for each in scripted if each.combination.min_insync == 1]
    former = totals.get((FORMER, DURABLE))
    without_elr = "" if former is None else f"; without the ELR it lost {_losses(former)}"
    return (
        f"In {durable.schedules} schedules of this mix of failures, durability first ({DURABLE.label}) could be written "
        f"{durable.writable:.0%} of the time and lost {_losses(durable)}{without_elr}; availability first ({AVAILABLE.label}) "
        f"could be written {available.writable:.0%} and lost {_losses(available)}; with min.insync.replicas 1 a leader alone "
        f"acknowledged {sum(each.acknowledged_alone for each in alone)} records of acks=all in the scripted schedules, of "
        f"which {sum(each.lost for each in alone)} were lost."
    )


def _losses(tally: RecordTally) -> str:
    after_operator = (
        f", {tally.lost_by_operator} of them where an operator ended the schedule with an unclean election "
        f"({tally.left_offline} schedules)"
        if tally.left_offline
        else ""
    )
    return (
        f"{tally.lost} of {tally.acknowledged} acknowledged records (schedules with losses: "
        f"{tally.schedules_with_loss}){after_operator}"
    )


def _not_shown_by_script(scripted: Sequence[LastReplica]) -> list[str]:
    failed = []

    def expect(what: str, holds: bool, of: LastReplica) -> None:
        if not holds:
            failed.append(f"{what}: {of}")

    for each in scripted:
        unclean, alone = each.combination.unclean, each.acknowledged_alone
        if each.combination.min_insync > 1:
            expect("P19: too few in sync, nothing is acknowledged", alone == 0, each)
            continue
        expect("P20: an ISR of one acknowledges acks=all", alone > 0, each)
        expect(
            "P30: only an unclean election goes on", each.writable_without_leader == unclean, each
        )
        lost = unclean or not each.keeps_disk
        expect("P20, P30: what was lost", each.lost == (alone if lost else 0), each)
        waits = not unclean and not each.keeps_disk
        expect(
            "P30: a clean election waits for ever for a lost disk", each.left_offline == waits, each
        )
    return failed


def _not_shown_by_chance(totals: dict[tuple[str, Combination], RecordTally]) -> list[str]:
    """The directions of the trade (P31), and what the ELR is for."""
    failed = []
    durable, former = totals.get((PRODUCT, DURABLE)), totals.get((FORMER, DURABLE))
    if durable is not None and former is not None and durable.lost > former.lost:
        failed.append(f"the ELR keeps records: {former}, {durable}")
    for name in _designs():
        of = {combination: each for (design, combination), each in totals.items() if design == name}
        for one, each in of.items():
            stricter = of.get(one._replace(min_insync=one.min_insync + 1))
            if one.acks == ALL and stricter is not None and stricter.writable > each.writable:
                failed.append(f"P31: a larger minimum costs time: {each}, {stricter}")
            clean = of.get(one._replace(unclean=False))
            if one.unclean and clean is not None and clean.lost > each.lost:
                failed.append(f"P31: unclean elections cost records: {clean}, {each}")
            all_in_sync = of.get(one._replace(acks=ALL))
            if one.acks != ALL and all_in_sync is not None and all_in_sync.lost > each.lost:
                failed.append(f"P31: fewer acks cost records: {all_in_sync}, {each}")
    return failed


EXPERIMENT = Experiment(
    name=NAME,
    title="min.insync.replicas and unclean elections",
    question=QUESTION,
    promises=("P20", "P30", "P31"),
    designs=_designs,
    default_seeds=60,
    small_seeds=2,
    runs=runs,
    summarize=summarize,
)
