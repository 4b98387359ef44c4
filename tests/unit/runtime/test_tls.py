"""TLS on real sockets: who is let in, who is not and what the log says, what is cut, and what changes while it runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from ottla.runtime.seams import AcceptedConnection, Connection, Listener, TlsRefused
from ottla.runtime.sockets import RealNetwork, SocketListener
from ottla.runtime.tls import RealTls, try_handshake
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.runtime.tls_stream import BARE_BYTES_MAX, PORTION_BYTES, TlsStream
from ottla.security.names import name_of
from ottla.security.secrets import Secret
from support.certificates import Certified, certified, of_unknown_version

HELLO = b"\0\0\0\2hi"


class Ears:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


class Meeting:
    def __init__(self) -> None:
        self.network = RealNetwork(asyncio.get_running_loop())
        self.accepted: list[Ears] = []
        self.listener: Listener | None = None

    def accept(self, connection: AcceptedConnection) -> Ears:
        self.accepted.append(Ears(connection))
        return self.accepted[-1]

    async def listen(self, options: TlsOptions) -> RealTls:
        tls = RealTls(options)
        self.listener = await self.network.listen(
            "127.0.0.1", 0, self.accept, frame_bytes_max=1 << 20, tls=tls
        )
        return tls

    @property
    def port(self) -> int:
        assert self.listener is not None
        return self.listener.address[1]

    async def connect(self, tls: RealTls | None, host: str = "127.0.0.1") -> Ears:
        made: list[Ears] = []

        def receiver(connection: Connection) -> Ears:
            made.append(Ears(connection))
            return made[0]

        await self.network.connect(host, self.port, receiver, tls=tls)
        return made[0]

    async def plain(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        connecting = socket.socket()
        connecting.setblocking(False)
        await loop.sock_connect(connecting, ("127.0.0.1", self.port))
        return connecting

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
        for ears in self.accepted:
            ears.connection.abort()


Scenario = Callable[[Meeting], Awaitable[None]]


def meet(scenario: Scenario) -> None:
    async def main() -> None:
        meeting = Meeting()
        try:
            await asyncio.wait_for(scenario(meeting), 30)
        finally:
            meeting.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def until(condition: Callable[[], object], what: str = "it did not come to that") -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.002)


async def ended(connected: socket.socket) -> None:
    """Until the other side has closed it."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(connected, 4096):
            pass
    except ConnectionError:
        pass
    connected.close()


@pytest.fixture
def made() -> Certified:
    return certified()


# Who comes in


