"""The leader: clients talk to it. It orders the writes, replicates each to the follower, and then applies and answers it.

It answers reads from its own tree. The operations of one client are done in the order in which it sent them: a read waits
for the writes of the same client before it. An event of a watch is sent when the write is applied, so it is on its way
before any answer that shows the change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.lab.zookeeper.counts import ZooKeeperCounts
from ottla.lab.zookeeper.errors import SessionExpired, ZooKeeperError
from ottla.lab.zookeeper.follower_link import FollowerLink
from ottla.lab.zookeeper.model import (
    NO_SESSION,
    CloseSession,
    ConnectRequest,
    CreateSession,
    Exists,
    GetChildren,
    GetData,
    Ping,
    SetWatches,
    Txn,
    WatchEvent,
    WriteOperation,
)
from ottla.lab.zookeeper.tree import Applied, ZnodeTree
from ottla.lab.zookeeper.txn_log import TxnLog
from ottla.lab.zookeeper.watches import WatchKind, WatchTable
from ottla.lab.zookeeper.wire import (
    decode_request,
    decode_txn,
    encode_error,
    encode_event,
    encode_response,
    encode_txn,
    framed,
    opcode_of,
)
from ottla.runtime import Connection, FrameReceiver, Runtime

CLIENT_PORT = 2181
FRAME_BYTES_MAX = 1 << 26
READS = (GetData, Exists, GetChildren)
SESSION_KEEPING = (ConnectRequest, Ping, SetWatches, CloseSession)


class LeaderServer:
    def __init__(self, runtime: Runtime, follower: str, counts: ZooKeeperCounts) -> None:
        self._runtime = runtime
        self.counts = counts
        self.tree = ZnodeTree()
        self.watches = WatchTable()
        self._log = TxnLog(runtime.disk, self._commit)
        # All that is in the log will be at the follower before the first client is let in.
        for txn in self._log.txns:
            self.tree.apply(decode_txn(txn))
        self._link = FollowerLink(
            runtime.network, follower, self._log, self._replicated, self._count_replication
        )
        self._synced = asyncio.Event()
        self._sessions: dict[int, ServerSession] = {}
        self._proposed: deque[tuple[Txn, ClientConnection | None]] = deque()
        """In the order of their zxids, with the connection that waits for the answer."""
        self._afterwards: deque[tuple[int, Callable[[], None]]] = deque()
        """What is to be done when the writes up to a zxid are applied."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._link.run())
            await self._synced.wait()
            # Sessions of an earlier run have their whole timeout to come back.
            for id, timeout_ms in self.tree.sessions.items():
                self._sessions[id] = ServerSession(self, id, timeout_ms / 1000)
            await self._runtime.network.listen(
                "", CLIENT_PORT, self._accept, frame_bytes_max=FRAME_BYTES_MAX
            )

    def _accept(self, connection: Connection) -> FrameReceiver:
        return ClientConnection(self, connection)

    def _count_replication(self, label: str) -> None:
        self.counts.replications[label] += 1

    # Replication

    def _replicated(self) -> None:
        if self._link.acknowledged >= self.tree.zxid:
            self._synced.set()
        self._commit()

    @property
    def has_quorum(self) -> bool:
        return self._link.is_following

    @property
    def now(self) -> float:
        return self._runtime.clock.monotonic()

    def propose(
        self, session: int, operation: WriteOperation, client: ClientConnection | None
    ) -> None:
        txn = Txn(self._log.last_zxid + 1, session, operation)
        self._proposed.append((txn, client))
        self._log.append(encode_txn(txn))
        self._link.send_new()

    def _commit(self) -> None:
        """Apply what is on both disks."""
        while self._proposed:
            txn, client = self._proposed[0]
            if txn.zxid > min(self._log.durable, self._link.acknowledged):
                return
            self._proposed.popleft()
            applied = self.tree.apply(txn)
            for event in applied.changes:
                for session in self.watches.fire(event):
                    self.notify(session, event)
            if isinstance(txn.operation, CreateSession):
                timeout_s = txn.operation.timeout_ms / 1000
                self._sessions[txn.zxid] = ServerSession(self, txn.zxid, timeout_s)
            elif isinstance(txn.operation, CloseSession) and applied.error is None:
                self._sessions.pop(txn.session).end(client)
            if client is not None:
                client.written(txn, applied)
            while self._afterwards and self._afterwards[0][0] <= txn.zxid:
                self._afterwards.popleft()[1]()

    def after_writes(self, work: Callable[[], None]) -> None:
        """Do this when all writes that are proposed now are applied."""
        if self._proposed:
            self._afterwards.append((self._log.last_zxid, work))
        else:
            work()

    # Sessions

    def notify(self, session: int, event: WatchEvent) -> None:
        connection = self._sessions[session].connection
        assert connection is not None, "the watches of a lost connection are dropped with it"
        self.counts.watch_events[event.type.name.lower()] += 1
        connection.send(encode_event(event))

    def session(self, id: int) -> ServerSession | None:
        """None if it is over, or about to be."""
        found = self._sessions.get(id)
        return found if found is not None and not found.is_closing else None


