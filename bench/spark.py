"""What Spark is measured with: `format("ottla")` and Spark's own connector, over one cluster of ottla.

Each has a session of its own (the connector's last complete release is older than the PySpark that ours needs), with the
same settings, and both read the same topics.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Self

from bench import clients
from bench.targets import TICKS_PER_S, Ottla
from support import spark_sources
from support.spark_latency import QuietStream

MB = 1_000_000
GB = 1_000_000_000
PARTITIONS = 4
WARM_UP_RUNS = 2
"""A JVM compiles what it does often."""
WARM_UP_RECORDS = 20
IDLE_FROM_S = 5
CPU_EVERY_S = 0.5


def is_installed() -> bool:
    return find_spec("pyspark") is not None


class SharedCluster:
    """Made with the first that asks, as are its topics."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._cluster: Ottla | None = None
        self._filled: dict[tuple[int, int], str] = {}
        self._numbers = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def cluster(self) -> Ottla:
        if self._cluster is None:
            self._cluster = self._stack.enter_context(Ottla())
        return self._cluster

    def directory(self) -> Path:
        return self.cluster.directory / f"spark-{next(self._numbers)}"

    def new_topic(self) -> str:
        return self.cluster.create_topic(f"spark-{next(self._numbers)}", PARTITIONS)

    def filled(self, size: int, total: int) -> str:
        """A topic with records of that size, the same one for all that ask."""
        if (size, total) not in self._filled:
            topic = self.new_topic()
            options = {"bootstrap": self.cluster.bootstrap, "topic": topic, "size": size}
            clients.result(clients.start("produce", **options, partitions=PARTITIONS, total=total))
            self._filled[size, total] = topic
        return self._filled[size, total]


class SparkTarget(ABC):
    """One of the two sources, with a session that stays."""

    name: str

    def __init__(self, shared: SharedCluster) -> None:
        self.shared = shared
        self.bootstrap = shared.cluster.bootstrap
        self.session = self.fresh()
        self._warm: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.__exit__()

    @abstractmethod
    def fresh(self) -> spark_sources.SparkSource:
        """Another session."""

    def warm(self, name: str, work: Callable[[spark_sources.SparkSource], Any]) -> Any:
        """What the work gives when it is done not for the first time, and the processor seconds of all of Spark."""
        if name not in self._warm:
            self._warm.add(name)
            for _ in range(WARM_UP_RUNS):
                work(self.session)
        with SessionCpu(self.session.system_session) as cpu:
            done = work(self.session)
        return done, cpu.seconds


class OttlaSource(SparkTarget):
    name = "ottla"

    def fresh(self) -> spark_sources.SparkSource:
        return spark_sources.OttlaSource(self.shared.directory())


class SparkConnector(SparkTarget):
    name = "Kafka"

    def fresh(self) -> spark_sources.SparkSource:
        return spark_sources.SparkConnector(self.shared.directory())


class SessionCpu:
    """Processor seconds of every process of a session of the system: driver, JVM and Python workers.

    What a process has had is gone with it, and nobody may have waited for it (Spark ends workers that are idle), so it is
    looked at again and again.
    """

    def __init__(self, session: int) -> None:
        self.seconds = 0.0
        self._session = session
        self._ended = Event()
        self._looking = Thread(target=self._look_again_and_again, daemon=True)

    def __enter__(self) -> Self:
        self._before = self._ticks()
        self._after = dict(self._before)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()
        self._after |= self._ticks()
        self.seconds = (sum(self._after.values()) - sum(self._before.values())) / TICKS_PER_S

    def _look_again_and_again(self) -> None:
        while not self._ended.wait(CPU_EVERY_S):
            self._after |= self._ticks()

    def _ticks(self) -> dict[tuple[str, str], int]:
        """By process: its number, and when it began."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            if int(fields[3]) == self._session:
                found[stat.parent.name, fields[19]] = int(fields[11]) + int(fields[12])
        return found


# -- the cases


def read(size: int, total_mb: int) -> Callable[[SparkTarget, float], dict[str, float]]:
    def run(target: SparkTarget, scale: float) -> dict[str, float]:
        topic = target.shared.filled(size, int(total_mb * MB * scale))
        options = {"bootstrap": target.bootstrap, "topic": topic}
        done, cpu = target.warm(topic, lambda spark: spark("measure", **options))
        return {
            "throughput": done["bytes"] / MB / done["seconds"],
            "Spark's CPU": cpu / (done["bytes"] / GB),
        }

    return run


def write(target: SparkTarget, scale: float) -> dict[str, float]:
    size = 1024
    rows = int(200 * MB * scale) // size

    def work(spark: spark_sources.SparkSource) -> Any:
        topic = target.shared.new_topic()
        done = spark("measure_write", bootstrap=target.bootstrap, topic=topic, rows=rows, size=size)
        target.shared.cluster.delete_topics(topic)
        return done

    done, cpu = target.warm("write", work)
    return {
        "throughput": done["bytes"] / MB / done["seconds"],
        "Spark's CPU": cpu / (done["bytes"] / GB),
    }


def first_query(target: SparkTarget, scale: float) -> dict[str, float]:
    """From a session that is there to the first result."""
    topic = target.shared.filled(1024, int(100 * MB * scale))
    with target.fresh() as spark:
        began = time.monotonic()
        spark("measure", bootstrap=target.bootstrap, topic=topic)
        return {"first result": time.monotonic() - began}


def latency(target: SparkTarget, scale: float) -> dict[str, float]:
    """A stream over a topic in which little happens: how long a single record takes, and what it costs to wait for one."""
    topic = target.shared.new_topic()
    with QuietStream(target.session, target.bootstrap, topic) as stream:
        stream.latencies_ms(WARM_UP_RECORDS)
        taken = stream.latencies_ms(max(5, int(30 * scale)))
        time.sleep(IDLE_FROM_S)
        seconds = 60 * scale
        with SessionCpu(target.session.system_session) as cpu:
            time.sleep(seconds)
    return {"p50": median(taken), "max": max(taken), "idle CPU": 100 * cpu.seconds / seconds}
