"""What a design of commit and election consists of: rules, and the node that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ottla.broker.design import NodeDesign
from ottla.broker.node import Node
from ottla.config import Settings
from ottla.replica.leader import Leadership
from ottla.replica.rules import CommitRule
from ottla.runtime import Runtime

CommitObserver = Callable[[Leadership, int], None]
"""(the leadership, the offset below which everything is about to be committed). It is called before the high watermark
moves, so the records from there on are the new ones."""


@dataclass(frozen=True)
class CommitDesign:
    rules: NodeDesign
    node: type[Node]

    def make_node(
        self, observer: CommitObserver | None = None
    ) -> Callable[[Settings, Runtime], Node]:
        """With an observer, an experiment sees each commit at the moment when it is decided."""
        design = self.rules
        if observer is not None:
            rules = replace(design.rules, commit=_observed(design.rules.commit, observer))
            design = replace(design, rules=rules)
        return partial(self.node, design=design)


def _observed(rule: CommitRule, observer: CommitObserver) -> CommitRule:
    def commit(leadership: Leadership, now: float) -> int:
        committed = rule(leadership, now)
        if committed > leadership.log.high_watermark:
            observer(leadership, committed)
        return committed

    return commit
