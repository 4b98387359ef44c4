"""Apache Kafka's own producer, of transaction.version 2, and its tools, about our transactions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from support.cluster import ProcessCluster
from support.kafka_jars import DUMP_LOG, run_tool
from support.transactions import read
from support.txn_wire import Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
FIRST_SEGMENT = "00000000000000000000"

NewCluster = Callable[..., ProcessCluster]


def transactions(cluster: ProcessCluster, *words: str) -> str:
    return run_tool(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, *words)


def test_kafkas_producer_commits_many_transactions(new_cluster: NewCluster) -> None:
    cluster = new_cluster(3)
    topic = cluster.create_topic("t", 3)
    told = run_tool(
        PERFORMANCE,
        *("--topic", topic, "--num-records", "3000", "--record-size", "50"),
        *("--throughput", "1500", "--bootstrap-server", cluster.bootstrap),
        *("--transactional-id", "perf", "--transaction-duration-ms", "50"),
    )
    assert "3000 records sent" in told
    assert sum(len(read(cluster.bootstrap, topic, number)) for number in range(3)) == 3000
    assert re.search(r"perf\s+\d+\s+\d+\s+CompleteCommit", transactions(cluster, "list"))


def test_kafkas_tool_finds_describes_and_aborts_an_open_transaction(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1)
    topic = cluster.create_topic("t")
    producer = Producer(cluster, "open")
    producer.init()
    assert producer.send(topic, "x") is ErrorCode.NONE
    described = transactions(cluster, "describe", "--transactional-id", "open")
    assert re.search(rf"open\s+{producer.id}\s+0\s+Ongoing\s+60000\s.*t-0", described)
    producers = transactions(cluster, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(rf"^{producer.id}\s+0\s+-?\d+\s+0\s+\d+\s+0\s*$", producers, re.MULTILINE)
    transactions(cluster, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert read(cluster.bootstrap, topic) == []
    assert read(cluster.bootstrap, topic, committed=False) == ["x"]


def test_kafka_reads_our_index_of_aborted_transactions_and_our_transaction_log(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, transaction_state_log_num_partitions="1")
    topic = cluster.create_topic("t")
    producer = Producer(cluster, "my-id")
    producer.init()
    for value, commit in (("kept", True), ("dropped", False)):
        assert producer.send(topic, value) is ErrorCode.NONE
        assert producer.end(commit) is ErrorCode.NONE
    assert producer.send(topic, "open") is ErrorCode.NONE  # so the last markers are written
    cluster.stop(1)
    data = cluster.nodes[1].data
    aborted = dump(data / "t-0" / f"{FIRST_SEGMENT}.txnindex")
    assert f"producerId: {producer.id} firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in aborted
    states = dump(
        data / "__transaction_state-0" / f"{FIRST_SEGMENT}.log", "--transaction-log-decoder"
    )
    statuses = [int(found) for found in re.findall(r'"transactionStatus":(\d)', states)]
    assert statuses == [0, 1, 2, 4, 1, 3, 5, 1]
    assert states.count('"transactionalId":"my-id"') == len(statuses)
    assert "isvalid: false" not in states


def dump(path: Path, *options: str) -> str:
    return run_tool(DUMP_LOG, *options, "--files", path)
