"""How a connection is made safe: Kafka's `security.protocol`, with TLS and SASL as Kafka's own clients are told of them.

Certificates and keys are PEM, which Python reads; Java's own key stores it does not. SASL knows PLAIN and SCRAM, whose user and
password stand in `sasl.jaas.config`. Kerberos and OAuth need libraries that are not here, and are refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from ottla.spark.errors import OptionError, SparkSourceError
from ottla.spark.options import KAFKA, Options

Exchange = Callable[[bytes], bytes]
"""Sends a frame and gives the one that answers it."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS: Final = ("PLAIN", *_DIGESTS)
_SCRAM_ITERATIONS: Final = range(4096, 1_000_001)

# Headers of the two requests that come before a connection is trusted, in versions that nobody has dropped.
_HANDSHAKE: Final = Struct(">hhih")  # key 17, version 1, correlation id, client id (none)
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class Tls(NamedTuple):
    truststore: str | None
    """PEM text, or None: the system's own certificates."""
    certificate: str | None
    key: str | None
    key_password: str | None
    check_host: bool

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.truststore)
        context.check_hostname = self.check_host
        if self.certificate is not None:
            # Python takes a client's own certificate from files only.
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "client.pem")
                with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                    file.write(self.certificate + "\n" + (self.key or ""))
                context.load_cert_chain(path, password=self.key_password or "")
        return context


class Sasl(NamedTuple):
    mechanism: str
    user: str
    password: str


class Security(NamedTuple):
    """Its repr shows no password."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    def __repr__(self) -> str:
        return f"Security(tls={self.tls is not None}, sasl={self.sasl is not None})"

    @classmethod
    def of(cls, options: Options) -> Security:
        name = KAFKA + "security.protocol"
        protocol = (options.text(name) or "PLAINTEXT").strip().upper()
        if protocol not in _PROTOCOLS:
            raise OptionError(name, f"'{protocol}' is none of {', '.join(_PROTOCOLS)}")
        return cls(
            _tls(options) if protocol.endswith("SSL") else None,
            _sasl(options) if protocol.startswith("SASL") else None,
        )

    def encrypted(self, plain: socket.socket, host: str) -> socket.socket:
        """OSError (ssl.SSLError is one) if the certificate is not that of the broker."""
        return plain if self.tls is None else self.tls.context().wrap_socket(plain, server_hostname=host)  # fmt: skip

    def authenticate(self, exchange: Exchange) -> None:
        """SparkSourceError if the broker refuses the credentials."""
        if self.sasl is None:
            return
        mechanism, user, password = self.sasl
        name = mechanism.encode()
        answer = exchange(_head(_SASL_HANDSHAKE) + len(name).to_bytes(2, "big") + name)
        code = int.from_bytes(answer[4:6], "big", signed=True)
        if code != 0:
            raise OptionError(KAFKA + "sasl.mechanism", f"the broker does not speak {mechanism}")

        def step(message: bytes) -> bytes:
            body = len(message).to_bytes(4, "big") + message
            return _authenticated(exchange(_head(_SASL_AUTHENTICATE) + body), user)

        if mechanism == "PLAIN":
            step(b"\0" + user.encode() + b"\0" + password.encode())
        else:
            scram(_DIGESTS[mechanism], user, password, secrets.token_urlsafe(24), step)


def scram(digest: str, user: str, password: str, nonce: str, step: Callable[[bytes], bytes]) -> None:  # fmt: skip
    """RFC 5802: both sides prove that they know the password, and neither sends it."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = step(f"n,,{first}".encode()).decode()
    told = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
    salt, iterations = base64.b64decode(told["s"]), int(told["i"])
    if not told["r"].startswith(nonce) or iterations not in _SCRAM_ITERATIONS:
        raise SparkSourceError(f"the broker's SCRAM challenge cannot be trusted: {challenge}")

    def mac(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, digest).digest()

    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = mac(salted, b"Client Key")
    without_proof = f"c=biws,r={told['r']}"
    said = f"{first},{challenge},{without_proof}".encode()
    signature = mac(hashlib.new(digest, client_key).digest(), said)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = step(f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = base64.b64encode(mac(mac(salted, b"Server Key"), said)).decode()
    if final.split(",")[0] != f"v={expected}":
        raise SparkSourceError("the broker does not know the password of SCRAM itself")


def _head(key: int) -> bytes:
    return _HANDSHAKE.pack(key, 1, 0, -1)


def _authenticated(answer: bytes, user: str) -> bytes:
    """SaslAuthenticate v1: correlation id, error, message, bytes, lifetime."""
    code = int.from_bytes(answer[4:6], "big", signed=True)
    size = int.from_bytes(answer[6:8], "big", signed=True)
    position = 8 + max(size, 0)
    if code != 0:
        why = answer[8:position].decode("utf-8", "replace") or f"error {code}"
        raise SparkSourceError(f"the broker does not let user '{user}' in: {why}")
    length = int.from_bytes(answer[position : position + 4], "big", signed=True)
    return answer[position + 4 : position + 4 + max(length, 0)]


def _tls(options: Options) -> Tls:
    verify = options.text(KAFKA + "ssl.endpoint.identification.algorithm")
    return Tls(
        truststore=_pem(options, "ssl.truststore", "certificates"),
        certificate=_pem(options, "ssl.keystore", "certificate.chain"),
        key=options.text(KAFKA + "ssl.keystore.key"),
        key_password=options.text(KAFKA + "ssl.key.password"),
        check_host=verify is None or verify.strip() != "",
    )


def _pem(options: Options, store: str, content: str) -> str | None:
    """The text of a store, given itself or by its file."""
    given = options.text(f"{KAFKA}{store}.{content}")
    path = options.text(f"{KAFKA}{store}.location")
    if given is None and path is None:
        return None
    kind = (options.text(f"{KAFKA}{store}.type") or "JKS").strip().upper()
    if kind != "PEM":
        raise OptionError(
            f"{KAFKA}{store}.type",
            f"'{kind}' cannot be read here, only PEM can; keytool -exportcert -rfc makes it of a JKS store",
        )
    if given is not None:
        return given
    assert path is not None
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError as error:
        raise OptionError(f"{KAFKA}{store}.location", f"{path}: {error.strerror}") from None


def _sasl(options: Options) -> Sasl:
    name = KAFKA + "sasl.mechanism"
    mechanism = (options.text(name) or "GSSAPI").strip().upper()
    if mechanism not in _MECHANISMS:
        raise OptionError(
            name, f"'{mechanism}' is not supported, only {', '.join(_MECHANISMS)} are"
        )
    jaas = KAFKA + "sasl.jaas.config"
    found = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', options.text(jaas) or ""))
    missing = [each for each in ("username", "password") if each not in found]
    if missing:
        raise OptionError(jaas, f'has no {missing[0]}="…"')
    return Sasl(mechanism, *(re.sub(r"\\(.)", r"\1", found[each]) for each in ("username", "password")))  # fmt: skip
