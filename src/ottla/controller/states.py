"""The state machines of brokers, partitions and replicas, as tables (P33).

A state is derived from the metadata image and never stored separately. Only the edges in the tables may occur:
`check_edges` asserts that for everything a decision changes. The diagrams in the documentation are generated from
these tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from uuid import UUID

from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERING


class BrokerControlState(Enum):
    UNREGISTERED = "unknown to the cluster"
    FENCED = "registered; leads nothing, is in no ISR"
    ACTIVE = "may lead and be in sync"
    SHUTTING_DOWN = "hands over its leaderships before it stops"


class PartitionState(Enum):
    NONEXISTENT = "not created, or deleted"
    ONLINE = "has a leader that holds every committed record"
    OFFLINE = "no replica that may lead is alive"
    RECOVERING = (
        "has a leader that may lack committed records and has not reported yet that it is ready"
    )


class ReplicaState(Enum):
    UNASSIGNED = "its broker does not hold the partition"
    IN_SYNC = "in the ISR"
    ELIGIBLE = "left a too small ISR without losing data: in the ELR"
    LAST_LEADER = "led when the partition went offline, and is neither in ISR nor ELR"
    OUT_OF_SYNC = "catching up, or its broker is fenced"


_B, _P, _R = BrokerControlState, PartitionState, ReplicaState

BROKER_TRANSITIONS: Mapping[tuple[BrokerControlState, BrokerControlState], str] = {
    (_B.UNREGISTERED, _B.FENCED): "it registers",
    (_B.FENCED, _B.ACTIVE): "it has caught up with the metadata and asks to be unfenced",
    (
        _B.ACTIVE,
        _B.FENCED,
    ): "session over, connection lost, new incarnation, or nothing to hand over",
    (_B.ACTIVE, _B.SHUTTING_DOWN): "it asks to shut down while it leads partitions",
    (
        _B.SHUTTING_DOWN,
        _B.FENCED,
    ): "all active brokers have applied the new leaders, or its session is over",
    (_B.FENCED, _B.UNREGISTERED): "an operator unregisters it",
    (_B.ACTIVE, _B.UNREGISTERED): "an operator unregisters it",
    (_B.SHUTTING_DOWN, _B.UNREGISTERED): "an operator unregisters it",
}

PARTITION_TRANSITIONS: Mapping[tuple[PartitionState, PartitionState], str] = {
    (_P.NONEXISTENT, _P.ONLINE): "its topic is created or enlarged",
    (_P.ONLINE, _P.OFFLINE): "the last member of ISR and ELR that could lead fails",
    (_P.OFFLINE, _P.ONLINE): "a member of the ELR is alive again",
    (
        _P.OFFLINE,
        _P.RECOVERING,
    ): "the last known leader is alive again, or the election was unclean",
    (_P.ONLINE, _P.RECOVERING): "unclean election in place of going offline",
    (_P.RECOVERING, _P.ONLINE): "its leader reports that it is ready",
    (_P.RECOVERING, _P.OFFLINE): "its leader fails before it is ready",
    (_P.ONLINE, _P.NONEXISTENT): "its topic is deleted",
    (_P.OFFLINE, _P.NONEXISTENT): "its topic is deleted",
    (_P.RECOVERING, _P.NONEXISTENT): "its topic is deleted",
}

REPLICA_TRANSITIONS: Mapping[tuple[ReplicaState, ReplicaState], str] = {
    (_R.UNASSIGNED, _R.IN_SYNC): "the partition is created",
    (
        _R.UNASSIGNED,
        _R.OUT_OF_SYNC,
    ): "the partition is created while the broker is fenced, or a reassignment adds it",
    (_R.IN_SYNC, _R.OUT_OF_SYNC): "it lags or its broker fails, and enough others stay in sync",
    (_R.IN_SYNC, _R.ELIGIBLE): "it leaves, and the ISR is then below the minimum",
    (_R.IN_SYNC, _R.LAST_LEADER): "it led alone and restarts after an unclean shutdown",
    (_R.ELIGIBLE, _R.IN_SYNC): "it is elected, or has caught up",
    (_R.ELIGIBLE, _R.OUT_OF_SYNC): "unclean shutdown, or the ISR is at the minimum without it",
    (_R.ELIGIBLE, _R.LAST_LEADER): "it led last and restarts after an unclean shutdown",
    (_R.LAST_LEADER, _R.IN_SYNC): "no better replica is left: it leads again, recovering",
    (_R.LAST_LEADER, _R.OUT_OF_SYNC): "another replica leads, or its disk was replaced",
    (_R.OUT_OF_SYNC, _R.IN_SYNC): "it has caught up, or was elected uncleanly",
    (_R.IN_SYNC, _R.UNASSIGNED): "a reassignment ends without it, or the topic is deleted",
    (_R.ELIGIBLE, _R.UNASSIGNED): "a reassignment ends without it, or the topic is deleted",
    (_R.LAST_LEADER, _R.UNASSIGNED): "a reassignment ends without it, or the topic is deleted",
    (_R.OUT_OF_SYNC, _R.UNASSIGNED): "a reassignment ends without it, or the topic is deleted",
}


def broker_state(broker: BrokerImage | None) -> BrokerControlState:
    if broker is None:
        return BrokerControlState.UNREGISTERED
    if broker.fenced:
        return BrokerControlState.FENCED
    return (
        BrokerControlState.SHUTTING_DOWN
        if broker.in_controlled_shutdown
        else BrokerControlState.ACTIVE
    )


def partition_state(partition: PartitionImage | None) -> PartitionState:
    if partition is None:
        return PartitionState.NONEXISTENT
    if partition.leader == NO_LEADER:
        return PartitionState.OFFLINE
    if partition.leader_recovery_state == RECOVERING:
        return PartitionState.RECOVERING
    return PartitionState.ONLINE


def replica_state(partition: PartitionImage | None, broker: int) -> ReplicaState:
    if partition is None or broker not in partition.replicas:
        return ReplicaState.UNASSIGNED
    if broker in partition.isr:
        return ReplicaState.IN_SYNC
    if broker in partition.elr:
        return ReplicaState.ELIGIBLE
    return (
        ReplicaState.LAST_LEADER if broker in partition.last_known_elr else ReplicaState.OUT_OF_SYNC
    )


def check_edges(
    before: MetadataImage,
    after: MetadataImage,
    brokers: Iterable[int],
    partitions: Iterable[tuple[UUID, int]],
) -> None:
    """Assert that each named broker and partition moved along an edge of its table, or did not move."""
    for broker in brokers:
        edge = broker_state(before.brokers.get(broker)), broker_state(after.brokers.get(broker))
        assert edge[0] is edge[1] or edge in BROKER_TRANSITIONS, f"broker {broker}: {edge}"
    for topic_id, index in partitions:
        old, new = _partition(before, topic_id, index), _partition(after, topic_id, index)
        states = partition_state(old), partition_state(new)
        assert states[0] is states[1] or states in PARTITION_TRANSITIONS, (
            f"{topic_id}-{index}: {states}"
        )
        assert old is None or new is None or old.leader_epoch <= new.leader_epoch
        assigned = [*(old.replicas if old else ()), *(new.replicas if new else ())]
        for replica in dict.fromkeys(assigned):
            move = replica_state(old, replica), replica_state(new, replica)
            assert move[0] is move[1] or move in REPLICA_TRANSITIONS, (
                f"{topic_id}-{index} on {replica}: {move}"
            )


def _partition(image: MetadataImage, topic_id: UUID, index: int) -> PartitionImage | None:
    topic = image.topics_by_id.get(topic_id)
    return topic.partitions[index] if topic and index < len(topic.partitions) else None
