"""What a scrape of a node with many partitions costs: processor time, and the longest turn of its event loop.

Processor time of the loop's thread, because the machine may do other things; the median of several scrapes.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from ottla.broker.node import Node
from ottla.broker.observability.http import HttpRequest
from unit.broker.one_node import alone, create

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCRAPES = 15
PER_TOPIC = 100


class Scrape(NamedTuple):
    seconds: float
    longest_turn_s: float
    lines: int


async def scrape(node: Node) -> Scrape:
    assert node.observability is not None
    turns: list[float] = []

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            turns.append(now - before)
            before = now

    watching = asyncio.ensure_future(watch())
    began = time.thread_time()
    page = await node.observability._metrics_page(HttpRequest("GET", "/metrics", "", {}, True))
    seconds = time.thread_time() - began
    watching.cancel()
    return Scrape(seconds, max(turns), page.body.count(b"\n"))


def scrapes(directory: Path, partitions: int) -> list[Scrape]:
    async def run() -> list[Scrape]:
        node, channel = await alone(directory, metrics_listeners="HTTP://127.0.0.1:0")
        try:
            for number in range(partitions // PER_TOPIC):
                await create(channel, f"topic-{number}", [[1]] * PER_TOPIC)
            assert node.broker is not None
            while len(node.broker.replicas.partitions) < partitions:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the replicas are made in turns of the loop
            await scrape(node)  # makes the labels
            return [await scrape(node) for _ in range(SCRAPES)]
        finally:
            channel.close()
            await node.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("partitions", "limit_s"), [(1_000, 0.05), (10_000, 0.3)])
def test_a_scrape_is_short_and_does_not_hold_up_the_node(
    tmp_path: Path, partitions: int, limit_s: float
) -> None:
    found = scrapes(tmp_path, partitions)
    assert statistics.median(each.seconds for each in found) < limit_s, found
    assert statistics.median(each.longest_turn_s for each in found) < 0.005, found
    # Series of their own up to a limit, and not one line for each partition beyond it.
    assert 15 * min(partitions, 2_000) < found[-1].lines < 25 * min(partitions, 2_000), found[-1]
