"""What it costs to survive f failures, and what happens at one more: the ISR against a majority quorum (P41, P42).

Four ways to place the same partition:

- `isr`, f+1 replicas: the documents' primary-backup replication. min.insync.replicas is 1, so the group may shrink to one.
- `isr`, f+1 replicas, min.insync.replicas f+1: no record without f+1 copies, and no write without all replicas.
- `isr`, 2f+1 replicas, min.insync.replicas f+1: what is run in practice (for f = 1: three replicas, minimum two). Writes
  survive f failures, and no acknowledged record has fewer than f+1 copies.
- `majority`, 2f+1 replicas.

Costs are measured in a healthy cluster, with one slow replica, and while one replica is cut off. Then brokers are really
removed: f of them and f+1, from the side where it hurts. Once when all replicas are in step, and once when f replicas lag
behind and the others have written on without them. Removed machines come back, with their disks or with empty ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ottla.lab.commit.clients import (
    OpenLoopProducer,
    PartitionReader,
    create_assigned_topics,
    elect_uncleanly,
)
from ottla.lab.commit.design import CommitDesign
from ottla.lab.design import Design, design_named
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.replica.leader import Leadership
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.cluster.nodes import BROKER_PORT, DATA
from ottla.wire.types import TopicPartition

NAME = "f-failures"
QUESTION = "What does it cost to survive f failures, and what happens at one more?"

BACKUP, STRICT, PRACTICE = "isr, f+1", "isr, f+1, min f+1", "isr, 2f+1, min f+1"
QUORUM = "majority, 2f+1"

PARTITION = TopicPartition("f-failures", 0)
VALUE_BYTES = 1000
LAG_TIME_MAX_S = 30.0
"""replica.lag.time.max.ms, as Kafka's default."""
SLOW_S = 0.05
"""What the line of the slow replica adds, each way. It stays in the ISR."""
CUT_OFF_S = 60.0
"""Longer than the ISR waits for a replica: 1.5 times the lag time at most."""
WAIT_S = 15.0
"""After brokers were removed or came back: a broker session is over after 9 s, then there is an election."""
ANSWER_S = 5.0
"""How long a client that cannot write or read tries."""


class Variant(NamedTuple):
    """One way to place a partition that is to survive f failures."""

    label: str
    design: str
    replicas: int
    min_insync: int


def variants(f: int) -> list[Variant]:
    return [
        Variant(BACKUP, "isr", f + 1, 1),
        Variant(STRICT, "isr", f + 1, f + 1),
        Variant(PRACTICE, "isr", 2 * f + 1, f + 1),
        Variant(QUORUM, "majority", 2 * f + 1, 1),
    ]


def with_one_replica_less(f: int) -> list[Variant]:
    """Too few for f failures."""
    return [
        Variant("isr, f", "isr", f, 1),
        Variant("majority, 2f", "majority", 2 * f, 1),
    ]


