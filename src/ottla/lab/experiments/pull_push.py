"""Pull against push: what an acknowledgement for each message costs, and what it buys (P49).

The same records at the same moments, with acks=all, from a trickle to a burst. Everything that the brokers send each
other to replicate them is counted on the wire, and what carries records is decoded. The time from sending to acknowledgement is measured at the producer.
Then the cluster is left alone, and what it sends without any record is counted.

The simulated machines compute in no time. So load is counted in messages and bytes, and latency is that of the network.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from ottla.broker.replication.fetchers import FETCH_VERSION
from ottla.lab.design import Seam, design_named, designs_of
from ottla.lab.designs.push_with_acks import PUSH_PORT
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.harness import LabCluster, simulated
from ottla.lab.open_loop import OpenLoopWriter, find_leader, percentile, poisson
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.lab.wire_counts import KAFKA, Line, WireCounts
from ottla.records.batch import batches
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_request_header, read_response_header
from ottla.wire.types import TopicPartition

NAME = "pull-push"
FETCH = "fetch"
PARTITION = TopicPartition("orders", 0)
ALL = -1
RATES = (10, 100, 1_000, 10_000, 100_000)
SMALL_RATES = (10, 10_000)
FOLLOWERS = (1, 2, 3)
SMALL_FOLLOWERS = (2,)
SHOWN_FOLLOWERS = 2
"""For the charts over the rate."""
RECORDS = 400
SMALL_RECORDS = 100
WARM_UP = (0.0, 0.1, 0.2, 0.3, 0.4)
"""Seconds: records before the measurement, after which both designs are in their usual state."""
IDLE_S = 20.0
ANSWERS_S_MAX = 60.0
LITTLE = 0.05
"""A smaller difference is none."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    design: str
    followers: int
    rate: int
    messages: float
    """Between brokers, for each record."""
    bytes: float
    leader_receives: float
    """Messages for each record."""
    records_per_message: float
    """In the messages that carried records to a follower; those without any record do not count."""
    p50_ms: float
    p99_ms: float
    idle_messages: float
    """A second, without any record."""
    idle_bytes: float
    lacking: int
    """Records that some replica does not have at the end."""


def is_replication(line: Line) -> bool:
    return line.port == PUSH_PORT or (line.port == BROKER_PORT and line.api == FETCH)


def replication(counts: WireCounts) -> WireCounts:
    """Only what moves records."""
    return counts.where(is_replication)


def received_by(counts: WireCounts, host: str) -> int:
    return sum(n for line, n in counts.requests.items() if line.server == host) + sum(
        n for line, n in counts.responses.items() if line.client == host
    )


def records_in_answer(frame: memoryview, body: int) -> int:
    """In the answer to a fetch. A push has the same layout."""
    found = 0
    for partition in codec.read_response(FETCH_VERSION, frame, body).partitions:
        if partition.records:
            assert isinstance(partition.records, memoryview)
            found += sum(each.count for each in batches(partition.records, allow_partial=True))
    return found


def records_in_push(kind: str, frame: memoryview) -> int:
    return records_in_answer(frame, read_request_header(frame).body)


def records_in_fetch(kind: str, frame: memoryview) -> int:
    if kind != FETCH:
        return 0
    _, body = read_response_header(ApiKey.FETCH, FETCH_VERSION, frame)
    return records_in_answer(frame, body)


def count_records(counts: WireCounts) -> None:
    """In all that moves records over connections that are opened from now on."""
    counts.protocols[PUSH_PORT] = KAFKA._replace(records_in_request=records_in_push)
    counts.protocols[BROKER_PORT] = KAFKA._replace(records_in_response=records_in_fetch)


def measure(design: str, followers: int, rate: int, records: int, seed: int) -> Measured:
    """One cluster with one partition: a leader and its followers."""
    chosen = design_named(design)
    with simulated(
        seed,
        nodes=followers + 2,
        controllers=1,
        design=chosen.part,
        settings=chosen.settings,
    ) as cluster:
        count_records(cluster.counts)
        cluster.start()
        cluster.create_topic(PARTITION.topic, 1, followers + 1)
        topic_id, leader = find_leader(cluster, PARTITION)
        writer = OpenLoopWriter(cluster, "writer", PARTITION, topic_id, leader, ALL, 1)
        _write(cluster, writer, WARM_UP)
        cluster.run_for(1.0)
        before = cluster.counts.copy()
        warmed_up = len(writer.sent)
        _write(cluster, writer, poisson(random.Random(seed), rate, records))
        busy = replication(cluster.counts.since(before))
        cluster.run_for(2.0)
        before = cluster.counts.copy()
        cluster.run_for(IDLE_S)
        idle = replication(cluster.counts.since(before))
        host = cluster.sim.nodes[leader].host.name
        latencies = [each.latency_s * 1000 for each in writer.sent[warmed_up:]]
        wanted = {each.value for each in writer.sent}
        return Measured(
            design=design,
            followers=followers,
            rate=rate,
            messages=busy.messages / records,
            bytes=busy.bytes / records,
            leader_receives=received_by(busy, host) / records,
            records_per_message=busy.records.total() / busy.carriers.total(),
            p50_ms=percentile(latencies, 0.5),
            p99_ms=percentile(latencies, 0.99),
            idle_messages=idle.messages / IDLE_S,
            idle_bytes=idle.bytes / IDLE_S,
            lacking=sum(
                len(wanted - {each.value for each in cluster.records_on_disk(broker, PARTITION)})
                for broker in range(1, followers + 2)
            ),
        )


