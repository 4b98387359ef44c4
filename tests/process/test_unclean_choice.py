"""`ottla topics elect --unclean` lets the longest log of the living lead, and says before what is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.by_commands import CommandedCluster
from support.cluster import OTTLA, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandedCluster]:
    with CommandedCluster(tmp_path / "cluster", 5, "-c", "min.insync.replicas=1") as running:
        yield running


def produce(cluster: CommandedCluster, records: int) -> None:
    lines = "".join(f"{number}\n" for number in range(records))
    command = [str(OTTLA), "produce", "orders", "--dir", str(cluster.directory)]
    subprocess.run(command, input=lines, text=True, check=True, timeout=60)


def lose(cluster: CommandedCluster, broker: int, left: set[int]) -> None:
    cluster.last("nodes", "kill", broker)
    wait_until(lambda: set(partition(cluster)["isr"]) <= left, 60, f"broker {broker} is out")


def partition(cluster: CommandedCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.last("topics", "describe", "orders")["partitions"][0]
    return found


def explained(cluster: CommandedCluster) -> str:
    command = [str(OTTLA), "explain", "orders-0", "--dir", str(cluster.directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def mend(cluster: CommandedCluster) -> str:
    """Of the partition, after its disk that has everything is gone."""
    shutil.rmtree(cluster.directory / "node-3" / "data")
    command = [str(OTTLA), "doctor", "--dir", str(cluster.directory), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = {each["rule"]: str(each["mend"]) for each in json.loads(done.stdout)["findings"]}
    return found["partitions-offline"]


def test_the_longest_log_of_the_living_leads_and_not_the_first_of_the_assignment(
    cluster: CommandedCluster,
) -> None:
    cluster.create("orders", [[4, 5, 3]])
    produce(cluster, 100)
    lose(cluster, 4, {5, 3})
    shutil.rmtree(cluster.directory / "node-4" / "data")
    produce(cluster, 100)
    lose(cluster, 5, {3})
    produce(cluster, 50)
    cluster.last("nodes", "kill", 3)
    wait_until(lambda: partition(cluster)["leader"] is None, 60, "nobody leads")
    for node in (4, 5):
        cluster.last("nodes", "start", node)

    (choice,) = cluster.last("topics", "elect", "orders", "--unclean", "--dry-run")
    longest, empty = choice["candidates"]
    assert (longest["broker"], longest["log_end"], longest["lacks"]) == (5, 200, 0)
    assert (empty["broker"], empty["log_end"], empty["lacks"]) == (4, 0, 200)
    assert (longest["last_epoch"], empty["last_epoch"]) == (1, -1), "that of the last record"
    assert choice["silent"] == [3]
    assert partition(cluster)["leader"] is None, "a dry run elects nobody"
    assert "let broker 5 lead, whose log is the longest of the living (to 200)" in explained(
        cluster
    )
    assert "elects broker 5 of orders-0 (log end 200)" in mend(cluster)

    assert cluster.last("topics", "elect", "orders", "--unclean")["elected"] == [0]
    after = partition(cluster)
    assert (after["leader"], after["ar"]) == (5, [4, 5, 3]), "and the order is as it was"
    told = cluster.last("topics", "elect", "--all")
    assert "orders" in {each["topic"] for each in told}
