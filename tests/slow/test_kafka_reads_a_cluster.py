"""The directories of a real cluster, written through a real client, under the eyes of Kafka's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Message, Producer

from support.cluster import NodeProcess, ProcessCluster, byte_identical
from support.kafka_dump import DumpedBatch, dump, dump_batches, dump_rows
from support.kafka_jars import STORAGE, metadata_tree, run_tool
from support.messages import place_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20


class Sent(NamedTuple):
    key: str
    value: str
    timestamp: int
    codec: str


class Ledger:
    """What the cluster acknowledged: (partition, offset) → what was sent."""

    def __init__(self, cluster: ProcessCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.acknowledged: dict[tuple[int, int], Sent] = {}

    def produce(self, codec: str, partition: int, count: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        for i in range(count):
            sent = Sent(f"{codec}-{partition}-{i}", f"{i:05d}" * 400, 1_700_000_000_000 + i, codec)

            def delivered(error: Any, message: Message, sent: Sent = sent) -> None:
                if error is not None:
                    raise KafkaException(error)
                self.acknowledged[place_of(message)] = sent

            producer.produce(
                self._topic,
                sent.value,
                sent.key,
                partition,
                on_delivery=delivered,
                timestamp=sent.timestamp,
                headers={"codec": codec.encode()},
            )
            producer.poll(0)
        assert producer.flush(60) == 0


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def check_indexes(directory: Path) -> None:
    indexes = files(directory, ".index") + files(directory, ".timeindex")
    assert indexes
    dump(*indexes, options=("--index-sanity-check",))
    dump(*indexes, options=("--verify-index-only",))


def check_records(batches: list[DumpedBatch], ledger: Ledger, partition: int) -> None:
    """Every acknowledged record once, where the client was told it is, and no other."""
    found = {
        (partition, record.offset): Sent(
            record.key or "", record.payload or "", record.timestamp, batch.codec
        )
        for batch in batches
        for record in batch.records
    }
    assert found == {at: sent for at, sent in ledger.acknowledged.items() if at[0] == partition}
    for batch in batches:
        assert batch["producerId"] >= 0 and batch["baseSequence"] >= 0
        assert all(record.header_keys == ["codec"] for record in batch.records)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProcessCluster, Ledger]:
    """Three brokers that took records in every codec and lost a leader on the way, all stopped again."""
    overrides = {"metadata.log.max.record.bytes.between.snapshots": "4000"}
    with ProcessCluster(tmp_path_factory.mktemp("stopped"), overrides=overrides) as cluster:
        topic = cluster.create_topic("dumped", 3, config={"segment.bytes": str(SEGMENT_BYTES)})
        ledger = Ledger(cluster, topic)
        for codec in CODECS:
            for partition in range(3):
                ledger.produce(codec, partition, 20)
        ledger.produce("none", 0, 1200)
        leader = cluster.leader(topic, 0)
        cluster.kill(leader)
        ledger.produce("lz4", 0, 100)
        cluster.start(leader)
        cluster.wait_ready()
        cluster.wait_whole(topic)
        ledger.produce("none", 0, 300)
        byte_identical(cluster, topic)
        assert cluster.stop(1, 2, 3) == [0, 0, 0]
    return cluster, ledger


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_kafka_reads_the_segments_of_every_replica(
    stopped: tuple[ProcessCluster, Ledger], partition: int
) -> None:
    cluster, ledger = stopped
    for node in cluster.nodes.values():
        directory = node.data / f"dumped-{partition}"
        segments = files(directory, ".log")
        batches = dump_batches(*segments)
        check_records(batches, ledger, partition)
        check_indexes(directory)
        if partition == 0:
            assert len(segments) > 2
            epochs = [batch["partitionLeaderEpoch"] for batch in batches]
            assert epochs == sorted(epochs) and len(set(epochs)) >= 2
        newest = files(directory, ".snapshot")[-1]
        assert int(newest.stem) == batches[-1]["lastOffset"] + 1, "taken at the clean stop"
        producers = {row["producerId"]: row["lastOffset"] for row in dump_rows(newest)}
        last = {batch["producerId"]: batch["lastOffset"] for batch in batches}
        assert producers == last


def metadata_of(node: NodeProcess) -> list[str]:
    """Every metadata record in the node's log as Kafka decodes it."""
    directory = node.data / "__cluster_metadata-0"
    batches = dump_batches(*files(directory, ".log"), metadata=True)
    assert all(record.json for batch in batches if not batch.is_control for record in batch.records)
    return [
        f"{record.offset} epoch {batch['partitionLeaderEpoch']}: {record.payload or record.content}"
        for batch in batches
        for record in batch.records
    ]


def test_kafka_decodes_the_metadata_log_of_every_node(
    stopped: tuple[ProcessCluster, Ledger],
) -> None:
    cluster, _ = stopped
    logs = []
    for node in cluster.nodes.values():
        logs.append(metadata_of(node))
        directory = node.data / "__cluster_metadata-0"
        check_indexes(directory)
        dump(*files(directory, ".snapshot"))
    longest = max(logs, key=len)
    for log in logs:
        assert len(log) > 30
        common = set(log) & set(longest)
        assert len(common) >= len(log) - 3, "a node stopped earlier may hold a tail nobody saw"
    text = "\n".join(longest)
    for kind in ("REGISTER_BROKER", "FEATURE_LEVEL", "TOPIC", "PARTITION", "PARTITION_CHANGE"):
        assert f'"type":"{kind}_RECORD"' in text
    assert '"name":"dumped"' in text


def test_kafka_reads_the_checkpoints_that_the_nodes_took(
    stopped: tuple[ProcessCluster, Ledger],
) -> None:
    cluster, _ = stopped
    taken = 0
    for node in cluster.nodes.values():
        directory = node.data / "__cluster_metadata-0"
        for checkpoint in files(directory, ".checkpoint"):
            if checkpoint.name.startswith("0" * 20 + "-"):
                continue  # the voters that formatting left
            batches = dump_batches(checkpoint, metadata=True)
            assert batches[0].records[0].control == "SnapshotHeader"
            assert batches[-1].records[-1].control == "SnapshotFooter"
            taken += 1
        newest = files(directory, ".checkpoint")[-1]
        tree = metadata_tree(newest)
        assert "/image/topics/byName/dumped/name: dumped" in tree
        assert sum(line.startswith("/image/cluster/brokers/") for line in tree) == 3
    assert taken >= 3


def test_kafka_takes_the_directories_of_our_nodes_for_its_own(
    stopped: tuple[ProcessCluster, Ledger],
) -> None:
    cluster, _ = stopped
    for node in cluster.nodes.values():
        info = run_tool(STORAGE, "info", "--config", node.config)
        assert f"node.id={node.id}" in info
        assert "problem" not in info
        bootstrap = node.data / "bootstrap.checkpoint"
        # Its head and its foot, and the level of each of four features.
        assert sum(batch["count"] for batch in dump_batches(bootstrap, metadata=True)) == 2 + 4
