"""The follower: writes each proposed transaction to its disk, and then acknowledges it.

It never takes over. The designs differ in what their clients ask of ZooKeeper, and not in how ZooKeeper elects.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ottla.lab.zookeeper.txn_log import TxnLog
from ottla.lab.zookeeper.wire import (
    FollowRequest,
    TxnProposal,
    decode_request,
    encode_response,
    framed,
    txn_zxid,
)
from ottla.runtime import Connection, FrameReceiver, Runtime

FOLLOWER_PORT = 2888
FRAME_BYTES_MAX = 1 << 26


class FollowerServer:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._log = TxnLog(runtime.disk, self._durable)
        self._leader: Connection | None = None
        self._unanswered: deque[tuple[int, int, Any]] = deque()
        """(zxid, xid, request): to be answered when everything up to the zxid is on the disk."""

    async def run(self) -> None:
        await self._runtime.network.listen(
            "", FOLLOWER_PORT, self._accept, frame_bytes_max=FRAME_BYTES_MAX
        )

    def _accept(self, connection: Connection) -> FrameReceiver:
        if self._leader is not None:
            self._leader.abort()
        self._leader = connection
        self._unanswered.clear()
        return _FromLeader(self, connection)

    def received(
        self, connection: Connection, xid: int, request: FollowRequest | TxnProposal
    ) -> None:
        if connection is not self._leader:
            return
        if isinstance(request, FollowRequest):
            # What the leader lost with its power was never committed.
            self._log.truncate(request.zxid)
        else:
            zxid = txn_zxid(request.txn)
            assert zxid == self._log.last_zxid + 1, f"{zxid} after {self._log.last_zxid}"
            self._log.append(request.txn)
        self._unanswered.append((self._log.last_zxid, xid, request))
        self._durable()

    def _durable(self) -> None:
        while self._unanswered and self._unanswered[0][0] <= self._log.durable:
            zxid, xid, request = self._unanswered.popleft()
            assert self._leader is not None
            self._leader.send([framed(encode_response(xid, zxid, request, None))])


class _FromLeader:
    def __init__(self, server: FollowerServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection

    def frame_received(self, frame: memoryview) -> None:
        self._server.received(self._connection, *decode_request(bytes(frame)))

    def connection_lost(self, reason: str) -> None:
        """The leader connects again."""
