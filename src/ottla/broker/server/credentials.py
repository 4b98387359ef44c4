"""Whom a node knows: the SCRAM users in its metadata, and decoys for everybody else.

Each question costs the same work, whoever is asked about. Which mechanisms a listener has, and how each of them looks
users up, is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from ottla.metadata.records import DelegationTokenRecord, UserScramCredentialRecord
from ottla.security import plain, scram
from ottla.security.login import Conversation
from ottla.security.principals import USER, parse_principal
from ottla.security.sasl import SaslRules
from ottla.security.scram import Credential, CredentialShape, Decoys, KnownUser, Mechanism
from ottla.security.secrets import Secret
from ottla.security.tokens import TokenKeys, ends_ms

PLAIN = "PLAIN"

Stored = Mapping[tuple[str, int], UserScramCredentialRecord]
"""By user, and by the number of the mechanism."""
StoredTokens = Mapping[str, DelegationTokenRecord]


_NOBODY = UserScramCredentialRecord(
    name="", mechanism=0, salt=b"", stored_key=b"", server_key=b"", iterations=0
)


class _Usual(NamedTuple):
    """What the credentials of one mechanism look like."""

    shape: CredentialShape
    users: int


class KnownUsers:
    def __init__(
        self,
        stored: Callable[[], Stored],
        decoys: Decoys,
        random_bytes: Callable[[int], bytes],
        tokens: Callable[[], StoredTokens] = dict,
        token_keys: TokenKeys | None = None,
    ) -> None:
        """Without `token_keys` nobody logs in by a delegation token."""
        self._tokens = tokens
        self._token_keys = token_keys
        self._stored = stored
        self._decoys = decoys
        self._random_bytes = random_bytes
        self._counted: tuple[Stored, Mapping[int, _Usual]] | None = None

    def rules(
        self,
        mechanisms: Iterable[str],
        accounts: Mapping[str, Secret],
        max_reauth_ms: Mapping[str, int],
        others: Mapping[str, Callable[[], Conversation]] = MappingProxyType({}),
    ) -> SaslRules:
        """Of one listener. `accounts` are those of PLAIN in its JAAS text, `others` are mechanisms that need no users."""
        return SaslRules(
            {name: others.get(name) or self._conversation(name, accounts) for name in mechanisms},
            max_reauth_ms,
        )

    def _conversation(
        self, name: str, accounts: Mapping[str, Secret]
    ) -> Callable[[], Conversation]:
        if name == PLAIN:
            return lambda: plain.PlainServer(accounts, self._for_plain)
        mechanism = scram.MECHANISMS[name]

        def lookup(user: str, by_token: bool) -> KnownUser:
            if not by_token:
                return KnownUser(*self._credential(mechanism, user), user)
            return self._by_token(mechanism, user)

        def begin() -> Conversation:
            nonce = self._random_bytes(scram.NONCE_BYTES).hex()
            return scram.ScramServer(mechanism, lookup, nonce)

        return begin

    def _by_token(self, mechanism: Mechanism, token_id: str) -> KnownUser:
        """The owner of this token. Whether it is over is looked at when the login succeeds. A token that does not exist has the
        same salt as if it did, and costs the same work."""
        keys = self._token_keys
        if keys is None:
            # Tokens have a shape of their own, whatever the users' is. The NUL, which no name has, keeps the salt apart from
            # that of a user of this name: two that are alike would say that there is no such token.
            decoy = self._decoys.credential(mechanism, f"token\0{token_id}", CredentialShape())
            return KnownUser(decoy, False, token_id)
        shown = Credential(keys.salt(mechanism, token_id), b"", b"", scram.ITERATIONS_MIN)
        derive = partial(keys.credentials, mechanism, token_id)
        token = self._tokens().get(token_id)
        owner = None if token is None else parse_principal(token.owner)
        if token is None or owner is None or owner.type != USER:
            return KnownUser(shown, False, token_id, derive=derive)
        return KnownUser(shown, True, owner.name, ends_ms(token), by_token=True, derive=derive)

    def _for_plain(self, user: str) -> tuple[Mechanism, Credential, bool]:
        """By the stronger mechanism, if the user has both. By the one that most users have, if there is no such user."""
        stored = self._stored()
        strong, weak = scram.SHA_512, scram.SHA_256
        usual = self._usual(stored)
        mechanism = strong if usual[strong.number].users >= usual[weak.number].users else weak
        for each in (weak, strong):
            if (user, each.number) in stored:
                mechanism = each
        return mechanism, *self._credential(mechanism, user)

    def _credential(self, mechanism: Mechanism, user: str) -> tuple[Credential, bool]:
        """Both are made for every question, so that the time says nothing."""
        stored = self._stored()
        shape = self._usual(stored)[mechanism.number].shape
        decoy = self._decoys.credential(mechanism, user, shape)
        record = stored.get((user, mechanism.number))
        real = _credential(_NOBODY if record is None else record)
        return (decoy, False) if record is None else (real, True)

    def _usual(self, stored: Stored) -> Mapping[int, _Usual]:
        """By the number of the mechanism. Counted once for each change of the metadata."""
        if self._counted is None or self._counted[0] is not stored:
            found: dict[int, list[Credential]] = {number: [] for number in scram.BY_NUMBER}
            for (_, number), record in stored.items():
                found.setdefault(number, []).append(_credential(record))
            usual = {
                number: _Usual(scram.usual_shape(each), len(each)) for number, each in found.items()
            }
            self._counted = stored, usual
        return self._counted[1]


def _credential(record: UserScramCredentialRecord) -> Credential:
    return Credential(record.salt, record.stored_key, record.server_key, record.iterations)
