"""SASL on the server: which frame is allowed when, and what answers it. Nothing here waits, sends or reads a clock.

`SaslServer` gets each frame of a connection that has not logged in yet, and gives a verdict. The caller does what the
verdict says: send, compute in a thread, open the connection, or hold the failure back and close. The same object
handles a later login on the open connection (re-authentication, KIP-368).

    state       frame                                   verdict                          next
    BEGIN       ApiVersions                             Serve, as on an open connection  BEGIN
    BEGIN       SaslHandshake v0 / v1, mechanism known  Reply 0                          RAW_TOKENS / TOKENS
    BEGIN       SaslHandshake, mechanism unknown        Failed 33                        OVER
    BEGIN       anything else                           Failed without an answer         OVER
    RAW_TOKENS  the token itself, without a header      Reply / Opened, framed alike     RAW_TOKENS / OPEN
    RAW_TOKENS  a token that is refused                 Failed without an answer         OVER
    TOKENS      SaslAuthenticate                        Reply / Opened                   TOKENS / OPEN
    TOKENS      SaslAuthenticate that is refused        Failed 58                        OVER
    TOKENS      any other request                       Failed 34, in its own shape      OVER
    OPEN        SaslHandshake, if a login is due        Reply 0, or Failed 33            TOKENS again
    OPEN        SaslHandshake or SaslAuthenticate       Reply 34                         OPEN
    OPEN        anything else, session over             Closed                           OVER
    OPEN        anything else                           Serve                            OPEN

A second ApiVersions is served, too (Kafka closes the connection). That is harmless, and some proxies send it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.security.login import Accepted, Challenge, Conversation, LoginRefused, Work
from ottla.wire import messages, schema
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.headers import RequestHeader, read_request_header, response_header

REAUTHENTICATION_INTERVAL_S: Final = 1.0

_SIZE: Final = Struct(">i")


class SaslState(Enum):
    BEGIN = auto()
    RAW_TOKENS = auto()
    TOKENS = auto()
    OPEN = auto()
    OVER = auto()


class SaslRules(NamedTuple):
    """What one listener allows."""

    mechanisms: Mapping[str, Callable[[], Conversation]]
    """Those that are enabled: what begins a login by each."""
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms of each; 0: a session has no end."""


class Login(NamedTuple):
    """Of an open connection."""

    user: str
    mechanism: str
    rests_on: tuple[str, int] | None
    session_ends: float | None
    """By the monotonic clock."""
    by_token: bool = False


# Verdicts. A frame is complete, with its size.


class Serve(NamedTuple):
    """The ordinary handler answers it."""


class Reply(NamedTuple):
    frame: bytes


class Opened(NamedTuple):
    frame: bytes
    login: Login


class Compute(NamedTuple):
    """Do this in a thread, then call `worked`. Give no frame to the server meanwhile."""

    work: Work


class Failed(NamedTuple):
    """Wait for the delay of failures, send the frame, close. Read nothing meanwhile."""

    frame: bytes | None
    why: str
    """For the operator's log only."""
    mechanism: str | None


class Closed(NamedTuple):
    """Close now: the session is over."""

    why: str


Verdict: TypeAlias = Serve | Reply | Opened | Compute | Failed | Closed


