"""Spark's writer and reader of `format("ottla")` with the file spark.json, as a user with exactly the rights of a sink and of a source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

import pyarrow as pa

from ottla.spark.options import Options
from ottla.spark.write.producer import TaskProducer
from ottla.spark.write.write_options import WriteOptions
from support.secure import SecureCluster, secure_cluster
from support.spark_engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("spark") / "cluster", nodes=1) as made:
        for topic in ("rows", "rows-txn", "others"):
            made.told("topics", "create", topic, "-p", "2")
        for user, *rights in (
            ("sink", "--produce", "rows*", "--transactional", "job*"),
            ("source", "--consume", "rows*"),
        ):
            made.told("users", "add", user)
            made.told("acls", "add", user, *rights)
        yield made


def options_of(file: Path, **more: str) -> dict[str, str]:
    return {**json.loads(file.read_text()), **more}


def write(options: dict[str, str], topic: str, transactional_id: str | None) -> None:
    written = WriteOptions.of(Options(options | {"topic": topic}))
    producer = TaskProducer(written, transactional_id, task=0)
    try:
        producer.write(pa.RecordBatch.from_pydict({"value": [str(i) for i in range(ROWS)]}))
        producer.finish()
    finally:
        producer.close()


def read(options: dict[str, str], topic: str) -> list[int] | None:
    given = {name.replace(".", "__"): value for name, value in options.items()}
    bootstrap = given.pop("kafka__bootstrap__servers")
    return Engine(bootstrap, topic, **given).batch()


@pytest.mark.parametrize(("topic", "transactional_id"), [("rows", None), ("rows-txn", "job-1")])
def test_what_the_sink_writes_the_source_reads(
    cluster: SecureCluster, topic: str, transactional_id: str | None
) -> None:
    write(options_of(cluster.file("spark.json", "sink")), topic, transactional_id)
    assert read(options_of(cluster.file("spark.json", "source")), topic) == list(range(ROWS))


def test_each_is_refused_what_is_not_its_own(cluster: SecureCluster) -> None:
    sink = options_of(cluster.file("spark.json", "sink"))
    source = options_of(cluster.file("spark.json", "source"))
    for refused in (
        lambda: write(sink, "others", None),
        lambda: write(sink, "rows", "another-job"),
        lambda: write(source, "rows", None),
        lambda: read(source, "others"),
        lambda: read(sink, "rows"),
    ):
        with pytest.raises(Exception, match=r"(?i)authori[sz]|may not"):
            refused()


def test_a_wrong_password_is_refused_without_being_told(cluster: SecureCluster) -> None:
    options = options_of(cluster.file("spark.json", "source"))
    password = cluster.file("password", "source").read_text().strip()
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace(password, "guessed")  # fmt: skip
    with pytest.raises(Exception, match=r"'source'|(?i:authentication)") as caught:
        read(options, "rows")
    assert "guessed" not in str(caught.value)