def test_both_ends_know_each_other_by_certificate(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        client = await meeting.connect(RealTls(made.options("nodes")))
        client.connection.send([HELLO])
        await until(lambda: meeting.accepted and meeting.accepted[0].frames == [b"hi"])
        connection = meeting.accepted[0].connection
        identity = connection.identity  # type: ignore[attr-defined]
        assert name_of(identity.certificate).startswith("CN=node,")
        assert identity.tls.startswith("TLSv1.3 TLS_")
        assert not identity.is_local

    meet(scenario)


def test_who_shows_no_certificate_comes_in_where_it_is_only_requested(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", client_auth="requested"))
        client = await meeting.connect(RealTls(made.options("nodes", key_store=None)))
        client.connection.send([HELLO])
        await until(lambda: meeting.accepted and meeting.accepted[0].frames == [b"hi"])
        assert meeting.accepted[0].connection.identity.certificate is None  # type: ignore[attr-defined]

    meet(scenario)


def clients(made: Certified) -> dict[str, TlsOptions]:
    past = datetime.now(UTC) - timedelta(days=1)
    expired = made.leaf("nodes", not_before=past - timedelta(days=1), not_after=past)
    return {
        "showed no certificate": made.options("nodes", key_store=None),
        "unable to get local issuer certificate": made.options(
            "nodes", key_store=made.key_store(made.leaf("strangers"))
        ),
        "certificate has expired": made.options("nodes", key_store=made.key_store(expired)),
    }


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    "reason",
    [
        "showed no certificate",
        "unable to get local issuer certificate",
        "certificate has expired",
    ],
)
def test_a_client_with_a_wrong_certificate_is_refused_and_the_log_says_why(
    made: Certified,
    version: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("ottla.runtime.tls_stores._check_times", lambda *_: None)
    options = clients(made)[reason]

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", protocols=(version,)))
        try:
            client = await meeting.connect(RealTls(options))
            client.connection.send([HELLO])
            await until(lambda: client.lost)
        except ConnectionError:
            pass
        await until(lambda: reason in caplog.text)
        assert meeting.accepted == []

    meet(scenario)
    assert "TLS handshake failed peer=127.0.0.1:" in caplog.text


@pytest.mark.parametrize(
    ("server", "trust", "host", "reason"),
    [
        ("strangers", "nodes", "127.0.0.1", "unable to get local issuer certificate"),
        ("nodes", "nodes", "localhost", None),
        ("elsewhere", "nodes", "127.0.0.1", "IP address mismatch"),
    ],
)
def test_a_server_must_have_the_right_authority_and_name(
    made: Certified, server: str, trust: str, host: str, reason: str | None
) -> None:
    leaf = made.leaf("nodes", "example.org") if server == "elsewhere" else made.leaf(server)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(
            made.options("nodes", key_store=made.key_store(leaf), client_auth="none")
        )
        tls = RealTls(made.options(trust))
        if reason is None:
            (await meeting.connect(tls, host)).connection.abort()
            return
        with pytest.raises(ConnectionError, match=reason):
            await meeting.connect(tls, host)

    meet(scenario)


def test_hosts_are_not_checked_where_that_is_turned_off(made: Certified) -> None:
    leaf = made.leaf("nodes", "example.org")

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", key_store=made.key_store(leaf)))
        client = await meeting.connect(RealTls(made.options("nodes", check_host=False)))
        client.connection.abort()

    meet(scenario)


def test_two_that_share_no_version_do_not_come_together(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", protocols=("TLSv1.3",)))
        with pytest.raises(ConnectionError, match=r"no TLS with 127\.0\.0\.1"):
            await meeting.connect(RealTls(made.options("nodes", protocols=("TLSv1.2",))))

    meet(scenario)


@pytest.mark.parametrize("group", ["secp384r1", "secp521r1"])
def test_a_stranger_does_not_choose_how_much_a_key_costs(made: Certified, group: str) -> None:
    """D(HE)at: keys of ffdhe8192 cost a server a fifth of a second, and a client that cheats nothing. Python's clients cannot
    ask for those groups; a scanner does, in the slow tests."""

    async def scenario(meeting: Meeting) -> None:
        tls = await meeting.listen(made.options("nodes"))
        assert tls._server is not None
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(cadata=made.authority("nodes").cert_pem.bytes().decode())
        client.set_ecdh_curve(group)
        with pytest.raises(TlsRefused, match="does not know the curve P-256"):
            try_handshake(client, tls._server)

    meet(scenario)


def blocking_client(made: Certified) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=made.authority("nodes").cert_pem.bytes().decode())
    made.leaf("nodes").configure_cert(context)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed_where_certificates_count(
    made: Certified, version: ssl.TLSVersion
) -> None:
    """It would outlive its certificate authority."""
    context = blocking_client(made)
    context.maximum_version = version

    def connect(port: int, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
        ):
            assert not secured.session_reused
            secured.sendall(HELLO)
            return secured.session

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        loop = asyncio.get_running_loop()
        session = await loop.run_in_executor(None, connect, meeting.port, None)
        if session is not None and not session.id:
            session = None
        for _ in range(3):
            await loop.run_in_executor(None, connect, meeting.port, session)
        await until(lambda: sum(len(each.frames) for each in meeting.accepted) == 4)

    meet(scenario)


# Who does not speak TLS, or slowly


def test_a_connection_that_ends_before_its_first_byte_is_not_worth_a_word(
    made: Certified, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        (await meeting.plain()).close()
        client = await meeting.connect(RealTls(made.options("nodes")))  # comes after it
        client.connection.abort()
        await until(lambda: meeting.accepted)

    meet(scenario)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        (b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\0\0", "seems to speak plain Kafka"),
        (b"GET / HTTP/1.1\r\n\r\n", "seems to speak HTTP"),
    ],
)
def test_who_does_not_speak_tls_is_closed_with_a_hint(
    made: Certified, caplog: pytest.LogCaptureFixture, begins: bytes, words: str
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        connected = await meeting.plain()
        connected.send(begins)
        await ended(connected)
        assert meeting.accepted == []

    meet(scenario)
    assert words in caplog.text


def test_a_handshake_has_a_deadline(made: Certified, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", handshake_timeout_s=0.05))
        silent, slow = await meeting.plain(), await meeting.plain()
        slow.send(b"\x16\x03\x01")
        await ended(silent)
        await ended(slow)

    meet(scenario)
    assert caplog.text.count("was not over in time") == 2


def test_the_oldest_handshake_gives_way_when_there_are_too_many(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", handshakes_max=3))
        waiting = [await meeting.plain() for _ in range(4)]
        await ended(waiting[0])
        client = await meeting.connect(RealTls(made.options("nodes")))
        client.connection.send([HELLO])
        await until(lambda: meeting.accepted and meeting.accepted[0].frames)
        for each in waiting[1:]:
            each.close()

    meet(scenario)


def under_way(meeting: Meeting) -> int:
    assert isinstance(meeting.listener, SocketListener)
    assert meeting.listener._handshakes is not None
    return len(meeting.listener._handshakes)


async def comes_in(meeting: Meeting, made: Certified) -> None:
    client = await meeting.connect(RealTls(made.options("nodes")))
    client.connection.send([HELLO])
    await until(lambda: meeting.accepted and meeting.accepted[-1].frames == [b"hi"])
    assert under_way(meeting) == 0


def test_peers_that_begin_and_reset_do_not_shut_the_listener(
    made: Certified, caplog: pytest.LogCaptureFixture
) -> None:
    """The bytes are still there to be read, but OpenSSL's wrapping fails: the connection is gone."""
    caplog.set_level(logging.INFO)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        resetting = [await meeting.plain() for _ in range(9)]
        await until(lambda: under_way(meeting) == 9)
        for each in resetting:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.send(b"\x16\x03\x01\x02\x00")
            each.close()
        await until(lambda: under_way(meeting) == 0)
        await comes_in(meeting, made)

    meet(scenario)
    assert caplog.text.count("TLS handshake failed peer=127.0.0.1:") == 9
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("step", ["accept", "handshake_is_over"])
def test_an_exception_in_a_handshake_loses_one_connection_and_is_told_once(
    made: Certified, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fails(connected: socket.socket) -> None:
        raise RuntimeError("nobody foresaw this")

    async def scenario(meeting: Meeting) -> None:
        tls = await meeting.listen(made.options("nodes"))
        with monkeypatch.context() as patched:
            patched.setattr(tls, step, fails)
            together = (meeting.connect(RealTls(made.options("nodes"))) for _ in range(9))
            for client in await asyncio.gather(*together, return_exceptions=True):
                if isinstance(client, Ears):  # by TLS 1.3, its half is done before ours is
                    await until(partial(len, client.lost))
                else:
                    assert isinstance(client, ConnectionError)
        await comes_in(meeting, made)
        assert tls.handshakes_failed == 9

    meet(scenario)
    assert caplog.text.count("Traceback") == 1


# Cut streams. The client's half is in memory, so that its bytes can be sent as the test likes.


class MemoryClient:
    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.secured = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    async def shake_hands(self, connected: socket.socket, piece: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self.secured.do_handshake()
                await self.send(connected, piece)
                return
            except ssl.SSLWantReadError:
                await self.send(connected, piece)
                self._in.write(await loop.sock_recv(connected, 65536))

    async def send(self, connected: socket.socket, piece: int = 1 << 20) -> None:
        data = self._out.read()
        for start in range(0, len(data), piece):
            await asyncio.get_running_loop().sock_sendall(connected, data[start : start + piece])
            if piece < 100:
                await asyncio.sleep(0)

    def encrypted(self, data: bytes) -> bytes:
        self.secured.write(data)
        return self._out.read()


def test_a_handshake_and_frames_may_come_byte_by_byte(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        connected = await meeting.plain()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = MemoryClient(blocking_client(made))
        await client.shake_hands(connected, 1)
        for byte in client.encrypted(HELLO + HELLO):
            await asyncio.get_running_loop().sock_sendall(connected, bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: meeting.accepted and meeting.accepted[0].frames == [b"hi", b"hi"])
        connected.close()

    meet(scenario)


class OpenSSLClient:
    """One that changes its keys, which Python's cannot. Its half is in memory, too."""

    def __init__(self) -> None:
        try:
            self._ssl, self._crypto = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
        except OSError:
            pytest.skip("no libssl.so.3 here")
        for library, names in (
            (self._ssl, ("TLS_client_method", "SSL_CTX_new", "SSL_new")),
            (self._crypto, ("BIO_new", "BIO_s_mem")),
        ):
            for name in names:
                getattr(library, name).restype = ctypes.c_void_p
        made = self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method()))
        self._secured = ctypes.c_void_p(self._ssl.SSL_new(ctypes.c_void_p(made)))
        self._in, self._out = (
            ctypes.c_void_p(self._crypto.BIO_new(ctypes.c_void_p(self._crypto.BIO_s_mem())))
            for _ in range(2)
        )
        self._ssl.SSL_set_bio(self._secured, self._in, self._out)
        self._ssl.SSL_set_connect_state(self._secured)

    def _written(self) -> bytes:
        room = ctypes.create_string_buffer(1 << 16)
        parts = []
        while (size := self._crypto.BIO_read(self._out, room, len(room))) > 0:
            parts.append(room.raw[:size])
        return b"".join(parts)

    async def shake_hands(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            is_over = self._ssl.SSL_do_handshake(self._secured) == 1
            await loop.sock_sendall(connected, self._written())
            if is_over:
                return
            data = await loop.sock_recv(connected, 65536)
            self._crypto.BIO_write(self._in, data, len(data))

    def key_updates(self, count: int) -> bytes:
        for _ in range(count):
            assert self._ssl.SSL_key_update(self._secured, 0) == 1
            self._ssl.SSL_do_handshake(self._secured)
        return self._written()

    def encrypted(self, data: bytes) -> bytes:
        assert self._ssl.SSL_write(self._secured, data, len(data)) == len(data)
        return self._written()


def test_a_peer_that_only_changes_its_keys_is_cut_off_and_others_have_their_turns(
    made: Certified, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read of OpenSSL works through all that comes until there is data: a flood of KeyUpdates, before any login, stopped the
    whole node. A call takes a portion now, and bytes without data are counted."""
    caplog.set_level(logging.INFO)
    taken: list[int] = []
    take = TlsStream._take_portion

    def noted(stream: TlsStream) -> None:
        before = stream._bare
        take(stream)
        taken.append(stream._bare - before)

    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", client_auth="none"))
        client = OpenSSLClient()
        connected = await meeting.plain()
        await client.shake_hands(connected)
        loop = asyncio.get_running_loop()
        # Far more often than anybody likes to.
        for _ in range(5):
            await loop.sock_sendall(connected, client.key_updates(300) + client.encrypted(HELLO))
        await until(lambda: meeting.accepted and len(meeting.accepted[0].frames) == 5)
        assert not meeting.accepted[0].lost

    async def flooding(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes", client_auth="none"))
        client = OpenSSLClient()
        connected = await meeting.plain()
        await client.shake_hands(connected)
        loop = asyncio.get_running_loop()
        flood = client.key_updates(3 * BARE_BYTES_MAX // 27)
        with suppress(ConnectionError):
            await loop.sock_sendall(connected, flood)
        await until(lambda: meeting.accepted and meeting.accepted[0].lost)
        assert meeting.accepted[0].lost == [f"TLS: more than {BARE_BYTES_MAX} bytes without data"]
        assert sum(taken) <= BARE_BYTES_MAX + PORTION_BYTES

    meet(scenario)
    monkeypatch.setattr(TlsStream, "_take_portion", noted)
    meet(flooding)
    assert max(taken) <= PORTION_BYTES
    assert caplog.text.count("closing connection, it sends TLS without data peer=127.0.0.1:") == 1


def test_a_stream_that_is_cut_at_any_byte_delivers_whole_frames_only(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        context = blocking_client(made)
        length = 1
        at = 0
        while at < length:
            connected = await meeting.plain()
            client = MemoryClient(context)
            await client.shake_hands(connected, 1 << 20)
            first = client.encrypted(HELLO)
            stream = first + client.encrypted(HELLO)
            length = len(stream)
            await asyncio.get_running_loop().sock_sendall(connected, stream[:at])
            connected.close()
            count = len(meeting.accepted)
            await until(lambda n=at: len(meeting.accepted) == n + 1 and meeting.accepted[n].lost)  # type: ignore[misc]
            ears = meeting.accepted[at]
            assert ears.frames == [b"hi"] * (at >= len(first)), (at, count)
            assert "cut" in ears.lost[0] or "Reset" in ears.lost[0]
            at += 1

    meet(scenario)


def test_a_record_that_was_changed_ends_the_connection(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        connected = await meeting.plain()
        client = MemoryClient(blocking_client(made))
        await client.shake_hands(connected, 1 << 20)
        data = bytearray(client.encrypted(HELLO))
        data[-1] ^= 1
        await asyncio.get_running_loop().sock_sendall(connected, data)
        await until(lambda: meeting.accepted and meeting.accepted[0].lost)
        assert meeting.accepted[0].frames == []
        assert "TLS:" in meeting.accepted[0].lost[0]
        connected.close()

    meet(scenario)


def test_a_farewell_is_told_from_a_cut(made: Certified) -> None:
    async def scenario(meeting: Meeting) -> None:
        await meeting.listen(made.options("nodes"))
        for count, end in enumerate((lambda it: it.close(), lambda it: it.abort())):
            client = await meeting.connect(RealTls(made.options("nodes")))
            client.connection.send([HELLO])
            await until(lambda n=count: len(meeting.accepted) > n and meeting.accepted[n].frames)  # type: ignore[misc]
            end(client.connection)
            await until(lambda: meeting.accepted[-1].lost)
        assert "closed by the peer" in meeting.accepted[0].lost[0]
        assert "cut" in meeting.accepted[1].lost[0]

    meet(scenario)


# Stores


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def as_pkcs12(made: Certified, password: bytes | None) -> bytes:
    leaf = made.leaf("nodes")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    chain = [load_pem_x509_certificate(each.bytes()) for each in leaf.cert_chain_pems]
    protected = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return pkcs12.serialize_key_and_certificates(b"n", key, chain[0], chain[1:], protected)  # type: ignore[arg-type]


def test_stores_may_be_pkcs12(made: Certified, tmp_path: Path) -> None:
    keys = write(tmp_path / "k.p12", as_pkcs12(made, b"secret"))
    ca = load_pem_x509_certificate(made.authority("nodes").cert_pem.bytes())
    authorities = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(ca, b"ca")], serialization.BestAvailableEncryption(b"trust")
    )
    trusted = write(tmp_path / "t.p12", authorities)
    options = made.options(
        "nodes",
        key_store=KeyStore("PKCS12", keys, Secret("secret")),
        trust_store=TrustStore("PKCS12", trusted, Secret("trust")),
    )
    server, client = RealTls(options), RealTls(made.options("nodes"))
    assert server._server is not None
    try_handshake(client._client, server._server)
    with pytest.raises(TlsRefused, match="cannot be read as PKCS12"):
        RealTls(made.options("nodes", key_store=KeyStore("PKCS12", keys, Secret("wrong"))))


def test_a_key_may_be_encrypted(made: Certified) -> None:
    leaf = made.leaf("nodes")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    hidden = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()
    chain = Secret(leaf.cert_chain_pems[0].bytes().decode())
    for password, works in (("secret", True), ("wrong", False), (None, False)):
        store = KeyStore(
            "PEM",
            key=Secret(hidden),
            certificate_chain=chain,
            key_password=None if password is None else Secret(password),
        )
        if works:
            assert RealTls(made.options("nodes", key_store=store)).certificate
        else:
            with pytest.raises(TlsRefused, match=r"ssl\.key\.password"):
                RealTls(made.options("nodes", key_store=store))


def pem(made: Certified, name: str = "nodes", **more: object) -> bytes:
    return made.leaf(name, **more).private_key_and_cert_chain_pem.bytes()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("absent", "No such file"),
        ("jks", "keytool -importkeystore"),
        ("empty", "contains no private key"),
        ("certificate only", "contains no private key"),
        ("key only", "contains no certificate"),
        ("other key", "the key does not fit the certificate"),
        ("expired", "the certificate expired on"),
        ("not yet", "is valid only from"),
        ("pkcs12", "is it PKCS12"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_by_name(
    made: Certified, tmp_path: Path, kind: str, message: str
) -> None:
    leaf, other, now = made.leaf("nodes"), made.leaf("nodes"), datetime.now(UTC)
    day = timedelta(days=1)
    data = {
        "absent": None,
        "jks": b"\xfe\xed\xfe\xed\0\0",
        "empty": b"",
        "certificate only": leaf.cert_chain_pems[0].bytes(),
        "key only": leaf.private_key_pem.bytes(),
        "other key": other.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes(),
        "expired": pem(made, not_before=now - 2 * day, not_after=now - day),
        "not yet": pem(made, not_before=now + day, not_after=now + 2 * day),
        "pkcs12": as_pkcs12(made, None),
    }[kind]
    file = tmp_path / "store"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(TlsRefused) as refused:
        RealTls(made.options("nodes", key_store=KeyStore("PEM", str(file))))
    assert message in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_of_a_key_is_left_in_a_file(made: Certified) -> None:
    before = set(os.listdir("/tmp"))
    gc.collect()  # what earlier tests left open may go at any moment
    descriptors = len(os.listdir("/proc/self/fd"))
    RealTls(made.options("nodes"))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not {name for name in set(os.listdir("/tmp")) - before if "store" in name}


# Changes while it runs


def from_files(made: Certified, tmp_path: Path, **changes: object) -> TlsOptions:
    keys = write(tmp_path / "k.pem", pem(made))
    trusted = write(tmp_path / "t.pem", made.authority("nodes").cert_pem.bytes())
    return made.options(
        "nodes",
        key_store=KeyStore("PEM", keys),
        trust_store=TrustStore("PEM", trusted),
        **changes,
    )


def test_a_new_certificate_of_the_same_name_is_taken_once(made: Certified, tmp_path: Path) -> None:
    tls = RealTls(from_files(made, tmp_path))
    before = tls.certificate
    assert not tls.refresh()
    write(tmp_path / "k.pem", pem(made))
    assert tls.refresh()
    assert tls.certificate not in (None, before)
    assert not tls.refresh()


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("nonsense", "contains no private key"),
        ("other name", "has another name"),
        ("fewer hosts", "no longer names localhost"),
        ("other authority", "would not trust each other"),
        ("expired", "expired"),
    ],
)
def test_a_change_that_would_break_something_is_refused_and_all_stays(
    made: Certified, tmp_path: Path, new: str, message: str
) -> None:
    tls = RealTls(from_files(made, tmp_path))
    before, now = tls.certificate, datetime.now(UTC)
    data = {
        "nonsense": b"nonsense",
        "other name": pem(made, common_name="another"),
        "fewer hosts": made.leaf("nodes", "127.0.0.1").private_key_and_cert_chain_pem.bytes(),
        "other authority": pem(made, "strangers"),
        "expired": pem(made, not_before=now - timedelta(2), not_after=now - timedelta(1)),
    }[new]
    write(tmp_path / "k.pem", data)
    with pytest.raises(TlsRefused, match=message):
        tls.refresh()
    assert tls.certificate == before
    assert not tls.refresh(), "said once"


@pytest.mark.parametrize("odd", ["version", "path", "parser"])
def test_a_store_that_raises_whatever_it_likes_is_refused(
    made: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    options = from_files(made, tmp_path)
    tls = RealTls(options)
    if odd == "path":
        options = made.options("nodes", trust_store=TrustStore("PEM", str(tmp_path / "a\0b")))
    elif odd == "version":
        trusted = of_unknown_version(made.authority("nodes").cert_pem.bytes())
        options = made.options("nodes", trust_store=TrustStore("PEM", write(tmp_path / "o", trusted)))  # fmt: skip
    else:

        def fails(certificate: object) -> None:
            raise NotImplementedError("an address of 5 bytes")

        monkeypatch.setattr("ottla.runtime.tls_stores._names", fails)
    for attempt in (partial(RealTls, options), partial(tls.refresh, options)):
        with pytest.raises(TlsRefused, match=r"store .* of listener TEST: cannot be used"):
            attempt()


def test_another_name_is_taken_where_that_is_allowed(made: Certified, tmp_path: Path) -> None:
    tls = RealTls(from_files(made, tmp_path, allow_dn_changes=True, allow_san_changes=True))
    leaf = made.leaf("nodes", "127.0.0.1", common_name="another")
    write(tmp_path / "k.pem", leaf.private_key_and_cert_chain_pem.bytes())
    assert tls.refresh()


def test_connections_end_when_their_authority_is_removed_and_others_stay(
    made: Certified, tmp_path: Path
) -> None:
    async def scenario(meeting: Meeting) -> None:
        trusted = tmp_path / "t.pem"
        both = b"".join(made.authority(name).cert_pem.bytes() for name in ("nodes", "clients"))
        options = made.options("nodes", trust_store=TrustStore("PEM", write(trusted, both)))
        tls = await meeting.listen(options)
        of_client = made.options("nodes", key_store=made.key_store(made.leaf("clients")))
        node = await meeting.connect(RealTls(made.options("nodes")))
        client = await meeting.connect(RealTls(of_client))
        for each in (node, client):
            each.connection.send([HELLO])
        await until(lambda: sum(len(each.frames) for each in meeting.accepted) == 2)
        trusted.write_bytes(made.authority("nodes").cert_pem.bytes())
        assert tls.refresh()
        await until(lambda: client.lost)
        node.connection.send([HELLO])
        await until(lambda: sum(len(each.frames) for each in meeting.accepted) == 3)
        assert node.lost == []
        again = await meeting.connect(RealTls(of_client))
        again.connection.send([HELLO])
        await until(lambda: again.lost)

    meet(scenario)


def test_a_node_without_tls_imports_nothing_of_it() -> None:
    program = (
        "import sys, ottla.broker.node, ottla.local.node, ottla.runtime.real;"
        "assert not {'cryptography', 'ottla.runtime.tls', 'ottla.runtime.tls_stores', 'ottla.security.names',"
        " 'ottla.broker.cluster.dialer', 'ottla.broker.cluster.node_security'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
