"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a token that somebody else has signed says who logs in, and until when.

Nothing of a token is believed before its signature was verified, by a key that the operator's settings lead to. What a
token says about its own key (`jku`, `x5u`, `jwk`) is never looked at. The algorithm must be one of the list below and the
key's own, so that a public key is never taken for a secret (HS256), and `none` is none of them.

The signature itself needs a library and the keys of the issuer. Both are behind `TokenVerifier`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from ottla.security.login import Accepted, Challenge, LoginRefused, is_too_long
from ottla.security.scram import unescaped

MECHANISM: Final = "OAUTHBEARER"
ALGORITHMS: Final = frozenset(
    f"{kind}{size}" for kind in ("RS", "PS", "ES") for size in (256, 384, 512)
) | {"EdDSA"}
UNSECURED: Final = "none"
TOKEN_CHARACTERS_MAX: Final = 64 * 1024
HEADER_CHARACTERS_MAX: Final = 4 * 1024
"""The header is read before the signature is verified."""
KEY_ID_CHARACTERS_MAX: Final = 1000
SEPARATOR: Final = "\x01"
GIVEN_UP: Final = b"\x01"
"""What a client sends after it was told that its token is no good."""
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class TokenVerifier(Protocol):
    """Knows the issuer's public keys."""

    def verify(self, algorithm: str, key_id: str, signed: bytes, signature: bytes) -> None:
        """LoginRefused, unless the key with this id is one for this algorithm, and made the signature."""


class OAuthRules(NamedTuple):
    """What a token must say."""

    issuer: str | None
    """None: any. So the operator has said."""
    audiences: tuple[str, ...]
    """One of them. None at all: any, as the operator has said."""
    skew_s: int = 30
    """How much the issuer's clock may be ahead of ours."""
    user_claim: str = "sub"
    scope_claim: str = "scope"
    allow_unsecured: bool = False
    """Whether tokens without a signature are believed: then everybody can be everybody."""


# The message


