"""A group that changes its protocol while it is in use (KIP-848, group.consumer.migration.policy).

When the first member of the consumer protocol joins a classic group, the group becomes a consumer group; its classic
members go on with the classic protocol (`classic_members`). When the last member of the consumer protocol has left, the
others form a classic group again. No member loses its assignment in either step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from ottla.coordinators.groups.assignors import Assignment
from ottla.coordinators.groups.classic_group import ClassicGroup, ClassicGroupState, ClassicMember
from ottla.coordinators.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    to_record,
    topics_hash,
)
from ottla.coordinators.groups.context import Topics
from ottla.coordinators.groups.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    SupportedProtocol,
    put,
)
from ottla.coordinators.groups.subscription import (
    PROTOCOL_TYPE,
    PartitionsByTopic,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.shard import CoordinatorRecord
from ottla.wire.errors import ErrorCode, KafkaError


def by_id(partitions: PartitionsByTopic, topics: Topics) -> Assignment:
    """Without topics that no longer exist."""
    return {
        id: numbers
        for name, numbers in partitions.items()
        if numbers and (id := topics.id_of(name)) is not None
    }


def by_name(assignment: Mapping[UUID, frozenset[int]], topics: Topics) -> PartitionsByTopic:
    return {
        name: numbers
        for id, numbers in assignment.items()
        if numbers and (name := topics.name_of(id)) is not None
    }


def assignment_for(member: ConsumerMember, topics: Topics) -> bytes:
    """The assignment of a classic member of a consumer group, in the version of its own subscription."""
    assert member.classic is not None
    subscription = read_subscription(member.classic.supported_protocols[0].metadata)
    version = 0 if subscription is None else subscription.version
    return write_assignment(version, by_name(member.assigned, topics))


def upgraded(group: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """The classic group as a consumer group: the generation becomes the epoch, and each member keeps its assignment.
    KafkaError if a member's subscription or assignment cannot be read."""
    epoch = group.generation
    new = ConsumerGroup(group.id, epoch=epoch, assignment_epoch=epoch)
    names: dict[str, None] = {}
    for member in group.members.values():
        subscription = read_subscription(member.protocols[0][1])
        partitions = read_assignment(member.assignment)
        if subscription is None or partitions is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group.id} cannot become a consumer group: the subscription or assignment"
                f" of member {member.id} is not a consumer's.",
            )
        names.update(dict.fromkeys(subscription.topics))
        assigned = by_id(partitions, topics)
        new.put_member(
            ConsumerMember(
                member.id,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                topics=tuple(sorted(dict.fromkeys(subscription.topics))),
                epoch=epoch,
                previous_epoch=epoch,
                assigned=assigned,
                classic=ClassicMemberMetadata(
                    session_timeout_ms=member.session_timeout_ms,
                    supported_protocols=tuple(
                        SupportedProtocol(name=name, metadata=metadata)
                        for name, metadata in member.protocols
                    ),
                ),
            )
        )
        new.target[member.id] = assigned
    new.metadata_hash = topics_hash(topics, names)
    return new


def records_of(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """All records of a group that was made by `upgraded`."""
    records = [member.metadata_record(group.id) for member in group.members.values()]
    records.append(
        put(
            ConsumerGroupMetadataKey(group_id=group.id),
            ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash),
        )
    )
    for id, target in group.target.items():
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.id, member_id=id)
        records.append(
            put(
                key,
                ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(target)),
            )
        )
    records.append(
        put(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch),
        )
    )
    records.extend(member.assignment_record(group.id) for member in group.members.values())
    return records


def protocols_of(member: ClassicMemberMetadata) -> frozenset[str]:
    return frozenset(each.name for each in member.supported_protocols)


def can_be_classic(group: ConsumerGroup, without: Collection[str]) -> bool:
    """Whether members remain `without` these, all of them classic, with a protocol in common."""
    classic = []
    for id, member in group.members.items():
        if id in without:
            continue
        if member.classic is None:
            return False  # most groups have no classic member, so nobody else is looked at
        classic.append(protocols_of(member.classic))
    return bool(classic) and bool(frozenset.intersection(*classic))


def downgraded(
    group: ConsumerGroup, without: Collection[str], topics: Topics, now_ms: int
) -> ClassicGroup:
    """The classic members of a consumer group as a classic group; the epoch is its generation. It has no leader before
    its first rebalance is done."""
    new = ClassicGroup(
        group.id,
        state=ClassicGroupState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        state_since_ms=now_ms,
    )
    for id, member in group.members.items():
        if id in without:
            continue
        assert member.classic is not None
        protocols = tuple((each.name, each.metadata) for each in member.classic.supported_protocols)
        new.add(
            ClassicMember(
                id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                protocols,
                assignment_for(member, topics),
                heard_ms=now_ms,
            ),
            PROTOCOL_TYPE,
        )
    new.leader = None
    new.protocol = new.select_protocol()
    new.note_subscriptions()
    return new
