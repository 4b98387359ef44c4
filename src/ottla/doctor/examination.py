"""The doctor: all rules that find what is wrong, or soon will be, in the facts of a cluster.

Silence means that the facts which a rule needs are there and right. What could not be found out is in `Facts.unknown`,
and is shown beside the findings.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.diagnosis.facts import Facts
from ottla.doctor import (
    broker_settings,
    consumers,
    disks,
    losses,
    machine,
    moves,
    quorum,
    reach,
    replication,
    topic_settings,
)
from ottla.doctor.finding import Case, FindingSeverity, HealthFinding, Rule

GROUPS = (
    reach,
    quorum,
    replication,
    moves,
    losses,
    topic_settings,
    broker_settings,
    disks,
    machine,
    consumers,
)
RULES: dict[str, Rule] = {
    rule.__name__.replace("_", "-"): rule for group in GROUPS for rule in group.RULES
}
"""By name, in the order in which findings of the same severity are shown."""


def examine(facts: Facts, target: str = "") -> list[HealthFinding]:
    """All findings, the serious ones first."""
    case = Case(facts, target)
    found = [finding for rule in RULES.values() for finding in rule(case)]
    order = list(FindingSeverity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def is_serious(findings: Iterable[HealthFinding]) -> bool:
    return any(finding.severity is FindingSeverity.SERIOUS for finding in findings)
