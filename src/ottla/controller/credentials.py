"""SCRAM credentials in the metadata (KIP-554): who may log in with which password, without the password.

A client sends the salt and the salted password. The controller derives from them what brokers need to check a login, and
forgets the rest. Nobody can log in with what is stored. With a password that is changed or taken away go the delegation tokens of its
user, and those that were made in the user's name for others: whoever knew the password may have made them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.controller.draft import Draft
from ottla.controller.tokens import tokens_made_by, tokens_of
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.records import (
    MetadataRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.security.principals import user as user_principal
from ottla.security.secrets import Secret
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.security.scram import Credential, Mechanism

SCRAM_SINCE = 11
"""Kafka's 3.5-IV2, the first metadata.version with SCRAM."""
SALT_BYTES = range(8, 129)


class CredentialUpsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"CredentialUpsertion(user={self.user!r}, mechanism={self.mechanism})"


class CredentialDeletion(NamedTuple):
    user: str
    mechanism: int


def alter(
    draft: Draft,
    deletions: Sequence[CredentialDeletion],
    upsertions: Sequence[CredentialUpsertion],
) -> dict[str, Any]:
    """Each user succeeds or fails by himself. Who is named twice fails, whichever the mechanisms: for his first change if that one
    is wrong, as with Kafka."""
    changes: list[CredentialDeletion | CredentialUpsertion] = [*deletions, *upsertions]
    counts = Counter(change.user for change in changes)
    results: dict[str, dict[str, Any]] = {}
    for change in changes:
        if change.user in results:
            continue
        error, message = ErrorCode.NONE, None
        try:
            record = _record(draft, change)
            if counts[change.user] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            draft.add([record, *_tokens_that_end(draft, change)])
        except KafkaError as failure:
            error, message = failure.code, failure.message or None
        results[change.user] = {"user": change.user, "error_code": error, "error_message": message}
        draft.limit()
    return {"results": list(results.values())}


def _tokens_that_end(
    draft: Draft, change: CredentialDeletion | CredentialUpsertion
) -> list[RemoveDelegationTokenRecord]:
    """Kafka leaves them. A user's first password, or one for a second mechanism, ends none."""
    if (change.user, change.mechanism) not in draft.image.scram:
        return []
    who = user_principal(change.user)
    ending = [*tokens_of(draft, who), *tokens_made_by(draft, who)]
    ids = dict.fromkeys(each.token_id for each in ending)
    return [RemoveDelegationTokenRecord(token_id=id) for id in ids]


def _record(draft: Draft, change: CredentialDeletion | CredentialUpsertion) -> MetadataRecord:
    from ottla.security import scram  # only here: it takes the digests with it

    if draft.image.features.get(METADATA_VERSION, 0) < SCRAM_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
        )
    name, number = change.user, change.mechanism
    if not name:
        raise _unacceptable("Username must not be empty")
    if "\0" in name:
        raise _unacceptable("Username must not have a NUL")
    mechanism = scram.BY_NUMBER.get(number)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, CredentialDeletion):
        if (name, number) not in draft.image.scram:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(name=name, mechanism=number)
    if change.iterations < scram.ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if change.iterations > scram.ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    if len(change.salt) not in SALT_BYTES:
        raise _unacceptable(f"The salt must have {SALT_BYTES[0]} to {SALT_BYTES[-1]} bytes")
    if len(change.salted_password) != mechanism.size:
        raise _unacceptable(f"The salted password must have {mechanism.size} bytes")
    credential = scram.credential_of(
        mechanism, change.salted_password, change.salt, change.iterations
    )
    return _stored(name, number, credential)


def _stored(user: str, number: int, credential: Credential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _unacceptable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)


def scram_record(
    mechanism: str, user: str, password: Secret, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """The credential of a user who is there from the first start. Milliseconds of work. ValueError says what is wrong."""
    from ottla.security import scram

    if not password.reveal():
        raise ValueError("the password is empty")
    known = _known(mechanism, iterations)
    salted = scram.salt_password(known, password, salt, iterations)
    return scram_record_of_salted(mechanism, user, salted, salt, iterations)


def scram_record_of_salted(
    mechanism: str, user: str, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """The same from the salted password."""
    from ottla.security import scram

    known = _known(mechanism, iterations)
    if not user or "\0" in user:
        raise ValueError("the name is empty, or has a NUL")
    if len(salt) not in SALT_BYTES:
        raise ValueError(f"the salt must have {SALT_BYTES[0]} to {SALT_BYTES[-1]} bytes")
    if len(salted_password) != known.size:
        raise ValueError(f"the salted password must have {known.size} bytes")
    credential = scram.credential_of(known, salted_password, salt, iterations)
    return _stored(user, known.number, credential)


def _known(mechanism: str, iterations: int) -> Mechanism:
    from ottla.security import scram

    known = scram.MECHANISMS.get(mechanism)
    if known is None:
        raise ValueError(f"'{mechanism}' is none of {', '.join(scram.MECHANISMS)}")
    if not scram.ITERATIONS_MIN <= iterations <= scram.ITERATIONS_MAX:
        raise ValueError(
            f"{iterations} iterations are not from {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX}"
        )
    return known
