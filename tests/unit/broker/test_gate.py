"""A listener with SASL over real sockets: who is let in, and what it costs to guess, to wait and to flood."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from ottla.broker.apis.security import SaslHandlers
from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.credentials import KnownUsers
from ottla.broker.server.gate import GatedListener, GateLimits, Logins
from ottla.broker.server.registration import handlers_of
from ottla.broker.server.server import Server
from ottla.controller.credentials import scram_record
from ottla.metadata.records import UserScramCredentialRecord
from ottla.runtime.real import RealClock
from ottla.runtime.sockets import RealNetwork
from ottla.runtime.tls import RealTls
from ottla.runtime.tls_options import TlsOptions
from ottla.security import scram
from ottla.security.sasl import Failed
from ottla.security.sasl_client import ClientLogin
from ottla.security.scram import Decoys
from ottla.security.secrets import Secret
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.headers import request_frame
from support.certificates import certified

PASSWORD = Secret("pencil")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EACH = pytest.mark.parametrize("mechanism", MECHANISMS)
FRAME_MAX = 10_000
SLOW_S = 0.5
LIMITS = GateLimits(FRAME_MAX, timeout_s=30, failure_delay_s=0.05, waiting_max=100)


def stored(user: str, mechanism: str) -> UserScramCredentialRecord:
    return scram_record(mechanism, user, PASSWORD, b"0123456789abcdef", 4096)


USERS = {
    (record.name, record.mechanism): record
    for record in (
        stored("alice", "SCRAM-SHA-256"),
        stored("alice", "SCRAM-SHA-512"),
        stored("old", "SCRAM-SHA-256"),
    )
}


class World:
    """One listener, and clients of it."""

    def __init__(self, limits: GateLimits = LIMITS, reauth_ms: int = 0) -> None:
        self.network = RealNetwork(asyncio.get_running_loop())
        self.logins = Logins(RealClock())
        self.users = dict(USERS)
        known = KnownUsers(lambda: self.users, Decoys(Secret("decoy"), os.urandom), os.urandom)
        accounts = {"admin": Secret("geheim")}
        rules = known.rules(MECHANISMS, accounts, dict.fromkeys(MECHANISMS, reauth_ms))
        self.asked: list[Request] = []
        self.answers_itself = True
        self.server = Server(
            "CLIENTS",
            {
                **handlers_of(SaslHandlers()),
                ApiKey.API_VERSIONS: lambda request: request.respond({"error_code": 0}),
                ApiKey.LIST_GROUPS: self._handle,
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._handle,
            },
            frame_bytes_max=1 << 20,
            idle_max_s=600,
        )
        self.gated = self.server.gated = GatedListener(self.logins, rules, limits)
        self.address = "", 0

    def _handle(self, request: Request) -> None:
        self.asked.append(request)
        if self.answers_itself:
            request.respond({})

    async def channel(self) -> Channel:
        return await Channel.open(self.network, *self.address, "test")

    async def log_in(
        self, mechanism: str, user: str = "alice", password: Secret = PASSWORD
    ) -> Channel:
        channel = await self.channel()
        login = ClientLogin(mechanism, user, password)
        await channel.log_in(lambda: login.begin(os.urandom(16).hex()))
        return channel

    async def refused(self, mechanism: str, user: str, password: str) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            await self.log_in(mechanism, user, Secret(password))
        return caught.value


@asynccontextmanager
async def world(
    limits: GateLimits = LIMITS, tls: TlsOptions | None = None, *, reauth_ms: int = 0
) -> AsyncIterator[World]:
    made = World(limits, reauth_ms)
    made.server.tls = None if tls is None else RealTls(tls)
    made.address = await made.server.listen(made.network, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        made.server.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.005)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def ask(channel: Channel) -> Any:
    return await channel.request(ApiKey.LIST_GROUPS, {}, version=4)


@EACH
def test_who_knows_the_password_is_served_by_name(mechanism: str) -> None:
    async def scenario() -> None:
        async with world() as it:
            await ask(await it.log_in(mechanism))
            assert str(it.asked[0].connection.principal) == "User:alice"
            assert it.asked[0].connection.gate is None
            assert it.gated.succeeded == 1

    run(scenario)


def test_plain_knows_the_accounts_of_the_listener_and_users_with_either_credential() -> None:
    async def scenario() -> None:
        async with world() as it:
            await ask(await it.log_in("PLAIN", "admin", Secret("geheim")))
            await ask(await it.log_in("PLAIN", "old"))
            assert [str(each.connection.principal) for each in it.asked] == [
                "User:admin",
                "User:old",
            ]

    run(scenario)


@EACH
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "pencil"), ("admin", "x")]
)
def test_a_wrong_login_gets_one_text_after_the_delay(
    mechanism: str, user: str, password: str
) -> None:
    async def scenario() -> None:
        async with world() as it:
            loop = asyncio.get_running_loop()
            began = loop.time()
            error = await it.refused(mechanism, user, password)
            assert loop.time() - began >= LIMITS.failure_delay_s
            assert error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert error.message == (
                "Authentication failed during authentication due to invalid credentials with SASL"
                f" mechanism {mechanism}"
            )
            await until(lambda: not it.server.connections)
            assert it.gated.failed == 1
            assert it.asked == []

    run(scenario)


def test_the_operator_reads_why_and_who(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world() as it:
            await it.refused("SCRAM-SHA-256", "no\nbody", "pencil")

    with caplog.at_level(logging.INFO):
        run(scenario)
    (line,) = [each.getMessage() for each in caplog.records if "login" in each.getMessage()]
    assert "user=no\\nbody reason=there is no such user" in line
    assert "mechanism=SCRAM-SHA-256 " in line
    assert "\n" not in line and "pencil" not in line


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN", "\N{GRINNING FACE}\x01" * 1500])
def test_a_stranger_cannot_make_a_line_of_the_log_long(
    caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    async def scenario() -> None:
        async with world() as it:
            channel = await it.channel()
            shaken = await channel.request(
                ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism}, version=1
            )
            if shaken.error_code == ErrorCode.NONE:
                name = 4000 * b"\x01"
                scram, plain = b"n,,n=" + name + b",r=abc", b"\0" + name + b"\0pencil"
                token = plain if mechanism == "PLAIN" else scram
                fields = {"auth_bytes": token}
                said = await channel.request(ApiKey.SASL_AUTHENTICATE, fields, version=1)
                assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    with caplog.at_level(logging.INFO):
        run(scenario)
    (line,) = [each.getMessage() for each in caplog.records if "login" in each.getMessage()]
    assert len(line) < 3000


def test_nothing_else_is_served_before_a_login() -> None:
    async def scenario() -> None:
        async with world() as it:
            channel = await it.channel()
            await channel.request(ApiKey.API_VERSIONS, {}, version=0)
            with pytest.raises(ConnectionError):
                await ask(channel)
            assert it.asked == []

    run(scenario)


def test_nothing_is_read_while_a_failure_is_held_back() -> None:
    """Thousands of guesses on one connection are one guess."""

    async def scenario() -> None:
        async with world() as it:
            reader, writer = await asyncio.open_connection(*it.address)
            writer.write(handshake("PLAIN", 1))
            await frame(reader)
            body = messages.write_request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"\0a\0b"})
            guess = request_frame(ApiKey.SASL_AUTHENTICATE, 1, 2, None, body)
            writer.write(guess * 1000)
            assert len(await reader.read()) == len(await_failure())
            assert it.gated.failed == 1

    def await_failure() -> bytes:
        fields = {
            "error_code": 58,
            "error_message": "Authentication failed during authentication due to invalid credentials"
            " with SASL mechanism PLAIN",
            "auth_bytes": b"",
        }
        return bytes(8) + messages.write_response(ApiKey.SASL_AUTHENTICATE, 1, fields)

    run(scenario)


def handshake(mechanism: str, version: int) -> bytes:
    body = messages.write_request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})
    return request_frame(ApiKey.SASL_HANDSHAKE, version, 1, None, body)


async def frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


@EACH
def test_tokens_without_headers_log_in_too(mechanism: str) -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await asyncio.open_connection(*it.address)
            writer.write(handshake(mechanism, 0))
            await frame(reader)
            login = ClientLogin(mechanism, "alice", PASSWORD).begin("nonce")
            token: bytes | None = login.first()
            while token is not None:
                writer.write(len(token).to_bytes(4, "big") + token)
                token = login.answer(await frame(reader))
            writer.write(request_frame(ApiKey.LIST_GROUPS, 0, 7, None, b""))
            assert (await frame(reader))[:4] == (7).to_bytes(4, "big")
            assert str(it.asked[0].connection.principal) == "User:alice"

    run(scenario)


def test_a_long_frame_is_refused_before_a_login_and_taken_after_it() -> None:
    long = messages.write_request(ApiKey.LIST_GROUPS, 4, {"states_filter": ["x" * 20_000]})

    async def scenario() -> None:
        async with world() as it:
            _, writer = await asyncio.open_connection(*it.address)
            writer.write((FRAME_MAX + 1).to_bytes(4, "big"))  # announced, never sent
            await until(lambda: len(it.server.connections) == 1)
            await until(lambda: not it.server.connections)
            channel = await it.log_in("PLAIN")
            await channel.answer(ApiKey.LIST_GROUPS, 4, long, lambda *_: None, timeout_s=10)
            assert len(it.asked) == 1

    run(scenario)


def test_who_does_not_log_in_in_time_is_closed() -> None:
    """Also one that sends a byte now and then."""

    async def scenario() -> None:
        async with world(LIMITS._replace(timeout_s=0.2)) as it:
            _, writer = await asyncio.open_connection(*it.address)
            channel = await it.log_in("SCRAM-SHA-512")
            await until(lambda: len(it.server.connections) == 2)
            while len(it.server.connections) == 2:
                writer.write(b"\0")
                await asyncio.sleep(0.02)
            await ask(channel)  # who has logged in has no deadline any more
            assert it.gated.failed == 1

    run(scenario)


def test_the_handshake_takes_from_the_time_of_the_login() -> None:
    async def scenario() -> None:
        timeout_s = 30.0
        async with world(LIMITS._replace(timeout_s=timeout_s), certified().options("nodes", client_auth="none")) as it:  # fmt: skip
            loop = asyncio.get_running_loop()
            _, writer = await asyncio.open_connection(*it.address)
            handshakes = it.server._listener._handshakes  # type: ignore[union-attr]
            await until(lambda: len(handshakes) == 1)
            accepted_by = loop.time()
            await asyncio.sleep(SLOW_S)  # so slow is this client
            context = ssl.create_default_context()
            context.load_verify_locations(cadata=certified().authority("nodes").cert_pem.bytes().decode())  # fmt: skip
            await writer.start_tls(context, server_hostname="localhost")
            await until(lambda: len(it.gated.waiting) == 1)
            (gate,) = it.gated.waiting
            timer = gate._timer
            assert timer is not None
            assert timer.when() < accepted_by + timeout_s + SLOW_S / 2
            writer.transport.abort()

    run(scenario)


def test_of_too_many_who_wait_the_oldest_is_closed() -> None:
    async def scenario() -> None:
        async with world(LIMITS._replace(waiting_max=3)) as it:
            logged_in = await it.log_in("SCRAM-SHA-512")
            streams = [await asyncio.open_connection(*it.address) for _ in range(3)]
            await until(lambda: len(it.server.connections) == 4)
            channel = await it.log_in("SCRAM-SHA-512")
            assert await streams[0][0].read() == b""
            await ask(channel)
            await ask(logged_in)
            assert len(it.server.connections) == 4

    run(scenario)


def test_a_node_that_is_starting_lets_clients_come_again() -> None:
    """It does not know its users yet: to refuse one would be final for most clients."""

    async def scenario() -> None:
        async with world() as it:
            handlers, it.server.handlers = it.server.handlers, {}
            with pytest.raises(ConnectionError):
                await it.log_in("SCRAM-SHA-512")
            it.server.handlers = handlers
            await it.log_in("SCRAM-SHA-512")

    run(scenario)


def test_two_brokers_answer_alike_about_a_user_who_does_not_exist() -> None:
    async def challenge(it: World, user: str) -> bytes:
        reader, writer = await asyncio.open_connection(*it.address)
        writer.write(handshake("SCRAM-SHA-256", 0))
        await frame(reader)
        token = f"n,,n={user},r=nonce".encode()
        writer.write(len(token).to_bytes(4, "big") + token)
        return (await frame(reader)).split(b",", 1)[1]

    async def scenario() -> None:
        async with world() as one, world() as other:
            told = await challenge(one, "nobody")
            assert told == await challenge(other, "nobody")
            assert told != await challenge(one, "somebody")
            known = await challenge(one, "alice")
            assert len(known) == len(told) and known.endswith(b",i=4096") == told.endswith(
                b",i=4096"
            )

    run(scenario)


def test_work_for_passwords_is_done_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    at_once: list[int] = []
    right = scram.knows_password

    def counted(*given: Any) -> bool:
        running.append(1)
        at_once.append(len(running))
        try:
            return right(*given)
        finally:
            running.pop()

    monkeypatch.setattr(scram, "knows_password", counted)

    async def scenario() -> None:
        async with world() as it:
            await asyncio.gather(*(it.log_in("PLAIN") for _ in range(20)))

    run(scenario)
    assert len(at_once) == 20
    assert max(at_once) <= 2


# Sessions


def test_a_client_logs_in_again_before_its_session_ends() -> None:
    """And what it asks meanwhile is answered afterwards."""

    async def scenario() -> None:
        async with world(reauth_ms=1300) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            while it.gated.renewed < 2:
                await ask(channel)
            assert it.gated.succeeded == 1
            assert it.gated.expired == 0
            assert len(it.server.connections) == 1

    run(scenario)


def test_a_session_that_is_over_ends_with_the_next_request() -> None:
    async def scenario() -> None:
        async with world(reauth_ms=100) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            assert channel._next_login is not None
            channel._forget_next_login()
            (connection,) = it.server.connections
            await until(lambda: connection.gate is not None)
            assert not connection.closed
            with pytest.raises(ConnectionError):
                await ask(channel)
            assert it.gated.expired == 1
            assert it.asked == []

    run(scenario)


class ParkedFetch:
    """A request that waits for records."""

    def __init__(self, connection: ServerConnection, request: Request) -> None:
        self.connection = connection
        self.request = request
        connection.parked_fetch = self

    def complete(self) -> None:
        self.connection.parked_fetch = None
        self.request.respond({})

    def drop(self) -> None:
        self.connection.parked_fetch = None


def test_what_is_parked_is_answered_when_the_session_is_over() -> None:
    """Else it would get the records of the hours to come."""

    async def scenario() -> None:
        async with world(reauth_ms=300) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            channel._forget_next_login()
            it.answers_itself = False
            waiting = asyncio.create_task(ask(channel))
            await until(lambda: bool(it.asked))
            (connection,) = it.server.connections
            ParkedFetch(connection, it.asked[0])
            await waiting
            assert connection.parked_fetch is None
            assert connection.gate is not None
            assert not connection.closed, "its client may still log in again"

    run(scenario)


def test_a_failed_login_does_not_wait_behind_what_is_parked() -> None:
    async def scenario() -> None:
        async with world(reauth_ms=60_000) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            it.answers_itself = False
            waiting = asyncio.create_task(ask(channel))
            await until(lambda: bool(it.asked))
            (connection,) = it.server.connections
            ParkedFetch(connection, it.asked[0])
            gate = connection.sasl
            assert gate is not None
            gate._obey(Failed(None, "a wrong password", None))
            await waiting
            await until(lambda: connection.closed)

    run(scenario)


def test_an_answer_that_comes_after_the_session_ends_the_connection() -> None:
    async def scenario() -> None:
        async with world(reauth_ms=200) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            channel._forget_next_login()
            (connection,) = it.server.connections
            gate = connection.sasl
            assert gate is not None
            assert not gate.ends_if_over()
            await until(lambda: connection.gate is not None)
            assert gate.ends_if_over()
            assert connection.closed
            assert it.gated.expired == 1
            assert gate.ends_if_over(), "and is counted once"
            assert it.gated.expired == 1

    run(scenario)


def test_a_login_waits_behind_a_request_that_is_not_answered_yet() -> None:
    async def scenario() -> None:
        async with world(reauth_ms=300) as it:
            channel = await it.log_in("SCRAM-SHA-512")
            it.answers_itself = False
            waiting = asyncio.create_task(ask(channel))
            await until(lambda: channel._held is not None)
            (connection,) = it.server.connections
            await until(lambda: len(connection._unanswered) == 2)
            later = asyncio.create_task(ask(channel))
            assert it.gated.renewed == 0
            it.answers_itself = True
            it.asked[0].respond({})
            await waiting
            await later
            assert (it.gated.succeeded, it.gated.renewed) == (1, 1)

    run(scenario)


def test_a_changed_credential_ends_the_sessions_that_rest_on_it() -> None:
    async def scenario() -> None:
        async with world() as it:
            by_512 = await it.log_in("SCRAM-SHA-512")
            by_256 = await it.log_in("SCRAM-SHA-256")
            by_plain = await it.log_in("PLAIN")  # the stronger of both
            admin = await it.log_in("PLAIN", "admin", Secret("geheim"))
            assert len(it.logins.gates) == 4
            it.logins.credentials_changed([("alice", 2), ("nobody", 2)])
            await until(lambda: by_512.closed and by_plain.closed)
            await ask(by_256)
            await ask(admin)
            by_256.close()
            await until(lambda: len(it.logins.gates) == 1)

    run(scenario)


@EACH
def test_a_login_that_began_before_the_change_fails_after_it(mechanism: str) -> None:
    """It was told the old salt, and would succeed with the old password."""

    async def scenario() -> None:
        async with world() as it:
            reader, writer = await asyncio.open_connection(*it.address)
            writer.write(handshake(mechanism, 0))
            await frame(reader)
            login = ClientLogin(mechanism, "alice", PASSWORD).begin("nonce")
            token = login.first()
            writer.write(len(token).to_bytes(4, "big") + token)
            if mechanism == "PLAIN":
                (gate,) = it.logins.gates
                await until(lambda: gate.logs_in_as == "alice" or it.gated.succeeded == 1)
            else:
                await frame(reader)
            came_first = it.gated.succeeded == 1  # then it is told so, and closed nevertheless
            it.logins.credentials_changed([("alice", 1), ("alice", 2)])
            with suppress(ConnectionError):
                assert await reader.read() == b"" or came_first
            assert not it.server.connections

    run(scenario)


def test_a_stranger_costs_as_much_as_most_users_cost() -> None:
    """PLAIN looks at the password by the mechanism that most users have."""
    weak = {("a", 1): stored("a", "SCRAM-SHA-256"), ("b", 1): stored("b", "SCRAM-SHA-256")}
    strong = {("c", 2): stored("c", "SCRAM-SHA-512")}
    for users, expected in (({}, 2), (weak, 1), (weak | strong, 1), (strong, 2)):
        known = KnownUsers(lambda users=users: users, Decoys(Secret("x"), os.urandom), os.urandom)  # type: ignore[misc]
        mechanism, _, exists = known._for_plain("nobody")
        assert (mechanism.number, exists) == (expected, False)


def test_who_changes_the_own_password_still_reads_the_answer() -> None:
    async def scenario() -> None:
        async with world() as it:
            channel = await it.log_in("SCRAM-SHA-512")
            it.answers_itself = False
            asked = asyncio.create_task(
                channel.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {}, version=0)
            )
            await until(lambda: len(it.asked) == 1)
            it.logins.credentials_changed([("alice", 2)])
            it.asked[0].respond({})
            await asked
            await until(lambda: channel.closed)

    run(scenario)


def test_a_listener_without_sasl_refuses_logins_and_goes_on() -> None:
    async def scenario() -> None:
        async with world() as it:
            it.server.gated = None
            channel = await it.channel()
            for key, version, fields in (
                (ApiKey.SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}),
                (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
                (ApiKey.SASL_AUTHENTICATE, 0, {"auth_bytes": b"\0a\0b"}),
                (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b""}),
            ):
                answer = await channel.request(key, fields, version=version)
                assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            await ask(channel)

    run(scenario)


def test_noise_on_many_connections_opens_none() -> None:
    chance = random.Random(7)

    async def scenario() -> None:
        async with world(LIMITS._replace(timeout_s=1.0, failure_delay_s=0.0)) as it:

            async def noise() -> None:
                reader, writer = await asyncio.open_connection(*it.address)
                for _ in range(5):
                    body = chance.randbytes(chance.randrange(60))
                    if chance.random() < 0.5:
                        body = handshake(chance.choice(MECHANISMS), chance.randrange(2))[4:]
                    writer.write(len(body).to_bytes(4, "big") + body)
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()

            await asyncio.gather(*(noise() for _ in range(200)))
            assert it.gated.succeeded == 0
            assert it.asked == []
            await until(lambda: not it.server.connections)

    run(scenario)


@pytest.mark.parametrize("password", ["geheim", "wrong"])
def test_a_closed_connection_leaves_no_cycle_behind(password: str) -> None:
    """Or a login storm fills the memory until the collector looks at the oldest objects, which it does seldom."""

    async def scenario() -> None:
        async with world() as made:
            gc.collect()
            channel = await made.channel()
            login = ClientLogin("PLAIN", "admin", Secret(password))
            with suppress(KafkaError):
                await channel.log_in(lambda: login.begin("n"))
            left = weakref.ref(next(iter(made.server.connections)))
            channel.close()
            await until(lambda: not made.server.connections)
            await until(lambda: left() is None)

    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()
