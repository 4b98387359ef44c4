"""Nodes of one machine find each other without TCP, and by TCP wherever that is not sure."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from ottla.local.ports import free_ports
from ottla.runtime import unix_sockets
from ottla.runtime.seams import AcceptedConnection, Connection
from ottla.runtime.socket_connection import SocketConnection
from ottla.runtime.sockets import RealNetwork

pytestmark = pytest.mark.skipif(not unix_sockets.IS_SERVED, reason="only Linux has abstract names")


class Ears:
    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def frame_received(self, frame: memoryview) -> None:
        self.heard.set()

    def connection_lost(self, reason: str) -> None:
        pass


class Meeting:
    """A listener, and who came."""

    def __init__(self) -> None:
        self.node = RealNetwork(asyncio.get_running_loop(), near=True)
        self.client = RealNetwork(asyncio.get_running_loop())
        self.came: list[AcceptedConnection] = []
        self.ears = Ears()

    def accept(self, connection: AcceptedConnection) -> Ears:
        self.came.append(connection)
        return self.ears

    async def greet(self, network: RealNetwork, host: str, port: int) -> Connection:
        connection = await network.connect(host, port, lambda _: Ears())
        self.ears.heard.clear()
        connection.send([b"\0\0\0\2hi"])
        await self.ears.heard.wait()
        return connection


def is_near(connection: Connection) -> bool:
    return connection.local == unix_sockets.UNNAMED


def meet(scenario: Callable[[Meeting], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Meeting()), 20)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("bound", ["127.0.0.1", "127.0.0.2", "::1"])
def test_nodes_of_one_machine_meet_at_the_second_door_and_clients_at_the_first(bound: str) -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen(bound, 0, meeting.accept, frame_bytes_max=100)
        host, port = listener.address
        node = await meeting.greet(meeting.node, host, port)
        client = await meeting.greet(meeting.client, host, port)
        assert is_near(node) and not is_near(client)
        assert node.peer == client.peer == (host, port)
        assert meeting.came[0].local == meeting.came[1].local == (host, port)
        assert meeting.came[0].peer[0] == "127.0.0.1"
        for connection in (node, client):
            connection.abort()
        listener.close()

    meet(scenario)


def test_both_ends_of_the_second_door_take_more_at_once_than_the_system_gives_unasked() -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen("127.0.0.1", 0, meeting.accept, frame_bytes_max=100)
        node = await meeting.greet(meeting.node, *listener.address)
        with socket.socket(socket.AF_UNIX) as plain:
            unasked = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        for connection in (node, meeting.came[0]):
            assert isinstance(connection, SocketConnection)
            assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > unasked
        node.abort()
        listener.close()

    meet(scenario)


def test_who_listens_everywhere_is_near_at_the_usual_address_and_by_tcp_at_others() -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen("0.0.0.0", 0, meeting.accept, frame_bytes_max=100)
        port = listener.address[1]
        assert is_near(await meeting.greet(meeting.node, "localhost", port))
        assert not is_near(await meeting.greet(meeting.node, "127.0.0.9", port))
        for connection in meeting.came:
            connection.abort()
        listener.close()

    meet(scenario)


def test_one_that_takes_only_ipv6_is_not_taken_for_another_at_the_same_port() -> None:
    async def scenario(meeting: Meeting) -> None:
        foreign = Meeting()
        listener = await foreign.node.listen("::", 0, foreign.accept, frame_bytes_max=100)
        port = listener.address[1]
        ours = await meeting.node.listen("127.0.0.1", port, meeting.accept, frame_bytes_max=100)
        assert is_near(await meeting.greet(meeting.node, "127.0.0.1", port))
        assert is_near(await foreign.greet(foreign.node, "::1", port))
        for connection in (*meeting.came, *foreign.came):
            connection.abort()
        listener.close()
        ours.close()

    meet(scenario)


def test_the_second_door_closes_with_the_first() -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen("127.0.0.1", 0, meeting.accept, frame_bytes_max=100)
        host, port = listener.address
        listener.close()
        with pytest.raises(ConnectionRefusedError, match=f"cannot connect to {host}:{port}"):
            await meeting.node.connect(host, port, lambda _: Ears())
        again = await meeting.node.listen(host, port, meeting.accept, frame_bytes_max=100)
        assert is_near(await meeting.greet(meeting.node, host, port))
        meeting.came[0].abort()
        again.close()

    meet(scenario)


def test_a_listener_that_keeps_to_tcp_is_met_by_tcp() -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.client.listen("127.0.0.1", 0, meeting.accept, frame_bytes_max=100)
        assert not is_near(await meeting.greet(meeting.node, *listener.address))
        meeting.came[0].abort()
        listener.close()

    meet(scenario)


def test_a_name_that_somebody_took_before_costs_only_the_shortcut() -> None:
    (port,) = free_ports(1)

    async def scenario(meeting: Meeting) -> None:
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(f"{unix_sockets.PREFIX}127.0.0.1:{port}")
            listener = await meeting.node.listen(
                "127.0.0.1", port, meeting.accept, frame_bytes_max=100
            )
            assert not is_near(await meeting.greet(meeting.node, "127.0.0.1", port))
            meeting.came[0].abort()
            listener.close()

    meet(scenario)


SQUATTER = """
import os, socket, sys
os.setuid(65534)
squatting = socket.socket(socket.AF_UNIX)
squatting.bind("\\0" + sys.argv[1])
squatting.listen()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_a_name_that_another_user_holds_leads_nobody_astray() -> None:
    (port,) = free_ports(1)
    name = f"{unix_sockets.PREFIX}127.0.0.1:{port}"[1:]

    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen("127.0.0.1", port, meeting.accept, frame_bytes_max=100)
        assert not is_near(await meeting.greet(meeting.node, "127.0.0.1", port))
        meeting.came[0].abort()
        listener.close()

    with subprocess.Popen(
        [sys.executable, "-c", SQUATTER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as squatter:
        assert squatter.stdout is not None and squatter.stdin is not None
        assert squatter.stdout.readline() == b"listening\n"
        meet(scenario)
        squatter.stdin.close()


STRANGER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
knocking = socket.socket(socket.AF_UNIX)
knocking.connect("\\0" + sys.argv[1])
knocking.settimeout(10)
try:
    knocking.sendall(b"\\0\\0\\0\\2hi")
    print(knocking.recv(1))
except OSError:
    print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
@pytest.mark.parametrize("user", [1, 65534])
def test_a_process_of_another_user_is_not_let_in(user: int) -> None:
    async def scenario(meeting: Meeting) -> None:
        listener = await meeting.node.listen("127.0.0.1", 0, meeting.accept, frame_bytes_max=100)
        name = f"{unix_sockets.PREFIX}127.0.0.1:{listener.address[1]}"[1:]
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STRANGER, name, str(user), stdout=subprocess.PIPE
        )
        said, _ = await stranger.communicate()
        assert said == b"b''\n"
        assert meeting.came == []
        node = await meeting.greet(meeting.node, *listener.address)
        identity = meeting.came[0].identity
        assert identity is not None and identity.is_local
        node.abort()
        listener.close()

    meet(scenario)
