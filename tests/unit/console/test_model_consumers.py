"""Groups, members and transactions may be called anything: none takes the place of another."""

from __future__ import annotations

import json
from typing import Any

from ottla.client.group_admin import GroupDescription, GroupMember, ListedGroup
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
