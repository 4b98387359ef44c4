"""Spark's writer and reader through TLS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

import pyarrow as pa

from ottla.spark.command_config import client_of, cluster_options
from ottla.spark.options import Options
from ottla.spark.write.producer import TaskProducer
from ottla.spark.write.write_options import WriteOptions
from support.spark_engine import Engine
from support.tls import BehindTls, cluster_behind_tls

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindTls]:
    with cluster_behind_tls(tmp_path_factory.mktemp("tls")) as found:
        yield found


@pytest.fixture(scope="module")
def options(secured: BehindTls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """From a file, as Kafka's tools take it."""
    file = tmp_path_factory.mktemp("client") / "client.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in secured.settings.items()))
    return cluster_options(secured.bootstrap, str(file))


@pytest.mark.parametrize("transactional_id", [None, "through TLS"])
def test_rows_are_written_and_read_back_through_tls(
    secured: BehindTls, options: dict[str, str], transactional_id: str | None
) -> None:
    topic = secured.cluster.create_topic(f"rows-{'plain' if transactional_id is None else 'txn'}")
    producer = TaskProducer(
        WriteOptions.of(Options(options | {"topic": topic})), transactional_id, task=0
    )
    producer.write(pa.RecordBatch.from_pydict({"value": [str(i) for i in range(1000)]}))
    producer.finish()
    producer.close()
    given = {name.replace(".", "__"): value for name, value in options.items()}
    assert Engine(secured.bootstrap, topic, **given).batch() == list(range(1000))
    assert secured.spoken and set(secured.spoken) <= {"TLSv1.2", "TLSv1.3"}


def test_what_a_job_asks_beside_its_frames_goes_through_tls_too(
    secured: BehindTls, options: dict[str, str]
) -> None:
    before = len(secured.spoken)
    with client_of(options) as blocking:
        (broker,) = blocking.run(blocking.client.metadata()).brokers
    assert f"{broker.host}:{broker.port}" == secured.bootstrap
    assert len(secured.spoken) > before
