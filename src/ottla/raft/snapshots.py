"""Checkpoint files: the metadata up to an offset in one file, in Kafka's format.

A checkpoint is a sequence of record batches: a control batch with the header (and, from kraft.version 1 on, the
voters), the metadata records, a control batch with the footer. Its offsets start at 0. A file without a
footer is incomplete and is refused. Nodes take their checkpoints independently of each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.metadata.records import MetadataRecord, decode, encode
from ottla.raft import control_records
from ottla.raft.messages import SnapshotId
from ottla.raft.voters import VoterSet
from ottla.records import record as batches_of
from ottla.records.batch import HEADER_BYTES, CorruptBatch, batches, check_crc, read_batch
from ottla.records.record import ControlType, control_batch, control_type
from ottla.runtime.seams import Disk, File
from ottla.wire.record_codec import MalformedRecord

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Kafka's limit for a batch of metadata."""

BOOTSTRAP = SnapshotId(0, 0)
"""Written when a voter's directory is formatted; holds only the first voters."""

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class CorruptSnapshot(Exception):
    """A checkpoint is incomplete or damaged."""


class SnapshotContent(NamedTuple):
    records: list[MetadataRecord]
    timestamp_ms: int
    """When the last record in it was appended to the log."""
    kraft_version: int
    voters: VoterSet | None


def build_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    timestamp_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> bytes:
    """The bytes of a checkpoint. The cost is proportional to the metadata: build large ones in a thread. Static voters
    (kraft.version 0) are not in it, as in Kafka: they are those of each node's settings."""
    header: list[tuple[ControlType, bytes]] = [
        (
            ControlType.SNAPSHOT_HEADER,
            control_records.encode_control(
                control_records.SnapshotHeader(last_contained_log_timestamp=timestamp_ms)
            ),
        )
    ]
    if voters is not None and kraft_version >= 1:
        header += voter_controls(kraft_version, voters)
    out = control_batch(header, timestamp=timestamp_ms, base_offset=0, leader_epoch=epoch)
    offset = len(header)
    for group in _groups(encode(record) for record in records):
        out += batches_of.build(
            (
                batches_of.Record(offset + i, timestamp_ms, None, value)
                for i, value in enumerate(group)
            ),
            base_offset=offset,
            leader_epoch=epoch,
        )
        offset += len(group)
    footer = (
        ControlType.SNAPSHOT_FOOTER,
        control_records.encode_control(control_records.SnapshotFooter()),
    )
    out += control_batch([footer], timestamp=timestamp_ms, base_offset=offset, leader_epoch=epoch)
    return bytes(out)


def voter_controls(kraft_version: int, voters: VoterSet) -> list[tuple[ControlType, bytes]]:
    version = control_records.KRaftVersion(k_raft_version=kraft_version)
    return [
        (ControlType.KRAFT_VERSION, control_records.encode_control(version)),
        (ControlType.KRAFT_VOTERS, control_records.encode_control(voters.record())),
    ]


