"""Requests that wait for a coordinator's reply, and the replies that wait for their commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.broker.server.connections import Request
from ottla.coordinators.shard import Effects
from ottla.runtime import Clock
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

Reply = Callable[[Mapping[str, Any]], None]

Refusal = Callable[[ApiKey, int, Any, ErrorCode], Mapping[str, Any]]
"""(api, version, request message, error) -> the response with that error in the API's shape."""


class PendingReply:
    """A request that a shard has not answered yet. It is the token that the shard gets for it."""

    __slots__ = ("_all", "_refusal", "_reply", "api_key", "is_answered", "message", "version")

    def __init__(
        self,
        all: dict[PendingReply, None],
        api_key: ApiKey,
        version: int,
        message: Any,
        reply: Reply,
        refusal: Refusal,
    ) -> None:
        """It stands in `all`, the pending replies of its shard, until it is answered."""
        self.api_key = api_key
        self.version = version
        self.message = message
        self.is_answered = False
        self._reply = reply
        self._refusal = refusal
        self._all = all
        all[self] = None

    def answer(self, fields: Mapping[str, Any]) -> None:
        assert not self.is_answered, self.api_key
        self.is_answered = True
        self._all.pop(self, None)
        self._reply(fields)

    def refuse(self, error: ErrorCode) -> None:
        self.answer(self._refusal(self.api_key, self.version, self.message, error))


def reply_to(request: Request) -> Reply:
    """The response to a request. A client that has closed its connection gets none."""

    def reply(fields: Mapping[str, Any]) -> None:
        if not request.connection.closed:
            request.respond(fields)

    return reply


class ReplyCollector:
    """Collects the replies of several shards and hands them over together when the last one is there."""

    def __init__(self, count: int, done: Callable[[list[Mapping[str, Any]]], None]) -> None:
        self._replies: list[Mapping[str, Any] | None] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def reply(self, index: int) -> Reply:
        def give(fields: Mapping[str, Any]) -> None:
            self._replies[index] = fields
            self._missing -= 1
            if self._missing == 0:
                self._done([reply for reply in self._replies if reply is not None])

        return give


class DeferredReplies:
    """Decisions of a shard whose replies and actions wait until the high watermark has passed their records.

    They leave in the order of the decisions. A reply that waits for too long is refused: the decision stands and may
    still be committed, but its client is told to retry. Actions wait on.
    """

    def __init__(
        self,
        clock: Clock,
        perform: Callable[[Any], None],
        on_timeout: Callable[[int], None],
    ) -> None:
        """`perform` does what a decision's actions ask for; `on_timeout` is called with the number of replies that
        were refused."""
        self._clock = clock
        self._perform = perform
        self._on_timeout = on_timeout
        self._queue: deque[tuple[int, float, Effects]] = deque()
        """(high watermark that the replies wait for, until when, effects), in the order of the decisions."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, offset: int, until: float, effects: Effects) -> None:
        self._queue.append((offset, until, effects))

    def complete_up_to(self, high_watermark: float) -> None:
        while self._queue and self._queue[0][0] <= high_watermark:
            _, _, effects = self._queue.popleft()
            for token, fields in effects.replies:
                assert isinstance(token, PendingReply)
                if not token.is_answered:
                    token.answer(fields)
            for action in effects.actions:
                self._perform(action)

    def start_timer(self, until: float) -> None:
        """If something is left that a timer does not yet guard."""
        if self._queue and self._timer is None:
            self._set_timer(until)

    def _set_timer(self, until: float) -> None:
        delay = max(0.0, until - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        kept: list[tuple[int, float, Effects]] = []
        refused = 0
        while self._queue and self._queue[0][1] <= now:
            offset, until, effects = self._queue.popleft()
            for token, _ in effects.replies:
                assert isinstance(token, PendingReply)
                if not token.is_answered:
                    refused += 1
                    token.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if effects.actions:
                kept.append((offset, until, replace(effects, replies=())))
        if self._queue:
            self._set_timer(self._queue[0][1])
        self._queue.extendleft(reversed(kept))
        self._on_timeout(refused)

    def clear(self) -> None:
        self._queue.clear()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
