"""Replication of the metadata log: what is committed, what is cut, and a Kafka controller's answers."""

from __future__ import annotations

from typing import Any

import pytest
from raft_world import ROOT, Host, World, directory_of

from ottla.events.quorum import MetadataRefused, MetadataTruncated, SnapshotInstalled
from ottla.log.errors import CorruptLog
from ottla.metadata.records import NoOpRecord
from ottla.raft.messages import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    LogPosition,
    Park,
    SnapshotId,
)
from ottla.raft.roles import RaftRole
from ottla.raft.voters import ReplicaKey
from ottla.runtime.seams import FileRange
from ottla.wire.errors import ErrorCode, KafkaError

SILENT = 2**63 - 1


@pytest.fixture
def world() -> World:
    world = World(3)
    world.start()
    leader = world.elect()
    for number in range(5):
        world.append(leader, f"record {number}".encode())
        world.run(0.1)
    return world


def leader_of(world: World) -> Host:
    leader = world.leader()
    assert leader is not None
    return leader


def fetch(leader: Host, **changes: Any) -> Fetch:
    raft = leader.running
    request = Fetch(
        replica=ReplicaKey(9, directory_of(9)),
        epoch=raft.epoch,
        offset=raft.journal.log_end,
        last_epoch=raft.epoch,
        high_watermark=SILENT,
        wait_ms_max=500,
        bytes_max=1 << 20,
    )
    return request._replace(**changes)


def ask(leader: Host, **changes: int) -> FetchAnswer | Park:
    return leader.running.handle_fetch(fetch(leader, **changes), leader.world.now)


def answer(leader: Host, **changes: int) -> FetchAnswer:
    result = ask(leader, **changes)
    assert isinstance(result, FetchAnswer)
    return result


def test_the_answers_of_a_leader_are_those_of_a_kafka_controller(world: World) -> None:
    leader = leader_of(world)
    epoch = leader.running.epoch
    assert epoch == 1
    assert answer(leader, epoch=0, last_epoch=0).error is ErrorCode.FENCED_LEADER_EPOCH
    assert answer(leader, epoch=2).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert answer(leader, epoch=-1).error is ErrorCode.INVALID_REQUEST
    assert answer(leader, last_epoch=2).error is ErrorCode.INVALID_REQUEST
    assert answer(leader, offset=-1).error is ErrorCode.INVALID_REQUEST
    told = answer(leader, epoch=0, last_epoch=0)
    assert (told.leader, told.epoch) == (leader.node, epoch)
    assert told.endpoint is not None and told.endpoint.host == f"host{leader.node}"


def test_a_follower_that_is_asked_answers_6_and_says_who_leads(world: World) -> None:
    leader = leader_of(world)
    follower = next(h for h in world.hosts.values() if h is not leader)
    told = answer(follower, epoch=1, last_epoch=1)
    assert (told.error, told.leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.node)


def test_an_offset_beyond_the_end_or_an_older_epoch_diverges(world: World) -> None:
    leader = leader_of(world)
    end = leader.running.journal.log_end
    beyond = answer(leader, offset=end + 5)
    assert (beyond.error, beyond.diverging, beyond.records) == (
        ErrorCode.NONE,
        LogPosition(1, end),
        None,
    )
    older = answer(leader, offset=4, last_epoch=0)
    assert older.diverging is not None and older.diverging.offset == 0


def test_at_least_one_whole_batch_is_returned_however_little_is_asked_for(world: World) -> None:
    found = answer(leader_of(world), offset=0, last_epoch=0, bytes_max=1).records
    assert isinstance(found, FileRange) and found.size > 1


def test_a_fetch_waits_unless_records_or_a_higher_watermark_are_there(world: World) -> None:
    leader = leader_of(world)
    end = leader.running.journal.log_end
    assert leader.running.high_watermark == end
    parked = ask(leader)
    assert isinstance(parked, Park) and parked.until == world.now + 0.5
    assert isinstance(ask(leader, high_watermark=end), Park)
    assert answer(leader, high_watermark=end - 1).high_watermark == end
    assert answer(leader, wait_ms_max=0).high_watermark == end
    assert answer(leader, offset=end - 1).records is not None


