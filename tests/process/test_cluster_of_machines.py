"""Six nodes on what stands for three machines, as real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ottla.client import BlockingClient
from ottla.local.cluster import LocalCluster


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ottla")), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_no_two_replicas_of_a_partition_share_a_machine(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    options = ("--dir", str(directory))
    said = ottla("up", "-n", "6", "--per-machine", "2", "--port", "0", "--detach", *options)
    assert "Topics have 3 replicas, each on another machine" in said.stdout, said.stderr
    try:
        ottla("topics", "create", "t", "-p", "12", *options)
        ottla("groups", "list", *options)
        cluster = LocalCluster.load(directory)
        addresses = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
        with BlockingClient(addresses) as blocking:
            racks = {
                each.id: each.rack
                for each in blocking.run(blocking.client.describe_cluster()).brokers
            }
            topics = blocking.run(blocking.client.metadata()).topics
        assert racks == {id: cluster.machine_of(id) for id in range(1, 7)}
        assert {"t"} <= {topic.name for topic in topics}
        for topic in topics:
            for partition in topic.partitions:
                machines = {racks[id] for id in partition.replicas}
                assert len(machines) == len(partition.replicas) == 3, (topic.name, partition)
        shown = json.loads(ottla("brokers", "--format", "json", *options).stdout)
        assert [each["rack"] for each in shown["racks"]] == ["machine-1", "machine-2", "machine-3"]
        ottla("down", *options)
        refused = ottla("up", "--per-machine", "3", *options)
        assert refused.returncode and "leave out --per-machine" in refused.stderr
    finally:
        ottla("purge", *options)
