"""The client for code without an event loop: `with BlockingClient([("127.0.0.1", 9092)]) as blocking: …`"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.client import Client
from ottla.client.connections import Address
from ottla.runtime.seams import Network

T = TypeVar("T")


class BlockingClient:
    """Has a loop. `run` takes any coroutine of `client`: `blocking.run(blocking.client.metadata())`."""

    client: Client

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
        patient: bool = False,
        network: Callable[[asyncio.AbstractEventLoop], Network] | None = None,
    ) -> None:
        """`network` makes a network other than plain TCP."""
        self._runner = asyncio.Runner()
        made = (network or _plain)(self._runner.get_loop())
        self.client = Client(
            made, bootstrap, client_id=client_id, timeout_s=timeout_s, patient=patient
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.run(_close(self.client))
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BackgroundClient(BlockingClient):
    """Its loop runs in a thread, also between calls: requests go on while the caller computes."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
        patient: bool = False,
        network: Callable[[asyncio.AbstractEventLoop], Network] | None = None,
    ) -> None:
        super().__init__(
            bootstrap, client_id=client_id, timeout_s=timeout_s, patient=patient, network=network
        )
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ottla client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self.run(_close(self.client))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()


def _plain(loop: asyncio.AbstractEventLoop) -> Network:
    # Imported here, because callers with their own network need no real one.
    from ottla.runtime.sockets import RealNetwork

    return RealNetwork(loop)


async def _close(client: Client) -> None:
    client.connections.close()