def test_M4_nothing_is_committed_before_a_majority_has_flushed_it(world: World) -> None:
    leader = leader_of(world)
    followers = [h for h in world.hosts.values() if h is not leader]
    for follower in followers:
        follower.crash(power_loss=False)
    before = leader.running.high_watermark
    world.append(leader, b"alone")
    world.run(1)
    assert leader.running.journal.flushed_end > before
    assert leader.running.high_watermark == before
    followers[0].start()
    assert world.run(1, lambda: leader.running.high_watermark > before)


def test_P34_what_was_committed_is_on_disk_when_everything_loses_power(world: World) -> None:
    end = leader_of(world).running.high_watermark
    for host in world.hosts.values():
        host.crash(power_loss=True)
    for host in world.hosts.values():
        host.start()
    assert world.elect().running.journal.log_end >= end
    world.run(0.1)
    assert len({h.running.high_watermark for h in world.hosts.values()}) == 1


def test_an_old_leaders_tail_that_no_majority_had_is_cut(world: World) -> None:
    old = leader_of(world)
    committed = old.running.high_watermark
    world.isolate(old.node)
    world.append(old, b"never", b"committed")
    world.run(0.1)
    assert old.running.journal.log_end == committed + 2
    assert world.run(10, lambda: world.leader() not in (None, old))
    world.append(leader_of(world), b"instead")
    world.heal()
    assert world.run(10, lambda: old.running.high_watermark > committed + 1)
    assert [
        e for _, n, e in world.events if isinstance(e, MetadataTruncated) and n == old.node
    ] == [MetadataTruncated(committed + 2, committed)]


def test_M3_no_request_can_cut_below_the_high_watermark(world: World) -> None:
    follower = next(h for h in world.hosts.values() if h is not leader_of(world))
    with pytest.raises(AssertionError, match="M3"):
        follower.running.journal.truncate_to(follower.running.high_watermark - 1)


def test_who_does_not_lead_cannot_append(world: World) -> None:
    follower = next(h for h in world.hosts.values() if h is not leader_of(world))
    with pytest.raises(KafkaError) as refused:
        follower.running.append([b"x"])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_a_batch_beyond_kafkas_eight_mebibytes_is_refused(world: World) -> None:
    leader = leader_of(world)
    end = leader.running.journal.log_end
    with pytest.raises(KafkaError) as refused:
        leader.running.append([bytes(1 << 20)] * 8)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert leader.running.journal.log_end == end


# Checkpoints


def test_M5_a_replica_behind_the_log_start_gets_a_checkpoint(world: World) -> None:
    leader = leader_of(world)
    late = next(h for h in world.hosts.values() if h is not leader)
    late.crash(power_loss=False)
    for number in range(5):
        world.append(leader, f"more {number}".encode())
        world.run(0.1)
    world.snapshot(leader, [NoOpRecord()])
    start = leader.running.journal.log_start
    assert start == leader.running.high_watermark, "the log begins where the checkpoint ends"
    late.start()
    assert world.run(2, lambda: late.running.high_watermark == leader.running.high_watermark)
    assert (SnapshotInstalled(start, 1)) in [e for _, n, e in world.events if n == late.node]
    assert late.running.journal.log_start == start
    assert late.running.journal.voters == world.voters
    end = world.append(leader, b"after") + 1
    assert world.run(2, lambda: late.running.high_watermark == end)
    late.crash(power_loss=True)
    late.start()
    assert late.running.journal.log_start == start
    assert world.run(2, lambda: late.running.high_watermark == end)


def test_a_new_replica_is_given_the_checkpoint_rather_than_the_whole_log(world: World) -> None:
    leader = leader_of(world)
    world.snapshot(leader, [NoOpRecord()])
    id = leader.running.journal.snapshots.latest
    assert answer(leader, offset=0, last_epoch=0).snapshot_id == id


