"""A plan in numbers, for programs; and the tolerance that people give in percent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.balance.model import BalancePlan, Loads, PlannedChange, Tolerance

DISK_SLACK_BYTES: Final = 1_000_000
RATE_SLACK: Final = 10_000.0


def tolerance_of(percent: float) -> Tolerance:
    """So many percent of a share; for bytes at least what nobody would move a replica for."""
    return Tolerance(percent / 100, DISK_SLACK_BYTES, RATE_SLACK)


def score_of(shares: Mapping[int, Loads], id: int, loads: Loads) -> float | None:
    """The largest of the loads, in shares: 1 is even. None for a broker that has no share."""
    if id not in shares:
        return None
    return max(
        (load / share for load, share in zip(loads, shares[id], strict=True) if share > 0),
        default=1.0,
    )


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
