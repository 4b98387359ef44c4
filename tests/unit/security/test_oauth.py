"""OAUTHBEARER without keys and clocks: messages, claims, and everything that makes a token worthless.

The signature is asked of a verifier. Here it is one that signs with a word; `test_jwks` has the real one.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.login import Accepted, Challenge, LoginRefused
from ottla.security.oauth import (
    ALGORITHMS,
    ClientMessage,
    OAuthRules,
    OAuthServer,
    SignedToken,
    check_claims,
)

NOW_S = 1_000_000
RULES = OAuthRules("https://issuer.example", ("kafka",))
CLAIMS = {
    "iss": "https://issuer.example",
    "aud": "kafka",
    "sub": "alice",
    "iat": NOW_S - 10,
    "exp": NOW_S + 60,
}
INVALID = Challenge(b'{"status":"invalid_token"}')


class _Word:
    """Signs with the word of a key. What it was asked for is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def verify(self, algorithm: str, key_id: str, signed: bytes, signature: bytes) -> None:
        self.asked.append((algorithm, key_id))
        if (algorithm, key_id) != ("RS256", "k1") or signature != b"signed by k1":
            raise LoginRefused("the signature is wrong")


def encoded(part: object) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def token(
    claims: object = CLAIMS,
    signature: bytes = b"signed by k1",
    **header: object,
) -> str:
    head = {"alg": "RS256", "kid": "k1"} | header
    return f"{encoded(head)}.{encoded(claims)}.{encoded(signature)}"


def changed(**claims: object) -> dict[str, object]:
    """Claims with others, and without those that are None."""
    return {key: value for key, value in (CLAIMS | claims).items() if value is not None}


def message(token: str, authzid: str = "", fields: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{fields}\x01".encode()


def server(rules: OAuthRules = RULES, verifier: Any = None) -> OAuthServer:
    return OAuthServer(rules, verifier or _Word(), lambda: NOW_S * 1000)


def refused_after(login: OAuthServer, first: bytes) -> str:
    """The token is worthless: the client is told so, gives up, and the reason goes to the log."""
    assert login.evaluate(first) == INVALID
    with pytest.raises(LoginRefused) as refusal:
        login.evaluate(b"\x01")
    return str(refusal.value)


class TestALogin:
    def test_with_a_good_token_is_answered_with_nothing_and_ends_with_the_token(self) -> None:
        accepted = server().evaluate(message(token()))
        assert accepted == Accepted("alice", b"", expires_ms=(NOW_S + 60) * 1000)

    def test_tells_what_is_wrong_only_to_the_log(self) -> None:
        login = server()
        assert "another issuer" in refused_after(login, message(token(changed(iss="https://x"))))

    def test_is_over_after_a_bad_token_even_if_a_good_one_follows(self) -> None:
        login = server()
        assert login.evaluate(message("a.b.c")) == INVALID
        with pytest.raises(LoginRefused, match="over"):
            login.evaluate(message(token()))

    def test_is_over_after_a_good_token(self) -> None:
        login = server()
        login.evaluate(message(token()))
        with pytest.raises(LoginRefused, match="over"):
            login.evaluate(b"\x01")

    def test_takes_the_user_as_authorization_id_and_nobody_else(self) -> None:
        accepted = server().evaluate(message(token(), "a=alice"))
        assert isinstance(accepted, Accepted) and accepted.user == "alice"
        with pytest.raises(LoginRefused, match="another user"):
            server().evaluate(message(token(), "a=admin"))

    def test_ignores_extensions(self) -> None:
        assert server().evaluate(message(token(), fields="tenant=a b\x01pool=x=y\x01"))


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01x",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01token=a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01x1=b\x01\x01",
        b"n,,\x01auth=Bearer a\x01novalue\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"p=tls,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,alice,\x01auth=Bearer a.b.c\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,x\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_message_that_is_none_is_refused_at_once(wrong: bytes) -> None:
    with pytest.raises(LoginRefused):
        server().evaluate(wrong)


def test_the_scheme_may_be_in_any_case() -> None:
    assert ClientMessage.parse(b"n,,\x01auth=bEARER  t\x01\x01").token == "t"


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda x: b"n,,\x01auth=Bearer " + x))
def test_whatever_comes_is_refused_or_told_to_be_invalid(junk: bytes) -> None:
    with suppress(LoginRefused):
        assert server().evaluate(junk) == INVALID


