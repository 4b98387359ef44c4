"""Moves of replicas, from the first request to the removed throttle; of any Kafka, since it is Kafka's protocol only.

The controller keeps what was started, so a move goes on whoever watches it. A run here starts moves (all, or so many at
once), watches them, adapts the throttle, gives leadership to the preferred replicas and removes the throttle at the end.
Controllers and brokers may die meanwhile: what fails for a while is tried again. Others may delete topics or cancel moves
meanwhile: what is deleted needs no move, and at the end the run looks whether everything is where it shall be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.balance.model import DISK_FULL
from ottla.balance.pace import Copied
from ottla.client.admin import Admin, DescribedPartition, DescribedTopic, LogDir, Outcome, Place
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.model import Reassignment
from ottla.client.move_pace import MovePace, Throttle, least_seconds, patiently
from ottla.client.throttled_moves import (
    BROKER_PATIENCE_S,
    LeftOver,
    MoveThrottle,
    NamedReplicas,
    copying,
)
from ottla.wire.errors import ErrorCode, KafkaError

POLL_S = 0.5
KNOWN_AFTER_S = 5.0
"""In which the broker that is asked knows what the controller has decided."""
LOOK_AGAIN_S = 0.2
READINGS_OF_RATE = 20
PREFERRED: Final = 0
"""Kafka's type of an election that gives leadership back to the first replica."""
UNCLEAN: Final = 1
"""Kafka's type of an election of any replica that lives, if no other can lead."""
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class MoveRefused(Exception):
    """The controller did not start some of the moves; the others were carried out."""

    def __init__(self, refused: Mapping[Place, KafkaError]) -> None:
        self.refused = dict(refused)
        (topic, partition), why = next(iter(sorted(self.refused.items())))
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        super().__init__(f"{topic}-{partition}: {why}{more}")


