"""A listener of a node: accepts connections up to its limits, and closes idle ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.server.connection_limits import ConnectionLimits
from ottla.broker.server.connections import Handler, Quotas, ServerConnection
from ottla.runtime import AcceptedConnection, Identity, Listener, Network, Tls
from ottla.security.authorizer import Authorizer, Via
from ottla.security.principals import Principal
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.broker.server.audit_log import AuditLog
    from ottla.broker.server.gate import GatedListener
    from ottla.broker.server.large_requests import LargeRequests

logger = logging.getLogger(__name__)

CERTIFICATE: Final = "SSL"
"""The mechanism that the audit names for it."""


class Server:
    """One listener: its handlers, its limits, and the connections it accepted."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[ApiKey, Handler],
        *,
        frame_bytes_max: int,
        idle_max_s: float,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        """How many connections it takes, and how fast. Listeners can share them. None: any number."""
        self.handlers: dict[int, Handler] = {int(key): handler for key, handler in handlers.items()}
        self.quotas: Quotas | None = None
        self.authorizer: Authorizer | None = None
        """Decides what connections may do. None: everything. To be set before it listens."""
        self.times: list[tuple[float, list[Any]]] | None = None
        """Where connections note when which answers were sent, with the `Timing` of each. None: nobody asks. To be set
        before it listens."""
        self.audit: AuditLog | None = None
        """Hears who logs in."""
        self.large: LargeRequests | None = None
        """Where large requests of clients take turns. None: they are handled as they come."""
        self.gated: GatedListener | None = None
        """Lets nobody in who has not logged in. None where the protocol has no SASL."""
        self.tls: Tls | None = None
        self.who: Callable[[Identity | None], Principal | None] | None = None
        """Whom a new connection belongs to; None if the gate finds out. ValueError if it can be nobody's. Not set where
        everybody is anonymous."""
        self.nodes_of: Callable[[Identity | None], frozenset[int] | None] | None = None
        """The nodes that a new connection may say to be. Set wherever `who` is."""
        self.connections: dict[ServerConnection, None] = {}
        self._frame_bytes_max = frame_bytes_max
        self._idle_max_s = idle_max_s
        self._listener: Listener | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._idle_check: asyncio.TimerHandle | None = None

    async def listen(self, network: Network, host: str, port: int) -> tuple[str, int]:
        self._listener = await network.listen(
            host,
            port,
            self._accept,
            frame_bytes_max=self._frame_bytes_max,
            tls=self.tls,
            door=None if self.limits is None else self.limits.door(self.name),
        )
        self._close_idle()
        return self._listener.address

    def _accept(self, connection: AcceptedConnection) -> ServerConnection:
        accepted = ServerConnection(self, connection)
        if self.limits is not None and not self.limits.came(accepted):
            connection.abort()
            return accepted
        self.connections[accepted] = None
        principal = None if self.who is None else self._principal(accepted, connection)
        if self.nodes_of is not None:
            accepted.certified_nodes = self.nodes_of(connection.identity)
        if principal is not None:
            accepted.authenticated(principal, self._certified(accepted, connection, principal))
        if principal is None and self.gated is not None:
            self.gated.guard(accepted)
        elif self.limits is not None and not self.limits.entered(accepted):
            connection.abort()
        return accepted

    def _certified(
        self, accepted: ServerConnection, connection: AcceptedConnection, principal: Principal
    ) -> str | None:
        """The mechanism of a client whom a certificate names."""
        identity = connection.identity
        if identity is None or identity.certificate is None:
            return None
        if self.audit is not None:
            self.audit.logged_in(principal, accepted.peer_host, Via(self.name, CERTIFICATE))
        return CERTIFICATE

    def _principal(
        self, accepted: ServerConnection, connection: AcceptedConnection
    ) -> Principal | None:
        assert self.who is not None
        try:
            return self.who(connection.identity)
        except ValueError as error:
            logger.warning(
                "refusing connection, its certificate names nobody peer=%s listener=%s reason=%s",
                accepted.peer,
                self.name,
                error,
            )
            connection.abort()
            return None

    def _close_idle(self) -> None:
        for connection in list(self.connections):
            if connection.idle_s > self._idle_max_s:
                connection.abort()
        self._idle_check = asyncio.get_running_loop().call_later(
            min(self._idle_max_s, 30.0), self._close_idle
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def stop_accepting(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        self.stop_accepting()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self.connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()
