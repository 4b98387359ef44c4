"""A broker with many logs: stopping it flushes what changed, all at once, and leaves alone what did not."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest
from logkit import DIRECTORY, SMALL, append, content, sim_disk

from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.runtime.files import RealDisk
from ottla.sim.engine.disk import SimDisk
from ottla.wire.types import TopicPartition

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
LOGS = 20


class Counting(SimDisk):
    """Counts the changes that programs make, by kind."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        super().__init__(random.Random(1), lambda kind, *_: self.made.update([kind]))
        self.make_dirs(DIRECTORY)
        self.flush_dir("/")


def started(disk: SimDisk, *directories: str) -> LogManager:
    ids = count(1000)
    manager = LogManager(
        disk, list(directories or [DIRECTORY]), SMALL, new_id=lambda: UUID(int=next(ids))
    )
    manager.start(CLUSTER, 1, 0)
    return manager


def create(manager: LogManager, number: int) -> Log:
    return manager.create("t", UUID(int=40), number, SMALL, 0)


def identify(manager: LogManager) -> None:
    plan = manager.identity_plan(manager.logs.values())
    plan.run()
    manager.flushed(plan)


def made_by(disk: Counting, manager: LogManager) -> Counter[str]:
    before = disk.made.copy()
    manager.close(clean=True, broker_epoch=1)
    return disk.made - before


def test_the_logs_of_a_directory_are_made_durable_with_one_flush_of_it() -> None:
    disk = Counting()
    manager = started(disk)
    for number in range(LOGS):
        create(manager, number)
    before = disk.made.copy()
    identify(manager)
    flushed = disk.made - before
    assert flushed == {"flush": LOGS, "flush_dir": LOGS + 1}
    assert not manager.identity_plan(manager.logs.values()), "once"


def test_a_clean_stop_writes_nothing_for_logs_in_which_nothing_happened() -> None:
    disk = Counting()
    manager = started(disk)
    create(manager, 0)
    identify(manager)
    manager.logs[TopicPartition("t", 0)].flush()
    alone = made_by(disk, manager)
    manager = started(disk)
    for number in range(1, LOGS):
        create(manager, number)
    identify(manager)
    for log in manager.logs.values():
        log.flush()
    assert made_by(disk, manager) == alone, "however many there are"
    manager = started(disk)
    assert len(manager.logs) == LOGS and not manager.corrupt
    assert made_by(disk, manager)["flush"] == 1, "the marker of the clean stop"


def test_a_log_with_records_is_closed_once_and_then_left_alone_until_it_changes() -> None:
    disk = Counting()
    manager = started(disk)
    log = create(manager, 0)
    append(log, 3, producer_id=7, producer_epoch=0, base_sequence=0)
    assert not log.is_as_closed
    made_by(disk, manager)
    again = started(disk)
    log = again.logs[TopicPartition("t", 0)]
    assert log.is_as_closed
    written = content(log)
    idle = made_by(disk, again)
    changed = started(disk)
    log = changed.logs[TopicPartition("t", 0)]
    assert content(log) == written and 7 in log.producers.producers
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=3)
    assert not log.is_as_closed
    assert made_by(disk, changed)["flush"] > idle["flush"]


@pytest.mark.parametrize("change", ["truncate", "expire", "empty"])
def test_a_log_that_changed_without_an_append_is_closed_anew(change: str) -> None:
    disk = sim_disk()
    log = create(started(disk), 0)
    append(log, 3, producer_id=7, producer_epoch=0, base_sequence=0, timestamp=1)
    log.close(clean=True)
    disk.forget_process()
    log = Log.open(log.resources, DIRECTORY, "t", 0, SMALL, recovery_point=3, clean=True, now_ms=0)
    assert log.is_as_closed
    if change == "truncate":
        log.truncate_to(0)
        append(log, 3, producer_id=8, producer_epoch=0, base_sequence=0)
    elif change == "expire":
        for now_ms in (0, 10**9):
            log.producers.expire(now_ms, 1)
    else:
        log.truncate_fully(3)
    expected = dict(log.producers.producers)
    assert change == "empty" or not log.is_as_closed
    log.close(clean=True)
    disk.lose_power()
    again = Log.open(
        log.resources, DIRECTORY, "t", 0, SMALL, recovery_point=3, clean=True, now_ms=0
    )
    assert again.log_end == 3 and again.producers.producers.keys() == expected.keys()


def test_all_logs_survive_a_power_loss_after_a_clean_stop() -> None:
    for seed in range(30):
        disk = sim_disk(seed)
        manager = started(disk)
        for number in range(LOGS):
            log = create(manager, number)
            if number % 3 == 0:
                append(log, number + 1)
        manager.close(clean=True, broker_epoch=1)
        disk.lose_power()
        again = started(disk)
        assert again.previous_broker_epoch == 1 and not again.corrupt
        ends = [again.logs[TopicPartition("t", number)].log_end for number in range(LOGS)]
        assert ends == [0 if number % 3 else number + 1 for number in range(LOGS)]


def test_one_log_that_cannot_be_flushed_keeps_its_directory_from_being_clean_and_no_other() -> None:
    disk = sim_disk()
    disk.make_dirs("/other")
    disk.flush_dir("/")
    manager = started(disk, DIRECTORY, "/other")
    for number in range(LOGS):
        append(create(manager, number), 1)
    disk.fail("flush", f"{DIRECTORY}/t-4/", times=1)
    manager.close(clean=True, broker_epoch=1)
    assert manager.offline_directories.keys() == {DIRECTORY}
    assert not disk.exists(f"{DIRECTORY}/.kafka_cleanshutdown")
    assert disk.exists("/other/.kafka_cleanshutdown")


def test_new_logs_go_to_the_directory_with_the_fewest_also_after_deletions() -> None:
    disk = sim_disk()
    disk.make_dirs("/other")
    manager = started(disk, DIRECTORY, "/other")
    for number in range(4):
        create(manager, number)
    for number in (0, 2):
        manager.delete(TopicPartition("t", number), 0)
    directories = [create(manager, number).directory for number in (4, 5, 6)]
    assert directories == [DIRECTORY, DIRECTORY, DIRECTORY]
    manager.mark_offline(DIRECTORY, OSError())
    assert create(manager, 7).directory == "/other"


def test_calls_that_wait_for_the_disk_are_made_several_at_a_time() -> None:
    both = threading.Barrier(2, timeout=20)

    def meet() -> None:
        both.wait()

    RealDisk().together([meet, meet])
    RealDisk().together([])
    made: list[int] = []
    RealDisk().together([lambda: made.append(1)])
    assert made == [1]


def test_a_segment_without_a_batch_needs_no_index_files() -> None:
    disk = sim_disk()
    manager = started(disk)
    create(manager, 0)
    manager.close(clean=True)
    log = started(disk).logs[TopicPartition("t", 0)]
    assert disk.list_dir(log.path) == ["00000000000000000000.log", "partition.metadata"]
    append(log, 3)
    log.configure(replace(SMALL, flush_messages=1))
    assert log.read(0, max_bytes=1000, end_offset=3).range is not None
