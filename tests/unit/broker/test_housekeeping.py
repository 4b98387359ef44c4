"""What a broker does by the clock, while others wait for its loop."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest
from one_node import alone, create

from ottla.broker.replication import housekeeping
from ottla.runtime.files import RealDisk
from ottla.wire.apis import ApiKey
from ottla.wire.types import TopicPartition


def test_clients_are_served_while_the_files_of_a_deleted_topic_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To free a gigabyte takes the system a tenth of a second or more."""
    begun, may_end = threading.Event(), threading.Event()
    remove_tree = RealDisk.remove_tree

    def slow(self: RealDisk, path: str) -> None:
        begun.set()
        assert may_end.wait(30), "whoever waits for the loop waits for us"
        remove_tree(self, path)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        node, channel = await alone(
            tmp_path, log_segment_delete_delay_ms="0", log_retention_check_interval_ms="50"
        )
        try:
            await create(channel, "t", [[1]])
            monkeypatch.setattr(RealDisk, "remove_tree", slow)
            await channel.request(
                ApiKey.DELETE_TOPICS,
                {"topics": [{"name": "t", "topic_id": UUID(int=0)}], "timeout": 10_000},
            )
            assert await loop.run_in_executor(None, begun.wait, 10)
            await create(channel, "another", [[1]])
        finally:
            may_end.set()
            channel.close()
            await node.stop()

    asyncio.run(run())
    assert not list(tmp_path.glob("*-delete"))


def forget_logs(directory: Path) -> None:
    """As if the process had ended between the news of the topic and its log."""
    (log,) = directory.rglob("t-0")
    shutil.rmtree(log)
    for checkpoint in (*log.parent.glob("*checkpoint*"), *log.parent.glob(".kafka_cleanshutdown")):
        checkpoint.unlink()


def test_a_log_that_is_made_at_the_start_is_found_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory and topic id are durable at once: who loses them loses the whole log. The next flush may be far away."""
    monkeypatch.setattr(housekeeping, "FLUSH_CHECK_S", 1000.0)

    async def run() -> None:
        node, channel = await alone(tmp_path)
        await create(channel, "t", [[1]])
        channel.close()
        await node.stop()
        forget_logs(tmp_path)
        node, channel = await alone(tmp_path)
        try:
            assert node.logs is not None
            log = node.logs.logs[TopicPartition("t", 0)]
            end = time.monotonic() + 10
            while log.unflushed.identity or log.unflushed.is_planned:
                assert time.monotonic() < end, "its topic id is not on disk"
                await asyncio.sleep(0.01)
        finally:
            channel.close()
            await node.stop()

    asyncio.run(run())
