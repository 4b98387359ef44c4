"""The quorum's messages as Kafka requests and responses.

This module makes the checks that do not concern raft: the cluster id (error 104 if it differs), and that the
request names the metadata partition (error 42 if not). Both are errors of the whole response, raised as
KafkaError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import ottla
from ottla.metadata.features import KRAFT_VERSION
from ottla.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LogPosition,
    QuorumAnswer,
    QuorumRequest,
    RemoveVoter,
    SnapshotId,
    UpdateVoter,
    VersionsAnswer,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.runtime.seams import Chunk
from ottla.wire import fetch as fetch_codec
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC_ID as TOPIC_ID
from ottla.wire.layout import NodeEndpoint
from ottla.wire.types import ZERO_UUID

FETCH_BY_ID_FROM = 13
Fields = Mapping[str, Any]

API_OF: Mapping[type[QuorumRequest], ApiKey] = {
    Vote: ApiKey.VOTE,
    BeginQuorumEpoch: ApiKey.BEGIN_QUORUM_EPOCH,
    EndQuorumEpoch: ApiKey.END_QUORUM_EPOCH,
    Fetch: ApiKey.FETCH,
    FetchSnapshot: ApiKey.FETCH_SNAPSHOT,
    AddVoter: ApiKey.ADD_RAFT_VOTER,
    RemoveVoter: ApiKey.REMOVE_RAFT_VOTER,
    UpdateVoter: ApiKey.UPDATE_RAFT_VOTER,
    AskVersions: ApiKey.API_VERSIONS,
}


def _node(leader: int) -> int | None:
    return None if leader < 0 else leader


def _minus_one(leader: int | None) -> int:
    return -1 if leader is None else leader


def _check_cluster(ours: str, theirs: str | None) -> None:
    if theirs not in (None, ours):
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"a request from cluster {theirs}, this is {ours}"
        )


def _partition(topics: Sequence[Any], name_of: Callable[[Any], str], index: str) -> Any:
    """The metadata partition, the only one that a quorum message may name."""
    if (
        len(topics) == 1
        and name_of(topics[0]) == CLUSTER_METADATA_TOPIC
        and len(topics[0].partitions) == 1
    ):
        partition = topics[0].partitions[0]
        if getattr(partition, index) == 0:
            return partition
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"only {CLUSTER_METADATA_TOPIC}-0 has a quorum")


def _by_topic_name(topic: Any) -> str:
    return str(topic.topic_name)


def _by_name(topic: Any) -> str:
    return str(topic.name)


def _about(topic_name: str, partition: Fields) -> Fields:
    return {topic_name: CLUSTER_METADATA_TOPIC, "partitions": [partition]}


def _endpoints(leader: int | None, endpoint: QuorumEndpoint | None) -> list[Fields]:
    if leader is None or endpoint is None:
        return []
    return [{"node_id": leader, "host": endpoint.host, "port": endpoint.port}]


def _endpoint_of(leader: int, endpoints: Sequence[Any]) -> QuorumEndpoint | None:
    for each in endpoints:
        if each.node_id == leader:
            return QuorumEndpoint("", str(each.host), int(each.port))
    return None


def _listener(endpoints: Sequence[Any]) -> QuorumEndpoint | None:
    if not endpoints:
        return None
    return QuorumEndpoint(str(endpoints[0].name), str(endpoints[0].host), int(endpoints[0].port))


def _listeners(endpoint: QuorumEndpoint | None) -> list[Fields]:
    return [] if endpoint is None else [endpoint._asdict()]


# Received requests


def read_vote(message: Any, cluster_id: str) -> Vote:
    _check_cluster(cluster_id, message.cluster_id)
    partition = _partition(message.topics, _by_topic_name, "partition_index")
    voter_id = int(messages.field(message, "voter_id", -1))
    voter = ReplicaKey(voter_id, messages.field(partition, "voter_directory_id", None))
    return Vote(
        epoch=int(partition.replica_epoch),
        candidate=ReplicaKey(
            int(partition.replica_id), messages.field(partition, "replica_directory_id", None)
        ),
        voter=None if voter_id < 0 else voter,
        last_position=LogPosition(int(partition.last_offset_epoch), int(partition.last_offset)),
        pre_vote=bool(messages.field(partition, "pre_vote", False)),
    )


def read_begin_quorum_epoch(message: Any, cluster_id: str) -> BeginQuorumEpoch:
    _check_cluster(cluster_id, message.cluster_id)
    partition = _partition(message.topics, _by_topic_name, "partition_index")
    voter_id = int(messages.field(message, "voter_id", -1))
    voter = ReplicaKey(voter_id, messages.field(partition, "voter_directory_id", None))
    return BeginQuorumEpoch(
        epoch=int(partition.leader_epoch),
        leader=int(partition.leader_id),
        voter=None if voter_id < 0 else voter,
        endpoint=_listener(messages.field(message, "leader_endpoints", ())),
    )


def read_end_quorum_epoch(message: Any, cluster_id: str) -> EndQuorumEpoch:
    _check_cluster(cluster_id, message.cluster_id)
    partition = _partition(message.topics, _by_topic_name, "partition_index")
    candidates = messages.field(partition, "preferred_candidates", ())
    preferred = tuple(
        ReplicaKey(int(each.candidate_id), each.candidate_directory_id) for each in candidates
    )
    if not preferred:  # version 0
        ids = messages.field(partition, "preferred_successors", ())
        preferred = tuple(ReplicaKey(int(each), None) for each in ids)
    return EndQuorumEpoch(
        epoch=int(partition.leader_epoch),
        leader=int(partition.leader_id),
        preferred=preferred,
        endpoint=_listener(messages.field(message, "leader_endpoints", ())),
    )


def read_fetch_snapshot(message: Any, cluster_id: str) -> FetchSnapshot:
    _check_cluster(cluster_id, message.cluster_id)
    partition = _partition(message.topics, _by_name, "partition")
    return FetchSnapshot(
        replica=ReplicaKey(
            int(message.replica_id), messages.field(partition, "replica_directory_id", None)
        ),
        epoch=int(partition.current_leader_epoch),
        snapshot_id=SnapshotId(
            int(partition.snapshot_id.end_offset), int(partition.snapshot_id.epoch)
        ),
        position=int(partition.position),
        bytes_max=int(message.max_bytes),
    )


def read_fetch(version: int, frame: memoryview, offset: int, cluster_id: str) -> Fetch:
    request = fetch_codec.read_request(version, frame, offset)
    _check_cluster(cluster_id, request.cluster_id)
    if version < FETCH_BY_ID_FROM or len(request.partitions) != 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"only {CLUSTER_METADATA_TOPIC}-0 is fetched here, by its id"
        )
    partition = request.partitions[0]
    if partition.topic_id != TOPIC_ID or partition.partition != 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"only {CLUSTER_METADATA_TOPIC}-0 is fetched here"
        )
    return Fetch(
        replica=ReplicaKey(request.replica_id, _known(partition.replica_directory_id)),
        epoch=partition.current_leader_epoch,
        offset=partition.fetch_offset,
        last_epoch=partition.last_fetched_epoch,
        high_watermark=partition.high_watermark,
        wait_ms_max=request.max_wait_ms,
        bytes_max=request.max_bytes,
    )


def read_add_voter(message: Any, cluster_id: str) -> AddVoter:
    _check_cluster(cluster_id, message.cluster_id)
    return AddVoter(
        voter=Voter(
            int(message.voter_id),
            _known(message.voter_directory_id),
            _all_listeners(message.listeners),
        ),
        timeout_s=message.timeout.total_seconds(),
        ack_when_committed=bool(messages.field(message, "ack_when_committed", True)),
    )


def read_remove_voter(message: Any, cluster_id: str) -> RemoveVoter:
    _check_cluster(cluster_id, message.cluster_id)
    return RemoveVoter(ReplicaKey(int(message.voter_id), _known(message.voter_directory_id)))


def read_update_voter(message: Any, cluster_id: str) -> UpdateVoter:
    _check_cluster(cluster_id, message.cluster_id)
    supported = message.k_raft_version_feature
    return UpdateVoter(
        epoch=int(message.current_leader_epoch),
        voter=Voter(
            int(message.voter_id),
            _known(message.voter_directory_id),
            _all_listeners(message.listeners),
            (int(supported.min_supported_version), int(supported.max_supported_version)),
        ),
    )


def _all_listeners(listeners: Sequence[Any]) -> tuple[QuorumEndpoint, ...]:
    return tuple(QuorumEndpoint(str(at.name), str(at.host), int(at.port)) for at in listeners)


def _known(directory: UUID | None) -> UUID | None:
    return None if directory == ZERO_UUID else directory


# Sent answers


def vote_fields(answer: VoteAnswer) -> Fields:
    partition = {
        "partition_index": 0,
        "error_code": answer.error,
        "leader_id": _minus_one(answer.leader),
        "leader_epoch": answer.epoch,
        "vote_granted": answer.granted,
    }
    return {
        "topics": [_about("topic_name", partition)],
        "node_endpoints": _endpoints(answer.leader, answer.endpoint),
    }


def epoch_fields(answer: EpochAnswer) -> Fields:
    partition = {
        "partition_index": 0,
        "error_code": answer.error,
        "leader_id": _minus_one(answer.leader),
        "leader_epoch": answer.epoch,
    }
    return {
        "topics": [_about("topic_name", partition)],
        "node_endpoints": _endpoints(answer.leader, answer.endpoint),
    }


def voter_change_fields(answer: VoterChangeAnswer) -> Fields:
    return {"error_code": answer.error, "error_message": answer.message}


def update_voter_fields(answer: EpochAnswer) -> Fields:
    where = answer.endpoint or QuorumEndpoint("", "", 0)
    leader = {
        "leader_id": _minus_one(answer.leader),
        "leader_epoch": answer.epoch,
        "host": where.host,
        "port": where.port,
    }
    return {"error_code": answer.error, "current_leader": leader}


def fetch_snapshot_fields(answer: FetchSnapshotAnswer) -> Fields:
    id = answer.snapshot_id or SnapshotId(-1, -1)
    partition = {
        "index": 0,
        "error_code": answer.error,
        "snapshot_id": id._asdict(),
        "current_leader": {
            "leader_id": _minus_one(answer.leader),
            "leader_epoch": answer.epoch,
        },
        "size": answer.size,
        "position": answer.position,
        "unaligned_records": bytes(answer.data),
    }
    return {
        "topics": [_about("name", partition)],
        "node_endpoints": _endpoints(answer.leader, answer.endpoint),
    }


def fetch_chunks(version: int, answer: FetchAnswer) -> list[Chunk]:
    diverging = answer.diverging
    partition = FetchedPartition(
        None,
        TOPIC_ID,
        0,
        int(answer.error),
        answer.high_watermark,
        log_start_offset=answer.log_start,
        diverging=None if diverging is None else (diverging.epoch, diverging.offset),
        current_leader=(_minus_one(answer.leader), answer.epoch),
        snapshot_id=answer.snapshot_id,
        records=answer.records,
    )
    endpoints = []
    if answer.leader is not None and answer.endpoint is not None:
        where = answer.endpoint
        endpoints = [NodeEndpoint(answer.leader, where.host, where.port, None)]
    return fetch_codec.write_response(version, 0, 0, [partition], endpoints)


def fetch_error_chunks(version: int, error: ErrorCode) -> list[Chunk]:
    return fetch_codec.write_response(version, int(error), 0, [])


# Sent requests


def request_body(request: QuorumRequest, version: int, cluster_id: str) -> bytes:
    if isinstance(request, Fetch):
        return _fetch_body(request, version, cluster_id)
    return messages.write_request(
        API_OF[type(request)], version, _request_fields(request, cluster_id)
    )


def _request_fields(request: QuorumRequest, cluster_id: str) -> Fields:
    match request:
        case Vote():
            voter = request.voter or ReplicaKey(-1, None)
            partition = {
                "partition_index": 0,
                "replica_epoch": request.epoch,
                "replica_id": request.candidate.id,
                "replica_directory_id": request.candidate.directory or ZERO_UUID,
                "voter_directory_id": voter.directory or ZERO_UUID,
                "last_offset_epoch": request.last_position.epoch,
                "last_offset": request.last_position.offset,
                "pre_vote": request.pre_vote,
            }
            topics = [_about("topic_name", partition)]
            return {"cluster_id": cluster_id, "voter_id": voter.id, "topics": topics}
        case BeginQuorumEpoch():
            voter = request.voter or ReplicaKey(-1, None)
            partition = {
                "partition_index": 0,
                "voter_directory_id": voter.directory or ZERO_UUID,
                "leader_id": request.leader,
                "leader_epoch": request.epoch,
            }
            return {
                "cluster_id": cluster_id,
                "voter_id": voter.id,
                "topics": [_about("topic_name", partition)],
                "leader_endpoints": _listeners(request.endpoint),
            }
        case EndQuorumEpoch():
            partition = {
                "partition_index": 0,
                "leader_id": request.leader,
                "leader_epoch": request.epoch,
                "preferred_successors": [key.id for key in request.preferred],
                "preferred_candidates": [
                    {
                        "candidate_id": key.id,
                        "candidate_directory_id": key.directory or ZERO_UUID,
                    }
                    for key in request.preferred
                ],
            }
            return {
                "cluster_id": cluster_id,
                "topics": [_about("topic_name", partition)],
                "leader_endpoints": _listeners(request.endpoint),
            }
        case FetchSnapshot():
            partition = {
                "partition": 0,
                "current_leader_epoch": request.epoch,
                "snapshot_id": request.snapshot_id._asdict(),
                "position": request.position,
                "replica_directory_id": request.replica.directory or ZERO_UUID,
            }
            return {
                "cluster_id": cluster_id,
                "replica_id": request.replica.id,
                "max_bytes": request.bytes_max,
                "topics": [_about("name", partition)],
            }
        case AddVoter():
            return {
                "cluster_id": cluster_id,
                "timeout": round(request.timeout_s * 1000),
                **_voter_fields(request.voter),
                "ack_when_committed": request.ack_when_committed,
            }
        case RemoveVoter():
            return {
                "cluster_id": cluster_id,
                "voter_id": request.key.id,
                "voter_directory_id": request.key.directory or ZERO_UUID,
            }
        case UpdateVoter():
            lowest, highest = request.voter.kraft_versions
            return {
                "cluster_id": cluster_id,
                "current_leader_epoch": request.epoch,
                **_voter_fields(request.voter),
                "k_raft_version_feature": {
                    "min_supported_version": lowest,
                    "max_supported_version": highest,
                },
            }
        case AskVersions():
            return {
                "client_software_name": "ottla",
                "client_software_version": ottla.__version__,
            }
    raise AssertionError(f"{type(request).__name__} is written elsewhere")


def _voter_fields(voter: Voter) -> dict[str, Any]:
    return {
        "voter_id": voter.id,
        "voter_directory_id": voter.directory or ZERO_UUID,
        "listeners": [each._asdict() for each in voter.endpoints],
    }


def _fetch_body(request: Fetch, version: int, cluster_id: str) -> bytes:
    partition = FetchPartition(
        CLUSTER_METADATA_TOPIC,
        TOPIC_ID,
        0,
        request.epoch,
        request.offset,
        request.last_epoch,
        -1,
        0,
        request.replica.directory,
        request.high_watermark,
    )
    return fetch_codec.write_request(
        version,
        FetchRequest(
            replica_id=request.replica.id,
            max_wait_ms=request.wait_ms_max,
            max_bytes=request.bytes_max,
            cluster_id=cluster_id,
            partitions=[partition],
        ),
    )


# Received answers


class RefusedAnswer(NamedTuple):
    """The whole request was refused: the response holds no answer for raft."""

    error: int


def read_answer(
    request: QuorumRequest, version: int, frame: memoryview, offset: int
) -> QuorumAnswer | RefusedAnswer:
    """Records and snapshot data in the answer are views into `frame`."""
    if isinstance(request, Fetch):
        return _read_fetch_answer(version, frame, offset)
    message = messages.read_response(API_OF[type(request)], version, frame, offset)
    if isinstance(request, AddVoter | RemoveVoter):
        return VoterChangeAnswer(_error_code(message.error_code), message.error_message)
    if isinstance(request, UpdateVoter):
        return _read_update_answer(message)
    if message.error_code != ErrorCode.NONE:
        return RefusedAnswer(int(message.error_code))
    if isinstance(request, AskVersions):
        return _read_versions(message)
    try:
        if isinstance(request, FetchSnapshot):
            return _read_snapshot_answer(message)
        partition = _partition(message.topics, _by_topic_name, "partition_index")
    except KafkaError as error:
        raise InvalidFrame(f"the response names another partition: {error}") from error
    code = _error_code(partition.error_code)
    epoch, leader = int(partition.leader_epoch), int(partition.leader_id)
    endpoint = _endpoint_of(leader, messages.field(message, "node_endpoints", ()))
    if isinstance(request, Vote):
        return VoteAnswer(code, epoch, _node(leader), bool(partition.vote_granted), endpoint)
    return EpochAnswer(code, epoch, _node(leader), endpoint)


def _read_update_answer(message: Any) -> EpochAnswer | RefusedAnswer:
    leader, epoch = int(message.current_leader.leader_id), int(message.current_leader.leader_epoch)
    if epoch < 0:
        return RefusedAnswer(int(message.error_code))
    host, port = str(message.current_leader.host), int(message.current_leader.port)
    where = QuorumEndpoint("", host, port) if host else None
    return EpochAnswer(_error_code(message.error_code), epoch, _node(leader), where)


def _read_versions(message: Any) -> VersionsAnswer:
    for feature in messages.field(message, "supported_features", ()):
        if feature.name == KRAFT_VERSION:
            return VersionsAnswer((int(feature.min_version), int(feature.max_version)))
    return VersionsAnswer(None)


def _error_code(code: int) -> ErrorCode:
    """Unknown codes of a newer Kafka become UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(int(code))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _read_snapshot_answer(message: Any) -> FetchSnapshotAnswer:
    partition = _partition(message.topics, _by_name, "index")
    leader = int(partition.current_leader.leader_id)
    return FetchSnapshotAnswer(
        _error_code(partition.error_code),
        int(partition.current_leader.leader_epoch),
        _node(leader),
        SnapshotId(int(partition.snapshot_id.end_offset), int(partition.snapshot_id.epoch)),
        int(partition.size),
        int(partition.position),
        bytes(partition.unaligned_records or b""),
        _endpoint_of(leader, messages.field(message, "node_endpoints", ())),
    )


def _read_fetch_answer(version: int, frame: memoryview, offset: int) -> FetchAnswer | RefusedAnswer:
    response = fetch_codec.read_response(version, frame, offset)
    if response.error:
        return RefusedAnswer(response.error)
    if len(response.partitions) != 1 or response.partitions[0].topic_id != TOPIC_ID:
        raise InvalidFrame("the fetch response names another partition")
    partition = response.partitions[0]
    leader, epoch = partition.current_leader or (-1, -1)
    endpoint = None
    for node in response.node_endpoints:
        if node.id == leader:
            endpoint = QuorumEndpoint("", node.host, node.port)
    records = partition.records
    assert not isinstance(records, list)
    return FetchAnswer(
        _error_code(partition.error),
        epoch,
        _node(leader),
        partition.high_watermark,
        partition.log_start_offset,
        None if partition.diverging is None else LogPosition(*partition.diverging),
        None if partition.snapshot_id is None else SnapshotId(*partition.snapshot_id),
        records if records else None,
        endpoint,
    )