class MovesUndone(Exception):
    """Somebody else has cancelled these moves, or moved the partitions elsewhere."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = list(places)
        topic, partition = self.places[0]
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        super().__init__(
            f"somebody else has cancelled the move of {topic}-{partition}{more}, or moved it elsewhere"
        )


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
    held_by: str | None = None
    """What slows it down, in words."""
    coming: Mapping[int, int] = {}
    """Bytes that each broker has yet to copy."""
    limited: tuple[int, ...] = ()
    """At the end: brokers that are down, and keep their rates."""

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
    def left(self) -> int:
        return self.total - self.moved

    @property
    def copied(self) -> Copied:
        return Copied(self.seconds, self.moved, self.left)

    @property
    def seconds_left(self) -> float | None:
        """At the present rate, and not before the throttle allows: a throttle lets a burst through first, which promises
        too much. None while nothing arrives."""
        if self.rate <= 0:
            return None
        least = least_seconds(max(self.coming.values(), default=0), self.throttle)
        return max(self.left / self.rate, least)


class Disks(NamedTuple):
    sizes: dict[tuple[int, Place], int]
    """Bytes of each replica."""
    directories: dict[int, list[LogDir]]

    def obstacle(self, brokers: Iterable[int]) -> str | None:
        """What to say of a broker to which nothing can be copied."""
        for id in sorted(brokers):
            if id not in self.directories:
                return f"broker {id} does not answer"
            for each in self.directories[id]:
                if each.is_full:
                    return (
                        f"the disk of {each.path} on broker {id} is full: free space there, or cancel the move"
                        " (ottla reassign cancel)"
                    )
        return None


class Shortage(NamedTuple):
    broker: int
    coming: int
    """Bytes that shall be copied to it."""
    free: int


class MoveHistory:
    """What a run has reported lately: its rate, and whether anything arrives."""

    def __init__(self) -> None:
        self._reported: list[tuple[float, int]] = []
        self._ended: dict[Place, PartitionMove] = {}
        self.progress = False
        """Something was copied since the report before."""

    def report(
        self,
        partitions: Mapping[Place, PartitionMove],
        coming: Mapping[int, int],
        seconds: float,
        facts: Mapping[str, Any],
    ) -> MoveProgress:
        partitions = {place: self._at_its_end(place, each) for place, each in partitions.items()}
        found = MoveProgress(partitions, seconds, 0.0, coming=coming, **facts)
        self.progress = not self._reported or found.moved > self._reported[-1][1]
        self._reported = [*self._reported, (seconds, found.moved)][-READINGS_OF_RATE:]
        (first_s, first), (last_s, last) = self._reported[0], self._reported[-1]
        rate = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        return found._replace(rate=rate)

    def _at_its_end(self, place: Place, move: PartitionMove) -> PartitionMove:
        """What producers add to a replica that has arrived is not copied by this move."""
        if not move.is_done:
            self._ended.pop(place, None)
            return move
        return self._ended.setdefault(place, move)


class Reassigner:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self.throttle = MoveThrottle(client)

    # Looking

    async def active(self) -> dict[Place, Reassignment]:
        found = await patiently(self._client.reassignments)
        return {(each.topic, each.partition): each for each in found}

    async def partitions(
        self, topics: Iterable[str], *, gone_too: bool = False
    ) -> dict[Place, DescribedPartition]:
        """KafkaError if a topic does not exist, unless some may be gone."""
        names = sorted(set(topics))
        found: dict[Place, DescribedPartition] = {}
        answer = await patiently(lambda: self._admin.describe_topics(names))
        for name, topic in answer.items():
            if not isinstance(topic, DescribedTopic):
                if gone_too and topic.code is GONE:
                    continue
                raise KafkaError(topic.code, f"topic {name}")
            found |= {(name, each.partition): each for each in topic.partitions}
        return found

    async def disks(self, brokers: Iterable[int], places: Collection[Place]) -> Disks:
        """Of those brokers that answer."""
        living = {each.id for each in (await patiently(lambda: self._client.metadata([]))).brokers}
        found = Disks({}, {})
        for broker in sorted(set(brokers) & living):
            try:
                async with asyncio.timeout(BROKER_PATIENCE_S):
                    directories = await self._admin.log_dirs(broker, places)
            except (OSError, Unreachable, KafkaError):
                continue  # it has just died, or its connection has
            found.directories[broker] = directories
            for directory in directories:
                found.sizes.update(
                    {
                        (broker, each.place): each.size
                        for each in directory.replicas
                        if not each.future
                    }
                )
        return found

    async def shortages(self, targets: Mapping[Place, Sequence[int]]) -> list[Shortage]:
        """Brokers whose disks have no room for what is to come."""
        current = await self.partitions({topic for topic, _ in targets}, gone_too=True)
        brokers = {id for each in targets.values() for id in each}
        brokers |= {id for each in current.values() for id in each.replicas}
        disks = await self.disks(brokers, targets)
        coming: dict[int, int] = {}
        for place, replicas in targets.items():
            if place in current:
                have = current[place].replicas
                size = max((disks.sizes.get((id, place), 0) for id in have), default=0)
                for id in set(replicas) - set(have):
                    coming[id] = coming.get(id, 0) + size
        found = []
        for id, bytes_ in sorted(coming.items()):
            free = [each.usable_bytes for each in disks.directories.get(id, ())]
            total = sum(each.total_bytes or 0 for each in disks.directories.get(id, ()))
            known = [each for each in free if each is not None]
            if known and len(known) == len(free):
                room = sum(known) - int(total * (1 - DISK_FULL))
                if bytes_ > max(0, room):
                    found.append(Shortage(id, bytes_, sum(known)))
        return found

    async def left_over(
        self, ended: Collection[Place] = (), limited: Collection[int] = ()
    ) -> LeftOver:
        """Throttles of what is not being copied: neither moved, nor to a named replica that is out of sync (as after the loss
        of a disk). Of what has `ended` the caller knows that it does not go on, also if a replica has just fallen behind;
        and of `limited` brokers that it has given them a rate."""
        named = await patiently(self.throttle.named)
        copied = set(await self.active())
        rebuilt: set[int] = set()
        topics = [topic for topic, names in named.items() if not names.has_all]
        for place, each in (await self.partitions(topics, gone_too=True)).items():
            behind = set(each.replicas) - set(each.isr)
            behind &= named[place[0]].destinations(place[1])
            if place not in ended and place not in copied and behind:
                copied.add(place)
                rebuilt |= behind
        found = await patiently(lambda: self.throttle.left_over(named, copied, limited))
        return found._replace(waits_for=await self._down(rebuilt))

    async def _down(self, brokers: Collection[int]) -> tuple[int, ...]:
        if not brokers:
            return ()
        living = {each.id for each in (await patiently(lambda: self._client.metadata([]))).brokers}
        return tuple(sorted(set(brokers) - living))

    async def remove_left_over(
        self, ended: Collection[Place] = (), limited: Collection[int] = ()
    ) -> LeftOver:
        """Remove throttles that a command left behind; not of what is being copied."""
        return await self._remove(await self.left_over(ended, limited))

    async def _remove(self, found: LeftOver) -> LeftOver:
        if not found:
            return found
        stays_on = await patiently(lambda: self.throttle.remove(found))
        return found._replace(stays_on=tuple(stays_on))

    async def going_on(self) -> set[Place]:
        """What is being moved, or copied under a throttle of ours."""
        named = await patiently(self.throttle.named)
        found = set(await self.active())
        for topic, names in named.items():
            if not names.has_all:
                found |= {(topic, int(each.split(":")[0])) for each in names.followers}
        return found

    async def remove_throttles(self) -> LeftOver:
        """All of them but somebody's own, also of what is being copied."""
        named: Mapping[str, NamedReplicas] = await patiently(self.throttle.named)
        return await self._remove(await patiently(lambda: self.throttle.left_over(named, ())))

    # Doing

    async def cancel(self, places: Iterable[Place]) -> list[Place]:
        """Those that were being moved, and are as before now."""
        active = await self.active()
        moving = sorted(place for place in set(places) if place in active)
        if moving:
            outcomes = await patiently(lambda: self._admin.reassign(dict.fromkeys(moving)))
            _check(outcomes, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return moving

    async def elect(self, places: Collection[Place]) -> dict[Place, KafkaError]:
        """Give leadership to the preferred replicas. Returns where that failed."""
        if not places:
            return {}
        outcomes = await patiently(lambda: self._admin.elect_leaders(PREFERRED, places))
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
        keep_factor: bool = True,
    ) -> AsyncIterator[MoveProgress]:
        """Do all of this, and say now and then how far it is. If the caller stops listening, the moves that were started
        go on under their throttle, until another command ends it. `keep_factor`: a plan that was overtaken by other moves
        is refused rather than change the number of replicas."""
        current = await self.partitions({topic for topic, _ in targets})
        missing = [place for place in targets if place not in current]
        if missing:
            topic, number = missing[0]
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"there is no partition {topic}-{number}")
        await self._require_known({id for each in targets.values() for id in each}, current)
        run = _Run(self, self._client, targets, current, throttle, at_once, keep_factor)
        try:
            await run.prepare()
            async for progress in run.watch():
                yield progress
            yield await run.finish()
        except Exception:
            await self.remove_left_over(limited=run.limited)
            raise
        run.check()

    async def _require_known(
        self, ids: Collection[int], current: Mapping[Place, DescribedPartition]
    ) -> None:
        """Before anything is moved. Brokers that are down are known."""
        cluster = await patiently(self._client.describe_cluster)
        known = {each.id for each in cluster.brokers}
        known |= {id for each in current.values() for id in each.replicas}
        for id in sorted(set(ids) - known):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {id} is no broker of this cluster"
            )

    async def start(
        self, targets: Mapping[Place, Sequence[int]], *, keep_factor: bool
    ) -> dict[Place, KafkaError]:
        """Returns what the controller refuses to move."""
        outcomes = await patiently(lambda: self._admin.reassign(targets, keep_factor=keep_factor))
        return {place: error for place, error in outcomes.items() if error is not None}


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
        keep_factor: bool,
    ) -> None:
        self._moves = moves
        self._targets = targets
        self._current = current
        self._at_once = at_once
        self._keep_factor = keep_factor
        self._adding = {
            place: set(replicas) - set(current[place].replicas)
            for place, replicas in targets.items()
        }
        self._brokers = {id for place in targets for id in current[place].replicas} | {
            id for replicas in targets.values() for id in replicas
        }
        self._pace = MovePace(client, throttle, self._brokers)
        self._history = MoveHistory()
        self._sizes: dict[tuple[int, Place], int] = {}
        self._pending: list[Place] = []
        self._started: set[Place] = set()
        self._arrived: set[Place] = set()
        """Of these, those that are known to be where they shall be, or deleted."""
        self._is_cancelled = False
        self._refused: dict[Place, KafkaError] = {}
        self._gone: set[Place] = set()
        """Deleted meanwhile."""
        self._undone: list[Place] = []

    @property
    def limited(self) -> set[int]:
        return self._pace.limited

    async def prepare(self) -> None:
        """Limit the rate before anything is copied."""
        active = await self._moves.active()
        for place in sorted(active.keys() & self._targets.keys()):
            # What an earlier run started: the replicas that it adds are being copied.
            self._adding[place] |= set(active[place].adding) & set(self._targets[place])
        self._sizes = (await self._moves.disks(self._brokers, self._targets)).sizes
        for place, replicas in sorted(self._targets.items()):
            change = active.get(place)
            wanted = tuple(replicas)
            if change is not None and change.goal == wanted:
                self._started.add(place)
            elif change is not None or self._current[place].replicas != wanted:
                self._pending.append(place)
        # What costs nothing first: other orders, and fewer replicas.
        self._pending.sort(key=lambda place: bool(self._adding[place]))
        if any(self._adding.values()):
            await self._pace.begin(is_quiet=not active)
            await self._cover(self._started, active)

    async def _cover(self, places: Collection[Place], active: Mapping[Place, Reassignment]) -> None:
        targets = {place: self._targets[place] for place in places}
        goes_on = {place: change for place, change in active.items() if place in targets}
        before = {place: self._current[place].replicas for place in targets}
        await self._pace.cover(copying(targets, goes_on, before))

    async def watch(self) -> AsyncIterator[MoveProgress]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            active = await self._moves.active()
            self._is_cancelled = self._is_cancelled or await self._went_back(active)
            if await self._start_more(active):
                active = await self._moves.active()  # also what was started just now
            disks = await self._moves.disks(self._brokers, self._targets)
            self._sizes |= disks.sizes
            progress = self._progress(active, loop.time() - began)
            is_begun = self._is_cancelled or not self._pending
            if is_begun and not any(place in active for place in self._started):
                return
            open_ = [place for place in self._started if place in active]
            await self._pace.adapt(open_, progress.copied)
            facts = self._pace.facts
            if not self._history.progress:
                facts["held_by"] = await self._obstacle(open_, disks) or facts["held_by"]
            yield progress._replace(**facts)
            await asyncio.sleep(POLL_S)

    async def _obstacle(self, open_: Collection[Place], disks: Disks) -> str | None:
        now = await self._moves.partitions({topic for topic, _ in open_}, gone_too=True)
        sources = {place: now[place] for place in open_ if place in now}
        return leaderless(sources) or disks.obstacle(
            {id for place in open_ for id in self._adding[place]}
        )

    async def _went_back(self, active: Mapping[Place, Reassignment]) -> bool:
        """Whether a move has ended elsewhere. Who cancels some of many wants no others to be begun in their place."""
        ended = self._started - active.keys() - self._arrived
        if not ended or not self._pending:
            return False
        now = await self._settled(ended)
        self._arrived |= {each for each in ended if each not in now or self._is_there(each, now)}
        return not ended <= self._arrived

    async def _start_more(self, active: Mapping[Place, Reassignment]) -> bool:
        """Whether there was anything to start, and room for it."""
        if self._is_cancelled:
            return False
        moving = sum(place in active for place in self._started)
        room = len(self._pending) if self._at_once is None else max(0, self._at_once - moving)
        chosen, self._pending = self._pending[:room], self._pending[room:]
        if not chosen:
            return False
        await self._cover(chosen, active)
        wanted = {place: self._targets[place] for place in chosen}
        refused = await self._moves.start(wanted, keep_factor=self._keep_factor)
        self._gone |= {place for place, error in refused.items() if error.code is GONE}
        self._refused |= {
            place: error for place, error in refused.items() if error.code is not GONE
        }
        self._started |= set(chosen) - refused.keys()
        return True

    def _progress(self, active: Mapping[Place, Reassignment], seconds: float) -> MoveProgress:
        found = {
            place: self._of(place, place not in active and place not in self._pending)
            for place in self._targets
            if place not in self._gone and place not in self._refused
        }
        open_ = [place for place, each in found.items() if not each.is_done]
        self._last = self._history.report(found, self._coming(open_), seconds, self._pace.facts)
        return self._last

    def _coming(self, open_: Iterable[Place]) -> dict[int, int]:
        coming: dict[int, int] = {}
        for place in open_:
            whole = self._size(place)
            for id in self._adding[place]:
                lacks = max(0, whole - self._sizes.get((id, place), 0))
                coming[id] = coming.get(id, 0) + lacks
        return coming

    def _size(self, place: Place) -> int:
        """Of one whole replica."""
        replicas = self._current[place].replicas
        return max((self._sizes.get((id, place), 0) for id in replicas), default=0)

    def _of(self, place: Place, is_done: bool) -> PartitionMove:
        total = self._size(place) * len(self._adding[place])
        if is_done:
            return PartitionMove(total, total, True)
        arrived = sum(self._sizes.get((id, place), 0) for id in self._adding[place])
        return PartitionMove(min(arrived, total), total, False)

    async def finish(self) -> MoveProgress:
        """Leaders to the preferred replicas, and no throttle any more. Returns how all ended."""
        now = await self._settled(self._targets)
        self._gone |= self._targets.keys() - now.keys()
        there = [place for place in sorted(self._targets) if self._is_there(place, now)]
        away = [place for place in there if now[place].leader != self._targets[place][0]]
        await self._moves.elect(away)
        removed = await self._moves.remove_left_over(self._targets.keys(), self.limited)
        ended = {place: each for place, each in self._last.partitions.items() if place in there}
        known = self._gone | self._refused.keys() | set(there)
        self._undone = sorted(self._targets.keys() - known)
        return self._last._replace(partitions=ended, limited=removed.stays_on)

    def check(self) -> None:
        """That all is where it shall be."""
        if self._refused:
            raise MoveRefused(self._refused)
        if self._undone:
            raise MovesUndone(self._undone)

    async def _settled(self, places: Iterable[Place]) -> Mapping[Place, DescribedPartition]:
        """As the broker that is asked knows it, once it knows the end of all moves; soon, if they did not end as they
        should. A plan that is made before would move them again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KNOWN_AFTER_S
        places = list(places)
        while True:
            now = await self._moves.partitions({topic for topic, _ in places}, gone_too=True)
            mine = [place for place in places if place in now and place not in self._refused]
            if all(self._is_there(place, now) for place in mine) or loop.time() >= deadline:
                return now
            await asyncio.sleep(LOOK_AGAIN_S)

    def _is_there(self, place: Place, now: Mapping[Place, DescribedPartition]) -> bool:
        return place in now and now[place].replicas == tuple(self._targets[place])


def leaderless(partitions: Mapping[Place, DescribedPartition]) -> str | None:
    """What to say of partitions that nobody can copy."""
    for (topic, number), each in sorted(partitions.items()):
        if each.leader < 0:
            name = f"{topic}-{number}"
            have = ", ".join(map(str, sorted({*each.isr, *(each.elr or ())})))
            until = f" until broker {have}, which has its records, is back" if have else ""
            return f"{name} has no leader to copy from{until} (ottla explain {name})"
    return None


def _check(outcomes: Mapping[Place, Outcome], fine: ErrorCode) -> None:
    refused = {
        place: error
        for place, error in outcomes.items()
        if error is not None and error.code not in (fine, GONE)
    }
    if refused:
        raise MoveRefused(refused)
