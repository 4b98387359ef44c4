"""What every disk must do, asked of the real one and of the simulated one alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime import Disk, FileRange
from ottla.runtime.files import RealDisk
from ottla.sim.engine.disk import SimDisk


@dataclass
class Place:
    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=["real", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealDisk(), str(tmp_path))
    disk = SimDisk(random.Random(1))
    disk.make_dirs("/data")
    return Place(disk, "/data")


def test_appended_buffers_follow_each_other_and_are_read_anywhere(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.append(b"one", bytearray(b"two"), memoryview(b"--three")[2:])
    file.append()
    file.append(b"", b"four")
    assert file.size == 15
    assert file.read_at(0, 15) == b"onetwothreefour"
    assert file.read_at(3, 3) == b"two"
    assert file.read_at(11, 100) == b"four"
    assert file.read_at(15, 5) == b""
    assert file.read_at(99, 5) == b""
    assert FileRange(file, 6, 5).read() == b"three"


def test_more_buffers_than_one_system_call_takes_are_all_written(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    buffers = [bytes([i % 251]) * (i % 5) for i in range(3000)]
    file.append(*buffers)
    assert file.read_at(0, file.size) == b"".join(buffers)


def test_write_at_overwrites_in_place_and_may_extend(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.append(b"0123456789")
    file.write_at(2, b"xy")
    assert file.size == 10
    file.write_at(12, b"z")
    assert file.size == 13
    assert file.read_at(0, 13) == b"01xy456789\0\0z"
    file.append(b"!")
    assert file.read_at(12, 5) == b"z!"


def test_truncate_shortens_and_lengthens_with_zeros_and_append_continues_there(
    place: Place,
) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    file.truncate(7)
    assert file.read_at(0, 100) == b"0123x\0\0"
    assert place.disk.file_size(place.path("a")) == 7


def test_an_opened_file_is_appended_at_its_end(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.append(b"abc")
    file.close()
    again = place.disk.open(place.path("a"), create=True)
    assert again.size == 3
    again.append(b"def")
    assert place.disk.read(place.path("a")) == b"abcdef"


def test_opening_what_is_not_there_says_so(place: Place) -> None:
    for call in (place.disk.open, place.disk.read, place.disk.file_size, place.disk.remove):
        with pytest.raises(FileNotFoundError):
            call(place.path("absent"))
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("no/such/dir/file"), create=True)
    with pytest.raises(FileNotFoundError):
        place.disk.list_dir(place.path("absent"))
    with pytest.raises(FileNotFoundError):
        place.disk.rename(place.path("absent"), place.path("b"))
    with pytest.raises(FileNotFoundError):
        place.disk.remove_tree(place.path("absent"))
    with pytest.raises(FileNotFoundError):
        place.disk.flush_dir(place.path("absent"))
    assert not place.disk.exists(place.path("absent"))
    assert not place.disk.is_dir(place.path("absent"))


def test_a_directory_is_no_file_and_a_file_no_directory(place: Place) -> None:
    place.disk.make_dirs(place.path("d"))
    place.disk.open(place.path("f"), create=True).close()
    with pytest.raises(IsADirectoryError):
        place.disk.open(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.disk.read(place.path("d"))
    with pytest.raises(NotADirectoryError):
        place.disk.list_dir(place.path("f"))
    with pytest.raises(NotADirectoryError):
        place.disk.open(place.path("f/x"), create=True)
    with pytest.raises(OSError):
        place.disk.remove(place.path("d"))


def test_a_removed_or_renamed_file_stays_readable_through_its_object(place: Place) -> None:
    removed = place.disk.open(place.path("a"), create=True)
    removed.append(b"kept")
    renamed = place.disk.open(place.path("b"), create=True)
    renamed.append(b"moved")
    place.disk.remove(place.path("a"))
    place.disk.rename(place.path("b"), place.path("c"))
    renamed.append(b"!")
    assert FileRange(removed, 0, 4).read() == b"kept"
    assert place.disk.read(place.path("c")) == b"moved!"
    assert place.disk.list_dir(place.root) == ["c"]


def test_directories_are_made_listed_renamed_and_removed_whole(place: Place) -> None:
    disk = place.disk
    disk.make_dirs(place.path("x/y/z"))
    disk.make_dirs(place.path("x/y/z"))
    disk.open(place.path("x/y/z/b"), create=True).close()
    disk.open(place.path("x/y/z/a"), create=True).close()
    assert disk.list_dir(place.path("x/y/z")) == ["a", "b"]
    disk.rename(place.path("x/y"), place.path("x/moved"))
    assert disk.list_dir(place.path("x")) == ["moved"]
    assert disk.exists(place.path("x/moved/z/a"))
    assert disk.is_dir(place.path("x/moved"))
    disk.flush_dir(place.path("x"))
    disk.remove_tree(place.path("x"))
    assert disk.list_dir(place.root) == []


def test_rename_replaces_a_file_but_not_a_directory_in_use(place: Place) -> None:
    disk = place.disk
    disk.open(place.path("a"), create=True).append(b"new")
    disk.open(place.path("b"), create=True).append(b"old")
    disk.rename(place.path("a"), place.path("b"))
    assert disk.read(place.path("b")) == b"new"
    disk.make_dirs(place.path("d1"))
    disk.make_dirs(place.path("d2/inner"))
    with pytest.raises(OSError):
        disk.rename(place.path("d1"), place.path("d2"))


@pytest.mark.parametrize("durable", [True, False])
def test_replace_makes_the_file_hold_the_data_and_leaves_nothing_else(
    place: Place, durable: bool
) -> None:
    place.disk.replace(place.path("a"), b"a long first content", durable=durable)
    place.disk.replace(place.path("a"), b"short", durable=durable)
    assert place.disk.read(place.path("a")) == b"short"
    assert place.disk.list_dir(place.root) == ["a"]


def test_a_lock_is_exclusive_until_its_file_is_closed(place: Place) -> None:
    held = place.disk.lock(place.path(".lock"))
    with pytest.raises(BlockingIOError):
        place.disk.lock(place.path(".lock"))
    held.close()
    place.disk.lock(place.path(".lock")).close()


def test_a_closed_file_refuses_work(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.close()
    file.close()
    for call in (lambda: file.append(b"x"), lambda: file.read_at(0, 1), file.flush):
        with pytest.raises(OSError):
            call()
    with pytest.raises(OSError):
        file.truncate(0)
    assert file.fileno() == -1


def test_usage_tells_total_and_free_bytes(place: Place) -> None:
    total, free = place.disk.usage(place.root)
    assert 0 < free <= total


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=20), max_size=4)),
        st.tuples(st.just("write_at"), st.integers(0, 60), st.binary(max_size=20)),
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("read_at"), st.integers(0, 80), st.integers(0, 80)),
    ),
    max_size=15,
)


@given(operations)
@settings(max_examples=60, deadline=None)
def test_real_and_simulated_files_agree_on_any_sequence_of_operations(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "agree")
    real = RealDisk().open(path, create=True)
    real.truncate(0)
    sim_disk = SimDisk(random.Random(1))
    sim = sim_disk.open("/agree", create=True)
    for name, *arguments in steps:
        if name == "append":
            arguments = arguments[0]  # type: ignore[assignment]
        results = [getattr(file, str(name))(*arguments) for file in (real, sim)]
        assert results[0] == results[1]
        assert real.size == sim.size
    assert real.read_at(0, 200) == sim.read_at(0, 200) == sim_disk.read("/agree")
