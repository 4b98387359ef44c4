"""Loads of brokers in tables and in JSON: before and after a plan, with bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.errors import USAGE, Failure
from ottla.cli.output import count_of, print_table, say
from ottla.diagnosis.words import size

if TYPE_CHECKING:
    from ottla.balance.model import (
        BalancedBroker,
        BalancedPartition,
        BalancePlan,
        Goal,
        Loads,
        Miss,
        Tolerance,
    )

BAR = 10


def make_plan(
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    tolerance: Tolerance,
) -> BalancePlan:
    from ottla.balance.planner import Impossible, plan

    try:
        return plan(brokers, partitions, tolerance)
    except Impossible as error:
        raise Failure(f"there is no plan: {error}", USAGE) from None


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bar(part: float) -> str:
    """`████░░░░░░`: how much of the largest."""
    full = max(0, min(BAR, round(part * BAR)))
    return "█" * full + "░" * (BAR - full)


def barred(values: Mapping[int, float], text: Callable[[float], str]) -> dict[int, str]:
    """Each with a bar in front, of which the largest has a whole one."""
    largest = max(values.values(), default=0.0)
    return {
        id: f"{bar(value / largest if largest > 0 else 0.0)} {text(value)}"
        for id, value in values.items()
    }


def print_plan(plan: BalancePlan, moving: int = 0) -> None:
    """Loads of each broker before and after, what moves, and what stays out of balance. `moving`: partitions that are
    being moved already, which count as if that were over."""
    rows = []
    for id, before in plan.before.items():
        after = plan.after[id]
        rows.append(
            (
                id,
                _change(before.leaders, after.leaders),
                _change(before.replicas, after.replicas),
                f"{size(before.disk)} → {size(after.disk)}",
                f"{size(before.rate)}/s → {size(after.rate)}/s",
                score_text(plan, id, before),
                score_text(plan, id, after),
            )
        )
    print_table(("broker", "leaders", "replicas", "disk", "leader bytes", "score", "after"), rows)
    leaders = sum(change.is_leadership_only for change in plan.changes)
    say(
        "",
        f"{len(plan.changes) - leaders} partitions move replicas, {leaders} only leadership",
        f"bytes to move: {size(plan.bytes_moved)}; no plan that ends in balance moves fewer than"
        f" {size(plan.bytes_bound)}",
    )
    if moving:
        say(
            f"{count_of(moving, 'partition')} being moved already: their bytes are not counted here, and the loads before are"
            " those after these moves"
        )
    print_misses(plan.misses)


def print_misses(misses: Iterable[Miss]) -> None:
    for miss in misses:
        load, share = (_amount(miss.goal, each) for each in (miss.load, miss.share))
        say(
            f"out of balance afterwards: broker {miss.broker}, {miss.goal.value}: {load}, its share is {share}"
        )


def _amount(goal: Goal, number: float) -> str:
    from ottla.balance.model import Goal

    if goal in (Goal.DISK, Goal.RATE):
        return size(number) + ("/s" if goal is Goal.RATE else "")
    return f"{number:.0f}"


def _change(before: float, after: float) -> str:
    return f"{before:.0f} → {after:.0f}"


def score_text(plan: BalancePlan, id: int, loads: Loads) -> str | None:
    from ottla.balance.plan_json import score_of

    score = score_of(plan.limits.shares, id, loads)
    return None if score is None else f"{score:.2f}"
