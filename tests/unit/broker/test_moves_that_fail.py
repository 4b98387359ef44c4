"""Moves between the directories of one node that do not reach their end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from one_node import alone, create

from ottla.broker.replication import directory_moves
from ottla.broker.replication.directory_moves import DirectoryMoves
from ottla.config.values import LONG_MAX
from ottla.log.manager import LogManager
from ottla.log.room import Level
from ottla.records.record import Record, build
from ottla.replica import relocation
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

Test = Callable[[DirectoryMoves, LogManager, Partition, str], Awaitable[None]]


def with_one_replica(directory: Path, test: Test, **changed: str) -> None:
    """A node with two directories, a replica with a megabyte in one of them, and the other one."""

    async def run() -> None:
        node, channel = await alone(
            directory, log_dirs=f"{directory / 'a'},{directory / 'b'}", **changed
        )
        try:
            await create(channel, "t", [[1]])
            partitions = node.broker.replicas.partitions
            key = TopicPartition("t", 0)
            await until(lambda: key in partitions and partitions[key].leadership is not None)
            partition = partitions[key]
            batch = build([Record(0, 1000, b"k", b"v" * 5000, ())])
            for _ in range(200):
                partition.log.append_as_leader(memoryview(bytearray(batch)), 0, 0)
            at = partition.log.directory
            (other,) = [each for each in node.logs.directories if each != at]
            assert node.broker is not None and node.logs is not None
            await test(node.broker.moves, node.logs, partition, other)
        finally:
            channel.close()
            await node.stop()

    asyncio.run(run())


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_move_that_fails_for_no_known_reason_is_over_and_can_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = relocation.append
    failed: list[bool] = []

    def fails_once(*arguments: object) -> int:
        if not failed:
            failed.append(True)
            raise RuntimeError("nobody foresaw this")
        return append(*arguments)  # type: ignore[arg-type]

    async def test(
        moves: DirectoryMoves, logs: LogManager, partition: Partition, other: str
    ) -> None:
        monkeypatch.setattr(relocation, "append", fails_once)
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        await until(lambda: not moves.under_way)
        assert failed and not logs.futures and partition.log.directory != other
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        await until(lambda: partition.log.directory == other)

    with_one_replica(tmp_path, test)


def test_a_move_away_from_a_cordoned_directory_can_be_cancelled(tmp_path: Path) -> None:
    """The replica is no new one there: it has not left yet."""

    async def test(
        moves: DirectoryMoves, logs: LogManager, partition: Partition, other: str
    ) -> None:
        at = partition.log.directory
        moves.throttle.rate = 1000
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        logs.cordoned = frozenset((at, other))
        assert moves.alter(partition.key, at) is ErrorCode.NONE
        assert not moves.under_way and not logs.futures
        assert moves.alter(partition.key, other) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    with_one_replica(tmp_path, test)


def test_a_move_goes_on_soon_after_its_rate_is_raised(tmp_path: Path) -> None:
    """And not after the rest that the old rate asked for: 50 s for a batch of 5 kB."""

    async def test(
        moves: DirectoryMoves, logs: LogManager, partition: Partition, other: str
    ) -> None:
        moves.throttle.rate = 100
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        await until(lambda: logs.futures[partition.key].log_end > 0)
        moves.throttle.rate = LONG_MAX
        await until(lambda: partition.log.directory == other)

    with_one_replica(tmp_path, test)


def test_a_move_that_waits_holds_no_file_open(tmp_path: Path) -> None:
    """A disk that is emptied has thousands of them, and a process a thousand files."""

    async def test(
        moves: DirectoryMoves, logs: LogManager, partition: Partition, other: str
    ) -> None:
        def open_files() -> list[str]:
            found = []
            for each in Path("/proc/self/fd").iterdir():
                with suppress(FileNotFoundError):  # that of this loop
                    found.append(os.readlink(each))
            return [each for each in found if each.startswith(other)]

        before = open_files()
        moves.throttle.rate = 10_000
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        assert open_files() == before
        await until(lambda: logs.futures[partition.key].log_end > 0)
        await until(lambda: open_files() == before)

    with_one_replica(tmp_path, test)


def test_a_move_that_cannot_keep_its_promise_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk that it moves to is full: the replica would leave the ISR as one that lies there."""
    monkeypatch.setattr(directory_moves, "PROMISE_S", 0.3)

    async def test(
        moves: DirectoryMoves, logs: LogManager, partition: Partition, other: str
    ) -> None:
        replicas = moves._replicas
        at = partition.log.directory

        def lies_in(directory: str) -> bool:
            (named,) = replicas.image.topics["t"].partitions[0].directories
            return named == logs.directory_ids[directory]

        await until(lambda: lies_in(at))
        logs.rooms[other].level = Level.SCARCE
        assert moves.alter(partition.key, other) is ErrorCode.NONE
        replicas.placement.promised[partition.key] = logs.directory_ids[other]
        replicas.placement_changed(partition)
        await until(lambda: lies_in(other))
        await until(lambda: lies_in(at))
        assert partition.key in moves.under_way
        logs.rooms[other].level = Level.AMPLE
        await until(lambda: partition.log.directory == other and lies_in(other))

    with_one_replica(tmp_path, test)


def test_many_moves_together_keep_to_the_rate_of_one(tmp_path: Path) -> None:
    """All that waited for the throttle wake at the same time."""

    async def run() -> None:
        a, b = tmp_path / "a", tmp_path / "b"
        node, channel = await alone(tmp_path, log_dirs=f"{a},{b}")
        try:
            await create(channel, "t", [[1]] * 100)
            assert node.broker is not None
            moves, partitions = node.broker.moves, node.broker.replicas.partitions
            keys = [TopicPartition("t", number) for number in range(100)]
            await until(lambda: all(k in partitions and partitions[k].leadership for k in keys))
            batch = build([Record(0, 1000, b"k", b"v" * 5000, ())])
            for key in keys:
                partitions[key].log.append_as_leader(memoryview(bytearray(batch)), 0, 0)
            moves.throttle.rate = 20_000
            began = time.monotonic()
            for key in keys:
                at = partitions[key].log.directory
                moves.alter(key, str(b) if at == str(a) else str(a))

            def copied() -> int:
                """Batches."""
                futures = node.logs.futures.values() if node.logs is not None else ()
                return len(keys) - len(moves.under_way) + sum(log.log_end for log in futures)

            await until(lambda: copied() >= 10)
            allowed = 20_000 * (time.monotonic() - began) + 3 * len(batch)
            assert copied() * len(batch) <= allowed
        finally:
            channel.close()
            await node.stop()

    asyncio.run(run())
