"""One machine with one node, and with one for each of its cores: how much more it does.

A node is one process that uses one core. Topics have one replica here, because replicas of a partition are never on one
machine (`ottla up --per-machine`). The load is such that it costs a client little and a broker much: requests that were made
before, each with one small batch for every partition that a node leads. Still the client takes its share of the same cores.
"""

from __future__ import annotations

import asyncio
import os
import time
from statistics import median

from bench import crowd
from bench.crowd import Crowd
from bench.targets import Ottla
from ottla.records.record import Record, build
from ottla.wire import produce
from ottla.wire.apis import ApiKey

Row = dict[str, float]
TOPIC, PARTITIONS = "cores", 400
ROUNDS, WARM_S, SECONDS = 3, 2.0, 6.0
IN_FLIGHT = 4
"""Requests that a node has at any time."""


def measure() -> list[Row]:
    """In turns; the median of each."""
    sizes = (1, os.cpu_count() or 1)
    rounds: dict[int, list[Row]] = {size: [] for size in sizes}
    for _ in range(ROUNDS):
        for size in sizes:
            rounds[size].append(_once(size))
    return [
        {name: median(row[name] for row in rows) for name in rows[0]} for rows in rounds.values()
    ]


def _once(nodes: int) -> Row:
    with Ottla(nodes, per_machine=nodes) as machine:
        machine.create_topic(TOPIC, PARTITIONS)

        async def work(people: Crowd) -> Row:
            leaders = await people.leaders(TOPIC, PARTITIONS)
            written = 0

            async def write(broker: int) -> None:
                nonlocal written
                led = [index for index, leader in enumerate(leaders) if leader == broker]
                channel, body = await people.connect(broker), _body(led)
                errors = {-1}
                while errors != {0}:  # until every node knows what it leads
                    answer = await crowd.answered(channel, ApiKey.PRODUCE, crowd.PRODUCE, body)
                    results = produce.read_response(crowd.PRODUCE, memoryview(answer), 0).results
                    errors = {int(each.error) for each in results}
                while True:
                    again = await crowd.answered(channel, ApiKey.PRODUCE, crowd.PRODUCE, body)
                    assert len(again) == len(answer), "an error says more"
                    written += len(led)

            tasks = [
                asyncio.ensure_future(write(broker))
                for broker in sorted(set(leaders))
                for _ in range(IN_FLIGHT)
            ]
            await asyncio.sleep(WARM_S)
            before, cpu, began = written, machine.cpu_s(), time.perf_counter()
            own = time.process_time()
            await asyncio.sleep(SECONDS)
            took, done = time.perf_counter() - began, written - before
            used, own = machine.cpu_s() - cpu, time.process_time() - own
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            assert not failed, failed
            return {
                "nodes": nodes,
                "load average of the machine": os.getloadavg()[0],
                "batches/s": done / took,
                "brokers' CPU, µs a batch": used / done * 1e6,
                "batches/s for each core that brokers use": done / used,
                "cores that brokers use": used / took,
                "cores that the client uses": own / took,
            }

        return crowd.run(work, machine)


def _body(partitions: list[int]) -> bytes:
    record = Record(0, int(time.time() * 1000), None, b"x" * 100)
    rows = [
        produce.PartitionData(TOPIC, None, index, memoryview(build([record])))
        for index in partitions
    ]
    return produce.write_request(crowd.PRODUCE, produce.ProduceRequest(None, -1, 30_000, rows))