def _write(cluster: LabCluster, writer: OpenLoopWriter, schedule: Sequence[float]) -> None:
    """Until every record is acknowledged."""
    writing = cluster.clients.run(writer.run(schedule))
    limit_s = schedule[-1] + ANSWERS_S_MAX
    assert cluster.run_until(lambda: writing.done() and writer.is_answered, limit_s), "no answer"
    assert not writer.failed, f"{writer.failed} records were refused"


def runs(options: LabOptions) -> list[Run]:
    return [
        Run(measure, (design, followers, rate, _records(options), seed))
        for design in _designs(options)
        for followers in (SMALL_FOLLOWERS if options.is_small else FOLLOWERS)
        for rate in (SMALL_RATES if options.is_small else RATES)
        for seed in options.seeds
    ]


def _records(options: LabOptions) -> int:
    return SMALL_RECORDS if options.is_small else RECORDS


def _designs(options: LabOptions) -> list[str]:
    return list(options.designs) or [each.name for each in designs_of(Seam.TRANSFER)]


def mean(found: Sequence[Measured]) -> Measured:
    """Of the runs with different seeds."""
    first = asdict(found[0])
    figures = {
        name: fmean(asdict(each)[name] for each in found)
        for name, value in first.items()
        if isinstance(value, float)
    }
    return Measured(**{**first, **figures, "lacking": sum(each.lacking for each in found)})


def summarize(options: LabOptions, found: Sequence[Measured]) -> ExperimentResult:
    groups: dict[tuple[str, int, int], list[Measured]] = {}
    for each in found:
        groups.setdefault((each.design, each.followers, each.rate), []).append(each)
    means = {key: mean(group) for key, group in groups.items()}
    designs = _designs(options)
    return ExperimentResult(
        experiment=NAME,
        question=EXPERIMENT.question,
        designs=designs,
        finding=_finding(means),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(NAME, options),
        tables=[_busy_table(means), _idle_table(means)],
        charts=_charts(designs, means),
        contradictions=_contradictions(means),
        failed_expectations=_failed(means),
    )


Means = dict[tuple[str, int, int], Measured]


def _busy_table(means: Means) -> Table:
    return Table(
        "Between the brokers, for each record; latency from sending to acknowledgement (acks=all)",
        (
            "followers",
            "records/s",
            "design",
            "messages",
            "bytes",
            "leader receives",
            "records/message",
            "p50 ms",
            "p99 ms",
        ),
        [
            (
                each.followers,
                each.rate,
                each.design,
                round(each.messages, 2),
                round(each.bytes),
                round(each.leader_receives, 2),
                round(each.records_per_message, 1),
                round(each.p50_ms, 2),
                round(each.p99_ms, 2),
            )
            for each in sorted(means.values(), key=lambda m: (m.followers, m.rate))
        ],
    )


def _idle_table(means: Means) -> Table:
    idle: dict[tuple[int, str], list[Measured]] = {}
    for each in means.values():
        idle.setdefault((each.followers, each.design), []).append(each)
    return Table(
        "Between the brokers without any record, a second",
        ("followers", "design", "messages", "bytes"),
        [
            (
                followers,
                design,
                round(fmean(each.idle_messages for each in group), 2),
                round(fmean(each.idle_bytes for each in group)),
            )
            for (followers, design), group in sorted(idle.items(), key=lambda item: item[0][0])
        ],
    )


