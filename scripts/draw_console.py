"""Pictures of the console, from a cluster that lives: three brokers under load, a group that stopped, an unclean election
that cost records, and at the end a leader that is killed while somebody watches its partition."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from PIL import Image

from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.chromium import CHROMIUM, Chromium
from support.cluster import ProcessCluster, wait_until
from support.console import ConsoleProcess

SHOWN = Path(__file__).resolve().parent.parent / "docs" / "console"
IN_DOCUMENT = ("overview", "overview-phone", "timeline", "group", "messages", "lab")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
TOPICS = {"clicks": 12, "orders": 6, "payments": 3, "shipments": 3, "stock": 8}
STOPPED, LOSING = "reports", "ledger"
WARM_UP_S = 40.0
"""So long the charts have something to show."""
FRAME_S = 0.25
FRAMES_S = 9.0
KILLED_AFTER_S = 2.5
WIDE, NARROW = (1440, 900), (390, 844)


class Load:
    """A producer for all topics, and one group that reads what it writes."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 20})
        number = 0
        while not self._ended.wait(0.05):
            for _ in range(self._chance.randint(20, 60)):
                number += 1
                topic = self._chance.choices(list(TOPICS), (8, 4, 3, 1, 2))[0]
                customer = self._chance.randint(1, 900)
                value = f'{{"id": {number}, "customer": "c{customer}", "amount": {customer * 7 % 113}.50}}'
                producer.produce(topic, value, key=f"c{customer}", headers={"source": "web"})
            producer.poll(0)
        producer.flush(10)

    def _read(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "billing", "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders", "payments"])
        while not self._ended.is_set():
            consumer.consume(500, 0.2)
            consumer.commit(asynchronous=True)
        consumer.close()


