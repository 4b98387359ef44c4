"""One client's connection: requests go to their handlers, answers go out in the order of the requests.

A handler is a plain function. It parses what it needs before it returns, because the frame's memory is used again
afterwards. It answers now or later. Clients pipeline requests, so a later request may be answered first: its answer
waits here until the earlier ones are sent. `Request` and `ServerConnection` share the state of that order, so they are
one module.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from ottla.broker.server.large_requests import (
    BURST_S,
    LARGE_BYTES,
    LONG_FETCH_BYTES,
    LargeRequests,
    Used,
)
from ottla.runtime import AcceptedConnection, Chunk, FileRange, TimedConnection
from ottla.runtime.framed_connection import FIRST_BYTES, FrameRefused
from ottla.security.authorizer import Via
from ottla.security.needs import CLUSTER_ACTION
from ottla.security.operations import CLUSTER_NAME
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.rights import Rights
from ottla.wire import messages, schema
from ottla.wire.apis import (
    APIS,
    CLIENT_BYTES_MAX,
    PRIVATE_APIS,
    PRIVATE_BYTES_MAX,
    ApiKey,
)
from ottla.wire.errors import InvalidFrame
from ottla.wire.headers import (
    RequestHeader,
    read_request_header,
    response_chunks,
    response_header,
)
from ottla.wire.printable import printable_name

if TYPE_CHECKING:
    from ottla.broker.server.gate import Gate
    from ottla.broker.server.server import Server

logger = logging.getLogger(__name__)

UNANSWERED_MAX = 512
"""A connection with so many unanswered requests is not read."""
EARLY_BYTES_MAX = 4 * 1024 * 1024
"""A connection is not read while the answers that wait for an earlier answer take more bytes than this. Answers that
were sent, and that the client does not take, are limited by `runtime.framed_connection`."""

REQUEST_BYTES_MAX: dict[int, int] = {
    int(api.key): api.request_bytes_max for api in APIS.values()
} | dict.fromkeys(PRIVATE_APIS, PRIVATE_BYTES_MAX)

NO_FRAME = memoryview(b"")

Handler: TypeAlias = Callable[["Request"], None]

Timing: TypeAlias = tuple[int, bool, float, float, float, float]
"""Of an answered request: its API, whether a follower sent it, when it came, when its turn came, when its handler returned
(0 if it answered) and when it was answered. Made for each request, so it is a tuple without a class."""


class Quotas(Protocol):
    """Measures requests and throttles clients (`broker.server.quotas`)."""

    active: bool
    """False as long as no quota is set: then nothing is measured."""

    def handle(self, request: Request, handler: Handler, size: int) -> None: ...


class ParkedRequest(Protocol):
    """A request that was not answered at once, and that ends in one of these two ways."""

    def complete(self) -> None:
        """Answer with what there is."""

    def drop(self) -> None:
        """The connection is lost: do not answer."""


class Request:
    """One request on one connection. `frame` is valid only until the handler returns."""

    __slots__ = (
        "_answer",
        "_is_answered",
        "_message",
        "answered_at",
        "connection",
        "early_bytes",
        "frame",
        "header",
        "received_at",
        "returned_at",
        "started_at",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, connection: ServerConnection, header: RequestHeader, frame: memoryview
    ) -> None:
        self.connection = connection
        self.header = header
        self.version = header.api_version
        self.frame = frame
        self.throttle_ms = 0
        self.early_bytes = 0
        """The size of its answer, while the answer waits for an earlier one."""
        self._answer: Sequence[Chunk] | None = None
        self._is_answered = False
        self._message: Any = None
        self.received_at = self.started_at = 0.0
        self.returned_at = 0.0
        """When its handler returned without an answer."""
        self.answered_at = 0.0

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def rights(self) -> Rights | None:
        rights = self.connection.rights
        if rights is not None:
            rights.api_key = self.header.api_key  # by now another request may have come
        return rights

    def message(self) -> Any:
        """The body as kio's entity. InvalidFrame, which closes the connection, if it cannot be parsed."""
        if self._message is None:
            header = self.header
            self._message = messages.read_request(
                header.api_key, header.api_version, self.frame, header.body
            )
        return self._message

    def throttle(self, seconds: float) -> None:
        """The client is above its quota. The answer says so, and the connection is not read for that long (KIP-219)."""
        self.throttle_ms = max(self.throttle_ms, math.ceil(seconds * 1000))

    def respond(self, fields: Mapping[str, Any]) -> None:
        header = self.header
        if self.throttle_ms and _can_say_throttled(header.api_key):
            fields = {**fields, "throttle_time": self.throttle_ms}
        self.respond_chunks([messages.write_response(header.api_key, header.api_version, fields)])

    def respond_chunks(self, body: Sequence[Chunk]) -> None:
        header = self.header
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        self._finish(response_chunks(head, body))

    def respond_frame(self, frame: bytes) -> None:
        """With a whole response, which has its size and header already."""
        self._finish([frame])

    def finish_silently(self) -> None:
        """acks=0: the client expects no answer."""
        self._finish(None)

    def run(self, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        """Answer with the result of `work`. The work itself answers what a client did wrong. An exception is a defect
        of ours: it is logged, and the connection closes."""
        self.connection.server.spawn(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        try:
            self.respond(await work)
        except Exception:
            self.connection.fail(self)

    def _finish(self, answer: Sequence[Chunk] | None) -> None:
        assert not self._is_answered, f"request {self.header} is answered twice"
        self._is_answered = True
        timed = self.connection.timed
        if timed is not None and not self.answered_at:
            self.answered_at = timed.now()
        self._answer = answer
        if self.throttle_ms:
            self.connection.mute(self.throttle_ms / 1000)
        self.connection.answered(self)

    def changed(self, operation: str, resource: str) -> None:
        """For the audit: its sender changed something on this broker, without the controller."""
        audit, connection = self.connection.server.audit, self.connection
        if audit is not None:
            via = Via(connection.listener) if self.rights is None else self.rights.via
            audit.changed(
                connection.principal,
                connection.peer_host,
                via,
                self.header.api_key,
                operation,
                resource,
            )

    def describe(self) -> str:
        header = self.header
        api = PRIVATE_APIS.get(header.api_key) or APIS[ApiKey(header.api_key)].name
        client = printable_name(header.client_id or "?")
        return f"{api} v{header.api_version} from {client} at {self.connection.peer}"


def _can_say_throttled(api_key: int) -> bool:
    return "throttle_time" in schema.names_of_all_versions(api_key, "response")[()]


class ServerConnection:
    """The receiving end of one client's connection."""

    def __init__(self, server: Server, connection: AcceptedConnection) -> None:
        self.server = server
        self.on_close: list[Callable[[], None]] = []
        self.parked_fetch: ParkedRequest | None = None
        """The fetch that is parked on this connection. A following fetch completes it first."""
        self._connection = connection
        self._unanswered: deque[Request] = deque()
        self._early_bytes = 0
        self.client_software = "", ""
        """Name and version, if the client has said them (KIP-511)."""
        self.principal = ANONYMOUS
        """Who it belongs to (see `authenticated`)."""
        self.rights: Rights | None = None
        """What its principal may do. None without an authorizer: everything."""
        self.gate: Gate | None = None
        """What looks at its frames first, until its client has logged in."""
        self.sasl: Gate | None = None
        """The same, for as long as the connection lives. None where nobody logs in."""
        self._used: Used | None = None
        """What its principal has used of the loop's time. None where no rights count."""
        if server.authorizer is not None:
            self.authenticated(ANONYMOUS)
        self.is_counted = False
        """Whether it is among those of its address (see `connection_limits`)."""
        self.is_follower = False
        """Whether another broker replicates over it."""
        self.certified_nodes: frozenset[int] | None = None
        """The nodes that it may say to be. None: any that its rights allow (see `security.node_claims`)."""
        self._is_paused = False
        self._holds = 0
        self._has_its_turn = False
        self.timed: TimedConnection | None = None
        """The same connection, if somebody wants to know its times."""
        if server.times is not None:
            self.timed = cast(TimedConnection, connection)
            self.timed.sent = server.times

    def authenticated(self, principal: Principal, mechanism: str | None = None) -> None:
        """It belongs to this principal. A listener where clients log in calls it once, before the first request is handled."""
        self.principal = principal
        authorizer = self.server.authorizer
        if authorizer is not None:
            via = Via(self.server.name, mechanism)
            self.rights = Rights(authorizer, principal, self.peer_host, via)
            if self.server.large is not None:
                self._used = self.server.large.used_by(principal)

    @property
    def peer(self) -> str:
        host, port = self._connection.peer
        return f"{host}:{port}"

    @property
    def peer_host(self) -> str:
        return self._connection.peer[0]

    @property
    def local(self) -> tuple[str, int]:
        return self._connection.local

    @property
    def listener(self) -> str:
        return self.server.name

    @property
    def handshake_s(self) -> float:
        """How long its TLS handshake took."""
        identity = self._connection.identity
        return 0.0 if identity is None else identity.handshake_s

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def idle_s(self) -> float:
        """Seconds for which the client did nothing. 0 while it waits for our answer."""
        connection = self._connection
        waits_for_us = self._unanswered and not connection.queued_bytes
        return 0.0 if waits_for_us else connection.idle_s

    def frame_received(self, frame: memoryview) -> None:
        if self.gate is not None and self.gate.received(frame):
            return
        try:
            header = read_request_header(frame)
        except InvalidFrame as error:
            logger.info(
                "closing connection, invalid header peer=%s listener=%s first_bytes=%s error=%s",
                self.peer,
                self.server.name,
                bytes(frame[:FIRST_BYTES]).hex(),
                error,
            )
            self._connection.abort()
            return
        api_key, size = header.api_key, len(frame)
        if size > REQUEST_BYTES_MAX[api_key]:
            logger.info(
                "closing connection, request too large peer=%s api_key=%d bytes=%d",
                self.peer,
                header.api_key,
                len(frame),
            )
            self._connection.abort()
            return
        if size > LARGE_BYTES and api_key and self._takes_turns(header, frame):
            return
        used: Used | None = None
        if api_key != ApiKey.PRODUCE and (api_key != ApiKey.FETCH or size > LONG_FETCH_BYTES):
            used = self._used
            if used is not None and used.seconds > BURST_S and self._has_used_much(header, frame):
                return
        handler = self.server.handlers.get(header.api_key)
        if handler is None:
            logger.log(
                # A node opens its ports before it can serve. Clients that come so early connect again.
                logging.INFO if self.server.handlers else logging.DEBUG,
                "closing connection, api not served peer=%s api_key=%d listener=%s",
                self.peer,
                header.api_key,
                self.server.name,
            )
            self._connection.abort()
            return
        request = Request(self, header, frame)
        timed = self.timed
        if timed is not None:
            request.received_at = timed.received_at
            request.started_at = timed.started_at
        self._unanswered.append(request)
        rights = self.rights
        if rights is not None:
            rights.api_key = header.api_key
        quotas = self.server.quotas
        try:
            if quotas is None or not quotas.active:
                handler(request)
            else:
                quotas.handle(request, handler, size)
        except InvalidFrame as error:
            logger.info(
                "closing connection, invalid request peer=%s request=%s error=%s",
                self.peer,
                request.describe(),
                error,
            )
            self._connection.abort()
        except Exception:
            self.fail(request)
        if timed is not None and not request._is_answered:
            request.returned_at = timed.now()
        if used is not None and not self._has_its_turn:
            framed = cast(TimedConnection, self._connection)
            used.add(framed.started_at, framed.now())
        request.frame = NO_FRAME  # its memory is used again: a parked request must not hold it
        request._message = None
        if len(self._unanswered) >= UNANSWERED_MAX:
            self._pause()

    @property
    def may_be_node(self) -> bool:
        """Whether its requests may be those of a node: long ones, which nothing holds up."""
        if self.certified_nodes is not None and not self.certified_nodes:
            return False
        return CLUSTER_ACTION.sees(self.rights, CLUSTER_NAME)

    def _has_used_much(self, header: RequestHeader, frame: memoryview) -> bool:
        """Whether this request takes turns with large ones, because its principal has used so much of the loop's time."""
        framed = cast(TimedConnection, self._connection)
        is_much = self._used is not None and self._used.is_much(framed.now())
        return is_much and self._takes_turns(header, frame)

    def _takes_turns(self, header: RequestHeader, frame: memoryview) -> bool:
        """A client's large request waits until its turn comes. Nothing else of its connection is read meanwhile."""
        large: LargeRequests | None = self.server.large
        if large is None or self._has_its_turn or self.may_be_node:
            return False
        size = len(frame)
        if size > CLIENT_BYTES_MAX or not large.has_room(self.principal, size):
            logger.info(
                "closing connection, large request refused peer=%s api_key=%d bytes=%d reason=%s",
                self.peer,
                header.api_key,
                size,
                "it is too large" if size > CLIENT_BYTES_MAX else "too many of its user wait",
            )
            self._connection.abort()
            return True
        kept = bytes(frame)
        self.hold()
        large.add(self.principal, size, lambda: self._serve_in_turn(kept))
        return True

    def _serve_in_turn(self, frame: bytes) -> None:
        if self.closed:
            return
        self._has_its_turn = True
        try:
            self.frame_received(memoryview(frame))
        finally:
            self._has_its_turn = False
            self.release()

    def begin(self, header: RequestHeader) -> Request:
        """A request that is answered by its gate, after all earlier ones."""
        request = Request(self, header, NO_FRAME)
        if (timed := self.timed) is not None:
            request.received_at = timed.received_at
            request.started_at = request.returned_at = timed.started_at
        self._unanswered.append(request)
        return request

    def awaits(self, api_key: int) -> bool:
        """Whether the client waits for the answer to such a request."""
        return any(request.header.api_key == api_key for request in self._unanswered)

    def send(self, frame: bytes) -> None:
        """Send a frame that is no answer to a request, but a token of a login."""
        self._connection.send([frame])

    def limit_frames(self, size: int) -> int:
        """Take no longer frames from now on. Returns the limit until now."""
        before, self._connection.frame_bytes_max = self._connection.frame_bytes_max, size
        return before

    def fail(self, request: Request) -> None:
        """Called while an unforeseen exception is handled: close the connection, and go on."""
        logger.exception("closing connection, request failed request=%s", request.describe())
        self._connection.abort()

    def answered(self, request: Request) -> None:
        unanswered = self._unanswered
        if unanswered and unanswered[0] is not request:
            self._wait_for_turn(request)
            return
        while unanswered and unanswered[0]._is_answered:
            first = unanswered.popleft()
            self._early_bytes -= first.early_bytes
            if (timed := self.timed) is not None:
                timing: Timing = (
                    first.header.api_key,
                    self.is_follower,
                    first.received_at,
                    first.started_at,
                    first.returned_at,
                    first.answered_at,
                )
                # Not with `append`: that would be a call for each request.
                if first._answer is not None:
                    timed.marks += (timing,)
                elif timed.sent is not None:
                    timed.sent += ((first.answered_at, [timing]),)
            if first._answer is not None:
                self._connection.send(first._answer)
        if self._is_paused:
            self._resume_if_caught_up()

    def _wait_for_turn(self, request: Request) -> None:
        for chunk in request._answer or ():
            request.early_bytes += chunk.size if isinstance(chunk, FileRange) else len(chunk)
        self._early_bytes += request.early_bytes
        if self._early_bytes > EARLY_BYTES_MAX:
            self._pause()

    def hold(self) -> None:
        """Take no more requests until `release`: they must not overtake the current one."""
        self._holds += 1
        self._pause()

    def release(self) -> None:
        assert self._holds, f"connection {self.peer} is released, but it is not held"
        self._holds -= 1
        self._resume_if_caught_up()

    def mute(self, seconds: float) -> None:
        self.hold()
        asyncio.get_running_loop().call_later(seconds, self.release)

    def _pause(self) -> None:
        if not self._is_paused and not self._connection.closed:
            self._is_paused = True
            self._connection.pause_reading()

    def _resume_if_caught_up(self) -> None:
        if (
            self._is_paused
            and not self._holds
            and not self._connection.closed
            and len(self._unanswered) < UNANSWERED_MAX // 2
            and self._early_bytes <= EARLY_BYTES_MAX // 2
        ):
            self._is_paused = False
            self._connection.resume_reading()

    def connection_lost(self, reason: str) -> None:
        if isinstance(reason, FrameRefused):
            logger.warning(
                "closing connection, what it sent is no frame peer=%s listener=%s looks_like=%s"
                " first_bytes=%s reason=%s",
                self.peer,
                self.server.name,
                reason.words,
                reason.begins.hex(),
                reason,
            )
        else:
            logger.debug(
                "connection lost peer=%s listener=%s reason=%s", self.peer, self.server.name, reason
            )
        self.server.connections.pop(self, None)
        if self.server.limits is not None:
            self.server.limits.left(self)
        if self.parked_fetch is not None:
            self.parked_fetch.drop()
        for callback in self.on_close:
            callback()
        self.on_close.clear()
        self._unanswered.clear()
        self.gate = self.sasl = (
            None  # they refer to each other, and the collector of cycles comes seldom
        )

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()
