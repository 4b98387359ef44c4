"""A query of the exactly-once sink without Spark: tasks and drivers are calls, and a driver can be made to die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from ottla.client import BlockingClient, Client
from ottla.client.pipelined import PipelinedProducer, Section
from ottla.records.batch import HEADER_BYTES
from ottla.records.record import Record as LogRecord
from ottla.records.record import build
from ottla.spark.write.decisions import (
    CommitTransactions,
    ListOpen,
    Procedure,
    Step,
    TaskTransaction,
    TransactionOutcome,
    committing,
    transactional_id,
)
from ottla.spark.write.sink import SinkDriver
from support.cluster import ProcessCluster, wait_until
from support.transactions import read

TASKS = 3


class Died(Exception):
    pass


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Sink:
    """A query that writes `rows` to a topic of its own."""

    def __init__(self, cluster: ProcessCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.query = str(uuid4())

    def ask(self, work: Callable[[Client], Awaitable[object]]) -> object:
        addresses = [("127.0.0.1", node.port) for node in self.cluster.nodes.values()]
        with BlockingClient(addresses, timeout_s=20) as blocking:

            async def asked() -> object:
                async with asyncio.timeout(60):
                    return await work(blocking.client)

            return blocking.run(asked())

    def rows(self, batch: int, task: int) -> list[str]:
        return [f"{batch}/{task}/{number}" for number in range(task + 1)]

    def all_rows(self, *batches: int) -> list[str]:
        return [row for batch in batches for task in range(TASKS) for row in self.rows(batch, task)]

    def write(
        self,
        run: str,
        batch: int = 0,
        *,
        attempt: int = 0,
        timeout_ms: int = 60_000,
        seed: str = "",
    ) -> list[TaskTransaction]:
        """As the tasks do: a transaction each, left open."""

        async def one(client: Client, task: int) -> TaskTransaction:
            id = transactional_id(self.query, run, task, attempt)
            producer = PipelinedProducer(client, id, transaction_timeout_ms=timeout_ms)
            identity = await producer.start()
            rows = [row + seed for row in self.rows(batch, task)]
            built = build(LogRecord(i, 0, None, row.encode()) for i, row in enumerate(rows))
            await producer.send(
                self.topic, 0, Section(memoryview(built)[HEADER_BYTES:], len(rows), 0)
            )
            await producer.flush()
            first = producer.first_offsets[self.topic, 0]
            await producer.close()
            return TaskTransaction(
                task, identity, len(rows), sum(map(hash, rows)), self.topic, 0, first
            )

        async def work(client: Client) -> list[TaskTransaction]:
            return [await one(client, task) for task in range(TASKS)]

        found = self.ask(work)
        assert isinstance(found, list)
        return found

    def drive(
        self,
        procedure: Procedure,
        *,
        dies_before: str | None = None,
        dies_in: tuple[int, int] = (0, 0),
    ) -> None:
        """`dies_in` is which CommitTransactions, counted from one, and after how many of its transactions."""

        class Mortal(SinkDriver):
            commits = 0

            async def do(self, step: Step) -> object:
                if type(step).__name__ == dies_before:
                    raise Died(dies_before)
                if isinstance(step, CommitTransactions):
                    self.commits += 1
                    if self.commits == dies_in[0]:
                        for each in step.transactions[: dies_in[1]]:
                            assert await self.commit(each) is TransactionOutcome.COMMITTED
                        raise Died("CommitTransactions")
                return await super().do(step)

        async def work(client: Client) -> None:
            await Mortal(client, self.query, now_ms).carry_out(procedure)

        self.ask(work)

    def commit(self, run: str, written: list[TaskTransaction], batch: int = 0, **how: Any) -> None:
        self.drive(committing(self.query, run, batch, written), **how)

    def is_open(self) -> object:
        return self.ask(
            lambda client: SinkDriver(client, self.query, now_ms).do(ListOpen(self.query))
        )

    def visible(self) -> list[str]:
        return sorted(read(self.cluster.bootstrap, self.topic))

    def becomes_visible(self, rows: list[str]) -> None:
        """The markers are written soon after the decision; and then nothing more comes."""
        wait_until(lambda: self.visible() == sorted(rows), 40, f"{rows} are visible", every=0.1)