def _groups(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Groups of values that fit into one batch; a record is little larger than its value."""
    group: list[bytes] = []
    size = 0
    for value in values:
        if group and size + len(value) + 32 > BATCH_BYTES_MAX // 2:
            yield group
            group, size = [], 0
        group.append(value)
        size += len(value) + 32
    if group:
        yield group


def read_snapshot(data: bytes, name: str) -> SnapshotContent:
    """The whole content, after checking every byte. CorruptSnapshot unless it is complete."""
    content: list[MetadataRecord] = []
    seen: dict[int, bytes | None] = {}
    try:
        for batch in batches(data):
            if ControlType.SNAPSHOT_FOOTER in seen:
                raise CorruptSnapshot(f"{name}: batches after the footer")
            check_crc(data, batch)
            for record in batches_of.records(data, batch):
                if batch.is_control:
                    seen[control_type(record)] = record.value
                elif record.value is None:
                    raise CorruptSnapshot(f"{name}: a metadata record without a value")
                else:
                    content.append(decode(record.value))
            if ControlType.SNAPSHOT_HEADER not in seen:
                raise CorruptSnapshot(f"{name}: does not begin with a header")
        if ControlType.SNAPSHOT_FOOTER not in seen:
            raise CorruptSnapshot(f"{name}: has no footer")
        return _content(content, seen)
    except (CorruptBatch, MalformedRecord) as error:
        raise CorruptSnapshot(f"{name}: {error}") from error


def check_snapshot(data: bytes, name: str) -> None:
    """Check every byte, faster than `read_snapshot`. CorruptSnapshot if any is wrong."""
    last = None
    try:
        for last in batches(data):
            check_crc(data, last)
    except CorruptBatch as error:
        raise CorruptSnapshot(f"{name}: {error}") from error
    if last is None or not last.is_control:
        raise CorruptSnapshot(f"{name}: has no footer")


def _content(records: list[MetadataRecord], controls: dict[int, bytes | None]) -> SnapshotContent:
    header = control_records.decode_control(
        control_records.SnapshotHeader, controls[ControlType.SNAPSHOT_HEADER]
    )
    kraft_version, voters = 0, None
    if ControlType.KRAFT_VERSION in controls:
        version = controls[ControlType.KRAFT_VERSION]
        kraft_version = control_records.decode_control(
            control_records.KRaftVersion, version
        ).k_raft_version
    if ControlType.KRAFT_VOTERS in controls:
        entry = control_records.decode_control(
            control_records.KRaftVoters, controls[ControlType.KRAFT_VOTERS]
        )
        voters = VoterSet.from_record(entry)
    return SnapshotContent(records, header.last_contained_log_timestamp, kraft_version, voters)


class Download:
    """A checkpoint being copied from the leader in chunks, into a file that is not valid yet."""

    def __init__(self, store: SnapshotStore, id: SnapshotId) -> None:
        self.id = id
        self._store = store
        self._path = f"{store.directory}/{id}{PART_SUFFIX}"
        self._file = store.disk.open(self._path, create=True)
        self._file.truncate(0)

    @property
    def position(self) -> int:
        return self._file.size

    def add(self, data: bytes | memoryview) -> None:
        self._file.append(data)

    def finish(self) -> SnapshotContent:
        """Check the file, then make it a valid checkpoint. CorruptSnapshot leaves nothing behind."""
        try:
            content = read_snapshot(self._file.read_at(0, self._file.size), str(self.id))
        except CorruptSnapshot:
            self.abandon()
            raise
        self._file.flush()
        self._file.close()
        self._store.adopt(self._path, self.id)
        return content

    def abandon(self) -> None:
        self._file.close()
        self._store.disk.remove(self._path)


def snapshot_ids(names: Iterable[str]) -> list[SnapshotId]:
    """The checkpoints among the files of a directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match is not None)


class SnapshotStore:
    """The checkpoints of one directory, oldest first."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        names = disk.list_dir(directory)
        self.ids = snapshot_ids(names)
        self._reading: tuple[SnapshotId, File] | None = None
        for name in names:
            if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
                disk.remove(f"{directory}/{name}")

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def earliest(self) -> SnapshotId | None:
        """The checkpoint that the log's start may rest on; the bootstrap one is ignored if there are others."""
        return next((id for id in self.ids if id != BOOTSTRAP), None)

    def path(self, id: SnapshotId) -> str:
        return f"{self.directory}/{id}{SUFFIX}"

    def size(self, id: SnapshotId) -> int:
        return self.disk.file_size(self.path(id))

    def load(self, id: SnapshotId) -> SnapshotContent:
        return read_snapshot(self.disk.read(self.path(id)), self.path(id))

    def timestamp_ms(self, id: SnapshotId) -> int:
        """When the last record in it was appended to the log. Reads only the header."""
        file = self.disk.open(self.path(id))
        try:
            batch = read_batch(file.read_at(0, HEADER_BYTES), 0)
            first = next(batches_of.records(file.read_at(0, batch.size), batch))
            header = control_records.decode_control(control_records.SnapshotHeader, first.value)
        except (CorruptBatch, MalformedRecord) as error:
            raise CorruptSnapshot(f"{id}: {error}") from error
        finally:
            file.close()
        return header.last_contained_log_timestamp

    def write(self, id: SnapshotId, data: bytes) -> None:
        """The file becomes a valid checkpoint only when all of it is on disk."""
        self.disk.replace(self.path(id), data, durable=True)
        self.add(id)

    def add(self, id: SnapshotId) -> None:
        if id not in self.ids:
            self.ids = sorted([*self.ids, id])

    def adopt(self, path: str, id: SnapshotId) -> None:
        self.disk.rename(path, self.path(id))
        self.disk.flush_dir(self.directory)
        self.add(id)

    def chunk(self, id: SnapshotId, position: int, bytes_max: int) -> bytes:
        """Bytes for a replica that downloads the checkpoint. The file stays open between requests."""
        if self._reading is None or self._reading[0] != id:
            self._reading = (id, self.disk.open(self.path(id)))
        return self._reading[1].read_at(position, bytes_max)

    def retire(self, id: SnapshotId) -> None:
        """A replica that is downloading it continues to read the open file."""
        assert id != self.latest, "the newest checkpoint stays"
        deleted = f"{self.directory}/{id}{DELETED_SUFFIX}"
        self.disk.rename(self.path(id), deleted)
        self.ids.remove(id)
        self.disk.remove(deleted)