def stop_a_group(bootstrap: str) -> None:
    """It has read what is there, and reads no more."""
    settings = {"bootstrap.servers": bootstrap, "group.id": STOPPED, "log_level": 0}
    consumer = Consumer(settings)
    places = []
    for partition in range(TOPICS["orders"]):
        _, high = consumer.get_watermark_offsets(TopicPartition("orders", partition), 10)
        places.append(TopicPartition("orders", partition, high))
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def lose_records(cluster: ProcessCluster) -> None:
    """Two brokers hold them, the one that leads alone dies, the other leads without what it never got."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": "all"})

    def write(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(LOSING, f"entry {number}", partition=0)
        assert producer.flush(30) == 0

    write(0, 400)
    leader, follower = cluster.partitions(LOSING)[0].replicas
    cluster.kill(follower)
    wait_until(lambda: cluster.partitions(LOSING)[0].isr == [leader], 20, "one replica in sync")
    write(400, 460)
    cluster.kill(leader)
    cluster.start(follower)
    wait_until(lambda: cluster.partitions(LOSING)[0].leader == follower, 20, "an unclean election")
    write(400, 430)
    cluster.start(leader)
    cluster.wait_whole(LOSING)


@contextmanager
def staged(directory: Path) -> Iterator[tuple[ProcessCluster, ConsoleProcess]]:
    with ProcessCluster(directory, 3, SETTINGS) as cluster:
        wait_until(lambda: cluster.partitions(EVENT_LOG_TOPIC), 20, "an event log")
        for topic, partitions in TOPICS.items():
            cluster.create_topic(topic, partitions)
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        cluster.create_topic(LOSING, config=unclean, assignment=[[2, 3]])
        options = ("--dir", str(cluster.directory), "--allow-writes")
        with ConsoleProcess(*options) as console:
            lose_records(cluster)
            yield cluster, console
            cluster.mend()


def well(cluster: ProcessCluster, console: ConsoleProcess) -> Callable[[], bool]:
    def is_well() -> bool:
        with console.page("overview") as page:
            page.wait(lambda p: p.events, 10, "an event")
            return all(row["standing"] == "up" for row in page.table("brokers").values())

    return is_well


def pictures(
    cluster: ProcessCluster, console: ConsoleProcess, browser: Chromium
) -> Iterator[tuple[str, Image.Image]]:
    def shot(
        name: str,
        path: str,
        ready: str,
        *,
        scheme: str = "light",
        size: tuple[int, int] = WIDE,
        click: str | None = None,
    ) -> tuple[str, Image.Image]:
        browser.resize(*size, scheme)
        browser.visit(console.url + path)
        browser.wait_for(f"document.querySelector({json.dumps(ready)})", 30)
        if click is not None:
            browser.click(click)
            browser.mouse("mouseMoved", 1, 1)
        rest(browser, 1.5)  # charts, icons
        print(name, file=sys.stderr)
        return name, browser.window()

    killed = cluster.leader("orders")
    yield shot("overview-well", "/", ".heat-line")
    cluster.kill(killed)
    rest(browser, 3)
    yield shot("overview", "/", ".problem")
    yield shot("overview-dark", "/", ".problem", scheme="dark")
    yield shot("overview-phone", "/", ".problem", scheme="dark", size=NARROW)
    yield shot("broker", f"/brokers/{killed}", ".explanation .steps")
    then_ms = int(time.time() * 1000)
    cluster.start(killed)
    wait_until(well(cluster, console), 30, "all brokers")
    yield shot("partition", "/topics/orders/0", ".log .mark")
    yield shot("partition-phone", "/topics/orders/0", ".log .mark", size=NARROW)
    yield shot("loss", f"/topics/{LOSING}/0", ".log .lostspan", scheme="dark")
    yield shot("timeline-now", "/timeline?span=300000", ".axis canvas", scheme="dark")
    yield shot("timeline", f"/timeline?span=300000&at={then_ms}", ".axis canvas")
    yield shot("groups", "/groups", "td a.name")
    yield shot("group", f"/groups/{STOPPED}", "canvas", scheme="dark")
    yield shot("messages", "/messages/orders", ".records tbody tr")
    yield shot("messages-phone", "/messages/orders", ".records tbody tr", size=NARROW)
    yield shot("topics", "/topics", ".vbody a")
    yield shot("topic", "/topics/orders", "canvas", scheme="dark")
    yield shot("moves", "/moves", "section .fields button", click="section .fields button")
    yield shot("transactions", "/transactions", "main h1")
    yield shot("security", "/security", "main h1")
    played = "/lab?scenario=loss&design=hw-truncation"
    yield shot("lab", played, ".player", click=".player button.danger")
    yield shot("lab-dark", played, ".player", click=".player button.danger", scheme="dark")


def rest(browser: Chromium, seconds: float) -> None:
    browser.value_of(f"new Promise((done) => setTimeout(done, {seconds * 1000}))")


def killed_leader(cluster: ProcessCluster, console: ConsoleProcess, browser: Chromium) -> list[Image.Image]:  # fmt: skip
    """A partition whose leader is killed while records arrive, frame by frame."""
    browser.resize(980, 640)
    browser.visit(console.url + "/topics/orders/1")
    browser.wait_for("document.querySelectorAll('.log').length === 3")
    leader = cluster.leader("orders", 1)
    frames: list[Image.Image] = []
    began = time.monotonic()
    killed = False
    while (passed := time.monotonic() - began) < FRAMES_S:
        if not killed and passed > KILLED_AFTER_S:
            cluster.kill(leader)
            killed = True
        frames.append(browser.window())
        time.sleep(max(0.0, began + len(frames) * FRAME_S - time.monotonic()))
    cluster.start(leader)
    return frames


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--keep", type=Path, metavar="DIR", help="put all pictures there")
    keep = asked.parse_args().keep
    if CHROMIUM is None:
        raise SystemExit("draw-console: chromium is missing: scripts/apt-install chromium")
    target: Path = keep or SHOWN
    target.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        staged(Path(place) / "cluster") as (cluster, console),
        Chromium(Path(place) / "profile") as browser,
        Load(cluster.bootstrap, random.Random(1)),
    ):
        time.sleep(WARM_UP_S / 3)
        stop_a_group(cluster.bootstrap)
        time.sleep(WARM_UP_S * 2 / 3)
        for name, image in pictures(cluster, console, browser):
            if keep is not None or name in IN_DOCUMENT:
                image.save(target / f"{name}.webp", quality=80, method=6)
                if keep is not None:
                    image.save(target / f"{name}.png")
        first, *others = killed_leader(cluster, console, browser)
        first.save(target / "killed-leader.webp", save_all=True, append_images=others, duration=int(FRAME_S * 1000), loop=0, quality=60, method=4)  # fmt: skip
        if keep is not None:
            for at, frame in enumerate((first, *others)):
                frame.save(target / f"frame-{at:02d}.png")


if __name__ == "__main__":
    main()
