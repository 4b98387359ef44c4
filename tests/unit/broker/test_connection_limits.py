"""How many connections a node takes: who waits, who is closed at once, and who gives way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from test_server_connection import until

from ottla.broker.server.connection_limits import (
    CONNECTION_RATE,
    ConnectionLimits,
    LimitRules,
    Most,
    rules_of,
)
from ottla.broker.server.connections import ServerConnection
from ottla.broker.server.quotas import Window
from ottla.broker.server.server import Server
from ottla.config import ConfigError, Settings
from ottla.config.dynamic import validate_broker_config
from ottla.runtime.sockets import RealNetwork

WINDOW = Window(11, 1.0)
BROKERS, CLIENTS = "BROKERS", "CLIENTS"
HOST = "10.0.0.7"


class FakeClient:
    """As much of a ServerConnection as the limits look at."""

    def __init__(self, listener: str = CLIENTS, host: str = HOST, idle_s: float = 0.0) -> None:
        self.listener, self.peer_host, self.idle_s = listener, host, idle_s
        self.peer = f"{host}:1"
        self.is_counted = False
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True


class Limited:
    def __init__(self, rules: LimitRules, protected: str | None = None) -> None:
        self.now = 0.0
        self.limits = ConnectionLimits(rules, lambda: self.now, WINDOW, protected)

    def connect(self, listener: str = CLIENTS, host: str = HOST, idle_s: float = 0.0) -> FakeClient:
        client = FakeClient(listener, host, idle_s)
        served = cast(ServerConnection, client)
        assert self.limits.came(served)
        assert self.limits.entered(served)
        return client

    def leave(self, client: FakeClient) -> None:
        self.limits.left(cast(ServerConnection, client))

    def accepted(self, listener: str = CLIENTS, host: str = HOST) -> bool:
        """Whether one more would be accepted now. It is counted in the rates then."""
        return not self.limits.wait_s(listener) and self.limits.refusal(listener, host) is None


def test_over_the_number_of_all_connections_the_next_one_waits_until_one_leaves() -> None:
    limited = Limited(LimitRules(Most(connections=2)))
    first, _ = limited.connect(), limited.connect()
    assert not limited.accepted()
    limited.leave(first)
    assert limited.accepted()


def test_the_listener_of_brokers_goes_on_and_whoever_was_idle_for_longest_gives_way() -> None:
    limited = Limited(LimitRules(Most(connections=3)), protected=BROKERS)
    idle, busy = limited.connect(idle_s=50.0), limited.connect(idle_s=1.0)
    broker = limited.connect(BROKERS, idle_s=100.0)
    assert not limited.accepted(CLIENTS)
    assert limited.accepted(BROKERS)
    limited.connect(BROKERS)
    assert [client.is_closed for client in (idle, busy, broker)] == [True, False, False]


def test_a_listener_has_a_limit_of_its_own_beside_that_of_all() -> None:
    limited = Limited(LimitRules(of_listeners={CLIENTS: Most(connections=1)}))
    limited.connect(CLIENTS)
    assert not limited.accepted(CLIENTS)
    assert limited.accepted(BROKERS)


def test_over_the_limit_of_its_address_a_connection_is_closed_at_once() -> None:
    limited = Limited(LimitRules(per_address=1, of_addresses={"10.0.0.8": 2}))
    first = limited.connect()
    assert limited.limits.refusal(CLIENTS, HOST) == 0.0
    assert not limited.limits.came(cast(ServerConnection, FakeClient()))
    limited.connect(host="10.0.0.8")
    assert limited.limits.refusal(CLIENTS, "10.0.0.8") is None
    limited.leave(first)
    assert limited.limits.refusal(CLIENTS, HOST) is None


def test_who_has_not_logged_in_takes_no_room_from_those_who_have() -> None:
    limited = Limited(LimitRules(Most(connections=2)))
    strangers = [cast(ServerConnection, FakeClient()) for _ in range(100)]
    assert all(limited.limits.came(each) for each in strangers)
    limited.connect()
    assert limited.accepted()
    assert limited.limits.entered(strangers[0])
    assert not limited.limits.entered(strangers[1]), "two are inside"


def test_a_rate_makes_the_next_ones_wait_and_not_the_brokers() -> None:
    limited = Limited(LimitRules(Most(rate=2)), protected=BROKERS)
    burst = WINDOW.samples - 1
    assert [limited.accepted() for _ in range(2 * burst + 2)] == [True] * (2 * burst + 1) + [False]
    assert 0.0 < limited.limits.wait_s(CLIENTS) <= WINDOW.seconds
    assert limited.accepted(BROKERS)
    limited.now += 100.0
    assert limited.accepted()


def test_a_rate_of_a_listener_counts_for_that_listener() -> None:
    limited = Limited(LimitRules(of_listeners={CLIENTS: Most(rate=1), BROKERS: Most(rate=0)}))
    assert sum(limited.accepted() for _ in range(50)) == WINDOW.samples
    assert not limited.accepted(BROKERS)
    assert limited.accepted("OTHERS")


def test_an_address_over_its_quota_is_kept_waiting_and_others_are_not() -> None:
    limited = Limited(LimitRules(Most(rate=100)))
    limited.limits.quotas_changed(
        {
            (("ip", HOST),): {CONNECTION_RATE: 1.0},
            (("ip", None),): {CONNECTION_RATE: 3.0},
            (("user", "alice"),): {"producer_byte_rate": 1.0},
        }
    )
    refusals = [limited.limits.refusal(CLIENTS, HOST) for _ in range(WINDOW.samples + 1)]
    assert refusals[:-1] == [None] * WINDOW.samples
    assert refusals[-1] is not None and 0.0 < refusals[-1] <= WINDOW.seconds
    assert limited.accepted(host="10.0.0.8"), "the default is three times as much"
    limited.limits.quotas_changed({})
    assert limited.accepted()


def test_a_lower_limit_closes_what_is_too_much() -> None:
    limited = Limited(LimitRules(Most(connections=3)))
    clients = [limited.connect(idle_s=idle_s) for idle_s in (5.0, 50.0, 0.5)]
    limited.limits.change(LimitRules(Most(connections=2)))
    assert [client.is_closed for client in clients] == [False, True, False]


def test_who_left_twice_is_counted_once() -> None:
    limited = Limited(LimitRules(Most(connections=1), per_address=1))
    client = limited.connect()
    limited.leave(client)
    limited.leave(client)
    limited.connect()
    assert not limited.accepted()


# Settings


def settings(**more: str) -> Settings:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return Settings.of(
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9094",
            "inter.broker.listener.name": "BROKERS",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "9@127.0.0.1:9093",
            "log.dirs": "/tmp/x",
        }
        | named
    )


def test_limits_come_from_kafkas_settings() -> None:
    rules = rules_of(
        settings(
            max_connections="50",
            max_connections_per_ip="5",
            max_connections_per_ip_overrides="10.0.0.7:7, [::1]:9",
            max_connection_creation_rate="20",
            listener_name_clients_max_connections="30",
            listener_name_clients_max_connection_creation_rate="3",
        )
    )
    assert rules.of_all == Most(50, 20)
    assert rules.of_listeners == {CLIENTS: Most(30, 3), BROKERS: Most()}
    assert (rules.per_address, rules.of_addresses) == (5, {"10.0.0.7": 7, "::1": 9})


@pytest.mark.parametrize("wrong", ["10.0.0.7", "10.0.0.7:-1", "host:5", "10.0.0.0/8:5"])
def test_an_override_names_an_address_and_a_number(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        settings(max_connections_per_ip_overrides=wrong)


@pytest.mark.parametrize("listener", ["", "listener.name.clients."])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_limits_can_be_changed_while_a_node_runs(listener: str, name: str) -> None:
    validate_broker_config({f"{listener}{name}": "5"})
    with pytest.raises(ConfigError):
        validate_broker_config({f"{listener}{name}": "-5"})


# On real sockets


@asynccontextmanager
async def listening(rules: LimitRules, quotas: dict[Any, Any] | None = None) -> AsyncIterator[Any]:
    loop = asyncio.get_running_loop()
    limits = ConnectionLimits(rules, loop.time, WINDOW)
    limits.quotas_changed(quotas or {})
    server = Server(CLIENTS, {}, frame_bytes_max=1000, idle_max_s=600, limits=limits)
    address = await server.listen(RealNetwork(loop), "127.0.0.1", 0)
    try:
        async with asyncio.timeout(30):
            yield server, address
    finally:
        server.close()


def test_a_connection_that_waits_is_served_when_another_has_left() -> None:
    async def scenario() -> None:
        async with listening(LimitRules(Most(connections=1))) as (server, address):
            with socket.create_connection(address) as first:
                await until(lambda: len(server.connections) == 1)
                (served,) = server.connections
                with socket.create_connection(address):
                    await until(lambda: CLIENTS in server.limits.waiting)
                    assert list(server.connections) == [served]
                    first.close()
                    await until(lambda: list(server.connections) not in ([], [served]))

    asyncio.run(scenario())


def test_an_address_over_its_quota_is_closed_after_a_while_and_not_read() -> None:
    async def scenario() -> None:
        quotas = {(("ip", "127.0.0.1"),): {CONNECTION_RATE: 0.5}}
        async with listening(LimitRules(), quotas) as (server, address):
            # Half a connection a second, and a window of ten seconds that may be used at once.
            served = [socket.create_connection(address) for _ in range(6)]
            await until(lambda: len(server.connections) == 6)
            loop = asyncio.get_running_loop()
            began = loop.time()
            served.append(socket.create_connection(address))
            served[-1].setblocking(False)
            assert await loop.sock_recv(served[-1], 1) == b""
            assert loop.time() - began >= 0.5
            assert len(server.connections) == 6
            for each in served:
                each.close()

    asyncio.run(scenario())