class Laboratory:
    """A cluster with the partition on all its brokers, its producer, and a count of copies at each commit. The controller is
    a machine of its own that does not fail."""

    def __init__(self, cluster: LabCluster, variant: Variant, counts: CopyCounts) -> None:
        self.cluster = cluster
        self.variant = variant
        self.copies = counts
        self.brokers = range(1, variant.replicas + 1)
        self._producers = 0
        cluster.start()
        settings = {"min.insync.replicas": str(variant.min_insync)}
        work = create_assigned_topics(
            self.connections("admin"), self.brokers, {PARTITION.topic: settings}
        )
        cluster.clients.complete(work)
        counts.watch(cluster, self.brokers)

    def connections(self, name: str) -> ClientConnections:
        sim = self.cluster.sim
        addresses = [(sim.nodes[id].host.name, BROKER_PORT) for id in self.brokers]
        return ClientConnections(self.cluster.clients, addresses, name)

    def produce(self, seconds: float, interval_s: float) -> OpenLoopProducer:
        """Records at fixed times for that long, and then until each has its outcome."""
        self._producers += 1
        name = f"p{self._producers}"
        producer = OpenLoopProducer(
            self.connections(name),
            PARTITION,
            name,
            interval_s=interval_s,
            value_bytes=VALUE_BYTES,
            timeout_s=2 * CUT_OFF_S,
        )
        self.cluster.clients.run(producer.run())
        self.cluster.run_for(seconds)
        producer.is_running = False
        self.cluster.run_until(lambda: producer.is_settled, CUT_OFF_S)
        return producer

    def can_write(self) -> bool:
        """Whether one of several records is acknowledged."""
        self._producers += 1
        name = f"p{self._producers}"
        probe = OpenLoopProducer(
            self.connections(name), PARTITION, name, interval_s=0.5, timeout_s=2.0
        )
        self.cluster.clients.run(probe.run())
        self.cluster.run_until(lambda: bool(probe.acknowledged_at), ANSWER_S)
        probe.is_running = False
        return bool(probe.acknowledged_at)

    def readable(self) -> set[str]:
        """Every record that a consumer can read now."""
        reader = PartitionReader(self.connections("reader"), PARTITION)
        with suppress(TimeoutError):  # there is no leader
            self.cluster.clients.complete(reader.read_to_end(), ANSWER_S)
        return set(reader.read)

    @property
    def leader(self) -> int:
        assert self.has_leader, "the partition has no leader"
        return self._leaders[0]

    @property
    def has_leader(self) -> bool:
        return bool(self._leaders)

    @property
    def _leaders(self) -> list[int]:
        replicas = {id: self.cluster.replica(id, PARTITION) for id in self.brokers}
        return [id for id, each in replicas.items() if each is not None and each.leadership]

    def elect_uncleanly(self) -> None:
        """An operator gives up waiting."""
        self.cluster.clients.complete(elect_uncleanly(self.connections("operator"), PARTITION))
        self.cluster.run_until(lambda: self.has_leader, WAIT_S)

    def name(self, broker: int) -> str:
        return self.cluster.sim.nodes[broker].host.name

    @property
    def controller(self) -> str:
        """The name of its machine."""
        return self.name(self.variant.replicas + 1)


@contextmanager
def laboratory(
    seed: int, variant: Variant, counts: CopyCounts | None = None
) -> Iterator[Laboratory]:
    """Ready to produce."""
    design = design_named(variant.design)
    assert isinstance(design.part, CommitDesign)
    counts = counts or CopyCounts()
    with simulated(
        seed,
        nodes=variant.replicas + 1,
        controllers=1,
        make_node=design.part.make_node(counts.committing),
        settings=_settings(design),
    ) as cluster:
        yield Laboratory(cluster, variant, counts)


class CopyCounts:
    """How many replicas have a record at the moment when it is committed. No leader knows that number: the simulator looks it
    up in the memory of the replicas. The least of these numbers stands for the acknowledgements that a leader awaits."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        """By record, in the order of commits."""
        self._cluster: LabCluster | None = None
        self._brokers: Sequence[int] = ()

    def watch(self, cluster: LabCluster, brokers: Sequence[int]) -> None:
        self._cluster, self._brokers = cluster, brokers

    def committing(self, leadership: Leadership, committed: int) -> None:
        if self._cluster is None or leadership.partition.key != PARTITION:
            return
        replicas = [self._cluster.replica(id, PARTITION) for id in self._brokers]
        ends = [replica.log.log_end for replica in replicas if replica is not None]
        for offset in range(leadership.log.high_watermark, committed):
            self.counted.append(sum(end > offset for end in ends))

    def take(self) -> list[int]:
        counted, self.counted = self.counted, []
        return counted


def _settings(design: Design) -> dict[str, str]:
    return {
        "replica.lag.time.max.ms": str(int(LAG_TIME_MAX_S * 1000)),
        # No-op records of the controller say nothing here, and take time to simulate.
        "metadata.max.idle.interval.ms": "5000",
        **design.settings,
    }


# -- what it costs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latencies:
    p50_ms: float | None
    """None: nothing was acknowledged."""
    p99_ms: float | None
    longest_pause_s: float
    """The longest time without an acknowledgement while records were sent."""
    acknowledged: int
    sent: int


@dataclass(frozen=True)
class Costs:
    seed: int
    f: int
    variant: Variant
    disk_bytes_per_byte: float
    """Bytes on all disks for each byte of the producer's batches."""
    wire_bytes_per_record: float
    """Of fetches between brokers: requests and responses."""
    copies_healthy: tuple[int, float]
    """At the commit, as the simulator sees them: least and mean."""
    healthy: Latencies
    slow: Latencies
    copies_slow: int
    cut_off: Latencies
    after: Latencies
    """While the replica is still cut off and the ISR, if it may, goes on without it."""


