"""The checks of the simulated ZooKeeper on the real server: Debian's package, through kazoo.

kazoo forgets its watches when a connection is lost, and calls their callbacks in another thread. ZooKeeper's own client sets
the watches again, and the order of events and answers is the server's. `WatchKeepingClient` does both.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import write_string
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from ottla.lab.zookeeper import errors
from ottla.lab.zookeeper.errors import ZooKeeperError
from ottla.lab.zookeeper.model import (
    ANY_VERSION,
    ChangeOperation,
    CheckVersion,
    CreateNode,
    DeleteNode,
    EventType,
    Exists,
    GetChildren,
    GetData,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)
from ottla.local.ports import free_ports
from support.cuttable_proxy import CuttableProxy

pytest.register_assert_rewrite("support.zookeeper_semantics")
from support.zookeeper_semantics import SEMANTICS, Operation, Watch, ZooKeeperUnderTest  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parent.parent.parent
JAR = Path("/usr/share/java/zookeeper.jar")
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
TICK_S = 0.2
SESSION_TIMEOUT_S = 1.5
START_S_MAX = 60
EVENTS = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}
STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


@dataclass
class SetWatchesRequest:
    """As ZooKeeper's own client sends it when it connects again."""

    zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]
    type: ClassVar = 101

    def serialize(self) -> bytes:
        lists = (self.data, self.exist, self.child)
        return struct.pack(">q", self.zxid) + b"".join(
            struct.pack(">i", len(paths)) + b"".join(map(write_string, paths)) for paths in lists
        )

    def deserialize(self, content: bytes, offset: int) -> None:
        """The answer is empty."""


class InlineHandler(SequentialThreadingHandler):
    """Calls callbacks in the thread that reads from the server, so in the server's order."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class WatchKeepingClient(KazooClient):
    def __init__(self, **options: Any) -> None:
        self.absent: set[str] = set()
        """Watched paths that did not exist."""
        super().__init__(**options)

    def _reset_watchers(self) -> None:
        if self._state != KeeperState.CONNECTING:
            super()._reset_watchers()

    def _session_callback(self, state: Any) -> None:
        is_back = state == KeeperState.CONNECTED and self._state == KeeperState.CONNECTING
        super()._session_callback(state)
        data, child = set(self._data_watchers), set(self._child_watchers)
        if is_back and data | child:
            exist = data & self.absent
            watches = map(sorted, (data - exist, exist, child))
            request = SetWatchesRequest(self.last_zxid, *watches)
            self._call(request, self.handler.async_result())


class RealClient:
    def __init__(self, port: int) -> None:
        self._proxy = CuttableProxy(port)
        self._watches: dict[Watch, Callable[[Any], None]] = {}
        self._client = WatchKeepingClient(
            hosts=f"127.0.0.1:{self._proxy.port}",
            timeout=SESSION_TIMEOUT_S,
            handler=InlineHandler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.1),
        )
        self._client.start()
        self.states: list[SessionState] = []
        self._client.add_listener(self._state_changed)

    def _state_changed(self, state: Any) -> None:
        self.states.append(STATES[state])

    @property
    def session(self) -> int:
        return int(self._client.client_id[0])

    def _watched(self, watch: Watch | None) -> Callable[[Any], None] | None:
        """kazoo's watch for ours: always the same for the same."""
        if watch is None:
            return None

        def fired(event: Any) -> None:
            if event.type != "NONE":  # that the session is over, its listener says too
                watch(WatchEvent(EVENTS[event.type], event.path))

        return self._watches.setdefault(watch, fired)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        return str(self._now(CreateNode(path, data, ephemeral, sequential)))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._now(DeleteNode(path, version))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat: Stat = self._now(SetData(path, data, version))
        return stat

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = self._now(GetData(path), watch)
        return found

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = self._now(Exists(path), watch)
        if watch is not None:
            (self._client.absent.add if stat is None else self._client.absent.discard)(path)
        return stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return list(self._now(GetChildren(path), watch))

    def multi(self, operations: Sequence[ChangeOperation]) -> list[Any]:
        transaction = self._client.transaction()
        for each in operations:
            match each:
                case CreateNode(path, data, ephemeral, sequential):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
                case DeleteNode(path, version):
                    transaction.delete(path, version)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case CheckVersion(path, version):
                    transaction.check(path, version)
        results = transaction.commit()
        others = (RolledBackError, RuntimeInconsistency)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, others):
                raise translated(result)
        return [translated(each) for each in results]

    def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        answers = [self._begin(each) for each in operations]
        results: list[Any] = []
        for answer in answers:
            try:
                results.append(translated(answer.get(timeout=SESSION_TIMEOUT_S)))
            except ZookeeperError as error:
                results.append(translated(error))
        return results

    def _now(self, operation: Operation, watch: Watch | None = None) -> Any:
        try:
            return translated(self._begin(operation, watch).get(timeout=10 * SESSION_TIMEOUT_S))
        except ZookeeperError as error:
            raise translated(error) from error

    def _begin(self, operation: Operation, watch: Watch | None = None) -> Any:
        client, watched = self._client, self._watched(watch)
        match operation:
            case CreateNode(path, data, ephemeral, sequential):
                return client.create_async(path, data, ephemeral=ephemeral, sequence=sequential)
            case DeleteNode(path, version):
                return client.delete_async(path, version)
            case SetData(path, data, version):
                return client.set_async(path, data, version)
            case GetData(path):
                return client.get_async(path, watch=watched)
            case Exists(path):
                return client.exists_async(path, watch=watched)
            case GetChildren(path):
                return client.get_children_async(path, watch=watched)

    def drop_connection(self) -> None:
        self._proxy.drop_connections()

    def cut_off(self) -> None:
        self._proxy.cut_off()

    def heal(self) -> None:
        self._proxy.heal()

    def close(self) -> None:
        self._client.stop()
        self._client.close()
        self._proxy.close()


