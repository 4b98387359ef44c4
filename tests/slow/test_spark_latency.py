"""A single record on a quiet topic is through `format("ottla")` about as soon as through Spark's own connector."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from support.cluster import ProcessCluster
from support.spark_latency import QuietStream
from support.spark_sources import OttlaSource, SparkConnector

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Spark

PARTITIONS = 3
WARM_UP_RECORDS = 20
ROUNDS = 6
RECORDS = 5

# The connector asks for offsets on the connection on which its own fetch still waits for more, half a second unless told
# otherwise. Without that it is as fast as Spark lets it be, which is what ours is held against.
AS_FAST_AS_IT_GOES = {"kafka.fetch.max.wait.ms": "1"}


def test_a_record_on_a_quiet_topic_arrives_about_as_soon_as_with_sparks_connector(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """In turns, so that the machine's mood meets both."""
    ours_topic, theirs_topic = (
        cluster.create_topic(name, PARTITIONS) for name in ("quiet-ours", "quiet-theirs")
    )
    with (
        OttlaSource(tmp_path / "ours") as ottla,
        SparkConnector(tmp_path / "theirs") as connector,
        QuietStream(ottla, cluster.bootstrap, ours_topic) as ours,
        QuietStream(connector, cluster.bootstrap, theirs_topic, AS_FAST_AS_IT_GOES) as theirs,
    ):
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        for stream in (ours, theirs):
            stream.latencies_ms(WARM_UP_RECORDS)
        for _ in range(ROUNDS):
            taken["ours"] += ours.latencies_ms(RECORDS)
            taken["theirs"] += theirs.latencies_ms(RECORDS)
    ours_ms, theirs_ms = median(taken["ours"]), median(taken["theirs"])
    print(
        f"ours {ours_ms:.0f} ms (max {max(taken['ours']):.0f}), "
        f"the connector {theirs_ms:.0f} ms (max {max(taken['theirs']):.0f})"
    )
    assert ours_ms <= 1.5 * theirs_ms + 100
