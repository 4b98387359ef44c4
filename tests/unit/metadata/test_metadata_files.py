"""Files of the quorum: quorum-state, checkpoints, what formatting writes."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import UUID

import pytest

from ottla.metadata import records as r
from ottla.metadata.features import DEFAULT_LEVELS, UNSERVED
from ottla.raft import control_records
from ottla.raft.election_state import (
    CorruptQuorumState,
    ElectionState,
    QuorumStateFile,
    decode_state,
    encode_state,
)
from ottla.raft.format import (
    format_directory,
    is_formatted,
    load_bootstrap_records,
    load_properties,
)
from ottla.raft.messages import SnapshotId
from ottla.raft.snapshots import (
    BOOTSTRAP,
    CorruptSnapshot,
    Download,
    SnapshotStore,
    build_snapshot,
    read_snapshot,
)
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.records.batch import batches
from ottla.runtime.files import RealDisk
from ottla.wire.types import uuid_from_text

VOTERS = VoterSet.of(
    Voter(n, UUID(int=n + 50), (QuorumEndpoint("CONTROLLER", "127.0.0.1", 9090 + n),))
    for n in (3, 1, 2)
)
NOOPS: list[r.MetadataRecord] = [r.NoOpRecord() for _ in range(5)]


def test_quorum_state_is_the_line_kafka_writes() -> None:
    line = b'{"leaderId":2,"leaderEpoch":4,"votedId":2,"votedDirectoryId":"MvDxzVmcRsaTz33bUuRU6A","data_version":1}'
    state = ElectionState(4, 2, ReplicaKey(2, uuid_from_text("MvDxzVmcRsaTz33bUuRU6A")))
    assert encode_state(state, kraft_version=1, voters=[]) == line
    assert decode_state(line, "quorum-state") == state
    old = b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
    assert encode_state(ElectionState(1, 1), kraft_version=0, voters=[1]) == old
    assert decode_state(old, "quorum-state") == ElectionState(1, 1, None)


@pytest.mark.parametrize("content", [b"", b"{}", b"{", b'{"leaderId":1,"data_version":1}', b"\xff"])
def test_a_damaged_quorum_state_is_never_taken_for_an_empty_one(content: bytes) -> None:
    with pytest.raises(CorruptQuorumState):
        decode_state(content, "quorum-state")


def test_quorum_state_survives_in_its_file(tmp_path: Path) -> None:
    file = QuorumStateFile(RealDisk(), str(tmp_path))
    assert file.read() == ElectionState(0, None, None)
    state = ElectionState(7, None, ReplicaKey(1, UUID(int=9)))
    file.write(state, kraft_version=1, voters=[])
    assert QuorumStateFile(RealDisk(), str(tmp_path)).read() == state


def test_control_records_are_the_bytes_kio_writes() -> None:
    from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
    from kio.schema.leader_change_message.v0.data import Voter as LeaderVoter
    from kio.schema.types import BrokerId
    from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, VotersRecord
    from kio.schema.voters_record.v0.data import Voter as KioVoter
    from kio.serial import entity_writer
    from kio.static.primitive import i16, i32, u16

    change = control_records.LeaderChange(
        leader_id=1,
        voters=(control_records.VoterId(voter_id=1), control_records.VoterId(voter_id=2)),
        granting_voters=(control_records.VoterId(voter_id=2),),
    )
    theirs = LeaderChangeMessage(
        version=i16(0),
        leader_id=BrokerId(1),
        voters=(LeaderVoter(voter_id=i32(1)), LeaderVoter(voter_id=i32(2))),
        granting_voters=(LeaderVoter(voter_id=i32(2)),),
    )
    out = io.BytesIO()
    entity_writer(LeaderChangeMessage)(out, theirs)
    assert control_records.encode_control(change) == out.getvalue()

    range_ = KRaftVersionFeature(min_supported_version=i16(0), max_supported_version=i16(1))
    record = VotersRecord(
        version=i16(0),
        voters=tuple(
            KioVoter(
                voter_id=BrokerId(voter.id),
                voter_directory_id=voter.directory,
                endpoints=tuple(
                    Endpoint(name=e.name, host=e.host, port=u16(e.port)) for e in voter.endpoints
                ),
                k_raft_version_feature=range_,
            )
            for voter in VOTERS.voters
        ),
    )
    out = io.BytesIO()
    entity_writer(VotersRecord)(out, record)
    assert control_records.encode_control(VOTERS.record()) == out.getvalue()
    assert VoterSet.from_record(VOTERS.record()) == VOTERS


def test_the_bootstrap_checkpoint_has_the_size_of_kafkas(tmp_path: Path) -> None:
    """Kafka's has the features on that we do not serve, too."""
    disk = RealDisk()
    directory = str(tmp_path / "node")
    kafkas = {**DEFAULT_LEVELS, **{name: levels.max for name, levels in UNSERVED.items()}}
    assert not is_formatted(disk, directory)
    format_directory(
        disk,
        directory,
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        node_id=2,
        directory_id=UUID(int=52),
        voters=VOTERS,
        features=kafkas,
    )
    assert is_formatted(disk, directory)
    assert load_properties(disk, directory) == ("MkU3OEVBNTcwNTJENDM2Qg", 2, UUID(int=52))
    assert disk.file_size(f"{directory}/bootstrap.checkpoint") == 411
    levels = {
        record.name: record.feature_level
        for record in load_bootstrap_records(disk, directory)
        if isinstance(record, r.FeatureLevelRecord)
    }
    assert levels == kafkas
    store = SnapshotStore(disk, f"{directory}/__cluster_metadata-0")
    assert store.ids == [BOOTSTRAP] and store.earliest is None
    content = store.load(BOOTSTRAP)
    assert (content.kraft_version, content.voters, content.records) == (1, VOTERS, [])


