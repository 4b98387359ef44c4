"""The model of one cluster: all tables, the observations that it takes, and what is new in it since a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.console.model.consumers import Consumers
from ottla.console.model.flow import Flow
from ottla.console.model.happenings import Happenings
from ottla.console.model.problems import (
    broker_problems,
    cluster_problems,
    disk_problems,
    group_problems,
    loss_problems,
    move_problems,
    own_problem,
    partition_problems,
    transaction_problems,
    worst_first,
)
from ottla.console.model.rewind import Past, rewind
from ottla.console.model.rows import BrokerStanding, EventRow, PartitionRow, Place, Problem
from ottla.console.model.structure import NO_LEADER, THE, Structure
from ottla.console.model.tables import Rings, RowTable, TableNews, Versions


class Selection(NamedTuple):
    """What a reader wants: a table, and which keys of it (None: all). Keys are as in the table: a partition is ("orders", 0)."""

    table: str
    wanted: Callable[[Any], bool] | None = None


class ClusterModel:
    def __init__(self, versions: Versions | None = None) -> None:
        """`versions`: of the model that this one takes the place of. Whoever has seen that one gets all of this one."""
        self._versions = versions or Versions()
        self._versions.next()
        self.structure = Structure(self._versions)
        self.flow = Flow(self._versions)
        self.consumers = Consumers(self._versions)
        self.happenings = Happenings(self._versions)
        self.problems: RowTable[str, Problem] = RowTable(self._versions, str)
        structure, flow, consumers = self.structure, self.flow, self.consumers
        self.cluster = structure.cluster
        self.brokers = structure.brokers
        self.topics = structure.topics
        self.partitions = structure.partitions
        self.quorum = structure.quorum
        self.tables: Mapping[str, RowTable[Any, Any] | Rings[Any]] = {
            "cluster": structure.cluster,
            "totals": structure.totals,
            "brokers": structure.brokers,
            "topics": structure.topics,
            "partitions": structure.partitions,
            "quorum": structure.quorum,
            "moves": structure.moves,
            "rates": flow.rates,
            "broker_rates": flow.broker_rates,
            "topic_rates": flow.topic_rates,
            "offsets": flow.offsets,
            "topic_sizes": flow.topic_sizes,
            "disks": flow.disks,
            "replicas": flow.replicas,
            "ends": flow.ends,
            "epochs": flow.epochs,
            "settings": flow.settings,
            "groups": consumers.groups,
            "lags": consumers.lags,
            "members": consumers.members,
            "group_lags": consumers.group_lags,
            "transactions": consumers.transactions,
            "holds": consumers.holds,
            "newest": self.happenings.newest,
            "losses": self.happenings.losses,
            "problems": self.problems,
        }

    @property
    def version(self) -> int:
        return self._versions.now

    def event(self, event: EventRow) -> None:
        """An entry of the event log, in its order."""
        self.happenings.add(event)
        try:
            self.structure.event(event)
        except (KeyError, TypeError, ValueError):
            return  # it is shown as it is; metadata will say what it changed

    def forget_event_log(self) -> None:
        """We may not read it, or not any more."""
        self.happenings.forget()
        self.structure.kind(has_event_log=False)

    def settle(self, now_ms: int) -> None:
        """After a round of observations: bring up to date what follows from them."""
        self.structure.settle()
        up = BrokerStanding.UP
        self.flow.without(id for id, row in self.brokers.items() if row.standing is not up)
        unwell = self.structure.unwell
        self.flow.leaderless(p for p in unwell if self.partitions[p].leader == NO_LEADER)
        self.flow.step(now_ms)
        self.consumers.step(now_ms)
        self.problems.replace({each.id: each for each in self._problems(now_ms)})

    def failed_to_settle(self, error: Exception) -> None:
        """Told with what was wrong before, until `settle` succeeds."""
        problem = own_problem(error)
        self.problems.put(problem.id, problem)

    def _problems(self, now_ms: int) -> list[Problem]:
        structure, flow, consumers = self.structure, self.flow, self.consumers
        unwell = {place: structure.partitions[place] for place in structure.unwell}
        brokers = dict(structure.brokers.items())
        cluster = structure.cluster[THE]
        found = list(cluster_problems(cluster, structure.quorum.get(THE), brokers))
        if cluster.answers is not False:
            found += partition_problems(
                unwell, brokers, dict(flow.settings.items()), structure.eligible
            )
            found += broker_problems(unwell, brokers)
            found += disk_problems(dict(flow.disks.items()))
            found += group_problems(consumers.groups.values(), now_ms)
            found += transaction_problems(
                dict(consumers.holds.items()), consumers.transactions.values(), now_ms
            )
            found += move_problems(structure.moves.values(), now_ms)
        losses = (row.loss for row in self.happenings.losses.values())
        found += loss_problems(losses, structure.partitions.get, now_ms)
        return worst_first(found)

    def news(self, selections: Iterable[Selection], since: int) -> str:
        """What is new since this version, as JSON; the whole of it since NOTHING. `replay` takes it."""
        told = self.tables_since(selections, since)
        parts = ",".join(f'"{name}":{news.as_text()}' for name, news in told.items())
        return f'{{"version":{self.version},"tables":{{{parts}}}}}'

    def tables_since(self, selections: Iterable[Selection], since: int) -> dict[str, TableNews]:
        """Of those tables that have something new."""
        return {
            each.table: news
            for each in selections
            if (news := self.tables[each.table].news(since, each.wanted))
        }

    def past(self, events: Iterable[EventRow], at_ms: int) -> Past:
        """As it was; `events` are all since then, in the order of the log."""
        quorum = self.quorum.get(THE)
        return rewind(
            dict(self.partitions.items()),
            dict(self.brokers.items()),
            None if quorum is None else quorum.leader,
            events,
            at_ms,
        )


def problems_of(past: Past) -> list[Problem]:
    """What was wrong then, as far as leaders, ISRs and brokers tell."""
    unwell: dict[Place, PartitionRow] = {
        place: row for place, row in past.partitions.items() if not row.is_well
    }
    return worst_first(
        [*partition_problems(unwell, past.brokers, {}), *broker_problems(unwell, past.brokers)]
    )