def _charts(designs: Sequence[str], means: Means) -> list[Chart]:
    followers = sorted({key[1] for key in means})
    shown = SHOWN_FOLLOWERS if SHOWN_FOLLOWERS in followers else followers[0]
    rates = sorted({key[2] for key in means})
    middle = rates[len(rates) // 2]

    def over_rate(design: str, figure: str) -> list[tuple[int, float]]:
        return [(rate, getattr(means[design, shown, rate], figure)) for rate in rates]

    both = ("messages", "leader_receives", "p50_ms", "p99_ms", "bytes")
    figures = {
        name: {
            design: over_rate(design, name)
            for design in designs
            if (design, shown, middle) in means
        }
        for name in both
    }
    latency = {
        f"{design} {label}": figures[name][design]
        for design in figures["p50_ms"]
        for name, label in (("p50_ms", "p50"), ("p99_ms", "p99"))
    }
    charts = [
        Chart(
            f"Messages between brokers for each record, {shown} followers",
            "line",
            "records a second",
            "messages for each record",
            figures["messages"],
            log_x=True,
            log_y=True,
        ),
        Chart(
            f"Messages that the leader receives from {shown} followers for each record",
            "line",
            "records a second",
            "messages for each record",
            figures["leader_receives"],
            log_x=True,
            log_y=True,
        ),
        Chart(
            f"From sending to acknowledgement (acks=all), {shown} followers",
            "line",
            "records a second",
            "milliseconds",
            latency,
            log_x=True,
        ),
        Chart(
            f"Bytes between brokers for each record, {shown} followers",
            "line",
            "records a second",
            "bytes for each record",
            figures["bytes"],
            log_x=True,
        ),
    ]
    if len(followers) > 1:
        charts.append(
            Chart(
                f"Messages between brokers for each record, by followers, {rates[-2]:,} records a second",
                "line",
                "followers",
                "messages for each record",
                {
                    design: [(n, means[design, n, rates[-2]].messages) for n in followers]
                    for design in designs
                },
            )
        )
    return charts


def _pairs(means: Means) -> list[tuple[Measured, Measured]]:
    """(pull, push) under the same load."""
    return [
        (means["pull", followers, rate], means["push-with-acks", followers, rate])
        for design, followers, rate in sorted(means)
        if design == "pull" and ("push-with-acks", followers, rate) in means
    ]


def _shown(means: Means) -> list[tuple[Measured, Measured]]:
    pairs = _pairs(means)
    followers = {pull.followers for pull, _ in pairs}
    shown = SHOWN_FOLLOWERS if SHOWN_FOLLOWERS in followers else min(followers, default=0)
    return [pair for pair in pairs if pair[0].followers == shown]


def _finding(means: Means) -> str:
    pairs = _shown(means)
    if not pairs:
        return "There is only one design here: nothing is compared."
    (slow_pull, slow_push), (fast_pull, fast_push) = pairs[0], pairs[-1]
    return (
        f"With {slow_pull.followers} followers, push sends {slow_push.messages:.1f} messages between brokers for each"
        f" record at {slow_push.rate:,} records/s and {fast_push.messages:.1f} at {fast_push.rate:,}; pull sends"
        f" {slow_pull.messages:.1f} and {fast_pull.messages:.2f}, because an answer"
        f" with records brings {fast_pull.records_per_message:.0f} of them there; in return, the median acknowledgement takes"
        f" {fast_pull.p50_ms:.2f} ms with pull and {fast_push.p50_ms:.2f} ms with push, and without any record pull"
        f" sends {slow_pull.idle_messages:.1f} messages/s and push {slow_push.idle_messages:.1f}."
    )


def _contradictions(means: Means) -> list[str]:
    pairs = _shown(means)
    found = []
    alike = [
        (pull, push)
        for pull, push in pairs
        if pull.messages > (1 - LITTLE) * push.messages
        and pull.leader_receives > (1 - LITTLE) * push.leader_receives
    ]
    if alike:
        pull, push = alike[-1]
        found.append(
            "Document 001 says that removing the acknowledgements raises performance, and that pulling relieves the"
            f" leader. Up to {pull.rate:,} records/s neither saves {LITTLE:.0%} of the messages: there are"
            f" {pull.messages:.2f} for each record with pull and {push.messages:.2f} with push, of which the leader"
            f" receives {pull.leader_receives:.2f} and {push.leader_receives:.2f}. What saves messages is that a fetch"
            " brings several records, once they come faster than the fetches."
        )
    slower = [(pull, push) for pull, push in pairs if pull.p50_ms > (1 + LITTLE) * push.p50_ms]
    if slower:
        pull, push = max(slower, key=lambda pair: pair[0].p50_ms / pair[1].p50_ms)
        found.append(
            "Document 001 gives the pull without acknowledgements the better performance. In latency it is the other"
            f" way round: at {pull.rate:,} records/s the median acknowledgement takes {pull.p50_ms:.2f} ms with pull,"
            f" {push.p50_ms:.2f} ms with push, because a record waits for the follower's next fetch."
        )
    return found


def _failed(means: Means) -> list[str]:
    failed = [
        f"{each.design}, {each.followers} followers, {each.rate} records/s: replicas lack {each.lacking} records"
        for each in means.values()
        if each.lacking
    ]
    pairs = _shown(means)
    if pairs:
        (slow_pull, slow_push), (fast_pull, fast_push) = pairs[0], pairs[-1]
        if fast_pull.messages >= fast_push.messages / 2:
            failed.append("pull does not halve the messages of push at the highest rate")
        if fast_pull.records_per_message <= slow_pull.records_per_message:
            failed.append("a fetch does not bring more records as the rate rises")
        if abs(fast_push.records_per_message - 1) > 0.1:
            failed.append("push does not send each record by itself")
        if slow_push.idle_messages:
            failed.append("push is not silent without records")
    return failed


EXPERIMENT = Experiment(
    name=NAME,
    title="Pull against push with acknowledgements",
    question="What do acknowledgements for each message cost, and what does pulling save?",
    promises=("P49", "P07"),
    designs=lambda: [each.name for each in designs_of(Seam.TRANSFER)],
    default_seeds=2,
    small_seeds=2,
    runs=runs,
    summarize=summarize,
)
