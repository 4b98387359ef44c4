"""What an experiment found: tables, charts, timelines and one sentence. All of it can be written as JSON.

The report draws these; nothing here knows how.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

EXPERIMENT_NAME = re.compile(r"[a-z0-9-]+")

Cell = str | int | float | None
"""None: not applicable."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    """What a reader must know of the columns; it stands under the table."""


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


def result_from_json(data: Any) -> ExperimentResult:
    """What `to_json` gave. TypeError, with the place, for anything else: the report writes it into pages, and names files
    after it."""
    result = _read(ExperimentResult, data, "result")
    assert isinstance(result, ExperimentResult)
    if not EXPERIMENT_NAME.fullmatch(result.experiment):
        raise TypeError(f"result.experiment: {result.experiment!r} is no name of an experiment")
    return result


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value` as a `kind`: one of the classes above, or a type of one of their fields."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if value.keys() <= hints.keys():
            fields = {
                name: _read(hints[name], each, f"{where}.{name}") for name, each in value.items()
            }
            return kind(**fields)
    elif origin in (Union, UnionType):
        for each in arguments:
            with suppress(TypeError):
                return _read(each, value, where)
    elif origin is Sequence and isinstance(value, list | tuple):
        return [_read(arguments[0], each, f"{where}[{at}]") for at, each in enumerate(value)]
    elif origin is Mapping and isinstance(value, dict):
        return {key: _read(arguments[1], each, f"{where}[{key}]") for key, each in value.items()}
    elif origin is tuple and isinstance(value, list | tuple) and len(value) == len(arguments):
        return tuple(_read(each, part, where) for each, part in zip(arguments, value, strict=True))
    elif (origin is Literal and value in arguments) or (origin is None and _is_plain(kind, value)):
        return value
    raise TypeError(f"{where}: {reprlib.repr(value)} is not allowed there")


def _is_plain(kind: Any, value: Any) -> bool:
    """JSON does not tell 1.0 from 1, and Python takes True for a number. The x of a chart is a number or a category."""
    if kind is Any:
        return isinstance(value, str | int | float)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