class TestSignatures:
    """What an attacker writes into the header never opens a door."""

    @pytest.mark.parametrize(
        "alg", ["none", "None", "NONE", "nOnE", "", "HS256", "HS512", "ES256K"]
    )
    def test_an_algorithm_outside_of_the_list_is_refused_before_any_key_is_asked(
        self, alg: str
    ) -> None:
        verifier = _Word()
        refused_after(server(verifier=verifier), message(token(alg=alg)))
        refused_after(server(verifier=verifier), message(token(signature=b"", alg=alg)))
        assert verifier.asked == []

    def test_the_list_has_public_keys_only(self) -> None:
        assert {name[:2] for name in ALGORITHMS} == {"RS", "PS", "ES", "Ed"}
        assert len(ALGORITHMS) == 10

    def test_a_wrong_signature_a_foreign_key_and_none_at_all_are_refused(self) -> None:
        refused_after(server(), message(token(signature=b"signed by k2")))
        refused_after(server(), message(token(kid="k2")))
        refused_after(server(), message(token(kid="")))
        refused_after(server(), message(token(kid=7)))
        refused_after(server(), message(token(kid="k" * 1001)))

    def test_where_the_token_says_its_key_lies_is_never_looked_at(self) -> None:
        verifier = _Word()
        evil = "https://evil.example/keys"
        accepted = server(verifier=verifier).evaluate(
            message(token(jku=evil, x5u=evil, jwk={"kty": "oct", "k": "AA"}, x5c=["AA"]))
        )
        assert isinstance(accepted, Accepted)
        assert verifier.asked == [("RS256", "k1")]

    def test_extensions_that_must_be_understood_are_not(self) -> None:
        refused_after(server(), message(token(crit=["b64"], b64=False)))

    def test_claims_are_not_read_before_the_signature_is_right(self) -> None:
        why = refused_after(server(), message(token(b"[" * 40_000, signature=b"forged")))
        assert why == "the signature is wrong"

    def test_without_a_verifier_no_signed_token_counts(self) -> None:
        login = OAuthServer(RULES, None, lambda: NOW_S * 1000)
        refused_after(login, message(token()))


class TestUnsecuredTokens:
    def test_count_only_where_the_operator_allows_them(self) -> None:
        unsigned = message(token(signature=b"", alg="none"))
        refused_after(server(), unsigned)
        accepted = server(RULES._replace(allow_unsecured=True)).evaluate(unsigned)
        assert isinstance(accepted, Accepted) and accepted.user == "alice"

    def test_have_no_signature(self) -> None:
        login = server(RULES._replace(allow_unsecured=True))
        refused_after(login, message(token(alg="none")))


class TestForms:
    def test_a_megabyte_is_refused_unread(self) -> None:
        with pytest.raises(LoginRefused, match="characters"):
            SignedToken.parse("a" * 1_000_000)
        with pytest.raises(LoginRefused, match="header is too long"):
            SignedToken.parse("a" * 5_000 + ".b.c")

    @pytest.mark.parametrize(
        "header",
        [
            b"[" * 3_000,
            b'{"alg":' + b"[" * 2_000 + b"]" * 2_000 + b"}",
            b'{"alg":"RS256","alg":"none","kid":"k1"}',
            b'{"alg":"RS256","kid":NaN}',
            b'{"alg":"RS256","x":' + b"9" * 2_900 + b"}",
            b'["alg"]',
            b"null",
            b"\xff",
            b"",
        ],
    )
    def test_a_header_that_is_no_plain_json_object_is_refused(self, header: bytes) -> None:
        verifier = _Word()
        whole = f"{encoded(header)}.{encoded(CLAIMS)}.{encoded(b'signed by k1')}"
        login = server(verifier=verifier)
        if header.startswith(b'{"alg":"RS256","x"'):
            refused_after(login, message(whole))  # it names no key
        else:
            assert refused_after(login, message(whole)).startswith("the token's header")
        assert verifier.asked == []

    @pytest.mark.parametrize(
        "claims", [b"[" * 30_000, b'{"a":' * 9_000, b'{"sub":"alice","sub":"admin"}', b"[]", b"1"]
    )
    def test_signed_claims_that_are_no_plain_json_object_are_refused(self, claims: bytes) -> None:
        assert refused_after(server(), message(token(claims))).startswith("the token's payload")

    @pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c.d", "..", "a=.b.c", "+.b.c", "é.b.c"])
    def test_what_is_no_compact_jwt_is_refused(self, text: str) -> None:
        with pytest.raises(LoginRefused):
            SignedToken.parse(text)


