"""Losses: what brokers name and keep, against everything that any leader ever committed.

The ledgers of the other checkers end where an unclean election cuts them. Here every batch that lay below the high watermark
of a leader stays on record, with its bytes, and also whether some later leader began without it. At the end, when all
nodes are back:

- every committed batch that is not in the log is named as lost for certain, and some disk keeps it byte for byte;
- no record is named that was not committed, or that every leader has had;
- where something may be lost, it is named as possible at least.

That holds where processes die and lines are cut. A disk that loses what was written cannot name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.log.kept_records import files_of
from ottla.log.log import Log
from ottla.losses.manifest import LossKind, Manifest
from ottla.losses.merge import merge
from ottla.records.batch import batches
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.disk import SimDisk
from ottla.sim.oracle.ledger import LogCopy, SeenBatch, Violation, content
from ottla.wire.types import TopicPartition

Place = tuple[int, int]
"""(leader epoch, base offset) of a batch, or (leader epoch, offset) of a record."""


class Committed(NamedTuple):
    end: int
    data: bytes


class LossChecker:
    """Of one run. It is told of every leader whose state changed."""

    def __init__(self) -> None:
        self.records_lost = 0
        """Found to be lost, named and kept in the end."""
        self._committed: dict[tuple[TopicPartition, UUID], dict[Place, Committed]] = {}
        self._lost: dict[tuple[TopicPartition, UUID], set[Place]] = {}
        """Batches that a leader did not have when it began, although they were committed."""

    def leads(self, log: Log, disk: SimDisk, copy: LogCopy, *, begins: bool) -> None:
        """A leader has these batches, and has committed those below its high watermark."""
        key = log.key, log.topic_id
        known = self._committed.setdefault(key, {})
        if begins:
            has = {_place(batch) for batch in copy.batches}
            self._lost.setdefault(key, set()).update(known.keys() - has)
        for batch in reversed(copy.batches):
            if batch.end > log.high_watermark:
                continue
            if _place(batch) in known:
                break
            known[_place(batch)] = Committed(batch.end, content(disk, log, batch))

    def check_end(self, cluster: SimCluster, copies: dict[TopicPartition, LogCopy]) -> None:
        """`copies` are the logs in the end, the same on every replica."""
        for (key, topic_id), committed in self._committed.items():
            if key in copies:
                self._check(cluster, key, topic_id, committed, copies[key])

    def _check(
        self,
        cluster: SimCluster,
        key: TopicPartition,
        topic_id: UUID,
        committed: dict[Place, Committed],
        copy: LogCopy,
    ) -> None:
        in_log = {_place(batch) for batch in copy.batches}
        missing = {place: committed[place] for place in committed.keys() - in_log}
        once_lost = self._lost.get((key, topic_id), set()) | missing.keys()
        manifests = list(_manifests(cluster, key, topic_id))
        losses = merge(manifests)
        certain, possible = set[Place](), set[Place]()
        for loss in losses:
            for piece in loss.pieces:
                certain |= {(piece.epoch, at) for at in range(piece.first, piece.certain)}
                possible |= {(piece.epoch, at) for at in range(piece.first, piece.possible)}
        lost = set(_records(missing))
        may_be_named = set(_records({place: committed[place] for place in once_lost}))
        told = f"{len(manifests)} manifests: {manifests}"
        if certain - may_be_named:
            raise _wrong(key, f"{_short(certain - may_be_named)} named, but not lost; {told}")
        if lost - possible:
            raise _wrong(key, f"{_short(lost - possible)} lost, but not named; {told}")
        if lost - certain:
            raise _wrong(key, f"{_short(lost - certain)} lost, named as possible only; {told}")
        kept = dict(_kept_batches(cluster, key, topic_id))
        for place, (_, data) in missing.items():
            if kept.get(place) != data:
                raise _wrong(key, f"the batch at {place} is not kept byte for byte; {told}")
        self.records_lost += len(lost)


def _place(batch: SeenBatch) -> Place:
    return batch.epoch, batch.base


def _records(found: dict[Place, Committed]) -> Iterator[Place]:
    for (epoch, base), (end, _) in found.items():
        for offset in range(base, end):
            yield epoch, offset


def _short(places: Iterable[Place]) -> str:
    shown = sorted(places)
    return f"{len(shown)} records, (epoch, offset) {shown[0]} to {shown[-1]},"


def _wrong(key: TopicPartition, what: str) -> Violation:
    return Violation("losses", f"{key.topic}-{key.partition}, at the end", what, [])


def _manifests(cluster: SimCluster, key: TopicPartition, topic_id: UUID) -> Iterator[Manifest]:
    for node in cluster.nodes.values():
        assert node.node is not None and node.node.logs is not None
        assert node.node.logs.kept is not None
        for kept in node.node.logs.kept.kept.values():
            named = kept.manifest
            if (
                TopicPartition(named.topic, named.partition) == key
                and named.topic_id == str(topic_id)
                and named.kind is LossKind.TRUNCATION
            ):
                yield named


def _kept_batches(
    cluster: SimCluster, key: TopicPartition, topic_id: UUID
) -> Iterator[tuple[Place, bytes]]:
    for node in cluster.nodes.values():
        assert node.node is not None and node.node.logs is not None
        assert node.node.logs.kept is not None
        disk = node.host.disk
        for kept in node.node.logs.kept.kept.values():
            if kept.manifest.topic_id != str(topic_id) or kept.manifest.partition != key.partition:
                continue
            for path in files_of(disk, kept):
                data = bytes(disk.peek(path))
                for batch in batches(data):
                    yield (
                        (batch.leader_epoch, batch.base_offset),
                        data[batch.position : batch.end],
                    )
