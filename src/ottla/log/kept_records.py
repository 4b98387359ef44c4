"""Records that a truncation cuts off although they were committed, or may have been, are put aside before they are cut.

Each loss gets a directory `<topic>-<partition>.<id>-stray` in its log directory, with whole batches in files like those of a
log, and a manifest. Kafka gives this name to logs that it does not know; it leaves such directories alone, and refuses to
start for any other name. The order of the writes:

1. the manifest, as CUTTING, and a copy of the end of the segment that is cut in its middle; both flushed;
2. whole segments are moved, newest first, and the log is shortened (`truncation`);
3. the manifest, as KEPT.

If the process dies in between, `settle` looks at the next start how much the log still has: that part is not lost, and the
manifest is shortened to the rest. So nothing is cut before it is kept, and nothing is kept that was not cut.

What is kept is bounded in bytes and days; the oldest goes first. If there is no room, the truncation goes on, and the
manifest says that nothing was kept. Any other error takes the log directory offline, as everywhere.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.log.segment import OffsetPosition, Segment, file_name
from ottla.losses import manifest as manifests
from ottla.losses.manifest import BadManifest, EpochRange, LossKind, Manifest, State
from ottla.runtime.seams import Disk, File
from ottla.wire.types import TopicPartition

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger(__name__)

STRAY_SUFFIX = "-stray"
DELETE_SUFFIX = "-delete"
NAME_BYTES_MAX = 255
COPY_BYTES = 1 << 20
SPARE_BYTES = 16 << 20
"""A copy leaves at least so much of the disk free: a full disk would take the log directory offline."""
KEPT_BYTES_MAX = 1 << 30
KEPT_MS = 7 * 24 * 60 * 60 * 1000


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class CutRecords(NamedTuple):
    """What a truncation is about to cut off, and why."""

    first_offset: int
    committed_end: int
    cause: str
    leader: int
    leader_epoch: int
    restarts: bool = False
    """Which of them are lost is not known (`LossKind.RESTART`)."""


class Kept(NamedTuple):
    directory: str
    """The log directory."""
    path: str
    manifest: Manifest


class KeptRecords:
    """Everything that is kept in the log directories of a broker."""

    def __init__(
        self,
        disk: Disk,
        *,
        new_id: Callable[[], UUID],
        now_ms: Callable[[], int],
        max_bytes: int = KEPT_BYTES_MAX,
        retention_ms: int = KEPT_MS,
    ) -> None:
        self.kept: dict[str, Kept] = {}
        """By id, oldest first."""
        self.max_bytes = max_bytes
        self.retention_ms = retention_ms
        self.broker = -1
        self.on_removed: Callable[[str, str], None] = lambda path, directory: None
        """Called with the path of what is kept no longer, and its log directory. Its owner removes the files."""
        self._disk = disk
        self._new_id = new_id
        self._now_ms = now_ms

    # Starting

    def found(self, directory: str, names: Iterable[str]) -> None:
        """Read the manifests in a log directory. A stray log without one is an older version's, or Kafka's. A directory
        with nothing else is what is left of a process that died before its manifest was there."""
        paths = [f"{directory}/{name}" for name in names if name.endswith(STRAY_SUFFIX)]
        strays = [path for path in paths if self._disk.is_dir(path)]
        for path in strays:
            if all(each.endswith(".tmp") for each in self._disk.list_dir(path)):
                self._disk.remove_tree(path)
        if strays:
            for kept in kept_in(self._disk, directory):
                self.kept[kept.manifest.id] = kept

    def settle(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Complete or undo what a process that died was about to cut off."""
        for kept in list(self.kept.values()):
            manifest = kept.manifest
            if manifest.state is not State.CUTTING:
                continue
            log = logs.get(TopicPartition(manifest.topic, manifest.partition))
            lost_from = manifest.first_offset
            if log is not None and _holds(log, manifest):
                lost_from = max(lost_from, log.log_end)
                # What is left is about to be cut off, and was committed as far as its manifest says.
                committed = min(manifest.committed_end, log.log_end)
                log.known_committed = max(log.known_committed, committed)
            if lost_from >= manifest.end_offset:
                self._remove(kept)
            else:
                self._shorten(kept, lost_from)

    def _shorten(self, kept: Kept, first: int) -> None:
        for path in self.files_of(kept) if first > kept.manifest.first_offset else ():
            if _base_of(path) < first:
                self._disk.remove(path)
        size = sum(self._disk.file_size(path) for path in self.files_of(kept))
        manifest = kept.manifest._replace(
            state=State.KEPT,
            first_offset=first,
            committed_end=max(first, kept.manifest.committed_end),
            epochs=_within(kept.manifest.epochs, first, kept.manifest.end_offset),
            records=min(kept.manifest.records, kept.manifest.end_offset - first),
            bytes=size,
        )
        write_manifest(self._disk, kept.path, manifest)
        self.kept[manifest.id] = kept._replace(manifest=manifest)

    # Keeping

    def begin(
        self,
        log: Log,
        loss: CutRecords,
        tail: tuple[Segment, OffsetPosition] | None,
        whole: Sequence[Segment],
    ) -> Keeping:
        """The records from `tail` on, and those of the `whole` segments after it, are about to be cut off. What comes back
        moves the segments and completes the manifest."""
        size = sum(segment.size for segment in whole)
        first, end = loss.first_offset, log.log_end
        if tail is not None:
            size += tail[0].size - tail[1].position
            # A leader has a batch whole or not at all. A cut within one means that the leader has deleted its beginning.
            first = max(log.log_start, min(first, tail[1].offset))
        id = self._new_id().hex
        manifest = Manifest(
            id=id,
            kind=LossKind.RESTART if loss.restarts else LossKind.TRUNCATION,
            state=State.CUTTING,
            topic=log.topic,
            topic_id=str(log.topic_id),
            partition=log.partition,
            first_offset=first,
            committed_end=max(first, min(loss.committed_end, end)),
            end_offset=end,
            epochs=_epochs(log, first, end),
            records=end - first,
            bytes=size,
            at_ms=self._now_ms(),
            cause=loss.cause,
            leader=loss.leader,
            leader_epoch=loss.leader_epoch,
            broker=self.broker,
        )
        kept = Kept(log.directory, self.path_of(log, id), manifest)
        keeping = Keeping(self, self._disk, kept)
        copied = 0 if tail is None or not tail[1].position else tail[0].size - tail[1].position
        why_not = self._make_room(log.directory, size, copied)
        if why_not is None:
            try:
                self._disk.make_dirs(kept.path)
                write_manifest(self._disk, kept.path, manifest)
                if tail is not None and copied:
                    self._copy(*tail, kept.path)
                self._disk.flush_dir(kept.path)
                self._disk.flush_dir(log.directory)
            except OSError as error:
                why_not = _no_room(error)
        if why_not is not None:
            keeping.give_up(why_not)
        return keeping

    def path_of(self, log: Log, id: str) -> str:
        suffix = f".{id}{STRAY_SUFFIX}"
        name = f"{log.topic}-{log.partition}"
        return f"{log.directory}/{name[: NAME_BYTES_MAX - len(suffix)]}{suffix}"

    def _make_room(self, directory: str, size: int, copied: int) -> str | None:
        """Drop the oldest until `size` more bytes fit. Why they do not, if so."""
        if size > self.max_bytes:
            return f"{size} bytes, ottla.kept.records.max.bytes is {self.max_bytes}"
        if copied and self._disk.usage(directory)[1] < copied + SPARE_BYTES:
            return "the disk is nearly full"
        held = [
            kept
            for kept in self.kept.values()
            if _is_bounded(kept, directory) and kept.manifest.state is not State.NOT_KEPT
        ]
        total = size + sum(kept.manifest.bytes for kept in held)
        for kept in held:
            if total <= self.max_bytes:
                break
            total -= kept.manifest.bytes
            self._remove(kept)
        return None

    def _copy(self, segment: Segment, place: OffsetPosition, path: str) -> None:
        source = segment.opened()
        target = self._disk.open(f"{path}/{file_name(place.offset, '.log')}", create=True)
        try:
            target.truncate(0)
            position = place.position
            while position < segment.size:
                chunk = source.read_at(position, min(COPY_BYTES, segment.size - position))
                target.append(chunk)
                position += len(chunk)
            target.flush()
        finally:
            target.close()

    def completed(self, kept: Kept) -> None:
        """The records are cut off."""
        self.kept[kept.manifest.id] = kept
        try:
            self._disk.make_dirs(kept.path)
            write_manifest(self._disk, kept.path, kept.manifest)
        except OSError as error:
            # What is kept stays; if that was CUTTING, the next start completes it.
            why_not = _no_room(error)
            logger.warning("manifest was not written path=%s error=%s", kept.path, why_not)

    def stray(self, log: Log, id: str, path: str, cause: str) -> None:
        """The manifest of a log that is about to be renamed to `path`: written into it before, so that no stray log is
        without one."""
        manifest = Manifest(
            id=id,
            kind=LossKind.STRAY_LOG,
            state=State.KEPT,
            topic=log.topic,
            topic_id=str(log.topic_id),
            partition=log.partition,
            first_offset=log.log_start,
            committed_end=log.committed_end,
            end_offset=log.log_end,
            epochs=_epochs(log, log.log_start, log.log_end),
            records=log.log_end - log.log_start,
            bytes=log.size_bytes,
            at_ms=self._now_ms(),
            cause=cause,
            leader=-1,
            leader_epoch=-1,
            broker=self.broker,
        )
        write_manifest(self._disk, log.path, manifest)
        self.kept[id] = Kept(log.directory, path, manifest)

    # Reading

    def files_of(self, kept: Kept) -> list[str]:
        """The paths of its batches, in the order of their offsets."""
        return files_of(self._disk, kept)

    def recovered(self, id: str, topic: str) -> None:
        """An operator has copied them. They stay until they expire."""
        kept = self.kept[id]
        manifest = kept.manifest._replace(recovered_to=topic)
        write_manifest(self._disk, kept.path, manifest)
        self.kept[id] = kept._replace(manifest=manifest)

    # Forgetting

    def expire(self, directory: str, now_ms: int) -> None:
        """Drop what is older than the retention time."""
        for kept in list(self.kept.values()):
            is_old = kept.manifest.at_ms + self.retention_ms <= now_ms
            if is_old and _is_bounded(kept, directory):
                self._remove(kept)

    def directory_failed(self, directory: str) -> None:
        for id in [id for id, kept in self.kept.items() if kept.directory == directory]:
            del self.kept[id]

    def _remove(self, kept: Kept) -> None:
        """Renamed now, so that no half of it is ever found; its files are removed later."""
        doomed = kept.path.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX
        self._disk.rename(kept.path, doomed)
        del self.kept[kept.manifest.id]
        self.on_removed(doomed, kept.directory)


