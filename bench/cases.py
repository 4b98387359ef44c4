"""The cases: what is done to a cluster, and which figures come out of it.

A case runs once a round against each target in turn. Most share one warm cluster per target; those that are about
starting, dying or many partitions have one of their own (`own_cluster`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka.admin import AdminClient

from bench import clients, many_clients, spark
from bench.clients import COMMON
from bench.targets import SETTLE_S, Target, wait_until
from support import kafka_jars

Figures = dict[str, float]
MB = 1_000_000
GB = 1_000_000_000
PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
SETTLED_S = 15
"""Until what a start or a new topic has to do is done, and a JVM has compiled what it will."""
SETTLED_S_PER_PARTITION = 0.005
"""And files of many: ten thousand replicas on each of three brokers take most of a minute to be on the disk."""
_numbers = count(1)


@dataclass(frozen=True)
class Figure:
    unit: str
    more_is_better: bool = False


FIGURES: dict[str, Figure] = {
    "throughput": Figure("MB/s", more_is_better=True),
    "rate": Figure("requests/s", more_is_better=True),
    "broker CPU": Figure("s/GB"),
    "broker CPU per request": Figure("µs"),
    "idle CPU": Figure("% of a core"),
    "CPU until ready": Figure("s"),
    "CPU until caught up": Figure("s"),
    "PSS per broker": Figure("MB"),
    "RSS per broker": Figure("MB"),
    "PSS after 5 minutes": Figure("MB"),
    "RSS after 5 minutes": Figure("MB"),
    "p50": Figure("ms"),
    "p99": Figure("ms"),
    "p99.9": Figure("ms"),
    "max": Figure("ms"),
    "Spark's CPU": Figure("s/GB"),
    "first result": Figure("s"),
    "ready": Figure("s"),
    "clean stop": Figure("s"),
    "clean start": Figure("s"),
    "start after kill -9": Figure("s"),
    "without an acknowledgement": Figure("ms"),
    "caught up": Figure("s"),
    "all created": Figure("s"),
    "election of all": Figure("s"),
    "metadata log": Figure("MB"),
    "all connected": Figure("s"),
    "all assigned": Figure("s"),
    "join p50": Figure("ms"),
    "join p99": Figure("ms"),
    "heartbeat p50": Figure("ms"),
    "heartbeat p99": Figure("ms"),
    "broker CPU per connection": Figure("µs"),
    "broker CPU per join": Figure("µs"),
    "broker CPU per producer": Figure("µs"),
    "memory per connection": Figure("KiB"),
    "memory per member": Figure("KiB"),
    "memory per producer": Figure("KiB"),
}


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    run: Callable[[Any, float], Figures]
    own_cluster: bool = False
    brokers: int = 3
    long: bool = False  # left out unless it is named, or --long
    java: bool = False  # its client is Kafka's own
    spark: bool = False  # compares sources of Spark, not brokers


def topic_name() -> str:
    return f"bench-{next(_numbers)}"


def burned(target: Target, work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gave, and how many seconds of processors the brokers spent meanwhile."""
    before = target.cpu_s()
    done = work()
    return done, target.cpu_s() - before


# -- writing and reading --------------------------------------------------------------------------


def produce(
    size: int = 1024,
    total_mb: int = 600,
    partitions: int = 6,
    producers: int = 1,
    compression: str = "none",
) -> Callable[[Target, float], Figures]:
    def run(target: Target, scale: float) -> Figures:
        topic = target.create_topic(topic_name(), partitions)
        share = int(total_mb * MB * scale / producers)

        def work() -> float:
            began = time.monotonic()
            each = [
                clients.start(
                    "produce",
                    bootstrap=target.bootstrap,
                    topic=topic,
                    partitions=partitions,
                    size=size,
                    total=share,
                    compression=compression,
                )
                for _ in range(producers)
            ]
            results = [clients.result(client) for client in each]
            # One client measures itself, without its own start; several overlap.
            return float(results[0]["seconds"]) if producers == 1 else time.monotonic() - began

        seconds, cpu = burned(target, work)
        moved = share * producers
        return {
            "throughput": moved / MB / seconds,
            "broker CPU": cpu / (moved / GB),
            **target.memory(),
        }

    return run


def perf_test(target: Target, scale: float) -> Figures:
    """What Kafka's own kafka-producer-perf-test says: a second opinion, by a client in Java."""
    size, partitions = 1024, 6
    records = int(400 * MB * scale / size)
    topic = target.create_topic(topic_name(), partitions)
    secured = [f"{name}={value}" for name, value in target.java_client().items()]
    properties = (f"bootstrap.servers={target.bootstrap}", "acks=all", "linger.ms=5", *secured)
    told, cpu = burned(
        target,
        lambda: kafka_jars.run_tool(
            PERF_TEST,
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1", "--producer-props", *properties, "batch.size=131072"),
            timeout_s=600,
        ),
    )
    found = re.findall(r"\(([0-9.]+) MB/sec\)", told)
    assert found, f"{PERF_TEST} printed no rate:\n{told}"
    return {
        "throughput": float(found[-1]) * 1.048576,
        "broker CPU": cpu / (records * size / GB),
    }


