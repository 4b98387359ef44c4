"""Votes and messages about epochs to the voters: which are under way, and when the next may leave (Kafka's RequestManager).

At most one is under way to each voter. Fetches are counted apart (see `follower`).
"""

from __future__ import annotations

import math

from ottla.raft.messages import QuorumRequest
from ottla.raft.outputs import Outputs, Send


class RequestManager:
    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._under_way: dict[int, Send] = {}
        self._not_before: dict[int, float] = {}

    def is_under_way(self, peer: int) -> bool:
        return peer in self._under_way

    def not_before(self, peer: int) -> float:
        return self._not_before.get(peer, -math.inf)

    def send(self, peer: int, request: QuorumRequest) -> None:
        self._under_way[peer] = send = Send(peer, request)
        self._outputs.outbox.append(send)

    def finish(self, send: Send) -> bool:
        """Whether `send` was under way. It is no longer."""
        if self._under_way.get(send.peer) is not send:
            return False
        del self._under_way[send.peer]
        return True

    def pause(self, peer: int, until: float) -> None:
        self._not_before[peer] = until

    def clear(self) -> None:
        """A new role: the answers to what is under way do not count any more."""
        self._under_way.clear()
        self._not_before.clear()
