"""Moves of replicas, from the first request to the removed throttle; of any Kafka, since it is Kafka's protocol only.

The controller keeps what was started, so a move goes on whoever watches it. A run here starts moves (all, or so many at
once), watches them, adapts the throttle, gives leadership to the preferred replicas and removes the throttle at the end.
Controllers and brokers may die meanwhile: what fails for a while is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Final, NamedTuple, TypeVar

from ottla.balance.pace import CopyPace
from ottla.client.admin import Admin, DescribedPartition, DescribedTopic, Outcome, Place
from ottla.client.client import Client
from ottla.client.connections import SecurityRefused, Unreachable
from ottla.client.model import Reassignment
from ottla.client.produce_latency import ProduceLatency
from ottla.client.throttled_moves import LeftOver, MoveThrottle, copying
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

POLL_S = 0.5
PATIENCE_S = 120.0
"""How long a cluster may not answer, for example without an active controller."""
RETRY_PAUSE_S = 0.2
QUIET_READINGS = 3
PREFERRED: Final = 0
"""Kafka's type of an election that gives leadership back to the first replica."""

Throttle = CopyPace | int | None
"""An adapted rate, a fixed one, or none."""


class MoveRefused(Exception):
    """The controller does not start some of the moves; those that it started go on."""

    def __init__(self, refused: Mapping[Place, KafkaError]) -> None:
        self.refused = dict(refused)
        (topic, partition), why = next(iter(sorted(self.refused.items())))
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        super().__init__(f"{topic}-{partition}: {why}{more}")


class PartitionMove(NamedTuple):
    """How far one partition is."""

    moved: int
    total: int
    is_done: bool


class MoveProgress(NamedTuple):
    partitions: Mapping[Place, PartitionMove]
    seconds: float
    rate: float
    """Bytes per second, lately."""
    throttle: int | None
    """Bytes per second that each broker may copy."""
    latency_s: float | None
    """Of producers, if it is watched."""

    @property
    def moved(self) -> int:
        return sum(each.moved for each in self.partitions.values())

    @property
    def total(self) -> int:
        return sum(each.total for each in self.partitions.values())

    @property
    def done(self) -> int:
        return sum(each.is_done for each in self.partitions.values())

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.moved) / self.rate if self.rate > 0 else None


