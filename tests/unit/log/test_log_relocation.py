"""A future log that follows the log that it copies, whatever happens to that one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logkit import SMALL, batch_of, sim_disk

from ottla.log.errors import LogDirError
from ottla.log.future_logs import is_whole
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.replica import relocation
from ottla.runtime.seams import Disk
from ottla.sim.engine.process import Died

FIRST, SECOND = "/a", "/b"


class Move:
    def __init__(self, disk: Disk) -> None:
        ids = iter(range(1, 100))
        self.logs = LogManager(disk, [FIRST, SECOND], SMALL, new_id=lambda: UUID(int=next(ids)))
        self.logs.start("cluster", 1, 0)
        self.current = self.logs.create("t", UUID(int=77), 0, SMALL, 0, directory=FIRST)
        self.future = self.logs.create_future(self.current, SECOND, 0)
        self.epoch = 0

    def append(self, count: int) -> None:
        for number in range(count):
            value = b"%d in %d" % (number, self.epoch)
            self.current.append_as_leader(batch_of(value=value), self.epoch, 0)

    def truncate(self, back: int) -> None:
        """As a follower of a new leader does; then it writes in the leader's epoch."""
        self.current.truncate_to(max(self.current.log_start, self.current.log_end - back))
        self.epoch += 1

    def expire(self, offsets: int) -> None:
        self.current.advance_log_start(min(self.current.log_start + offsets, self.current.log_end))

    def copy(self, chunks: int) -> None:
        for _ in range(chunks):
            chunk = relocation.next_chunk(self.current, self.future, 300)
            if chunk is None:
                return
            relocation.append(self.future, chunk.range.read(), chunk.epoch)

    def finish(self) -> Log:
        relocation.copy_rest(self.current, self.future, 300)
        relocation.flush_as(self.current, self.future)
        return self.logs.promote(self.current.key, 0)


def content(log: Log) -> bytes:
    data, offset = b"", log.log_start
    while offset < log.log_end:
        found = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end)
        assert found.range is not None
        data, offset = data + found.range.read(), found.next_offset
    return data


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "truncate", "copy", "copy", "expire"]),
        st.integers(1, 12),
    ),
    max_size=25,
)


@given(STEPS)
def test_a_log_that_moved_holds_what_it_held(steps: list[tuple[str, int]]) -> None:
    move = Move(sim_disk())
    for step, size in steps:
        getattr(move, step)(size)
    before = content(move.current)
    marks = move.current.log_start, move.current.high_watermark, move.current.log_end
    epochs = list(move.current.epochs.entries)
    log = move.finish()
    log.invariants()
    assert content(log) == before
    assert (log.log_start, log.high_watermark, log.log_end) == marks
    assert log.epochs.entries == epochs
    assert log.directory == SECOND and log.path == f"{SECOND}/t-0"
    assert move.logs.logs[log.key] is log and not move.logs.futures
    log.append_as_leader(batch_of(value=b"more"), move.epoch, 0)
    assert content(log).startswith(before)


@given(STEPS)
def test_a_future_log_is_a_beginning_of_the_current_one(steps: list[tuple[str, int]]) -> None:
    move = Move(sim_disk())
    for step, size in steps:
        getattr(move, step)(size)
        relocation.follow(move.current, move.future)
        assert move.future.log_end <= move.current.log_end
        assert move.future.log_start == move.current.log_start
        assert content(move.current).startswith(content(move.future))


def test_large_records_after_small_ones_do_not_seem_to_be_little() -> None:
    """As many offsets, but a thousand times the bytes: copied at once they would hold up everybody."""
    move = Move(sim_disk())
    move.current.config = replace(SMALL, segment_bytes=1 << 20, index_interval_bytes=1 << 12)
    move.append(1000)
    at = [move.current.exact_bytes_from(0)]
    for _ in range(20):
        move.current.append_as_leader(batch_of(value=b"x" * 800), 0, 0)
        at.append(move.current.exact_bytes_from(0))
    while move.future.log_end < 1000:
        move.copy(1)
    copied = move.future.exact_bytes_from(0)
    assert at[0] <= copied and copied in at
    assert relocation.behind(move.current, move.future) == at[-1] - copied > 10_000


def test_a_future_log_drops_the_segments_that_the_log_has_dropped() -> None:
    """A move may last: where the records of a day expire meanwhile, it needs no room for two days."""
    disk = sim_disk()
    move = Move(disk)
    move.current.config = replace(SMALL, retention_bytes=3000, file_delete_delay_ms=0)
    for now_ms in range(100):
        move.append(10)
        move.current.advance_high_watermark(move.current.log_end)
        move.copy(100)
        move.future.flush()
        for log in (move.current, move.future):
            for path in log.doomed_by(now_ms):
                disk.remove(path)
        move.logs.retention(now_ms)
    files = [name for name in disk.list_dir(move.future.path) if name.endswith(".log")]
    assert len(files) == len(move.future.segments) <= len(move.current.segments) + 2
    move.finish()


def test_a_future_log_whose_last_step_failed_is_not_whole_any_more() -> None:
    disk = sim_disk()
    move = Move(disk)
    move.append(5)
    current, future = move.current, move.future
    relocation.copy_rest(current, future, 300)
    rename = disk.rename

    def failing(old: str, new: str) -> None:
        if new == f"{SECOND}/t-0":
            raise OSError(5, "Input/output error", new)
        rename(old, new)

    disk.rename = failing
    with pytest.raises(LogDirError):
        move.logs.promote(current.key, 0)
    assert disk.exists(future.path) and not is_whole(future)
    assert disk.exists(f"{FIRST}/t-0")


def test_a_record_that_was_flushed_is_flushed_in_the_log_that_takes_its_place() -> None:
    disk = sim_disk()
    move = Move(disk)
    move.append(5)
    move.current.flush()
    log = move.finish()
    assert log.recovery_point == 5
    disk.lose_power()
    disk.forget_process()
    again = LogManager(disk, [FIRST, SECOND], SMALL, new_id=lambda: UUID(int=500))
    again.start("cluster", 1, 0)
    (found,) = again.logs.values()
    assert found.directory == SECOND and found.log_end == 5


@pytest.mark.parametrize("operation", ["rename", "flush_dir"])
def test_the_current_log_goes_on_if_the_disk_of_the_other_fails(operation: str) -> None:
    disk = sim_disk()
    move = Move(disk)
    move.append(5)
    disk.fail(operation, f"{SECOND}/t-0" if operation == "rename" else SECOND)
    with pytest.raises(LogDirError):
        move.finish()
    assert move.logs.logs[move.current.key] is move.current and not move.logs.futures
    assert SECOND in move.logs.offline_directories
    move.append(1)
    assert disk.exists(f"{FIRST}/t-0") and move.current.log_end == 6


@pytest.mark.parametrize("step", range(1, 20))
def test_a_move_that_is_asked_for_again_leaves_the_log_its_marks(step: int) -> None:
    """Whenever the process is killed then: without a recovery point, records that were deleted would be back."""
    disk = sim_disk()
    move = Move(disk)
    move.append(30)
    current = move.current
    current.advance_high_watermark(30)
    current.advance_log_start(25)
    current.flush()
    move.logs.checkpoint()
    move.logs.delete_future(current.key, 0)
    disk.die_before(None, step, lambda what: None)
    with suppress(Died):
        move.logs.create_future(current, SECOND, 0)
    disk.forget_process()
    again = LogManager(disk, [FIRST, SECOND], SMALL, new_id=lambda: UUID(int=500))
    again.start("cluster", 1, 0)
    found = again.logs[current.key]
    assert (found.log_start, found.high_watermark) == (25, 30)
