"""What an experiment found: tables, charts, timelines and one sentence. All of it can be written as JSON.

The report draws these; nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Cell = str | int | float | None
"""None: not applicable."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Chart:
    """Series of points. For bars, x is a category (str); for lines and scatter a number."""

    title: str
    kind: Literal["line", "bar", "scatter"]
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[Any, float]]]
    """By name, in the order of the legend."""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class LogEntry:
    offset: int
    epoch: int
    value: str
    is_lost: bool = False
    """It was acknowledged, and is gone from here on."""


@dataclass(frozen=True)
class ReplicaMoment:
    """One replica at one moment."""

    broker: int
    role: str
    """leader, follower, or down."""
    epoch: int
    log: Sequence[LogEntry]
    high_watermark: int | None
    """None while it is down."""
    log_end: int
    changed: bool = False
    """Something of it changed in this step."""


@dataclass(frozen=True)
class Step:
    """One row of a timeline: what happened, and all replicas after it."""

    at_s: float
    what: str
    events: Sequence[str]
    """What the cluster did by itself: elections, truncations, acknowledgements."""
    replicas: Sequence[ReplicaMoment]


@dataclass(frozen=True)
class Timeline:
    title: str
    design: str
    steps: Sequence[Step]
    verdict: str
    """One sentence: what was lost or diverged, or that nothing was."""
    is_broken: bool = False
    """The design lost or diverged where nothing excuses it."""


@dataclass(frozen=True)
class ExperimentResult:
    experiment: str
    question: str
    designs: Sequence[str]
    finding: str
    """One sentence that the figures say."""
    seeds: str
    """Which seeds: `0..199`."""
    command: str
    """The command that reproduces it."""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    timelines: Sequence[Timeline] = ()
    contradictions: Sequence[str] = ()
    """Where a figure contradicts one of the documents: the document's claim, and the figure."""
    failed_expectations: Sequence[str] = field(default_factory=tuple)
    """What the experiment must show and did not. The command ends with an error then."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def result_from_json(data: Mapping[str, Any]) -> ExperimentResult:
    def timeline(each: Mapping[str, Any]) -> Timeline:
        steps = [
            Step(
                step["at_s"],
                step["what"],
                step["events"],
                [
                    ReplicaMoment(
                        **{**replica, "log": [LogEntry(**entry) for entry in replica["log"]]}
                    )
                    for replica in step["replicas"]
                ],
            )
            for step in each["steps"]
        ]
        return Timeline(**{**each, "steps": steps})

    charts = [
        Chart(
            **{
                **each,
                "series": {
                    name: [(x, y) for x, y in points] for name, points in each["series"].items()
                },
            }
        )
        for each in data["charts"]
    ]
    return ExperimentResult(
        **{
            **data,
            "tables": [Table(**each) for each in data["tables"]],
            "charts": charts,
            "timelines": [timeline(each) for each in data["timelines"]],
        }
    )
