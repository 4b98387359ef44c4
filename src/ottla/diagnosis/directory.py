"""The state of a cluster that does not run, from the metadata log on the disks of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ottla.diagnosis.disks import log_directories, segments
from ottla.diagnosis.explain_broker import DutiesNow
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.metadata_history import entries_of
from ottla.diagnosis.now import BrokerNow, ClusterNow, PartitionNow, QuorumNow, Reach
from ottla.diagnosis.remedies import UNCLEAN
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, decode
from ottla.raft.messages import SnapshotId
from ottla.raft.snapshots import CorruptSnapshot, read_snapshot, snapshot_ids
from ottla.records.batch import CorruptBatch, batches
from ottla.records.record import records
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.record_codec import MalformedRecord


class StoredMetadata(NamedTuple):
    image: MetadataImage
    history: list[Happened]


def read_metadata(directory: Path) -> StoredMetadata:
    """The newest checkpoint, and all that follows it. What comes behind a torn write is left out."""
    image = MetadataImage()
    history: list[Happened] = []
    ids = snapshot_ids(path.name for path in directory.glob("*.checkpoint"))
    if ids:
        image = _from_checkpoint(directory, ids[-1])
    for data in segments(directory):
        try:
            for batch in batches(data, allow_partial=True):
                if batch.is_control or batch.last_offset <= image.offset:
                    continue
                content = [decode(each.value) for each in records(data, batch) if each.value]
                before = image
                image, delta = image.apply(content, batch.last_offset, batch.leader_epoch)
                history += entries_of(before, image, delta, batch.max_timestamp)
        except (CorruptBatch, MalformedRecord):
            break
    return StoredMetadata(image, history)


def _from_checkpoint(directory: Path, id: SnapshotId) -> MetadataImage:
    path = directory / f"{id}.checkpoint"
    try:
        content = read_snapshot(path.read_bytes(), str(path)).records
    except CorruptSnapshot:
        return MetadataImage()
    return (
        MetadataImage().apply(content, max(id.end_offset - 1, 0), id.epoch)[0]
        if content
        else MetadataImage()
    )


def agreed_metadata(controllers: list[Path]) -> StoredMetadata | None:
    """What a majority of these nodes has on disk: what one of them wrote last need not be committed. None if there is none."""
    found = [
        read_metadata(place)
        for node in controllers
        for directory in log_directories(node)
        if (place := directory / f"{CLUSTER_METADATA_TOPIC}-0").is_dir()
    ]
    found.sort(key=lambda each: (each.image.epoch, each.image.offset), reverse=True)
    return found[min(len(controllers) // 2, len(found) - 1)] if found else None


def stopped_cluster(image: MetadataImage, now_ms: int) -> ClusterNow:
    brokers = {}
    for id, each in sorted(image.brokers.items()):
        end = each.endpoints[0] if each.endpoints else None
        address = "" if end is None else f"{end.host}:{end.port}"
        brokers[id] = BrokerNow(id, address, Reach.NOT_ASKED, each.fenced, process=False)
    return ClusterNow(
        now_ms, brokers, QuorumNow(None, tuple(sorted(image.controllers))), stopped=True
    )


def stored_partitions(image: MetadataImage, topic: str, wanted: int | None) -> list[PartitionNow]:
    found = image.topics.get(topic)
    if found is None:
        return []
    return [
        PartitionNow(
            topic,
            number,
            each.leader,
            each.leader_epoch,
            each.replicas,
            each.isr,
            each.elr,
            each.adding,
            each.removing,
            image.min_insync_replicas(found, each),
            unclean=_allows_unclean(image, topic),
        )
        for number, each in enumerate(found.partitions)
        if wanted in (None, number)
    ]  # fmt: skip


def _allows_unclean(image: MetadataImage, topic: str) -> bool | None:
    """As far as the metadata says it; the files of settings of the nodes may say it, too."""
    for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
        value = image.config(*resource).get(UNCLEAN)
        if value is not None:
            return value == "true"
    return None


def stored_duties(image: MetadataImage, broker: int) -> DutiesNow:
    held = [
        (f"{topic.name}-{number}", each)
        for topic in image.topics.values()
        for number, each in enumerate(topic.partitions)
        if broker in each.replicas
    ]
    return DutiesNow(
        len(held),
        sum(each.leader == broker for _, each in held),
        tuple(name for name, each in held if broker not in each.isr),
        tuple(name for name, each in held if each.leader < 0),
    )
