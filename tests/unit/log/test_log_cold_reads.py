"""Reading without waiting for the disk: what is in memory, or word of what has to come first."""

from __future__ import annotations

import pytest
from logkit import append, new_log, sim_disk

from ottla.log import log as log_module
from ottla.log.config import LogConfig
from ottla.log.errors import NotInMemory
from ottla.log.log import Log
from ottla.sim.disk import SimDisk, SimFile

SIZE = 2000
COUNT = 300
CONFIG = LogConfig(segment_bytes=400 * SIZE, index_interval_bytes=SIZE, max_message_bytes=1 << 20)
ALL = 1 << 20


class Memory:
    """How much of each kind of file is in memory, from its beginning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.holds = {".log": 0, ".index": ALL}
        self.asked: list[str] = []

        def in_memory(file: SimFile, position: int, size: int) -> int:
            kind = file.path[file.path.rindex(".") :]
            self.asked.append(kind)
            return max(0, min(size, self.holds[kind] - position))

        monkeypatch.setattr(SimFile, "in_memory", in_memory)
        monkeypatch.setattr(log_module, "LOOKING_BYTES", 100)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(monkeypatch)


@pytest.fixture
def log() -> Log:
    disk: SimDisk = sim_disk()
    made = new_log(disk, CONFIG)
    for _ in range(COUNT):
        append(made, value=b"x" * (SIZE - 69))
    return made


def read(log: Log, offset: int, max_bytes: int = ALL) -> int:
    """How many batches it brings."""
    found = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end, may_wait=False)
    assert found.range is not None
    return found.next_offset - offset


def test_what_was_appended_not_long_ago_is_not_looked_for(log: Log, memory: Memory) -> None:
    assert read(log, COUNT - 10) == 10
    assert memory.asked == []


def test_what_is_all_in_memory_is_read_as_ever(log: Log, memory: Memory) -> None:
    memory.holds[".log"] = ALL
    waits = log.read(3, max_bytes=20 * SIZE, end_offset=log.log_end)
    assert log.read(3, max_bytes=20 * SIZE, end_offset=log.log_end, may_wait=False) == waits


def test_what_is_not_in_memory_is_named(log: Log, memory: Memory) -> None:
    with pytest.raises(NotInMemory) as missing:
        read(log, 0, 5 * SIZE)
    wanted = missing.value.range
    assert (wanted.position, wanted.size) == (0, 5 * SIZE + 100)
    with pytest.raises(NotInMemory) as missing:
        read(log, 0)
    assert missing.value.range.size == min(log.size_bytes, log_module.BROUGHT_BYTES + 100)


def test_where_memory_holds_the_beginning_only_that_is_read(log: Log, memory: Memory) -> None:
    memory.holds[".log"] = 7 * SIZE
    assert 5 <= read(log, 0) <= 7
    found = log.read(0, max_bytes=ALL, end_offset=log.log_end, may_wait=False)
    assert found.range is not None and found.range.size <= 7 * SIZE


def test_a_batch_of_which_memory_holds_a_part_is_wanted_whole(log: Log, memory: Memory) -> None:
    memory.holds[".log"] = SIZE // 2
    with pytest.raises(NotInMemory) as missing:
        read(log, 0)
    assert missing.value.range.position == 0 and missing.value.range.size >= SIZE


def test_the_index_comes_first_and_once(log: Log, memory: Memory) -> None:
    log.roll(0)  # which writes the index
    memory.holds = {".log": ALL, ".index": 0}
    with pytest.raises(NotInMemory) as missing:
        read(log, 5)
    assert missing.value.is_index and missing.value.range.file.path.endswith(".index")
    assert missing.value.range.size == missing.value.range.file.size
    assert read(log, 5, 3 * SIZE) >= 2
    assert memory.asked.count(".index") == 1


def test_a_reader_that_goes_on_finds_its_place_without_the_batch_before(
    log: Log, memory: Memory
) -> None:
    memory.holds[".log"] = ALL
    first = read(log, 0, 10 * SIZE)
    memory.holds[".log"] = 0
    with pytest.raises(NotInMemory) as missing:
        read(log, first)
    assert missing.value.range.position == first * (log.size_bytes // COUNT)