def test_a_checkpoint_is_served_in_pieces_and_refused_where_it_is_not(world: World) -> None:
    leader = leader_of(world)
    raft = leader.running
    world.snapshot(leader, [NoOpRecord()])
    id = raft.journal.snapshots.latest
    assert id is not None
    request = FetchSnapshot(ReplicaKey(9, None), raft.epoch, id, 0, 50)
    first = raft.handle_fetch_snapshot(request, world.now)
    assert (first.error, len(first.data), first.position) == (ErrorCode.NONE, 50, 0)
    assert first.size == raft.journal.snapshots.size(id)

    def error(**changes: object) -> ErrorCode:
        return raft.handle_fetch_snapshot(request._replace(**changes), world.now).error  # type: ignore[arg-type]

    assert error(position=first.size) is ErrorCode.POSITION_OUT_OF_RANGE
    assert error(position=-1) is ErrorCode.POSITION_OUT_OF_RANGE
    assert error(snapshot_id=SnapshotId(1, 1)) is ErrorCode.SNAPSHOT_NOT_FOUND
    assert error(snapshot_id=SnapshotId(0, 0)) is ErrorCode.SNAPSHOT_NOT_FOUND
    assert error(epoch=0) is ErrorCode.FENCED_LEADER_EPOCH


def test_an_unfinished_download_is_begun_again_after_a_crash(world: World) -> None:
    leader = leader_of(world)
    late = next(h for h in world.hosts.values() if h is not leader)
    late.crash(power_loss=False)
    world.append(leader, b"x")
    world.run(0.1)
    world.snapshot(leader, [NoOpRecord()])
    late.start()
    assert world.run(1, lambda: late.running._fetcher.puller.is_downloading)
    late.crash(power_loss=True)
    late.start()
    assert world.run(2, lambda: late.running.high_watermark == leader.running.high_watermark)


def test_M5_a_leader_never_loads_a_checkpoint(world: World) -> None:
    world.run(5)
    leader = leader_of(world)
    assert (
        leader.running.role is RaftRole.LEADER and not leader.running._fetcher.puller.is_downloading
    )
    assert not leader.running._fetcher.may_fetch()


# Damage


def test_rot_in_flushed_metadata_is_reported_and_never_cut_away(world: World) -> None:
    leader = leader_of(world)
    follower = next(h for h in world.hosts.values() if h is not leader)
    follower.running.stop()
    follower.crash(power_loss=False)
    log = f"{ROOT}/__cluster_metadata-0/00000000000000000000.log"
    follower.disk.rot(log, follower.disk.file_size(log) // 2)
    with pytest.raises(CorruptLog):
        follower.start()


def test_a_torn_tail_is_cut_and_fetched_again(world: World) -> None:
    leader = leader_of(world)
    follower = next(h for h in world.hosts.values() if h is not leader)
    follower.crash(power_loss=False)
    file = follower.disk.open(f"{ROOT}/__cluster_metadata-0/00000000000000000000.log")
    file.truncate(file.size - 5)
    follower.start()
    assert follower.running.journal.log_end < leader.running.journal.log_end
    assert world.run(1, lambda: follower.running.high_watermark == leader.running.high_watermark)


def test_a_lost_quorum_state_does_not_take_the_epoch_back_below_the_log(world: World) -> None:
    leader = leader_of(world)
    follower = next(h for h in world.hosts.values() if h is not leader)
    follower.crash(power_loss=False)
    follower.disk.remove(f"{ROOT}/__cluster_metadata-0/quorum-state")
    follower.start()
    assert follower.running.epoch == leader.running.epoch


def test_damaged_records_from_a_leader_are_refused_and_asked_for_again(world: World) -> None:
    leader = leader_of(world)
    follower = next(h for h in world.hosts.values() if h is not leader)
    raft = follower.running
    end, sent = raft.journal.log_end, raft._fetcher.under_way
    assert sent is not None
    good = leader.running.journal.read(0, 1 << 20, end).range
    assert good is not None
    for records in (bytearray(good.read()), bytearray(80)):
        raft._fetcher.under_way = sent
        damaged = FetchAnswer(
            ErrorCode.NONE, raft.epoch, leader.node, end, 0, records=memoryview(records)
        )
        raft.answered(sent, damaged, world.now)
        assert raft.journal.log_end == end
        assert any(isinstance(event, MetadataRefused) for event in raft.events)
        raft.events.clear()
