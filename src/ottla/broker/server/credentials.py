"""Whom a node knows: the SCRAM users in its metadata, and decoys for everybody else.

Each question costs the same work, whoever is asked about. Which mechanisms a listener has, and how each of them looks
users up, is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.metadata.records import UserScramCredentialRecord
from ottla.security import plain, scram
from ottla.security.login import Conversation
from ottla.security.sasl import SaslRules
from ottla.security.scram import Credential, Decoys, KnownUser, Mechanism
from ottla.security.secrets import Secret

PLAIN = "PLAIN"

Stored = Mapping[tuple[str, int], UserScramCredentialRecord]
"""By user, and by the number of the mechanism."""


class KnownUsers:
    def __init__(
        self, stored: Callable[[], Stored], decoys: Decoys, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._stored = stored
        self._decoys = decoys
        self._random_bytes = random_bytes
        self._counted: tuple[Stored, dict[int, list[Credential]]] | None = None

    def rules(
        self,
        mechanisms: Iterable[str],
        accounts: Mapping[str, Secret],
        max_reauth_ms: Mapping[str, int],
    ) -> SaslRules:
        """Of one listener. `accounts` are those of PLAIN in its JAAS text."""
        return SaslRules(
            {name: self._conversation(name, accounts) for name in mechanisms}, max_reauth_ms
        )

    def _conversation(
        self, name: str, accounts: Mapping[str, Secret]
    ) -> Callable[[], Conversation]:
        if name == PLAIN:
            return lambda: plain.PlainServer(accounts, self._for_plain)
        mechanism = scram.MECHANISMS[name]

        def lookup(user: str, by_token: bool) -> KnownUser:
            credential, exists = self._credential(mechanism, user)
            # There are no delegation tokens yet, so nobody has one.
            return KnownUser(credential, exists and not by_token, user)

        def begin() -> Conversation:
            nonce = self._random_bytes(scram.NONCE_BYTES).hex()
            return scram.ScramServer(mechanism, lookup, nonce)

        return begin

    def _for_plain(self, user: str) -> tuple[Mechanism, Credential, bool]:
        """The stronger mechanism, if the user has both."""
        stored = self._stored()
        has_512 = (user, scram.SHA_512.number) in stored
        has_256 = (user, scram.SHA_256.number) in stored
        mechanism = scram.SHA_256 if has_256 and not has_512 else scram.SHA_512
        return mechanism, *self._credential(mechanism, user)

    def _credential(self, mechanism: Mechanism, user: str) -> tuple[Credential, bool]:
        stored = self._stored()
        decoy = self._decoys.credential(mechanism, user, self._all(stored, mechanism))
        record = stored.get((user, mechanism.number))
        if record is None:
            return decoy, False
        return _credential(record), True

    def _all(self, stored: Stored, mechanism: Mechanism) -> list[Credential]:
        """Counted once for each change of the metadata."""
        if self._counted is None or self._counted[0] is not stored:
            found: dict[int, list[Credential]] = {}
            for (_, number), record in stored.items():
                found.setdefault(number, []).append(_credential(record))
            self._counted = stored, found
        return self._counted[1].get(mechanism.number, [])


def _credential(record: UserScramCredentialRecord) -> Credential:
    return Credential(record.salt, record.stored_key, record.server_key, record.iterations)