def unbatched(target: Target, scale: float) -> Figures:
    partitions, size = 6, 100
    records = int(60_000 * scale)
    topic = target.create_topic(topic_name(), partitions)
    work = clients.start(
        "produce",
        bootstrap=target.bootstrap,
        topic=topic,
        partitions=partitions,
        size=size,
        total=records * size,
        batched=False,
    )
    done, cpu = burned(target, lambda: clients.result(work))
    return {
        "rate": done["records"] / done["seconds"],
        "broker CPU per request": cpu / done["records"] * 1e6,
    }


def consume(consumers: int) -> Callable[[Target, float], Figures]:
    def run(target: Target, scale: float) -> Figures:
        partitions = 6
        topic = target.create_topic(topic_name(), partitions)
        total = int(400 * MB * scale / (1 if consumers == 1 else 4))
        _fill(target, topic, partitions, total)
        target.settle()
        options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": partitions}

        def work() -> list[dict[str, Any]]:
            each = [clients.start("consume", **options, total=total) for _ in range(consumers)]
            return [clients.result(client) for client in each]

        results, cpu = burned(target, work)
        return {
            "throughput": sum(each["bytes"] for each in results)
            / MB
            / max(each["seconds"] for each in results),
            "broker CPU": cpu / (total * consumers / GB),
        }

    return run


def consume_tail(target: Target, scale: float) -> Figures:
    """A consumer that keeps up with a producer."""
    partitions, total = 6, int(200 * MB * scale)
    topic = target.create_topic(topic_name(), partitions)
    options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": partitions}
    reader = clients.start("consume", **options, total=total)
    done, cpu = burned(
        target,
        lambda: (
            clients.result(clients.start("produce", **options, size=1024, total=total + MB)),
            clients.result(reader),
        ),
    )
    return {
        "throughput": done[1]["bytes"] / MB / done[1]["seconds"],
        "broker CPU": cpu / (total / GB),
    }


def _fill(target: Target, topic: str, partitions: int, total: int, size: int = 1024) -> None:
    clients.result(
        clients.start(
            "produce",
            bootstrap=target.bootstrap,
            topic=topic,
            partitions=partitions,
            size=size,
            total=total + size,
        )
    )


# -- latency --------------------------------------------------------------------------------------


def acknowledged(rate: float) -> Callable[[Target, float], Figures]:
    def run(target: Target, scale: float) -> Figures:
        topic = target.create_topic(topic_name(), 6)
        options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": 6}
        clients.result(clients.start("paced", **options, rate=rate, seconds=2))
        done = clients.result(clients.start("paced", **options, rate=rate, seconds=20 * scale))
        return {"p50": done["p50_ms"], "p99": done["p99_ms"], "p99.9": done["p999_ms"]}

    return run


def end_to_end(target: Target, scale: float) -> Figures:
    topic = target.create_topic(topic_name(), 1)
    options = {"bootstrap": target.bootstrap, "topic": topic, "rate": 250}
    clients.result(clients.start("end_to_end", **options, seconds=2))
    done = clients.result(clients.start("end_to_end", **options, seconds=20 * scale))
    return {"p50": done["p50_ms"], "p99": done["p99_ms"], "p99.9": done["p999_ms"]}


# -- starting, dying, coming back -----------------------------------------------------------------


def start_up(target: Target, scale: float) -> Figures:
    return {"ready": target.ready_s, **idle(target, scale, 10)}


def idle(target: Target, scale: float, seconds: float = 20, partitions: int = 0) -> Figures:
    time.sleep((SETTLED_S + partitions * SETTLED_S_PER_PARTITION) * min(1.0, scale))
    _, cpu = burned(target, lambda: time.sleep(seconds * scale))
    return {"idle CPU": 100 * cpu / (seconds * scale), **target.memory()}


def failover(role: str) -> Callable[[Target, float], Figures]:
    """The longest time that a producer at 250 records a second waits for an acknowledgement."""

    def run(target: Target, scale: float) -> Figures:
        topic = target.create_topic(topic_name(), 1)
        leader = target.leader(topic)
        victim = leader if role == "leader" else target.active_controller()
        options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": 1}
        writer = clients.start("paced", **options, rate=250, seconds=25)
        time.sleep(5)  # into the middle of the measurement
        target.kill(victim)
        done = clients.result(writer)
        target.start(victim)
        target.wait_ready()
        target.wait_in_sync(
            AdminClient({"bootstrap.servers": target.bootstrap, **COMMON}), topic, 1
        )
        return {"without an acknowledgement": done["silence_ms"]}

    return run


