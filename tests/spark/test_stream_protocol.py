"""The stream reader as Spark's engine uses it, but without a JVM: offsets through JSON, readers through pickle, tasks in turn.

What Spark adds to this is in test_stream_read.py; here the cluster may be treated badly without waiting for Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.spark.connect.connection import BrokerConnection
from ottla.spark.errors import SparkSourceError
from ottla.spark.read.loss import DataLoss
from ottla.wire.apis import ApiKey
from pyspark_ottla import DefaultSource
from support.cluster import ProcessCluster
from support.spark_engine import Engine

PARTITIONS = 3


def produce(cluster: Any, topic: str, numbers: Any) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": "all"}
    producer = Producer(settings)
    for i in numbers:
        producer.produce(topic, value=str(i), partition=i % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=PARTITIONS)


def lag(cluster: Any, group: str) -> int:
    told = cluster.ottla("groups", "describe", group)
    return sum(row["lag"] for row in told["partitions"])


def test_a_stream_reads_on_where_its_checkpoint_says(cluster: Any, topic: str) -> None:
    query = Engine(cluster.bootstrap, topic)
    produce(cluster, topic, range(30))
    assert query.batch() == list(range(30))
    assert query.batch() is None
    produce(cluster, topic, range(30, 45))
    query.start()
    assert query.batch() == list(range(30, 45))


def test_while_nothing_happens_a_look_is_one_question_about_topics_and_one_to_each_leader(
    cluster: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Engine(cluster.bootstrap, topic)
    produce(cluster, topic, range(30))
    assert query.batch() == list(range(30))
    assert query.batch() is None, "and has committed how far it is"
    asked: list[ApiKey] = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, key: int, version: int, body: bytes) -> None:
        asked.append(ApiKey(key))
        send(self, key, version, body)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    assert query.batch() is None
    leaders = {cluster.leader(topic, partition) for partition in range(PARTITIONS)}
    assert asked == [ApiKey.METADATA, *[ApiKey.LIST_OFFSETS] * len(leaders)]


def test_a_batch_that_is_run_again_reads_the_same(cluster: Any, topic: str) -> None:
    query = Engine(cluster.bootstrap, topic)
    produce(cluster, topic, range(30))
    start = json.dumps(query.reader.initialOffset())
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    produce(cluster, topic, range(30, 60))
    query.start()
    assert query.read(start, end) == list(range(30))


def test_how_much_is_read_at_once(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(300))
    query = Engine(cluster.bootstrap, topic, maxOffsetsPerTrigger=99)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(99)
    assert len(query.batch() or ()) == 99
    assert len(query.batch(ReadAllAvailable()) or ()) == 201, "Trigger.Once knows no limit"
    query = Engine(cluster.bootstrap, topic, minOffsetsPerTrigger=50, maxTriggerDelay="10m")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(50)
    assert len(query.batch() or ()) == 300
    produce(cluster, topic, range(300, 330))
    assert query.batch() is None, "too few"
    produce(cluster, topic, range(330, 360))
    assert query.batch() == list(range(300, 360))


def test_available_now_ends(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(30))
    query = Engine(cluster.bootstrap, topic, maxOffsetsPerTrigger=21)
    query.reader.prepareForTriggerAvailableNow()
    produce(cluster, topic, range(30, 60))
    assert len(query.batch() or ()) == 21
    assert len(query.batch() or ()) == 9
    assert query.batch() is None
    newest = query.reader.reportLatestOffset()
    assert json.dumps(newest) == query.end


def test_tasks_are_split(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(90))
    query = Engine(cluster.bootstrap, topic, minPartitions=9)
    assert query.batch() == list(range(90))
    query = Engine(cluster.bootstrap, topic, maxRecordsPerPartition=7)
    assert query.batch() == list(range(90))


def test_progress_shows_as_lag_of_a_group(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(30))
    query = Engine(cluster.bootstrap, topic, groupIdPrefix="lag-of-spark")
    query.batch()
    assert query.end is not None
    group = json.loads(query.end)["group"]
    assert group.startswith("lag-of-spark-")
    assert lag(cluster, group) == 30, "the batch is not known to be done"
    query.batch()
    assert lag(cluster, group) == 0
    produce(cluster, topic, range(12))
    assert lag(cluster, group) == 12
    query.start()
    query.batch()
    query.reader.commit(json.loads(query.end))
    assert lag(cluster, group) == 0


def test_a_group_of_ones_own_or_none(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(30))
    own = Engine(cluster.bootstrap, topic, kafka__group__id=f"own-{topic}", commitProgress="true")
    own.batch()
    groups = [group["id"] for group in cluster.ottla("groups", "list")]
    assert f"own-{topic}" not in groups, "no batch is done"
    own.batch()
    assert lag(cluster, f"own-{topic}") == 0
    silent = Engine(cluster.bootstrap, topic, groupIdPrefix="silent", commitProgress="false")
    silent.batch()
    silent.batch()
    groups = [group["id"] for group in cluster.ottla("groups", "list")]
    assert not [group for group in groups if group.startswith("silent")]


def test_a_coordinator_that_does_not_answer_holds_up_one_batch_and_not_each(
    cluster: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Engine(cluster.bootstrap, topic)
    tried = []

    def commit(group: str, offsets: Any) -> None:
        tried.append(offsets)
        raise TimeoutError

    for number in range(3):
        produce(cluster, topic, range(3 * number, 3 * number + 3))
        if number == 0:
            start = query.reader.initialOffset()
            monkeypatch.setattr(query.reader._cluster, "commit", commit)
        start = query.reader.latestOffset(start, ReadAllAvailable())
    assert len(tried) == 1


def test_a_group_that_has_a_name_is_not_touched_unasked(cluster: Any, topic: str) -> None:
    """It may be that of a consumer that is away for a moment."""
    produce(cluster, topic, range(30))
    theirs = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"billing-{topic}", "log_level": 0}
    )
    theirs.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    theirs.close()
    query = Engine(cluster.bootstrap, topic, kafka__group__id=f"billing-{topic}")
    query.batch()
    query.batch()
    (told,) = cluster.ottla("groups", "describe", f"billing-{topic}")["partitions"]
    assert told["lag"] == 7


def test_aged_out_records_are_told_counted_and_passed_over(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(30))
    query = Engine(cluster.bootstrap, topic)
    query.batch()
    produce(cluster, topic, range(30, 90))
    (deleted,) = cluster.admin.delete_records([TopicPartition(topic, 1, 15)]).values()
    deleted.result()
    with pytest.raises(DataLoss, match=f"{topic}-1: 5 records, offsets 10 to 14, aged out"):
        query.batch()
    query.source = DefaultSource(query.options | {"failOnDataLoss": "false"})
    query.start()
    gone = {1 + 3 * offset for offset in range(10, 15)}
    assert query.batch() == [each for each in range(30, 90) if each not in gone]
    assert query.marks["1"]["lost"] == 5


def test_a_topic_made_anew_is_told_and_read_from_its_beginning(cluster: Any, topic: str) -> None:
    produce(cluster, topic, range(30))
    query = Engine(cluster.bootstrap, topic)
    query.batch()
    cluster.ottla("topics", "delete", topic)
    with pytest.raises((DataLoss, SparkSourceError), match=f"{topic}-0: .* which was deleted"):
        query.batch()
    cluster.create_topic(topic, partitions=PARTITIONS)
    produce(cluster, topic, range(100, 190))
    with pytest.raises(DataLoss, match=f"{topic}-0: records from offset 10 on .* made anew"):
        query.batch()
    query.source = DefaultSource(query.options | {"failOnDataLoss": "false"})
    query.start()
    assert query.batch() == list(range(100, 190))


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A cluster whose replicas may lead without being in sync."""
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with ProcessCluster(tmp_path_factory.mktemp("weak"), 3, settings) as running:
        yield running


