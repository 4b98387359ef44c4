"""The state of a stopped cluster, from metadata logs on disk: what a majority has, and the history in it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.diagnosis.directory import (
    agreed_metadata,
    stopped_cluster,
    stored_duties,
    stored_partitions,
)
from ottla.diagnosis.disks import log_directories
from ottla.metadata import records as r
from ottla.metadata.records import MetadataRecord, encode
from ottla.records.record import Record, build

TOPIC = UUID(int=7)
AT = 1_800_000_000_000


def registered(id: int) -> MetadataRecord:
    return r.RegisterBrokerRecord(
        broker_id=id,
        is_migrating_zk_broker=False,
        incarnation_id=UUID(int=id),
        broker_epoch=id,
        end_points=(),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
        cordoned_log_dirs=None,
    )


def created() -> list[MetadataRecord]:
    partition = r.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2),
        isr=(1, 2),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_recovery_state=0,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=101), UUID(int=102)),
        eligible_leader_replicas=None,
        last_known_elr=None,
    )
    return [r.TopicRecord(name="orders", topic_id=TOPIC), partition]


def elected(leader: int, isr: tuple[int, ...]) -> MetadataRecord:
    return r.PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        isr=isr,
        leader=leader,
        replicas=None,
        removing_replicas=None,
        adding_replicas=None,
        leader_recovery_state=-1,
        directories=None,
        eligible_leader_replicas=None,
        last_known_elr=None,
    )


def write(node: Path, batches: list[list[MetadataRecord]], tail: bytes = b"") -> None:
    place = node / "data" / "__cluster_metadata-0"
    place.mkdir(parents=True)
    offset, data = 0, b""
    for number, content in enumerate(batches):
        at_ms = AT + 1000 * number
        values = [Record(offset + i, at_ms, None, encode(each)) for i, each in enumerate(content)]
        data += bytes(build(values, base_offset=offset, leader_epoch=1))
        offset += len(content)
    (place / f"{0:020}.log").write_bytes(data + tail)


BEGINNING = [[registered(1), registered(2)], created()]
FAILURE: list[list[MetadataRecord]] = [[r.FenceBrokerRecord(id=1, epoch=1), elected(2, (2,))]]


def test_the_state_is_what_a_majority_has_and_the_history_has_its_times(tmp_path: Path) -> None:
    nodes = [tmp_path / f"node-{id}" for id in (1, 2, 3)]
    write(nodes[0], BEGINNING)
    write(nodes[1], BEGINNING + FAILURE)
    write(nodes[2], [*BEGINNING, *FAILURE, [elected(-1, ())]])  # one disk alone: not committed
    stored = agreed_metadata(nodes)
    assert stored is not None
    (partition,) = stored_partitions(stored.image, "orders", None)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)
    told = [(each.kind, each.at_ms - AT, each.partition) for each in stored.history]
    assert told == [
        ("unfenced", 0, None),
        ("unfenced", 0, None),
        ("fenced", 2000, None),
        ("isr_shrink", 2000, "orders-0"),
        ("election", 2000, "orders-0"),
    ]
    shrunk, election = stored.history[-2:]
    assert shrunk.cause == "fenced" and shrunk.fields["brokers"] == [1]
    assert election.fields["how"] == "clean" and election.fields["previous_leader"] == 1
    cluster = stopped_cluster(stored.image, AT)
    assert cluster.stopped and cluster.brokers[1].fenced and not cluster.brokers[2].fenced
    assert stored_duties(stored.image, 1).out_of_sync == ("orders-0",)
    assert stored_partitions(stored.image, "nothing", None) == []


def test_a_torn_write_at_the_end_is_left_out_and_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path, BEGINNING, tail=b"torn")
    (file,) = tmp_path.rglob("*.log")
    before = file.read_bytes()
    stored = agreed_metadata([tmp_path])
    assert stored is not None and set(stored.image.topics) == {"orders"}
    assert file.read_bytes() == before


def test_a_cluster_that_never_ran_has_no_metadata(tmp_path: Path) -> None:
    assert agreed_metadata([tmp_path]) is None


def test_log_directories_are_those_of_the_settings(tmp_path: Path) -> None:
    assert log_directories(tmp_path) == [tmp_path / "data"]
    (tmp_path / "server.properties").write_text("log.dirs=/a, /b\nmetadata.log.dir=/m\n")
    assert log_directories(tmp_path) == [Path("/a"), Path("/b"), Path("/m")]