class Reassigner:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self.throttle = MoveThrottle(client)

    # Looking

    async def active(self) -> dict[Place, Reassignment]:
        found = await self.patiently(self._client.reassignments)
        return {(each.topic, each.partition): each for each in found}

    async def partitions(self, topics: Iterable[str]) -> dict[Place, DescribedPartition]:
        """KafkaError if a topic does not exist."""
        names = sorted(set(topics))
        found: dict[Place, DescribedPartition] = {}
        answer = await self.patiently(lambda: self._admin.describe_topics(names))
        for name, topic in answer.items():
            if not isinstance(topic, DescribedTopic):
                raise KafkaError(topic.code, f"topic {name}")
            found |= {(name, each.partition): each for each in topic.partitions}
        return found

    async def sizes(
        self, brokers: Iterable[int], places: Collection[Place]
    ) -> dict[tuple[int, Place], int]:
        """Bytes of each replica of these partitions, of those brokers that answer."""
        living = {
            each.id for each in (await self.patiently(lambda: self._client.metadata([]))).brokers
        }
        found: dict[tuple[int, Place], int] = {}
        for broker in sorted(set(brokers) & living):
            try:
                for directory in await self._admin.log_dirs(broker, places):
                    found |= {
                        (broker, each.place): each.size
                        for each in directory.replicas
                        if not each.future
                    }
            except (OSError, Unreachable, KafkaError):
                continue  # it has just died, or its connection has
        return found

    async def remove_left_over(self) -> LeftOver:
        """Remove throttles that a command left behind; nothing while something is being moved."""
        if await self.active():
            return LeftOver((), ())
        found = await self.patiently(self.throttle.left_over)
        if found:
            await self.patiently(lambda: self.throttle.remove(found))
        return found

    # Doing

    async def cancel(self, places: Iterable[Place]) -> list[Place]:
        """Those that were being moved, and are as before now."""
        active = await self.active()
        moving = sorted(place for place in set(places) if place in active)
        if moving:
            outcomes = await self.patiently(lambda: self._admin.reassign(dict.fromkeys(moving)))
            _check(outcomes, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return moving

    async def elect(self, places: Collection[Place]) -> dict[Place, KafkaError]:
        """Give leadership to the preferred replicas. Returns where that failed."""
        if not places:
            return {}
        outcomes = await self.patiently(lambda: self._admin.elect_leaders(PREFERRED, places))
        return {
            place: error
            for place, error in sorted(outcomes.items())
            if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }

    async def run(
        self,
        targets: Mapping[Place, Sequence[int]],
        throttle: Throttle,
        *,
        at_once: int | None = None,
    ) -> AsyncIterator[MoveProgress]:
        """Do all of this, and say now and then how far it is. If the caller stops listening, the moves that were started
        go on under their throttle, until another command ends it."""
        current = await self.partitions({topic for topic, _ in targets})
        missing = [place for place in targets if place not in current]
        if missing:
            topic, number = missing[0]
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"there is no partition {topic}-{number}")
        run = _Run(self, self._client, targets, current, throttle, at_once)
        try:
            await run.prepare()
            async for progress in run.watch():
                yield progress
            await run.finish()
        except Exception:
            await self.remove_left_over()
            raise

    async def start(self, targets: Mapping[Place, Sequence[int]]) -> None:
        outcomes = await self.patiently(lambda: self._admin.reassign(targets))
        _check(outcomes)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again what fails because a broker or the controller has died."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                return await attempt()
            except SecurityRefused:
                raise
            except (OSError, Unreachable):
                if loop.time() > deadline:
                    raise
            except KafkaError as error:
                gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not error.retriable or error.code is gone or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)


