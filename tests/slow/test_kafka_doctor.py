"""The doctor and the bundle on Apache Kafka: the same questions, the same words."""

from __future__ import annotations

import json
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import errors
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.kafka_server import kafka_instead

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
OF_THE_MACHINE = {"disk-full", "disk-will-be-full"}


def doctor(cluster: ProcessCluster, *words: str) -> tuple[int, dict[str, Any]]:
    command = [str(OTTLA), "doctor", "-b", cluster.bootstrap, "--format", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def rules(found: dict[str, Any]) -> set[str]:
    return {each["rule"] for each in found["findings"]} - OF_THE_MACHINE


def test_the_doctor_knows_apache_kafka_healthy_and_ill(tmp_path: Path) -> None:
    # The nodes of ours format the directories; Kafka's programme then runs in them.
    with ProcessCluster(tmp_path / "cluster", 3, SETTINGS) as cluster:
        cluster.stop(1, 2, 3)
        with kafka_instead(cluster):
            cluster.create_topic("fine", 3)
            _, found = doctor(cluster)
            assert rules(found) == set(), found
            told = " ".join(found["unknown"])
            assert told.count("clock of broker") == 2, found["unknown"]
            code, found = doctor(cluster, "--from-client")
            assert (code, rules(found), found["unknown"]) == (errors.OK, set(), {})

            cluster.create_topic("lonely", 1, 1)
            cluster.create_topic("lax", 1, 3, {"min.insync.replicas": "1"})
            process = cluster._local.nodes[3].process
            assert process is not None and process.signal(signal.SIGKILL)
            wait_until(lambda: "broker-fenced" in rules(doctor(cluster)[1]), 60, "it is fenced")
            code, found = doctor(cluster)
            assert code == errors.SERIOUS
            assert {"broker-fenced", "under-replicated", "one-replica", "min-insync-one"} <= rules(
                found
            )

            out = tmp_path / "bundle.tar.gz"
            command = [str(OTTLA), "bundle", "-b", cluster.bootstrap, "--out", str(out)]
            subprocess.run(command, check=True, timeout=90)
            with tarfile.open(out) as archive:
                names = [Path(name).name for name in archive.getnames()]
            assert {"facts.json", "findings.json", "machine.json"} <= set(names)
