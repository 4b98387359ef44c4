"""Kafka's own Java client: the one that is neither Python nor librdkafka, and the first to use what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster import ProcessCluster
from support.kafka_jars import CLIENT, lack, run_tool
from support.transactions import read

pytestmark = [
    pytest.mark.timeout(600),  # the first run fetches the client from Maven Central
    pytest.mark.skipif(lack(CLIENT) is not None, reason=str(lack(CLIENT))),
]

PROGRAMME = Path(__file__).parent / "java" / "Clients.java"
PARTITIONS = 3


def test_the_java_client_writes_reads_in_groups_and_commits_transactions(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("java", PARTITIONS)
    copies = [cluster.create_topic(f"copy-{name}", PARTITIONS) for name in ("classic", "consumer")]
    told = run_tool(PROGRAMME, cluster.bootstrap, topic, "copy", jars=CLIENT)
    assert told.rstrip().endswith("DONE"), told
    for copy in copies:
        for partition in range(PARTITIONS):
            values = [int(value) for value in read(cluster.bootstrap, copy, partition)]
            assert values == list(range(partition, 1000, PARTITIONS))
