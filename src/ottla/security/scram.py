"""SCRAM, both halves (RFC 5802, RFC 7677): each side shows that it knows the password, and neither sends it.

What is signed are the bytes that were sent and received, never text that was put together again from its parts. The
server compares the whole nonce (CVE-2024-56128), the text of the channel binding, the authorization id (CVE-2017-12610) and
the length of the proof. A user who does not exist gets the same messages as one who does: see `Decoys`.

The module imports hashlib, so a node imports it only where SASL is configured.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.security.login import (
    Accepted,
    Challenge,
    LoginRefused,
    Work,
    check_length,
    is_too_long,
)
from ottla.security.secrets import Secret
from ottla.security.tokens import TOKEN

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Of a credential that is stored: Kafka's bounds."""
CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""A server that asks a client for more wants its processor time (CVE-2026-10143)."""
SALT_BYTES: Final = 24
NONCE_BYTES: Final = 24
"""192 random bits."""
NONCE_MAX: Final = 256
"""Of a client. Kafka's has 26 characters, librdkafka's 32."""
EXTENSIONS_MAX: Final = 8
"""Kafka's clients send one at most: `tokenauth`."""


class Mechanism(NamedTuple):
    name: str
    number: int
    """Kafka's, in records and in the APIs of credentials."""
    digest: str
    size: int
    """Bytes of a key."""

    def mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.digest)

    def hash(self, text: bytes) -> bytes:
        return hashlib.new(self.digest, text).digest()


SHA_256: Final = Mechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512: Final = Mechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS: Final = {each.name: each for each in (SHA_256, SHA_512)}
BY_NUMBER: Final = {each.number: each for each in (SHA_256, SHA_512)}


