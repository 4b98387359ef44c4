"""Copies without a leader against one leader: the links, and the order and agreement that are lost (P43).

Writers at each copy write at the same moments in both designs; with one leader all of them write to it. When
everything is copied, a consumer reads each copy from its beginning, and the logs on the disks are compared. In a second
kind of run one machine loses its power for ever in the middle: what was acknowledged and is on no other copy is lost.
The leader has acknowledged all writes until then and a copy without a leader its share, so losses are compared by what
the dead machine had acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from uuid import UUID

from ottla.lab.design import design_named
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.open_loop import OpenLoopWriter, find_leader, percentile, poisson
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.lab.wire_counts import Line
from ottla.records.batch import batches
from ottla.records.record import records as records_of
from ottla.sim.clients.connections import ClientConnections, PartitionLeader
from ottla.sim.clients.record_content import name_of
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.wire.types import TopicPartition

NAME = "leaderless"
WITHOUT, WITH = "leaderless", "pull"
"""The designs: without a leader, and the product."""
PARTITION = TopicPartition("orders", 0)
ALL, LEADER_ONLY = -1, 1
COPIES = (3, 5)
SMALL_COPIES = (3,)
RATES = (10, 100, 1_000, 10_000)
SMALL_RATES = (1_000,)
LOSS_RATE = 10_000
DEATHS = 5
SMALL_DEATHS = 1
"""For each seed: one death hits a handful of records, so few deaths say little."""
RECORDS = 150
SMALL_RECORDS = 60
SETTLE_S_MAX = 60.0
SETTLE_S = 3.0
FAILOVER_S_MAX = 30.0
ATTEMPT_S = 0.5
ANY_EPOCH = -1


@dataclass(frozen=True)
class Agreement:
    """One run without faults."""

    design: str
    copies: int
    rate: int
    acks: int
    links: int
    """Pairs of brokers that exchange records."""
    connections: int
    messages: float
    """Between brokers, for each record."""
    bytes: float
    p50_ms: float
    p99_ms: float
    records: int
    read_differently: int
    """Offsets at which a consumer got different records from two copies."""
    inversions: int
    """Pairs of records that two copies have in different orders; the worst two copies."""
    lacking: int
    """Records that some copy does not have at the end."""


@dataclass(frozen=True)
class Loss:
    """One run in which a copy dies."""

    design: str
    copies: int
    acks: int
    acknowledged: int
    by_the_dead: int
    """Of them, by the copy that dies: the leader has taken all writes, a copy without a leader its share."""
    lost: int
    first_write_s: float | None
    """From the death to the first acknowledged write; None if there was none."""


def is_exchange(line: Line) -> bool:
    return line.port == BROKER_PORT and line.api == "fetch"


def inversions(one: Sequence[str], other: Sequence[str]) -> int:
    """Pairs that are in both, in different orders."""
    place = {value: at for at, value in enumerate(other)}
    order = [place[value] for value in one if value in place]

    def count(part: list[int]) -> tuple[int, list[int]]:
        if len(part) < 2:
            return 0, part
        middle = len(part) // 2
        of_left, left = count(part[:middle])
        of_right, right = count(part[middle:])
        merged: list[int] = []
        across, at = 0, 0
        for value in left:
            while at < len(right) and right[at] < value:
                merged.append(right[at])
                at += 1
            across += at
            merged.append(value)
        return of_left + of_right + across, merged + right[at:]

    return count(order)[0]


def _writers(
    cluster: LabCluster, design: str, brokers: Sequence[int], acks: int
) -> tuple[UUID, int, list[OpenLoopWriter]]:
    """(topic id, the leader that the controller chose, a writer for each copy)."""
    topic_id, leader = find_leader(cluster, PARTITION)
    return (
        topic_id,
        leader,
        [
            OpenLoopWriter(
                cluster,
                f"w{broker}",
                PARTITION,
                topic_id,
                broker if design == WITHOUT else leader,
                acks,
                broker,
            )
            for broker in brokers
        ],
    )


def _start_writing(
    cluster: LabCluster, writers: Sequence[OpenLoopWriter], rate: int, records: int, seed: int
) -> None:
    """Each writes its share."""
    chance = random.Random(seed)
    for writer in writers:
        share = records // len(writers)
        schedule = poisson(chance, rate / len(writers), share)
        cluster.clients.run(writer.run(schedule))


def _values(cluster: LabCluster, broker: int) -> list[str]:
    return [each.value for each in cluster.records_on_disk(broker, PARTITION)]


def agreement(design: str, copies: int, rate: int, acks: int, records: int, seed: int) -> Agreement:
    """Write at every copy, let everything be copied, and compare."""
    records -= records % copies
    chosen, brokers = design_named(design), range(1, copies + 1)
    with simulated(
        seed, nodes=copies + 1, controllers=1, design=chosen.part, settings=chosen.settings
    ) as cluster:
        cluster.start()
        cluster.create_topic(PARTITION.topic, 1, copies)
        topic_id, _, writers = _writers(cluster, design, brokers, acks)
        cluster.run_for(SETTLE_S)
        before = cluster.counts.copy()
        _start_writing(cluster, writers, rate, records, seed)

        def is_copied() -> bool:
            found = [cluster.replica(broker, PARTITION) for broker in brokers]
            return sum(len(each.acknowledged) for each in writers) == records and all(
                each is not None and each.log.log_end == records for each in found
            )

        cluster.run_until(is_copied, records / rate + SETTLE_S_MAX)
        counts = cluster.counts.since(before)
        used = [line for line in counts.requests if is_exchange(line)]
        cluster.run_for(SETTLE_S)
        read = [_read_all(cluster, topic_id, broker) for broker in brokers]
        logs = [_values(cluster, broker) for broker in brokers]
        latencies = [each.latency_s * 1000 for w in writers for each in w.acknowledged]
        wanted = {each.value for writer in writers for each in writer.sent}
        return Agreement(
            design=design,
            copies=copies,
            rate=rate,
            acks=acks,
            links=len({frozenset((line.client, line.server)) for line in used}),
            connections=len({(line.client, line.server) for line in used}),
            messages=sum(counts.requests[line] + counts.responses[line] for line in used) / records,
            bytes=sum(counts.request_bytes[line] + counts.response_bytes[line] for line in used)
            / records,
            p50_ms=percentile(latencies, 0.5),
            p99_ms=percentile(latencies, 0.99),
            records=records,
            read_differently=sum(len(set(values)) > 1 for values in zip(*read, strict=True)),
            inversions=max(inversions(*pair) for pair in combinations(logs, 2)),
            lacking=sum(len(wanted - set(log)) for log in logs),
        )


def _read_all(cluster: LabCluster, topic_id: UUID, broker: int) -> list[str]:
    """What a consumer reads at one copy, in the order of the offsets."""
    connections = ClientConnections(cluster.clients, cluster.sim.bootstrap, f"reader-{broker}")
    place = PartitionLeader(topic_id, broker, ANY_EPOCH)

    async def read() -> list[str]:
        channel = await connections.at((cluster.sim.nodes[broker].host.name, BROKER_PORT))
        values: list[str] = []
        while True:
            answer, data = await connections.fetch(place, channel, PARTITION, len(values), -1)
            assert not answer.error, answer
            if not data:
                return values
            for batch in batches(data, allow_partial=True):
                for record in records_of(data, batch):
                    assert record.offset == len(values)
                    values.append(name_of(record).decode())

    return cluster.clients.complete(read())


def loss(design: str, copies: int, rate: int, acks: int, records: int, seed: int) -> Loss:
    """One copy, the leader where there is one, loses its power for ever in the middle of the writes."""
    chosen, brokers = design_named(design), range(1, copies + 1)
    with simulated(
        seed, nodes=copies + 1, controllers=1, design=chosen.part, settings=chosen.settings
    ) as cluster:
        cluster.start()
        cluster.create_topic(PARTITION.topic, 1, copies)
        topic_id, leader, writers = _writers(cluster, design, brokers, acks)
        cluster.run_for(SETTLE_S)
        _start_writing(cluster, writers, rate, records, seed)

        def acknowledged() -> set[str]:
            return {each.value for writer in writers for each in writer.acknowledged}

        half = records // 2
        assert cluster.run_until(lambda: len(acknowledged()) >= half, SETTLE_S_MAX)
        cluster.sim.nodes[leader].kill(power_loss=True)
        survivors = [broker for broker in brokers if broker != leader]
        first_write_s = _first_write(cluster, topic_id, survivors, acks)
        cluster.run_for(SETTLE_S)
        kept = {value for broker in survivors for value in _values(cluster, broker)}
        promised = acknowledged()
        by_the_dead = {
            each.value
            for broker, writer in zip(brokers, writers, strict=True)
            if design != WITHOUT or broker == leader
            for each in writer.acknowledged
        }
        lost = promised - kept
        assert lost <= by_the_dead, "a copy that lives keeps what it acknowledged"
        return Loss(design, copies, acks, len(promised), len(by_the_dead), len(lost), first_write_s)


def _first_write(
    cluster: LabCluster, topic_id: UUID, brokers: Sequence[int], acks: int
) -> float | None:
    """A client tries the brokers in turn until one acknowledges a record."""
    began, attempt = cluster.now, 0
    while cluster.now - began < FAILOVER_S_MAX:
        broker = brokers[attempt % len(brokers)]
        attempt += 1
        writer = OpenLoopWriter(
            cluster, f"probe{attempt}", PARTITION, topic_id, broker, acks, 1000 + attempt
        )
        cluster.clients.run(writer.run((0.0,)))
        cluster.run_until(lambda w=writer: bool(w.acknowledged), ATTEMPT_S)  # type: ignore[misc]
        if writer.acknowledged:
            return cluster.now - began
    return None


def runs(options: LabOptions) -> list[Run]:
    copies = SMALL_COPIES if options.is_small else COPIES
    rates = SMALL_RATES if options.is_small else RATES
    records = SMALL_RECORDS if options.is_small else RECORDS
    deaths = SMALL_DEATHS if options.is_small else DEATHS
    kinds = [
        (design, number, acks)
        for design in _designs(options)
        for number in copies
        for acks in (ALL, LEADER_ONLY)
    ]
    return [
        Run(agreement, (design, number, rate, acks, records, seed))
        for design, number, acks in kinds
        for rate in rates
        for seed in options.seeds
    ] + [
        Run(loss, (design, number, LOSS_RATE, acks, records, seed * deaths + death))
        for design, number, acks in kinds
        for seed in options.seeds
        for death in range(deaths)
    ]


def _designs(options: LabOptions) -> list[str]:
    return list(options.designs) or [WITH, WITHOUT]


def summarize(options: LabOptions, found: Sequence[Agreement | Loss]) -> ExperimentResult:
    agreements = [each for each in found if isinstance(each, Agreement)]
    losses = [each for each in found if isinstance(each, Loss)]
    return ExperimentResult(
        experiment=NAME,
        question=EXPERIMENT.question,
        designs=_designs(options),
        finding=_finding(agreements, losses),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(NAME, options),
        tables=[_links_table(agreements), _order_table(agreements), _loss_table(losses)],
        charts=_charts(agreements, losses),
        contradictions=_contradictions(agreements, losses),
        failed_expectations=_failed(agreements, losses),
    )


def _acks_text(acks: int) -> str:
    return "all" if acks == ALL else str(acks)


def _grouped(found: Sequence[Agreement], *names: str) -> dict[tuple[object, ...], list[Agreement]]:
    groups: dict[tuple[object, ...], list[Agreement]] = {}
    for each in found:
        groups.setdefault(tuple(getattr(each, name) for name in names), []).append(each)
    return groups


def _sorted(groups: dict[tuple[object, ...], list[Agreement]]) -> list[list[Agreement]]:
    """The designs under each other: by copies, acks and rate."""
    return sorted(groups.values(), key=lambda g: (g[0].copies, g[0].acks, g[0].rate))


def _links_table(found: Sequence[Agreement]) -> Table:
    return Table(
        "Links between the copies, and what goes over them for each record",
        ("copies", "design", "links", "connections", "records/s", "messages", "bytes"),
        [
            (
                group[0].copies,
                group[0].design,
                max(each.links for each in group),
                max(each.connections for each in group),
                group[0].rate,
                round(fmean(each.messages for each in group), 1),
                round(fmean(each.bytes for each in group)),
            )
            for group in _sorted(_grouped(found, "copies", "rate", "design"))
        ],
    )


def _order_table(found: Sequence[Agreement]) -> Table:
    return Table(
        "Order and agreement when everything is copied, and the time from sending to acknowledgement",
        (
            "copies",
            "design",
            "acks",
            "records/s",
            "records",
            "read differently",
            "pairs in another order",
            "p50 ms",
            "p99 ms",
        ),
        [
            (
                group[0].copies,
                group[0].design,
                _acks_text(group[0].acks),
                group[0].rate,
                sum(each.records for each in group),
                sum(each.read_differently for each in group),
                sum(each.inversions for each in group),
                round(fmean(each.p50_ms for each in group), 2),
                round(fmean(each.p99_ms for each in group), 2),
            )
            for group in _sorted(_grouped(found, "copies", "design", "acks", "rate"))
        ],
    )


def _loss_table(found: Sequence[Loss]) -> Table:
    return Table(
        "A copy dies for ever: the leader with all writes, or a copy without a leader with its share,"
        f" {LOSS_RATE:,} records/s",
        (
            "copies",
            "design",
            "acks",
            "deaths",
            "acknowledged",
            "by the dead copy",
            "lost",
            "lost % of the dead copy's",
            "next write after s",
        ),
        [
            (
                copies,
                design,
                _acks_text(acks),
                len(group),
                sum(each.acknowledged for each in group),
                sum(each.by_the_dead for each in group),
                sum(each.lost for each in group),
                round(_lost_percent(group), 1),
                _mean_wait(group),
            )
            for (copies, design, acks), group in _by_kind(found).items()
        ],
    )


def _by_kind(found: Sequence[Loss]) -> dict[tuple[int, str, int], list[Loss]]:
    groups: dict[tuple[int, str, int], list[Loss]] = {}
    for each in found:
        groups.setdefault((each.copies, each.design, each.acks), []).append(each)
    return groups


def _lost_percent(group: Sequence[Loss]) -> float:
    """Of the records that the dead copies had acknowledged."""
    had = sum(each.by_the_dead for each in group)
    return 100 * sum(each.lost for each in group) / had if had else 0.0


def _mean_wait(group: Sequence[Loss]) -> float | str:
    waits = [each.first_write_s for each in group if each.first_write_s is not None]
    return round(fmean(waits), 3) if len(waits) == len(group) else f"over {FAILOVER_S_MAX:.0f}"


def _charts(agreements: Sequence[Agreement], losses: Sequence[Loss]) -> list[Chart]:
    by_rate = _grouped(agreements, "design", "copies", "rate")
    by_acks = _grouped(agreements, "design", "copies", "acks", "rate")
    differently: dict[str, list[tuple[int, float]]] = {}
    for group in by_rate.values():
        first = group[0]
        share = sum(each.read_differently for each in group) / sum(each.records for each in group)
        differently.setdefault(f"{first.design}, {first.copies} copies", []).append(
            (first.rate, 100 * share)
        )
    latency: dict[str, list[tuple[int, float]]] = {}
    for group in by_acks.values():
        first = group[0]
        if first.copies == min(each.copies for each in agreements):
            name = f"{first.design}, acks={_acks_text(first.acks)}"
            latency.setdefault(name, []).append((first.rate, fmean(g.p50_ms for g in group)))
    links: dict[str, list[tuple[str, float]]] = {}
    for group in _grouped(agreements, "design", "copies").values():
        first = group[0]
        links.setdefault(first.design, []).append(
            (f"{first.copies} copies", max(each.links for each in group))
        )
    lost: dict[str, list[tuple[str, float]]] = {}
    for (copies, design, acks), deaths in _by_kind(losses).items():
        kind = f"{copies} copies, acks={_acks_text(acks)}"
        lost.setdefault(design, []).append((kind, _lost_percent(deaths)))
    fewest = min(each.copies for each in agreements)
    return [
        Chart(
            "Offsets at which a consumer reads different records at two copies",
            "line",
            "records a second",
            "% of the offsets",
            differently,
            log_x=True,
        ),
        Chart("Links between the copies", "bar", "", "pairs of brokers", links),
        Chart(
            f"From sending to acknowledgement, {fewest} copies, median",
            "line",
            "records a second",
            "milliseconds",
            latency,
            log_x=True,
        ),
        Chart(
            "Lost with a dead copy, of the records that it had acknowledged",
            "bar",
            "",
            "% of its records",
            lost,
        ),
    ]


def _finding(agreements: Sequence[Agreement], losses: Sequence[Loss]) -> str:
    most = max(each.copies for each in agreements)
    order, at_once, by_all = [], [], []
    for design in dict.fromkeys(each.design for each in agreements):
        name = "without a leader" if design == WITHOUT else "with one leader"
        own = [each for each in agreements if each.design == design and each.copies == most]
        records = sum(each.records for each in own)
        differently = 100 * sum(each.read_differently for each in own) / records
        order.append(
            f"{max(each.links for each in own)} links and different records at {differently:.0f}% of the"
            f" offsets {name}"
        )
        of_acks = {
            acks: [each for each in losses if (each.design, each.acks) == (design, acks)]
            for acks in (LEADER_ONLY, ALL)
        }
        deaths = of_acks[LEADER_ONLY]
        at_once.append(
            f"{sum(each.lost for each in deaths)} of {sum(each.by_the_dead for each in deaths):,}"
            f" ({_lost_percent(deaths):.1f}%) {name}"
        )
        by_all.append(str(sum(each.lost for each in of_acks[ALL])))
    return (
        f"{most} copies have {', and '.join(order)}. Of the records that a dead machine had acknowledged with"
        f" acks=1, {', and '.join(at_once)} are lost; with acks=all {' and '.join(by_all)}."
    )


def _contradictions(agreements: Sequence[Agreement], losses: Sequence[Loss]) -> list[str]:
    found = []

    def wait(design: str, acks: int) -> float | str | None:
        group = [each for each in losses if (each.design, each.acks) == (design, acks)]
        return _mean_wait(group) if group else None

    without, leader = wait(WITHOUT, LEADER_ONLY), wait(WITH, LEADER_ONLY)
    if isinstance(without, float) and isinstance(leader, float) and without < leader:
        found.append(
            "Document 004 calls the design with a leader the more robust one. For writes with acks=1 the copies"
            " without a leader are: after the death of a copy the next write is acknowledged after"
            f" {without:.3f} s, with a leader after {leader:.1f} s, when another one leads."
        )
    return found


def _failed(agreements: Sequence[Agreement], losses: Sequence[Loss]) -> list[str]:
    failed = []
    for each in agreements:
        pairs = each.copies * (each.copies - 1) // 2
        wanted = pairs if each.design == WITHOUT else each.copies - 1
        what = f"{each.design}, {each.copies} copies, {each.rate} records/s"
        if each.links != wanted:
            failed.append(f"{what}: {each.links} links, not {wanted}")
        if each.lacking:
            failed.append(f"{what}: {each.lacking} records were not copied")
        if each.design == WITH and (each.read_differently or each.inversions):
            failed.append(f"{what}: the replicas disagree")
    for death in losses:
        if death.lost and death.acks == ALL:
            failed.append(f"{death.design}: {death.lost} records lost with acks=all")
    without = [each for each in agreements if each.design == WITHOUT]
    if without and not sum(each.read_differently for each in without):
        failed.append("copies without a leader did not disagree")
    return failed


EXPERIMENT = Experiment(
    name=NAME,
    title="Copies without a leader",
    question="What is lost if every copy takes reads and writes, and no one leads?",
    promises=("P43",),
    designs=lambda: (WITH, WITHOUT),
    default_seeds=3,
    small_seeds=1,
    runs=runs,
    summarize=summarize,
)
