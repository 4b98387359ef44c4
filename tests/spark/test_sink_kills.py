"""Exactly once, whatever dies: a stream's task, driver or broker is killed at each step of the commit, the stream is
started again, and its output is compared with its input row by row."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from support.cluster import ProcessCluster, wait_until
from support.transactions import read

HERE = Path(__file__).parent
PARTITIONS = 2
ROWS = 300
JOB_S_MAX = 1200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

TASK_POINTS = (
    "task:begins",
    "task:has-begun",
    "task:has-sent",
    "task:flushes",
    "task:has-flushed",
)
DRIVER_POINTS = (
    "driver:before-ListOpen",
    "driver:before-Propose",
    "driver:before-CheckOpen",
    "driver:before-Confirm",
    "driver:before-CommitTransactions",
    "driver:amid-CommitTransactions",
    "driver:before-RecordDecision",
    "driver:before-Abort",
    "driver:after-Abort",
)


class Job:
    """A stream that writes the files of a directory to a topic; each run of it is a process."""

    def __init__(self, cluster: ProcessCluster, directory: Path, **options: str) -> None:
        self.cluster = cluster
        self.directory = directory
        self.options = options
        self.topic = cluster.create_topic("out", partitions=PARTITIONS)
        self.fault = directory / "fault"
        self.written: list[str] = []
        (directory / "input").mkdir()

    def add(self, name: str) -> None:
        rows = [f"{name} {number}" for number in range(ROWS)]
        hidden = self.directory / f".{name}"
        hidden.write_text("".join(f"{row}\n" for row in rows))
        hidden.rename(self.directory / "input" / f"{name}.txt")
        self.written += rows

    def start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE / "faults"), str(HERE), str(HERE.parent)])
        options = [f"{name}={value}" for name, value in self.options.items()]
        return subprocess.Popen(
            [sys.executable, str(HERE / "sink_job.py"), self.cluster.bootstrap, self.topic,
             str(self.directory), *options],
            env={**os.environ, "PYTHONPATH": path, "OTTLA_FAULT": str(self.fault)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.directory / "job.log").open("a"),
            text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(
        self, point: str | None = None, kill: str = "driver", after_s: float | None = None
    ) -> int:
        """The exit code. At the point, or after a time, what is named is killed: "driver", "self" (the process that
        comes there), or the number of a broker."""
        with self.start() as process:
            assert process.stdin is not None
            assert process.stdout is not None
            driver = process.stdout.readline().split()
            assert len(driver) == 2, self.log()
            victims = driver if kill == "driver" else [kill]
            if kill.isdecimal():
                victims = [str(self.cluster.nodes[int(kill)].pid)]
            if point is not None:
                self.fault.write_text(" ".join([point, *victims]))
            process.stdin.write("go\n")
            process.stdin.flush()
            if after_s is not None:
                time.sleep(after_s)
                _kill(victims)
            timer = threading.Timer(JOB_S_MAX, _kill, [driver])
            timer.start()
            code = process.wait()
            timer.cancel()
        if point is not None:
            assert not self.fault.exists(), f"{point} was never reached\n{self.log()}"
        return code

    def log(self) -> str:
        return (self.directory / "job.log").read_text()[-5000:]

    def output(self) -> list[str]:
        return sorted(
            value
            for partition in range(PARTITIONS)
            for value in read(self.cluster.bootstrap, self.topic, partition)
        )

    def is_exact(self) -> None:
        wanted = sorted(self.written)
        wait_until(lambda: len(self.output()) >= len(wanted), 30, "every row is there", every=0.5)
        assert self.output() == wanted


def _kill(pids: list[str]) -> None:
    for pid in map(int, pids):
        with suppress(ProcessLookupError):  # it has come to its end before
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def job(new_cluster: Callable[..., ProcessCluster], tmp_path: Path) -> Job:
    three = new_cluster(
        3,
        broker_session_timeout_ms="3000",
        broker_heartbeat_interval_ms="500",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    )
    return Job(three, tmp_path)


@pytest.mark.parametrize("point", TASK_POINTS)
def test_P51_a_task_dies(job: Job, point: str) -> None:
    """Its process does; Spark starts another attempt."""
    job.add("a")
    job.add("b")
    assert job.run(point, "self") == 0, job.log()
    job.is_exact()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=pytest.mark.spark_quick if point == "driver:amid-Commit" else ())
        for point in (*TASK_POINTS, *DRIVER_POINTS)
    ],
)
def test_P51_the_driver_dies(job: Job, point: str) -> None:
    """And with it all tasks; the query is started again."""
    job.add("a")
    job.add("b")
    assert job.run(point, "driver") != 0
    job.add("c")
    assert job.run() == 0, job.log()
    job.is_exact()


@pytest.mark.parametrize("point", ["task:has-sent", *DRIVER_POINTS])
def test_P51_a_broker_dies(job: Job, point: str) -> None:
    """The leader of the first partition, and coordinator of some of the transactions; the query goes on."""
    job.add("a")
    job.add("b")
    victim = job.cluster.leader(job.topic)
    assert job.run(point, str(victim)) == 0, job.log()
    job.is_exact()


def test_P51_the_query_comes_back_after_the_transaction_timeout(job: Job) -> None:
    """Some of the decided transactions were committed, the others aborted: they are taken from the next run."""
    job.options["kafka.transaction.timeout.ms"] = "10000"
    job.add("a")
    assert job.run("driver:amid-CommitTransactions", "driver") != 0
    time.sleep(12)
    assert job.run() == 0, job.log()
    job.is_exact()


def random_run(job: Job, seed: int) -> None:
    """The driver, tasks or brokers are killed at random moments, until all rows are written in peace."""
    chance = random.Random(seed)
    for number in range(3):
        job.add(f"{seed}-{number}")
    down: list[int] = []
    for _ in range(3):
        kind = chance.choice(["driver", "driver", "self", "broker"])
        point = chance.choice([*TASK_POINTS, *(DRIVER_POINTS if kind != "self" else ())])
        if kind == "broker":
            kind = str(
                chance.choice([id for id, node in job.cluster.nodes.items() if node.running])
            )
            down.append(int(kind))
        if kind == "driver" and chance.random() < 0.5:
            job.run(kill="driver", after_s=chance.uniform(2, 12))
        else:
            job.run(point, kind)
        if down:
            job.cluster.start(down.pop())
        job.add(f"{seed}-more-{len(job.written)}")
    assert job.run() == 0, job.log()
    job.is_exact()


RUNS = [int(number) for number in os.environ.get("OTTLA_KILL_RUNS", "1 2").split()]


@pytest.mark.parametrize("seed", RUNS)
def test_P51_random_kills(job: Job, seed: int) -> None:
    """More of them: OTTLA_KILL_RUNS="$(seq -s' ' 30)" .venv/bin/python -m pytest FILE -k random_kills"""
    random_run(job, seed)