class SaslServer:
    """The logins of one connection."""

    def __init__(self, rules: SaslRules) -> None:
        self.state = SaslState.BEGIN
        self.login: Login | None = None
        """The last one that succeeded."""
        self._rules = rules
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self._asked: RequestHeader | None = None
        """The request whose token is being looked at; None for a raw token."""
        self._reauthentication_began: float | None = None

    @property
    def claimed(self) -> str | None:
        """Who the client says that it is, for the operator's log."""
        return None if self._conversation is None else self._conversation.claimed

    def is_session_over(self, now: float) -> bool:
        ends = None if self.login is None else self.login.session_ends
        return ends is not None and now >= ends

    def received(self, frame: memoryview, now: float, wall_ms: int) -> Verdict:
        """`now` by the monotonic clock, `wall_ms` by the wall clock. It never raises, whatever the frame is."""
        if self.state is SaslState.OVER:
            return Closed("a frame after the end")
        if self.state is SaslState.RAW_TOKENS:
            self._asked = None
            return self._token(bytes(frame), now, wall_ms)
        try:
            header = read_request_header(frame)
            if self.state is SaslState.OPEN:
                return self._while_open(header, frame, now)
            if self.state is SaslState.TOKENS:
                return self._tokens(header, frame, now, wall_ms)
            return self._begin(header, frame)
        except InvalidFrame as error:
            return self._failed(None, str(error))

    def worked(self, accepted: Accepted | None, now: float, wall_ms: int) -> Verdict:
        """What the computation found."""
        if accepted is None:
            return self._refused("user or password is wrong")
        return self._accepted(accepted, now, wall_ms)

    # States

    def _begin(self, header: RequestHeader, frame: memoryview) -> Verdict:
        if header.api_key == ApiKey.API_VERSIONS:
            return Serve()
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(header, frame)
        return self._failed(None, f"api key {header.api_key} before a login")

    def _tokens(
        self, header: RequestHeader, frame: memoryview, now: float, wall_ms: int
    ) -> Verdict:
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            return self._failed(_illegal_state(header), f"api key {header.api_key} during a login")
        self._asked = header
        message = _read(header, frame)
        return self._token(bytes(message.auth_bytes), now, wall_ms)

    def _while_open(self, header: RequestHeader, frame: memoryview, now: float) -> Verdict:
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            if not self._may_login_again(header.api_version, now):
                return Reply(_illegal_state(header) or b"")
            self._reauthentication_began = now
            return self._handshake(header, frame)
        if self.is_session_over(now):
            self.state = SaslState.OVER
            return Closed("the session is over, and the client did not log in again")
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            return Reply(_illegal_state(header) or b"")
        return Serve()

    def _may_login_again(self, version: int, now: float) -> bool:
        """Raw tokens have no place between the requests of an open connection, so not by version 0."""
        began = self._reauthentication_began
        return (
            version >= 1
            and self.login is not None
            and self.login.session_ends is not None
            and (began is None or now - began >= REAUTHENTICATION_INTERVAL_S)
        )

    def _handshake(self, header: RequestHeader, frame: memoryview) -> Verdict:
        mechanism = str(_read(header, frame).mechanism)
        start = self._rules.mechanisms.get(mechanism)
        error = ErrorCode.NONE if start else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        fields = {"error_code": error, "mechanisms": tuple(self._rules.mechanisms)}
        answer = _framed(header, fields)
        if start is None:
            return self._failed(answer, "the mechanism is not enabled", mechanism=mechanism)
        self._mechanism = mechanism
        self._conversation = start()
        self.state = SaslState.TOKENS if header.api_version else SaslState.RAW_TOKENS
        return Reply(answer)

    # Tokens

    def _token(self, token: bytes, now: float, wall_ms: int) -> Verdict:
        assert self._conversation is not None, "a handshake came first"
        if self.login is not None and self._mechanism != self.login.mechanism:
            text = (
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self.login.mechanism}'"
            )
            return self._refused("another mechanism than at the first login", text)
        try:
            outcome = self._conversation.evaluate(token)
        except LoginRefused as refusal:
            return self._refused(str(refusal))
        if isinstance(outcome, Challenge):
            return Reply(self._told(outcome.message, 0))
        if isinstance(outcome, Work):
            return Compute(outcome)
        return self._accepted(outcome, now, wall_ms)

    def _accepted(self, accepted: Accepted, now: float, wall_ms: int) -> Verdict:
        before = self.login
        who = accepted.user, accepted.by_token
        if before is not None and (before.user, before.by_token) != who:
            text = (
                "Cannot change principals during re-authentication from"
                f" User:{before.user} to User:{accepted.user}"
            )
            return self._refused("another user than at the first login, or by a token", text)
        if accepted.expires_ms is not None and accepted.expires_ms <= wall_ms:
            return self._refused("the credential has expired")
        lifetime_ms = self._lifetime_ms(accepted, wall_ms)
        ends = now + lifetime_ms / 1000 if lifetime_ms else None
        self.login = Login(
            accepted.user, self._mechanism, accepted.rests_on, ends, accepted.by_token
        )
        self.state = SaslState.OPEN
        return Opened(self._told(accepted.message, lifetime_ms), self.login)

    def _lifetime_ms(self, accepted: Accepted, wall_ms: int) -> int:
        """0: the session has no end."""
        limits = []
        if accepted.expires_ms is not None:
            limits.append(accepted.expires_ms - wall_ms)
        if (reauth_ms := self._rules.max_reauth_ms.get(self._mechanism, 0)) > 0:
            limits.append(reauth_ms)
        return min(limits, default=0)

    # Answers

    def _told(self, message: bytes, lifetime_ms: int) -> bytes:
        if self._asked is None:
            return _SIZE.pack(len(message)) + message
        fields = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "auth_bytes": message,
            "session_lifetime": lifetime_ms,
        }
        return _framed(self._asked, fields)

    def _refused(self, why: str, text: str | None = None) -> Failed:
        if self._asked is None:
            return self._failed(None, why)
        fields = {
            "error_code": ErrorCode.SASL_AUTHENTICATION_FAILED,
            "error_message": text or self._invalid_credentials(),
            "auth_bytes": b"",
        }
        return self._failed(_framed(self._asked, fields), why)

    def _invalid_credentials(self) -> str:
        """Kafka's text. It is the same for every reason."""
        kind = "authentication" if self.login is None else "re-authentication"
        return (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )

    def _failed(self, frame: bytes | None, why: str, *, mechanism: str | None = None) -> Failed:
        self.state = SaslState.OVER
        return Failed(frame, why, mechanism or self._mechanism or None)


def _read(header: RequestHeader, frame: memoryview) -> Any:
    return messages.read_request(header.api_key, header.api_version, frame, header.body)


def _framed(header: RequestHeader, fields: Mapping[str, Any]) -> bytes:
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    body = messages.write_response(header.api_key, header.api_version, fields)
    return _SIZE.pack(len(head) + len(body)) + head + body


def _illegal_state(header: RequestHeader) -> bytes | None:
    """ILLEGAL_SASL_STATE as the whole answer of an API. None if its answer has no place for an error of the whole; what
    was asked is not decoded for that."""
    key, version = header.api_key, header.api_version
    if key in PRIVATE_APIS or not APIS[ApiKey(key)].serves(version):
        return None
    fields = schema.message(key, version, "response").fields
    if not any(field.name == "error_code" for field in fields):
        return None
    return _framed(header, {"error_code": ErrorCode.ILLEGAL_SASL_STATE})
