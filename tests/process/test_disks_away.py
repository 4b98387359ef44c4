"""A disk that is away for one start of its broker, and back for the next one, on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.disks import give_second_disks, second_disk

ALONE = {"min.insync.replicas": "1", "default.replication.factor": "1"}


def lies_in(cluster: ProcessCluster, topic: str) -> list[str]:
    fields = {"topics": [{"topic": topic, "partitions": [0]}]}
    answer = cluster.ask(cluster.nodes[1], ApiKey.DESCRIBE_LOG_DIRS, 5, fields)
    return [row.log_dir for row in answer.results if row.topics]


def on_the_second_disk(cluster: ProcessCluster) -> str:
    """A topic whose one replica lies there."""
    for number in range(4):
        cluster.create_topic(f"t{number}", 1, 1)
        if lies_in(cluster, f"t{number}") == [str(second_disk(cluster, 1))]:
            return f"t{number}"
    raise AssertionError("none of four topics")


def write(cluster: ProcessCluster, topic: str, value: bytes) -> None:
    """By a new producer: one that knows the epochs of a topic ignores its successor of that name.

    (librdkafka: "ignoring outdated metadata update", though it has seen the id change.)"""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


@contextmanager
def away(cluster: ProcessCluster) -> Iterator[None]:
    """The broker runs without its second disk; afterwards it is started with it."""
    disk = second_disk(cluster, 1)
    cluster.stop(1)
    disk.rename(disk.with_name("away"))
    disk.write_text("not a directory")
    cluster.start(1)
    cluster.wait_ready()
    yield
    cluster.stop(1)
    disk.unlink()
    disk.with_name("away").rename(disk)
    cluster.start(1)
    cluster.wait_ready()


def test_what_lies_on_a_disk_that_was_away_is_served_again_unless_it_was_deleted(
    tmp_path: Path,
) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 1, ALONE)
    give_second_disks(cluster)
    with cluster:
        topic = on_the_second_disk(cluster)
        write(cluster, topic, b"kept")
        node = cluster.nodes[1]
        text = node.config.read_text()
        line = f"log.dirs={node.data}"
        node.config.write_text(text.replace(line, f"{line},{node.directory / 'third'}"))
        with away(cluster):  # and the third disk is new
            assert cluster.partitions(topic)[0].leader == -1
        wait_until(lambda: cluster.partitions(topic)[0].leader == 1, 20, "led again")
        with away(cluster):
            cluster.admin.delete_topics([topic])[topic].result(30)
            wait_until(lambda: topic not in cluster.admin.list_topics().topics, 20, "deleted")
            cluster.create_topic(topic, 1, 1)
            write(cluster, topic, b"of the next")
        wait_until(lambda: cluster.partitions(topic)[0].leader == 1, 20, "led again")
        assert lies_in(cluster, topic) != [str(second_disk(cluster, 1))]
        assert len(list(second_disk(cluster, 1).glob(f"{topic}-0.*-stray"))) == 1
