"""The connections of a client to the brokers of a cluster.

These rules of all clients are here: a connection is opened when it is needed, there is one for each broker, a connection
is closed when an answer is overdue, errors that may pass are retried until the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from ottla.runtime.seams import Network
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

T = TypeVar("T")
Address = tuple[str, int]

CONNECT_TIMEOUT_S = 5.0
RETRY_PAUSE_S = 0.05
OVERDUE = "an answer is overdue"
NO_MECHANISM = "?"


class Unreachable(Exception):
    """No broker answers at any of the known addresses."""


class SecurityRefused(Unreachable):
    """A broker answers, but TLS or SASL with it fails. To try again would not help."""


class ConnectionsClosed(Unreachable):
    """The client was closed, for good: nothing is asked with its rights any more."""


class LoginWanted(SecurityRefused):
    """The broker's listener has SASL, and we have not logged in."""


def error_of(code: int, message: str | None) -> KafkaError | None:
    """The error of a code, also of one that we do not know. None for no error."""
    if int(code) == ErrorCode.NONE:
        return None
    known = ErrorCode(int(code))
    text = message or ""
    return KafkaError(known, text if known == code else f"error {code}: {text}")


def check(code: int, message: str | None) -> None:
    """KafkaError if the code is an error."""
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
    """One channel for each broker, with negotiated versions."""

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        client_id: str,
        timeout_s: float,
        *,
        patient: bool = False,
    ) -> None:
        """`patient`: retry also when no broker answers. Otherwise that is an error at once, for example after a typing error
        in an address."""
        if not bootstrap:
            raise ValueError("no bootstrap address given")
        self.timeout_s = timeout_s
        self.addresses: dict[int, Address] = {}
        """Of each broker, from the newest metadata."""
        self._network = network
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._patient = patient
        self._channels: dict[Address, Channel] = {}
        self._is_closed = False
        self._served: WeakSet[Channel] = WeakSet()
        """Those that have answered something that only a client that is let in is answered."""

    def close(self) -> None:
        """For good. Whoever waits for an answer gets an error, and whoever asks again ConnectionsClosed."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def learn(self, brokers: Iterable[tuple[int, str, int]]) -> None:
        self.addresses = {id: (host, port) for id, host, port in brokers}

    async def at(self, address: Address) -> Channel:
        """OSError or TimeoutError if no broker answers there. ConnectionsClosed if this client was closed."""
        self._check_open()
        channel = self._channels.get(address)
        if channel is None or channel.closed:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self.timeout_s)):
                channel = await Channel.open(self._network, *address, self._client_id)
                try:
                    await channel.negotiate()
                    self._check_open()
                except BaseException:
                    channel.abort()
                    raise
            self._channels[address] = channel
        return channel

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionsClosed("this client was closed")

    async def to(self, broker: int) -> Channel:
        """ConnectionError if the broker is not one of the cluster's live ones."""
        if broker not in self.addresses:
            raise ConnectionError(f"broker {broker} is not in the cluster's metadata")
        return await self.at(self.addresses[broker])

    def drop(self, broker: int) -> None:
        """An answer of this broker is overdue: close its connection, so that no other request waits on it."""
        channel = self._channels.get(self.addresses[broker]) if broker in self.addresses else None
        if channel is not None:
            channel.abort(OVERDUE)

    async def to_any(self) -> Channel:
        """The first broker that answers. Unreachable if none does."""
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
        return await self.ask_on(channel, key, fields)

    async def ask_on(
        self,
        channel: Channel,
        key: ApiKey,
        fields: Mapping[str, Any],
        *,
        newest: int | None = None,
    ) -> Any:
        """One request and its response on this channel. `newest` is the newest version to use."""
        version = channel.version_for(key)
        if newest is not None:
            version = min(version, newest)
        request = channel.request(key, fields, version=version, timeout_s=self.timeout_s)
        return await self._in_time(channel, request)

    async def call(
        self,
        channel: Channel,
        key: int,
        version: int,
        body: bytes,
        read: Callable[[memoryview, int], T],
    ) -> T:
        """A request whose response `read` takes apart. The frame is valid only during that call."""
        answer = channel.answer(key, version, body, read, timeout_s=self.timeout_s)
        return await self._in_time(channel, answer)

    async def _in_time(self, channel: Channel, answer: Awaitable[T]) -> T:
        """A connection on which an answer is overdue is closed, so that the next attempt uses another one."""
        try:
            answered = await answer
        except TimeoutError:
            channel.abort(OVERDUE)
            raise
        except ConnectionError:
            if channel not in self._served and not channel.has_logged_in:
                await self._check_login_not_wanted(channel)
            raise
        self._served.add(channel)
        return answered

    async def _check_login_not_wanted(self, refused: Channel) -> None:
        """LoginWanted if a broker that closed this channel, instead of answering, has SASL. Such a broker answers ApiVersions and
        logins only, so we would try again until the time is over. It names its mechanisms to who asks for one that it cannot
        have."""
        addresses = [at for at, channel in self._channels.items() if channel is refused]
        for address in addresses:
            try:
                async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self.timeout_s)):
                    channel = await Channel.open(self._network, *address, self._client_id)
                    try:
                        answer = await channel.request(
                            ApiKey.SASL_HANDSHAKE, {"mechanism": NO_MECHANISM}, version=1
                        )
                    finally:
                        channel.abort()
            except (OSError, InvalidFrame):
                return
            if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                raise LoginWanted(
                    f"the broker at {address[0]}:{address[1]} wants a login: security.protocol must be SASL_PLAINTEXT, or"
                    " SASL_SSL where it speaks TLS, with a sasl.jaas.config"
                )

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, final: ErrorCode = ErrorCode.NONE
    ) -> T:
        """Try until it succeeds, or fails for good, or the time is over. Then the last error is raised. `final` is an error
        that is retriable in general, but not here."""
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
            except (SecurityRefused, ConnectionsClosed):
                raise
            except Unreachable:
                if not self._patient or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