def kept_in(disk: Disk, directory: str) -> list[Kept]:
    """What is kept in a log directory, oldest first, also of a node that does not run."""
    found = []
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if not name.endswith(STRAY_SUFFIX) or not disk.exists(f"{path}/{manifests.FILE}"):
            continue
        try:
            manifest = manifests.parse(disk.read(f"{path}/{manifests.FILE}"))
        except BadManifest as error:
            logger.warning("kept records have no manifest path=%s error=%s", path, error)
            continue
        found.append(Kept(directory, path, manifest))
    return sorted(found, key=lambda kept: kept.manifest.at_ms)


def files_of(disk: Disk, kept: Kept) -> list[str]:
    """The paths of its batches, in the order of their offsets."""
    names = [] if kept.manifest.state is State.NOT_KEPT else disk.list_dir(kept.path)
    return [f"{kept.path}/{name}" for name in names if name.endswith(".log")]


def write_manifest(disk: Disk, path: str, manifest: Manifest) -> None:
    disk.replace(f"{path}/{manifests.FILE}", manifests.text_of(manifest))


class Keeping:
    """One truncation under way."""

    def __init__(self, owner: KeptRecords, disk: Disk, kept: Kept) -> None:
        self._owner = owner
        self._disk = disk
        self._kept = kept

    @property
    def keeps(self) -> bool:
        return self._kept.manifest.state is not State.NOT_KEPT

    @property
    def id(self) -> str | None:
        """Of what is kept; None if it is not."""
        return self._kept.manifest.id if self.keeps else None

    def give_up(self, why_not: str) -> None:
        """Go on without keeping. What was copied is removed at once, because the disk may be full."""
        manifest = self._kept.manifest
        logger.error(
            "records that are cut off are not kept partition=%s-%d first_offset=%d end_offset=%d error=%s",
            manifest.topic,
            manifest.partition,
            manifest.first_offset,
            manifest.end_offset,
            why_not,
        )
        self._kept = self._kept._replace(
            manifest=manifest._replace(state=State.NOT_KEPT, why_not=why_not)
        )
        if self._disk.exists(self._kept.path):
            self._disk.remove_tree(self._kept.path)

    def move(self, segment: Segment) -> None:
        """A whole segment, by its name alone. Its indexes stay, and are removed with the segment."""
        if self.keeps and segment.size:
            segment.files.forget(segment)
            self._disk.rename(segment.path, f"{self._kept.path}/{file_name(segment.base, '.log')}")

    def move_and_begin_again(self, segment: Segment) -> None:
        """As `move`, for the segment that the log goes on in: it gets a new, empty file."""
        if self.keeps and segment.size:
            self.move(segment)
            file: File = self._disk.open(segment.path, create=True)
            segment.files.add(segment, file)

    def done(self) -> None:
        """The log is shortened."""
        if self.keeps:
            self._kept = self._kept._replace(
                manifest=self._kept.manifest._replace(state=State.KEPT)
            )
        self._owner.completed(self._kept)


