"""Moves between the directories of one node that do not reach their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from one_node import alone, create

from ottla.broker.replication.directory_moves import DirectoryMoves
from ottla.log.manager import LogManager
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
