"""The question for the first unread record, which brokers ask each other with ListOffsets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from one_node import alone, create
from test_counted_work import produce_body, produced

from ottla.broker.replication.first_unread import question_about
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def asked(*partitions: dict[str, int]) -> dict[str, Any]:
    defaults = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": question_about(0)}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": [{**defaults, **each} for each in partitions]}],
    }


def test_a_partition_is_searched_once_for_a_request_and_by_its_leader_only(tmp_path: Path) -> None:
    async def run() -> None:
        node, channel = await alone(tmp_path)
        try:
            await channel.negotiate(10)
            await create(channel, "t", [[1]])
            await produced(channel, produce_body("t"), 1)

            async def errors(*partitions: dict[str, int]) -> list[int]:
                answer = await channel.request(ApiKey.LIST_OFFSETS, asked(*partitions))
                return [int(each.error_code) for each in answer.topics[0].partitions]

            assert await errors({}) == [ErrorCode.NONE]
            assert await errors({}, {}, {}) == [ErrorCode.NONE, *[ErrorCode.INVALID_REQUEST] * 2]
            assert await errors({"current_leader_epoch": 7}) == [ErrorCode.UNKNOWN_LEADER_EPOCH]
        finally:
            channel.abort()
            await node.stop()

    asyncio.run(run())
