"""Our own login at a server: the client's half of SASL, for nodes, commands and Spark.

A conversation gives the first message, and an answer to each of the server's. Who sends them is elsewhere
(`wire.channel`), since a task of Spark has no event loop.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from ottla.security import plain, scram
from ottla.security.login import LoginRefused
from ottla.security.secrets import Secret
from ottla.wire.errors import ErrorCode, KafkaError

PLAIN: Final = "PLAIN"
CLIENT_MECHANISMS: Final = (PLAIN, *scram.MECHANISMS)


class ClientLogin(NamedTuple):
    """As whom we log in, and how."""

    mechanism: str
    user: str
    password: Secret
    by_token: bool = False
    """The user is the id of a delegation token."""

    def begin(self, nonce: str) -> ClientConversation:
        """`nonce`: fresh, printable, without a comma, at least 128 random bits."""
        if self.mechanism == PLAIN:
            return _Plain(self)
        return _Scram(self, nonce)


class ClientConversation(Protocol):
    """One login."""

    mechanism: str

    def first(self) -> bytes: ...

    def answer(self, message: bytes) -> bytes | None:
        """To the server's message; None when the login is over. It may take milliseconds, so call it in a thread.
        KafkaError if the server is not to be believed."""


class _Plain:
    def __init__(self, login: ClientLogin) -> None:
        self.mechanism = login.mechanism
        self._login = login

    def first(self) -> bytes:
        return plain.message(self._login.user, self._login.password)

    def answer(self, message: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, login: ClientLogin, nonce: str) -> None:
        self.mechanism = login.mechanism
        self._client = scram.ScramClient(
            scram.MECHANISMS[login.mechanism],
            login.user,
            login.password,
            nonce,
            by_token=login.by_token,
        )
        self._proved = False

    def first(self) -> bytes:
        return self._client.first()

    def answer(self, message: bytes) -> bytes | None:
        try:
            if not self._proved:
                self._proved = True
                return self._client.final(message)
            self._client.check(message)
            return None
        except LoginRefused as refusal:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refusal)) from None