def _no_room(error: OSError) -> str:
    """Why nothing is kept. Only a lack of room is a reason: after any other error the disk is not to be trusted, so the log
    directory goes offline, with the records still in the log."""
    if error.errno not in NO_ROOM:
        raise error
    return str(error)


def _base_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".log"))


def _is_bounded(kept: Kept, directory: str) -> bool:
    """Stray logs are for an operator to remove: metadata that has forgotten a partition may be what is wrong."""
    return kept.directory == directory and kept.manifest.kind is not LossKind.STRAY_LOG


def _holds(log: Log, manifest: Manifest) -> bool:
    """Whether the log still has these records, from the first to its own end. One leader wrote the records of an epoch, so
    it is enough to compare the epochs at both."""
    first, last = manifest.first_offset, min(manifest.end_offset, log.log_end) - 1
    return (
        str(log.topic_id) == manifest.topic_id
        and log.log_start <= first <= last
        and all(
            any(
                epoch == log.epochs.epoch_for_offset(offset)
                for epoch, begin, end in manifest.epochs
                if begin <= offset < end
            )
            for offset in (first, last)
        )
    )


def _epochs(log: Log, first: int, end: int) -> tuple[EpochRange, ...]:
    entries = log.epochs.entries
    ends = [start for _, start in entries[1:]] + [end]
    ranges = (EpochRange(*entry, until) for entry, until in zip(entries, ends, strict=False))
    return _within(ranges, first, end)


def _within(ranges: Iterable[EpochRange], first: int, end: int) -> tuple[EpochRange, ...]:
    return tuple(
        EpochRange(each.epoch, max(each.first, first), min(each.end, end))
        for each in ranges
        if each.end > first and each.first < end
    )
