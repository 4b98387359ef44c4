"""The quorum's requests and answers through Kafka's frames, in every version there is."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.cluster import raft_wire
from ottla.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LogPosition,
    SnapshotId,
    Vote,
    VoteAnswer,
)
from ottla.raft.voters import QuorumEndpoint, ReplicaKey
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
