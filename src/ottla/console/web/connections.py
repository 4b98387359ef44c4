"""The connections of browsers: how many there may be, and how long each may keep us waiting.

uvicorn ends a connection that says nothing between two requests, and no other. Whoever opened some hundred connections and said
nothing, or half a request, would keep everybody else out, without a login. So each has a time for what it owes: the head of a
request, its body, and to take the answer. And where too many are open, the one that has owed a request for the longest gives
way to the one that comes: silent connections, however many, keep nobody out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ottla.console.web.origins import network_of, plain_address
from ottla.runtime.seams import Clock

CONNECTIONS_MAX: Final = 500
OF_AN_ADDRESS_MAX: Final = 200
BODY_STEP: Final = 64 << 10
"""Bytes of a body that must come in its time; fewer if it has no more."""
TAKING_STEP: Final = 32 << 10
"""Bytes of an answer that must be taken in its time."""


class Owes(Enum):
    """What a browser has to do next."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    REST = auto()
    """Of a body that nobody wants any more, since it was answered without it."""
    TAKING = auto()
    """The answer, which is written faster than it is read."""


SECONDS: Final = {Owes.HEAD: 20.0, Owes.BODY: 20.0, Owes.REST: 5.0, Owes.TAKING: 30.0}
"""How long it may do none of it."""


class HowFar(NamedTuple):
    """How far a connection was when it had last done enough."""

    at: float
    owes: Owes
    done: tuple[int, ...]


class BrowserConnection(H11Protocol):
    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], crowd: Crowd
    ) -> None:
        super().__init__(config, state, app_state)
        self._crowd = crowd
        self._received = 0
        self._answered = 0
        self._resumed = 0
        self.address = ""
        self.mark = HowFar(crowd.clock.monotonic(), Owes.HEAD, (0,))

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = network_of(plain_address(self.client[0])) if self.client else ""
        self._crowd.arrived(self)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._answered += 1
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    @property
    def owes(self) -> Owes:
        if self.flow.write_paused or self.transport.is_closing():
            return Owes.TAKING
        if self.conn.their_state is h11.IDLE:
            return Owes.HEAD
        if self.conn.their_state is h11.SEND_BODY:
            if self.cycle.response_complete:
                return Owes.REST
            # If we do not read, it need not send.
            return Owes.NOTHING if self.flow.read_paused else Owes.BODY
        return Owes.NOTHING

    def _done(self, owes: Owes) -> tuple[int, ...]:
        match owes:
            case Owes.HEAD:
                return (self._answered,)
            case Owes.BODY:
                return (self._received,)
            case Owes.TAKING:
                return (self._resumed, self.transport.get_write_buffer_size())
        return ()

    def look(self, now: float) -> None:
        """Mark how far it is, if that is far enough since the last mark."""
        owes = self.owes
        done = self._done(owes)
        if owes is not self.mark.owes or _is_enough(owes, self.mark.done, done):
            self.mark = HowFar(now, owes, done)

    def is_late(self, now: float) -> bool:
        return self.mark.owes in SECONDS and now - self.mark.at > SECONDS[self.mark.owes]

    def end(self) -> None:
        """At once: whoever does not read cannot be told anything."""
        self.connections.discard(self)
        self.transport.abort()


def _is_enough(owes: Owes, before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    match owes:
        case Owes.HEAD:
            return now != before
        case Owes.BODY:
            return now[0] - before[0] >= BODY_STEP
        case Owes.TAKING:
            return now[0] != before[0] or before[1] - now[1] >= TAKING_STEP
    return False


class Crowd:
    """All connections of a console."""

    def __init__(self, open_: Collection[Any], clock: Clock, proxies: Collection[str] = ()) -> None:
        """`open_`: the connections, as uvicorn keeps them. A proxy has those of everybody, so that its address may have any
        number."""
        self._open = open_
        self.clock = clock
        self._proxies = {network_of(each) for each in proxies}

    def arrived(self, new: BrowserConnection) -> None:
        """Make room for it. If all others are busy, it is the one that goes."""
        of_its_address = [each for each in self._open if each.address == new.address]
        if len(of_its_address) > OF_AN_ADDRESS_MAX and new.address not in self._proxies:
            self._one_ends(of_its_address)
        elif len(self._open) > CONNECTIONS_MAX:
            numbers = Counter(each.address for each in self._open)
            (most, _), *_ = numbers.most_common(1)
            theirs = [each for each in self._open if each.address == most and each is not new]
            if not self._one_ends(theirs):
                self._one_ends(self._open)

    def _one_ends(self, connections: Iterable[BrowserConnection]) -> bool:
        """Whether any of them owed a request."""
        now = self.clock.monotonic()
        waited_for = []
        for each in connections:
            each.look(now)
            if each.mark.owes in (Owes.HEAD, Owes.BODY, Owes.REST):
                waited_for.append(each)
        if waited_for:
            min(waited_for, key=lambda each: each.mark.at).end()
        return bool(waited_for)

    def end_what_is_late(self) -> None:
        now = self.clock.monotonic()
        for each in list(self._open):
            each.look(now)
            if each.is_late(now):
                each.end()
