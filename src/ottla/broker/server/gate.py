"""The gate of a connection on a listener with SASL: nothing but a login passes until somebody has logged in.

`security.sasl` decides. This is the asyncio around it: clocks, deadlines, the delay of failures, and work in threads. A
connection that is open has no gate, so it costs one look at one attribute per frame. The gate returns when the client logs
in again, and when the session has ended (KIP-368).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.password_queue import PasswordQueue
from ottla.runtime.seams import Clock
from ottla.security.authorizer import Via
from ottla.security.failures import FailureDelays
from ottla.security.login import Work
from ottla.security.principals import USER, Principal, TokenPrincipal
from ottla.security.sasl import (
    Closed,
    Compute,
    Failed,
    Login,
    Opened,
    Reply,
    SaslRules,
    SaslServer,
    SaslState,
    Serve,
    Verdict,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.headers import read_request_header
from ottla.wire.printable import NAME_CHARACTERS, printable_name

logger = logging.getLogger(__name__)

TIME_TO_READ_S: Final = 0.1
"""Between the answer to a failed login and the end. kafka-python loses an answer that comes together with the end."""
LAST_ANSWER_S: Final = 0.5
"""A client whose own request took its credential away gets the answer to it within this time."""


def _nothing() -> None:
    pass


class Logins:
    """What the listeners of one node share: the threads for passwords, and all who have logged in or are about to."""

    def __init__(self, clock: Clock, delays: FailureDelays | None = None) -> None:
        self.clock = clock
        self.gates: dict[Gate, None] = {}
        self.delays = delays or FailureDelays(0.0)
        self.passwords = PasswordQueue(clock, self.delays)

    def credentials_changed(self, changed: Iterable[tuple[str, int]]) -> None:
        """End every session that rests on one of these: (user, number of the mechanism). And every login of these users
        that has begun: it was told the old salt, and would succeed with the old password."""
        credentials = set(changed)
        users = {name for name, _ in credentials}
        for gate in list(self.gates):
            if gate.rests_on in credentials or gate.logs_in_as in users:
                gate.revoked()


class GateLimits(NamedTuple):
    frame_bytes_max: int
    """sasl.server.max.receive.size, until the connection is open."""
    timeout_s: float
    """For the handshake of TLS and the login together."""
    failure_delay_s: float
    waiting_max: int
    """Connections of the listener that have not logged in. Of more, the oldest is closed."""


class GatedListener:
    """One listener with SASL: it puts a gate before each connection."""

    def __init__(self, logins: Logins, rules: SaslRules, limits: GateLimits) -> None:
        self.logins = logins
        self.rules = rules
        self.limits = limits
        self.waiting: dict[Gate, None] = {}
        self.succeeded = 0
        self.renewed = 0
        """Later logins on open connections."""
        self.failed = 0
        """Of both."""
        self.expired = 0
        """Connections that were closed because their session was over."""

    def guard(self, connection: ServerConnection) -> None:
        gate = connection.gate = connection.sasl = Gate(self, connection)
        self.waiting[gate] = None
        if len(self.waiting) > self.limits.waiting_max:
            oldest = next(iter(self.waiting))
            logger.info(
                "closing connection, too many wait to log in peer=%s listener=%s",
                oldest.connection.peer,
                oldest.connection.listener,
            )
            oldest.end()


class Gate:
    """Of one connection, for as long as it lives."""

    def __init__(self, listener: GatedListener, connection: ServerConnection) -> None:
        self.connection = connection
        self._listener = listener
        self._logins = listener.logins
        self._sasl = SaslServer(listener.rules)
        self._request: Request | None = None
        """What is to be answered next; None for a token without a header."""
        self._login: Login | None = None
        self._frame_bytes_max = connection.limit_frames(listener.limits.frame_bytes_max)
        self._logins.gates[self] = None
        self._timer: asyncio.TimerHandle | None = None
        left_s = max(0.0, listener.limits.timeout_s - connection.handshake_s)
        self._set_timer(left_s, self._too_late)
        connection.on_close.append(self._connection_closed)

    @property
    def rests_on(self) -> tuple[str, int] | None:
        """The stored credential of its session."""
        return None if self._login is None else self._login.rests_on

    @property
    def logs_in_as(self) -> str | None:
        """The user of a login that has begun and is not over."""
        return None if self._sasl.state is SaslState.OPEN else self._sasl.claimed

    # Frames

    def received(self, frame: memoryview) -> bool:
        """False if the connection itself is to serve the frame."""
        connection = self.connection
        if not connection.server.handlers:
            connection.abort()  # the node is starting: nobody is known yet. Clients come again.
            return True
        self._request = None
        verdict = self._verdict(frame)
        if isinstance(verdict, Serve):
            return False
        if self._login is not None:
            # Earlier requests may wait for their answers: this one waits for its turn.
            with suppress(InvalidFrame):  # that fails without an answer
                self._request = connection.begin(read_request_header(frame))
        self._obey(verdict)
        return True

    def again(self, request: Request) -> None:
        """SaslHandshake or SaslAuthenticate on the open connection."""
        self._request = request
        verdict = self._verdict(request.frame)
        assert not isinstance(verdict, Serve), "an open connection serves both by itself"
        self._obey(verdict)

    def _verdict(self, frame: memoryview) -> Verdict:
        clock = self._logins.clock
        return self._sasl.received(frame, clock.monotonic(), clock.wall_ms())

    def _obey(self, verdict: Verdict) -> None:
        match verdict:
            case Reply(frame):
                self._send(frame)
                if self._sasl.state is SaslState.TOKENS and self.connection.gate is None:
                    self._close_gate()
            case Opened(frame, login):
                if self._open(login):
                    self._send(frame)
            case Compute(work):
                self.connection.hold()
                self.connection.server.spawn(self._compute(work))
            case Failed(frame, why, mechanism):
                self._fail(frame, why, mechanism)
            case Closed(why):
                self._end_session(why)

    def _send(self, frame: bytes) -> None:
        if self._request is None:
            self.connection.send(frame)
        else:
            self._request.respond_frame(frame)

    async def _compute(self, work: Work) -> None:
        try:
            connection = self.connection
            accepted = await self._logins.passwords.compute(
                work, connection.peer_host, lambda: not connection.closed
            )
        except ConnectionError as error:
            self._listener.failed += 1
            self._log(str(error), None)
            self.end()
            return
        except Exception:
            logger.exception("closing connection, a login failed peer=%s", self.connection.peer)
            self.end()
            return
        if self.connection.closed:
            return
        clock = self._logins.clock
        self._obey(self._sasl.worked(accepted, clock.monotonic(), clock.wall_ms()))
        self.connection.release()

    # States

    def _open(self, login: Login) -> bool:
        """False if there is no room for it."""
        connection = self.connection
        limits = connection.server.limits
        if self._login is None and limits is not None and not limits.entered(connection):
            self.end()
            return False
        if connection.gate is self:
            connection.gate = None
        if self._login is None:
            self._listener.waiting.pop(self, None)
            kind = TokenPrincipal if login.by_token else Principal
            connection.authenticated(kind(USER, login.user), login.mechanism)
            connection.limit_frames(self._frame_bytes_max)
            self._listener.succeeded += 1
        else:
            self._listener.renewed += 1
        self._login = login
        if (audit := connection.server.audit) is not None:
            via = Via(connection.listener, login.mechanism)
            audit.logged_in(connection.principal, connection.peer_host, via)
        if login.session_ends is None:
            self._set_timer(None)
        else:
            left_s = login.session_ends - self._logins.clock.monotonic()
            self._set_timer(left_s, self._session_over)
        logger.debug(
            "logged in peer=%s listener=%s mechanism=%s user=%s",
            connection.peer,
            connection.listener,
            login.mechanism,
            printable_name(login.user),
        )
        return True

    def _close_gate(self) -> None:
        """The client logs in again, or its session is over: its next frame is looked at here."""
        self.connection.gate = self

    def _session_over(self) -> None:
        self._close_gate()
        self._answer_parked()

    def _answer_parked(self) -> None:
        """A fetch that waits may wait for hours, and would be answered with records that came when its session was over. Its
        client reads what there is now, and may log in again, as with Kafka."""
        parked = self.connection.parked_fetch
        if parked is not None:
            parked.complete()

    def ends_if_over(self) -> bool:
        """For an answer that comes late and tells of others: if the session is over by now, the connection is."""
        over = self._sasl.is_session_over(self._logins.clock.monotonic())
        if over and not self.connection.closed:
            self._end_session("an answer came when the session was over")
        return over

    def _end_session(self, why: str) -> None:
        self._listener.expired += 1
        self._log(why, self._mechanism(), "session_end")
        self.end()

    def _fail(self, frame: bytes | None, why: str, mechanism: str | None) -> None:
        """Nothing is read until the connection closes, so a guess costs the delay."""
        self._listener.failed += 1
        self._log(why, mechanism)
        self._close_gate()
        self._answer_parked()
        self.connection.hold()
        first_s, now = self._listener.limits.failure_delay_s, self._logins.clock.monotonic()
        delay_s = self._logins.delays.failed(self.connection.peer_host, first_s, now)
        self._set_timer(delay_s, lambda: self._tell_failure(frame))

    def _tell_failure(self, frame: bytes | None) -> None:
        if frame is None:
            self.end()
        else:
            self._send(frame)
            self._set_timer(TIME_TO_READ_S, self.connection.close)

    def revoked(self) -> None:
        """The credential of its session was changed or removed. Its own request may have done that."""
        connection = self.connection
        self._log("its credential was changed or removed", self._mechanism(), "session_end")
        if connection.awaits(ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
            connection.hold()
            self._answer_parked()
            self._set_timer(LAST_ANSWER_S, self.end)
        else:
            self.end()

    def _too_late(self) -> None:
        self._listener.failed += 1
        self._log("the login took too long", None)
        self.end()

    def end(self) -> None:
        self.connection.abort()
        self._connection_closed()

    def _connection_closed(self) -> None:
        self._set_timer(None)
        self._listener.waiting.pop(self, None)
        self._logins.gates.pop(self, None)

    def _set_timer(self, seconds: float | None, then: Callable[[], None] = _nothing) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, then)

    # Words

    def _mechanism(self) -> str | None:
        return None if self._login is None else self._login.mechanism

    def _log(self, why: str, mechanism: str | None, kind: str = "login_failure") -> None:
        """It ends: why, for the operator. The client is told less."""
        claimed = self._sasl.claimed
        connection = self.connection
        if (audit := connection.server.audit) is not None:
            # The client chose it: the audit remembers what it was told lately.
            via = Via(connection.listener, mechanism and mechanism[:NAME_CHARACTERS])
            audit.login_ended(kind, claimed, connection.peer_host, via, why)
        logger.info(
            "closing connection, login refused or over peer=%s listener=%s mechanism=%s user=%s reason=%s",
            self.connection.peer,
            self.connection.listener,
            printable_name(mechanism or "-"),
            "-" if claimed is None else printable_name(claimed),
            why,
        )
