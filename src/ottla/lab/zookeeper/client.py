"""A client of the simulated ZooKeeper: one session, over one connection at a time.

    client = await ZooKeeperClient.connect(network, ensemble.addresses, "b1")
    await client.create("/controller", b"1", ephemeral=True)

The session survives a lost connection as long as the client comes back within the session timeout, with its watches.
Callbacks of watches and of states are called in the order in which the server sent the events, one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from ottla.lab.zookeeper.errors import ConnectionLoss, SessionExpired, ZooKeeperError
from ottla.lab.zookeeper.model import (
    ANY_VERSION,
    NO_SESSION,
    ChangeOperation,
    ClientOperation,
    CloseSession,
    ConnectRequest,
    CreateNode,
    DeleteNode,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    OperationResult,
    Ping,
    SessionState,
    SetData,
    SetWatches,
    Stat,
    WatchEvent,
)
from ottla.lab.zookeeper.tree import ROOT
from ottla.lab.zookeeper.wire import (
    ServerResponse,
    decode_event,
    decode_response,
    encode_request,
    framed,
)
from ottla.runtime import Connection, FrameReceiver, Network

Watch: TypeAlias = Callable[[WatchEvent], None]
RETRY_S = 0.1


class _Call(NamedTuple):
    operation: ClientOperation
    watch: Watch | None
    answer: asyncio.Future[Any]


class _WatchRegistry:
    """The callbacks of one client."""

    def __init__(self) -> None:
        self.data: dict[str, list[Watch]] = {}
        self.exist: dict[str, list[Watch]] = {}
        """Of znodes that did not exist."""
        self.child: dict[str, list[Watch]] = {}

    def add(self, operation: ClientOperation, result: Any, watch: Watch) -> None:
        """The operation succeeded."""
        assert isinstance(operation, GetData | Exists | GetChildren)
        if isinstance(operation, GetChildren):
            watches = self.child
        elif isinstance(operation, Exists) and result is None:
            watches = self.exist
        else:
            watches = self.data
        registered = watches.setdefault(operation.path, [])
        if watch not in registered:
            registered.append(watch)

    def fire(self, event: WatchEvent) -> list[Watch]:
        kinds = {
            EventType.CREATED: (self.data, self.exist),
            EventType.DATA_CHANGED: (self.data, self.exist),
            EventType.CHILDREN_CHANGED: (self.child,),
            EventType.DELETED: (self.data, self.exist, self.child),
        }[event.type]
        fired: list[Watch] = []
        for watches in kinds:
            fired += [each for each in watches.pop(event.path, []) if each not in fired]
        return fired


class ZooKeeperClient:
    def __init__(
        self,
        network: Network,
        addresses: Sequence[tuple[str, int]],
        name: str,
        session_timeout_s: float,
    ) -> None:
        """Use `connect`."""
        self._network = network
        self._addresses = addresses
        self.name = name
        self.session_timeout_s = session_timeout_s
        self.session = NO_SESSION
        self.state = SessionState.SUSPENDED
        self.on_state: list[Callable[[SessionState], None]] = []
        self._watches = _WatchRegistry()
        self._link: _ServerLink | None = None
        """The connection on which the session is established."""
        self._zxid = 0
        """The last one that the server showed us."""
        self._loop = asyncio.get_running_loop()
        self._attempt: asyncio.Future[None] = self._loop.create_future()
        """The present attempt to connect: done when it is over, with or without success."""
        self._keeping = self._loop.create_task(self._keep())

    def __repr__(self) -> str:
        return f"<ZooKeeper client {self.name}, session {self.session:#x}, {self.state.value}>"

    @property
    def is_over(self) -> bool:
        """The session has ended, and the client knows."""
        return self.state in (SessionState.EXPIRED, SessionState.CLOSED)

    @classmethod
    async def connect(
        cls,
        network: Network,
        addresses: Sequence[tuple[str, int]],
        name: str,
        session_timeout_s: float = 6.0,
    ) -> ZooKeeperClient:
        """ConnectionLoss if no server answers within the session timeout."""
        client = cls(network, addresses, name, session_timeout_s)
        try:
            async with asyncio.timeout(session_timeout_s):
                while client.state is not SessionState.CONNECTED:
                    await asyncio.shield(client._attempt)
        except BaseException as error:
            client._end(SessionState.CLOSED)
            if isinstance(error, TimeoutError):
                raise ConnectionLoss(f"{name}: no server answers") from error
            raise
        return client

    # Operations

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Returns the path, which has a number at its end if it is sequential."""
        created: str = await self._call(CreateNode(path, data, ephemeral, sequential))
        return created

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(DeleteNode(path, version))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat: Stat = await self._call(SetData(path, data, version))
        return stat

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._call(GetData(path, watch is not None), watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch is set also if there is no such znode: it fires when it is created."""
        found: Stat | None = await self._call(Exists(path, watch is not None), watch)
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Their names, sorted."""
        found: list[str] = await self._call(GetChildren(path, watch is not None), watch)
        return found

    async def multi(self, operations: Sequence[ChangeOperation]) -> list[OperationResult]:
        """All of them or none: then the error of the first one that failed is raised."""
        results: list[OperationResult] = await self._call(Multi(tuple(operations)))
        return results

    async def close(self) -> None:
        """End the session: the server deletes its ephemeral znodes at once, if it can be reached."""
        if self.is_over:
            return
        if self._link is not None:
            with suppress(ConnectionLoss, SessionExpired):
                await self._call(CloseSession())
        self._end(SessionState.CLOSED)

    async def _call(self, operation: ClientOperation, watch: Watch | None = None) -> Any:
        check_paths(operation)
        if self._link is None and not self.is_over:
            await asyncio.shield(self._attempt)
        if self._link is None:
            raise self.failure()
        return await self._link.call(operation, watch)

    def failure(self) -> ZooKeeperError:
        """Of a request that gets no answer."""
        return SessionExpired(self.name) if self.is_over else ConnectionLoss(self.name)

    # The connection

    async def _keep(self) -> None:
        """Keep a connection until the session is over."""
        turn = 0
        while not self.is_over:
            address = self._addresses[turn % len(self._addresses)]
            turn += 1
            try:
                await self._establish(address)
            except SessionExpired:
                self._end(SessionState.EXPIRED)
                return
            except (OSError, TimeoutError, ConnectionLoss):
                self._attempt_is_over()
                await asyncio.sleep(RETRY_S)
                continue
            self._attempt_is_over()
            assert self._link is not None
            await self._link.ping_until_lost(self.session_timeout_s)

    def _attempt_is_over(self) -> None:
        attempt, self._attempt = self._attempt, self._loop.create_future()
        attempt.set_result(None)

    async def _establish(self, address: tuple[str, int]) -> None:
        link = _ServerLink(self)
        try:
            async with asyncio.timeout(self.session_timeout_s / 3):
                await self._network.connect(*address, link.opened)
                request = ConnectRequest(self.session, round(self.session_timeout_s * 1000))
                self.session = await link.call(request)
        except BaseException:
            link.abort()
            raise
        if link.lost.is_set():
            raise ConnectionLoss(self.name)
        self._link = link
        watches = self._watches
        if watches.data or watches.exist or watches.child:
            paths = (tuple(kind) for kind in (watches.data, watches.exist, watches.child))
            link.call(SetWatches(self._zxid, *paths))
        self._change_state(SessionState.CONNECTED)

    # Called by the connection

    def event_received(self, event: WatchEvent) -> None:
        for watch in self._watches.fire(event):
            watch(event)

    def response_received(self, response: ServerResponse, call: _Call) -> None:
        self._zxid = max(self._zxid, response.zxid)
        if response.error is None:
            result = response.result(call.operation)
            if call.watch is not None:
                self._watches.add(call.operation, result, call.watch)
            if not call.answer.done():
                call.answer.set_result(result)
        elif not call.answer.done():
            call.answer.set_exception(response.error)

    def connection_lost(self, link: _ServerLink) -> None:
        if link is self._link:
            self._link = None
            self._change_state(SessionState.SUSPENDED)

    # States

    def _end(self, state: SessionState) -> None:
        link, self._link = self._link, None
        self._change_state(state)
        if link is not None:
            link.abort()
        self._attempt_is_over()
        if self._keeping is not asyncio.current_task():
            self._keeping.cancel()

    def _change_state(self, state: SessionState) -> None:
        self.state = state
        for each in list(self.on_state):
            each(state)


class _ServerLink:
    """One connection to a server, and the requests on it that are not answered yet."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._calls: deque[_Call] = deque()
        self._xid = 0
        self._sent_at = self._heard_at = self._loop.time()
        self.lost = asyncio.Event()

    def opened(self, connection: Connection) -> FrameReceiver:
        self._connection = connection
        self._heard_at = self._loop.time()
        return self

    def call(self, operation: ClientOperation, watch: Watch | None = None) -> asyncio.Future[Any]:
        assert self._connection is not None
        self._xid += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._calls.append(_Call(operation, watch, answer))
        self._sent_at = self._loop.time()
        self._connection.send([framed(encode_request(self._xid, operation))])
        return answer

    async def ping_until_lost(self, session_timeout_s: float) -> None:
        """A ping after a third of the timeout without a request. Two thirds without an answer: the server is gone."""
        while not self.lost.is_set():
            now = self._loop.time()
            ping_at = self._sent_at + session_timeout_s / 3
            if now >= self._heard_at + session_timeout_s * 2 / 3:
                self.abort()
            elif now >= ping_at:
                self.call(Ping())
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ping_at - now):
                        await self.lost.wait()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self.connection_lost("aborted")

    def frame_received(self, frame: memoryview) -> None:
        self._heard_at = self._loop.time()
        content = bytes(frame)
        event = decode_event(content)
        if event is not None:
            self._client.event_received(event)
        else:
            response = decode_response(content)
            self._client.response_received(response, self._calls.popleft())

    def connection_lost(self, reason: str) -> None:
        if self.lost.is_set():
            return
        self.lost.set()
        self._client.connection_lost(self)
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.answer.done():
                call.answer.set_exception(self._client.failure())
                call.answer.exception()  # marks it as seen: nobody waits for a ping


def check_paths(operation: ClientOperation) -> None:
    """As ZooKeeper's own client: ValueError."""
    if isinstance(operation, Multi):
        for each in operation.operations:
            check_paths(each)
    elif not isinstance(operation, CloseSession | Ping | ConnectRequest | SetWatches):
        path = operation.path
        if isinstance(operation, CreateNode) and operation.sequential:
            path += "0"  # the name may be a number alone
        is_root = path == ROOT
        names = path[1:].split("/")
        if (
            not path.startswith("/")
            or (not is_root and any(name in ("", ".", "..") for name in names))
            or (is_root and isinstance(operation, DeleteNode))
        ):
            raise ValueError(f"not a path for {operation}")
