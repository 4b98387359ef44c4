"""A listener of the console, from the port to the last answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from dataclasses import replace

import uvicorn

from ottla.client.client import Client
from ottla.console.web.application import application
from ottla.console.web.connections import CONNECTIONS_MAX, BrowserConnection, Crowd
from ottla.console.web.console_settings import TIMEOUT_S, ConsoleSettings
from ottla.console.web.visits import OpenHouse, Registered, Visits
from ottla.runtime.seams import Clock
from ottla.runtime.sockets import RealNetwork

BACKLOG = 128
KEEP_ALIVE_S = 15
HANDSHAKE_S = 5
"""Of TLS. Until it is made, nobody counts the connection."""
LOOK_EVERY_TICKS = 10
"""Of uvicorn's, which are tenths of a second: whether a connection is late."""
HEAD_BYTES_MAX = 16 << 10
GRACE_S = 2
"""For answers that are under way when the console ends."""


class PortTaken(Exception):
    """Somebody else listens there, or we may not."""


def take_over(fd: int, settings: ConsoleSettings) -> tuple[socket.socket, ConsoleSettings]:
    """A socket on which whoever started us listens already, and the settings with its port. PortTaken if it is none."""
    try:
        listening = socket.socket(fileno=fd)
        port = listening.getsockname()[1]
    except (OSError, IndexError) as error:
        raise PortTaken(f"descriptor {fd}: {error}") from None
    listening.set_inheritable(False)
    return listening, replace(settings, port=port)


def listen(settings: ConsoleSettings) -> tuple[socket.socket, ConsoleSettings]:
    """A socket, and the settings with its port. PortTaken if that is not to be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)  # who connects from now on waits until we serve
    except OSError as error:
        listening.close()
        raise PortTaken(f"{settings.host}:{settings.port}: {error.strerror or error}") from None
    listening.set_inheritable(False)
    return listening, replace(settings, port=listening.getsockname()[1])


class ConsoleServer(uvicorn.Server):
    """With bounds for its connections. And streams have no end of their own: at the end of the console they get one."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        visits: Visits,
        clock: Clock,
        proxies: Collection[str],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._visits = visits
        self._crowd = Crowd(self.server_state.connections, clock, proxies)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])

        def connection() -> BrowserConnection:
            return BrowserConnection(
                self.config, self.server_state, self.lifespan.state, self._crowd
            )

        tls = self.config.ssl
        server = await asyncio.get_running_loop().create_server(
            connection,
            sock=self._listening,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
        )
        self.servers.append(server)

    async def on_tick(self, counter: int) -> bool:
        if counter % LOOK_EVERY_TICKS == 0:
            self._crowd.end_what_is_late()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._visits.end_streams()
        await super().shutdown(sockets)


async def serve(
    settings: ConsoleSettings,
    listening: socket.socket,
    clock: Clock,
    chance: Callable[[], str],
) -> None:
    """Until a signal ends it. `chance` makes text that nobody can guess. SecuritySettingError if the properties cannot be
    followed."""
    loop = asyncio.get_running_loop()

    def connect() -> Client:
        network = RealNetwork(loop)
        return Client(network, settings.bootstrap, client_id="ottla-console", timeout_s=TIMEOUT_S)

    visits: Visits = OpenHouse(connect, clock, chance())
    if settings.wants_login:
        visits = Registered(clock, chance)
    app = application(settings, visits, chance()[:8])
    config = uvicorn.Config(
        app,
        log_level="error",  # strangers could fill the log with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX + 1,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        http="h11",
        ws="none",
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    await ConsoleServer(config, listening, visits, clock, settings.proxies).serve()
