"""An explanation: what `ottla explain` says about one partition, group or broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.diagnosis.words import clock, duration
from ottla.wire.printable import printable


class Advice(NamedTuple):
    """Something to do. The command can be typed as it stands; empty if there is none for it."""

    text: str
    command: str = ""


class TimelineLine(NamedTuple):
    """One line of the timeline."""

    at_ms: int
    text: str


class Trouble(NamedTuple):
    """One thing that is wrong: why, what follows for clients, what to do. The most severe trouble makes the headline."""

    severity: int
    headline: str
    cause: tuple[str, ...]
    producers: str = ""
    consumers: str = ""
    steps: tuple[Advice, ...] = ()


WRONG, DEGRADED, NOTICE = 3, 2, 1
"""Severities: clients fail now; one more failure would make them fail; it is over, or harmless."""


@dataclass(frozen=True)
class Explanation:
    subject: str
    """`partition orders-0`, `group billing`, `broker 2`."""
    now_ms: int
    headline: str
    ok: bool
    timeline: tuple[TimelineLine, ...] = ()
    earlier: str = ""
    """What the timeline leaves out."""
    cause: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    steps: tuple[Advice, ...] = ()
    unknown: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """The state that it is about, for programs."""

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "now_ms": self.now_ms,
            "ok": self.ok,
            "headline": self.headline,
            "timeline": [{"at_ms": line.at_ms, "text": line.text} for line in self.timeline],
            "cause": list(self.cause),
            "producers": list(self.producers),
            "consumers": list(self.consumers),
            "steps": [step._asdict() for step in self.steps],
            "unknown": list(self.unknown),
            "facts": self.facts,
        }

    def text(self) -> str:
        """For a terminal: each line is printable, whatever names clients chose."""
        parts = [printable(self.headline)]
        if self.timeline:
            parts.append("\n".join(["What happened (UTC):", *self._told()]))
        if self.cause:
            parts.append(_section("Why:", self.cause))
        if self.producers == self.consumers:
            effects = [f"producers and consumers: {text}" for text in self.producers]
        else:
            effects = [f"producers: {text}" for text in self.producers]
            effects += [f"consumers: {text}" for text in self.consumers]
        if effects:
            parts.append(_section("What it means now:", effects))
        parts.append(_section("What to do:", _numbered(self.steps)))
        if self.unknown:
            parts.append(_section("What is not known:", self.unknown))
        return "\n\n".join(parts)

    def _told(self) -> list[str]:
        """Each line with its time, and how long after the line before."""
        lines = [f"  {printable(self.earlier)}"] if self.earlier else []
        before = None
        ends = [*self.timeline, TimelineLine(self.now_ms, "now")]
        stamps = [clock(line.at_ms, self.now_ms) for line in ends]
        width = max(map(len, stamps))
        for line, stamp in zip(ends, stamps, strict=True):
            passed = "" if before is None else f"+{duration(line.at_ms - before)}"
            lines.append(f"  {stamp:>{width}}  {passed:<9} {printable(line.text)}")
            before = line.at_ms
        return lines


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {printable(line)}" for line in lines)])


def _numbered(steps: Sequence[Advice]) -> list[str]:
    if not steps:
        return ["Nothing."]
    lines = []
    for number, step in enumerate(steps, 1):
        mark = f"{number}. " if len(steps) > 1 else ""
        lines.append(f"{mark}{step.text}")
        if step.command:
            lines.append(f"{' ' * len(mark)}  {step.command}")
    return lines
