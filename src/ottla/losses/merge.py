"""From the manifests of all brokers to losses: one for each range of records, however many disks hold it.

Records are the same if offset and leader epoch are the same, because one leader wrote them. So manifests are compared epoch
by epoch. What any replica knew to be committed is lost for certain. What was cut off with it, and nobody knew to be committed,
is possibly lost: the replica that knew more may not have come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.losses.manifest import LossKind, Manifest, State


class Piece(NamedTuple):
    """Records of one epoch: [first, certain) is lost, up to `possible` it may be."""

    epoch: int
    first: int
    certain: int
    possible: int


@dataclass
class NamedLoss:
    kind: LossKind
    topic: str
    topic_id: str
    partition: int
    pieces: list[Piece]
    held_by: list[Manifest] = field(default_factory=list)
    """The manifests that name it, those with its first records first. Not all of them have kept it."""

    @property
    def first(self) -> int:
        return self.pieces[0].first

    @property
    def end(self) -> int:
        """Everything below it is lost for certain."""
        return max((piece.certain for piece in self.pieces if _has_some(piece)), default=self.first)

    @property
    def possible_end(self) -> int:
        return max(piece.possible for piece in self.pieces)

    @property
    def origin(self) -> Manifest:
        """The one that was written first."""
        return min(self.held_by, key=lambda manifest: (manifest.at_ms, manifest.id))

    @property
    def recovered_to(self) -> str | None:
        return next((each.recovered_to for each in self.held_by if each.recovered_to), None)

    def holds(self, epoch: int, offset: int, *, possible: bool) -> bool:
        return any(
            piece.epoch == epoch
            and piece.first <= offset < (piece.possible if possible else piece.certain)
            for piece in self.pieces
        )

    def as_json(self) -> dict[str, Any]:
        kept = [manifest for manifest in self.held_by if manifest.state is State.KEPT]
        origin = self.origin
        return {
            "kind": str(self.kind),
            "partition": f"{self.topic}-{self.partition}",
            "topic_id": self.topic_id,
            "first_offset": self.first,
            "end_offset": self.end,
            "possible_end_offset": self.possible_end,
            "epochs": [piece._asdict() for piece in self.pieces],
            "records": self.end - self.first,
            "bytes": max(manifest.bytes for manifest in self.held_by),
            "at": iso(origin.at_ms),
            "cause": origin.cause,
            "leader": origin.leader,
            "leader_epoch": origin.leader_epoch,
            "held_by": [
                {"broker": each.broker, "kept": each.id, "bytes": each.bytes} for each in kept
            ],
            "not_kept": [
                {"broker": each.broker, "why": each.why_not}
                for each in self.held_by
                if each.state is State.NOT_KEPT
            ],
            "recovered": self.recovered_to,
        }


def iso(at_ms: int) -> str:
    """2026-11-16T17:31:41.465Z"""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def merge(manifests: Iterable[Manifest]) -> list[NamedLoss]:
    """The losses, oldest first. Manifests of a cut that was interrupted count no more than what their broker makes of them
    when it starts: leave them out."""
    groups: dict[tuple[LossKind, str, str, int], list[Manifest]] = {}
    for manifest in manifests:
        if manifest.state is not State.CUTTING:
            key = (manifest.kind, manifest.topic, manifest.topic_id, manifest.partition)
            groups.setdefault(key, []).append(manifest)
    losses = [
        NamedLoss(*key, pieces, [each for each in group if _names(each, pieces)])
        for key, group in groups.items()
        for pieces in _chains(group)
    ]
    for loss in losses:
        loss.held_by.sort(key=lambda each: (each.first_offset, each.at_ms, each.id))
    return sorted(
        losses, key=lambda loss: (loss.origin.at_ms, loss.topic, loss.partition, loss.first)
    )


def _pieces(group: Sequence[Manifest]) -> list[Piece]:
    """Of each epoch the union. Manifests that name the same epoch name one stretch of it, unless there is a gap."""
    found: dict[int, list[Piece]] = {}
    for manifest in group:
        for epoch, first, end in manifest.epochs:
            certain = min(max(manifest.committed_end, first), end)
            found.setdefault(epoch, []).append(Piece(epoch, first, certain, end))
    pieces: list[Piece] = []
    for same in found.values():
        same.sort(key=lambda piece: piece.first)
        joined = same[0]
        for piece in same[1:]:
            if piece.first > joined.possible:
                pieces.append(joined)
                joined = piece
            else:
                joined = joined._replace(
                    # What is certain of a later part makes all before it certain.
                    certain=max(joined.certain, piece.certain if _has_some(piece) else 0),
                    possible=max(joined.possible, piece.possible),
                )
        pieces.append(joined)
    return sorted(pieces)


def _has_some(piece: Piece) -> bool:
    return piece.certain > piece.first


def _chains(group: Sequence[Manifest]) -> Iterator[list[Piece]]:
    """Pieces that were cut off together, one epoch after another."""
    chains: list[list[Piece]] = []
    for piece in _pieces(group):
        for chain in chains:
            last = chain[-1]
            if last.possible == piece.first and _cut_together(group, last, piece):
                chain.append(piece)
                break
        else:
            chains.append([piece])
    yield from map(_made_certain, chains)


def _made_certain(chain: list[Piece]) -> list[Piece]:
    """A record that was committed makes all before it in its log certain."""
    result: list[Piece] = []
    later = False
    for piece in reversed(chain):
        result.append(piece._replace(certain=piece.possible) if later else piece)
        later = later or _has_some(piece)
    return result[::-1]


def _cut_together(group: Sequence[Manifest], one: Piece, other: Piece) -> bool:
    """By one truncation, or by two of one broker in the same epoch of its leader (a log may be cut in rounds)."""
    first = {(each.broker, each.leader_epoch) for each in group if _names(each, [one])}
    second = {(each.broker, each.leader_epoch) for each in group if _names(each, [other])}
    return bool(first & second)


def _names(manifest: Manifest, pieces: Iterable[Piece]) -> bool:
    return any(
        epoch == piece.epoch and first < piece.possible and end > piece.first
        for piece in pieces
        for epoch, first, end in manifest.epochs
    )
