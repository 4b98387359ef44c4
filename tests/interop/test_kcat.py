"""kcat (an older librdkafka), and what every client writes read by every other one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from support.clients import CLIENTS, CODECS, Kcat, Row
from support.cluster import ProcessCluster

CLIENT = Kcat()
NewTopic = Callable[..., str]

needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
ROWS = [Row(b"key %d" % i, b"value %d" % i, (("h", b"x"), ("i", b"y"))) for i in range(300)]


def without_time(rows: list[Row]) -> list[Row]:
    return [row._replace(timestamp_ms=0) for row in rows]


@needs_kcat
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_P17_kcat_reads_what_kcat_wrote(
    cluster: ProcessCluster, new_topic: NewTopic, acks: str, codec: str
) -> None:
    topic = new_topic()
    CLIENT.produce(cluster.bootstrap, topic, ROWS, acks=acks, codec=codec)
    assert without_time(CLIENT.consume(cluster.bootstrap, topic, len(ROWS))) == ROWS


@needs_kcat
def test_P21_kcat_writes_idempotently(cluster: ProcessCluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    CLIENT.produce(cluster.bootstrap, topic, ROWS, idempotent=True)
    assert without_time(CLIENT.consume(cluster.bootstrap, topic, len(ROWS))) == ROWS


@needs_kcat
def test_P06_kcat_lists_brokers_leaders_replicas_and_isr(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(CLIENT.run("-L", "-J", "-b", cluster.bootstrap, "-t", topic))
    assert {(b["id"], b["name"]) for b in listed["brokers"]} == {
        (node.id, node.address) for node in cluster.nodes.values()
    }
    (found,) = listed["topics"]
    assert [p["partition"] for p in found["partitions"]] == [0, 1, 2]
    for partition in found["partitions"]:
        assert partition["leader"] in cluster.nodes
        for role in ("replicas", "isrs"):
            assert {each["id"] for each in partition[role]} == set(cluster.nodes)


@needs_kcat
@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_wrote_every_other_reads(
    cluster: ProcessCluster, new_topic: NewTopic, writer: str, codec: str
) -> None:
    if codec not in CLIENTS[writer].codecs:
        pytest.skip(f"{writer} lacks the packages for {codec}")
    topic = new_topic()
    CLIENTS[writer].produce(cluster.bootstrap, topic, ROWS, codec=codec)
    for reader, client in CLIENTS.items():
        if codec in client.codecs:
            read = client.consume(cluster.bootstrap, topic, len(ROWS))
            assert without_time(read) == ROWS, reader
