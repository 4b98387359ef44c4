"""Records that an unclean election loses, where the new leader has deleted the place at which the logs ceased to agree."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from ottla.log.kept_records import KeptRecords
from ottla.records.batch import batches
from ottla.replica.follower import restart_within
from ottla.wire.errors import ErrorCode
from support.replica_world import World


def deleted_after_unclean(
    path: Path, log_start: int, *, unclean: bool = True, in_one_batch: bool = False
) -> World:
    """Offsets 0 to 9 are on both. 1 has 10 to 59 alone, 2 is elected without them, goes on to 110, and deletes."""
    world = World(path)
    for replica in world.replicas.values():
        replica.log.keeper = KeptRecords(world.disk, new_id=uuid4, now_ms=lambda: 0)
    world.produce(1, *(f"both {n}" for n in range(10)))
    world.settle()
    world.eligible[2] = None
    world.decide(isr=(1,))
    alone = [f"only on 1: {number}" for number in range(50)]
    for values in [alone] if in_one_batch else [[value] for value in alone]:
        world.produce(1, *values)
    world.eligible[2] = world.epochs[2]
    world.decide(leader=2, isr=(2,))
    if unclean:
        world[1].unclean_epoch = world.decision.leader_epoch
    for number in range(100):
        world.produce(2, f"on 2: {number}")
    world[2].log.advance_log_start(log_start)
    return world


def named(world: World, id: int) -> list[tuple[str, int, int, int, int]]:
    keeper = world[id].log.keeper
    assert keeper is not None
    return [
        (kept.kind, kept.first_offset, kept.committed_end, kept.end_offset, kept.records)
        for kept in (each.manifest for each in keeper.kept.values())
    ]


def test_records_below_the_log_start_of_an_unclean_leader_are_named_as_possible_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = deleted_after_unclean(tmp_path, 80)
    assert world.ask(1, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE
    restart_within(world[1], 80, 110)
    assert named(world, 1) == [("restart", 0, 0, 60, 60)]
    keeper = world[1].log.keeper
    assert keeper is not None
    (kept,) = keeper.kept.values()
    data = b"".join(world.disk.read(path) for path in keeper.files_of(kept))
    assert [batch.next_offset for batch in batches(data)] == list(range(10, 61))
    assert "records may be lost" in caplog.text
    world.settle()
    world.assert_identical()


def test_they_are_named_too_if_the_logs_meet_at_the_leaders_start(tmp_path: Path) -> None:
    world = deleted_after_unclean(tmp_path, 30)
    world.settle()
    world.assert_identical()
    assert [each[:4] for each in named(world, 1)] == [
        ("truncation", 30, 60, 60),
        ("restart", 0, 0, 30),
    ]


def test_what_is_deleted_after_a_clean_election_is_no_loss(tmp_path: Path) -> None:
    world = deleted_after_unclean(tmp_path, 80, unclean=False)
    restart_within(world[1], 80, 110)
    assert named(world, 1) == []


def test_a_follower_that_agreed_with_the_unclean_leader_loses_nothing_by_a_deletion(
    tmp_path: Path,
) -> None:
    world = deleted_after_unclean(tmp_path, 0)
    world.settle()
    world[1].unclean_epoch = world.decision.leader_epoch + 1
    world.decide(leader=2, isr=(2,))
    before = named(world, 1)
    world.fetch(1, 2)
    world[2].log.advance_log_start(110)
    world.settle()
    assert world[1].log.log_start == 110
    assert named(world, 1) == before


def test_a_batch_into_which_the_leaders_start_falls_is_named_whole(tmp_path: Path) -> None:
    world = deleted_after_unclean(tmp_path, 30, in_one_batch=True)
    world.fetch(1, 2)
    restart_within(world[1], 30, 110)
    world.settle()
    world.assert_identical()
    assert [each[:4] for each in named(world, 1)] == [
        ("truncation", 10, 60, 60),
        ("restart", 0, 0, 10),
    ]
