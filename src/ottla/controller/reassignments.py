"""Reassignments: partitions move to other brokers (P33).

A reassignment has three stages, all recorded in the partition itself. The new replicas are added to the old ones.
They copy the log and join the ISR as any follower does. When the whole target is in the ISR, the old replicas
leave. The last stage is a rule of `elections`, because any change can trigger it. Until then a reassignment can be
replaced by another one, or be cancelled, which restores the replicas from before the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.controller import placement
from ottla.controller.draft import Draft
from ottla.controller.elections import Election, PartitionAssignment
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER, PartitionChangeRecord
from ottla.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class ReassignedPartition:
    """The requested replicas of a partition, the preferred one first; None cancels a reassignment in progress."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None


def alter(
    draft: Draft, requests: Sequence[ReassignedPartition], *, allow_factor_change: bool
) -> dict[str, Any]:
    """Each partition succeeds or fails independently."""
    rows: dict[str, list[dict[str, Any]]] = {}
    changes: dict[tuple[str, int], PartitionChangeRecord | None] = {}
    for request in requests:
        key = request.topic, request.index
        row: dict[str, Any] = {"partition_index": request.index, "error_code": 0}
        try:
            if key in changes:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
            changes[key] = _alter(draft, request, allow_factor_change)
        except KafkaError as error:
            row |= {"error_code": error.code, "error_message": error.message or None}
        rows.setdefault(request.topic, []).append(row)
    draft.add([record for record in changes.values() if record is not None])
    draft.limit()
    return {
        "error_code": 0,
        "allow_replication_factor_change": allow_factor_change,
        "responses": [{"name": name, "partitions": parts} for name, parts in rows.items()],
    }


def _alter(
    draft: Draft, request: ReassignedPartition, allow_factor_change: bool
) -> PartitionChangeRecord | None:
    topic = draft.image.topics.get(request.topic)
    if topic is None or not 0 <= request.index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"No such partition as {request.topic}-{request.index}",
        )
    if request.replicas is None:
        return _cancel(draft, topic, request.index)
    partition = topic.partitions[request.index]
    holding = [replica for replica in partition.replicas if replica in draft.image.brokers]
    placement.check_replicas(
        request.replicas, {*(broker.id for broker in draft.placeable()), *holding}
    )
    if not allow_factor_change:
        _check_factor(partition, len(request.replicas))
    # A clean election: the request does not ask for a leader of a leaderless partition.
    assignment = _towards(draft, partition, request.replicas)
    return draft.change(topic, request.index, election=Election.CLEAN, assignment=assignment)


def _check_factor(partition: PartitionImage, new_factor: int) -> None:
    factor = len(PartitionAssignment.of(partition).target)
    if new_factor != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {new_factor}",
        )


def _towards(
    draft: Draft, partition: PartitionImage, target: tuple[int, ...]
) -> PartitionAssignment:
    """No replica leaves yet, not even one that a reassignment in progress has added: it may be the only one in
    sync."""
    present = PartitionAssignment.of(partition)
    removing = tuple(replica for replica in present.replicas if replica not in target)
    replicas = target + removing
    places = dict(zip(present.replicas, present.directories, strict=True))
    return PartitionAssignment(
        replicas=replicas,
        directories=tuple(
            places[replica] if replica in places else draft.directory_for_new_replica(replica)
            for replica in replicas
        ),
        adding=tuple(replica for replica in replicas if replica not in present.original),
        removing=removing,
    )


def _cancel(draft: Draft, topic: TopicImage, index: int) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    present = PartitionAssignment.of(partition)
    if not present.is_reassignment:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    original = present.original
    in_sync = [replica for replica in partition.isr if replica in original]
    entitled = in_sync or any(replica in original for replica in partition.elr)
    record = draft.change(topic, index, isr=in_sync, assignment=present.settled(original))
    unclean = not entitled and not draft.unclean_election_allowed(topic.name)
    if unclean or (record is not None and partition.leader != NO_LEADER == record.leader):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert the assignment of {topic.name}-{index}: none of its original "
            "replicas is in sync, and it would require an unclean leader election.",
        )
    return record


def ongoing(draft: Draft, wanted: Sequence[tuple[str, int]] | None) -> dict[str, Any]:
    """The partitions of `wanted` (None: all) that are being reassigned."""
    topics: dict[str, list[dict[str, Any]]] = {}
    if wanted is None:
        wanted = [(topic.name, index) for topic, index, _ in draft.partitions()]
    for name, index in dict.fromkeys(wanted):
        topic = draft.image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        present = PartitionAssignment.of(topic.partitions[index])
        if present.is_reassignment:
            row = {
                "partition_index": index,
                "replicas": list(present.replicas),
                "adding_replicas": list(present.adding),
                "removing_replicas": list(present.removing),
            }
            topics.setdefault(name, []).append(row)
    return {
        "error_code": 0,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }
