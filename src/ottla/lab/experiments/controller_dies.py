"""The controller dies: when can another one decide?

A controller that is elected through ZooKeeper reads the state of all partitions from there first. A standby of the quorum
has it already. How the death is noticed is another matter than what follows, and is reported apart: either the process is
killed, and the quorum sees that its connections are closed, or the machine is gone, and everybody waits for the same
timeout. Simulated time has no CPU time in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from ottla.events import Event
from ottla.events.controller import ControllerActivated
from ottla.events.quorum import BecameQuorumLeader, VoteGranted
from ottla.lab.design import design_named
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.propagation.cluster import (
    BROKERS,
    DETECTION_S_MAX,
    DETECTION_S_MIN,
    GONE,
    KILLED,
    SESSION_TIMEOUT_S,
    PropagationCluster,
    propagating,
)
from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.sim.cluster.nodes import SimNode

V3, KRAFT = "zk-controller", "kraft"
SMALL_SIZES = (10, 100)
SIZES = (10, 100)
LARGE_SIZES = (1_000, 10_000)
"""With the first seed only: they take most of the time."""
FAILOVER_S_MAX = 120.0
GROWTH_MIN = 2.0
"""What reloads state takes at least so many times as long with ten times the partitions."""
GROWTH_MAX = 3.0
"""With a thousand times the partitions. Elections of the quorum differ by about as much from seed to seed."""


@dataclass(frozen=True)
class FailoverFigures:
    design: str
    cause: str
    partitions: int
    seed: int
    detected_s: float
    """From the death until the session is over, or until the first controller of the quorum gets a vote."""
    elected_s: float
    """From there until another one is elected."""
    loaded_s: float
    """From there until it has all state, and can decide."""
    reads: int
    """Of ZooKeeper, in all that time."""

    @property
    def after_notice_s(self) -> float:
        return self.elected_s + self.loaded_s

    @property
    def total_s(self) -> float:
        return self.detected_s + self.after_notice_s


def measure_failover(design: str, cause: str, partitions: int, seed: int) -> FailoverFigures:
    with propagating(seed, design_named(design)) as cluster:
        cluster.start(partitions)
        cluster.idle()
        controller = cluster.controller
        assert controller is not None
        watch = _watch_session if cluster.ensemble is not None else _watch_quorum
        times = watch(cluster, controller, cause)
        return FailoverFigures(design, cause, partitions, seed, *times)


def _watch_session(
    cluster: PropagationCluster, controller: int, cause: str
) -> tuple[float, float, float, int]:
    others = [id for id in BROKERS if id != controller]
    before, died_at = cluster.sent(), cluster.lab.now
    cluster.kill(controller, cause)
    noticed = cluster.lab.run_until(lambda: cluster.knows_dead(controller), FAILOVER_S_MAX)
    assert noticed, "the session never ends"
    detected_at = cluster.lab.now

    def active() -> list[ControlledMember]:
        members = [cluster.member(id) for id in others]
        return [each for each in members if isinstance(each, ControlledMember) and each.controller]

    assert cluster.lab.run_until(lambda: bool(active()), FAILOVER_S_MAX), "nobody is elected"
    elected_at, active_at = active()[0].elected_at, active()[0].active_at
    assert elected_at is not None and active_at is not None
    reads = cluster.sent_since(before).zookeeper.reads.total()
    return detected_at - died_at, elected_at - detected_at, active_at - elected_at, reads


def _watch_quorum(
    cluster: PropagationCluster, controller: int, cause: str
) -> tuple[float, float, float, int]:
    votes: list[float] = []
    victories: list[float] = []
    activations: list[float] = []

    def observe(node: SimNode, event: Event) -> None:
        if isinstance(event, VoteGranted):
            votes.append(cluster.lab.now)
        elif isinstance(event, BecameQuorumLeader):
            victories.append(cluster.lab.now)
        elif isinstance(event, ControllerActivated):
            activations.append(cluster.lab.now)

    cluster.lab.sim.subscribe(observe)
    died_at = cluster.lab.now
    cluster.kill(controller, cause)
    assert cluster.lab.run_until(lambda: bool(activations), FAILOVER_S_MAX), "nobody is elected"
    noticed_at, elected_at, active_at = votes[0], victories[-1], activations[0]
    return noticed_at - died_at, elected_at - noticed_at, active_at - elected_at, 0


def compared() -> list[str]:
    return [KRAFT, V3]


def runs(options: LabOptions) -> list[Run]:
    chosen = options.designs or compared()
    sizes = SMALL_SIZES if options.is_small else SIZES
    work = [
        Run(measure_failover, (design, cause, partitions, seed))
        for design in chosen
        for cause in (KILLED, GONE)
        for partitions in sizes
        for seed in options.seeds
    ]
    if not options.is_small:
        work += [
            Run(measure_failover, (design, KILLED, partitions, options.seeds.start))
            for design in chosen
            for partitions in LARGE_SIZES
        ]
    return work


def summarize(options: LabOptions, found: Sequence[Any]) -> ExperimentResult:
    designs = list(options.designs or compared())
    by: dict[tuple[str, str, int], list[FailoverFigures]] = {}
    for each in found:
        by.setdefault((each.design, each.cause, each.partitions), []).append(each)
    sizes = sorted({partitions for _, _, partitions in by})

    def mean(design: str, size: int, name: str, cause: str = KILLED) -> float:
        return fmean(getattr(each, name) for each in by[design, cause, size])

    smallest, largest = sizes[0], sizes[-1]
    finding = f"Once the death is noticed, another controller decides with {smallest} and with {largest:,} partitions after: "
    finding += ", ".join(
        f"{design} {mean(design, smallest, 'after_notice_s') * 1000:,.0f} and"
        f" {mean(design, largest, 'after_notice_s') * 1000:,.0f} ms"
        for design in designs
    )
    finding += ". It is noticed, if the process is killed and if the machine is gone, after: "
    finding += ", ".join(
        f"{design} {mean(design, smallest, 'detected_s') * 1000:,.0f} and"
        f" {mean(design, smallest, 'detected_s', GONE) * 1000:,.0f} ms"
        for design in designs
    )
    return ExperimentResult(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        designs=designs,
        finding=finding + ".",
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(EXPERIMENT.name, options),
        tables=[
            Table(
                "The active controller dies. If its process is killed, ZooKeeper waits for the session"
                f" timeout of {SESSION_TIMEOUT_S:g} s, and the quorum sees that the connection is"
                " closed. If the machine is gone, nothing is closed, and the quorum's fetches have a"
                " timeout of the same length. Timeouts count from the last ping or fetch",
                (
                    "design",
                    "death",
                    "partitions",
                    "ZooKeeper reads",
                    "noticed s",
                    "elected s",
                    "loaded s",
                    "in all s",
                ),
                [
                    [
                        design,
                        cause,
                        size,
                        round(mean(design, size, "reads", cause)),
                        round(mean(design, size, "detected_s", cause), 3),
                        round(mean(design, size, "elected_s", cause), 4),
                        round(mean(design, size, "loaded_s", cause), 4),
                        round(mean(design, size, "total_s", cause), 3),
                    ]
                    for design in designs
                    for cause in (KILLED, GONE)
                    for size in sizes
                    if (design, cause, size) in by
                ],
            )
        ],
        charts=[
            Chart(
                "From the notice of the controller's death to another one that decides",
                "line",
                "partitions",
                "seconds",
                {
                    design: [(size, mean(design, size, "after_notice_s")) for size in sizes]
                    for design in designs
                },
                log_x=True,
                log_y=True,
            )
        ],
        failed_expectations=_failures(designs, found),
    )


def _failures(designs: Sequence[str], found: Sequence[FailoverFigures]) -> list[str]:
    failed = [
        f"{each.design}, {each.partitions} partitions, seed {each.seed}, {each.cause}: noticed after"
        f" {each.detected_s:.3f} s, not after the timeout"
        for each in found
        if each.cause == GONE and not DETECTION_S_MIN <= each.detected_s <= DETECTION_S_MAX
    ]
    for design in designs:
        took: dict[int, list[float]] = {}
        for each in found:
            if (each.design, each.cause) == (design, KILLED):
                took.setdefault(each.partitions, []).append(each.after_notice_s)
        sizes = sorted(took)
        if design == V3 and any(
            min(took[larger]) < GROWTH_MIN * min(took[smaller])
            for smaller, larger in pairwise(sizes)
        ):
            failed.append(f"{V3}: the failover does not grow with the partitions: {took}")
        if design == KRAFT and max(took[sizes[-1]]) > GROWTH_MAX * max(took[sizes[0]]):
            failed.append(f"{KRAFT}: the failover grows with the partitions: {took}")
    return failed


EXPERIMENT = Experiment(
    name="controller-dies",
    title="The controller dies",
    question="How long does it take until another controller can decide, as partitions grow?",
    promises=("P47", "P48"),
    designs=compared,
    default_seeds=3,
    small_seeds=1,
    runs=runs,
    summarize=summarize,
)
