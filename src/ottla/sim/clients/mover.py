"""An operator who moves replicas as `ottla balance` and `ottla reassign` do: with ottla's own planner and client.

Each command is a process of its own. It looks at the cluster, plans, sets a throttle, moves, watches, gives leadership back
and removes the throttle. Faults strike meanwhile: what a command may fail with at a real cluster it may fail with here, and
some are killed on their way. The last command of a run comes when all is healed: it must succeed, within bounded time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.balance import departures
from ottla.balance.model import Tolerance
from ottla.balance.pace import CopyPace
from ottla.balance.planner import Impossible, plan
from ottla.client.admin import Place
from ottla.client.client import Client
from ottla.client.cluster_picture import ClusterPicture, cluster_picture
from ottla.client.connections import Address, BrokerConnections, Unreachable
from ottla.client.loads import partition_rates
from ottla.client.reassigning import MoveRefused, MovesUndone, Reassigner
from ottla.sim.clients.logins import SimUser, log_in
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.move_checker import MoveChecker
from ottla.wire.channel import Channel
from ottla.wire.errors import KafkaError
from ottla.wire.types import TopicPartition

BALANCE: Final = "balance"
DRAIN: Final = "drain"
FACTOR: Final = "factor"
KINDS = (BALANCE, DRAIN, FACTOR)
AUTO = "auto"
SLOW = 20_000
"""Bytes per second: moves last for long."""
THROTTLES = (None, None, SLOW, SLOW, 200_000, AUTO)
"""An adapted one measures latencies, with many requests: it is rarer."""
TOLERANCE = Tolerance(0.1)
TIMEOUT_S = (5.0, 30.0)
FAILURES = (KafkaError, OSError, Unreachable, MoveRefused, MovesUndone, Impossible)
"""With these a command may end while there is trouble."""


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """What somebody typed."""

    kind: str
    broker: int = 0
    """`DRAIN`: the one that shall carry nothing."""
    factor: int = 0
    """`FACTOR`: how many replicas each partition of a topic shall have."""
    topic: str = ""
    throttle: int | str | None = None
    at_once: int | None = None
    timeout_s: float = 30.0

    def __str__(self) -> str:
        what = {
            BALANCE: "balances the brokers",
            DRAIN: f"drains broker {self.broker}",
            FACTOR: f"gives {self.topic} {self.factor} replicas",
        }[self.kind]
        return f"{what}, throttle {self.throttle}"

    @staticmethod
    def draw(
        kind: str, brokers: Sequence[int], topics: Sequence[str], chance: random.Random
    ) -> MoveOrder:
        return MoveOrder(
            kind,
            chance.choice(list(brokers)),
            min(chance.choice((1, 2, 3, 3, 3, 4)), len(brokers)),
            chance.choice(list(topics)),
            chance.choice(THROTTLES),
            chance.choice((None, 1, 3)),
            chance.choice(TIMEOUT_S),
        )


class _LoggedIn(BrokerConnections):
    """Connections of a user, where the cluster has security."""

    user: SimUser | None = None
    chance: random.Random

    async def at(self, address: Address) -> Channel:
        channel = await super().at(address)
        user = self.user
        if user is not None and not channel.has_logged_in:
            await log_in(channel, lambda: user.conversation(self.chance))
        return channel


class Mover:
    def __init__(
        self,
        host: SimHost,
        bootstrap: Sequence[Address],
        checker: MoveChecker,
        user: SimUser | None = None,
    ) -> None:
        self._host = host
        self._bootstrap = list(bootstrap)
        self._checker = checker
        self._user = user
        self._running: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def begin(self, order: MoveOrder, done: Callable[[], None]) -> asyncio.Task[None]:
        """Carry it out, in spite of all faults. Cancel the task to kill the command."""

        async def command(client: Client) -> None:
            await self._carry_out(client, order)
            done()

        return self._run(str(order), order.timeout_s, command)

    def cancel_all(self, timeout_s: float, done: Callable[[], None]) -> None:
        """`ottla reassign cancel`: whatever is being moved, by whomever."""

        async def command(client: Client) -> None:
            moves = Reassigner(client)
            active = await moves.active()
            for place in active:
                self._checker.asked(TopicPartition(*place), None)
            if await moves.cancel(active):
                done()
            await moves.remove_left_over()

        self._run("cancels all moves", timeout_s, command)

    async def drain_dead(self, broker: int) -> Mapping[Place, Sequence[int]]:
        """What a broker has that is away goes to others. Nothing may fail."""
        async with self._client(30.0) as client:
            targets = _drained(await cluster_picture(client), broker)
            order = MoveOrder(DRAIN, broker)
            return await self._move(Reassigner(client), targets, order)

    async def at_last(self, order: MoveOrder | None) -> Mapping[Place, Sequence[int]]:
        """When all is healed. Returns which replicas were wanted. Nothing may fail."""
        async with self._client(30.0) as client:
            if order is None:
                await Reassigner(client).remove_left_over()
                return {}
            return await self._carry_out(client, order)

    def _run(
        self,
        name: str,
        timeout_s: float,
        command: Callable[[Client], Coroutine[Any, Any, None]],
    ) -> asyncio.Task[None]:
        async def process() -> None:
            try:
                async with self._client(timeout_s) as client:
                    await command(client)
            except FAILURES:
                mark("move command failed")

        task = self._host.run(process(), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _client(self, timeout_s: float) -> Client:
        client = Client(self._host.runtime.network, self._bootstrap, timeout_s=timeout_s)
        if self._user is not None:
            connections = _LoggedIn(self._host.runtime.network, self._bootstrap, "ottla", timeout_s)
            connections.user, connections.chance = self._user, random.Random("logins of ottla")
            client.connections = connections
        return client

    async def _carry_out(self, client: Client, order: MoveOrder) -> dict[Place, tuple[int, ...]]:
        moves = Reassigner(client)
        await moves.remove_left_over()
        if order.kind == BALANCE and await moves.active():
            return {}  # as the command does
        targets = await self._plan(client, order)
        await self._move(moves, targets, order)
        mark(f"{order.kind} command done")
        return targets

    async def _move(
        self,
        moves: Reassigner,
        targets: Mapping[Place, Sequence[int]],
        order: MoveOrder,
    ) -> Mapping[Place, Sequence[int]]:
        throttle = CopyPace(0.0) if isinstance(order.throttle, str) else order.throttle
        keep_factor = order.kind == BALANCE  # a drain with too few brokers asks for fewer replicas
        if targets:
            began = self._checker.commanded(targets)
            try:
                async for _ in moves.run(
                    targets, throttle, at_once=order.at_once, keep_factor=keep_factor
                ):
                    pass
            except (MoveRefused, MovesUndone):
                self._checker.command_ended(targets, began)  # it has tidied up, too
                raise
            self._checker.command_ended(targets, began)
        return targets

    async def _plan(self, client: Client, order: MoveOrder) -> dict[Place, tuple[int, ...]]:
        topics = [order.topic] if order.kind == FACTOR else None
        picture = await cluster_picture(client, topics, await partition_rates(client))
        brokers, partitions = picture.brokers, picture.partitions
        if order.kind == FACTOR:
            partitions = [each._replace(factor=order.factor) for each in partitions]
        elif order.kind == DRAIN:
            return _drained(picture, order.broker)
        made = plan(brokers, partitions, TOLERANCE)
        return {each.place: each.after for each in made.changes}


def _drained(picture: ClusterPicture, broker: int) -> dict[Place, tuple[int, ...]]:
    """As `ottla brokers drain` plans it. Where too few brokers are left, `ottla reassign generate` with fewer replicas."""
    brokers, partitions, _ = picture
    if departures.too_few(brokers, partitions, broker) is None:
        made = departures.drain_plan(brokers, partitions, broker, TOLERANCE)
    else:
        left = sum(each.id != broker for each in brokers)
        fewer = [each._replace(factor=min(left, len(each.replicas))) for each in partitions]
        made = plan(departures.leaving(brokers, broker), fewer, TOLERANCE)
    return {each.place: each.after for each in made.changes}
