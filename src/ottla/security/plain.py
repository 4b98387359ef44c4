"""PLAIN (RFC 4616): the password itself, so only where the connection is encrypted.

Accounts are those of the listener's JAAS text, else the cluster's SCRAM users. Whoever is refused has cost the server
the same work, whether the user exists or not.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from ottla.security import scram
from ottla.security.login import Accepted, LoginRefused, Work, check_length, is_too_long
from ottla.security.secrets import Secret

Lookup = Callable[[str], tuple[scram.Mechanism, scram.Credential, bool]]
"""By user: the stored credential that a password is compared with, and False if it is only a decoy."""


def parse(message: bytes) -> tuple[str, Secret]:
    """`[authzid] NUL user NUL password`. LoginRefused if it is anything else."""
    check_length(message)
    try:
        parts = message.decode().split("\0", 3)
    except UnicodeDecodeError:
        raise LoginRefused("the message is not UTF-8") from None
    if len(parts) != 3:
        raise LoginRefused("the message does not have two NULs")
    authzid, user, password = parts
    if not user or not password:
        raise LoginRefused("the user or the password is empty")
    if is_too_long(user):
        raise LoginRefused("the user name is too long")
    if authzid not in ("", user):
        raise LoginRefused("the authorization id is another user")
    return user, Secret(password)


def message(user: str, password: Secret) -> bytes:
    return f"\0{user}\0{password.reveal()}".encode()


_NO_ACCOUNT: Final = Secret("")


class PlainServer:
    """One login. `accounts` are the `user_NAME` options of the listener's JAAS text."""

    def __init__(self, accounts: Mapping[str, Secret], lookup: Lookup) -> None:
        self._accounts = accounts
        self._lookup = lookup
        self.claimed: str | None = None

    def evaluate(self, message: bytes) -> Accepted | Work:
        user, password = parse(message)
        self.claimed = user
        account = self._accounts.get(user)
        # Compared for everybody, so that the time does not tell who has an account.
        is_right = _are_equal(_NO_ACCOUNT if account is None else account, password)
        if is_right and account is not None:
            return Accepted(user)
        mechanism, credential, exists = self._lookup(user)

        def run() -> Accepted | None:
            is_right = scram.knows_password(mechanism, credential, password)
            if not is_right or not exists or account is not None:
                return None  # an account of the JAAS text goes before a SCRAM user of the same name
            return Accepted(user, rests_on=(user, mechanism.number))

        return Work(run)


def _are_equal(one: Secret, other: Secret) -> bool:
    """By digests, since texts of different lengths are compared in different times."""
    digests = [hashlib.sha256(each.reveal().encode()).digest() for each in (one, other)]
    return hmac.compare_digest(*digests)
