"""The simulated ZooKeeper does what the real one does. `tests/slow/test_real_zookeeper.py` runs the same checks there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest

from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.ensemble import ZooKeeperEnsemble
from ottla.lab.zookeeper.model import (
    ANY_VERSION,
    ChangeOperation,
    CreateNode,
    DeleteNode,
    Exists,
    GetChildren,
    GetData,
    SessionState,
    SetData,
    Stat,
)
from ottla.sim.engine.world import SimHost, World

pytest.register_assert_rewrite("support.zookeeper_semantics")
from support.zookeeper_semantics import SEMANTICS, Operation, Watch, ZooKeeperUnderTest  # noqa: E402

T = TypeVar("T")
SEEDS = range(3)


class SimulatedClient:
    def __init__(self, world: World, host: SimHost, client: ZooKeeperClient) -> None:
        self._world = world
        self._host = host
        self._client = client
        self._blocked: list[tuple[str, str]] = []
        self.states: list[SessionState] = []
        client.on_state.append(self.states.append)

    @property
    def session(self) -> int:
        return self._client.session

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        work = self._client.create(path, data, ephemeral=ephemeral, sequential=sequential)
        return self._host.complete(work)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._host.complete(self._client.delete(path, version))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return self._host.complete(self._client.set(path, data, version))

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._host.complete(self._client.get(path, watch))

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._host.complete(self._client.exists(path, watch))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._host.complete(self._client.children(path, watch))

    def multi(self, operations: Sequence[ChangeOperation]) -> list[Any]:
        return list(self._host.complete(self._client.multi(operations)))

    def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*map(self._begin, operations), return_exceptions=True)

        return self._host.complete(all_at_once())

    def _begin(self, operation: Operation) -> Any:
        client = self._client
        match operation:
            case CreateNode(path, data, ephemeral, sequential):
                return client.create(path, data, ephemeral=ephemeral, sequential=sequential)
            case DeleteNode(path, version):
                return client.delete(path, version)
            case SetData(path, data, version):
                return client.set(path, data, version)
            case GetData(path):
                return client.get(path)
            case Exists(path):
                return client.exists(path)
            case GetChildren(path):
                return client.children(path)

    def drop_connection(self) -> None:
        assert self._host.reset_connections() == 1

    def cut_off(self) -> None:
        self._blocked = self._world.network.partition([self._host.name], ["zk1"])

    def heal(self) -> None:
        self._world.network.unblock(self._blocked)

    def close(self) -> None:
        self._host.complete(self._client.close())


class SimulatedZooKeeper:
    session_timeout_s = 6.0

    def __init__(self, world: World) -> None:
        self._world = world
        self.ensemble = ZooKeeperEnsemble(world)
        self.ensemble.start()
        self._numbers = count(1)

    def client(self) -> SimulatedClient:
        host = self._world.node(f"c{next(self._numbers)}")
        connecting = ZooKeeperClient.connect(
            host.runtime.network, self.ensemble.addresses, host.name, self.session_timeout_s
        )
        return SimulatedClient(self._world, host, host.complete(connecting))

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        return self._world.run_until(condition, 10 * self.session_timeout_s)

    def wait(self, seconds: float) -> None:
        self._world.run_for(seconds)


@pytest.fixture(params=SEEDS)
def simulated(request: pytest.FixtureRequest) -> Iterator[SimulatedZooKeeper]:
    with World(request.param) as world:
        zookeeper = SimulatedZooKeeper(world)
        first = zookeeper.client()
        first.create("/t")
        first.close()
        yield zookeeper
        assert world.problems() == []


@pytest.mark.parametrize("check", SEMANTICS, ids=lambda check: check.__name__)
def test_P50_the_simulated_zookeeper_keeps_what_zookeeper_promises(
    check: Callable[[ZooKeeperUnderTest], None], simulated: SimulatedZooKeeper
) -> None:
    check(simulated)
    assert simulated.ensemble.counts.writes
