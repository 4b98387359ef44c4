"""Groups, members and transactions may be called anything: none takes the place of another."""

from __future__ import annotations

import json
from typing import Any

from ottla.client.group_admin import GroupDescription, GroupMember, ListedGroup
from ottla.client.group_lag import PartitionLag
from ottla.console.model.cluster_model import ClusterModel, Selection
from ottla.console.model.rows import TransactionRow
from ottla.console.model.tables import NOTHING, replay


def shown(model: ClusterModel, table: str) -> list[dict[str, Any]]:
    """As a page has it."""
    news = json.loads(model.news([Selection(table)], NOTHING))
    return list(replay({}, news)["tables"][table].values())


def test_members_of_groups_with_slashes_are_told_apart() -> None:
    model = ClusterModel()
    names = [("a/b", "c"), ("a", "b/c"), ("a/b/c", "")]
    model.consumers.listed(ListedGroup(id, "Stable", "classic", "consumer", 1) for id, _ in names)
    for group, member in names:
        members = (GroupMember(member, None, "client", "host", (), None),)
        model.consumers.described(
            GroupDescription(group, "classic", "Stable", "", 1, members, None, None)
        )
    told = shown(model, "members")
    assert sorted((each["group"], each["id"]) for each in told) == sorted(names)


def test_a_hanging_transaction_is_not_one_that_is_called_so() -> None:
    model = ClusterModel()
    ids = ("producer 7", None)
    model.consumers.transactions_told(
        TransactionRow(id, "Ongoing", 7, 0, None, None, None, ()) for id in ids
    )
    assert {each["id"] for each in shown(model, "transactions")} == set(ids)


def a_group(id: str, coordinator: int) -> ListedGroup:
    return ListedGroup(id, "Stable", "classic", "consumer", coordinator)


def test_a_group_stays_with_its_history_while_its_coordinator_is_silent() -> None:
    model = ClusterModel()
    consumers = model.consumers
    consumers.listed([a_group("held", 1), a_group("gone", 2)])
    consumers.lag_told("held", [PartitionLag("t", 0, 5, 0, 15, 5_000)], 100_000)
    consumers.step(100_000)
    consumers.listed([], silent=(1,))
    (row,) = consumers.groups.values()
    assert (row.id, row.state, row.lag, row.late_since_ms) == ("held", "", 10, 15_000)
    assert consumers.group_lags.points("held")
    consumers.listed([a_group("held", 3)])
    assert consumers.groups["held"].late_since_ms == 15_000
    assert consumers.groups["held"].state == "Stable"


def test_a_transaction_stays_while_its_coordinator_is_silent() -> None:
    model = ClusterModel()
    rows = [TransactionRow(f"t{n}", "Ongoing", n, 0, n, None, None, ()) for n in (1, 2)]
    model.consumers.transactions_told(rows)
    model.consumers.transactions_told([], silent=(1,))
    assert [each["id"] for each in shown(model, "transactions")] == ["t1"]


def test_a_group_of_whose_next_record_nobody_knows_the_age_is_not_late() -> None:
    model = ClusterModel()
    model.consumers.listed([a_group("g", 1)])
    model.consumers.lag_told("g", [PartitionLag("t", 0, 0, 0, 1, -9_000_000_000_000_000)], 100_000)
    row = model.consumers.groups["g"]
    assert (row.lag, row.seconds, row.late_since_ms) == (1, None, None)
    model.settle(100_000)
    assert f"group:{row.id}" not in model.problems
