"""A group of real clients changes its protocol in a rolling restart, and changes it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.groups import (
    ConfluentCooperative,
    ConfluentMember,
    ConfluentNew,
    GroupMember,
    Make,
    produce,
    read_until,
    settle,
)

PARTITIONS = 4
SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_heartbeat_interval_ms": "500",
    "offsets_topic_num_partitions": "1",
}


def type_of(cluster: ProcessCluster, group: str) -> str:
    listed = [
        found
        for node in cluster.up
        for found in cluster.ask(node, ApiKey.LIST_GROUPS, 5, {}).groups
        if found.group_id == group
    ]
    return str(listed[0].group_type) if listed else ""


@pytest.mark.parametrize(
    "make", [ConfluentMember, ConfluentCooperative], ids=lambda make: make.name
)
def test_a_rolling_restart_changes_a_groups_protocol_and_changes_it_back(
    new_cluster: Callable[..., Any], make: Make
) -> None:
    cluster: ProcessCluster = new_cluster(3, **SETTINGS)
    topic = cluster.create_topic("t", PARTITIONS)
    members: list[GroupMember] = []
    gone: list[GroupMember] = []
    written = 0

    def joined(make: Make) -> GroupMember:
        quick = {} if make is ConfluentNew else {"heartbeat.interval.ms": 500}
        return make(cluster.bootstrap, "g", [topic], **quick)

    def write_and_read() -> None:
        """What is written now is read, and committed by whoever has it."""
        nonlocal written
        produce(cluster.bootstrap, topic, 40, PARTITIONS, written)
        written += 40
        before = sum(len(member.read) for member in gone)
        read_until(members, written - before)
        for member in members:
            member.commit()

    def roll(to: Make) -> None:
        """One comes, one goes, until all are of the other kind."""
        for _ in range(2):
            members.append(joined(to))
            settle(members, [1, 1, 2], "three members of two kinds", 60)
            write_and_read()
            left = members.pop(0)
            left.close()
            gone.append(left)
            settle(members, [2, 2], "two members", 60)
            write_and_read()

    try:
        for _ in range(2):
            members.append(joined(make))
        settle(members, [2, 2], "a classic group", 60)
        write_and_read()
        assert type_of(cluster, "g") == "classic"
        roll(ConfluentNew)
        assert type_of(cluster, "g") == "consumer"
        roll(make)
        wait_until(lambda: type_of(cluster, "g") == "classic", 10, "a classic group again")
        values = [value for member in (*gone, *members) for _, value in member.read]
        assert sorted(map(int, values)) == list(range(written)), "each record once"
    finally:
        for member in members:
            member.close()
