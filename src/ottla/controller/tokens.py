"""Delegation tokens in the metadata (KIP-48, KIP-373): who made which for whom, until when, and who may renew it.

Times are wall-clock milliseconds, since a token outlives every node. `security.tokens` makes their passwords; the records
have none.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from ottla.controller.draft import Draft
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.security.principals import USER, Principal
from ottla.security.tokens import TokenRules, described, is_over, may_renew
from ottla.wire.errors import ErrorCode, KafkaError

TOKENS_SINCE: Final = 14
"""Kafka's 3.6-IV2, the first metadata.version with delegation tokens."""
SWEPT_AT_ONCE: Final = 1_000
RENEWERS_MAX: Final = 100
NAMES_BYTES_MAX: Final = 10_000
"""Of the owner and all renewers of a token. Every node keeps them until it is over."""
TOKENS_PER_OWNER_MAX: Final = 100
"""That count. Who has logged in may make some for himself without any right."""
TOKENS_PER_REQUESTER_MAX: Final = 5_000
"""With those that are over and not swept away yet. All of them end with the requester's password, in one batch, and a batch has a
limit: nobody may make so many tokens that his password cannot be taken away."""
LATEST_MS: Final = 2**63 - 1


class NewToken(NamedTuple):
    requester: Principal
    owner: Principal
    renewers: Sequence[Principal]
    max_lifetime_ms: int
    """Negative or 0: as long as the settings allow."""


def create(draft: Draft, wanted: NewToken, random: Random, wall_ms: int) -> dict[str, Any]:
    rules = _rules(draft)
    principals = (wanted.owner, *wanted.renewers)
    # A login by token is always one of a user: a token of something else would be a user's of the same name.
    if any(principal.type != USER or not principal.name for principal in principals):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Owners and renewers are users")
    if len(wanted.renewers) > RENEWERS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {RENEWERS_MAX} renewers")
    if sum(len(principal.name.encode()) for principal in principals) > NAMES_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The names of the renewers are too long")
    own = [each for each in tokens_of(draft, wanted.owner) if not is_over(each, wall_ms)]
    if len(own) >= TOKENS_PER_OWNER_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The owner has {TOKENS_PER_OWNER_MAX} tokens; expire one that is not needed",
        )
    if len(tokens_made_by(draft, wanted.requester)) >= TOKENS_PER_REQUESTER_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The requester has made {TOKENS_PER_REQUESTER_MAX} tokens that are not removed yet",
        )
    lifetime_ms = rules.max_lifetime_ms
    if wanted.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, wanted.max_lifetime_ms)
    max_ms = _later(wall_ms, lifetime_ms)
    record = DelegationTokenRecord(
        owner=str(wanted.owner),
        requester=str(wanted.requester),
        renewers=tuple(str(renewer) for renewer in wanted.renewers),
        issue_timestamp=wall_ms,
        max_timestamp=max_ms,
        expiration_timestamp=min(max_ms, _later(wall_ms, rules.expiry_ms)),
        token_id=_new_id(random),
    )
    draft.add([record])
    return {"error_code": ErrorCode.NONE, **described(record, rules.keys)}


def renew(
    draft: Draft, requester: Principal, hmac: bytes, period_ms: int, wall_ms: int
) -> dict[str, Any]:
    rules = _rules(draft)
    token = _found(draft, rules, hmac)
    _check_not_over(token, wall_ms)
    _check_renewer(token, requester)
    period_ms = min(rules.expiry_ms, period_ms) if period_ms > 0 else rules.expiry_ms
    return _ending(draft, token, _later(wall_ms, period_ms))


def expire(
    draft: Draft, requester: Principal, hmac: bytes, period_ms: int, wall_ms: int
) -> dict[str, Any]:
    rules = _rules(draft)
    token = _found(draft, rules, hmac)
    _check_renewer(token, requester)
    if period_ms < 0:
        draft.add([RemoveDelegationTokenRecord(token_id=token.token_id)])
        return {"error_code": ErrorCode.NONE, "expiry_timestamp": wall_ms}
    _check_not_over(token, wall_ms)
    return _ending(draft, token, _later(wall_ms, period_ms))


def sweep(draft: Draft, wall_ms: int) -> dict[str, Any]:
    """Remove tokens that are over. If there are very many, some wait for the next time: they count no longer anyway."""
    over = [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for _, token in sorted(draft.image.delegation_tokens.items())
        if is_over(token, wall_ms)
    ]
    draft.add(over[:SWEPT_AT_ONCE])
    return {}


def tokens_of(draft: Draft, owner: Principal) -> list[DelegationTokenRecord]:
    name = str(owner)
    return [each for each in draft.image.delegation_tokens.values() if each.owner == name]


def tokens_made_by(draft: Draft, requester: Principal) -> list[DelegationTokenRecord]:
    """Also for others."""
    name = str(requester)
    return [each for each in draft.image.delegation_tokens.values() if each.requester == name]


def _rules(draft: Draft) -> TokenRules:
    if draft.config.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if draft.image.features.get(METADATA_VERSION, 0) < TOKENS_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return draft.config.tokens


def _found(draft: Draft, rules: TokenRules, hmac: bytes) -> DelegationTokenRecord:
    tokens = draft.image.delegation_tokens
    found = rules.keys.find(hmac, tokens)
    if found is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return tokens[found]


def _check_renewer(token: DelegationTokenRecord, requester: Principal) -> None:
    if not may_renew(token, requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_not_over(token: DelegationTokenRecord, wall_ms: int) -> None:
    if is_over(token, wall_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _ending(draft: Draft, token: DelegationTokenRecord, at_ms: int) -> dict[str, Any]:
    """Never later than at first allowed."""
    ends_ms = min(token.max_timestamp, at_ms)
    draft.add([replace(token, expiration_timestamp=ends_ms)])
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": ends_ms}


def _later(wall_ms: int, period_ms: int) -> int:
    return min(LATEST_MS, wall_ms + period_ms)


def _new_id(random: Random) -> str:
    """As Kafka writes its ids. It begins with no dash, since it becomes an argument of tools."""
    while True:
        text = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
