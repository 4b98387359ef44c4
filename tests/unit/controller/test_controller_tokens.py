"""Delegation tokens as the controller decides them (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_world import World

from ottla.broker.cluster.audited_changes import audited_changes
from ottla.broker.cluster.controller_service import Asked
from ottla.controller.committed_events import committed_events
from ottla.controller.credentials import CredentialDeletion, CredentialUpsertion
from ottla.controller.draft import RECORDS_PER_COMMAND_MAX, ControllerResult, Draft
from ottla.controller.tokens import (
    LATEST_MS,
    SWEPT_AT_ONCE,
    TOKENS_PER_OWNER_MAX,
    TOKENS_PER_REQUESTER_MAX,
    NewToken,
)
from ottla.events.controller import SettingChanged
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import DelegationTokenRecord, FeatureLevelRecord
from ottla.security import scram
from ottla.security.principals import Principal, user
from ottla.security.secrets import Secret
from ottla.security.tokens import TokenKeys, TokenRules
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

ALICE, BOB, EVE = user("alice"), user("bob"), user("eve")
KEYS = TokenKeys(Secret("the cluster's secret"))
DAY_MS = 86_400_000
NOW = 1_000_000_000


def world(max_lifetime_ms: int = 7 * DAY_MS, expiry_ms: int = DAY_MS) -> World:
    return World(1, tokens=TokenRules(KEYS, max_lifetime_ms, expiry_ms))


def create(
    at: World,
    requester: Principal = ALICE,
    owner: Principal | None = None,
    renewers: tuple[Principal, ...] = (),
    lifetime_ms: int = -1,
    now: int = NOW,
) -> dict[str, Any]:
    wanted = NewToken(requester, owner or requester, renewers, lifetime_ms)
    return at.controller.create_token(wanted, now).response


def refused(decide: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        decide()
    return refusal.value.code


def stored(at: World) -> list[DelegationTokenRecord]:
    return list(at.controller.image.delegation_tokens.values())


def test_a_token_lives_a_day_at_first_and_a_week_at_most() -> None:
    at = world()
    created = create(at, renewers=(BOB,))
    assert stored(at) == [
        DelegationTokenRecord(
            owner="User:alice",
            requester="User:alice",
            renewers=("User:bob",),
            issue_timestamp=NOW,
            max_timestamp=NOW + 7 * DAY_MS,
            expiration_timestamp=NOW + DAY_MS,
            token_id=created["token_id"],
        )
    ]
    assert created["hmac"] == KEYS.hmac(created["token_id"])
    assert (created["expiry_timestamp"], created["max_timestamp"]) == (
        NOW + DAY_MS,
        NOW + 7 * DAY_MS,
    )


@pytest.mark.parametrize(
    ("asked", "lives"),
    [(-1, 7 * DAY_MS), (0, 7 * DAY_MS), (5, 5), (DAY_MS, DAY_MS), (8 * DAY_MS, 7 * DAY_MS)],
)
def test_a_shorter_life_can_be_asked_for_and_no_longer_one(asked: int, lives: int) -> None:
    created = create(world(), lifetime_ms=asked)
    assert created["max_timestamp"] == NOW + lives
    assert created["expiry_timestamp"] == NOW + min(lives, DAY_MS)


def test_times_end_where_numbers_do() -> None:
    created = create(world(LATEST_MS, LATEST_MS))
    assert created["max_timestamp"] == created["expiry_timestamp"] == LATEST_MS


def test_a_token_for_another_owner_says_who_asked() -> None:
    at = world()
    created = create(at, requester=ALICE, owner=BOB)
    assert (created["principal_name"], created["token_requester_principal_name"]) == (
        "bob",
        "alice",
    )
    # She made it, but it is not hers.
    assert (
        refused(lambda: at.controller.renew_token(ALICE, created["hmac"], -1, NOW))
        == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    )


@pytest.mark.parametrize("other", [Principal("Group", "admin"), Principal("user", "x"), user("")])
def test_owners_and_renewers_are_users(other: Principal) -> None:
    at = world()
    for wanted in (NewToken(ALICE, other, (), -1), NewToken(ALICE, ALICE, (BOB, other), -1)):
        code = refused(lambda wanted=wanted: at.controller.create_token(wanted, NOW))  # type: ignore[misc]
        assert code is ErrorCode.INVALID_PRINCIPAL_TYPE
    assert stored(at) == []


def test_there_are_no_tokens_without_a_secret_or_with_old_metadata() -> None:
    at = World(1)
    for decide in (
        lambda: create(at),
        lambda: at.controller.renew_token(ALICE, b"x", -1, NOW),
        lambda: at.controller.expire_token(ALICE, b"x", -1, NOW),
    ):
        assert refused(decide) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    at = world()

    def downgrade(draft: Draft) -> dict[str, Any]:
        draft.add([FeatureLevelRecord(name=METADATA_VERSION, feature_level=13)])
        return {}

    at.controller.decide(downgrade)
    assert refused(lambda: create(at)) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("who", [ALICE, BOB])
@pytest.mark.parametrize(
    ("asked", "more"), [(-1, DAY_MS), (0, DAY_MS), (5, 5), (9 * DAY_MS, DAY_MS)]
)
def test_owner_and_renewers_renew_for_a_day_at_most(who: Principal, asked: int, more: int) -> None:
    at = world()
    created = create(at, renewers=(BOB,))
    later = NOW + DAY_MS - 1
    answer = at.controller.renew_token(who, created["hmac"], asked, later).response
    assert answer["expiry_timestamp"] == later + more
    assert [token.expiration_timestamp for token in stored(at)] == [later + more]


def test_renewing_never_goes_beyond_the_longest_life() -> None:
    at = world(max_lifetime_ms=DAY_MS + 10)
    created = create(at)
    answer = at.controller.renew_token(ALICE, created["hmac"], -1, NOW + 100).response
    assert answer["expiry_timestamp"] == NOW + DAY_MS + 10


def test_what_cannot_be_renewed() -> None:
    at = world()
    created = create(at, renewers=(BOB,))
    hmac, controller = created["hmac"], at.controller
    over = NOW + DAY_MS
    cases = [
        (lambda: controller.renew_token(ALICE, b"", -1, NOW), 62),
        (lambda: controller.renew_token(ALICE, hmac[:-1], -1, NOW), 62),
        (lambda: controller.renew_token(ALICE, hmac[:-1] + b"\0", -1, NOW), 62),
        (lambda: controller.renew_token(EVE, hmac, -1, NOW), 63),
        (lambda: controller.renew_token(Principal("Group", "alice"), hmac, -1, NOW), 63),
        (lambda: controller.renew_token(ALICE, hmac, -1, over), 66),
        (lambda: controller.renew_token(EVE, hmac, -1, over), 66),
    ]
    before = stored(at)
    for decide, code in cases:
        assert refused(decide) == code
    assert stored(at) == before


def test_expire_ends_a_token_later_or_now() -> None:
    at = world()
    created = create(at, renewers=(BOB,))
    answer = at.controller.expire_token(BOB, created["hmac"], 1_000, NOW).response
    assert answer["expiry_timestamp"] == NOW + 1_000
    assert refused(lambda: at.controller.expire_token(EVE, created["hmac"], -1, NOW)) == 63
    assert refused(lambda: at.controller.expire_token(EVE, b"?", -1, NOW)) == 62
    assert refused(lambda: at.controller.expire_token(BOB, created["hmac"], 0, NOW + 1_000)) == 66
    # A negative period removes it, also when it is over.
    answer = at.controller.expire_token(BOB, created["hmac"], -1, NOW + 2_000).response
    assert (answer["error_code"], answer["expiry_timestamp"]) == (0, NOW + 2_000)
    assert stored(at) == []


def test_expire_never_makes_a_life_longer_than_the_longest() -> None:
    at = world()
    created = create(at, lifetime_ms=10)
    answer = at.controller.expire_token(ALICE, created["hmac"], LATEST_MS, NOW).response
    assert answer["expiry_timestamp"] == NOW + 10


def test_the_sweep_removes_what_is_over_and_not_all_at_once() -> None:
    at = world()
    for number in range(SWEPT_AT_ONCE + 3):
        create(at, user(f"user-{number}"), lifetime_ms=10)
    living = create(at)
    assert at.controller.sweep_tokens(NOW + 9).records == []
    assert len(at.controller.sweep_tokens(NOW + 10).records) == SWEPT_AT_ONCE
    assert len(at.controller.sweep_tokens(NOW + 10).records) == 3
    assert [token.token_id for token in stored(at)] == [living["token_id"]]


def test_a_delta_names_tokens_that_came_changed_or_went() -> None:
    at = world()
    empty = at.controller.image
    created = create(at)
    full = at.controller.image
    assert full.delta_from(empty).changed_tokens == [created["token_id"]]
    assert empty.delta_from(full).changed_tokens == [created["token_id"]]
    assert not full.delta_from(full).changed_tokens
    image, delta = MetadataImage().apply(stored(at), 0, 1)
    assert delta.changed_tokens == [created["token_id"]] and bool(delta)
    assert image.records() == stored(at)


def test_who_made_and_removed_a_token_is_told_and_its_secret_is_not() -> None:
    at = world()
    wanted = NewToken(ALICE, BOB, (), -1)
    made = at.controller.create_token(wanted, NOW)
    token_id, hmac = made.response["token_id"], made.response["hmac"]
    removed = at.controller.expire_token(BOB, hmac, -1, NOW)
    swept = at.controller.sweep_tokens(NOW)
    words = f"{token_id} until {NOW + DAY_MS}, made by User:alice"
    assert made.draft is not None and removed.draft is not None and swept.draft is not None
    assert list(committed_events(made.draft, "a client")) == [
        SettingChanged("User:bob", "delegation token", None, words, "a client")
    ]
    assert list(committed_events(removed.draft, "a client")) == [
        SettingChanged("User:bob", "delegation token", words, None, "a client")
    ]
    assert list(committed_events(swept.draft, None)) == []


def test_ids_begin_with_no_dash_and_differ() -> None:
    at = world()
    ids = {create(at, user(f"user-{number}"))["token_id"] for number in range(300)}
    assert len(ids) == 300
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_an_owner_has_at_most_a_hundred_tokens_that_count() -> None:
    at = world()
    made = [create(at) for _ in range(TOKENS_PER_OWNER_MAX)]
    assert refused(lambda: create(at)) is ErrorCode.POLICY_VIOLATION
    create(at, BOB)
    at.controller.expire_token(ALICE, made[0]["hmac"], -1, NOW)
    create(at)
    # Those that are over do not count, even before they are swept away.
    create(at, now=NOW + 2 * DAY_MS)


def test_the_names_of_a_token_have_a_bound_together() -> None:
    at = world()
    long = tuple(user("x" * 99 + str(number)) for number in range(99))
    create(at, renewers=long)
    too_long = (*long, user("y" * 1000))
    assert refused(lambda: create(at, renewers=too_long)) is ErrorCode.INVALID_REQUEST
    assert len(stored(at)) == 1


@pytest.mark.parametrize("is_removed", [True, False])
def test_tokens_end_with_the_password_of_their_owner_and_of_who_made_them(
    is_removed: bool,
) -> None:
    at = world()
    salted = scram.salt_password(scram.SHA_256, Secret("pencil"), b"0123456789abcdef", 4096)
    first = CredentialUpsertion("alice", 1, 4096, b"0123456789abcdef", salted)
    create(at)
    create(at, ALICE, owner=EVE)
    create(at, EVE, owner=ALICE)
    kept = create(at, BOB)
    at.controller.alter_scram_credentials([], [first])
    assert len(stored(at)) == 4, "a first password ends nothing"
    if is_removed:
        at.controller.alter_scram_credentials([CredentialDeletion("alice", 1)], [])
    else:
        at.controller.alter_scram_credentials([], [first])
    assert [token.token_id for token in stored(at)] == [kept["token_id"]]


def test_nobody_makes_so_many_tokens_that_the_password_cannot_be_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert TOKENS_PER_REQUESTER_MAX + TOKENS_PER_OWNER_MAX < RECORDS_PER_COMMAND_MAX
    monkeypatch.setattr("ottla.controller.tokens.TOKENS_PER_REQUESTER_MAX", 3)
    at = world()
    for owner in ("a", "b", "c"):
        create(at, EVE, owner=user(owner), lifetime_ms=1)
    # Also those that are over: until they are swept away, they would be part of the batch.
    assert refused(lambda: create(at, EVE, owner=BOB, now=NOW + 10)) is ErrorCode.POLICY_VIOLATION
    create(at, ALICE, owner=BOB)
    at.controller.sweep_tokens(NOW + 10)
    create(at, EVE, owner=BOB)


def test_the_audit_tells_of_a_token_made_or_ended_for_somebody_else_without_its_id() -> None:
    at = world()

    def told(api: ApiKey, decision: ControllerResult) -> list[tuple[str | None, ...]]:
        assert decision.draft is not None
        asked = Asked(api, EVE, "10.0.0.7", "CLIENTS", "a client")
        changes = audited_changes(asked, decision.draft)
        return [(each.principal, each.operation, each.resource) for each in changes]

    made = at.controller.create_token(NewToken(EVE, ALICE, (), -1), NOW)
    assert told(ApiKey.CREATE_DELEGATION_TOKEN, made) == [
        ("User:eve", "CREATE_TOKENS", "DelegationToken:+User:alice")
    ]
    ended = at.controller.expire_token(ALICE, made.response["hmac"], -1, NOW)
    assert told(ApiKey.EXPIRE_DELEGATION_TOKEN, ended) == [
        ("User:eve", "DELETE", "DelegationToken:-User:alice")
    ]
