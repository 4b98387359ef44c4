"""The pipelines, each on records of a running cluster; what comes out is compared with what went in."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from struct import pack_into
from types import ModuleType
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Producer
from crc32c import crc32c

from ottla.records.batch import batches
from support.cluster import ProcessCluster
from support.tls import BehindTls, cluster_behind_tls
from support.transactions import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
OTTLA = Path(sys.executable).with_name("ottla")
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATENESS = timedelta(minutes=10)
PARTITIONS = 3
CRC_AT = 17
"""In a batch; it covers all behind it."""


def job(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As spark-submit finds it: its own directory comes first."""
    monkeypatch.syspath_prepend(str(PIPELINES / name))
    found = importlib.util.spec_from_file_location(f"{name}_job", PIPELINES / name / "job.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Order(NamedTuple):
    order_id: str
    product: str
    cents: int
    at: datetime

    def text(self) -> str:
        return json.dumps(self._asdict() | {"at": self.at.isoformat()})


def some_orders(chance: random.Random, count: int, first: int, begin: datetime) -> list[Order]:
    return [
        Order(
            f"order-{first + number}",
            chance.choice(("tea", "ink", "lamp")),
            chance.randrange(100, 10_000),
            begin + timedelta(seconds=chance.randrange(40 * 60)),
        )
        for number in range(count)
    ]


def send_and_abort(cluster: ProcessCluster, topic: str, values: Iterable[str]) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transactional.id": f"{topic} x"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def send(cluster: ProcessCluster, topic: str, values: Iterable[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def reached(cluster: ProcessCluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap}


Revenue = dict[tuple[str, str], tuple[int, int]]


def revenue_of(orders: Iterable[Order], newest: datetime) -> Revenue:
    """Per minute and product, of the minutes that are over for good."""
    cents: Counter[tuple[str, str]] = Counter()
    counted: Counter[tuple[str, str]] = Counter()
    for order in set(orders):
        minute = order.at.replace(second=0, microsecond=0)
        if minute + timedelta(minutes=1) <= newest - LATENESS:
            place = (minute.strftime("%Y-%m-%dT%H:%M:%S"), order.product)
            cents[place] += order.cents
            counted[place] += 1
    return {place: (cents[place], counted[place]) for place in cents}


def revenue_in(cluster: ProcessCluster, topic: str) -> Revenue:
    """What a reader of committed records finds; a minute and product that comes twice is an error."""
    found: Revenue = {}
    for partition in range(PARTITIONS):
        for value in read(cluster.bootstrap, topic, partition):
            told = json.loads(value)
            place = (told["minute"][:19], told["product"])
            assert place not in found, f"{place} twice"
            found[place] = (told["cents"], told["orders"])
    return found


def topics_for(cluster: ProcessCluster, prefix: str) -> tuple[str, str, str]:
    source, revenue, dead = (
        cluster.create_topic(f"{prefix}-{name}", PARTITIONS) for name in ("in", "revenue", "dead")
    )
    return source, revenue, dead


@pytest.mark.spark_quick
def test_orders_become_revenue_once_and_what_is_no_order_a_dead_letter(
    spark: Any, cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, revenue, dead = topics_for(cluster, "plain")
    chance = random.Random(7)
    orders = some_orders(chance, 600, 0, BEGAN)
    doubles = chance.sample(orders, 60)
    broken = {
        "no json": "not JSON",
        "": "not JSON",
        '{"product": "tea"}': "no order_id",
        orders[0]
        .text()
        .replace(f'"cents": {orders[0].cents}', '"cents": -1'): "cents are negative",
    }
    send(cluster, source, [*(order.text() for order in orders + doubles), *broken])
    chosen = Namespace(
        bootstrap=cluster.bootstrap,
        command_config=None,
        directory=str(tmp_path),
        source=source,
        revenue=revenue,
        dead_letters=dead,
        forever=False,
    )
    pipeline = job("orders", monkeypatch)
    pipeline.run(spark, chosen)
    newest = max(order.at for order in orders)
    first = revenue_of(orders, newest)
    assert first
    assert revenue_in(cluster, revenue) == first

    # A second run: later orders, some sent before, and some so late that their minute is over.
    later = some_orders(chance, 300, 1000, BEGAN + timedelta(hours=1))
    too_late = [order._replace(order_id=f"late-{order.order_id}") for order in orders[:50]]
    too_late = [order for order in too_late if order.at < newest - LATENESS - timedelta(minutes=1)]
    assert too_late
    send(cluster, source, (order.text() for order in later + chance.sample(later, 30) + too_late))
    pipeline.run(spark, chosen)
    both = revenue_of([*orders, *later], max(order.at for order in later))
    assert revenue_in(cluster, revenue) == both
    stored = spark.read.parquet(f"{tmp_path}/revenue").collect()
    assert {
        (row.minute.strftime("%Y-%m-%dT%H:%M:%S"), row["product"]): (row.cents, row.orders)
        for row in stored
    } == both
    letters = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(subscribe=dead, includeHeaders="true")
        .load()
        .collect()
    )
    told = {bytes(row.value).decode(): bytes(row.headers[0].value).decode() for row in letters}
    assert (len(letters), told) == (len(broken), broken)


def test_the_same_as_a_declarative_pipeline(cluster: ProcessCluster, tmp_path: Path) -> None:
    source, revenue, dead = topics_for(cluster, "declared")
    orders = some_orders(random.Random(8), 300, 0, BEGAN)
    send(cluster, source, [*(order.text() for order in orders), "no json"])
    settings = {"source": source, "revenue": revenue, "dead-letters": dead}
    for _ in range(2):  # the second run finds nothing new, and changes nothing
        done = subprocess.run(
            [
                *(str(OTTLA), "spark", "run", "orders", "--declarative", "--master", "local[2]"),
                *("--bootstrap", cluster.bootstrap, "--directory", str(tmp_path / "orders")),
                *(f"--conf=spark.ottla.{name}={topic}" for name, topic in settings.items()),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert revenue_in(cluster, revenue) == revenue_of(orders, max(each.at for each in orders))
        letters = [
            value
            for partition in range(PARTITIONS)
            for value in read(cluster.bootstrap, dead, partition)
        ]
        assert letters == ["no json"]
        assert not list((tmp_path / "orders").glob("pipeline-*")), "nothing is left behind"


def test_an_archive_and_the_log_are_one_table(
    spark: Any, cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was aborted is in neither, and the topics' names are names, whatever they look like."""
    topics = [cluster.create_topic(name, PARTITIONS) for name in ("007", "2026-01-01")]
    pipeline = job("archive", monkeypatch)
    sent: Counter[tuple[str, str]] = Counter()
    for round in range(3):
        for topic in topics:
            values = [f"{round}-{number}" for number in range(100)]
            send_and_abort(cluster, topic, ["aborted"] * PARTITIONS)
            send(cluster, topic, values)
            sent.update((topic, value) for value in values)
        if round < 2:
            pipeline.archive(spark, reached(cluster), ",".join(topics), str(tmp_path))
            archived = spark.read.schema(pipeline.SCHEMA).parquet(f"{tmp_path}/records").collect()
            assert Counter((row.topic, bytes(row.value).decode()) for row in archived) == sent
    whole = pipeline.whole(spark, reached(cluster), ",".join(topics), str(tmp_path)).collect()
    assert Counter((row.topic, bytes(row.value).decode()) for row in whole) == sent
    places = Counter((row.topic, row.partition, row.offset) for row in whole)
    assert set(places.values()) == {1}


def test_P04_an_audit_compares_every_record_of_every_replica(
    spark: Any,
    new_cluster: Callable[..., ProcessCluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = new_cluster(3)
    topic = cluster.create_topic("audited", PARTITIONS)
    send(cluster, topic, (f"value-{number}" for number in range(300)))
    pipeline = job("audit", monkeypatch)
    cluster.create_topic("compacted", config={"cleanup.policy": "compact"})
    empty = cluster.create_topic("empty", PARTITIONS)
    busy = cluster.create_topic("busy", PARTITIONS)
    is_over = threading.Event()

    def write_on() -> None:
        while not is_over.is_set():
            send(cluster, busy, map(str, range(30)))

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        found = pipeline.audit(spark, reached(cluster))
    finally:
        is_over.set()
        writer.join()
    assert [row.difference for row in found if row.topic == busy] == [None] * 3
    assert [(row.topic, row.replicas, row.records, row.difference) for row in found[:3]] == [
        (topic, 3, 100, None)
    ] * 3
    assert {row.topic for row in found} == {topic, busy, empty}
    assert [(row.records, row.difference) for row in found[-3:]] == [(0, None)] * 3, (
        "empty ones too"
    )
    follower = next(id for id in cluster.nodes if id != cluster.leader(topic, 0))
    cluster.stop(follower)
    forge(cluster, follower, topic, b"value-150", b"value-X50")
    cluster.start(follower)
    cluster.wait_whole(topic)
    first, *others = pipeline.audit(spark, reached(cluster), [topic])
    assert [row.difference for row in others] == [None, None]
    assert first.difference.offset == 50
    checksums = {copy.broker: copy.checksum for copy in first.difference.copies}
    assert len(checksums) == 3
    forged = checksums.pop(follower)
    assert set(checksums.values()) != {forged}
    assert len(set(checksums.values())) == 1
    assert f"DIFFERENT from offset 50 on (broker 1: {checksums.get(1, forged):x}" in pipeline.told(
        first
    )


def forge(cluster: ProcessCluster, broker: int, topic: str, old: bytes, new: bytes) -> None:
    """As a disk or a bug might: one record of partition 0 is another one, under a checksum that is right."""
    (segment,) = (cluster.nodes[broker].data / f"{topic}-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    batch = next(each for each in batches(data) if old in data[each.position : each.end])
    at = data.index(old, batch.position)
    data[at : at + len(old)] = new
    checked = memoryview(data)[batch.position + CRC_AT + 4 : batch.end]
    pack_into(">I", data, batch.position + CRC_AT, crc32c(checked))
    segment.write_bytes(data)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindTls]:
    with cluster_behind_tls(tmp_path_factory.mktemp("secured")) as found:
        yield found


def run_through_tls(
    secured: BehindTls, directory: Path, pipeline: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """What it takes is in a file, as for Kafka's own tools."""
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.settings.items()))
    return subprocess.run(
        [
            *(str(OTTLA), "spark", "run", pipeline, "--master", "local[2]"),
            *("--bootstrap", secured.bootstrap, "--command-config", str(file)),
            *("--directory", str(directory / pipeline)),
            *("--conf", "spark.sql.shuffle.partitions=2", *words),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_job_runs_through_tls(secured: BehindTls, tmp_path: Path) -> None:
    cluster = secured.cluster
    source, revenue, dead = topics_for(cluster, "secured")
    orders = some_orders(random.Random(9), 300, 0, BEGAN)
    send(cluster, source, [*(order.text() for order in orders), "no json"])
    printed = {}
    for pipeline, *words in (
        ("archive", "--topics", source),
        ("audit", "--topics", source),
        ("orders", "--source", source, "--revenue", revenue, "--dead-letters", dead),
    ):
        done = run_through_tls(secured, tmp_path, pipeline, *words)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        printed[pipeline] = done.stdout
    assert (tmp_path / "archive" / "records" / f"topic={source}").is_dir()
    assert printed["audit"].count("identical up to the high watermark") == PARTITIONS
    assert revenue_in(cluster, revenue) == revenue_of(orders, max(each.at for each in orders))


def test_a_declarative_pipeline_runs_through_tls(secured: BehindTls, tmp_path: Path) -> None:
    cluster = secured.cluster
    source, revenue, dead = topics_for(cluster, "secured-declared")
    orders = some_orders(random.Random(10), 300, 0, BEGAN)
    send(cluster, source, [order.text() for order in orders])
    chosen = {"source": source, "revenue": revenue, "dead-letters": dead}
    conf = [f"--conf=spark.ottla.{name}={topic}" for name, topic in chosen.items()]
    done = run_through_tls(secured, tmp_path, "orders", "--declarative", *conf)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert revenue_in(cluster, revenue) == revenue_of(orders, max(each.at for each in orders))


def test_a_file_for_tls_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    words = ("--bootstrap", "localhost:1", "--command-config", str(tmp_path / "absent"))
    done = subprocess.run(
        [str(OTTLA), "spark", "run", "orders", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "absent: No such file" in done.stderr) == (2, True)


def test_P51_the_demo_ends_with_revenue_that_is_right() -> None:
    done = subprocess.run(
        [sys.executable, str(PIPELINES.parent / "scripts" / "demo.py"), "--seconds", "8"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong, 0 doubled; 8 dead letters of 8 broken records" in done.stdout
