"""What `ottla doctor` and docs/A_MACHINE_DIED.md say helps after a machine died, done as they say it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.by_commands import CommandedCluster
from support.cluster import OTTLA, ClusterNotReady, wait_until

pytestmark = pytest.mark.timeout(300)

RECORDS = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandedCluster]:
    with CommandedCluster(tmp_path / "cluster", 3) as running:
        yield running


def written(cluster: CommandedCluster) -> None:
    cluster.create("orders", [[1, 2, 3]])
    run(cluster, f"seq {RECORDS} | ottla produce orders --dir {cluster.directory}")


def run(cluster: CommandedCluster, line: str) -> str:
    """A line of a shell, with our commands on its path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        line,
        shell=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path, "OTTLA_DIR": str(cluster.directory)},
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def findings(cluster: CommandedCluster) -> dict[str, dict[str, Any]]:
    command = [
        str(OTTLA),
        "doctor",
        "--dir",
        str(cluster.directory),
        "--format",
        "json",
        "--timeout",
        "5",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return {each["rule"]: each for each in json.loads(done.stdout)["findings"]}


def lose_the_disk(cluster: CommandedCluster, *nodes: int) -> None:
    for node in nodes:
        cluster.last("nodes", "kill", node)
        shutil.rmtree(cluster.directory / f"node-{node}" / "data")


def assert_whole(cluster: CommandedCluster) -> None:
    wait_until(lambda: cluster.is_whole("orders"), 60, "all replicas in sync")
    read = run(cluster, "ottla consume orders --exit")
    assert len(read.splitlines()) == RECORDS


@pytest.mark.parametrize("words", [(), ("--dynamic-voters",)], ids=["static", "dynamic"])
def test_a_node_whose_disk_is_gone_is_mended_as_the_doctor_says(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    with CommandedCluster(tmp_path / "cluster", 3, *words) as cluster:
        written(cluster)
        lose_the_disk(cluster, 1)
        wait_until(lambda: "broker-fenced" in findings(cluster), 60, "the controller fences it")
        assert "is gone; ottla brokers replace 1 " in run(cluster, "ottla status")
        found = findings(cluster)["broker-fenced"]
        assert "node-1/data is gone" in found["what"]
        assert found["mend"].startswith("ottla brokers replace 1 ")
        assert ("controllers replace 1" in found["mend"]) == bool(words)
        run(cluster, found["mend"])
        assert_whole(cluster)
        assert not {"broker-fenced", "voters-behind", "node-ended"} & set(findings(cluster))


def test_a_disk_is_replaced_where_static_voters_were_upgraded_and_one_of_them_has_left(
    tmp_path: Path,
) -> None:
    """The files of the nodes name the voters of before: an empty disk would wait for the answer of one that is gone."""
    with CommandedCluster(tmp_path / "cluster", 3) as cluster:
        written(cluster)
        upgrade = f"ottla kafka-features --bootstrap-server {cluster.bootstrap} upgrade"
        upgrade += " --feature kraft.version=1"

        def is_upgraded() -> bool:
            try:
                run(cluster, upgrade)
            except AssertionError as error:
                raise ClusterNotReady(str(error)) from None
            return True

        wait_until(is_upgraded, 60, "all voters have told their leader of themselves")
        cluster.last("controllers", "add", 4)
        cluster.last("controllers", "remove", 3)
        cluster.last("nodes", "stop", 3)
        lose_the_disk(cluster, 2)
        run(cluster, "ottla brokers replace 2")
        after = cluster.last("controllers", "replace", 2)
        assert sorted(after["voters"]) == [1, 2, 4]


def test_a_start_without_the_disk_of_before_says_so(cluster: CommandedCluster) -> None:
    lose_the_disk(cluster, 2)
    begun = cluster.begin("nodes", "start", 2)
    _, errors = begun.communicate(timeout=120)
    assert begun.returncode == 0 and "node 2 has lost its disk" in errors
    cluster.last("nodes", "stop", 2)
    _, errors = cluster.begin("nodes", "start", 2).communicate(timeout=120)
    assert "lost" not in errors


@pytest.mark.slow
def test_the_only_controller_with_a_disk_brings_the_others_back(cluster: CommandedCluster) -> None:
    written(cluster)
    lose_the_disk(cluster, 1, 2)
    files = {path: path.read_text() for path in cluster.directory.glob("node-*/*.properties")}
    found = findings(cluster)["quorum-has-no-leader"]
    assert "1 of 3 controllers runs" in found["what"] or "answer" in found["what"]
    assert "What only the others had decided is lost" in found["mend"]
    run(cluster, found["mend"])
    assert_whole(cluster)
    assert {path: path.read_text() for path in files} == files, "all vote again"
    cluster.last("nodes", "kill", cluster.active_controller())
    wait_until(lambda: cluster.active_controller() > 0, 60, "the others elect another")


PAGE = Path(__file__).resolve().parents[2] / "docs" / "A_MACHINE_DIED.md"


def sections() -> dict[str, list[list[str]]]:
    """By heading: the commands of each block."""
    found = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        blocks = re.findall(r"```console\n(.*?)```", text, re.S)
        found[heading] = [re.findall(r"^\$ (.*)$", block, re.M) for block in blocks]
    return found


def do(cluster: CommandedCluster, lines: list[str]) -> None:
    for line in lines:
        run(cluster, line.replace("/mnt/", f"{cluster.directory.parent}/"))


@pytest.mark.slow
def test_the_page_about_dead_machines_does_what_it_says(cluster: CommandedCluster) -> None:
    page = sections()
    written(cluster)
    cluster.last("nodes", "kill", 3)
    (commands,) = page.pop("A broker process died")
    do(cluster, commands)
    assert_whole(cluster)

    lose_the_disk(cluster, 3)  # and at once, before the controller has noticed it
    replace, elect = page.pop("Its disk is gone")
    do(cluster, replace)
    assert_whole(cluster)
    do(cluster, elect)

    lose_the_disk(cluster, 2, 3)
    (commands,) = page.pop("Two of three controllers are gone")
    do(cluster, commands)
    assert_whole(cluster)

    (commands,) = page.pop("A disk of its own for a node")
    do(cluster, commands)
    assert_whole(cluster)
    assert (cluster.directory.parent / "disk-3" / "meta.properties").exists()

    (look, *others), *_ = page.pop("A disk is full")
    assert look == "ottla doctor"
    findings(cluster)
    do(cluster, others)
    assert list(page) == ["A controller's disk is gone"], "which the next test does"


@pytest.mark.slow
def test_the_page_replaces_a_controller_whose_disk_is_gone(tmp_path: Path) -> None:
    with CommandedCluster(tmp_path / "cluster", 3, "--dynamic-voters") as cluster:
        written(cluster)
        lose_the_disk(cluster, 3)
        wait_until(lambda: "broker-fenced" in findings(cluster), 60, "the controller fences it")
        (commands,) = sections()["A controller's disk is gone"]
        do(cluster, commands)
        assert_whole(cluster)
        listed = cluster.last("controllers", "list")["replicas"]
        assert {each["id"] for each in listed if each["role"] != "observer"} == {1, 2, 3}