def rolling_restart(target: Target, scale: float) -> Figures:
    topic = target.create_topic(topic_name(), 6)
    admin = AdminClient({"bootstrap.servers": target.bootstrap, **COMMON})
    options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": 6}
    writer = clients.start("paced", **options, rate=250, seconds=75)
    for id in list(target.pids):
        target.stop(id)
        target.start(id)
        target.wait_ready()
        target.wait_in_sync(admin, topic, 6)
    done = clients.result(writer)
    return {"without an acknowledgement": done["silence_ms"], "p99": done["p99_ms"]}


def catch_up(target: Target, scale: float) -> Figures:
    """A follower comes back with nothing and fetches everything, from its first moment on: what it spends on booting
    cannot be told from what it spends on copying, so the seconds of both are told, and none per gigabyte."""
    total = int(600 * MB * scale)
    topic = target.create_topic(topic_name(), 6)
    _fill(target, topic, 6, total)
    victim = next(id for id in target.pids if id != target.active_controller())
    admin = AdminClient({"bootstrap.servers": target.bootstrap, **COMMON})
    target.stop(victim)
    data = target.cluster.node_directory(victim) / "data"
    for directory in data.glob("bench-*"):
        shutil.rmtree(directory)
    for file in data.glob("*checkpoint*"):
        file.unlink()
    before, began = target.cpu_s(), time.monotonic()
    target.start(victim)
    target.wait_ready()
    until_ready = target.cpu_s() - before
    target.wait_in_sync(admin, topic, 6)
    return {
        "caught up": time.monotonic() - began,
        "CPU until ready": until_ready,
        "CPU until caught up": target.cpu_s() - before,
    }


def one_broker_with_much(target: Target, scale: float) -> Figures:
    """1,000 partitions and 10 GB of log (times the scale) on one broker."""
    partitions = max(10, int(1000 * scale))
    topic = target.create_topic(topic_name(), partitions)
    _fill(target, topic, partitions, int(10 * GB * scale), size=10_000)
    (id,) = target.pids

    def started() -> float:
        began = time.monotonic()
        target.start(id)
        target.wait_ready()
        return time.monotonic() - began

    target.stop(id)
    clean = started()
    target.kill(id)
    return {"clean start": clean, "start after kill -9": started()}


def idle_partitions(partitions: int) -> Callable[[Target, float], Figures]:
    def run(target: Target, scale: float) -> Figures:
        target.create_topic(topic_name(), partitions)
        return idle(target, scale)

    return run


# -- many partitions ------------------------------------------------------------------------------


def many_partitions(partitions: int) -> Callable[[Target, float], Figures]:
    def run(target: Target, scale: float) -> Figures:
        began = time.monotonic()
        topic = target.create_topic(topic_name(), partitions)
        created = time.monotonic() - began
        figures = {"all created": created, **idle(target, scale, partitions=partitions)}
        options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": partitions}
        rate = clients.result(
            clients.start("produce", **options, size=1024, total=int(200 * MB * scale))
        )
        figures["throughput"] = rate["bytes"] / MB / rate["seconds"]
        data = target.cluster.node_directory(1) / "data" / "__cluster_metadata-0"
        figures["metadata log"] = sum(each.stat().st_size for each in data.glob("*.log")) / MB
        figures["election of all"], _ = all_elected(target, topic)
        return figures

    return run


def all_elected(target: Target, topic: str) -> tuple[float, int]:
    """Kill a broker that is not the active controller: how long until every survivor tells of other leaders for all that
    it led, and which it was."""
    victim = next(id for id in target.pids if id != target.active_controller())
    survivors = [
        AdminClient({"bootstrap.servers": target.cluster.nodes[id].address, **COMMON})
        for id in target.pids
        if id != victim
    ]

    def led_by(admin: AdminClient) -> set[int]:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return {each.leader for each in found}

    def is_over(admin: AdminClient) -> bool:
        return led_by(admin).isdisjoint((-1, victim))

    for admin in survivors:  # connected, before the clock starts
        assert victim in led_by(admin), f"{target.name}: {victim} leads nothing"
    target.kill(victim)
    began = time.monotonic()
    for admin in survivors:
        what = f"{target.name}: others lead what {victim} led"
        wait_until(partial(is_over, admin), 120, what)
    return time.monotonic() - began, victim


