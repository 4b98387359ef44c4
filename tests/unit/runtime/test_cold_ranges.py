"""Ranges of files that are on the disk only: a thread brings them, and the loop serves everybody else meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path
from struct import pack

import pytest
from socketkit import Play, Server, until

from ottla.runtime import FileRange
from ottla.runtime import sockets as sockets_module
from ottla.runtime.files import RealDisk, RealFile

SIZE = 5 * sockets_module.WRITE_BYTES_PER_TURN // 2


def written(path: Path) -> tuple[RealFile, bytes]:
    content = random.Random(3).randbytes(SIZE)
    file = RealDisk().open(str(path / "log"), create=True)
    file.append(content)
    return file, content


class Cold:
    """Every range is cold until it was brought; `gate` holds back who brings it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        monkeypatch.setattr(sockets_module, "_is_cold", lambda *_: True)
        monkeypatch.setattr(sockets_module, "_fetch", self._fetch)

    def _fetch(self, descriptor: int, position: int, size: int) -> None:
        self.threads.add(threading.get_ident())
        self.brought.append((position, size))
        os.close(descriptor)
        assert self.gate.wait(20)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Cold:
    return Cold(monkeypatch)


def test_they_arrive_whole_and_in_order(play: Play, cold: Cold, tmp_path: Path) -> None:
    cold.gate.set()
    file, content = written(tmp_path)

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        client = await server.raw_client()
        connection = server.peers[-1].connection
        first, second = FileRange(file, 0, SIZE), FileRange(file, 7, 20_000)
        connection.send([pack(">i", SIZE), first, b"between", second, b"after"])
        expected = pack(">i", SIZE) + content + b"between" + content[7:20_007] + b"after"
        received = b""
        while len(received) < len(expected):
            received += await loop.sock_recv(client, 1 << 20)
        assert received == expected
        assert connection.queued_bytes == 0
        client.close()

    play(scenario)
    assert cold.threads and threading.get_ident() not in cold.threads
    assert max(size for _, size in cold.brought) <= sockets_module.WRITE_BYTES_PER_TURN
    assert cold.brought[-1] == (7, 20_000)


def test_others_are_served_while_one_is_brought(play: Play, cold: Cold, tmp_path: Path) -> None:
    file, content = written(tmp_path)

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        waiting, other = await server.raw_client(), await server.raw_client()
        server.peers[0].connection.send([FileRange(file, 0, 100_000)])
        await until(lambda: len(cold.brought) == 1)
        server.peers[0].connection.send([b"after"])
        server.peers[1].connection.send([b"at once"])
        assert await loop.sock_recv(other, 100) == b"at once"
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        cold.gate.set()
        received = b""
        while len(received) < 100_005:
            received += await loop.sock_recv(waiting, 1 << 20)
        assert received == content[:100_000] + b"after"
        waiting.close()
        other.close()

    play(scenario)


def test_who_leaves_meanwhile_leaves_nothing_behind(
    play: Play,
    cold: Cold,
    tmp_path: Path,
) -> None:
    file, _ = written(tmp_path)

    async def scenario(server: Server) -> None:
        client = await server.raw_client()
        before = len(os.listdir("/proc/self/fd"))
        peer = server.peers[-1]
        peer.connection.send([FileRange(file, 0, 100_000)])
        await until(lambda: len(cold.brought) == 1)
        client.close()
        await until(lambda: bool(peer.lost))
        file.close()
        cold.gate.set()
        await until(lambda: not peer.connection._fetching)
        assert peer.connection.queued_bytes == 0
        assert len(os.listdir("/proc/self/fd")) < before

    play(scenario)


def test_what_the_system_holds_in_memory_is_not_cold(tmp_path: Path) -> None:
    file, _ = written(tmp_path)
    whole = FileRange(file, 0, SIZE)
    assert not sockets_module._is_cold(whole, SIZE)
    file.flush()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not sockets_module._is_cold(whole, SIZE):
        pytest.skip("this file system keeps what it is told to forget, or cannot tell")
    sockets_module._fetch(os.dup(file.fileno()), 0, SIZE)
    assert not sockets_module._is_cold(whole, SIZE)