def measure_costs(seed: int, f: int, variant: Variant, seconds: float) -> Costs:
    counts = CopyCounts()
    with laboratory(seed, variant, counts) as lab:
        cluster = lab.cluster
        cluster.run_for(1.0)
        before = cluster.counts.copy()
        healthy = lab.produce(seconds, 0.01)
        cluster.run_for(1.0)
        moved = cluster.counts.since(before)
        brokers = {lab.name(id) for id in lab.brokers}
        fetches = moved.where(
            lambda line: line.api == "fetch" and line.client in brokers and line.port == BROKER_PORT
        )
        disk_bytes = sum(_log_bytes(cluster, id) for id in lab.brokers)
        copies = counts.take()
        leader = lab.leader
        follower = next(id for id in lab.brokers if id != leader)
        ways = [
            (lab.name(leader), lab.name(follower)),
            (lab.name(follower), lab.name(leader)),
        ]
        for way in ways:
            cluster.world.network.conditions.slow_links[way] = SLOW_S
        slow = lab.produce(seconds, 0.01)
        copies_slow = counts.take()
        for way in ways:
            del cluster.world.network.conditions.slow_links[way]
        cluster.run_for(1.0)
        cluster.world.network.partition([ways[0][0]], [ways[0][1]])
        cut_off = lab.produce(CUT_OFF_S, 0.5)
        after = lab.produce(seconds, 0.01)
        return Costs(
            seed,
            f,
            variant,
            disk_bytes / healthy.batch_bytes,
            fetches.bytes / len(healthy.acknowledged_at),
            (min(copies), sum(copies) / len(copies)),
            _latencies(healthy),
            _latencies(slow),
            min(copies_slow),
            _latencies(cut_off),
            _latencies(after),
        )


def _log_bytes(cluster: LabCluster, broker: int) -> int:
    """Of the partition's log on the broker's disk."""
    disk = cluster.sim.nodes[broker].host.disk
    directory = f"{DATA}/{PARTITION.topic}-{PARTITION.partition}"
    names = [name for name in disk.list_dir(directory) if name.endswith(".log")]
    return sum(len(disk.peek(f"{directory}/{name}")) for name in names)


def _latencies(producer: OpenLoopProducer) -> Latencies:
    took = sorted(at - producer.sent_at[value] for value, at in producer.acknowledged_at.items())
    sent = sorted(producer.sent_at.values())
    moments = [sent[0], *sorted(producer.acknowledged_at.values()), sent[-1]]
    pause = max(
        (max(0.0, later - earlier) for earlier, later in pairwise(moments)),
        default=0.0,
    )
    return Latencies(
        _percentile_ms(took, 0.50),
        _percentile_ms(took, 0.99),
        pause,
        len(took),
        len(sent),
    )


def _percentile_ms(sorted_s: Sequence[float], share: float) -> float | None:
    return round(sorted_s[int(share * (len(sorted_s) - 1))] * 1000, 3) if sorted_s else None


# -- what is lost ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Removal:
    """What was left after some brokers were removed."""

    seed: int
    f: int
    variant: Variant
    removed: int
    lagging: bool
    """Whether f replicas lagged behind before."""
    keep_disks: bool
    acknowledged: int
    readable_before_write: int
    """Acknowledged records that can be read while the brokers are gone, and before anybody writes again."""
    readable: int
    """The same after an attempt to write."""
    writable: bool
    needs_operator: bool
    """After the return only an unclean election, ordered by an operator, gave the partition a leader."""
    readable_after_return: int
    writable_after_return: bool
    lost: int
    """Acknowledged records that are on no disk any more after the return, and before an operator elects anybody."""


def remove_brokers(
    seed: int, f: int, variant: Variant, removed: int, lagging: bool, keep_disks: bool
) -> Removal:
    with laboratory(seed, variant) as lab:
        cluster = lab.cluster
        acknowledged = set(lab.produce(1.0, 0.02).acknowledged_at)
        leader = lab.leader
        behind = [id for id in lab.brokers if id != leader][::-1][:f] if lagging else []
        ways = []
        if behind:
            others = [lab.name(id) for id in lab.brokers if id not in behind]
            ways = cluster.world.network.partition([lab.name(id) for id in behind], others)
            acknowledged |= set(lab.produce(CUT_OFF_S, 1.0).acknowledged_at)
        # Those that have everything go first, the leader before all.
        order = sorted(lab.brokers, key=lambda id: (id != leader, id in behind, id))
        gone = order[:removed]
        for id in gone:
            node = cluster.sim.nodes[id]
            node.kill(power_loss=not keep_disks)
            if not keep_disks:
                node.host.disk.wipe()
        cluster.world.network.unblock(ways)
        cluster.run_for(WAIT_S)
        before_write = len(acknowledged & lab.readable())
        writable = lab.can_write()
        readable = len(acknowledged & lab.readable())
        for id in gone:
            cluster.sim.nodes[id].start()
        cluster.run_for(WAIT_S)
        # Before an operator's choice removes more.
        stored = {
            record.value for id in lab.brokers for record in cluster.records_on_disk(id, PARTITION)
        }
        needs_operator = not lab.has_leader
        if needs_operator:
            lab.elect_uncleanly()
        writable_after_return = lab.can_write()
        readable_after_return = len(acknowledged & lab.readable())
        return Removal(
            seed,
            f,
            variant,
            removed,
            lagging,
            keep_disks,
            len(acknowledged),
            before_write,
            readable,
            writable,
            needs_operator,
            readable_after_return,
            writable_after_return,
            len(acknowledged - stored),
        )