class Credential:
    """What a server stores of a password. Its repr shows none of it."""

    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, salt: bytes, stored_key: bytes, server_key: bytes, iterations: int) -> None:
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salt_password(mechanism: Mechanism, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Milliseconds of work. Kafka's clients do not normalise passwords, so this does not either."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.reveal().encode(), salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """From the salted password, which is forgotten afterwards."""
    return Credential(
        salt,
        stored_key=mechanism.hash(mechanism.mac(salted, b"Client Key")),
        server_key=mechanism.mac(salted, b"Server Key"),
        iterations=iterations,
    )


def knows_password(mechanism: Mechanism, credential: Credential, password: Secret) -> bool:
    """Milliseconds of work."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


# The text of messages

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    if re.search("=(?!2C|3D)", text):
        raise LoginRefused("the user name has an '=' that is neither =2C nor =3D")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the message is not UTF-8") from None


def _unbase64(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if _base64(data) != text:  # there is one text for each value, and no other is taken
        raise LoginRefused(f"the {what} is not base64")
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class ClientFirst(NamedTuple):
    """`n,[a=authzid],n=user,r=nonce[,extension=value]…`"""

    gs2: str
    bare: str
    """What both sides sign, as it came."""
    authzid: str
    name: str
    nonce: str
    by_token: bool
    """The extension `tokenauth=true`. Others are ignored."""

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        binding, comma, rest = _decoded(message).partition(",")
        authzid, second, bare = rest.partition(",")
        if not comma or not second:
            raise LoginRefused("the first message has no GS2 header")
        if binding != "n":
            # y: the client could, but thinks that the server could not; p: it does.
            raise LoginRefused("channel binding is not supported")
        if authzid:
            if not authzid.startswith("a="):
                raise LoginRefused("the GS2 header has no authorization id at its place")
            authzid = unescaped(authzid[2:])
        parts = bare.split(",", EXTENSIONS_MAX + 2)
        if parts[0].startswith("m="):
            raise LoginRefused("the first message has a mandatory extension")
        if len(parts) < 2 or parts[0][:2] != "n=" or parts[1][:2] != "r=":
            raise LoginRefused("the first message has no user or no nonce")
        name, nonce = unescaped(parts[0][2:]), parts[1][2:]
        if is_too_long(name):
            raise LoginRefused("the user name is too long")
        if len(nonce) > NONCE_MAX or len(parts) > EXTENSIONS_MAX + 2:
            raise LoginRefused("the nonce is too long, or there are too many extensions")
        if not name or not _NONCE.fullmatch(nonce):
            raise LoginRefused("the user or the nonce is empty, or not printable")
        if "\0" in name:
            raise LoginRefused("the user name has a NUL")
        extensions: dict[str, str] = {}
        for part in parts[2:]:
            key, equals, value = part.partition("=")
            if not equals or not key.isalpha() or key in extensions:
                raise LoginRefused("the first message has an extension that cannot be read")
            extensions[key] = value
        gs2 = f"{binding},{rest[: len(rest) - len(bare)]}"
        return cls(gs2, bare, authzid, name, nonce, extensions.get("tokenauth") == "true")


class ServerFirst(NamedTuple):
    """`r=nonce,s=salt,i=iterations`"""

    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, message: bytes) -> ServerFirst:
        parts = _decoded(message).split(",")
        if len(parts) < 3 or [part[:2] for part in parts[:3]] != ["r=", "s=", "i="]:
            raise LoginRefused("the server's first message has no nonce, salt or iterations")
        salt = _unbase64(parts[1][2:], "salt")
        digits = parts[2][2:]
        if not salt or not re.fullmatch("[1-9][0-9]{0,8}", digits):
            raise LoginRefused("the server's first message has no salt, or no number of iterations")
        return cls(parts[0][2:], salt, int(digits))


class ClientFinal(NamedTuple):
    """`c=binding,r=nonce[,extensions],p=proof`"""

    unproved: str
    """What both sides sign of it, as it came."""
    binding: bytes
    nonce: str
    proof: bytes

    @classmethod
    def parse(cls, message: bytes) -> ClientFinal:
        unproved, comma, proof = _decoded(message).rpartition(",p=")
        parts = unproved.split(",")
        if not comma or len(parts) < 2 or parts[0][:2] != "c=" or parts[1][:2] != "r=":
            raise LoginRefused("the final message has no binding, nonce or proof")
        binding = _unbase64(parts[0][2:], "channel binding")
        return cls(unproved, binding, parts[1][2:], _unbase64(proof, "proof"))


# Users who do not exist


class CredentialShape(NamedTuple):
    """What everybody sees of a credential who asks for it."""

    iterations: int = ITERATIONS_MIN
    salt_bytes: int = SALT_BYTES


def usual_shape(stored: Iterable[Credential]) -> CredentialShape:
    """That of most; of equally many the greatest, so that all brokers agree."""
    shapes = Counter((each.iterations, len(each.salt)) for each in stored)
    found = max(shapes.items(), key=lambda each: (each[1], each[0]), default=None)
    return CredentialShape() if found is None else CredentialShape(*found[0])


class Decoys:
    """Credentials of users who do not exist: nobody can tell them from others by asking. A user's salt is the same each
    time, on every broker with the same secret."""

    def __init__(self, secret: Secret, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret.reveal().encode()
        self._random_bytes = random_bytes

    def credential(self, mechanism: Mechanism, name: str, shape: CredentialShape) -> Credential:
        seed = f"{mechanism.name}\0{name}".encode()
        salt = b"".join(
            hmac.digest(self._secret, seed + bytes([block]), "sha512")
            for block in range(-(-shape.salt_bytes // 64))
        )
        return Credential(
            salt[: shape.salt_bytes],
            self._random_bytes(mechanism.size),
            self._random_bytes(mechanism.size),
            shape.iterations,
        )


# The server's half


class KnownUser(NamedTuple):
    """What a server knows about a name that logs in."""

    credential: Credential
    exists: bool
    """False: it is a decoy."""
    user: str
    """Whose rights the login gives: the name itself, or the owner of a token."""
    expires_ms: int | None = None
    by_token: bool = False
    derive: Callable[[], Sequence[Credential]] | None = None
    """Where nothing is stored, as for tokens: makes the whole credentials that count, of which only salt and iterations are
    known so far. Milliseconds of work."""


Lookup = Callable[[str, bool], KnownUser]
"""By name, and whether it is to be the id of a delegation token (`tokenauth=true`). Never fails: unknown names get a decoy."""


class ScramServer:
    """One login. `nonce` is fresh and printable, and has at least 128 random bits."""

    def __init__(self, mechanism: Mechanism, lookup: Lookup, nonce: str) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self.claimed: str | None = None
        self._first: ClientFirst | None = None
        self._found: KnownUser | None = None
        self._challenge = ""
        self._over = False

    def evaluate(self, message: bytes) -> Challenge | Accepted | Work:
        if self._over:
            raise LoginRefused("the login is over")
        self._over = True  # unless this message opens the next step
        check_length(message)
        if self._first is None:
            answer = self._begin(ClientFirst.parse(message))
            self._over = False
            return answer
        return self._finish(ClientFinal.parse(message))

    def _begin(self, first: ClientFirst) -> Challenge:
        self.claimed = first.name
        if first.authzid not in ("", first.name):
            raise LoginRefused("the authorization id is another user")
        found = self._lookup(first.name, first.by_token)
        if found.credential.iterations < ITERATIONS_MIN and found.exists:
            raise LoginRefused(f"the stored credential has fewer than {ITERATIONS_MIN} iterations")
        self._first, self._found = first, found
        self._nonce = first.nonce + self._nonce
        credential = found.credential
        self._challenge = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        return Challenge(self._challenge.encode())

    def _finish(self, final: ClientFinal) -> Accepted | Work:
        assert self._first is not None and self._found is not None
        mechanism, found, first = self._mechanism, self._found, self._first
        # librdkafka until the end of 2024 (and with it kcat of Debian 12) puts its own part in front once more. That is compared as a
        # whole, too, so nothing is left to choose.
        nonces = (self._nonce, first.nonce + self._nonce)
        if not any(hmac.compare_digest(final.nonce.encode(), each.encode()) for each in nonces):
            raise LoginRefused("the nonce is not the one of this login")
        if final.binding != first.gs2.encode():
            raise LoginRefused("the channel binding is not that of the first message")
        if len(final.proof) != mechanism.size:
            raise LoginRefused("the proof has a wrong length")
        said = f"{first.bare},{self._challenge},{final.unproved}".encode()
        derive = found.derive
        if derive is None:
            return self._proved(found, [found.credential], said, final.proof)

        def run() -> Accepted | None:
            try:
                return self._proved(found, derive(), said, final.proof)
            except LoginRefused:
                return None

        return Work(run)

    def _proved(
        self, found: KnownUser, credentials: Sequence[Credential], said: bytes, proof: bytes
    ) -> Accepted:
        """One of the credentials is enough."""
        assert self.claimed is not None, "the first message named somebody"
        mechanism = self._mechanism
        credential, is_right = credentials[0], False
        for each in credentials:
            client_key = _xor(proof, mechanism.mac(each.stored_key, said))
            if hmac.compare_digest(mechanism.hash(client_key), each.stored_key):
                credential, is_right = each, True
        verifier = _base64(mechanism.mac(credential.server_key, said))
        if not is_right or not found.exists:
            raise LoginRefused("the proof is wrong" if found.exists else "there is no such user")
        return Accepted(
            found.user,
            f"v={verifier}".encode(),
            rests_on=(self.claimed, TOKEN if found.by_token else mechanism.number),
            expires_ms=found.expires_ms,
            by_token=found.by_token,
        )


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# The client's half


class ScramClient:
    """One login of ours at a server, which must show that it knows the password, too. `nonce` as above.

    `first`, then `final` with the server's answer (milliseconds of work: call it in a thread), then `check` with the next.
    """

    def __init__(self, mechanism: Mechanism, user: str, password: Secret, nonce: str, *, by_token: bool = False) -> None:  # fmt: skip
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = ",tokenauth=true" if by_token else ""
        self._bare = f"n={escaped(user)},r={nonce}{extension}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """LoginRefused if the challenge is not one that a careful client answers."""
        told = ServerFirst.parse(challenge)
        if not told.nonce.startswith(self._nonce) or told.nonce == self._nonce:
            raise LoginRefused("the server's nonce does not begin with ours, or adds nothing to it")
        if not ITERATIONS_MIN <= told.iterations <= CLIENT_ITERATIONS_MAX:
            raise LoginRefused(
                f"the server asks for {told.iterations} iterations; from {ITERATIONS_MIN} to"
                f" {CLIENT_ITERATIONS_MAX} are accepted"
            )
        mechanism = self._mechanism
        salted = salt_password(mechanism, self._password, told.salt, told.iterations)
        client_key = mechanism.mac(salted, b"Client Key")
        unproved = f"c=biws,r={told.nonce}"
        said = b"".join((self._bare.encode(), b",", challenge, b",", unproved.encode()))
        signature = mechanism.mac(mechanism.hash(client_key), said)
        self._expected = mechanism.mac(mechanism.mac(salted, b"Server Key"), said)
        return f"{unproved},p={_base64(_xor(client_key, signature))}".encode()

    def check(self, answer: bytes) -> None:
        """LoginRefused if the server does not know the password itself."""
        text = _decoded(answer).split(",")[0]
        if text.startswith("e="):
            raise LoginRefused(f"the server says: {text[2:]}")
        if (
            self._expected is None
            or not text.startswith("v=")
            or not hmac.compare_digest(_unbase64(text[2:], "server's signature"), self._expected)
        ):
            raise LoginRefused("the server does not know the password itself")
