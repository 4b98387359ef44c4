"""How a connection is made safe: Kafka's `security.protocol`, with TLS and SASL as Kafka's own clients are told of them.

The command line, Kafka's tools and Spark all read these settings here. Certificates and keys are PEM, or PKCS12, which needs
`cryptography`. SASL knows PLAIN and SCRAM, whose user and password stand in `sasl.jaas.config`. Kerberos and OAuth need
libraries that are not here, and are refused.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.connections import SecurityRefused
from ottla.security.jaas import JaasError, parse
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.security.sasl_client import ClientConversation
    from ottla.wire.channel import Channel

Exchange = Callable[[bytes], bytes]
"""Sends a frame and gives the one that answers it."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# Headers of the two requests that come before a connection is trusted, in versions that nobody has dropped.
_HANDSHAKE: Final = Struct(">hhih")  # key 17, version 1, correlation id, client id (none)
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class SecuritySettingError(Exception):
    """A setting that cannot be followed. Its text shows no secret."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class ClientTls(NamedTuple):
    truststore: str | None
    """PEM text, or None: the system's own certificates."""
    certificate: str | None
    key: str | None
    key_password: str | None
    check_host: bool

    def __repr__(self) -> str:
        return f"ClientTls(check_host={self.check_host})"

    def context(self) -> ssl.SSLContext:
        """SecuritySettingError if a certificate or a key cannot be read."""
        try:
            context = ssl.create_default_context(cadata=self.truststore)
        except (ssl.SSLError, ValueError):
            raise SecuritySettingError("ssl.truststore", "holds no certificate that can be read") from None  # fmt: skip
        context.check_hostname = self.check_host
        if self.certificate is not None:
            text = self.certificate + "\n" + (self.key or "")
            try:
                _load(context, text, self.key_password)
            except (ssl.SSLError, ValueError) as error:
                raise SecuritySettingError("ssl.keystore", f"cannot be used: {error}") from None
        return context


