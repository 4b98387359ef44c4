"""Reading without waiting for the disk: what is in memory, or word of what has to come first."""

from __future__ import annotations

import pytest
from logkit import append, new_log, sim_disk

from ottla.log import page_cache as memory_module
from ottla.log.config import LogConfig
from ottla.log.errors import InMemory, NotInMemory
from ottla.log.log import Log
from ottla.sim.engine.disk import SimDisk, SimFile

SIZE = 2000
COUNT = 300
CONFIG = LogConfig(segment_bytes=400 * SIZE, index_interval_bytes=SIZE, max_message_bytes=1 << 20)
ALL = 1 << 20
NOTHING = InMemory()


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
        monkeypatch.setattr(memory_module, "SCAN_AHEAD_BYTES", 100)


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
    found = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end, in_memory=InMemory())
    assert found.range is not None
    return found.next_offset - offset


def test_what_was_appended_not_long_ago_is_not_looked_for(log: Log, memory: Memory) -> None:
    assert read(log, COUNT - 10) == 10
    assert memory.asked == []


def test_what_is_all_in_memory_is_read_as_ever(log: Log, memory: Memory) -> None:
    memory.holds[".log"] = ALL
    waits = log.read(3, max_bytes=20 * SIZE, end_offset=log.log_end)
    assert log.read(3, max_bytes=20 * SIZE, end_offset=log.log_end, in_memory=InMemory()) == waits


def missing(log: Log, offset: int, max_bytes: int = ALL, known: InMemory = NOTHING) -> NotInMemory:
    with pytest.raises(NotInMemory) as raised:
        log.read(offset, max_bytes=max_bytes, end_offset=log.log_end, in_memory=known)
    return raised.value


def test_what_is_not_in_memory_is_named_first_the_place_and_then_the_records(
    log: Log, memory: Memory
) -> None:
    place = missing(log, 5, 5 * SIZE)
    assert place.then == InMemory(place=True) and place.range.position < 5 * SIZE
    records = missing(log, 5, 5 * SIZE, place.then)
    assert records.then == InMemory(place=True, size=5 * SIZE)
    begin = 5 * (log.size_bytes // COUNT)
    assert (records.range.position, records.range.size) == (begin, 5 * SIZE + 100)
    found = log.read(5, max_bytes=ALL, end_offset=log.log_end, in_memory=records.then)
    assert found.range is not None
    assert found.range.position == begin and 4 * SIZE <= found.range.size <= 5 * SIZE


def test_no_more_is_brought_at_a_time_than_is_sent(log: Log, memory: Memory) -> None:
    known = InMemory(place=True)
    assert missing(log, 0, 1 << 30, known).then.size == memory_module.READ_AHEAD_BYTES


def test_a_batch_larger_than_what_was_brought_is_wanted_whole(log: Log, memory: Memory) -> None:
    batch = missing(log, 5, ALL, InMemory(place=True, size=SIZE // 2))
    size = log.size_bytes // COUNT
    assert batch.then == InMemory(place=True, size=size)
    found = log.read(5, max_bytes=ALL, end_offset=log.log_end, in_memory=batch.then)
    assert found.range is not None and found.range.size == size


def test_a_batch_larger_than_is_asked_for_is_wanted_whole(log: Log, memory: Memory) -> None:
    size = log.size_bytes // COUNT
    memory.holds[".log"] = 6 * size - 1
    batch = missing(log, 5, 100, InMemory(place=True))
    assert batch.then == InMemory(place=True, size=size)


def test_the_index_comes_first_and_once(log: Log, memory: Memory) -> None:
    log.roll(0)  # which writes the index
    memory.holds = {".log": ALL, ".index": 0}
    index = missing(log, 5)
    assert index.then == NOTHING and index.range.file.path.endswith(".index")
    assert index.range.size == index.range.file.size
    assert read(log, 5, 3 * SIZE) >= 2
    assert memory.asked.count(".index") == 1


def test_a_reader_that_goes_on_knows_its_place(log: Log, memory: Memory) -> None:
    memory.holds[".log"] = ALL
    next_offset = read(log, 0, 10 * SIZE)
    memory.holds[".log"] = 0
    records = missing(log, next_offset)
    assert records.range.position == next_offset * (log.size_bytes // COUNT)
    assert records.then.size


def test_an_offset_in_the_gap_at_the_end_of_an_empty_segment_needs_no_disk(memory: Memory) -> None:
    made = new_log(sim_disk(), CONFIG)
    append(made)
    made.roll(0)
    made.log_end += 5  # as compaction and an empty leader's epoch may leave it
    assert made.read(3, max_bytes=ALL, end_offset=6, in_memory=NOTHING).range is None
