"""The second half of the demonstration: what survived the kill goes through a pipeline on Spark, and is checked.

Every record of the demonstration is an order (now and then one is not). The pipeline `orders` turns them into revenue per
product and minute, exactly once; the same is counted here from what was acknowledged.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from ottla.local.cluster import LocalCluster

SOURCE, REVENUE, DEAD_LETTERS = "orders", "revenue", "orders-dead-letters"
PRODUCTS = ("tea", "ink", "lamp", "paper", "chess")
BEGAN = datetime(2026, 1, 1, 9, tzinfo=UTC)
ORDERS_PER_MINUTE = 400
BROKEN_EVERY = 1000
LATENESS = timedelta(minutes=10)
"""As in the pipeline: so long a minute may still change, and is not given out."""
MINUTE = timedelta(minutes=1)
BLOCKS = " ▁▂▃▄▅▆▇█"


class Order(NamedTuple):
    order_id: str
    product: str
    cents: int
    at: datetime


def order(number: int) -> Order | None:
    """None: this one is broken."""
    if number % BROKEN_EVERY == BROKEN_EVERY - 1:
        return None
    chance = random.Random(number)
    at = BEGAN + MINUTE * number / ORDERS_PER_MINUTE
    return Order(f"order-{number}", chance.choice(PRODUCTS), chance.randrange(100, 5000), at)


def value(number: int) -> bytes:
    wanted = order(number)
    if wanted is None:
        return b"this is no order"
    return json.dumps(wanted._asdict() | {"at": wanted.at.isoformat()}).encode()


Revenue = Counter[tuple[datetime, str]]


def expected(numbers: Iterable[int]) -> Revenue:
    """Of the minutes that can no longer change."""
    orders = [made for made in map(order, numbers) if made is not None]
    over = max((made.at for made in orders), default=BEGAN) - LATENESS
    found: Revenue = Counter()
    for made in orders:
        minute = made.at.replace(second=0, microsecond=0)
        if minute + MINUTE <= over:
            found[minute, made.product] += made.cents
    return found


def run_pipeline(cluster: LocalCluster, directory: Path) -> None:
    words = ["spark", "run", "orders", "--master", "local[2]", "--bootstrap", cluster.bootstrap]
    directory.mkdir()
    log = directory / "spark.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ottla")), *words, "--directory", str(directory)],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        sys.stderr.write(log.read_text(errors="replace")[-4000:])
        raise SystemExit("demo: the pipeline failed (see above)")


def committed(cluster: LocalCluster, topic: str, partitions: int) -> list[bytes]:
    """All that a reader of committed records finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    found: list[bytes] = []
    ends = 0
    while ends < partitions:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                ends += 1
            else:
                found.append(message.value())
    consumer.close()
    return found


def report(console: Console, results: list[bytes], dead: int, wanted: Revenue, broken: int) -> bool:
    """A table and a chart of what came out; True if it is what went in."""
    found: Revenue = Counter()
    doubled = 0
    for told in map(json.loads, results):
        place = (datetime.fromisoformat(told["minute"]).astimezone(UTC), told["product"])
        doubled += place in found
        found[place] += told["cents"]
    right = found == wanted and not doubled and dead == broken
    minutes = sorted({minute for minute, _ in wanted})
    most = max(wanted.values(), default=1)
    table = Table(title="Revenue per minute and product, by Spark", title_justify="left")
    table.add_column("product")
    table.add_column("revenue", justify="right")
    table.add_column(f"{len(minutes)} minutes")
    for product in PRODUCTS:
        cents = [found[minute, product] for minute in minutes]
        bars = "".join(BLOCKS[min(8, round(8 * each / most))] for each in cents)
        table.add_row(product, f"{sum(cents) / 100:,.2f}", bars)
    console.print(table)
    wrong = len(set((found - wanted) | (wanted - found)))
    console.print(
        f"{len(found)} results checked against what was acknowledged: "
        f"{wrong} wrong, {doubled} doubled; {dead} dead letters of {broken} broken records",
        soft_wrap=True,
    )
    return right
