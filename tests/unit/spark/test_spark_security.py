"""TLS and SASL: what is refused, and what is said to a broker; the broker is a thread that plays its part."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla.client import BlockingClient
from ottla.client.connections import SecurityRefused
from ottla.client.security import Security
from ottla.spark.connect.connection import BrokerConnection, ConnectionOptions
from ottla.spark.connect.secured import client_for, security_of
from ottla.spark.errors import OptionError
from ottla.spark.options import Options
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_request_header
from ottla.wire.messages import write_response

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u,=" password="p\\"w";'


def security(**given: str) -> Security:
    return security_of(Options({name.replace("__", "."): value for name, value in given.items()}))


@pytest.mark.parametrize(
    ("given", "option", "why"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol", "none of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism", "'GSSAPI' is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "kafka.sasl.jaas.config", "names no login module"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "kafka.ssl.truststore.type", "only PEM"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/none.pem", "ssl.truststore.type": "PEM"},
            "kafka.ssl.truststore.location", "No such file",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(given: dict[str, str], option: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option}'.*{why}"):
        security_of(Options({f"kafka.{name}": value for name, value in given.items()}))


def test_user_and_password_are_read_and_not_shown() -> None:
    made = security(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="plain",
        kafka__sasl__jaas__config=JAAS,
    )
    assert made.sasl == ("PLAIN", "u,=", 'p"w')
    assert 'p"w' not in repr(made)


class Broker(threading.Thread):
    """Answers one connection, each frame by the next of `answers`."""

    def __init__(
        self, answers: Sequence[Callable[[bytes], bytes]], context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self._context = context
        self.port = self._listening.getsockname()[1]
        self.start()

    def run(self) -> None:
        with self._listening, self._listening.accept()[0] as plain:
            try:
                connection = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)  # fmt: skip
                for answer in self._answers:
                    size = int.from_bytes(_exactly(connection, 4), "big")
                    reply = answer(_exactly(connection, size))
                    connection.sendall(len(reply).to_bytes(4, "big") + reply)
            except OSError:
                return  # the other side did not like us, which is what the test is about


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("gone")
        data += more
    return data


def _versions(frame: bytes) -> bytes:
    header = read_request_header(memoryview(frame))
    fields = {
        "error_code": 0,
        "api_keys": [{"api_key": 3, "min_version": 0, "max_version": 12}],
        "throttle_time": 0,
    }
    return header.correlation_id.to_bytes(4, "big") + write_response(
        ApiKey.API_VERSIONS, header.api_version, fields
    )


def connection_options(given: dict[str, str]) -> ConnectionOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return ConnectionOptions.of(Options(named | {"kafka.bootstrap.servers": "x:1"}))


def connect(port: int, host: str = "localhost", **given: str) -> BrokerConnection:
    """As readers do."""
    return BrokerConnection((host, port), connection_options(given))


def use(port: int, host: str = "localhost", **given: str) -> dict[int, tuple[int, int]]:
    """As writers do; what the broker says that it speaks."""
    with client_for(BlockingClient, connection_options(given)) as blocking:
        return blocking.run(blocking.client.connections.at((host, port))).versions


PLAIN = {
    "kafka__security__protocol": "SASL_PLAINTEXT",
    "kafka__sasl__mechanism": "PLAIN",
    "kafka__sasl__jaas__config": JAAS,
}


@pytest.mark.parametrize("who", ["reading", "writing"])
def test_plain_sends_user_and_password_and_is_let_in(who: str) -> None:
    heard: list[bytes] = []

    def handshake(frame: bytes) -> bytes:
        heard.append(frame)
        return frame[4:8] + b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN"

    def authenticate(frame: bytes) -> bytes:
        heard.append(frame)
        return frame[4:8] + b"\0\0" + b"\xff\xff" + bytes(4) + bytes(8)

    if who == "reading":
        connect(Broker([_versions, handshake, authenticate]).port, "127.0.0.1", **PLAIN).close()
    else:
        use(Broker([handshake, authenticate, _versions]).port, "127.0.0.1", **PLAIN)
    assert heard[0].endswith(b"\0\5PLAIN")
    assert heard[1].endswith(b'\0u,=\0p"w')


def test_a_broker_that_does_not_let_us_in_is_quoted() -> None:
    def refuse(frame: bytes) -> bytes:
        return frame[4:8] + b"\0\x3a" + b"\0\4nope" + bytes(4) + bytes(8)

    def handshake(frame: bytes) -> bytes:
        return frame[4:8] + b"\0\0" + bytes(4)

    for ask, answers in ((connect, [_versions, handshake, refuse]), (use, [handshake, refuse])):
        with pytest.raises(SecurityRefused, match="does not let user 'u,=' in: nope"):
            ask(Broker(answers).port, "127.0.0.1", **PLAIN)


def test_a_broker_that_goes_away_instead_of_letting_us_in_is_no_broker() -> None:
    with pytest.raises(OSError, match="let us in"):
        use(Broker([]).port, "127.0.0.1", **PLAIN)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost, signed by itself, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", str(file), "-out", str(file.with_suffix(".crt"))]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


def tls_broker(certificate: Path) -> Broker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return Broker([_versions], context)


def test_tls_trusts_whom_it_was_told_to_trust(certificate: Path) -> None:
    trusting = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__type": "PEM",
        "kafka__ssl__truststore__location": str(certificate.with_suffix(".crt")),
    }
    connection = connect(tls_broker(certificate).port, **trusting)
    assert isinstance(connection._socket, ssl.SSLSocket)
    assert connection.versions == {3: (0, 12)}
    connection.close()
    assert use(tls_broker(certificate).port, **trusting) == {3: (0, 12)}
    lenient = trusting | {"kafka__ssl__endpoint__identification__algorithm": ""}
    for ask in (connect, use):
        with pytest.raises(SecurityRefused, match="is not trusted: self-signed certificate"):
            ask(tls_broker(certificate).port, kafka__security__protocol="SSL")
        with pytest.raises(SecurityRefused, match="IP address mismatch"):
            ask(tls_broker(certificate).port, "127.0.0.1", **trusting)
        assert ask(tls_broker(certificate).port, "127.0.0.1", **lenient)


def test_a_client_shows_a_certificate_of_its_own(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate.with_suffix(".crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    given = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__type": "PEM",
        "kafka__ssl__truststore__certificates": certificate.with_suffix(".crt").read_text(),
        "kafka__ssl__keystore__type": "PEM",
        "kafka__ssl__keystore__location": str(certificate),
    }
    connect(Broker([_versions], context).port, **given).close()
    assert use(Broker([_versions], context).port, **given) == {3: (0, 12)}