class ClientMessage(NamedTuple):
    """`n,[a=authzid],^A auth=Bearer <token> ^A [key=value ^A]… ^A`, without the blanks. ^A is the byte 1."""

    authzid: str
    token: str

    @classmethod
    def parse(cls, message: bytes) -> ClientMessage:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise LoginRefused("the message is not UTF-8") from None
        header, begin, rest = text.partition(SEPARATOR)
        parts = header.split(",")
        if not begin or len(parts) != 3 or parts[0] != "n" or parts[2]:
            raise LoginRefused("the message has no GS2 header without channel binding")
        authzid = parts[1]
        if authzid:
            if not authzid.startswith("a="):
                raise LoginRefused("the GS2 header has no authorization id at its place")
            authzid = unescaped(authzid[2:])
        if not rest.endswith(SEPARATOR * 2):
            raise LoginRefused("the message does not end with two separators")
        pairs: dict[str, str] = {}
        for field in rest[:-2].split(SEPARATOR):
            key, equals, value = field.partition("=")
            if not equals or not (key.isascii() and key.isalpha()) or key in pairs:
                raise LoginRefused("the message has a field that cannot be read, or twice")
            pairs[key] = value
        scheme, _, token = pairs.get("auth", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise LoginRefused("the message has no bearer token")
        return cls(authzid, token.strip(" "))


# The token


class SignedToken(NamedTuple):
    """A JSON Web Token (RFC 7519) in its compact form, of which only the header was read."""

    algorithm: str
    key_id: str
    """Empty if it names no key."""
    signed: bytes
    payload: str
    """Still as it came."""
    signature: bytes

    @classmethod
    def parse(cls, token: str) -> SignedToken:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise LoginRefused(f"the token has {len(token)} characters")
        parts = token.split(".")
        if len(parts) != 3:
            raise LoginRefused("the token is not a signed JWT in compact form")
        header, payload, signature = parts
        if len(header) > HEADER_CHARACTERS_MAX:
            raise LoginRefused("the token's header is too long")
        said = _json_object(header, "header")
        algorithm, key_id = said.get("alg"), said.get("kid", "")
        if not isinstance(algorithm, str) or not isinstance(key_id, str):
            raise LoginRefused("the token's header has no algorithm, or a key id that is no text")
        if "crit" in said:
            raise LoginRefused("the token's header has extensions that must be understood")
        if len(key_id) > KEY_ID_CHARACTERS_MAX:
            raise LoginRefused("the token's key id is too long")
        signed = f"{header}.{payload}".encode()
        return cls(algorithm, key_id, signed, payload, _unbase64(signature, "signature"))

    def claims(self) -> Mapping[str, Any]:
        """To be read only when the signature is known to be right."""
        return _json_object(self.payload, "payload")


def _unbase64(text: str, what: str) -> bytes:
    """base64url without padding, and nothing else."""
    if not text.isascii() or "=" in text or "+" in text or "/" in text:
        raise LoginRefused(f"the token's {what} is not base64url")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefused(f"the token's {what} is not base64url") from None


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(
            _unbase64(text, what).decode(), object_pairs_hook=_unique, parse_constant=_not_json
        )
    except (ValueError, RecursionError):
        raise LoginRefused(f"the token's {what} is not JSON with each name once") from None
    if not isinstance(found, dict):
        raise LoginRefused(f"the token's {what} is no JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers of a name that is there twice would believe different things."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)


class Bearer(NamedTuple):
    """Who a token says that it is for."""

    user: str
    expires_ms: int


def check_claims(claims: Mapping[str, Any], rules: OAuthRules, wall_ms: int) -> Bearer:
    """LoginRefused if the claims of a token are not what they must be."""
    now, skew = wall_ms / 1000, rules.skew_s
    expires = _time(claims, "exp")
    # Without the skew: the session of a token that has expired would be over before it began.
    if expires is None or expires <= now:
        raise LoginRefused(
            "the token has expired" if expires else "the token has no time of expiry"
        )
    issued, begins = _time(claims, "iat"), _time(claims, "nbf")
    if issued is None or issued > now + skew:
        raise LoginRefused("the token has no time of issue, or one in the future")
    if issued > expires:
        raise LoginRefused("the token expired before it was issued")
    if begins is not None and begins > now + skew:
        raise LoginRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise LoginRefused("the token is of another issuer")
    if rules.audiences:
        audience = claims.get("aud")
        meant = [audience] if isinstance(audience, str) else audience
        if not isinstance(meant, list) or not any(name in meant for name in rules.audiences):
            raise LoginRefused("the token is for another audience")
    scope = claims.get(rules.scope_claim)
    if scope is not None and not isinstance(scope, str) and not _are_texts(scope):
        raise LoginRefused("the token's scope is neither a text nor a list of texts")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip() or "\0" in user:
        raise LoginRefused(f"the token names no user in its claim {rules.user_claim}")
    if is_too_long(user):
        raise LoginRefused("the user name is too long")
    return Bearer(user.strip(), math.floor(expires * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Seconds since 1970; librdkafka writes fractions."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**53:
        raise LoginRefused(f"the token's claim {name} is no time")
    return float(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# The server's half


class OAuthServer:
    """One login."""

    def __init__(
        self, rules: OAuthRules, verifier: TokenVerifier | None, wall_ms: Callable[[], int]
    ) -> None:
        self._rules = rules
        self._verifier = verifier
        self._wall_ms = wall_ms
        self._refusal: str | None = None
        self._over = False
        self.claimed: str | None = None

    def evaluate(self, message: bytes) -> Challenge | Accepted:
        if self._refusal is not None and message == GIVEN_UP:
            raise LoginRefused(self._refusal)
        if self._over:
            raise LoginRefused("the login is over")
        self._over = True
        said = ClientMessage.parse(message)
        try:
            bearer = self._bearer(said.token)
        except LoginRefused as refusal:
            self._refusal = str(refusal)
            return Challenge(INVALID_TOKEN)
        if said.authzid not in ("", bearer.user):
            raise LoginRefused("the authorization id is another user")
        return Accepted(bearer.user, expires_ms=bearer.expires_ms)

    def _bearer(self, text: str) -> Bearer:
        token = SignedToken.parse(text)
        if token.algorithm == UNSECURED:
            if not self._rules.allow_unsecured or token.signature:
                raise LoginRefused("the token is not signed")
        elif token.algorithm not in ALGORITHMS:
            raise LoginRefused("the token's algorithm is not allowed")
        elif self._verifier is None or not token.key_id:
            raise LoginRefused("the token names no key that we could know")
        else:
            self._verifier.verify(token.algorithm, token.key_id, token.signed, token.signature)
        bearer = check_claims(token.claims(), self._rules, self._wall_ms())
        self.claimed = bearer.user
        return bearer