# -- the experiment --------------------------------------------------------------------------------


def _designs() -> list[str]:
    return ["isr", "majority"]


def runs(options: LabOptions) -> list[Run]:
    return [run for seed in options.seeds for run in _runs_of(seed, options)]


def _runs_of(seed: int, options: LabOptions) -> Iterator[Run]:
    chosen = options.designs or tuple(_designs())
    seconds = 1.0 if options.is_small else 5.0
    disks = (False,) if options.is_small else (True, False)
    for f in (1,) if options.is_small else (1, 2, 3):
        for variant in (each for each in variants(f) if each.design in chosen):
            yield Run(measure_costs, (seed, f, variant, seconds))
            for lagging in (False, True):
                for removed, keep_disks in ((f, False), *((f + 1, keep) for keep in disks)):
                    yield Run(remove_brokers, (seed, f, variant, removed, lagging, keep_disks))
        for variant in with_one_replica_less(f):
            if variant.design in chosen:
                yield Run(remove_brokers, (seed, f, variant, f, False, False))


def summarize(options: LabOptions, results: Sequence[Costs | Removal]) -> ExperimentResult:
    costs = [each for each in results if isinstance(each, Costs)]
    removals = [each for each in results if isinstance(each, Removal)]
    return ExperimentResult(
        experiment=NAME,
        question=QUESTION,
        designs=options.designs or _designs(),
        finding=_finding(costs, removals),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(NAME, options),
        tables=[_cost_table(costs), _latency_table(costs), _removal_table(removals)],
        charts=_charts(costs, removals),
        contradictions=_contradictions(costs, removals),
        failed_expectations=_not_shown(costs, removals),
    )


def _cost_table(costs: Sequence[Costs]) -> Table:
    return Table(
        "What it costs to survive f failures (healthy cluster). Copies at commit: an observation of the simulator in the memory "
        "of all replicas; the least of them stands for the acknowledgements awaited. Bytes between brokers: fetches, requests "
        "and responses",
        (
            "seed",
            "f",
            "placement",
            "replicas",
            "min.insync",
            "bytes on disks per byte",
            "bytes between brokers per record",
            "copies at commit, least",
            "copies at commit, mean",
        ),
        [
            (
                each.seed,
                each.f,
                each.variant.label,
                each.variant.replicas,
                each.variant.min_insync,
                round(each.disk_bytes_per_byte, 2),
                round(each.wire_bytes_per_record),
                each.copies_healthy[0],
                round(each.copies_healthy[1], 2),
            )
            for each in costs
        ],
    )


def _latency_table(costs: Sequence[Costs]) -> Table:
    return Table(
        f"Time to the acknowledgement in ms: healthy; one replica slow ({SLOW_S * 1000:g} ms each way); "
        "one replica cut off, and after the ISR has let it go",
        (
            "seed",
            "f",
            "placement",
            "healthy p50",
            "healthy p99",
            "slow p50",
            "slow p99",
            "copies at commit while slow, least",
            "longest pause after the cut, s",
            "acknowledged after the cut",
            "later p50",
            "later p99",
        ),
        [
            (
                each.seed,
                each.f,
                each.variant.label,
                each.healthy.p50_ms,
                each.healthy.p99_ms,
                each.slow.p50_ms,
                each.slow.p99_ms,
                each.copies_slow,
                round(each.cut_off.longest_pause_s, 1),
                f"{each.cut_off.acknowledged} of {each.cut_off.sent}",
                each.after.p50_ms,
                each.after.p99_ms,
            )
            for each in costs
        ],
    )


