"""One explanation for a topic: partitions that are in the same state for the same reason are told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla.diagnosis.explanation import Explanation
from ottla.diagnosis.words import count, listed

NAMES_MAX = 8


def merged(explanations: Sequence[Explanation]) -> list[Explanation]:
    """Those that differ only in the partition's name become one; the first of each kind speaks for all."""
    kinds: dict[tuple[object, ...], list[Explanation]] = {}
    for each in explanations:
        kinds.setdefault(_kind(each), []).append(each)
    found = sorted(kinds.values(), key=lambda group: group[0].ok)
    return [group[0] if len(group) == 1 else _for_all(group) for group in found]


def _kind(explanation: Explanation) -> tuple[object, ...]:
    """Everything except the times and the name. A healthy partition is like any other."""
    name = explanation.subject.removeprefix("partition ")
    if explanation.ok and not explanation.cause:
        return (True,)
    steps = tuple(_anonymous(step.text + step.command, name) for step in explanation.steps)
    facts = explanation.facts
    return (explanation.ok, steps, tuple(sorted(facts["isr"])), facts["leader"] is None)


def _anonymous(text: str, name: str) -> str:
    return text.replace(name, "").replace(f"-p {name.rpartition('-')[2]}", "")


def _for_all(group: list[Explanation]) -> Explanation:
    first = group[0]
    names = [each.subject.removeprefix("partition ") for each in group]
    subject = f"partitions {_some(names)}"
    if first.ok and not first.cause:
        topic = names[0].rpartition("-")[0]
        headline = f"{count(len(group), 'partition')} of {topic} are healthy: {_some(names)}."
        return replace(first, subject=subject, headline=headline, timeline=(), earlier="", steps=())
    headline = f"{first.headline} (The same holds for {_some(names[1:])}.)"
    return replace(first, subject=subject, headline=headline)


def _some(names: list[str]) -> str:
    left_out = len(names) - NAMES_MAX
    return listed([*names[:NAMES_MAX], *([f"{left_out} more"] if left_out > 0 else [])])
