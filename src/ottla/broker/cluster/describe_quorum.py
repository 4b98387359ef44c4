"""DescribeQuorum: what the leader of the quorum knows of its replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ottla.raft.raft import Raft
from ottla.raft.replication import ReplicaProgress
from ottla.raft.voters import ReplicaKey
from ottla.runtime.seams import Clock
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.types import ZERO_UUID


def as_asked(message: Any, describe: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The answer to a request: the quorum's one partition, or that there is no such partition."""
    asked = [
        (str(topic.topic_name), [each.partition_index for each in topic.partitions])
        for topic in message.topics
    ]
    if asked == [(CLUSTER_METADATA_TOPIC, [0])]:
        return describe()
    unknown = {
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
    }
    return {
        "error_code": ErrorCode.NONE,
        "topics": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": number, **unknown} for number in numbers],
            }
            for name, numbers in asked
        ],
        "nodes": (),
    }


def describe_quorum(raft: Raft, clock: Clock) -> Mapping[str, Any]:
    """The fields of a DescribeQuorum response. Only the leader knows; others answer 6 for the partition."""
    leader_state = raft.leader_state
    partition: dict[str, Any] = {
        "partition_index": 0,
        "error_code": ErrorCode.NONE if leader_state else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "leader_id": -1 if raft.leader is None else raft.leader,
        "leader_epoch": raft.epoch,
        "high_watermark": raft.high_watermark if raft.is_established else -1,
    }
    if leader_state is not None:
        voters = [_progress_fields(replica, clock) for replica in leader_state.voters.values()]
        if raft.is_voter:
            now_ms = clock.wall_ms()
            voters.append(_replica_fields(raft.key, raft.journal.log_end, now_ms, now_ms))
        partition["current_voters"] = sorted(voters, key=lambda voter: voter["replica_id"])
        observers = [_progress_fields(each, clock) for each in leader_state.observers.values()]
        partition["observers"] = sorted(observers, key=lambda each: each["replica_id"])
    nodes = [
        {"node_id": voter.id, "listeners": [each._asdict() for each in voter.endpoints]}
        for voter in raft.journal.voters.voters
    ]
    return {
        "error_code": ErrorCode.NONE,
        "topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
        "nodes": nodes,
    }


def _progress_fields(replica: ReplicaProgress, clock: Clock) -> dict[str, Any]:
    end = -1 if replica.end_offset is None else replica.end_offset
    fetched = _wall_ms(replica.last_fetch if replica.end_offset is not None else -math.inf, clock)
    return _replica_fields(replica.key, end, fetched, _wall_ms(replica.last_caught_up, clock))


def _wall_ms(when: float, clock: Clock) -> int:
    """A moment of the steady clock as a time of day, for people to read."""
    if when == -math.inf:
        return -1
    return clock.wall_ms() - int((clock.monotonic() - when) * 1000)


def _replica_fields(
    key: ReplicaKey, end: int, fetched_ms: int, caught_up_ms: int
) -> dict[str, Any]:
    return {
        "replica_id": key.id,
        "replica_directory_id": key.directory or ZERO_UUID,
        "log_end_offset": end,
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }
