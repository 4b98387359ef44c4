"""Delegation tokens without I/O: what follows from the secret, who may ask, and who logs in as whom."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

import pytest

from ottla.broker.server.credentials import KnownUsers
from ottla.controller.credentials import scram_record
from ottla.metadata.records import DelegationTokenRecord
from ottla.security import scram
from ottla.security.login import Accepted, Challenge, LoginRefused, Work
from ottla.security.principal_data import principal_from_bytes, principal_to_bytes
from ottla.security.principals import ANONYMOUS, TokenPrincipal, user
from ottla.security.secrets import Secret
from ottla.security.tokens import TOKEN, TokenKeys, may_ask_about_tokens

SECRET = Secret("the cluster's secret")
KEYS = TokenKeys(SECRET)
EACH = pytest.mark.parametrize("mechanism", list(scram.MECHANISMS.values()), ids=lambda x: x.name)


def token(token_id: str = "id", owner: str = "User:alice") -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=owner,
        requester=owner,
        renewers=(),
        issue_timestamp=0,
        max_timestamp=9_000,
        expiration_timestamp=5_000,
        token_id=token_id,
    )


def known(
    keys: TokenKeys | None = KEYS, tokens: Mapping[str, DelegationTokenRecord] | None = None
) -> KnownUsers:
    stored = {
        ("alice", number): scram_record(name, "alice", Secret("pencil"), b"0123456789", 4096)
        for name, number in (("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2))
    }
    listed = {"id": token()} if tokens is None else tokens
    zeros = bytes
    return KnownUsers(
        lambda: stored, scram.Decoys(Secret("decoy"), zeros), zeros, lambda: listed, keys
    )


def log_in(
    users: KnownUsers,
    mechanism: scram.Mechanism,
    name: str,
    password: Secret,
    *,
    by_token: bool = True,
) -> Accepted:
    server = users.rules([mechanism.name], {}, {}).mechanisms[mechanism.name]()
    client = scram.ScramClient(mechanism, name, password, "nonce", by_token=by_token)
    challenge = server.evaluate(client.first())
    assert isinstance(challenge, Challenge)
    accepted = server.evaluate(client.final(challenge.message))
    if isinstance(accepted, Work):
        found = accepted.run()
        if found is None:
            raise LoginRefused("in a thread")
        accepted = found
    assert isinstance(accepted, Accepted)
    client.check(accepted.message)
    return accepted


def test_the_password_is_kafkas() -> None:
    mac = hmac.new(b"the cluster's secret", b"id", hashlib.sha512).digest()
    assert KEYS.hmac("id") == mac
    assert KEYS.password("id").equals(base64.b64encode(mac).decode())


def test_a_token_is_found_by_its_whole_hmac() -> None:
    ids = ["a", "b", "c"]
    assert KEYS.find(KEYS.hmac("b"), ids) == "b"
    for wrong in (b"", KEYS.hmac("d"), KEYS.hmac("b")[:-1], KEYS.hmac("b") + b"\0"):
        assert KEYS.find(wrong, ids) is None


@EACH
def test_nodes_with_one_secret_make_the_same_credential(mechanism: scram.Mechanism) -> None:
    ours, others = (keys.credentials(mechanism, "id")[0] for keys in (KEYS, TokenKeys(SECRET)))
    assert (ours.salt, ours.stored_key, ours.server_key, ours.iterations) == (
        others.salt,
        others.stored_key,
        others.server_key,
        others.iterations,
    )
    salts = {
        KEYS.credentials(each, id)[0].salt for each in scram.MECHANISMS.values() for id in "ab"
    }
    assert len(salts) == 4
    assert TokenKeys(Secret("another")).credentials(mechanism, "id")[0].salt != ours.salt


@EACH
def test_tokens_of_the_previous_secret_count_while_it_is_given(mechanism: scram.Mechanism) -> None:
    rotated = TokenKeys(Secret("the next secret"), SECRET)
    for password in (KEYS.password("id"), rotated.password("id")):
        assert log_in(known(rotated), mechanism, "id", password).user == "alice"
    assert rotated.find(KEYS.hmac("id"), ["other", "id"]) == "id"
    assert rotated.find(rotated.hmac("id"), ["other", "id"]) == "id"
    assert rotated.hmac("id") == TokenKeys(Secret("the next secret")).hmac("id")
    for keys in (rotated, TokenKeys(Secret("the next secret"))):
        with pytest.raises(LoginRefused):
            log_in(known(keys), mechanism, "id", TokenKeys(Secret("older")).password("id"))
    with pytest.raises(LoginRefused):
        log_in(known(TokenKeys(Secret("the next secret"))), mechanism, "id", KEYS.password("id"))


@EACH
def test_who_has_the_token_logs_in_as_its_owner_until_it_is_over(
    mechanism: scram.Mechanism,
) -> None:
    accepted = log_in(known(), mechanism, "id", KEYS.password("id"))
    assert accepted.user == "alice" and accepted.by_token
    assert accepted.expires_ms == 5_000
    assert accepted.rests_on == ("id", TOKEN)


@EACH
def test_the_key_of_a_token_is_made_in_a_thread_whether_it_exists_or_not(
    mechanism: scram.Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes milliseconds. On the event loop all others would wait, and the time would tell who exists."""
    made: list[str] = []
    credentials = TokenKeys.credentials

    def counted(
        keys: TokenKeys, mechanism: scram.Mechanism, token_id: str
    ) -> tuple[scram.Credential, ...]:
        made.append(token_id)
        return credentials(keys, mechanism, token_id)

    monkeypatch.setattr(TokenKeys, "credentials", counted)
    for name in ("id", "id", "other"):
        server = known().rules([mechanism.name], {}, {}).mechanisms[mechanism.name]()
        client = scram.ScramClient(mechanism, name, KEYS.password(name), "nonce", by_token=True)
        challenge = server.evaluate(client.first())
        assert isinstance(challenge, Challenge)
        work = server.evaluate(client.final(challenge.message))
        assert isinstance(work, Work)
        assert not made
        assert (work.run() is not None) == (name == "id")
        assert made.pop() == name


@EACH
def test_everybody_else_gets_a_challenge_and_no_more(mechanism: scram.Mechanism) -> None:
    password = KEYS.password("id")
    cases = [
        (known(), "id", Secret("guessed"), True),
        (known(), "other", KEYS.password("other"), True),
        (known(), "id", password, False),  # a token is no user
        (known(), "alice", Secret("pencil"), True),  # and a user is no token
        (known(keys=None), "id", password, True),
        (known(keys=TokenKeys(Secret("another"))), "id", password, True),
        (known(tokens={}), "id", password, True),
        (known(tokens={"id": token(owner="Group:alice")}), "id", password, True),
    ]
    for users, name, secret, by_token in cases:
        with pytest.raises(LoginRefused):
            log_in(users, mechanism, name, secret, by_token=by_token)


@EACH
def test_a_token_that_does_not_exist_looks_like_one_that_does(mechanism: scram.Mechanism) -> None:
    """Users have 8192 iterations and short salts here: no token has."""
    stored = {
        ("alice", each.number): scram_record(
            each.name, "alice", Secret("pencil"), b"01234567", 8192
        )
        for each in scram.MECHANISMS.values()
    }
    users = KnownUsers(
        lambda: stored, scram.Decoys(Secret("decoy"), bytes), bytes, lambda: {"id": token()}, KEYS
    )
    begin = users.rules([mechanism.name], {}, {}).mechanisms[mechanism.name]

    def told(name: str, *, by_token: bool) -> scram.ServerFirst:
        client = scram.ScramClient(mechanism, name, Secret("x"), "nonce", by_token=by_token)
        challenge = begin().evaluate(client.first())
        assert isinstance(challenge, Challenge)
        return scram.ServerFirst.parse(challenge.message)

    real = told("id", by_token=True)
    for name in ("none", "alice"):
        found = told(name, by_token=True)
        assert (found.iterations, len(found.salt)) == (real.iterations, len(real.salt))
        assert found == told(name, by_token=True), "the same each time"
        assert found.salt != told(name, by_token=False).salt
    assert told("none", by_token=False).iterations == 8192


@pytest.mark.parametrize(
    ("principal", "protocol", "may"),
    [
        (user("alice"), "PLAINTEXT", False),
        (ANONYMOUS, "PLAINTEXT", False),
        (ANONYMOUS, "SSL", False),
        (user("CN=alice"), "SSL", True),
        (user("alice"), "SASL_PLAINTEXT", True),
        (user("alice"), "SASL_SSL", True),
        (TokenPrincipal("User", "alice"), "SASL_SSL", False),
        (TokenPrincipal("User", "alice"), None, False),
        (user("alice"), None, True),
    ],
)
def test_who_may_ask_about_tokens(principal: TokenPrincipal, protocol: str | None, may: bool) -> None:  # fmt: skip
    assert may_ask_about_tokens(principal, protocol) is may


def test_a_principal_by_token_is_the_owner_and_stays_marked_on_its_way_to_the_controller() -> None:
    by_token = TokenPrincipal("User", "alice")
    assert by_token == user("alice") and hash(by_token) == hash(user("alice"))
    assert str(by_token) == "User:alice"
    for principal in (by_token, user("alice")):
        found = principal_from_bytes(principal_to_bytes(principal))
        assert found == principal and found.is_by_token is principal.is_by_token