def _removal_table(removals: Sequence[Removal]) -> Table:
    return Table(
        "Brokers removed, the leader first. Readable: acknowledged records that a consumer reads. On no disk: when all "
        "brokers are back. By an operator: only an unclean election gave the partition a leader then, and removed what the "
        "elected replica did not have",
        (
            "seed",
            "f",
            "placement",
            "removed",
            "before",
            "disks",
            "acknowledged",
            "readable before the next write",
            "writable",
            "readable",
            "on no disk any more",
            "by an operator",
            "readable after return",
            "writable after return",
        ),
        [
            (
                each.seed,
                each.f,
                each.variant.label,
                each.removed,
                f"{each.f} lag" if each.lagging else "all in step",
                "kept" if each.keep_disks else "lost",
                each.acknowledged,
                each.readable_before_write,
                _yes(each.writable),
                each.readable,
                each.lost,
                _yes(each.needs_operator),
                each.readable_after_return,
                _yes(each.writable_after_return),
            )
            for each in removals
        ],
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _charts(costs: Sequence[Costs], removals: Sequence[Removal]) -> list[Chart]:
    labels = list(dict.fromkeys(each.variant.label for each in costs))
    if not labels:
        return []
    f, seed = max(each.f for each in costs), costs[0].seed
    phases = (
        ("healthy", "healthy"),
        ("one slow replica", "slow"),
        ("one cut off", "cut_off"),
        ("later", "after"),
    )
    firsts = {(each.f, each.variant.label): each for each in costs if each.seed == seed}
    return [
        Chart(
            f"Bytes on all disks for each byte produced (seed {seed})",
            "line",
            "f: failures to survive",
            "bytes",
            {
                label: [
                    (n, each.disk_bytes_per_byte) for (n, at), each in _by_f(firsts) if at == label
                ]
                for label in labels
            },
        ),
        Chart(
            f"Time to the acknowledgement, p99, f = {f}, seed {seed} (no bar: nothing was acknowledged)",
            "bar",
            "",
            "ms",
            {
                label: [
                    (phase, value)
                    for phase, name in phases
                    if (value := getattr(firsts[f, label], name).p99_ms) is not None
                ]
                for label in labels
            },
            log_y=True,
        ),
        Chart(
            f"Acknowledged records that can be read after brokers were lost with their disks, f = {f}, seed {seed} "
            "(after an operator's election, where one was needed)",
            "bar",
            "",
            "% of the acknowledged records",
            {
                label: [
                    (
                        f"{each.removed} lost, {'f lag' if each.lagging else 'in step'}",
                        100 * each.readable_after_return / each.acknowledged,
                    )
                    for each in removals
                    if (each.f, each.seed) == (f, seed)
                    and each.variant.label == label
                    and not each.keep_disks
                ]
                for label in labels
            },
        ),
    ]


def _by_f(firsts: dict[tuple[int, str], Costs]) -> list[tuple[tuple[int, str], Costs]]:
    return sorted(firsts.items(), key=lambda item: item[0][0])


def _finding(costs: Sequence[Costs], removals: Sequence[Removal]) -> str:
    if not {BACKUP, QUORUM} <= {each.variant.label for each in costs}:
        return "One design alone was measured; the tables have its figures."
    of = {label: [c for c in costs if c.variant.label == label] for label in (BACKUP, QUORUM)}
    kept = {label: _share_kept(removals, label, lambda r: r.removed == r.f) for label in of}
    one_more = [r for r in removals if r.variant.label == QUORUM and r.removed > r.f]
    by_operator = sum(r.needs_operator for r in one_more)
    survived = [r for r in removals if r.variant.label == QUORUM and r.removed == r.f]
    return (
        f"Where all replicas are in step, the ISR kept {kept[BACKUP]:.0%} of the acknowledged records through f = "
        f"{_list(c.f for c in of[BACKUP])} lost disks with {_list(c.variant.replicas for c in of[BACKUP])} replicas, and the "
        f"majority {kept[QUORUM]:.0%} with {_list(c.variant.replicas for c in of[QUORUM])}. With one more the ISR of f+1 kept "
        f"{_share_kept(removals, BACKUP, lambda r: r.removed > r.f and not r.keep_disks):.0%}, and the majority took no writes "
        f"in {sum(not r.writable for r in one_more)} of {len(one_more)} cases, {by_operator} of which needed an operator even "
        f"after all brokers were back. Both commit with {_list(c.copies_healthy[0] for c in of[BACKUP])} and "
        f"{_list(c.copies_healthy[0] for c in of[QUORUM])} copies at least. One slow replica costs the ISR a p99 of "
        f"{max(c.slow.p99_ms or 0.0 for c in of[BACKUP]):.0f} ms and the majority {max(c.slow.p99_ms or 0.0 for c in of[QUORUM]):.0f} ms; "
        f"one that is cut off stops the ISR for {max(c.cut_off.longest_pause_s for c in of[BACKUP]):.0f} s. A new leader of "
        f"the majority commits nothing before a record of its own: until then consumers read "
        f"{sum(r.readable_before_write for r in survived)} of {sum(r.acknowledged for r in survived)} acknowledged records."
    )


def _share_kept(removals: Sequence[Removal], label: str, which: Callable[[Removal], bool]) -> float:
    """The share of acknowledged records that can be read at the end, where all replicas were in step."""
    chosen = [r for r in removals if r.variant.label == label and not r.lagging and which(r)]
    return sum(r.readable_after_return for r in chosen) / sum(r.acknowledged for r in chosen)


def _list(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))


