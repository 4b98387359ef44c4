"""Connections to the brokers of a cluster: opened when needed, found through any that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.runtime.seams import Network
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
Address = tuple[str, int]

CONNECT_TIMEOUT_S = 5.0
RETRY_PAUSE_S = 0.05


class Unreachable(Exception):
    """Nobody answers where the cluster should be."""


def error_of(code: int, message: str | None) -> KafkaError | None:
    """What a code says, one that we do not know too; None if all is well."""
    if int(code) == ErrorCode.NONE:
        return None
    known = ErrorCode(int(code))
    told = message or ""
    return KafkaError(known, told if known == code else f"error {code}: {told}")


def check(code: int, message: str | None) -> None:
    """KafkaError unless the code says that all is well."""
    error = error_of(code, message)
    if error is not None:
        raise error


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error)


class BrokerConnections:
    """One channel per broker, each with its versions negotiated."""

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        client_id: str,
        timeout_s: float,
        *,
        patient: bool = False,
    ) -> None:
        """`patient`: that nobody answers at all passes too. Else it is said at once, as to who mistyped an address."""
        if not bootstrap:
            raise ValueError("no bootstrap address given")
        self.timeout_s = timeout_s
        self.addresses: dict[int, Address] = {}
        """Of each broker, as the newest metadata told."""
        self._network = network
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._patient = patient
        self._channels: dict[Address, Channel] = {}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def learn(self, brokers: Iterable[tuple[int, str, int]]) -> None:
        self.addresses = {id: (host, port) for id, host, port in brokers}

    async def at(self, address: Address) -> Channel:
        """OSError or TimeoutError if nobody answers there."""
        channel = self._channels.get(address)
        if channel is None or channel.closed:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self.timeout_s)):
                channel = await Channel.open(self._network, *address, self._client_id)
                try:
                    await channel.negotiate()
                except BaseException:
                    channel.abort()
                    raise
            self._channels[address] = channel
        return channel

    async def to(self, broker: int) -> Channel:
        """ConnectionError if the broker is not one of the cluster's live ones."""
        if broker not in self.addresses:
            raise ConnectionError(f"broker {broker} is not there")
        return await self.at(self.addresses[broker])

    def drop(self, broker: int) -> None:
        """An answer of it is overdue: nobody else shall wait on the same connection."""
        channel = self._channels.get(self.addresses[broker]) if broker in self.addresses else None
        if channel is not None:
            channel.abort("an answer is overdue")

    async def to_any(self) -> Channel:
        """The first that answers. Unreachable if none does."""
        for channel in self._channels.values():
            if not channel.closed:
                return channel
        tried = []
        for address in dict.fromkeys([*self._bootstrap, *self.addresses.values()]):
            try:
                return await self.at(address)
            except OSError as error:
                tried.append(f"{address[0]}:{address[1]} ({_reason(error)})")
        raise Unreachable(f"no broker answers: {', '.join(tried)}")

    async def ask(
        self, key: ApiKey, fields: Mapping[str, Any], *, broker: int | None = None
    ) -> Any:
        """One request and its response, from a given broker or from any."""
        channel = await self.to_any() if broker is None else await self.to(broker)
        try:
            return await channel.request(key, fields, timeout_s=self.timeout_s)
        except TimeoutError:
            channel.abort("an answer is overdue")  # the next attempt asks somebody else
            raise

    async def call(
        self,
        channel: Channel,
        key: ApiKey,
        version: int,
        body: bytes,
        read: Callable[[memoryview, int], T],
    ) -> T:
        """A request whose response `read` takes apart; the frame that it sees is only lent to it."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(frame: memoryview, start: int) -> None:
            result = read(frame, start)
            if not done.done():
                done.set_result(result)

        def failed(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        channel.call(key, version, body, answered, on_failure=failed)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await done
        except TimeoutError:
            channel.abort("an answer is overdue")
            raise

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, final: ErrorCode = ErrorCode.NONE
    ) -> T:
        """Try until it works, fails for good, or the time is over; then the last error is raised.
        `final` is an error that would pass elsewhere, but not here."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.retriable or error.code == final or loop.time() > deadline:
                    raise
            except OSError:
                if loop.time() > deadline:
                    raise
            except Unreachable:
                if not self._patient or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