def test_a_stream_reads_on_while_a_broker_dies(weak: ProcessCluster) -> None:
    topic = weak.create_topic("mortal", partitions=PARTITIONS)
    query = Engine(weak.bootstrap, topic)
    produce(weak, topic, range(90))
    assert query.batch() == list(range(90))
    victim = weak.leader(topic, 0)
    weak.kill(victim)
    produce(weak, topic, range(90, 180))
    assert query.batch() == list(range(90, 180))
    weak.mend()
    assert query.batch() is None
    produce(weak, topic, range(180, 240))
    assert query.batch() == list(range(180, 240))


def test_a_log_that_was_cut_by_an_unclean_election_is_told(weak: ProcessCluster) -> None:
    """Broker 2 misses records 10 to 29 (partition 0 alone), then leads because 1 is gone, and takes others."""
    topic = weak.create_topic("cut", assignment=[[1, 2]])
    settings = {"bootstrap.servers": weak.bootstrap, "log_level": 0, "acks": "all"}

    def put(numbers: range) -> None:
        producer = Producer(settings)
        for i in numbers:
            producer.produce(topic, value=str(i), partition=0)
        assert producer.flush(60) == 0

    query = Engine(weak.bootstrap, topic)
    put(range(10))
    weak.kill(2)
    put(range(10, 30))
    assert query.batch() == list(range(30))
    weak.kill(1)
    weak.start(2)
    put(range(100, 125))
    weak.start(1)
    weak.wait_whole(topic)
    with pytest.raises(DataLoss, match="cut-0: 20 records, offsets 10 to 29, were cut off"):
        query.batch()
    query.source = DefaultSource(query.options | {"failOnDataLoss": "false"})
    query.start()
    assert query.batch() == list(range(100, 125))
    assert query.marks["0"] == {"offset": 35, "epoch": query.marks["0"]["epoch"], "lost": 20}