def come_and_go(partitions: int) -> Callable[[Target, float], Figures]:
    """What many partitions cost while brokers die, start and stop. Nobody writes or reads meanwhile."""

    def run(target: Target, scale: float) -> Figures:
        began = time.monotonic()
        topic = target.create_topic(topic_name(), partitions)
        figures = {"all created": time.monotonic() - began}
        time.sleep((SETTLED_S + partitions * SETTLED_S_PER_PARTITION) * min(1.0, scale))
        figures["election of all"], victim = all_elected(target, topic)
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **COMMON})

        def started() -> float:
            began = time.monotonic()
            target.start(victim)
            target.wait_ready()
            return time.monotonic() - began

        began = time.monotonic()
        figures["start after kill -9"] = started()
        target.wait_in_sync(admin, topic, partitions)
        figures["caught up"] = time.monotonic() - began
        time.sleep(SETTLE_S)
        began = time.monotonic()
        target.stop(victim)
        figures["clean stop"] = time.monotonic() - began
        figures["clean start"] = started()
        return figures

    return run


def steady_hour(target: Target, scale: float) -> Figures:
    """Memory a few minutes into 2,000 records a second, and after an hour of it; files expire meanwhile."""
    topic = target.create_topic(topic_name(), 6, {"retention.bytes": str(256 * 1024 * 1024)})
    options = {"bootstrap": target.bootstrap, "topic": topic, "partitions": 6}
    figures = {}
    for minute in range(1, 61):
        clients.result(clients.start("paced", **options, rate=2000, seconds=60 * scale))
        if minute == 5:
            figures = target.memory("after 5 minutes")
    return {**figures, **target.memory()}


CASES = (
    Case("start", "three brokers from nothing to ready; idle for a while", start_up, True),
    Case("cold", "1 KiB records, the first thing after the start", produce(total_mb=200), True),
    Case("produce-1k", "1 KiB records, 6 partitions", produce()),
    Case("produce-100b", "100 B records, 6 partitions", produce(size=100, total_mb=100)),
    Case("produce-1-partition", "1 KiB records, 1 partition", produce(partitions=1)),
    Case("produce-50-partitions", "1 KiB records, 50 partitions", produce(partitions=50)),
    Case("produce-lz4", "1 KiB records, lz4", produce(compression="lz4")),
    Case("produce-4-producers", "1 KiB records, 4 producers", produce(producers=4)),
    Case("produce-16-producers", "1 KiB records, 16 producers", produce(producers=16)),
    Case("perf-test", "1 KiB records, by Kafka's own perf test", perf_test, java=True),
    Case("unbatched", "one record of 100 B in each request, 200 in flight", unbatched),
    Case("consume", "from the beginning, out of the page cache", consume(1)),
    Case("consume-10", "the same, 10 consumers", consume(10)),
    Case("consume-tail", "a consumer that keeps up with a producer", consume_tail),
    Case("ack-250", "acknowledgement at 250 records/s", acknowledged(250)),
    Case("ack-2000", "acknowledgement at 2,000 records/s", acknowledged(2000)),
    Case("end-to-end", "from due to consumed at 250 records/s", end_to_end),
    Case("catch-up", "a follower comes back with nothing, 600 MB to copy", catch_up, True),
    Case("failover-leader", "kill -9 of a leader", failover("leader"), True),
    Case("failover-controller", "kill -9 of the active controller", failover("controller"), True),
    Case("rolling-restart", "each broker restarted in turn", rolling_restart, True),
    Case("idle-1000", "1,000 partitions in which nothing happens", idle_partitions(1000), True),
    Case("partitions-100", "100 partitions", many_partitions(100), True),
    Case("partitions-1000", "1,000 partitions", many_partitions(1000), True),
    Case("partitions-10000", "10,000 partitions", many_partitions(10_000), True, long=True),
    Case("restarts-300", "300 partitions; brokers die, start, stop", come_and_go(300), True),
    Case("restarts-1000", "1,000 partitions; brokers die, start, stop", come_and_go(1000), True),
    Case(
        "restarts-10000",
        "10,000 partitions; brokers die, start, stop",
        come_and_go(10_000),
        True,
        long=True,
    ),
    Case("connections-2000", "2,000 connections", many_clients.connections(2000), True),
    Case("producers-1000", "1,000 producers, 5 records each", many_clients.producers(1000), True),
    Case("groups-500", "500 groups of 2, classic", many_clients.classic(500, 2), True),
    Case("members-200", "200 members of a group, classic", many_clients.classic(1, 200), True),
    Case("consumers-200", "200 members, KIP-848", many_clients.consumers(200), True),
    Case("much", "one broker: 1,000 partitions, 10 GB", one_broker_with_much, True, 1, long=True),
    Case("hour", "an hour of 2,000 records/s", steady_hour, True, long=True),
    Case("spark-read-1k", "a query over 1 KiB records", spark.read(1024, 500), spark=True),
    Case("spark-read-100b", "a query over 100 B records", spark.read(100, 200), spark=True),
    Case("spark-write", "a job that writes 1 KiB records", spark.write, spark=True),
    Case("spark-latency", "single records through a quiet stream", spark.latency, spark=True),
    Case("spark-first-query", "of a fresh session", spark.first_query, spark=True),
)
