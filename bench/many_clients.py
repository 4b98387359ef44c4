"""Many clients: connections, groups, members of one group, producers. What each costs, and how long each waits.

Every case has a cluster of its own, because memory is measured before and after. So each warms it up with its own load
first: what a JVM has not compiled yet is `cold`'s to tell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench import crowd
from bench.clients import percentiles
from bench.crowd import Beat, Crowd, Member, NewMember, all_of, paced
from bench.targets import Target

Figures = dict[str, float]
TOPIC = "bench-crowd"
PARTITIONS = 6
REBALANCES, WARMING_REBALANCES = 5, 5
REPORT_EVERY_S = 0.2
"""How soon members of the consumer protocol ask again for what others have still to give up."""
SETTLED_S = 3.0


async def _latencies(
    target: Target, beats: Sequence[Beat], rate: float, seconds: float, name: str = ""
) -> Figures:
    """Half as long to warm up, then measured."""
    await paced(beats, rate, max(1, int(rate * seconds / 2)))
    before, total = target.cpu_s(), max(1, int(rate * seconds))
    found = percentiles(await paced(beats, rate, total))
    return {
        f"{name}p50": found["p50_ms"],
        f"{name}p99": found["p99_ms"],
        "broker CPU per request": (target.cpu_s() - before) / total * 1e6,
    }


async def _idle(target: Target, seconds: float) -> Figures:
    await asyncio.sleep(SETTLED_S)
    before = target.cpu_s()
    await asyncio.sleep(seconds)
    return {"idle CPU": 100 * (target.cpu_s() - before) / seconds}


def _grown(target: Target, since: float, count: int) -> float:
    """KiB for each of so many, all brokers together."""
    return 1024 * (target.all_memory() - since) / count


def connections(count: int) -> Callable[[Target, float], Figures]:
    """They connect as clients do, 50 at a time; are idle; and then write, one after the other."""

    def run(target: Target, scale: float) -> Figures:
        target.create_topic(TOPIC, PARTITIONS)

        async def work(people: Crowd) -> Figures:
            leaders = await people.leaders(TOPIC, PARTITIONS)
            bodies = [crowd.one_record(TOPIC, index) for index in range(PARTITIONS)]

            async def open_some(many: int) -> list[Beat]:
                found = await all_of(
                    partial(crowd.opened, people, leaders[at % PARTITIONS], TOPIC)
                    for at in range(many)
                )
                return [
                    crowd.writer(channel, bodies[at % PARTITIONS])
                    for at, channel in enumerate(found)
                ]

            async with Crowd(target) as first:  # they come and go
                warm = [
                    partial(crowd.opened, first, leaders[at % PARTITIONS], TOPIC)
                    for at in range(count // 4)
                ]
                opened = await all_of(warm)
                await paced([crowd.writer(each, bodies[0]) for each in opened[::6]], 500, 1000)
            await asyncio.sleep(SETTLED_S)
            memory, cpu, began = target.all_memory(), target.cpu_s(), time.perf_counter()
            writers = await open_some(count)
            took, cpu = time.perf_counter() - began, target.cpu_s() - cpu
            idle = await _idle(target, 10 * scale)
            return {
                "all connected": took,
                "broker CPU per connection": cpu / count * 1e6,
                "memory per connection": _grown(target, memory, count),
                **idle,
                **await _latencies(target, writers, 500, 10 * scale),
                **target.memory(),
            }

        return crowd.run(work, target)

    return run


def producers(count: int, records: int = 5) -> Callable[[Target, float], Figures]:
    """Idempotent ones. Each asks for its id and writes a few records, in turns with all others."""

    def run(target: Target, scale: float) -> Figures:
        target.create_topic(TOPIC, PARTITIONS)

        async def work(people: Crowd) -> Figures:
            leaders = await people.leaders(TOPIC, PARTITIONS)

            async def some(many: int) -> list[Beat]:
                """The records of all of them, in the order in which they are sent."""
                found = await all_of(
                    partial(crowd.idempotent, people, leaders[at % PARTITIONS], TOPIC)
                    for at in range(many)
                )
                return [
                    crowd.writer(
                        channel, crowd.one_record(TOPIC, at % PARTITIONS, (id, epoch, sequence))
                    )
                    for sequence in range(records)
                    for at, (channel, id, epoch) in enumerate(found)
                ]

            warm = await some(count // 4)
            await paced(warm, 500, len(warm))
            await asyncio.sleep(SETTLED_S)
            memory, cpu = target.all_memory(), target.cpu_s()
            writes = await some(count)
            found = percentiles(await paced(writes, 500, len(writes)))
            cpu = target.cpu_s() - cpu
            return {
                "p50": found["p50_ms"],
                "p99": found["p99_ms"],
                "broker CPU per producer": cpu / count * 1e6,
                "memory per producer": _grown(target, memory, count),
                **await _idle(target, 10 * scale),
                **target.memory(),
            }

        return crowd.run(work, target)

    return run


def classic(groups: int, members: int) -> Callable[[Target, float], Figures]:
    """Every member of every group joins again at the same moment, five times; then all send heartbeats, one a second."""

    def run(target: Target, scale: float) -> Figures:
        target.create_topic(TOPIC, PARTITIONS)
        names = [f"group-{number}" for number in range(groups)]

        async def work(people: Crowd) -> Figures:
            first = await people.coordinators(names)  # makes the topic of groups
            assert len(first) == groups
            await asyncio.sleep(SETTLED_S)
            memory, everyone = target.all_memory(), groups * members
            all_members = await crowd.members_of(
                people,
                names,
                members,
                lambda channel, group: Member(channel, group, TOPIC, PARTITIONS),
            )

            async def rebalance() -> list[float]:
                for member in all_members:
                    member.prepare()
                async with asyncio.timeout(crowd.PATIENCE_S):
                    return await asyncio.gather(*(member.join() for member in all_members))

            for _ in range(1 + WARMING_REBALANCES):
                await rebalance()
            cpu, joins = target.cpu_s(), []
            for _ in range(REBALANCES):
                joins += await rebalance()
            cpu = target.cpu_s() - cpu
            found = percentiles(joins)
            beats = [member.beat() for member in all_members]
            return {
                "join p50": found["p50_ms"],
                "join p99": found["p99_ms"],
                "broker CPU per join": cpu / len(joins) * 1e6,
                **await _latencies(target, beats, everyone, 10 * scale, "heartbeat "),
                "memory per member": _grown(target, memory, everyone),
                **target.memory(),
            }

        return crowd.run(work, target)

    return run


def consumers(members: int) -> Callable[[Target, float], Figures]:
    """The same with the consumer protocol, in one group: all join at once, twice; then heartbeats, one a second each."""

    def run(target: Target, scale: float) -> Figures:
        partitions = 2 * members
        target.create_topic(TOPIC, partitions)

        async def work(people: Crowd) -> Figures:
            all_members = await crowd.members_of(
                people, ["group"], members, lambda channel, group: NewMember(channel, group, TOPIC)
            )

            async def rebalance() -> tuple[list[float], float]:
                began = time.perf_counter()
                joins = await asyncio.gather(*(member.join() for member in all_members))
                await crowd.until_assigned(all_members, partitions, REPORT_EVERY_S)
                return joins, time.perf_counter() - began

            for _ in range(2):
                await rebalance()
                await asyncio.gather(*(member.leave() for member in all_members))
            cpu = target.cpu_s()
            joins, took = await rebalance()
            cpu = target.cpu_s() - cpu
            found = percentiles(joins)
            beats = [member.beat() for member in all_members]
            return {
                "join p50": found["p50_ms"],
                "join p99": found["p99_ms"],
                "all assigned": took,
                "broker CPU per join": cpu / len(joins) * 1e6,
                **await _latencies(target, beats, members, 10 * scale, "heartbeat "),
                **target.memory(),
            }

        return crowd.run(work, target)

    return run
