"""Whether the process at an address is gone: it is if a connection is refused. Any other outcome says nothing."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.runtime import Connection


async def is_refused(connecting: Awaitable[Connection]) -> bool:
    """`connecting` is a connection of a `Probe`. How long to wait for it is the caller's to say."""
    try:
        connection = await connecting
    except ConnectionRefusedError:
        return True
    except OSError:  # a TimeoutError too
        return False
    connection.abort()
    return False


class Probe:
    """A connection that sends nothing and is closed at once."""

    def __init__(self, connection: Connection) -> None: ...

    def frame_received(self, frame: memoryview) -> None: ...

    def connection_lost(self, reason: str) -> None: ...
