"""Delegation tokens (KIP-48, KIP-373): what a user gives to a job, so that it can log in as this user for a while.

The metadata has a token's id, its owner and its times, and nothing secret. The password is made of the id and the one
secret that all nodes have in their settings. So each node makes it, and the SCRAM credential, for itself.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.security.principals import ANONYMOUS, Principal, parse_principal
from ottla.security.secrets import Secret

if TYPE_CHECKING:
    from ottla.security.scram import Credential, Mechanism

TOKEN: Final = 0
"""In place of the number of a SCRAM mechanism, where it is said on what a session rests."""
REMEMBERED_MAX: Final = 10_000


def may_ask_about_tokens(principal: Principal, protocol: str | None) -> bool:
    """Nobody gets tokens who did not prove to be somebody, and no token makes further ones. `protocol` is the connection's;
    None for a request that a broker passes on, which has looked at that."""
    if principal.is_by_token or protocol == "PLAINTEXT":
        return False
    return protocol != "SSL" or principal != ANONYMOUS


class Token(Protocol):
    """What the metadata has of one. Times are wall-clock milliseconds."""

    @property
    def token_id(self) -> str: ...

    @property
    def owner(self) -> str: ...

    @property
    def requester(self) -> str: ...

    @property
    def renewers(self) -> tuple[str, ...]: ...

    @property
    def issue_timestamp(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def expiration_timestamp(self) -> int: ...


def ends_ms(token: Token) -> int:
    return min(token.expiration_timestamp, token.max_timestamp)


def is_over(token: Token, wall_ms: int) -> bool:
    return ends_ms(token) <= wall_ms


def may_renew(token: Token, principal: Principal) -> bool:
    """Its owner and its renewers. Whoever made it for somebody else is none of them."""
    return str(principal) in (token.owner, *token.renewers)


def described(token: Token, keys: TokenKeys) -> dict[str, Any]:
    """As answers have it."""
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiration_timestamp,
        "max_timestamp": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": keys.hmac(token.token_id),
    }


class TokenKeys:
    """What follows from the cluster's secret. Tokens that were made with the previous secret count, too, while that is given:
    who has one logs in with the password that it had, or with the one that it has now."""

    def __init__(self, secret: Secret, previous: Secret | None = None) -> None:
        self._secret = secret.reveal().encode()
        self._secrets = [self._secret]
        if previous is not None:
            self._secrets.append(previous.reveal().encode())
        self.hmac = lru_cache(REMEMBERED_MAX)(self._hmac)
        """Of a token's id."""

    def _hmac(self, token_id: str) -> bytes:
        return _hmac(self._secret, token_id)

    def password(self, token_id: str) -> Secret:
        # Not out of those that are remembered: strangers name tokens that do not exist, and would fill that.
        return _password(self._hmac(token_id))

    def find(self, hmac: bytes, token_ids: Iterable[str]) -> str | None:
        """The token that has this HMAC."""
        from hmac import compare_digest

        ids = list(token_ids)
        for each in ids:
            if compare_digest(self.hmac(each), hmac):
                return each
        for secret in self._secrets[1:]:
            for each in ids:
                if compare_digest(_hmac(secret, each), hmac):
                    return each
        return None

    def salt(self, mechanism: Mechanism, token_id: str) -> bytes:
        """The same on every node, so it comes from the secret, too. It is told before anybody has shown which password he
        knows, so it is one for all of them."""
        from hmac import digest

        from ottla.security import scram

        seed = f"salt\0{mechanism.name}\0{token_id}".encode()
        return digest(self._secret, seed, "sha512")[: scram.SALT_BYTES]

    def credentials(self, mechanism: Mechanism, token_id: str) -> tuple[Credential, ...]:
        """The one of now, perhaps the previous one. Milliseconds of work. They are not remembered: the time of a login would
        tell which tokens were used before."""
        from ottla.security import scram

        salt = self.salt(mechanism, token_id)
        iterations = scram.ITERATIONS_MIN
        passwords = [_password(_hmac(secret, token_id)) for secret in self._secrets]
        return tuple(
            scram.credential_of(
                mechanism, scram.salt_password(mechanism, each, salt, iterations), salt, iterations
            )
            for each in passwords
        )


def _hmac(secret: bytes, token_id: str) -> bytes:
    from hmac import digest

    return digest(secret, token_id.encode(), "sha512")


def _password(hmac: bytes) -> Secret:
    return Secret(base64.b64encode(hmac).decode())


class TokenRules(NamedTuple):
    """What the controller's settings say about tokens."""

    keys: TokenKeys
    max_lifetime_ms: int
    expiry_ms: int
    """How long a token counts before it must be renewed."""