def test_offsets_in_a_checkpoint_count_from_zero_and_carry_its_epoch() -> None:
    data = build_snapshot(NOOPS, epoch=7, timestamp_ms=99, kraft_version=1, voters=VOTERS)
    layout = [(b.base_offset, b.count, b.leader_epoch, b.is_control) for b in batches(data)]
    assert layout == [(0, 3, 7, True), (3, 5, 7, False), (8, 1, 7, True)]
    content = read_snapshot(data, "test")
    assert (content.records, content.timestamp_ms, content.voters) == (NOOPS, 99, VOTERS)


def test_a_checkpoint_without_its_footer_or_with_a_flipped_bit_is_refused() -> None:
    data = build_snapshot(NOOPS, epoch=7, timestamp_ms=99)
    ends = [batch.end for batch in batches(data)]
    for cut in (0, ends[0], ends[1], ends[1] + 5, len(data) - 1):
        with pytest.raises(CorruptSnapshot):
            read_snapshot(data[:cut], "test")
    for position in range(16, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        try:
            assert read_snapshot(bytes(flipped), "test").records == NOOPS
        except CorruptSnapshot:
            continue
        # only base offset, leader epoch and the like of a batch lie outside its CRC
        assert any(batch.position <= position < batch.position + 16 for batch in batches(data))


def test_a_download_counts_only_when_it_is_whole(tmp_path: Path) -> None:
    data = build_snapshot(NOOPS, epoch=7, timestamp_ms=99)
    id = SnapshotId(10, 7)
    store = SnapshotStore(RealDisk(), str(tmp_path))
    download = Download(store, id)
    download.add(data[:30])
    with pytest.raises(CorruptSnapshot):
        download.finish()
    assert store.ids == [] and list(tmp_path.iterdir()) == []
    download = Download(store, id)
    download.add(data[:30])
    assert download.position == 30
    assert SnapshotStore(RealDisk(), str(tmp_path)).ids == []  # and the part is swept away
    download = Download(store, id)
    download.add(data)
    assert download.finish().records == NOOPS
    assert store.ids == [id] and (tmp_path / "00000000000000000010-0000000007.checkpoint").exists()


def test_a_retired_checkpoint_stays_readable_for_who_is_downloading_it(tmp_path: Path) -> None:
    store = SnapshotStore(RealDisk(), str(tmp_path))
    old, new = SnapshotId(10, 1), SnapshotId(20, 2)
    store.write(old, build_snapshot(NOOPS, epoch=1, timestamp_ms=0))
    store.write(new, build_snapshot(NOOPS, epoch=2, timestamp_ms=0))
    first = store.chunk(old, 0, 10)
    store.retire(old)
    assert store.ids == [new] and len(list(tmp_path.iterdir())) == 1
    assert len(first) == 10 and len(store.chunk(old, 10, 10)) == 10
