"""Brokers that come and go, of any Kafka: what is known of one, whom it may get replicas from, and its end.

Nothing here is remembered outside the cluster. A drain that goes on is seen by the reassignments that go on, and by the
cordon of its broker (KIP-1066): so whoever runs the same command again carries on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin import BROKER, Admin, DescribedPartition, DescribedTopic, Place
from ottla.client.client import Client
from ottla.client.cluster_picture import ClusterPicture, cluster_picture
from ottla.client.connections import Unreachable
from ottla.client.loads import partition_rates
from ottla.client.model import BrokerInfo
from ottla.client.move_pace import MovePace, Throttle, patiently
from ottla.client.reassigning import (
    KNOWN_AFTER_S,
    LOOK_AGAIN_S,
    POLL_S,
    UNCLEAN,
    MoveHistory,
    MoveProgress,
    PartitionMove,
    Reassigner,
)
from ottla.client.throttled_moves import Copying
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import UNLISTED_TOPICS

CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"
NOT_SERVED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST})


class Standings(NamedTuple):
    """Brokers of a cluster, by id."""

    known: Mapping[int, BrokerInfo]
    """All that are registered; of a Kafka that does not name fenced brokers, those that live."""
    living: frozenset[int]


class Situation(NamedTuple):
    """What a plan is made from."""

    picture: ClusterPicture
    moving: Mapping[Place, tuple[int, ...]]
    """The moves that go on: where the replicas will be."""
    starts: Mapping[Place, tuple[int, ...]]
    """The same moves: where the replicas were."""


class Cordon(NamedTuple):
    """What became of the wish that a broker gets no new replica."""

    holds: bool
    """False: whoever drains must look again."""
    is_new: bool = False
    instead_of: str = ""
    """Directories that somebody had cordoned before."""


class DestinationLost(Exception):
    """A broker that was to take replicas is down."""

    def __init__(self, brokers: Sequence[int], places: Sequence[Place]) -> None:
        super().__init__(", ".join(map(str, brokers)))
        self.brokers = tuple(brokers)
        self.places = tuple(places)


class SourceLost(Exception):
    """A broker that is drained is down, and nobody else has all records of some partitions."""

    def __init__(self, broker: int) -> None:
        super().__init__(str(broker))
        self.broker = broker


class BrokerChanges:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self.moves = Reassigner(client)

    # Looking

    async def standings(self) -> Standings:
        cluster = await patiently(self._client.describe_cluster)
        answering = await patiently(lambda: self._client.metadata([]))
        known = {each.id: each for each in (*answering.brokers, *cluster.brokers)}
        living = {each.id for each in answering.brokers if not known[each.id].fenced}
        return Standings(known, frozenset(living))

    async def situation(self) -> Situation:
        rates = await patiently(lambda: partition_rates(self._client))
        picture = await patiently(lambda: cluster_picture(self._client, None, rates))
        ends = {place: change.goal for place, change in picture.moving.items()}
        starts = {place: change.start for place, change in picture.moving.items()}
        return Situation(picture, ends, starts)

    async def partitions_on(self, id: int) -> dict[Place, DescribedPartition]:
        """Partitions of which a broker has a replica, or is about to get one."""

        async def look() -> dict[Place, DescribedPartition]:
            names = {each.name for each in await self._admin.list_topics()} | UNLISTED_TOPICS
            return {
                (name, each.partition): each
                for name, topic in (await self._admin.describe_topics(sorted(names))).items()
                if isinstance(topic, DescribedTopic)
                for each in topic.partitions
                if id in each.replicas
            }

        return await patiently(look)

    async def only_copies(self, id: int) -> list[Place]:
        """Partitions without a leader, whose records nobody else has all of."""
        return [
            place
            for place, each in (await self.partitions_on(id)).items()
            if each.leader < 0 and set(each.isr) <= {id}
        ]

    async def wait_registered(self, id: int, timeout_s: float) -> bool:
        """Whether the broker lives, unfenced, within this time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while id not in (await self.standings()).living:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    async def wait_fenced(self, id: int, timeout_s: float) -> bool:
        """Whether the broker is taken for dead within this time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while id in (await self.standings()).living:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    # Doing

    async def cordon(self, id: int) -> Cordon:
        """The controller puts no new replica there, if this cluster has such a thing, and the broker is not down."""
        resource = (BROKER, str(id))
        try:
            entries = await self._admin.describe_configs([resource], keys=[CORDONED])
            # Kafka takes settings that it does not know, so ask first whether it knows this one.
            values = [each.value or "" for each in entries[resource] if each.name == CORDONED]
            if not values:
                return Cordon(False)
            if values[0] == ALL_DIRECTORIES or await self._takes_nothing(id):
                return Cordon(True)
            await self._admin.alter_configs({resource: [(CORDONED, ALL_DIRECTORIES)]})
        except (OSError, Unreachable):
            return Cordon(False)
        except KafkaError as error:
            if error.code not in NOT_SERVED:
                raise
            return Cordon(False)
        return Cordon(True, is_new=True, instead_of=values[0])

    async def _takes_nothing(self, id: int) -> bool:
        """Because somebody has cordoned each of its directories himself."""
        directories = await self._admin.log_dirs(id, [])
        return bool(directories) and all(each.cordoned for each in directories)

    async def uncordon(self, id: int) -> bool:
        """Whether it was cordoned as `cordon` does it. Directories that somebody has named himself stay cordoned."""
        resource = (BROKER, str(id))

        async def attempt() -> bool:
            entries = await self._admin.describe_configs([resource], keys=[CORDONED])
            is_set = any(
                each.name == CORDONED and each.value == ALL_DIRECTORIES
                for each in entries[resource]
            )
            if is_set:
                await self._admin.alter_configs({resource: [(CORDONED, None)]})
            return is_set

        return await patiently(attempt)

    async def cordoned(self, ids: Iterable[int]) -> set[int]:
        """Those of these brokers, which live, that get no new replica in any of their directories."""
        resources = [(BROKER, str(id)) for id in sorted(ids)]
        found = await self._admin.describe_configs(resources, keys=[CORDONED])
        return {
            int(name)
            for (_, name), entries in found.items()
            if any(each.name == CORDONED and each.value == ALL_DIRECTORIES for each in entries)
        }

    async def unregister(self, id: int) -> None:
        """Also if a request was carried out, and not answered."""

        async def attempt() -> None:
            try:
                await self._admin.ask(ApiKey.UNREGISTER_BROKER, {"broker_id": id})
            except KafkaError as error:
                if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                    raise

        await patiently(attempt)

    async def drain_moves(
        self,
        leaving: Collection[int],
        targets: Mapping[Place, Sequence[int]],
        throttle: Throttle,
        at_once: int,
        lost_after_s: float,
        can_go_elsewhere: Callable[[Sequence[int]], bool],
        *,
        keep_factor: bool = True,
    ) -> AsyncIterator[MoveProgress]:
        """As `Reassigner.run`, away from brokers. SourceLost if one is down for so long, and others cannot be copied from;
        DestinationLost if a broker that takes replicas is, and others can take them."""
        loop = asyncio.get_running_loop()
        down_since: dict[int, float] = {}
        async for progress in self.moves.run(
            targets, throttle, at_once=at_once, keep_factor=keep_factor
        ):
            yield progress
            open_ = [place for place, each in progress.partitions.items() if not each.is_done]
            wanted = {other for place in open_ for other in targets[place]}
            down = {*leaving, *wanted} - (await self.standings()).living
            down_since = {each: down_since.get(each, loop.time()) for each in sorted(down)}
            lost = [e for e, since in down_since.items() if loop.time() - since >= lost_after_s]
            for id in set(lost).intersection(leaving):
                if await self.only_copies(id):
                    raise SourceLost(id)
                lost.remove(id)
            stuck = [place for place in open_ if set(lost) & set(targets[place])]
            if stuck:
                if can_go_elsewhere(lost):
                    raise DestinationLost(lost, stuck)
                down_since = dict.fromkeys(down_since, loop.time())

    async def throttle_rebuild(self, id: int, throttle: Throttle) -> None:
        """While the broker is down: once it is back with an empty disk, it copies from the first moment on."""
        mine = await self.partitions_on(id)
        brokers = {other for each in mine.values() for other in each.replicas}
        pace = MovePace(self._client, throttle, brokers)
        await pace.begin(is_quiet=True)
        await pace.cover(_copied_by(id, mine))

    async def elect_anyone(self, places: Collection[Place]) -> dict[Place, KafkaError]:
        """A leader for partitions whose records are lost. Returns where there is still none."""

        async def attempt() -> dict[Place, KafkaError]:
            outcomes = await self._admin.elect_leaders(UNCLEAN, places)
            needed = ErrorCode.ELECTION_NOT_NEEDED
            return {p: why for p, why in outcomes.items() if why is not None and why.code != needed}

        loop = asyncio.get_running_loop()
        deadline = loop.time() + KNOWN_AFTER_S
        while left := await patiently(attempt):
            if loop.time() >= deadline:
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        return left

    async def rebuild(self, id: int, throttle: Throttle) -> AsyncIterator[MoveProgress]:
        """Watch how a broker with an empty disk copies its replicas from others, under a throttle that is removed at the
        end. Partitions without a leader are not waited for: nobody has their records."""
        mine = await self.partitions_on(id)
        places = [place for place, each in mine.items() if id not in each.isr and each.leader >= 0]
        if not places:
            return
        run = _Rebuild(self, id, {place: mine[place] for place in places}, throttle)
        try:
            await run.limit()
            async for progress in run.watch():
                yield progress
        except Exception:
            await self.moves.remove_left_over(limited=run.limited)
            raise
        await self.moves.remove_left_over(places, run.limited)


def _copied_by(id: int, partitions: Mapping[Place, DescribedPartition]) -> dict[Place, Copying]:
    return {place: Copying(set(each.replicas) - {id}, {id}) for place, each in partitions.items()}


class _Rebuild:
    """One run of `BrokerChanges.rebuild`."""

    def __init__(
        self,
        changes: BrokerChanges,
        id: int,
        partitions: Mapping[Place, DescribedPartition],
        throttle: Throttle,
    ) -> None:
        self._changes = changes
        self._moves = changes.moves
        self._id = id
        self._partitions = partitions
        self._brokers = {other for each in partitions.values() for other in each.replicas}
        self._pace = MovePace(changes._client, throttle, self._brokers)
        self._history = MoveHistory()

    @property
    def limited(self) -> set[int]:
        return self._pace.limited

    async def limit(self) -> None:
        await self._pace.begin(is_quiet=False)
        await self._pace.cover(_copied_by(self._id, self._partitions))

    async def watch(self) -> AsyncIterator[MoveProgress]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        sizes: dict[tuple[int, Place], int] = {}
        while True:
            now = await self._changes.partitions_on(self._id)
            waiting = {
                place
                for place in self._partitions
                if place in now and self._id not in now[place].isr
            }
            disks = await self._moves.disks(self._brokers, self._partitions)
            sizes |= disks.sizes
            progress = self._progress(waiting, sizes, loop.time() - began)
            if not waiting:
                yield progress
                return
            await self._pace.adapt(waiting, progress.copied)
            facts = self._pace.facts
            if not self._history.progress:
                facts["held_by"] = disks.obstacle([self._id]) or facts["held_by"]
            yield progress._replace(**facts)
            await asyncio.sleep(POLL_S)

    def _progress(
        self, waiting: set[Place], sizes: Mapping[tuple[int, Place], int], seconds: float
    ) -> MoveProgress:
        found = {}
        for place, each in self._partitions.items():
            total = max(
                (sizes.get((o, place), 0) for o in each.replicas if o != self._id), default=0
            )
            has = sizes.get((self._id, place), 0) if place in waiting else total
            found[place] = PartitionMove(min(has, total), total, place not in waiting)
        coming = {self._id: sum(each.total - each.moved for each in found.values())}
        return self._history.report(found, coming, seconds, self._pace.facts)