class ServerSession:
    def __init__(self, server: LeaderServer, id: int, timeout_s: float) -> None:
        self._server = server
        self.id = id
        self._timeout_s = timeout_s
        self.connection: ClientConnection | None = None
        self._heard_at = server.now
        self.is_closing = False
        self._timer = self._at(self._heard_at + timeout_s)

    def _at(self, when: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(when, self._check)

    def heard(self) -> None:
        self._heard_at = self._server.now

    def _check(self) -> None:
        """Has it timed out? A leader without its follower cannot tell, and gives everybody time again."""
        if not self._server.has_quorum:
            self.heard()
        due = self._heard_at + self._timeout_s
        if self.is_closing:
            return
        if self._server.now < due:
            self._timer = self._at(due)
            return
        self._server.counts.expired += 1
        self.is_closing = True
        self._server.propose(self.id, CloseSession(), None)

    def attach(self, connection: ClientConnection) -> None:
        """The client connected, for the first time or again."""
        former, self.connection = self.connection, connection
        self.heard()
        if former is not None:
            self._server.watches.drop(self.id)
            former.abandon()

    def detach(self, connection: ClientConnection) -> None:
        if self.connection is connection:
            self.connection = None
            self._server.watches.drop(self.id)

    def end(self, closer: ClientConnection | None) -> None:
        """It is closed. A client that did not ask for it loses its connection."""
        self._timer.cancel()
        connection, self.connection = self.connection, None
        self._server.watches.drop(self.id)
        if connection is not None and connection is not closer:
            connection.abandon()


class ClientConnection:
    """One connection of a client, and the requests on it that are not answered yet."""

    def __init__(self, server: LeaderServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._session: ServerSession | None = None
        self._waiting: deque[tuple[int, Any]] = deque()
        """(xid, request) in order. The first is a write."""
        self._is_over = False

    def frame_received(self, frame: memoryview) -> None:
        if self._is_over:
            return
        xid, request = decode_request(bytes(frame))
        self._count(request)
        if self._session is not None:
            self._session.heard()
        if isinstance(request, ConnectRequest):
            self._connect(xid, request)
        elif self._session is None or self._session.is_closing:
            self.abandon()
        elif isinstance(request, Ping | SetWatches | GetData | Exists | GetChildren):
            if self._waiting:
                self._waiting.append((xid, request))
            else:
                self._answer(xid, request)
        else:
            self._session.is_closing = isinstance(request, CloseSession)
            self._waiting.append((xid, request))
            self._server.propose(self._session.id, request, self)

    def connection_lost(self, reason: str) -> None:
        self._is_over = True
        if self._session is not None:
            self._session.detach(self)

    def abandon(self) -> None:
        self._is_over = True
        self._connection.close()

    def send(self, content: bytes) -> None:
        self._connection.send([framed(content)])

    def _count(self, request: Any) -> None:
        counts = self._server.counts
        if isinstance(request, SESSION_KEEPING):
            kind = counts.sessions
        else:
            kind = counts.reads if isinstance(request, READS) else counts.writes
        kind[opcode_of(request).label] += 1

    def _connect(self, xid: int, request: ConnectRequest) -> None:
        if request.session == NO_SESSION:
            self._waiting.append((xid, request))
            self._server.propose(NO_SESSION, CreateSession(request.timeout_ms), self)
        else:
            # The order of a session holds over connections: what it wrote on the last one is done first.
            self._server.after_writes(lambda: self._resume(xid, request))

    def _resume(self, xid: int, request: ConnectRequest) -> None:
        if self._is_over:
            return
        self._session = self._server.session(request.session)
        if self._session is None:
            error = SessionExpired(f"session {request.session:#x}")
            self.send(encode_error(xid, self._server.tree.zxid, error))
            self.abandon()
        else:
            self._session.attach(self)
            # No zxid: the client has yet to be told what it missed since the last one that it saw.
            self.send(encode_response(xid, 0, request, request.session))

    def written(self, txn: Txn, applied: Applied) -> None:
        """The first request that waits is done."""
        if self._is_over:
            return  # the connection is lost, and with it the answer
        xid, request = self._waiting.popleft()
        if isinstance(request, ConnectRequest):
            self._session = self._server.session(txn.zxid)
            assert self._session is not None
            self._session.attach(self)
        if applied.error is None:
            self.send(encode_response(xid, txn.zxid, request, applied.result))
        else:
            self.send(encode_error(xid, txn.zxid, applied.error))
        if isinstance(request, CloseSession):
            self.abandon()
        while self._waiting and isinstance(self._waiting[0][1], (*READS, Ping, SetWatches)):
            self._answer(*self._waiting.popleft())

    def _answer(self, xid: int, request: Any) -> None:
        """A request that changes nothing."""
        zxid = self._server.tree.zxid
        try:
            result = self._read(request)
        except ZooKeeperError as error:
            self.send(encode_error(xid, zxid, error))
        else:
            self.send(encode_response(xid, zxid, request, result))

    def _read(self, request: Any) -> Any:
        assert self._session is not None
        tree, watches, session = self._server.tree, self._server.watches, self._session.id
        match request:
            case GetData(path, watch):
                result: Any = tree.get(path)
            case Exists(path, watch):
                result = tree.exists(path)
            case GetChildren(path, watch):
                result = tree.children(path)
            case SetWatches():
                for event in watches.restore(tree, session, request):
                    self._server.notify(session, event)
                return None
            case _:
                assert isinstance(request, Ping)
                return None
        if watch:
            kind = WatchKind.CHILD if isinstance(request, GetChildren) else WatchKind.DATA
            watches.add(kind, path, session)
        return result
