"""Connections to the other nodes of the quorum: one per peer, opened when something is to be sent. Requests to change the
voters have one of their own, because their answers may take long, and those to fetches would wait behind them.

If a request gets no answer in time its connection is closed, because answers come in order and the next one would wait
behind it. A peer that refuses, is gone or does not answer is reported, never retried here: Raft decides when to ask
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.broker.cluster.node_channels import open_channel
from ottla.broker.cluster.raft_wire import API_OF, RefusedAnswer, read_answer, request_body
from ottla.raft.messages import AddVoter, QuorumAnswer, RemoveVoter, UpdateVoter
from ottla.raft.outputs import Send
from ottla.raft.voters import QuorumEndpoint
from ottla.runtime.seams import Network
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

logger = logging.getLogger(__name__)


_HINTS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "this node's principal is no super user there (add it to super.users of all nodes), or its certificate may be"
        " that of another node: the log of the peer says which"
    ),
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "this node's directories are those of another cluster; if they hold nothing yet, remove them, and format them with"
        " the id of the cluster that it joins: ottla kafka-storage format --cluster-id ID --config FILE"
    ),
}
"""In words, where the cause is a setting."""


def _hint(error: int) -> str:
    return next((hint for code, hint in _HINTS.items() if code == error), "none")


class RaftChannels:
    def __init__(
        self,
        network: Network,
        client_id: str,
        cluster_id: str,
        timeout_s: float,
        *,
        on_answer: Callable[[Send, QuorumAnswer], None],
        on_failure: Callable[[Send], None],
        on_disconnect: Callable[[int], None],
    ) -> None:
        self.network = network
        self.client_id = client_id
        self.cluster_id = cluster_id
        self.timeout_s = timeout_s
        self.on_answer = on_answer
        self.on_failure = on_failure
        self.on_disconnect = on_disconnect
        self._peers: dict[tuple[int, bool], _VoterChannel] = {}
        self._refusals: dict[int, int] = {}
        """The error of each peer that refuses what this node sends."""

    @property
    def refusal(self) -> str | None:
        """Who refuses this node's requests, and why; None while nobody does."""
        if not self._refusals:
            return None
        peers = sorted(self._refusals)
        error = self._refusals[peers[0]]
        named = ", ".join(map(str, peers))
        return f"quorum requests are refused by {named} with error {error}: {_hint(error)}"

    def refused(self, peer: int, api: ApiKey, error: int) -> None:
        """Raft asks again and again, and one line is enough."""
        if self._refusals.get(peer) != error:
            self._refusals[peer] = error
            logger.warning(
                "quorum request refused peer=%d api=%s error=%d hint=%s",
                peer,
                api.name,
                error,
                _hint(error),
            )

    def accepted(self, peer: int) -> None:
        if self._refusals and self._refusals.pop(peer, None) is not None:
            logger.info("quorum requests are no longer refused peer=%d", peer)

    def send(self, send: Send, where: QuorumEndpoint | None) -> None:
        if where is None:
            logger.warning("no address known of quorum node peer=%d", send.peer)
            asyncio.get_running_loop().call_soon(self.on_failure, send)
            return
        is_slow = isinstance(send.request, AddVoter | RemoveVoter | UpdateVoter)
        key = send.peer, is_slow
        peer = self._peers.get(key)
        if peer is None or peer.where[1:] != where[1:]:
            if peer is not None:
                peer.close()
            on_disconnect = (lambda _: None) if is_slow else self.on_disconnect
            peer = self._peers[key] = _VoterChannel(self, send.peer, where, on_disconnect)
        peer.send(send)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class _VoterChannel:
    def __init__(
        self,
        peers: RaftChannels,
        node: int,
        where: QuorumEndpoint,
        on_disconnect: Callable[[int], None],
    ) -> None:
        self.where = where
        self._on_disconnect = on_disconnect
        self._peers = peers
        self._node = node
        self._channel: Channel | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: dict[Send, None] = {}  # for the connection
        self._timers: dict[Send, asyncio.TimerHandle] = {}  # for an answer
        self._closed = False

    def send(self, send: Send) -> None:
        if self._channel is not None and not self._channel.closed:
            self._transmit(self._channel, send)
            return
        self._waiting[send] = None
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        peers = self._peers
        channel = None
        try:
            async with asyncio.timeout(peers.timeout_s):
                channel = await open_channel(
                    peers.network, self._node, self.where.host, self.where.port, peers.client_id
                )
                await channel.negotiate(peers.timeout_s)
        except (OSError, TimeoutError, KafkaError, InvalidFrame) as error:
            logger.debug("no connection to quorum node peer=%d error=%s", self._node, error)
            if channel is not None:
                channel.abort()
            self._opening = None
            self._fail_waiting()
            return
        self._opening = None
        channel.on_close.append(self._lost)
        self._channel = channel
        waiting, self._waiting = self._waiting, {}
        for send in waiting:
            self._transmit(channel, send)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for send in waiting:
            self._peers.on_failure(send)

    def _transmit(self, channel: Channel, send: Send) -> None:
        peers = self._peers
        key = API_OF[type(send.request)]
        try:
            version = channel.version_for(key)
            body = request_body(send.request, version, peers.cluster_id)

            def answered(frame: memoryview, offset: int) -> None:
                self._done(send)
                answer = read_answer(send.request, version, frame, offset)
                if isinstance(answer, RefusedAnswer):
                    peers.refused(self._node, key, answer.error)
                    peers.on_failure(send)
                else:
                    peers.accepted(self._node)
                    peers.on_answer(send, answer)

            def failed(error: Exception) -> None:
                self._done(send)
                peers.on_failure(send)

            channel.call(key, version, body, answered, on_failure=failed)
        except (ConnectionError, KafkaError) as error:
            logger.info(
                "cannot send quorum request api=%s peer=%d error=%s", key.name, self._node, error
            )
            asyncio.get_running_loop().call_soon(peers.on_failure, send)
            return
        self._timers[send] = asyncio.get_running_loop().call_later(
            peers.timeout_s, channel.abort, f"no answer to {key.name} in time"
        )

    def _done(self, send: Send) -> None:
        timer = self._timers.pop(send, None)
        if timer is not None:
            timer.cancel()

    def _lost(self, reason: str) -> None:
        self._channel = None
        if not self._closed:
            self._on_disconnect(self._node)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        for send in self._waiting:
            asyncio.get_running_loop().call_soon(self._peers.on_failure, send)
        for timer in self._timers.values():
            timer.cancel()
        if self._channel is not None:
            self._channel.close()