def _load(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Python takes a client's own certificate from files only. This one is memory, which leaves nothing on a disk."""
    file = os.memfd_create("certificate")
    try:
        os.write(file, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{file}", password=password or "")
    finally:
        os.close(file)


class Sasl(NamedTuple):
    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Sasl({self.mechanism}, {self.user!r}, [hidden])"

    def conversation(self) -> ClientConversation:
        from ottla.security.sasl_client import ClientLogin
        from ottla.security.scram import NONCE_BYTES
        from ottla.security.secrets import Secret

        login = ClientLogin(self.mechanism, self.user, Secret(self.password))
        return login.begin(secrets.token_urlsafe(NONCE_BYTES))

    async def log_in(self, channel: Channel, where: str) -> None:
        """And again, on the same connection, before the session ends (KIP-368). SecurityRefused if the broker at `where` refuses
        the credentials."""
        conversations: list[_Doubting] = []

        def begin() -> _Doubting:
            conversations[:] = [_Doubting(self.conversation())]
            return conversations[0]

        try:
            await channel.log_in(begin)
        except ConnectionError as error:
            raise ConnectionError(f"before it let us in: {error}") from None
        except KafkaError as error:
            code, why = error.code, error.message or error.code.name
            if code is ErrorCode.ILLEGAL_SASL_STATE:
                told = _NO_SASL
            elif code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                told = f"{why}: sasl.mechanism is wrong"
            elif conversations[0].disbelieves:
                told = _NOT_BELIEVED + why
            else:
                told = f"the broker does not let user '{self.user}' in: {why}"
            raise SecurityRefused(f"{where}: {told}") from None


class _Doubting:
    """A login that remembers whether it was we who broke it off."""

    def __init__(self, login: ClientConversation) -> None:
        self.mechanism = login.mechanism
        self.disbelieves = False
        self._login = login

    def first(self) -> bytes:
        return self._login.first()

    def answer(self, message: bytes) -> bytes | None:
        try:
            return self._login.answer(message)
        except KafkaError:
            self.disbelieves = True
            raise


class Security(NamedTuple):
    """Its repr shows no password."""

    tls: ClientTls | None = None
    sasl: Sasl | None = None

    def __repr__(self) -> str:
        return f"Security(tls={self.tls is not None}, sasl={self.sasl is not None})"

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security:
        """From the settings of Kafka's clients. SecuritySettingError if they cannot be followed."""
        name = "security.protocol"
        protocol = settings.get(name, "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise SecuritySettingError(name, f"'{protocol}' is none of {', '.join(PROTOCOLS)}")
        return cls(
            _tls(settings) if protocol.endswith("SSL") else None,
            _sasl(settings) if protocol.startswith("SASL") else None,
        )

    @property
    def user(self) -> str | None:
        return None if self.sasl is None else self.sasl.user

    def encrypted(self, plain: socket.socket, host: str) -> socket.socket:
        """SecurityRefused if the certificate is not that of the broker."""
        if self.tls is None:
            return plain
        port = plain.getpeername()[1]  # wrapping takes the socket over
        try:
            return self.tls.context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            raise tls_refusal(error, host, port) from None

    def authenticate(self, exchange: Exchange) -> None:
        """SecurityRefused if the broker refuses the credentials."""
        if self.sasl is None:
            return
        mechanism, user, _ = self.sasl
        name = mechanism.encode()
        answer = exchange(_head(_SASL_HANDSHAKE) + len(name).to_bytes(2, "big") + name)
        code = int.from_bytes(answer[4:6], "big", signed=True)
        if code == _ILLEGAL_SASL_STATE:
            raise SecurityRefused(_NO_SASL)
        if code != 0:
            known = ", ".join(_texts(answer, 6)) or "nothing"
            raise SecurityRefused(
                f"the broker does not speak {mechanism}, but {known}: sasl.mechanism is wrong"
            )

        def step(message: bytes) -> bytes:
            body = len(message).to_bytes(4, "big") + message
            return _authenticated(exchange(_head(_SASL_AUTHENTICATE) + body), user)

        conversation = self.sasl.conversation()
        token: bytes | None = conversation.first()
        try:
            while token is not None:
                token = conversation.answer(step(token))
        except KafkaError as error:
            raise SecurityRefused(_NOT_BELIEVED + error.message) from None


_NO_SASL: Final = "the broker's listener has no SASL: security.protocol is wrong"
_NOT_BELIEVED: Final = "the broker is not to be believed: "
_ILLEGAL_SASL_STATE: Final = 34


def tls_refusal(error: ssl.SSLError, host: str, port: int) -> SecurityRefused:
    """What a failed handshake means for who set this up."""
    where = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        advice = "ssl.truststore… must hold the certificate of the CA that signed it"
        if "mismatch" in why.lower():
            advice = "use a name that it has; an empty ssl.endpoint.identification.algorithm would trust any name"
        elif "expired" in why:
            advice = "it has to be renewed"
        return SecurityRefused(f"the certificate of the broker at {where} is not trusted: {why}; {advice}")  # fmt: skip
    reason = error.reason or str(error)
    if reason == "WRONG_VERSION_NUMBER" or reason == "RECORD_LAYER_FAILURE":
        return SecurityRefused(
            f"the broker at {where} does not speak TLS there: security.protocol is wrong"
        )
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return SecurityRefused(
            f"the broker at {where} wants a certificate that it trusts: ssl.keystore… names ours ({reason})"
        )
    return SecurityRefused(f"no TLS with the broker at {where}: {reason}")


def _head(key: int) -> bytes:
    return _HANDSHAKE.pack(key, 1, 0, -1)


def _texts(answer: bytes, position: int) -> list[str]:
    """An array of strings of a version without compact ones."""
    count = int.from_bytes(answer[position : position + 4], "big", signed=True)
    position += 4
    found = []
    for _ in range(max(count, 0)):
        size = int.from_bytes(answer[position : position + 2], "big", signed=True)
        found.append(answer[position + 2 : position + 2 + size].decode("utf-8", "replace"))
        position += 2 + size
    return found


def _authenticated(answer: bytes, user: str) -> bytes:
    """SaslAuthenticate v1: correlation id, error, message, bytes, lifetime."""
    code = int.from_bytes(answer[4:6], "big", signed=True)
    size = int.from_bytes(answer[6:8], "big", signed=True)
    position = 8 + max(size, 0)
    if code != 0:
        why = answer[8:position].decode("utf-8", "replace") or f"error {code}"
        raise SecurityRefused(f"the broker does not let user '{user}' in: {why}")
    length = int.from_bytes(answer[position : position + 4], "big", signed=True)
    return answer[position + 4 : position + 4 + max(length, 0)]


def _tls(settings: Mapping[str, str]) -> ClientTls:
    verify = settings.get("ssl.endpoint.identification.algorithm")
    trusted = _store(settings, "ssl.truststore", "certificates")
    own = _store(settings, "ssl.keystore", "certificate.chain")
    return ClientTls(
        truststore=trusted,
        certificate=own,
        key=settings.get("ssl.keystore.key"),
        key_password=settings.get("ssl.key.password"),
        check_host=verify is None or verify.strip() != "",
    )


def _store(settings: Mapping[str, str], store: str, content: str) -> str | None:
    """A store as PEM text, given itself or by its file."""
    given = settings.get(f"{store}.{content}")
    path = settings.get(f"{store}.location")
    if given is None and path is None:
        return None
    kind = settings.get(f"{store}.type", "JKS").strip().upper()
    if kind not in ("PEM", "PKCS12"):
        raise SecuritySettingError(
            f"{store}.type",
            f"'{kind}' cannot be read here, only PEM and PKCS12 can; keytool -importkeystore -srckeystore FILE"
            " -destkeystore FILE.p12 -deststoretype PKCS12 converts a JKS store",
        )
    if given is not None:
        return given
    assert path is not None
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise SecuritySettingError(f"{store}.location", f"{path}: {error.strerror}") from None
    if kind == "PKCS12":
        return _pem_of_pkcs12(data, settings.get(f"{store}.password"), f"{store}.location", path)
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise SecuritySettingError(f"{store}.location", f"{path}: is not PEM text") from None


def _pem_of_pkcs12(data: bytes, password: str | None, name: str, path: str) -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise SecuritySettingError(
            name, f"{path}: cannot be read; is the store's password right?"
        ) from None
    own = [] if found.cert is None else [found.cert]
    parts = [
        each.certificate.public_bytes(Encoding.PEM) for each in (*own, *found.additional_certs)
    ]
    if found.key is not None:
        parts.append(found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts).decode()


def _sasl(settings: Mapping[str, str]) -> Sasl:
    name = "sasl.mechanism"
    mechanism = settings.get(name, "GSSAPI").strip().upper()
    if mechanism not in _MECHANISMS:
        raise SecuritySettingError(
            name, f"'{mechanism}' is not supported, only {', '.join(_MECHANISMS)} are"
        )
    jaas = "sasl.jaas.config"
    try:
        login = parse(settings.get(jaas, ""))
    except JaasError as error:
        raise SecuritySettingError(jaas, str(error)) from None
    if login.username is None or login.password is None:
        missing = "username" if login.username is None else "password"
        raise SecuritySettingError(jaas, f'has no {missing}="…"')
    return Sasl(mechanism, login.username, login.password.reveal())
