"""Partitions: ISR changes that leaders propose, elections that operators request, leader balance."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any
from uuid import UUID

from ottla.controller.draft import Draft, IsrProposal
from ottla.controller.elections import Election
from ottla.events.controller import IsrProposalRefused
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionChangeRecord,
)
from ottla.wire.errors import ErrorCode, KafkaError

ELECTIONS_PER_BALANCE_MAX = 1_000

NO_EPOCH = -1
"""A proposed ISR member without a broker epoch (AlterPartition 2): its epoch is not checked."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def alter_partitions(
    draft: Draft, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
) -> dict[str, Any]:
    draft.broker(broker_id, broker_epoch)
    answers: dict[UUID, list[dict[str, Any]]] = {}
    changes: dict[tuple[UUID, int], PartitionChangeRecord | None] = {}
    for proposal in proposals:
        key = proposal.topic_id, proposal.index
        topic = draft.image.topics_by_id.get(proposal.topic_id)
        error = _proposal_error(draft, broker_id, topic, proposal)
        if key in changes:
            error = ErrorCode.INVALID_UPDATE_VERSION  # the first proposal has changed the partition
        answer: dict[str, Any] = {"partition_index": proposal.index, "error_code": error}
        if topic is not None and not error:
            isr = [member for member, _ in proposal.isr]
            record = draft.change(topic, proposal.index, isr=isr, recovery=proposal.recovery)
            changes[key] = record
            draft.proposals[key] = proposal
            answer |= _state_after(topic.partitions[proposal.index], record)
        if error:
            draft.events.append(_refusal(draft, broker_id, topic, proposal, error))
        answers.setdefault(proposal.topic_id, []).append(answer)
    draft.add([record for record in changes.values() if record is not None])
    topics = [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in answers.items()]
    return {"error_code": 0, "topics": topics}


def _state_after(partition: PartitionImage, record: PartitionChangeRecord | None) -> dict[str, Any]:
    after = partition if record is None else partition.changed_by(record)
    if after.leader != partition.leader:
        return {"error_code": ErrorCode.NEW_LEADER_ELECTED}
    return {
        "leader_id": after.leader,
        "leader_epoch": after.leader_epoch,
        "isr": list(after.isr),
        "leader_recovery_state": after.leader_recovery_state,
        "partition_epoch": after.partition_epoch,
    }


def _proposal_error(
    draft: Draft, broker_id: int, topic: TopicImage | None, proposal: IsrProposal
) -> ErrorCode:
    """The reason to refuse a proposal. The order of checks matters: first whether the leader's view is current,
    then whether the proposal is valid, last whether the new members may be in sync (KIP-841, KIP-903)."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= proposal.index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[proposal.index]
    if (
        proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER  # the broker has seen a newer controller than this one
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_sensible(partition, proposal):
        return ErrorCode.INVALID_REQUEST
    for member, epoch in proposal.isr:
        if (
            not _may_be_in_sync(draft, member, epoch)
            or _is_on_a_failed_disk(draft, partition, member)
            or (member not in partition.isr and _is_on_a_full_disk(draft, partition, member))
        ):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _refusal(
    draft: Draft,
    broker_id: int,
    topic: TopicImage | None,
    proposal: IsrProposal,
    error: ErrorCode,
) -> IsrProposalRefused:
    image = draft.image
    restarted = [
        member
        for member, epoch in proposal.isr
        if image.is_alive(member) and not _may_be_in_sync(draft, member, epoch)
    ]
    return IsrProposalRefused(
        None if topic is None else topic.name,
        proposal.index,
        broker_id,
        proposal.leader_epoch,
        proposal.partition_epoch,
        tuple(member for member, _ in proposal.isr),
        error,
        tuple(restarted) if error is ErrorCode.INELIGIBLE_REPLICA else (),
    )


def _is_sensible(partition: PartitionImage, proposal: IsrProposal) -> bool:
    members = [member for member, _ in proposal.isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return False
    if partition.leader not in members or proposal.recovery not in (RECOVERED, RECOVERING):
        return False
    if proposal.recovery == RECOVERING:
        return len(members) == 1 and partition.leader_recovery_state == RECOVERING
    return True


def _may_be_in_sync(draft: Draft, member: int, epoch: int) -> bool:
    """Whether the member is alive and still the incarnation that the leader saw catch up. One that restarted
    since may have lost records (S5)."""
    if not draft.image.is_alive(member):
        return False
    return epoch in (NO_EPOCH, draft.image.brokers[member].epoch)


def _is_on_a_failed_disk(draft: Draft, partition: PartitionImage, member: int) -> bool:
    """A fetch that the broker sent before its disk failed may reach the leader afterwards. If the replica came back into
    the ISR with it, nothing would be committed until the leader finds it silent."""
    directory = partition.directories[partition.replicas.index(member)]
    online = draft.image.brokers[member].directories
    if directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, DIRECTORY_LOST):
        return False
    return bool(online) and directory not in online


def _is_on_a_full_disk(draft: Draft, partition: PartitionImage, member: int) -> bool:
    """It has copied everything so far, and could not copy the next record."""
    return partition.directories[partition.replicas.index(member)] in draft.short.full


def elect_leaders(
    draft: Draft, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
) -> dict[str, Any]:
    """`partitions` None means all partitions; the answer then leaves out those that need no election."""
    everything = partitions is None
    if partitions is None:
        partitions = [(topic.name, index) for topic, index, _ in draft.partitions()]
    results: dict[str, list[dict[str, Any]]] = {}
    changes = []
    for name, index in dict.fromkeys(partitions):
        rows = results.setdefault(name, [])
        error, message = ErrorCode.NONE, None
        try:
            changes.append(_elect(draft, kind, name, index))
        except KafkaError as failure:
            error, message = failure.code, failure.message or None
        if everything and error is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        rows.append({"partition_id": index, "error_code": error, "error_message": message})
    draft.add(changes)
    draft.limit()
    return {
        "error_code": 0,
        "replica_election_results": [
            {"topic": name, "partition_result": rows} for name, rows in results.items()
        ],
    }


def _elect(draft: Draft, kind: ElectionType, name: str, index: int) -> PartitionChangeRecord:
    topic = draft.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        )
    partition = topic.partitions[index]
    if kind is ElectionType.PREFERRED:
        needed, election = partition.leader != partition.replicas[0], Election.PREFERRED
        unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        needed, election = partition.leader == NO_LEADER, Election.UNCLEAN
        unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if not needed:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The leader is as wished already")
    record = draft.change(topic, index, election=election)
    if record is None or record.leader == LEADER_UNCHANGED:
        raise KafkaError(unavailable, "No replica that could be elected is alive and in sync")
    return record


def balance_leaders(draft: Draft) -> bool:
    """Move leadership back to preferred replicas that are in sync again (P37). True if one batch could not hold
    all moves."""
    changes = []
    for topic, index, partition in draft.partitions():
        first = partition.replicas[0]
        if partition.leader in (first, NO_LEADER) or first not in partition.isr:
            continue
        record = draft.change(topic, index, election=Election.PREFERRED)
        if record is not None:
            changes.append(record)
        if len(changes) == ELECTIONS_PER_BALANCE_MAX:
            break
    draft.add(changes)
    return len(changes) == ELECTIONS_PER_BALANCE_MAX