def translated(found: Any) -> Any:
    """kazoo's words in ours."""
    if isinstance(found, ZookeeperError):
        name = type(found).__name__.removesuffix("Error")
        error: ZooKeeperError = getattr(errors, name)(str(found))
        return error
    if isinstance(found, list):
        return sorted(found)
    if hasattr(found, "czxid"):
        return Stat(
            found.czxid,
            found.mzxid,
            found.pzxid,
            found.version,
            found.cversion,
            found.ephemeralOwner,
            found.dataLength,
            found.numChildren,
        )
    if isinstance(found, tuple):
        return tuple(map(translated, found))
    return None if found is True else found  # a delete


class RealZooKeeper:
    session_timeout_s = SESSION_TIMEOUT_S

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: list[RealClient] = []

    def client(self) -> RealClient:
        client = RealClient(self._port)
        self._clients.append(client)
        return client

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 20 * SESSION_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a standalone server."""
    if not JAR.exists() or shutil.which("java") is None:
        subprocess.run([ROOT / "scripts" / "apt-install", "zookeeper"], check=True)
    directory = tmp_path_factory.mktemp("zookeeper")
    (port,) = free_ports(1)
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime={round(TICK_S * 1000)}\ndataDir={directory / 'data'}\nclientPort={port}\n"
        "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
    )
    with (directory / "printed").open("wb") as printed:
        process = subprocess.Popen(
            ["java", "-cp", JAR, MAIN, config], stdout=printed, stderr=subprocess.STDOUT
        )
    try:
        client = KazooClient(f"127.0.0.1:{port}")
        client.start(timeout=START_S_MAX)
        client.stop()
        client.close()
        yield port
    finally:
        process.terminate()
        process.wait(START_S_MAX)


@pytest.fixture
def real(server: int) -> Iterator[RealZooKeeper]:
    zookeeper = RealZooKeeper(server)
    client = KazooClient(f"127.0.0.1:{server}")
    client.start()
    client.create("/t")
    yield zookeeper
    zookeeper.close()
    client.delete("/t", recursive=True)
    client.stop()
    client.close()


@pytest.mark.parametrize("check", SEMANTICS, ids=lambda check: check.__name__)
def test_P50_the_real_zookeeper_keeps_what_the_simulated_one_does(
    check: Callable[[ZooKeeperUnderTest], None], real: RealZooKeeper
) -> None:
    assert real.client().states == []
    check(real)
