"""The leader's connection to its follower. It connects again when it is lost, and then sends what the follower lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.lab.zookeeper.follower import FOLLOWER_PORT
from ottla.lab.zookeeper.model import OpCode
from ottla.lab.zookeeper.txn_log import TxnLog
from ottla.lab.zookeeper.wire import (
    FollowRequest,
    TxnProposal,
    decode_response,
    encode_request,
    framed,
    txn_label,
)
from ottla.runtime import Connection, FrameReceiver, Network

CONNECT_TIMEOUT_S = 1.0
RETRY_S = 0.1


class FollowerLink:
    def __init__(
        self,
        network: Network,
        host: str,
        log: TxnLog,
        on_change: Callable[[], None],
        count: Callable[[str], None],
    ) -> None:
        """`on_change`: it connected, or the follower acknowledged a transaction. `count`: of each request, its name."""
        self._network = network
        self._host = host
        self._log = log
        self._on_change = on_change
        self._count = count
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._sent = 0
        """The last zxid that was sent on this connection."""
        self.acknowledged = 0
        """The last zxid that is on the follower's disk."""
        self.is_following = False
        """The follower is connected, and said how far its log goes."""

    async def run(self) -> None:
        while True:
            self._lost.clear()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    connection = await self._network.connect(
                        self._host, FOLLOWER_PORT, self._connected
                    )
                self._send(
                    OpCode.FOLLOW.label,
                    connection,
                    encode_request(0, FollowRequest(self._log.last_zxid)),
                )
                await self._lost.wait()
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    def _connected(self, connection: Connection) -> FrameReceiver:
        self._connection = connection
        return self

    def frame_received(self, frame: memoryview) -> None:
        response = decode_response(bytes(frame))
        self.acknowledged = response.zxid
        assert self.acknowledged <= self._log.last_zxid, "the follower has what the leader lacks"
        if not self.is_following:
            self.is_following = True
            self._sent = self.acknowledged
            self.send_new()
        self._on_change()

    def connection_lost(self, reason: str) -> None:
        self.is_following = False
        self._connection = None
        self._lost.set()

    def send_new(self) -> None:
        """TxnProposal what the log has beyond what was sent."""
        if not self.is_following:
            return
        assert self._connection is not None
        for txn in self._log.txns[self._sent :]:
            self._sent += 1
            self._send(
                txn_label(txn), self._connection, encode_request(self._sent, TxnProposal(txn))
            )

    def _send(self, label: str, connection: Connection, request: bytes) -> None:
        self._count(label)
        connection.send([framed(request)])
