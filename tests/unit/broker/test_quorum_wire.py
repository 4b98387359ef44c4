"""The quorum's requests and answers through Kafka's frames, in every version there is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.cluster import raft_wire
from ottla.broker.cluster.raft_channels import RaftChannels
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
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
ME, OTHER = ReplicaKey(1, UUID(int=11)), ReplicaKey(2, UUID(int=22))
NAMED = QuorumEndpoint("CONTROLLER", "host1", 9093)
TOLD = QuorumEndpoint("", "host1", 9093)
ID = SnapshotId(100, 3)


def versions(key: ApiKey, first: int = 0) -> range:
    return range(max(first, APIS[key].min_version), APIS[key].max_version + 1)


def read(key: ApiKey, version: int, body: bytes) -> object:
    return messages.read_request(key, version, memoryview(bytearray(body)), 0)


def joined(chunks: list[Chunk]) -> memoryview:
    assert all(isinstance(chunk, bytes | bytearray | memoryview) for chunk in chunks)
    return memoryview(bytearray(b"".join(chunks)))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", versions(ApiKey.VOTE))
def test_votes_travel_as_far_as_their_version_goes(version: int) -> None:
    vote = Vote(5, ME, OTHER, LogPosition(4, 99), pre_vote=version >= 2)
    body = raft_wire.request_body(vote, version, CLUSTER)
    expected = vote
    if version == 0:
        expected = vote._replace(candidate=ReplicaKey(1, None), voter=None)
    assert raft_wire.read_vote(read(ApiKey.VOTE, version, body), CLUSTER) == expected
    answer = VoteAnswer(ErrorCode.NONE, 5, 1, True, TOLD)
    frame = messages.write_response(ApiKey.VOTE, version, raft_wire.vote_fields(answer))
    found = raft_wire.read_answer(vote, version, memoryview(bytearray(frame)), 0)
    assert found == (answer if version >= 1 else answer._replace(endpoint=None))


@pytest.mark.parametrize("version", versions(ApiKey.BEGIN_QUORUM_EPOCH))
def test_the_beginning_of_an_epoch_travels(version: int) -> None:
    begin = BeginQuorumEpoch(5, 1, OTHER, NAMED)
    body = raft_wire.request_body(begin, version, CLUSTER)
    found = raft_wire.read_begin_quorum_epoch(
        read(ApiKey.BEGIN_QUORUM_EPOCH, version, body), CLUSTER
    )
    assert found == (begin if version >= 1 else begin._replace(voter=None, endpoint=None))
    answer = EpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, 6, 1, TOLD)
    frame = messages.write_response(
        ApiKey.BEGIN_QUORUM_EPOCH, version, raft_wire.epoch_fields(answer)
    )
    told = raft_wire.read_answer(begin, version, memoryview(bytearray(frame)), 0)
    assert told == (answer if version >= 1 else answer._replace(endpoint=None))


@pytest.mark.parametrize("version", versions(ApiKey.END_QUORUM_EPOCH))
def test_the_end_of_an_epoch_travels_with_the_order_of_its_successors(version: int) -> None:
    end = EndQuorumEpoch(5, 3, (OTHER, ME), NAMED)
    body = raft_wire.request_body(end, version, CLUSTER)
    found = raft_wire.read_end_quorum_epoch(read(ApiKey.END_QUORUM_EPOCH, version, body), CLUSTER)
    if version == 0:
        end = end._replace(preferred=(ReplicaKey(2, None), ReplicaKey(1, None)), endpoint=None)
    assert found == end


@pytest.mark.parametrize("version", versions(ApiKey.FETCH_SNAPSHOT))
def test_pieces_of_a_checkpoint_travel(version: int) -> None:
    request = FetchSnapshot(ME, 5, ID, 1000, 1 << 20)
    body = raft_wire.request_body(request, version, CLUSTER)
    found = raft_wire.read_fetch_snapshot(read(ApiKey.FETCH_SNAPSHOT, version, body), CLUSTER)
    assert found == (request if version >= 1 else request._replace(replica=ReplicaKey(1, None)))
    answer = FetchSnapshotAnswer(ErrorCode.NONE, 5, 1, ID, 5000, 1000, b"piece", TOLD)
    frame = messages.write_response(
        ApiKey.FETCH_SNAPSHOT, version, raft_wire.fetch_snapshot_fields(answer)
    )
    told = raft_wire.read_answer(request, version, memoryview(bytearray(frame)), 0)
    assert told == (answer if version >= 1 else answer._replace(endpoint=None))


@pytest.mark.parametrize("version", versions(ApiKey.FETCH, 13))
def test_metadata_fetches_travel(version: int) -> None:
    request = Fetch(ME, 5, 99, 4, 90, 500, 1 << 20)
    body = memoryview(bytearray(raft_wire.request_body(request, version, CLUSTER)))
    expected = request
    if version < 18:
        expected = expected._replace(high_watermark=2**63 - 1)
    if version < 17:
        expected = expected._replace(replica=ReplicaKey(1, None))
    assert raft_wire.read_fetch(version, body, 0, CLUSTER) == expected
    for answer in (
        FetchAnswer(ErrorCode.NONE, 5, 1, 99, 0, records=b"records", endpoint=TOLD),
        FetchAnswer(ErrorCode.NONE, 5, 1, 99, 0, diverging=LogPosition(4, 80), endpoint=TOLD),
        FetchAnswer(ErrorCode.NONE, 5, 1, 99, 0, snapshot_id=ID, endpoint=TOLD),
        FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 5, None),
    ):
        frame = joined(raft_wire.fetch_chunks(version, answer))
        told = raft_wire.read_answer(request, version, frame, 0)
        assert told == (answer if version >= 16 else answer._replace(endpoint=None))


def test_another_cluster_or_another_topic_is_refused_as_a_whole() -> None:
    vote = Vote(5, ME, OTHER, LogPosition(4, 99), False)
    message = read(ApiKey.VOTE, 2, raft_wire.request_body(vote, 2, "another"))
    with pytest.raises(KafkaError) as refused:
        raft_wire.read_vote(message, CLUSTER)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    frame = messages.write_response(ApiKey.VOTE, 2, {"error_code": 104})
    answer = raft_wire.read_answer(vote, 2, memoryview(bytearray(frame)), 0)
    assert answer == raft_wire.RefusedAnswer(104)


VOTER = Voter(4, UUID(int=44), (NAMED, QuorumEndpoint("OTHER", "host1", 9094)))


@pytest.mark.parametrize("version", versions(ApiKey.ADD_RAFT_VOTER))
def test_a_new_voter_travels(version: int) -> None:
    """Before version 1 the leader always answers when it is committed."""
    request = AddVoter(VOTER, 2.5, ack_when_committed=False)
    body = raft_wire.request_body(request, version, CLUSTER)
    found = raft_wire.read_add_voter(read(ApiKey.ADD_RAFT_VOTER, version, body), CLUSTER)
    assert found == request._replace(ack_when_committed=version == 0)
    answer = VoterChangeAnswer(ErrorCode.DUPLICATE_VOTER, "it is one already")
    fields = raft_wire.voter_change_fields(answer)
    frame = messages.write_response(ApiKey.ADD_RAFT_VOTER, version, fields)
    assert raft_wire.read_answer(request, version, memoryview(bytearray(frame)), 0) == answer


def test_the_removal_of_a_voter_travels() -> None:
    request = RemoveVoter(OTHER)
    body = raft_wire.request_body(request, 0, CLUSTER)
    assert raft_wire.read_remove_voter(read(ApiKey.REMOVE_RAFT_VOTER, 0, body), CLUSTER) == request
    answer = VoterChangeAnswer(ErrorCode.NONE)
    fields = raft_wire.voter_change_fields(answer)
    frame = messages.write_response(ApiKey.REMOVE_RAFT_VOTER, 0, fields)
    assert raft_wire.read_answer(request, 0, memoryview(bytearray(frame)), 0) == answer


def test_what_a_voter_says_of_itself_travels() -> None:
    request = UpdateVoter(7, VOTER)
    body = raft_wire.request_body(request, 0, CLUSTER)
    assert raft_wire.read_update_voter(read(ApiKey.UPDATE_RAFT_VOTER, 0, body), CLUSTER) == request
    for answer in (
        EpochAnswer(ErrorCode.NONE, 7, 1, TOLD),
        EpochAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 8, None, None),
    ):
        fields = raft_wire.update_voter_fields(answer)
        frame = messages.write_response(ApiKey.UPDATE_RAFT_VOTER, 0, fields)
        assert raft_wire.read_answer(request, 0, memoryview(bytearray(frame)), 0) == answer


def test_a_new_voter_is_asked_for_its_versions() -> None:
    version = APIS[ApiKey.API_VERSIONS].max_version
    body = raft_wire.request_body(AskVersions(), version, CLUSTER)
    assert read(ApiKey.API_VERSIONS, version, body).client_software_name == "ottla"  # type: ignore[attr-defined]
    for supported, expected in (
        ([{"name": "kraft.version", "min_version": 0, "max_version": 1}], (0, 1)),
        ([{"name": "metadata.version", "min_version": 7, "max_version": 30}], None),
    ):
        fields = {"error_code": ErrorCode.NONE, "api_keys": (), "supported_features": supported}
        frame = messages.write_response(ApiKey.API_VERSIONS, version, fields)
        found = raft_wire.read_answer(AskVersions(), version, memoryview(bytearray(frame)), 0)
        assert found == VersionsAnswer(expected)


def test_voters_of_another_cluster_are_refused() -> None:
    body = raft_wire.request_body(RemoveVoter(OTHER), 0, "another-cluster-000000")
    with pytest.raises(KafkaError) as refused:
        raft_wire.read_remove_voter(read(ApiKey.REMOVE_RAFT_VOTER, 0, body), CLUSTER)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    "error, hint",
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "kafka-storage format --cluster-id ID"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "super.users"),
        (ErrorCode.FENCED_LEADER_EPOCH, "none"),
    ],
)
def test_who_is_refused_by_the_quorum_is_told_what_to_do(error: ErrorCode, hint: str) -> None:
    nobody: Any = None
    channels = RaftChannels(
        nobody, "raft", "id", 1.0, on_answer=nobody, on_failure=nobody, on_disconnect=nobody
    )
    channels.refused(-2, ApiKey.FETCH, error)
    assert channels.refusal is not None and hint in channels.refusal