class _Run:
    """One run of `Reassigner.run`."""

    def __init__(
        self,
        moves: Reassigner,
        client: Client,
        targets: Mapping[Place, Sequence[int]],
        current: Mapping[Place, DescribedPartition],
        throttle: Throttle,
        at_once: int | None,
    ) -> None:
        self._moves = moves
        self._targets = targets
        self._current = current
        self._throttle = throttle
        self._at_once = at_once
        self._adding = {
            place: set(replicas) - set(current[place].replicas)
            for place, replicas in targets.items()
        }
        self._brokers = {id for place in targets for id in current[place].replicas} | {
            id for replicas in targets.values() for id in replicas
        }
        self._latency = ProduceLatency(client, self._brokers)
        self._limited_to: int | None = None
        self._unlimited: set[int] = set()
        """Brokers that were down when the limit was set."""
        self._sizes: dict[tuple[int, Place], int] = {}
        self._pending: list[Place] = []
        self._started: set[Place] = set()
        self._reported: list[tuple[float, int]] = []

    async def prepare(self) -> None:
        """Limit the rate before anything is copied."""
        active = await self._moves.active()
        for place in sorted(active.keys() & self._targets.keys()):
            # What an earlier run started: the replicas that it adds are being copied.
            self._adding[place] |= set(active[place].adding) & set(self._targets[place])
        self._sizes = await self._moves.sizes(self._brokers, self._targets)
        for place, replicas in sorted(self._targets.items()):
            change = active.get(place)
            wanted = tuple(replicas)
            goes_on = change is not None and change.replicas[: len(wanted)] == wanted
            if goes_on:
                self._started.add(place)
            elif change is not None or self._current[place].replicas != wanted:
                self._pending.append(place)
        # What costs nothing first: other orders, and fewer replicas.
        self._pending.sort(key=lambda place: bool(self._adding[place]))
        if self._throttle is None or not any(self._adding.values()):
            return
        before = {place: each.replicas for place, each in self._current.items()}
        if isinstance(self._throttle, CopyPace):
            await self._moves.patiently(self._latency.find_pages)
            if not active:
                self._throttle.quiet_s = await self._quiet()
        moves = copying(self._targets, active, before)
        await self._moves.patiently(lambda: self._moves.throttle.name_replicas(moves))
        await self._limit(
            self._throttle if isinstance(self._throttle, int) else self._throttle.rate
        )

    async def _quiet(self) -> float:
        """How long producers wait before anything is moved."""
        readings = []
        for _ in range(QUIET_READINGS):
            await asyncio.sleep(POLL_S)
            readings.append(await self._latency.read())
        return max((each for each in readings if each is not None), default=0.0)

    async def _limit(self, rate: int) -> None:
        """Also a broker that was down and is back."""
        brokers = self._brokers if rate != self._limited_to else self._unlimited
        if brokers:
            missed = await self._moves.patiently(
                lambda: self._moves.throttle.limit_living(brokers, rate)
            )
            self._unlimited = set(missed)
            self._limited_to = rate

    async def watch(self) -> AsyncIterator[MoveProgress]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        moved = -1
        while True:
            active = await self._moves.active()
            await self._start_more(active)
            if not self._pending and not (self._started & active.keys()):
                active = await self._moves.active()  # also what was started just now
            self._sizes |= await self._moves.sizes(self._brokers, self._targets)
            progress = self._progress(active, loop.time() - began, None)
            is_over = not self._pending and not any(place in active for place in self._started)
            if is_over:
                yield progress
                return
            latency = await self._adapt(progress.moved > moved)
            moved = progress.moved
            yield progress._replace(latency_s=latency)
            await asyncio.sleep(POLL_S)

    async def _start_more(self, active: Mapping[Place, Reassignment]) -> None:
        moving = sum(place in active for place in self._started)
        room = len(self._pending) if self._at_once is None else max(0, self._at_once - moving)
        chosen, self._pending = self._pending[:room], self._pending[room:]
        if chosen:
            await self._moves.start({place: self._targets[place] for place in chosen})
            self._started |= set(chosen)

    async def _adapt(self, progress: bool) -> float | None:
        if self._limited_to is None:
            return None
        if isinstance(self._throttle, int):
            await self._limit(self._throttle)
            return None
        assert self._throttle is not None
        latency = await self._latency.read()
        await self._limit(self._throttle.read(latency, progress=progress))
        return latency

    def _progress(
        self, active: Mapping[Place, Reassignment], seconds: float, latency_s: float | None
    ) -> MoveProgress:
        found = {}
        for place in self._targets:
            is_done = place not in active and place not in self._pending
            found[place] = self._of(place, is_done)
        moved = sum(each.moved for each in found.values())
        self._reported = [*self._reported, (seconds, moved)][-20:]
        (first_s, first), (last_s, last) = self._reported[0], self._reported[-1]
        rate = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        return MoveProgress(found, seconds, rate, self._limited_to, latency_s)

    def _of(self, place: Place, is_done: bool) -> PartitionMove:
        stayed = [self._sizes.get((id, place), 0) for id in self._current[place].replicas]
        total = max(stayed, default=0) * len(self._adding[place])
        if is_done:
            return PartitionMove(total, total, True)
        arrived = sum(self._sizes.get((id, place), 0) for id in self._adding[place])
        return PartitionMove(min(arrived, total), total, False)

    async def finish(self) -> None:
        """Leaders to the preferred replicas, and no throttle any more."""
        now = await self._moves.partitions({topic for topic, _ in self._targets})
        away = [
            place
            for place, replicas in sorted(self._targets.items())
            if place in now and now[place].leader != replicas[0]
        ]
        await self._moves.elect(away)
        await self._moves.remove_left_over()


def _check(outcomes: Mapping[Place, Outcome], fine: ErrorCode = ErrorCode.NONE) -> None:
    refused = {
        place: error
        for place, error in outcomes.items()
        if error is not None and error.code is not fine
    }
    if refused:
        raise MoveRefused(refused)