class TestClaims:
    @pytest.mark.parametrize(
        ("claims", "why"),
        [
            (changed(exp=None), "no time of expiry"),
            (changed(exp=NOW_S), "expired"),
            (changed(exp=NOW_S - 29), "expired"),
            (changed(exp="soon"), "no time"),
            (changed(exp=True), "no time"),
            (changed(exp=1e300), "no time"),
            (changed(exp=-1), "no time"),
            (changed(iat=None), "no time of issue"),
            (changed(iat=NOW_S + 31), "in the future"),
            (changed(iat=NOW_S + 30, exp=NOW_S + 29), "before it was issued"),
            (changed(nbf=NOW_S + 31), "not valid yet"),
            (changed(iss=None), "issuer"),
            (changed(iss="https://issuer.example/"), "issuer"),
            (changed(iss=["https://issuer.example"]), "issuer"),
            (changed(aud=None), "audience"),
            (changed(aud="kafka2"), "audience"),
            (changed(aud=["other"]), "audience"),
            (changed(aud=[]), "audience"),
            (changed(aud={"kafka": 1}), "audience"),
            (changed(sub=None), "no user"),
            (changed(sub=""), "no user"),
            (changed(sub="  "), "no user"),
            (changed(sub=7), "no user"),
            (changed(sub=["alice"]), "no user"),
            (changed(sub="al\0ice"), "no user"),
            (changed(scope=7), "scope"),
            (changed(scope=["a", 7]), "scope"),
        ],
    )
    def test_that_are_missing_or_wrong_make_a_token_worthless(
        self, claims: dict[str, object], why: str
    ) -> None:
        with pytest.raises(LoginRefused, match=why):
            check_claims(claims, RULES, NOW_S * 1000)

    @pytest.mark.parametrize(
        "claims",
        [
            changed(aud=["other", "kafka"]),
            changed(iat=NOW_S + 30),
            changed(nbf=NOW_S + 30),
            changed(scope="a b"),
            changed(scope=["a", "b"]),
            changed(exp=NOW_S + 60.0, iat=NOW_S - 0.5),
        ],
    )
    def test_may_be_written_in_these_ways(self, claims: dict[str, object]) -> None:
        bearer = check_claims(claims, RULES, NOW_S * 1000)
        assert bearer == ("alice", (NOW_S + 60) * 1000)

    def test_of_a_user_with_a_name_without_end_are_refused(self) -> None:
        assert check_claims(changed(sub=1000 * "a"), RULES, NOW_S * 1000).user == 1000 * "a"
        with pytest.raises(LoginRefused, match="too long"):
            check_claims(changed(sub=1001 * "a"), RULES, NOW_S * 1000)

    def test_of_another_name_give_the_user_if_the_settings_say_so(self) -> None:
        rules = RULES._replace(user_claim="client_id")
        assert check_claims(changed(client_id="app"), rules, NOW_S * 1000).user == "app"
        with pytest.raises(LoginRefused):
            check_claims(CLAIMS, rules, NOW_S * 1000)

    def test_of_issuer_and_audience_are_not_looked_at_where_the_operator_says_so(self) -> None:
        rules = OAuthRules(None, ())
        assert check_claims(changed(iss=None, aud=None), rules, NOW_S * 1000).user == "alice"
