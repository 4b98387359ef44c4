"""What only a real file system can show: descriptors, partial writes, temporary files."""

from __future__ import annotations

import errno
import gc
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.runtime import FileRange, files
from ottla.runtime.files import PROBE_EVERY_BYTES, RealDisk


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else -1


def test_a_file_nobody_refers_to_gives_its_descriptor_back(tmp_path: Path) -> None:
    disk = RealDisk()
    gc.collect()
    before = open_descriptors()
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"segment")
    kept = FileRange(file, 0, 7)
    disk.remove(str(tmp_path / "a"))
    del file
    assert kept.read() == b"segment"
    del kept
    assert open_descriptors() == before


def test_what_a_node_writes_is_for_its_own_user_only(tmp_path: Path) -> None:
    disk = RealDisk()
    directory, file = tmp_path / "logs", tmp_path / "logs" / "00000000000000000000.log"
    before = os.umask(0)
    try:
        disk.make_dirs(str(directory))
        disk.open(str(file), create=True).close()
        disk.replace(str(directory / "meta.properties"), b"x")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())}
    assert modes == {"logs": 0o700, file.name: 0o600, "meta.properties": 0o600}


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_pwritev, whole_pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda fd, bufs, at: whole_pwrite(fd, b"".join(bufs)[:3], at)
    )
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole_pwrite(fd, data[:2], at))
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"0123", b"4567", b"89")
    file.write_at(1, b"abcdefg")
    assert whole_pwritev is not os.pwritev
    assert file.read_at(0, 20) == b"0abcdefg89"


def test_partial_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"0123456789")
    whole_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole_pread(fd, min(size, 3), at))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(1, 80) == b"123456789"


def test_a_torn_append_shows_in_the_size_and_can_be_truncated_away(tmp_path: Path) -> None:
    # The limit on file size makes the system refuse the second half, as a full disk would.
    import signal

    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"x" * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
        with pytest.raises(OSError) as refused:
            file.append(b"y" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert refused.value.errno == errno.EFBIG
    assert file.size == 1500
    file.truncate(1000)
    assert file.read_at(0, 2000) == b"x" * 1000


def test_a_replace_that_fails_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    disk.replace(str(tmp_path / "a"), b"old")

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "fsync failed")

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(OSError, match="fsync failed"):
        disk.replace(str(tmp_path / "a"), b"new")
    assert disk.read(str(tmp_path / "a")) == b"old"
    assert disk.list_dir(str(tmp_path)) == ["a"]


def test_a_leftover_temporary_file_is_overwritten_by_the_next_replace(tmp_path: Path) -> None:
    (tmp_path / "a.tmp").write_bytes(b"left over from a crash, and longer")
    RealDisk().replace(str(tmp_path / "a"), b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_another_process_cannot_take_a_held_lock(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = f"from ottla.runtime.files import RealDisk\nRealDisk().lock({str(tmp_path / 'l')!r})"
    held = RealDisk().lock(str(tmp_path / "l"))
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BlockingIOError" in refused.stderr
    held.close()
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_file_that_two_threads_replace_at_a_time_is_always_whole(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "checkpoint")
    contents = [b"a" * 4000, b"b" * 9000]

    def replace_often(content: bytes) -> None:
        for _ in range(200):
            disk.replace(path, content, durable=False)
            assert disk.read(path) in contents

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(replace_often, contents))
    assert disk.list_dir(str(tmp_path)) == ["checkpoint"]


def test_what_was_written_is_in_memory_and_what_was_dropped_from_there_is_brought(
    tmp_path: Path,
) -> None:
    size = 3 << 20
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append(os.urandom(size))
    assert file.in_memory(0, size) == size
    assert file.in_memory(size - 1, 1) == 1
    file.flush()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.in_memory(0, size) == size:
        pytest.skip("this file system keeps what it is told to forget, or cannot tell")
    before = open_descriptors()
    file.bring(0, size // 2)
    assert file.in_memory(0, size // 2) == size // 2
    file.bring(0, 2 * size)  # it ends where the file ends
    assert file.in_memory(0, size) == size and open_descriptors() == before


@pytest.mark.parametrize(
    ("cold_from", "cold_to"), [(0, 1), (1, 2), (2, 3), (4, 6), (7, 8), (7.5, 8), (7.999, 8)]
)
def test_what_lacks_at_the_beginning_in_the_middle_or_at_the_end_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold_from: float, cold_to: float
) -> None:
    """In units of what systems read ahead: no more is said to be there than is, and not much less."""
    file = RealDisk().open(str(tmp_path / "a"), create=True)

    def read_at_once(_fd: int, _buffers: object, place: int, _flags: int) -> int:
        if cold_from <= (place - 5) / PROBE_EVERY_BYTES < cold_to:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", read_at_once)
    found = file.in_memory(5, 8 * PROBE_EVERY_BYTES) / PROBE_EVERY_BYTES
    assert max(0, cold_from - 2) <= found <= cold_from


def test_where_the_system_cannot_tell_everything_counts_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"0123456789")
    monkeypatch.setattr(files, "RWF_NOWAIT", 0)
    assert file.in_memory(0, 10) == 10
    monkeypatch.undo()

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.in_memory(0, 10) == 10
