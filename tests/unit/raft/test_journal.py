"""Whether two logs of metadata have the same beginning, when only checkpoints still know it."""

from __future__ import annotations

from raft_world import World

from ottla.raft.messages import SnapshotId


def test_a_checkpoint_that_is_older_than_the_log_says_nothing_about_others() -> None:
    """A replica far behind takes a leader's checkpoint and begins anew behind its own older one. By that one it
    would later call a log its own that was overruled below its start (seed 558)."""
    world = World(3)
    world.start()
    leader = world.elect()
    behind = next(host for host in world.hosts.values() if host is not leader)
    world.append(leader, b"first")
    assert world.run(2, lambda: behind.running.high_watermark == leader.running.high_watermark)
    world.snapshot(behind, [])
    old = behind.running.journal.snapshots.latest
    assert old is not None
    behind.crash(power_loss=False)
    for _ in range(2):  # two more epochs, which the replica only hears of by a checkpoint
        leader.crash(power_loss=False)
        leader.start()
        leader = world.elect()
        world.append(leader, b"more")
        raft = leader.running
        assert world.run(2, lambda raft=raft: raft.high_watermark == raft.journal.log_end)
    world.snapshot(leader, [])
    behind.start()
    newest = leader.running.journal.snapshots.latest
    assert newest is not None and newest.epoch > old.epoch + 1
    journal = behind.running.journal
    assert world.run(5, lambda: journal.log_start == newest.end_offset)
    assert journal.snapshots.ids == [newest]
    overruled = SnapshotId(newest.end_offset + 3, newest.epoch - 1)
    assert journal.agreement(overruled.end_offset, overruled.epoch) == newest
