"""The blocking client of Spark's tasks against real brokers, without Spark: every record once, whoever leads and dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.records.record import records
from ottla.spark.connect.cluster import Found, KafkaCluster
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.connect.shared import SharedClusters
from ottla.spark.errors import SparkSourceError
from ottla.spark.options import EARLIEST, LATEST, Options, ReadOptions
from ottla.spark.read.fetcher import Fetcher
from ottla.spark.read.loss import DataLoss
from ottla.spark.read.splits import Range
from support.cluster import ProcessCluster, wait_until

RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers in three racks, which send readers to the nearest."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector}
    by_node = {id: {"broker.rack": rack} for id, rack in RACKS.items()}
    directory = tmp_path_factory.mktemp("racks")
    with ProcessCluster(directory, 3, settings, by_node) as cluster:
        yield cluster


def write(cluster: Any, topic: str, numbers: range, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    for i in numbers:
        producer.produce(topic, value=str(i).rjust(1000), partition=0)
    assert producer.flush(60) == 0


def reading(
    cluster: Any, topic: str, start: int, end: int, **given: Any
) -> tuple[Fetcher, KafkaCluster]:
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    options = Options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **named})
    client = KafkaCluster(ConnectionOptions.of(options))
    (described,) = client.topics([topic])
    assert described.id is not None
    wanted = Range(topic, described.id.hex, 0, start, end)
    return Fetcher(client, wanted, ReadOptions.of(options, streaming=False)), client


def offsets_of(fetcher: Fetcher, end: int) -> list[int]:
    return [
        record.offset
        for data, found, _, first in fetcher
        for batch in found
        for record in records(data, batch)
        if first <= record.offset < end
    ]


def test_a_range_is_read_once_in_small_fetches(cluster: Any, new_topic: Any) -> None:
    topic = new_topic()
    write(cluster, topic, range(500), **{"batch.num.messages": 10})
    small = {"kafka__max__partition__fetch__bytes": 20_000}
    fetcher, client = reading(cluster, topic, 123, 456, **small)
    assert offsets_of(fetcher, 456) == list(range(123, 456))
    assert len(fetcher._buffer) < 100_000, "what is held does not grow with the range"
    client.close()


def test_questions_of_the_driver(cluster: Any, new_topic: Any) -> None:
    topic = new_topic(partitions=2)
    write(cluster, topic, range(10))
    _, client = reading(cluster, topic, 0, 10)
    places = [(topic, 0), (topic, 1)]
    ends = client.offsets(dict.fromkeys(places, LATEST))
    assert ends == {(topic, 0): Found(10, 0), (topic, 1): Found(0, 0)}
    assert client.offsets({places[0]: EARLIEST})[places[0]] == Found(0, 0)
    assert client.offsets({places[0]: 1 << 50})[places[0]] is None, "nothing is so new"
    assert client.epoch_ends({places[0]: 0})[places[0]] == (0, 10)
    client.commit(f"group-of-{topic}", {places[0]: Found(4, 0)})
    told = cluster.ottla("groups", "describe", f"group-of-{topic}")
    assert [row["lag"] for row in told["partitions"]] == [6]
    client.close()


def test_a_follower_in_the_same_rack_is_read_from(racks: ProcessCluster) -> None:
    topic = racks.create_topic("nearby")
    write(racks, topic, range(200))
    nearby = next(id for id in RACKS if id != racks.leader(topic))
    fetcher, client = reading(racks, topic, 0, 200, kafka__client__rack=RACKS[nearby])
    assert offsets_of(fetcher, 200) == list(range(200))
    assert fetcher._replica == nearby
    client.close()


def test_a_leader_that_dies_is_followed_by_another(racks: ProcessCluster) -> None:
    topic = racks.create_topic("orphaned")
    write(racks, topic, range(400), **{"acks": "all", "batch.num.messages": 10})
    small = {"kafka__max__partition__fetch__bytes": 50_000}
    fetcher, client = reading(racks, topic, 0, 400, **small)
    read: list[int] = []
    victim = racks.leader(topic)
    for data, found, _, _ in fetcher:
        read += [record.offset for batch in found for record in records(data, batch)]
        if racks.nodes[victim].running:
            racks.kill(victim)
    assert read == list(range(400))
    client.close()
    racks.mend()


def test_what_is_not_there_is_told_by_the_task(cluster: Any, new_topic: Any) -> None:
    from confluent_kafka import TopicPartition

    topic = new_topic()
    write(cluster, topic, range(20))
    cluster.admin.delete_records([TopicPartition(topic, 0, 8)])[TopicPartition(topic, 0)].result()
    fetcher, client = reading(cluster, topic, 5, 20)
    with pytest.raises(DataLoss, match=f"{topic}-0: 3 records, offsets 5 to 7, aged out"):
        offsets_of(fetcher, 20)
    fetcher, _ = reading(cluster, topic, 5, 20, failOnDataLoss="false")
    assert offsets_of(fetcher, 20) == list(range(8, 20))
    fetcher, _ = reading(cluster, topic, 30, 40)
    with pytest.raises(DataLoss, match=r"offsets 30 to 39, were cut off .* ends at 20"):
        offsets_of(fetcher, 40)
    fetcher, _ = reading(cluster, topic, 18, 25, kafkaConsumer__pollTimeoutMs=50, kafka__fetch__max__wait__ms=20)  # fmt: skip
    with pytest.raises(SparkSourceError, match="nothing could be read from offset 20 on"):
        offsets_of(fetcher, 25)
    client.close()


def test_a_topic_made_anew_is_not_taken_for_the_old_one(cluster: Any, tmp_path: Path) -> None:
    topic = cluster.create_topic("made-anew")
    write(cluster, topic, range(20))
    fetcher, client = reading(cluster, topic, 0, 20)
    cluster.ottla("topics", "delete", topic)
    cluster.create_topic(topic)
    write(cluster, topic, range(20))
    with pytest.raises(DataLoss, match="20 records, offsets 0 to 19, are gone with their topic"):
        offsets_of(fetcher, 20)
    client.close()


def test_connections_are_used_by_the_next_task_and_closed_when_none_comes(cluster: Any) -> None:
    options = ConnectionOptions.of(Options({"kafka.bootstrap.servers": cluster.bootstrap}))
    patient, hasty = SharedClusters(idle_s=3600), SharedClusters(idle_s=0.05)
    with patient.lent(options) as first:
        kept = first.to_any()
    with patient.lent(options) as second, patient.lent(options) as beside:
        assert second.to_any() is kept and not kept.closed
        assert beside is not second, "two at a time share nothing"
        other = beside.to_any()
    assert other.closed != kept.closed, "one of the two waits for the next task"
    with hasty.lent(options) as third:
        unused = third.to_any()
        assert not unused.closed
    wait_until(lambda: unused.closed, 10, "what nobody uses is closed")
    with hasty.lent(options) as fourth:
        assert fourth is not third
        fourth.to_any()
    (first if other.closed else beside).close()
