"""Consumer groups, and transactions that hold consumers back."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.diagnosis.facts import Facts, Place
from ottla.diagnosis.words import count
from ottla.doctor.finding import (
    DAY_S,
    Case,
    FindingSeverity,
    HealthFinding,
    Rule,
    duration,
    names_of,
)

HELD_UP_MS = 60_000
STALE_MS = 10 * 60 * 1000
HANGING_MS = 5 * 60 * 1000


def group_held_up(case: Case) -> Iterator[HealthFinding]:
    for group in case.facts.groups:
        told = group.description.hold_up or {}
        since = told.get("since_ms", -1)
        waited = case.facts.at_ms - since if isinstance(since, int) and since > 0 else 0
        if waited > HELD_UP_MS:
            late = len(told.get("late", ()))
            yield HealthFinding(
                "group-held-up",
                FindingSeverity.SERIOUS,
                f"group {group.id} has been rebalancing for {duration(waited / 1000)}"
                + (f", waiting for {count(late, 'member')}" if late else ""),
                "Its members read nothing, or less than they should, until the rebalance ends.",
                case.ottla("explain --group", group.id),
            )


def group_stuck(case: Case) -> Iterator[HealthFinding]:
    """Members are there, and still the next record has waited for long."""
    for group in case.facts.groups:
        if not group.description.members:
            continue
        old = max((lag.seconds(case.facts.at_ms) or 0.0 for lag in group.lags), default=0.0)
        if old * 1000 > STALE_MS:
            records = sum(lag.lag for lag in group.lags)
            yield HealthFinding(
                "group-stuck",
                FindingSeverity.WARNING,
                f"group {group.id} has members and is {count(records, 'record')} behind; the oldest has"
                f" waited for {duration(old)}",
                "The group does not keep up, or a member holds partitions without reading them.",
                case.ottla("explain --group", group.id),
            )


def group_lost_records(case: Case) -> Iterator[HealthFinding]:
    for group in case.facts.groups:
        passed = [
            lag for lag in group.lags if lag.committed is not None and lag.committed < lag.log_start
        ]
        if passed:
            removed = sum(lag.log_start - (lag.committed or 0) for lag in passed)
            topic = passed[0].topic
            yield HealthFinding(
                "group-lost-records",
                FindingSeverity.WARNING,
                f"retention removed {count(removed, 'record')} that group {group.id} had not read, of"
                f" {names_of((lag.topic, lag.partition) for lag in passed)}",
                "The group is slower than retention, or was away for longer than retention keeps records.",
                case.ottla(f"topics alter {topic} -c retention.ms={14 * DAY_S * 1000}")
                + "  # or let the group read faster",
            )


def transaction_pins(case: Case) -> Iterator[HealthFinding]:
    """Transactions that keep consumers of committed records waiting."""
    facts = case.facts
    for place, opened in sorted(facts.open_in.items()):
        oldest = opened[0]
        age_ms = facts.at_ms - oldest.last_timestamp_ms
        owner = next(
            (
                each
                for each in facts.transactions
                if each.producer_id == oldest.producer_id and place in each.partitions
            ),
            None,
        )
        held = _held_back(facts, place)
        name = f"{place[0]}-{place[1]}"
        if owner is not None and age_ms > max(owner.timeout_ms, HELD_UP_MS):
            yield HealthFinding(
                "transaction-pins",
                FindingSeverity.WARNING,
                f"transaction {owner.id} has been open in {name} for {duration(age_ms / 1000)}{held}",
                "Consumers that read committed records wait until it ends.",
                case.ottla("transactions abort", owner.id),
            )
        elif owner is None and age_ms > HANGING_MS and not _transactions_unknown(facts):
            yield HealthFinding(
                "transaction-pins",
                FindingSeverity.SERIOUS,
                f"a transaction of producer {oldest.producer_id} hangs in {name} since"
                f" {duration(age_ms / 1000)}, and no coordinator knows it{held}",
                "Nobody will end it. Consumers that read committed records wait for ever.",
                case.ottla(
                    f"transactions abort --topic {place[0]} --partition {place[1]}"
                    f" --start-offset {oldest.start_offset}"
                ),
            )


def _transactions_unknown(facts: Facts) -> bool:
    return any(what.startswith("transaction") for what in facts.unknown)


def _held_back(facts: Facts, place: Place) -> str:
    partition = facts.partition(place)
    if partition is None or partition.stable_end is None or partition.log_end is None:
        return ""
    return f" and holds back {count(partition.log_end - partition.stable_end, 'record')}"


RULES: tuple[Rule, ...] = (
    group_held_up,
    group_stuck,
    group_lost_records,
    transaction_pins,
)
