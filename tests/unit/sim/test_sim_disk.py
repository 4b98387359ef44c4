"""What a power loss, a full disk and a failing one do to files."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.sim import SimDisk


def disk_with(seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_dirs("/d")
    disk.flush_dir("/")
    return disk


def outcomes(prepare: object, seeds: int = 60) -> set[object]:
    return {prepare(seed) for seed in range(seeds)}  # type: ignore[operator]


def test_what_was_flushed_survives_a_power_loss() -> None:
    def lose(seed: int) -> bytes:
        disk = disk_with(seed)
        file = disk.open("/d/f", create=True)
        file.append(b"flushed")
        file.flush()
        disk.flush_dir("/d")
        disk.lose_power()
        return disk.read("/d/f")

    assert outcomes(lose) == {b"flushed"}


def test_of_what_was_not_flushed_any_part_may_survive() -> None:
    def lose(seed: int) -> bytes:
        disk = disk_with(seed)
        file = disk.open("/d/f", create=True)
        file.append(b"AA")
        file.flush()
        disk.flush_dir("/d")
        file.append(b"BB")
        file.append(b"CC")
        disk.lose_power()
        return disk.read("/d/f")

    seen = outcomes(lose)
    assert {b"AA", b"AABB", b"AABBCC", b"AAB", b"AABBC", b"AA\0\0"} <= seen
    assert all(isinstance(content, bytes) and content[:2] == b"AA" for content in seen)


def test_a_kill_without_power_loss_loses_nothing() -> None:
    disk = disk_with()
    file = disk.open("/d/f", create=True)
    file.append(b"only in the cache")
    disk.forget_process()
    assert disk.read("/d/f") == b"only in the cache"


def test_a_new_file_may_be_gone_until_its_directory_is_flushed() -> None:
    def lose(seed: int, flush: bool) -> bool:
        disk = disk_with(seed)
        disk.open("/d/f", create=True).flush()
        if flush:
            disk.flush_dir("/d")
        disk.lose_power()
        return disk.exists("/d/f")

    assert outcomes(lambda seed: lose(seed, False)) == {True, False}
    assert outcomes(lambda seed: lose(seed, True)) == {True}


def test_a_rename_is_old_or_new_and_never_both_or_neither() -> None:
    def lose(seed: int) -> tuple[str, ...]:
        disk = disk_with(seed)
        disk.open("/d/old", create=True).flush()
        disk.make_dirs("/e")
        disk.flush_dir("/")
        disk.flush_dir("/d")
        disk.rename("/d/old", "/e/new" if seed % 2 else "/d/new")
        disk.lose_power()
        return tuple(disk.list_dir("/d") + disk.list_dir("/e"))

    assert outcomes(lose) == {("old",), ("new",)}


def test_a_removed_file_may_come_back_until_its_directory_is_flushed() -> None:
    def lose(seed: int, flush: bool) -> bool:
        disk = disk_with(seed)
        disk.open("/d/f", create=True).flush()
        disk.flush_dir("/d")
        disk.remove("/d/f")
        if flush:
            disk.flush_dir("/d")
        disk.lose_power()
        return disk.exists("/d/f")

    assert outcomes(lambda seed: lose(seed, False)) == {True, False}
    assert outcomes(lambda seed: lose(seed, True)) == {False}


def test_replace_leaves_the_old_content_or_the_new_and_durably_the_new() -> None:
    def lose(seed: int, durable: bool) -> bytes:
        disk = disk_with(seed)
        disk.replace("/d/f", b"the old content")
        disk.replace("/d/f", b"the new", durable=durable)
        disk.lose_power()
        return disk.read("/d/f")

    assert outcomes(lambda seed: lose(seed, True)) == {b"the new"}
    assert outcomes(lambda seed: lose(seed, False)) == {b"the old content", b"the new"}


def test_a_rename_without_flushing_the_content_may_leave_an_empty_file() -> None:
    def lose(seed: int) -> bytes:
        disk = disk_with(seed)
        disk.replace("/d/f", b"old")
        disk.open("/d/t", create=True).append(b"new")
        disk.rename("/d/t", "/d/f")
        disk.flush_dir("/d")
        disk.lose_power()
        return disk.read("/d/f")

    assert b"" in outcomes(lose)


def test_a_failed_flush_is_not_made_good_by_the_next_one() -> None:
    def lose(seed: int) -> bytes:
        disk = disk_with(seed)
        file = disk.open("/d/f", create=True)
        disk.flush_dir("/d")
        file.append(b"lost")
        disk.fail("flush", "/d/f", times=1)
        with pytest.raises(OSError) as refused:
            file.flush()
        assert refused.value.errno == errno.EIO
        assert file.read_at(0, 4) == b"lost"
        file.append(b"kept")
        file.flush()
        disk.lose_power()
        return disk.read("/d/f")

    assert outcomes(lose) == {b"\0\0\0\0kept"}


def test_a_full_disk_tears_the_write_and_says_so() -> None:
    disk = disk_with()
    file = disk.open("/d/f", create=True)
    file.append(b"x" * 100)
    disk.fill(free_bytes=10)
    with pytest.raises(OSError) as refused:
        file.append(b"y" * 50)
    assert refused.value.errno == errno.ENOSPC
    assert 100 <= file.size <= 110
    file.truncate(100)
    assert disk.usage("/d")[1] == 10
    file.append(b"z" * 10)
    file.write_at(0, b"overwriting needs no room")
    disk.mend()
    file.append(b"y" * 50)
    assert file.size == 160


def test_removing_gives_the_room_back() -> None:
    disk = disk_with()
    disk.open("/d/f", create=True).append(b"x" * 100)
    disk.replace("/d/g", b"y" * 50)
    disk.replace("/d/g", b"y" * 20)
    assert disk.used_bytes == 120
    disk.remove("/d/f")
    disk.remove_tree("/d")
    assert disk.used_bytes == 0


def test_faults_hit_the_operation_and_the_path_they_name() -> None:
    disk = disk_with()
    file, other = disk.open("/d/f", create=True), disk.open("/d/g", create=True)
    file.append(b"data")
    disk.fail("read", "/d/f", times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            file.read_at(0, 4)
    assert file.read_at(0, 4) == b"data"
    disk.fail("write", "/d/f", error=errno.EROFS)
    other.append(b"fine")
    with pytest.raises(OSError):
        file.append(b"x")
    disk.mend()
    disk.fail("read", rate=0.5)
    failures = 0
    for _ in range(100):
        try:
            other.read_at(0, 1)
        except OSError:
            failures += 1
    assert 20 < failures < 80


def test_rot_changes_one_bit_and_survives_power_loss() -> None:
    disk = disk_with()
    disk.replace("/d/f", bytes(100))
    where = disk.rot("/d/f")
    disk.lose_power()
    content = disk.read("/d/f")
    assert [position for position, byte in enumerate(content) if byte] == [where]
    assert content[where].bit_count() == 1


def test_death_frees_locks_and_a_wipe_everything() -> None:
    disk = disk_with()
    disk.lock("/d/.lock")
    disk.forget_process()
    disk.lock("/d/.lock")
    disk.wipe()
    assert disk.list_dir("/") == []


writes = st.lists(st.tuples(st.binary(min_size=1, max_size=8), st.booleans()), max_size=8)


@given(writes, st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_an_appended_file_keeps_at_least_what_was_flushed_and_only_what_was_written(
    steps: list[tuple[bytes, bool]], seed: int
) -> None:
    disk = disk_with(seed)
    file = disk.open("/d/f", create=True)
    disk.flush_dir("/d")
    written = flushed = b""
    for data, flush in steps:
        file.append(data)
        written += data
        if flush:
            file.flush()
            flushed = written
    disk.lose_power()
    left = disk.read("/d/f")
    assert left.startswith(flushed)
    assert len(left) <= len(written)
    honest = next(
        (n for n in range(len(left)) if left[n] != written[n]),
        len(left),
    )
    assert not any(left[honest:]), "beyond what was written there can only be zeros"
    assert disk.used_bytes == len(left)
    disk.lose_power()
    assert disk.read("/d/f") == left


def test_a_misdirected_write_keeps_the_size_and_damages_another_place() -> None:
    disk = disk_with()
    file = disk.open("/d/f", create=True)
    file.append(b"A" * 50)
    disk.fail("misdirect", "/d/f", times=1)
    file.append(b"B" * 10)
    content = file.read_at(0, 100)
    assert len(content) == 60
    assert content.count(b"B") == 10
    assert content != b"A" * 50 + b"B" * 10


def test_thousands_of_directories_are_no_burden() -> None:
    disk = disk_with()
    for number in range(3000):
        disk.make_dirs(f"/d/topic-{number}")
        disk.open(f"/d/topic-{number}/0.log", create=True).append(b"x")
    disk.forget_process()
    disk.lose_power()
    assert len(disk.list_dir("/d")) <= 3000
