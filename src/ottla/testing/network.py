"""Proxies between the nodes of a cluster, so that they can be cut off from each other without root.

Each port of a node is reached through a port of ours, which the node advertises as its own. Bytes are forwarded as long
as the way from sender to receiver is open. The system says to which process the other end of a connection belongs. A cut
is silence, as in a real network: connections stay, nothing arrives, and data in flight arrives when the cut is healed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

CLIENT: Literal["client"] = "client"
"""Every process that is not a node."""
End = int | Literal["client"]
"""A node's id, or CLIENT."""

HOST = "127.0.0.1"
CONNECTIONS = Path("/proc/net/tcp")
CHUNK_BYTES = 1 << 16
CALL_TIMEOUT_S = 10.0
T = TypeVar("T")


class ProxyNetwork:
    """One proxy for each port of each node. All run in one thread."""

    def __init__(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """`pids`: the process of each running node."""
        if not CONNECTIONS.exists():
            raise OSError(
                f"a proxied cluster needs {CONNECTIONS}, to know which process connects: it runs on Linux only"
            )
        self._pids = pids
        self._cut: set[tuple[End, End]] = set()
        self._routes: dict[int, list[tuple[int, int]]] = {}
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Condition()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ottla network", daemon=True
        )
        self._thread.start()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    # Nodes

    def add(self, node: int, ours: int, theirs: int) -> None:
        """Forward our port to that port of the node, while the node is up."""
        self._routes.setdefault(node, []).append((ours, theirs))

    def up(self, node: int) -> None:
        self._call(self._up(node))

    async def _up(self, node: int) -> None:
        if node in self._servers:
            return
        self._servers[node] = [
            await asyncio.start_server(partial(self._accepted, node, ours, theirs), HOST, ours)
            for ours, theirs in self._routes[node]
        ]

    def down(self, node: int) -> None:
        """A connection to a node that is down is refused at once."""
        self._call(self._down(node))

    async def _down(self, node: int) -> None:
        for server in self._servers.pop(node, []):
            server.close()

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    async def _close(self) -> None:
        for node in list(self._servers):
            await self._down(node)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Cuts

    def cut(self, ways: Iterable[tuple[End, End]]) -> None:
        """Stop everything from the first to the second of each pair."""
        self._call(self._change(self._cut.update, list(ways)))

    def heal(self, ways: Iterable[tuple[End, End]] | None = None) -> None:
        healed = self._cut.copy() if ways is None else list(ways)
        self._call(self._change(self._cut.difference_update, healed))

    async def _change(self, how: Callable[[Any], None], ways: Any) -> None:
        async with self._changed:
            how(ways)
            self._changed.notify_all()

    async def _passable(self, source: End, target: End) -> None:
        if (source, target) in self._cut:
            async with self._changed:
                await self._changed.wait_for(lambda: (source, target) not in self._cut)

    # Connections

    def _accepted(
        self,
        node: int,
        ours: int,
        theirs: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._begin(self._connect(node, ours, theirs, reader, writer))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self,
        node: int,
        ours: int,
        theirs: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            source = connecting_end(writer.get_extra_info("peername")[1], ours, self._pids())
            await self._passable(source, node)
            onward = await asyncio.open_connection(HOST, theirs)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        self._begin(self._pump(reader, onward[1], source, node))
        self._begin(self._pump(onward[0], writer, node, source))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: End, target: End
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._passable(source, target)
                writer.write(data)
                await writer.drain()
            await self._passable(source, target)
            writer.close()
        except OSError:
            await self._passable(source, target)
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise


def connecting_end(port: int, our_port: int, pids: Mapping[int, int]) -> End:
    """The node whose process has the socket that is bound to `port` and connected to ours. CLIENT if no node has it."""
    inode = _inode(port, our_port)
    for node, pid in pids.items():
        directory = f"/proc/{pid}/fd"
        with suppress(FileNotFoundError):  # the process or the descriptor is gone
            for number in os.listdir(directory):
                with suppress(FileNotFoundError):
                    if os.readlink(f"{directory}/{number}") == f"socket:[{inode}]":
                        return node
    return CLIENT


def _inode(port: int, peer_port: int) -> str:
    """As the kernel lists it: `sl local:port remote:port state … uid timeout inode …`, in hexadecimal."""
    local, remote = f":{port:04X}", f":{peer_port:04X}"
    with CONNECTIONS.open() as lines:
        for line in lines:
            fields = line.split()
            if fields[1].endswith(local) and fields[2].endswith(remote):
                return fields[9]
    return ""
