"""A principal: who a connection belongs to. It is found once, when the connection is opened, and never changes on it."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """Kafka's KafkaPrincipal. Two principals are the same if type and name are; how the login was done does not count."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def is_by_token(self) -> bool:
        """Whether a delegation token was enough to log in."""
        return False


class TokenPrincipal(Principal):
    """The owner of a delegation token, as whom somebody with the token has logged in. It is equal to the owner."""

    __slots__ = ()

    @property
    def is_by_token(self) -> bool:
        return True


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever did not log in."""
EVERYONE: Final = Principal(USER, "*")
"""In an ACL: every principal, of any type."""


def user(name: str) -> Principal:
    return Principal(USER, name)


def parse_principal(text: str) -> Principal:
    """`User:alice`. ValueError if there is no type or no name."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"'{text}' is not TYPE:NAME, for example User:alice")
    return Principal(kind, name)
