"""The same on a Spark cluster: a master and two workers, as Spark's own programmes start them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

import pyspark
from confluent_kafka import Producer

from support.cluster import ProcessCluster, wait_until
from support.transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OTTLA = Path(sys.executable).with_name("ottla")
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
WORKERS = 2
SMALL = ("--conf=spark.executor.memory=512m", "--conf=spark.ui.enabled=false")


class Daemon:
    """One of Spark's, whose log says where it listens."""

    def __init__(self, name: str, directory: Path, *words: str) -> None:
        self.log = directory / f"{name}.log"
        environment = dict(
            os.environ,
            PYSPARK_PYTHON=sys.executable,
            SPARK_LOCAL_IP="127.0.0.1",
            SPARK_DAEMON_MEMORY="256m",
            SPARK_WORKER_DIR=str(directory / name),
        )
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(SPARK_CLASS), *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def told(self, pattern: str) -> str:
        found: list[str] = []

        def has_told() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            found[:] = re.findall(pattern, self.log.read_text(errors="replace"))
            return bool(found)

        wait_until(has_told, 120, f"{self.log.name} says {pattern}", every=0.2)
        return found[0]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("standalone")
    package = "org.apache.spark.deploy"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        leader = Daemon("master", directory, f"{package}.master.Master", *ports)
        stack.callback(leader.stop)
        address = leader.told(r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            name = f"worker-{number}"
            size = ("--cores", "1", "--memory", "700m")
            worker = Daemon(name, directory, f"{package}.worker.Worker", *ports, *size, address)
            stack.callback(worker.stop)
            worker.told(r"(Successfully registered with master)")
        yield address


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, SPARK_LOCAL_IP="127.0.0.1")
    return subprocess.run(
        [str(OTTLA), "spark", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )


def test_P51_the_doctor_asks_the_executors_what_they_reach(
    master: str, cluster: ProcessCluster
) -> None:
    words = ("--master", master, "--bootstrap", cluster.bootstrap, "--format", "json")
    done = ottla("doctor", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {each["what"]: each for each in json.loads(done.stdout)}
    seen = [each for what, each in findings.items() if what.startswith("brokers from ")]
    assert len(seen) == 2  # from here, and from the one host that all executors are on
    assert {each["found"].count(":") for each in seen} == {3}
    assert all(each["fine"] for each in findings.values())


def test_P51_a_pipeline_runs_on_workers(
    master: str, cluster: ProcessCluster, tmp_path: Path
) -> None:
    topics = [cluster.create_topic(f"workers-{name}", 2) for name in ("in", "revenue", "dead")]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(400):
        at = f"2026-03-01T12:{number // 10:02}:00Z"
        order = {"order_id": str(number), "product": "tea", "cents": number, "at": at}
        producer.produce(topics[0], json.dumps(order))
    assert producer.flush(30) == 0
    chosen = ("--source", topics[0], "--revenue", topics[1], "--dead-letters", topics[2])
    words = ("--master", master, "--bootstrap", cluster.bootstrap, "--directory", str(tmp_path))
    done = ottla("run", "orders", *words, *SMALL, *chosen)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = {
        told["minute"][14:16]: told["cents"]
        for partition in range(2)
        for told in map(json.loads, read(cluster.bootstrap, topics[1], partition))
    }
    over = range(39 - 10)  # the newest order is of minute 39, and ten minutes may still change
    assert found == {f"{minute:02}": sum(range(10 * minute, 10 * minute + 10)) for minute in over}
