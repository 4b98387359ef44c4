"""One client connection to a broker or controller. Brokers, the command line and Spark's writer use it.

Requests are pipelined. A broker answers a connection's requests in order, so every response must belong to the oldest
outstanding request. Any other response, and any that cannot be read, ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import ottla
from ottla.runtime.seams import Connection, Identity, Network
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.headers import read_response_header, request_frame

T = TypeVar("T")

_LOGIN_APIS: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))

OnResponse = Callable[[memoryview, int], None]
"""Called with a frame, valid only during the call, and the position of the body in it."""

_CORRELATION_ID_MAX: Final = 2**31 - 1

LOGIN_AGAIN_AFTER: Final = 0.85
"""Of a session that has an end: the part of it after which we log in again (Kafka's clients: 85 to 95 %)."""


class _Outstanding(NamedTuple):
    key: int
    version: int
    correlation_id: int
    on_response: OnResponse
    on_failure: Callable[[Exception], None] | None


class _NextLogin(NamedTuple):
    at: float
    begin: Callable[[], None]
    timer: asyncio.TimerHandle


class LoginConversation(Protocol):
    """Our half of one login (`security.sasl_client`)."""

    mechanism: str

    def first(self) -> bytes: ...

    def answer(self, message: bytes) -> bytes | None:
        """To the server's message; None when the login is over. It may take milliseconds."""


class Channel:
    """A connection that sends requests and receives responses. `Channel.open` makes one."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        self.client_id = client_id
        self.on_close: list[Callable[[str], None]] = []
        self.versions: dict[int, tuple[int, int]] = {}
        """The versions that the other side announced, by api key; empty before `negotiate`."""
        self.features: dict[str, int] = {}
        """The cluster's finalized feature levels, as the other side announced them in `negotiate`."""
        self._connection = connection
        self._outstanding: deque[_Outstanding] = deque()
        self._next_correlation_id = 0
        self._close_reason: str | None = None
        self._lost = False
        self._held: list[Callable[[], None]] | None = None
        """Requests that wait while we log in again. A server takes no others then."""
        self._next_login: _NextLogin | None = None
        self._login: asyncio.Task[None] | None = None
        self.has_logged_in = False

    @classmethod
    async def open(cls, network: Network, host: str, port: int, client_id: str) -> Channel:
        """Raises OSError if nothing listens there, or nothing answers."""
        opened: list[Channel] = []

        def receive(connection: Connection) -> Channel:
            opened.append(cls(connection, client_id))
            return opened[0]

        await network.connect(host, port, receive)
        return opened[0]

    @property
    def closed(self) -> bool:
        return self._lost or self._connection.closed

    @property
    def identity(self) -> Identity | None:
        """What the other end has proved; None without TLS. Connections that wrap others have none."""
        return getattr(self._connection, "identity", None)

    @property
    def peer(self) -> tuple[str, int]:
        return self._connection.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._connection.local

    def close(self) -> None:
        """Send what is queued, then close. Outstanding requests fail."""
        self._connection.close()

    def abort(self, reason: str | None = None) -> None:
        """Close now."""
        if self._close_reason is None:
            self._close_reason = reason
        self._connection.abort()

    def call(
        self,
        key: int,
        version: int,
        body: bytes,
        on_response: OnResponse | None,
        *,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Send a request. `on_response` handles its response in place. It is None only for the request without a
        response (Produce with acks=0). ConnectionError if the connection is closed already; if it is lost later,
        `on_failure` is called."""
        if self.closed:
            raise ConnectionError(f"the connection to {self._where()} is closed")
        due = self._next_login
        if due is not None and due.at <= asyncio.get_running_loop().time():
            due.begin()  # the loop has not run for a while, so the timer is late
        if self._held is not None and key not in _LOGIN_APIS:
            self._held.append(lambda: self._call_later(key, version, body, on_response, on_failure))
            return
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        frame = request_frame(key, version, correlation_id, self.client_id, body)
        if on_response is not None:
            self._outstanding.append(
                _Outstanding(key, version, correlation_id, on_response, on_failure)
            )
        self._connection.send([frame])

    def _call_later(
        self,
        key: int,
        version: int,
        body: bytes,
        on_response: OnResponse | None,
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        try:
            self.call(key, version, body, on_response, on_failure=on_failure)
        except ConnectionError as error:
            if on_failure is not None:
                on_failure(error)

    async def log_in(
        self, begin: Callable[[], LoginConversation], *, timeout_s: float = 30
    ) -> None:
        """Log in by SASL, and again before the session ends, for as long as the channel is open. KafkaError if the
        server refuses us, or is not to be believed; otherwise the errors of `answer`."""
        lifetime_ms = await self._log_in_once(begin(), timeout_s)
        self.has_logged_in = True
        if lifetime_ms > 0 and not self.closed:
            loop = asyncio.get_running_loop()

            def again() -> None:
                self._forget_next_login()
                self._held = []
                self._login = loop.create_task(self._log_in_again(begin, timeout_s))

            at = loop.time() + LOGIN_AGAIN_AFTER * lifetime_ms / 1000
            self._next_login = _NextLogin(at, again, loop.call_at(at, again))

    def _forget_next_login(self) -> None:
        if self._next_login is not None:
            self._next_login.timer.cancel()
            self._next_login = None

    async def _log_in_again(self, begin: Callable[[], LoginConversation], timeout_s: float) -> None:
        try:
            await self.log_in(begin, timeout_s=timeout_s)
        except (OSError, TimeoutError, InvalidFrame, KafkaError) as error:
            self.abort(f"could not log in again: {error}")
        held, self._held = self._held or [], None
        for call in held:
            call()

    async def _log_in_once(self, conversation: LoginConversation, timeout_s: float) -> int:
        """How many milliseconds the session lasts; 0 if it has no end."""
        answer = await self.request(
            ApiKey.SASL_HANDSHAKE,
            {"mechanism": conversation.mechanism},
            version=1,
            timeout_s=timeout_s,
        )
        if answer.error_code != ErrorCode.NONE:
            enabled = ", ".join(answer.mechanisms) or "none"
            raise KafkaError(
                ErrorCode(int(answer.error_code)),
                f"{self._where()} does not take {conversation.mechanism}; it has: {enabled}",
            )
        loop = asyncio.get_running_loop()
        token: bytes | None = conversation.first()
        while True:
            answer = await self.request(
                ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token}, version=1, timeout_s=timeout_s
            )
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode(int(answer.error_code)), answer.error_message or "")
            told = bytes(answer.auth_bytes)
            token = await loop.run_in_executor(None, conversation.answer, told)
            if token is None:
                return int(answer.session_lifetime.total_seconds() * 1000)

    async def answer(
        self,
        key: int,
        version: int,
        body: bytes,
        read: Callable[[memoryview, int], T],
        *,
        timeout_s: float,
    ) -> T:
        """Send a request, and return the result of `read` on its response. `read` gets a frame that is valid only
        during the call. A response that comes too late is read from the connection and dropped. TimeoutError after
        `timeout_s`; ConnectionError if the connection is lost first; InvalidFrame if the response cannot be read."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def on_response(frame: memoryview, start: int) -> None:
            result = read(frame, start)
            if not done.done():
                done.set_result(result)

        def on_failure(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        self.call(key, version, body, on_response, on_failure=on_failure)
        async with asyncio.timeout(timeout_s):
            return await done

    async def request(
        self,
        key: int,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        timeout_s: float = 30,
    ) -> Any:
        """The response as a message; errors are those of `answer`."""
        chosen = self.version_for(key) if version is None else version

        def read(frame: memoryview, start: int) -> Any:
            return messages.read_response(key, chosen, frame, start)

        body = messages.write_request(key, chosen, fields)
        return await self.answer(key, chosen, body, read, timeout_s=timeout_s)

    async def negotiate(self, timeout_s: float = 30) -> Any:
        """Ask for the versions that the other side supports, and keep them. Returns the answer, which also has the
        features."""
        version = APIS[ApiKey.API_VERSIONS].max_version
        answer = await self._api_versions(version, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {entry.api_key: entry.max_version for entry in answer.api_keys}
            version = min(version - 1, known.get(ApiKey.API_VERSIONS, 0))
            answer = await self._api_versions(version, timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(int(answer.error_code)), f"{self._where()} refused ApiVersions"
            )
        self.versions = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys
        }
        self.features = {
            entry.name: int(entry.max_version_level)
            for entry in messages.field(answer, "finalized_features", ())
        }
        return answer

    def version_for(self, key: int) -> int:
        """The newest version that both sides support; our newest if nothing was negotiated."""
        ours = APIS[ApiKey(key)]
        if not self.versions:
            return ours.max_version
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, ours.max_version)
        if version < max(lowest, ours.min_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self._where()} does not support {ours.name} {ours.min_version}-{ours.max_version}",
            )
        return version

    async def _api_versions(self, version: int, timeout_s: float) -> Any:
        def read(frame: memoryview, start: int) -> Any:
            # A version that the other side does not support is answered in version 0.
            refused = bytes(frame[start : start + 2]) == b"\x00\x23"
            return messages.read_response(
                ApiKey.API_VERSIONS, 0 if refused else version, frame, start
            )

        fields = {
            "client_software_name": "ottla",
            "client_software_version": ottla.__version__,
        }
        body = messages.write_request(ApiKey.API_VERSIONS, version, fields)
        return await self.answer(ApiKey.API_VERSIONS, version, body, read, timeout_s=timeout_s)

    def frame_received(self, frame: memoryview) -> None:
        if not self._outstanding:
            self.abort("a response without a request")
            return
        asked = self._outstanding.popleft()
        try:
            correlation_id, body = read_response_header(asked.key, asked.version, frame)
            if correlation_id != asked.correlation_id:
                raise InvalidFrame(
                    f"a response to request {correlation_id}, not {asked.correlation_id}"
                )
            asked.on_response(frame, body)
        except InvalidFrame as error:
            if asked.on_failure is not None:
                # A new exception, since the traceback of this one keeps a reference to the frame's buffer.
                asked.on_failure(InvalidFrame(str(error)))
            self.abort(str(error))

    def connection_lost(self, reason: str) -> None:
        self._lost = True
        self._forget_next_login()
        reason = self._close_reason or reason
        outstanding, self._outstanding = self._outstanding, deque()
        for asked in outstanding:
            if asked.on_failure is not None:
                asked.on_failure(ConnectionError(f"lost {self._where()}: {reason}"))
        for callback in list(self.on_close):
            callback(reason)

    def _where(self) -> str:
        host, port = self._connection.peer
        return f"{host}:{port}"
