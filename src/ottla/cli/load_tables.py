"""Loads of brokers in tables and in JSON: before and after a plan, with bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.errors import USAGE, Failure
from ottla.cli.output import print_table, say
from ottla.diagnosis.words import size

if TYPE_CHECKING:
    from ottla.balance.model import (
        BalancedBroker,
        BalancedPartition,
        BalancePlan,
        Loads,
        Miss,
        PlannedChange,
        Tolerance,
    )

BAR = 10
DISK_SLACK_BYTES = 1_000_000
RATE_SLACK = 10_000.0


def tolerance_of(percent: float) -> Tolerance:
    """So many percent of a share; for bytes at least what nobody would move a replica for."""
    from ottla.balance.model import Tolerance

    return Tolerance(percent / 100, DISK_SLACK_BYTES, RATE_SLACK)


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


def print_plan(plan: BalancePlan) -> None:
    """Loads of each broker before and after, what moves, and what stays out of balance."""
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
    print_misses(plan.misses)


def print_misses(misses: Iterable[Miss]) -> None:
    for miss in misses:
        say(
            f"out of balance afterwards: broker {miss.broker}, {miss.goal.value}: {miss.load:.0f}, its share is"
            f" {miss.share:.0f}"
        )


def _change(before: float, after: float) -> str:
    return f"{before:.0f} → {after:.0f}"


def score_of(shares: Mapping[int, Loads], id: int, loads: Loads) -> float | None:
    """The largest of the loads, in shares: 1 is even. None for a broker that has no share."""
    if id not in shares:
        return None
    return max(
        (load / share for load, share in zip(loads, shares[id], strict=True) if share > 0),
        default=1.0,
    )


def score_text(plan: BalancePlan, id: int, loads: Loads) -> str | None:
    score = score_of(plan.limits.shares, id, loads)
    return None if score is None else f"{score:.2f}"


def plan_as_json(plan: BalancePlan) -> dict[str, Any]:
    return {
        "bytes_to_move": plan.bytes_moved,
        "bytes_bound": plan.bytes_bound,
        "balanced": not plan.misses,
        "brokers": [
            {
                "broker": id,
                "before": plan.before[id]._asdict(),
                "after": plan.after[id]._asdict(),
                "score_before": score_of(plan.limits.shares, id, plan.before[id]),
                "score_after": score_of(plan.limits.shares, id, plan.after[id]),
            }
            for id in plan.before
        ],
        "misses": [
            {"broker": each.broker, "goal": each.goal.value, "load": each.load, "share": each.share}
            for each in plan.misses
        ],
        "changes": [change_as_json(change) for change in plan.changes],
    }


def change_as_json(change: PlannedChange) -> dict[str, Any]:
    return {
        "topic": change.topic,
        "partition": change.partition,
        "before": change.before,
        "after": change.after,
        "bytes": change.bytes_moved,
    }
