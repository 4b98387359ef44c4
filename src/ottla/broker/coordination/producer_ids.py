"""The ids that this broker gives to producers: from the controller in blocks, each used once in the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.broker.replication.alter_partition import NodeToControllerChannel
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


class ProducerIds:
    """Ids for idempotent producers, in blocks of a thousand from the controller, each handed out once."""

    def __init__(
        self,
        node_id: int,
        controller: NodeToControllerChannel,
        broker_epoch: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        async with self._refill:
            if self._next == self._end:
                await self._allocate()
            self._next += 1
            return self._next - 1

    def take_now(self) -> int | None:
        """None if there is none left; see `fill`."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def fill(self) -> None:
        """Make sure that there is one to take."""
        async with self._refill:
            if self._next == self._end:
                await self._allocate()

    async def _allocate(self) -> None:
        answer = await self._controller.request(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            {"broker_id": self._node_id, "broker_epoch": self._broker_epoch()},
            timeout_s=self._timeout_s,
        )
        if int(answer.error_code) != ErrorCode.NONE:
            raise KafkaError(ErrorCode(int(answer.error_code)))
        self._next = answer.producer_id_start
        self._end = answer.producer_id_start + answer.producer_id_len
