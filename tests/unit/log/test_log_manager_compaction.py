"""All logs of a broker and their compaction: what the checkpoints must know before a log has gaps."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from uuid import UUID

from compactkit import COMPACT, commit, pairs_in, write
from logkit import SMALL, sim_disk

from ottla.log.checkpoints import CLEANED_OFFSETS, read_offsets
from ottla.log.compaction import Replacement
from ottla.log.manager import LogManager
from ottla.wire.types import TopicPartition

KEY = TopicPartition("t", 0)
EAGER = replace(COMPACT, min_cleanable_dirty_ratio=0.0)


def managed(disk) -> LogManager:
    """As at a start: with the settings of topics that compact nothing, since theirs are not known yet."""
    numbers = count(1)
    manager = LogManager(disk, ["/data"], SMALL, new_id=lambda: UUID(int=next(numbers)))
    manager.start("cluster", 1, 0)
    return manager


def compacted(manager: LogManager, now_ms: int = 5000) -> None:
    found = manager.next_compaction(now_ms, 1000)
    assert found is not None
    log, compaction = found
    for step in compaction.steps():
        if isinstance(step, Replacement):
            log.replace(step.bases, step.segment, now_ms)
    manager.compacted(log, compaction)


def dirty(manager: LogManager, rounds: int = 30):
    log = manager.logs.get(KEY) or manager.create("t", UUID(int=9), 0, EAGER, 0)
    for number in range(rounds):
        write(log, (f"k{number % 7}", str(number)))
    commit(log)
    return log


def test_after_a_crash_a_compacted_log_is_whole_though_nothing_was_checkpointed_since():
    for seed in range(20):
        disk = sim_disk(seed)
        manager = managed(disk)
        log = dirty(manager)
        manager.checkpoint()
        for rounds in range(seed % 3 + 1):
            dirty(manager, 5 + rounds)
            compacted(manager)
        expected, end = pairs_in(log), log.log_end
        if seed % 2:
            disk.lose_power()
        else:
            disk.forget_process()
        manager = managed(disk)
        assert manager.corrupt == {}
        assert pairs_in(manager.logs[KEY]) == expected and manager.logs[KEY].log_end == end


def test_how_far_a_log_is_clean_is_kept_and_not_inherited():
    disk = sim_disk()
    manager = managed(disk)
    log = dirty(manager)
    compacted(manager)
    assert read_offsets(disk, f"/data/{CLEANED_OFFSETS}") == {KEY: 30}
    assert manager.next_compaction(5000, 1000) is None
    manager.close(clean=True)
    manager = managed(disk)
    assert manager.logs[KEY].cleaned == 30
    log = manager.logs[KEY]
    log.truncate_to(12)
    assert log.cleaned is not None and log.cleaned <= 12
    assert read_offsets(disk, f"/data/{CLEANED_OFFSETS}") == {KEY: log.cleaned}
    manager.delete(KEY, 0)
    manager.create("t", UUID(int=10), 0, EAGER, 0)
    assert read_offsets(disk, f"/data/{CLEANED_OFFSETS}") == {}
    assert manager.logs[KEY].cleaned is None
