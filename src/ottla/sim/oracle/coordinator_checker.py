"""C4, as a coordinator sees it: a partition that a member owns, or has still to give up, is no other member's.

A client cannot see this before it is too late, so the coordinator's own state is checked after each of its decisions.
"""

from __future__ import annotations

from typing import Any

from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.transactions.transaction_shard import TransactionShard
from ottla.events import Event
from ottla.events.coordination import ShardApplied
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.group_oracle import GroupOracle


class CoordinatorChecker:
    """A subscriber. It also gives the oracle the generations and epochs that were decided, so that the oracle knows
    which of them a loss may make a coordinator decide once more."""

    def __init__(self, oracle: GroupOracle) -> None:
        self._oracle = oracle

    def __call__(self, node: SimNode, event: Event) -> None:
        if not isinstance(event, ShardApplied):
            return
        if isinstance(event.shard, GroupShard):
            for id, group in event.shard.groups.items():
                if isinstance(group, ConsumerGroup):
                    self._oracle.decided_generation(id, group.epoch)
                    self._check_owners(group)
                else:
                    self._oracle.decided_generation(id, group.generation)
        elif isinstance(event.shard, TransactionShard):
            for each in event.shard.transactions.values():
                self._oracle.decided_epoch(each.producer_id, each.producer_epoch)

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[Any, int], str] = {}
        for member in group.members.values():
            for part in (member.assigned, member.revoking):
                for topic, numbers in part.items():
                    for number in sorted(numbers):
                        other = owners.setdefault((topic, number), member.id)
                        if other != member.id:
                            self._oracle.fail(
                                "C4",
                                f"group {group.id}, epoch {group.epoch}",
                                f"partition {number} is given to {member.id}, epoch {member.epoch}, "
                                f"and {other} has not given it up",
                                [group.id],
                            )
