"""The demonstration: kill the leader under load and count.

A cluster of three real processes, one partition on all three. confluent-kafka (librdkafka) writes with
acks=all and reads along; halfway the leader gets SIGKILL, later it comes back. Nothing here knows that
the brokers are ours: the same script counts for any Kafka. What survived then goes through a pipeline on Spark.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import demo_orders
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from ottla.client import BlockingClient, Unreachable
from ottla.local.cluster import LocalCluster
from ottla.wire.errors import KafkaError as Refused

TOPIC = demo_orders.SOURCE
QUIET = {"log_level": 0}


@dataclass
class Count:
    """What became of the records; each is its own number, so that loss and doubles can be told."""

    total: int
    written: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Offset of each acknowledged record."""
    failed: list[str] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    """How often each record was read."""
    last_acknowledged_at: float = 0.0
    longest_wait_s: float = 0.0

    @property
    def lost(self) -> int:
        return sum(number not in self.read for number in self.acknowledged)

    @property
    def duplicated(self) -> int:
        return sum(times - 1 for times in self.read.values() if times > 1)


@dataclass
class Leadership:
    epoch: int
    leader: int
    since: float


class Watch(threading.Thread):
    """Asks the brokers again and again who leads, and notes every change."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.history: list[Leadership] = []
        self.isr: tuple[int, ...] = ()
        self.stopping = threading.Event()
        self._addresses = [("127.0.0.1", node.port) for node in cluster.nodes.values()]

    def run(self) -> None:
        with BlockingClient(self._addresses, timeout_s=1) as blocking:
            while not self.stopping.wait(0.005):
                try:
                    topic = blocking.run(blocking.client.topic(TOPIC, fresh=True))
                except (OSError, Refused, Unreachable):
                    continue  # the broker that was asked just died: ask the next
                partition = topic.partitions[0]
                self.isr = partition.isr
                newest = self.history[-1].epoch if self.history else -1
                if partition.leader >= 0 and partition.leader_epoch > newest:
                    self.history.append(
                        Leadership(partition.leader_epoch, partition.leader, time.monotonic())
                    )


def produce(cluster: LocalCluster, count: Count, seconds: float) -> None:
    """Evenly over the time, with acks=all; librdkafka retries by itself and makes no doubles."""
    producer = Producer(
        QUIET
        | {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            count.failed.append(str(error))
            return
        now = time.monotonic()
        if count.last_acknowledged_at:
            count.longest_wait_s = max(count.longest_wait_s, now - count.last_acknowledged_at)
        count.last_acknowledged_at = now
        count.acknowledged[int(message.key())] = message.offset()

    began = time.monotonic()
    for number in range(count.total):
        while True:
            try:
                record = demo_orders.value(number)
                producer.produce(TOPIC, record, str(number), 0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        count.written += 1
        ahead = began + seconds * number / count.total - time.monotonic()
        producer.poll(max(0.0, ahead))
    producer.flush(20)


def consume(cluster: LocalCluster, count: Count, stopping: threading.Event) -> None:
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while not stopping.is_set():
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is None:
                number = int(message.key())
                count.read[number] = count.read.get(number, 0) + 1
    consumer.close()


@contextmanager
def running_cluster(directory: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster.create(directory, 3, 0)
    try:
        cluster.start(list(cluster.nodes))
        yield cluster
    finally:
        cluster.kill()


class Display:
    """A live picture on a terminal; a line per event, and now and then one of progress, elsewhere."""

    def __init__(self, console: Console, count: Count) -> None:
        self.console = console
        self.count = count
        self.began = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(40),
            MofNCompleteColumn(),
            console=console,
        )
        self._tasks = [
            self._progress.add_task(name, total=count.total)
            for name in ("written", "acknowledged", "read")
        ]
        self._printed_at = self.began

    def say(self, what: str) -> None:
        elapsed = time.monotonic() - self.began
        self.console.print(f"[dim]{elapsed:5.1f} s[/dim]  {what}", soft_wrap=True)

    def renderable(self) -> Progress:
        return self._progress

    def update(self) -> None:
        values = (self.count.written, len(self.count.acknowledged), len(self.count.read))
        for task, value in zip(self._tasks, values, strict=True):
            self._progress.update(task, completed=value)
        if not self.console.is_terminal and time.monotonic() - self._printed_at >= 2:
            self._printed_at = time.monotonic()
            self.say("written {}, acknowledged {}, read {}".format(*values))


def demonstrate(
    console: Console, directory: Path, seconds: float, rate: int, with_spark: bool
) -> int:
    began = time.monotonic()
    with running_cluster(directory) as cluster:
        count = Count(total=int(seconds * rate))
        display = Display(console, count)
        display.began = began
        display.say(f"three brokers are ready: {cluster.bootstrap}")
        with BlockingClient([("127.0.0.1", n.port) for n in cluster.nodes.values()]) as blocking:
            for topic in (TOPIC, demo_orders.REVENUE, demo_orders.DEAD_LETTERS):
                config = {"min.insync.replicas": "2"}
                blocking.run(blocking.client.create_topic(topic, 1, 3, config))
        watch = Watch(cluster)
        watch.start()
        stopping = threading.Event()
        workers = [
            threading.Thread(target=produce, args=(cluster, count, seconds), daemon=True),
            threading.Thread(target=consume, args=(cluster, count, stopping), daemon=True),
        ]
        for worker in workers:
            worker.start()
        with Live(display.renderable(), console=console, transient=not console.is_terminal):
            killed, killed_at = _strike(cluster, watch, count, display)
            _until(lambda: len(count.acknowledged) >= 0.75 * count.total, display, seconds)
            cluster.start([killed])
            display.say(f"broker {killed} is back")
            _until(lambda: not workers[0].is_alive(), display, seconds + 20)
            _until(lambda: count.lost == 0 and len(watch.isr) == 3, display, 15)
            display.say(f"in sync: {', '.join(map(str, watch.isr))}")
        stopping.set()
        workers[1].join(5)
        watch.stopping.set()
        watch.join(5)
        whole = report(console, count, watch, killed_at)
        if with_spark:
            display.say("the pipeline [bold]orders[/bold] runs on Spark over what survived")
            demo_orders.run_pipeline(cluster, directory.parent / "spark")
            results, dead = (
                demo_orders.committed(cluster, topic, 1)
                for topic in (demo_orders.REVENUE, demo_orders.DEAD_LETTERS)
            )
            broken = sum(demo_orders.order(number) is None for number in count.acknowledged)
            wanted = demo_orders.expected(count.acknowledged)
            whole &= demo_orders.report(console, results, len(dead), wanted, broken)
    console.print(f"[dim]{time.monotonic() - began:.0f} s in all; the cluster is removed.[/dim]")
    return 0 if whole else 1


def _strike(
    cluster: LocalCluster, watch: Watch, count: Count, display: Display
) -> tuple[int, float]:
    _until(lambda: bool(watch.history), display, 10)
    _until(lambda: len(count.acknowledged) >= 0.4 * count.total, display, 30)
    leader = watch.history[-1].leader
    count.longest_wait_s = 0.0
    display.say(f"[bold red]kill -9[/bold red] of the leader, broker {leader}")
    killed_at = time.monotonic()
    cluster.kill([leader])
    _until(lambda: watch.history[-1].since > killed_at, display, 15)
    display.say(f"broker {watch.history[-1].leader} leads")
    return leader, killed_at


def _until(condition: Callable[[], bool], display: Display, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        display.update()
        time.sleep(0.02)
    display.update()


def report(console: Console, count: Count, watch: Watch, killed_at: float) -> bool:
    led_again = next((each.since for each in watch.history if each.since > killed_at), None)
    table = Table(title="A leader killed under load", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    wrong = "[bold red]%d[/bold red]"
    table.add_row("records written", f"{count.written:,}")
    table.add_row("acknowledged (acks=all)", f"{len(count.acknowledged):,}")
    table.add_row("read", f"{len(count.read):,}")
    table.add_row("lost", "0" if not count.lost else wrong % count.lost)
    table.add_row("duplicated", "0" if not count.duplicated else wrong % count.duplicated)
    if count.failed:
        table.add_row("refused", f"{len(count.failed)} ({count.failed[0]})")
    without = "no new leader" if led_again is None else f"{(led_again - killed_at) * 1000:.0f} ms"
    table.add_row("without a leader", without)
    table.add_row("longest wait for an acknowledgement", f"{count.longest_wait_s * 1000:.0f} ms")
    for each in watch.history:
        table.add_row(f"leader in epoch {each.epoch}", f"broker {each.leader}")
    console.print(table)
    whole = not count.lost and not count.duplicated and not count.failed
    return whole and led_again is not None and count.written == count.total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20, help="how long to write (default 20)")
    parser.add_argument("--rate", type=int, default=1000, help="records a second (default 1000)")
    parser.add_argument("--no-spark", action="store_true", help="without the pipeline on Spark")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster is removed all the same
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as directory:
        cluster = Path(directory) / "cluster"
        with_spark = not chosen.no_spark
        return demonstrate(Console(), cluster, chosen.seconds, chosen.rate, with_spark)


if __name__ == "__main__":
    sys.exit(main())