def _contradictions(costs: Sequence[Costs], removals: Sequence[Removal]) -> list[str]:
    found = []
    shrunk = [
        r
        for r in removals
        if r.variant.label == BACKUP and r.lagging and r.removed == r.f and r.lost
    ]
    if shrunk:
        lost, of = sum(r.lost for r in shrunk), sum(r.acknowledged for r in shrunk)
        found.append(
            "Document 004: with N+1 replicas a partition loses no committed message as long as one replica does not fail. "
            f"With min.insync.replicas 1 the ISR had shrunk to one replica before: {lost} of {of} acknowledged records "
            "were lost though one replica or more did not fail."
        )
    waiting = [c for c in costs if c.variant.label == PRACTICE and c.copies_healthy[0] > c.f + 1]
    if waiting:
        found.append(
            "Document 004: for N failures the ISR and a majority wait for the same number of copies, N+1. That holds for "
            f"N+1 replicas. With 2N+1 replicas and min.insync.replicas N+1 (N = {_list(c.f for c in waiting)}) the ISR "
            f"waited for {_list(c.copies_healthy[0] for c in waiting)} copies: all that are in sync."
        )
    return found


def _not_shown(costs: Sequence[Costs], removals: Sequence[Removal]) -> list[str]:
    """What the figures must say. Each sentence is said of the runs that contradict it."""
    failed = []

    def expect(what: str, holds: bool, of: Costs | Removal) -> None:
        if not holds:
            failed.append(f"{what}: {of}")

    for c in costs:
        copies = {BACKUP: c.f + 1, STRICT: c.f + 1, PRACTICE: 2 * c.f + 1, QUORUM: c.f + 1}
        expect("copies at commit", c.copies_healthy[0] == copies[c.variant.label], c)
        expect("every replica writes", round(c.disk_bytes_per_byte) == c.variant.replicas, c)
        waits = (c.slow.p50_ms or 0.0) > SLOW_S * 1000
        expect("only the ISR waits for a slow replica", waits != (c.variant.label == QUORUM), c)
        goes_on = c.after.acknowledged > 0
        expect("only all of f+1 stop without one", goes_on != (c.variant.label == STRICT), c)
    for r in removals:
        survives = r.readable_after_return == r.acknowledged and r.lost == 0
        if r.variant.replicas in (r.f, 2 * r.f) and r.variant in with_one_replica_less(r.f):
            expect("one replica less does not do", not r.writable, r)
            continue
        expect("who kept its disks needs no operator", not (r.needs_operator and r.keep_disks), r)
        if r.removed == r.f and not (r.lagging and r.variant.label == BACKUP):
            expect("f failures lose nothing", survives and not r.needs_operator, r)
            expect("f failures stop only all of f+1", r.writable != (r.variant.label == STRICT), r)
        elif r.removed > r.f:
            expect("f+1 failures stop writes", not r.writable, r)
            if not r.keep_disks and (r.lagging or r.variant.replicas == r.f + 1):
                expect("f+1 lost disks lose records", not survives, r)
            else:
                expect("what others hold, or comes back, is not lost", survives, r)
    return failed


EXPERIMENT = Experiment(
    name=NAME,
    title="f failures",
    question=QUESTION,
    promises=("P41", "P42"),
    designs=_designs,
    default_seeds=1,
    small_seeds=1,
    runs=runs,
    summarize=summarize,
)
