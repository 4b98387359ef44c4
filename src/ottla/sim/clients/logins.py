"""How simulated clients log in: their own half of SASL, so that a bug of the product's clients cannot hide one of its servers.

Hashing a password 4096 times takes milliseconds, so it is done once for each password and salt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ottla.sim.cluster.security import ADMIN, ADMIN_PASSWORD
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel, LoginConversation
from ottla.wire.errors import ErrorCode, KafkaError

PLAIN = "PLAIN"
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's, in requests and records."""
ITERATIONS = 4096
NONCE_CHARS = 32
LOGIN_S_MAX = 3.0


class SimUser(NamedTuple):
    name: str
    password: str
    mechanism: str

    def conversation(self, chance: random.Random) -> LoginConversation:
        if self.mechanism == PLAIN:
            return PlainConversation(self)
        return ScramConversation(self, f"{chance.getrandbits(4 * NONCE_CHARS):0{NONCE_CHARS}x}")


ADMINISTRATOR = SimUser(ADMIN, ADMIN_PASSWORD, PLAIN)


@lru_cache(maxsize=4096)
def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def stored_key(mechanism: str, salted: bytes) -> bytes:
    """What a server keeps to recognise the password."""
    digest = DIGESTS[mechanism]
    return hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()


class PlainConversation:
    def __init__(self, user: SimUser, acting_as: str = "") -> None:
        self.mechanism = PLAIN
        self._user = user
        self._acting_as = acting_as

    def first(self) -> bytes:
        return f"{self._acting_as}\0{self._user.name}\0{self._user.password}".encode()

    def answer(self, message: bytes) -> bytes | None:
        return None


class ScramConversation:
    """RFC 5802. Subclasses do a part of it wrong (`clients.intruder`)."""

    def __init__(self, user: SimUser, nonce: str) -> None:
        self.mechanism = user.mechanism
        self._user = user
        self.nonce = nonce
        self._expected: bytes | None = None

    def header(self) -> str:
        return "n,,"

    def _bare(self) -> str:
        return f"n={self._user.name},r={self.nonce}"

    def first(self) -> bytes:
        return (self.header() + self._bare()).encode()

    def returned_nonce(self, nonce: str) -> str:
        return nonce

    def proof(self, right: bytes) -> bytes:
        return right

    def answer(self, message: bytes) -> bytes | None:
        if self._expected is not None:
            if message != self._expected:
                raise KafkaError(
                    ErrorCode.SASL_AUTHENTICATION_FAILED, "the server does not know the password"
                )
            return None
        nonce, salt, count = (part[2:] for part in message.decode().split(",")[:3])
        if not nonce.startswith(self.nonce):
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the nonce is not ours")
        digest = DIGESTS[self.mechanism]
        salted = salted_password(
            self.mechanism, self._user.password, base64.b64decode(salt), int(count)
        )
        binding = base64.b64encode(self.header().encode()).decode()
        unproved = f"c={binding},r={self.returned_nonce(nonce)}"
        said = f"{self._bare()},{message.decode()},{unproved}".encode()
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), said, digest)
        right = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        server = hmac.digest(hmac.digest(salted, b"Server Key", digest), said, digest)
        self._expected = b"v=" + base64.b64encode(server)
        return f"{unproved},p={base64.b64encode(self.proof(right)).decode()}".encode()


async def log_in(channel: Channel, begin: Callable[[], LoginConversation]) -> None:
    """And again before the session ends. ConnectionError if the server refuses us."""
    try:
        await channel.log_in(begin, timeout_s=LOGIN_S_MAX)
    except KafkaError as error:
        channel.abort()
        raise ConnectionError(f"not logged in: {error}") from error


async def log_in_once(channel: Channel, conversation: LoginConversation) -> int:
    """How many milliseconds the session lasts; 0 if it has no end. KafkaError if the server refuses us."""
    answer = await channel.request(
        ApiKey.SASL_HANDSHAKE,
        {"mechanism": conversation.mechanism},
        version=1,
        timeout_s=LOGIN_S_MAX,
    )
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(int(answer.error_code)), "the handshake was refused")
    token: bytes | None = conversation.first()
    while token is not None:
        answer = await channel.request(
            ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token}, version=1, timeout_s=LOGIN_S_MAX
        )
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(int(answer.error_code)), answer.error_message or "")
        token = conversation.answer(bytes(answer.auth_bytes))
    return int(answer.session_lifetime.total_seconds() * 1000)
