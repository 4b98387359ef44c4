"""How long a connection may keep the console waiting, and who gives way when there are too many. No sockets: the transport
is a record of what is done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from ottla.console.web import connections as module
from ottla.console.web.connections import SECONDS, BrowserConnection, Crowd, Owes
from ottla.console.web.origins import network_of, plain_address

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"


class SetClock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


class Transport:
    def __init__(self, address: str, connection: BrowserConnection) -> None:
        self.address = address
        self._connection = connection
        self.is_aborted = False
        self.buffer = 0

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 1) if name in ("peername", "sockname") else None

    def abort(self) -> None:
        self.is_aborted = True
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, OSError())

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.buffer

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class House:
    """A server without a network, whose application answers when it is told to."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.state = ServerState()
        self.crowd = Crowd(self.state.connections, self.clock, ["10.0.0.9"])
        self.config = uvicorn.Config(
            self._app, http="h11", ws="none", interface="asgi3", log_config=None
        )
        self.config.load()
        self.may_answer = asyncio.Event()
        self.reads_bodies = True

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST" and self.reads_bodies:
            while (await receive()).get("more_body"):
                pass
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # fmt: skip
        await send({"type": "http.response.body", "body": b"ok"})

    def comes(self, address: str = "10.0.0.1") -> BrowserConnection:
        connection = BrowserConnection(self.config, self.state, {}, self.crowd)
        connection.connection_made(Transport(address, connection))
        return connection

    def hears(self, connection: BrowserConnection, data: bytes) -> None:
        if data and not self.is_gone(connection):
            connection.data_received(data)

    def is_gone(self, connection: BrowserConnection) -> bool:
        transport: Any = connection.transport
        return bool(transport.is_aborted) and connection not in self.state.connections

    async def pass_(self, seconds: float) -> None:
        """Some seconds go by, as a server sees them."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += 1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.crowd.end_what_is_late()


def in_a_house(work: Callable[[House], Any]) -> None:
    async def run() -> None:
        house = House()
        await work(house)
        house.may_answer.set()
        for connection in list(house.state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        await asyncio.gather(*house.state.tasks)

    asyncio.run(run())


@pytest.mark.parametrize("said", [b"", GET[:-2]])
def test_a_head_must_come_in_its_time(said: bytes) -> None:
    async def work(house: House) -> None:
        connection = house.comes()
        await house.pass_(SECONDS[Owes.HEAD] - 1)
        house.hears(connection, said)
        assert not house.is_gone(connection)
        await house.pass_(3)
        assert house.is_gone(connection)

    in_a_house(work)


def test_after_an_answer_the_time_begins_anew_and_single_bytes_do_not_prolong_it() -> None:
    async def work(house: House) -> None:
        house.may_answer.set()
        connection = house.comes()
        await house.pass_(SECONDS[Owes.HEAD] - 1)
        house.hears(connection, GET)
        await house.pass_(SECONDS[Owes.HEAD] - 1)
        assert not house.is_gone(connection)
        for byte in GET[:8]:
            house.hears(connection, bytes([byte]))
            await house.pass_(1)
        assert house.is_gone(connection)

    in_a_house(work)


def test_whoever_waits_for_an_answer_is_not_late() -> None:
    async def work(house: House) -> None:
        connection = house.comes()
        house.hears(connection, GET)
        await house.pass_(3600)
        assert not house.is_gone(connection)

    in_a_house(work)


def test_a_body_must_go_on() -> None:
    async def work(house: House) -> None:
        slow, fast = house.comes(), house.comes()
        for each in (slow, fast):
            house.hears(each, POST)
        for _ in range(4):
            await house.pass_(SECONDS[Owes.BODY] - 5)
            house.hears(slow, b"x")
            house.hears(fast, b"x" * module.BODY_STEP)
        assert house.is_gone(slow)
        assert not house.is_gone(fast)

    in_a_house(work)


def test_the_rest_of_a_body_that_was_answered_without_it_is_not_waited_for() -> None:
    async def work(house: House) -> None:
        house.reads_bodies = False
        house.may_answer.set()
        connection = house.comes()
        house.hears(connection, POST)
        for _ in range(int(SECONDS[Owes.REST]) + 3):
            house.hears(connection, b"x" * 10_000)
            await house.pass_(1)
        assert house.is_gone(connection)

    in_a_house(work)


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    async def work(house: House) -> None:
        stuck, slow = house.comes(), house.comes()
        for each in (stuck, slow):
            house.hears(each, GET)
            each.transport.buffer = 1_000_000  # type: ignore[attr-defined]
            each.pause_writing()
        for _ in range(5):
            await house.pass_(SECONDS[Owes.TAKING] / 2 - 1)
            slow.transport.buffer -= module.TAKING_STEP  # type: ignore[attr-defined]
        assert house.is_gone(stuck)
        assert not house.is_gone(slow)
        slow.resume_writing()
        await house.pass_(3600)
        assert not house.is_gone(slow)

    in_a_house(work)


def test_of_too_many_from_one_address_the_one_that_waited_longest_goes() -> None:
    async def work(house: House) -> None:
        elsewhere = house.comes("10.0.0.2")
        asking = house.comes()
        house.hears(asking, GET)
        for _ in range(module.OF_AN_ADDRESS_MAX - 1):
            house.clock.now += 0.01
            last = house.comes()
        silent = [each for each in house.state.connections if each not in (elsewhere, asking)]
        newest = house.comes()
        assert sum(house.is_gone(each) for each in silent) == 1  # type: ignore[arg-type]
        assert not any(house.is_gone(each) for each in (elsewhere, asking, last, newest))

    in_a_house(work)


def test_if_all_of_an_address_are_busy_the_new_one_goes() -> None:
    async def work(house: House) -> None:
        for _ in range(module.OF_AN_ADDRESS_MAX):
            house.hears(house.comes(), GET)
        assert house.is_gone(house.comes())
        assert not house.is_gone(house.comes("10.0.0.2"))

    in_a_house(work)


def test_a_proxy_has_the_connections_of_everybody() -> None:
    async def work(house: House) -> None:
        all_ = [house.comes("10.0.0.9") for _ in range(module.CONNECTIONS_MAX)]
        assert not any(house.is_gone(each) for each in all_)
        house.comes("10.0.0.9")
        assert sum(house.is_gone(each) for each in all_) == 1

    in_a_house(work)


def test_who_has_most_gives_way_to_others() -> None:
    async def work(house: House) -> None:
        few = house.comes("10.0.0.1")
        many = []
        for address in range(2, 6):
            number = module.OF_AN_ADDRESS_MAX if address == 2 else 99
            many += [house.comes(f"10.0.0.{address}") for _ in range(number)]
        while len(house.state.connections) < module.CONNECTIONS_MAX:
            house.comes("10.0.0.7")
        new = house.comes("10.0.0.8")
        gone = [each for each in many if house.is_gone(each)]
        assert [each.address for each in gone] == ["10.0.0.2"]
        assert not house.is_gone(few)
        assert not house.is_gone(new)

    in_a_house(work)


def test_an_ipv6_network_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1:2:3")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of(plain_address("::ffff:10.0.0.1")) == network_of("10.0.0.1") == "10.0.0.1"
