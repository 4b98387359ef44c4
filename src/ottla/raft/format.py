"""The files that `format` writes into a directory before its node starts for the first time.

`meta.properties` identifies the directory. `bootstrap.checkpoint` holds the features of a new cluster, and its first
users. A voter of a
dynamic quorum gets the first voters as the checkpoint at offset 0. meta.properties is written last: a directory
without it is not completely formatted and may be formatted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.log.checkpoints import (
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
)
from ottla.log.log_directories import make_directory
from ottla.metadata.features import DEFAULT_LEVELS
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.raft.election_state import QuorumStateFile
from ottla.raft.snapshots import (
    BOOTSTRAP,
    SUFFIX,
    SnapshotStore,
    build_snapshot,
    check_snapshot,
    read_snapshot,
    snapshot_ids,
)
from ottla.raft.voters import VoterSet
from ottla.runtime.seams import Disk
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC

METADATA_DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"
BOOTSTRAP_FILE = "bootstrap.checkpoint"


def feature_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level
    ]


def format_directory(
    disk: Disk,
    directory: str,
    *,
    cluster_id: str,
    node_id: int,
    directory_id: UUID,
    voters: VoterSet | None,
    features: Mapping[str, int] = DEFAULT_LEVELS,
    records: Sequence[MetadataRecord] = (),
) -> None:
    """`records` are written into a new log after the features: the credentials of its first users. `voters` are the first voters of a dynamic quorum (kraft.version 1). With None they come from the
    setting controller.quorum.voters, or, on a node that is not a voter, from the other nodes."""
    make_directory(disk, directory)
    bootstrap = build_snapshot([*feature_records(features), *records], epoch=0, timestamp_ms=0)
    disk.replace(f"{directory}/{BOOTSTRAP_FILE}", bootstrap)
    if voters is not None:
        metadata = f"{directory}/{METADATA_DIRECTORY}"
        disk.make_dirs(metadata)
        content = build_snapshot([], epoch=0, timestamp_ms=0, kraft_version=1, voters=voters)
        SnapshotStore(disk, metadata).write(BOOTSTRAP, content)
    properties = MetaProperties(cluster_id, node_id, directory_id)
    write_meta_properties(disk, f"{directory}/{META_PROPERTIES}", properties)
    disk.flush_dir(directory)


def is_formatted(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{META_PROPERTIES}")


def load_properties(disk: Disk, directory: str) -> MetaProperties:
    return read_meta_properties(disk, f"{directory}/{META_PROPERTIES}")


def load_bootstrap_records(disk: Disk, directory: str) -> list[MetadataRecord]:
    """The records that the first controller writes into a new log: the features chosen at formatting, and the first users."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return feature_records(DEFAULT_LEVELS)
    return read_snapshot(disk.read(path), path).records


def check_directory(disk: Disk, directory: str) -> None:
    """Check the quorum's files before anything is written, so that a node with damaged files stops without
    changing them. Raises CorruptQuorumState, CorruptSnapshot or CorruptCheckpoint."""
    bootstrap = f"{directory}/{BOOTSTRAP_FILE}"
    if disk.exists(bootstrap):
        check_snapshot(disk.read(bootstrap), bootstrap)
    metadata = f"{directory}/{METADATA_DIRECTORY}"
    if disk.is_dir(metadata):
        QuorumStateFile(disk, metadata).read()
        read_offsets(disk, f"{metadata}/{RECOVERY_POINTS}")
        for id in snapshot_ids(disk.list_dir(metadata))[-1:]:
            path = f"{metadata}/{id}{SUFFIX}"
            check_snapshot(disk.read(path), path)
