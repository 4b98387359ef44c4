"""The public keys of an OAuth issuer, and what verifies signatures by them (`security.oauth.TokenVerifier`).

The keys are a document (JWKS, RFC 7517) whose address only the settings give. It is fetched in a thread: when the node
starts, then every hour. A token whose key is not in it is refused, and asks for the document once more, at most once a
minute, since issuers change their keys. A fetch that fails leaves the keys as they were.

Only a node with OAUTHBEARER imports this: PyJWT and cryptography take 20 MB and 100 ms.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jwt
from jwt.algorithms import Algorithm
from jwt.exceptions import PyJWTError

from ottla.runtime.seams import Clock
from ottla.security.login import LoginRefused
from ottla.security.oauth import KEY_ID_CHARACTERS_MAX
from ottla.wire.printable import printable_name

logger = logging.getLogger(__name__)

ASKED_EVERY_S: Final = 60.0
"""How often tokens with unknown keys may ask for the document."""
RSA_BITS_MIN: Final = 2048

_RSA: Final = tuple(f"{kind}{size}" for kind in ("RS", "PS") for size in (256, 384, 512))
_BY_CURVE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}


class IssuerKey(NamedTuple):
    key: Any
    algorithms: Mapping[str, Algorithm]
    """Those that this key is for: no other is tried with it, whatever a token says."""


def keys_of(document: bytes) -> dict[str, IssuerKey]:
    """By id. ValueError if it is no JWKS, or has no key that could be used. Other keys in it are left out, and said."""
    try:
        listed = json.loads(document)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is not a JSON Web Key Set") from None
    found: dict[str, IssuerKey] = {}
    for each in listed if isinstance(listed, list) else ():
        try:
            key_id, key = _key_of(each)
            if key_id in found:
                raise ValueError("its id is there twice")
        except ValueError as error:
            kid = each.get("kid") if isinstance(each, dict) else None
            logger.warning("a key of the issuer is left out kid=%s reason=%s", printable_name(str(kid)), error)  # fmt: skip
        else:
            found[key_id] = key
    if not found:
        raise ValueError("it has no key that could be used")
    return found


def _key_of(jwk: Any) -> tuple[str, IssuerKey]:
    if not isinstance(jwk, dict) or not all(isinstance(name, str) for name in jwk):
        raise ValueError("it is no JSON object")
    key_id, kind = jwk.get("kid"), jwk.get("kty")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_CHARACTERS_MAX:
        raise ValueError("it has no id")
    if jwk.get("use", "sig") != "sig" or "verify" not in jwk.get("key_ops", ["verify"]):
        raise ValueError("it is not for signatures")
    if "d" in jwk:
        raise ValueError("it is a private key, which nobody but the issuer should have")
    possible = _RSA if kind == "RSA" else _BY_CURVE.get((str(kind), str(jwk.get("crv"))), ())
    named = jwk.get("alg")
    names = possible if named is None else tuple(name for name in possible if name == named)
    if not names:
        raise ValueError("it is for no algorithm that is allowed")
    algorithms = {name: jwt.get_algorithm_by_name(name) for name in names}
    try:
        key = algorithms[names[0]].from_jwk(jwk)
    except (PyJWTError, ValueError, TypeError) as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        raise ValueError(f"it has fewer than {RSA_BITS_MIN} bits")
    return key_id, IssuerKey(key, algorithms)


class JwksTimes(NamedTuple):
    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class IssuerKeys:
    """Of one address. `read` gets the document, in a thread."""

    def __init__(
        self, address: str, times: JwksTimes, clock: Clock, read: Callable[[str], bytes]
    ) -> None:
        self.address = address
        self._times = times
        self._clock = clock
        self._read = read
        self._keys: Mapping[str, IssuerKey] = {}
        self._wanted = asyncio.Event()
        self._asked_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Whether the document could be fetched. If not, it is tried again and again; later it is fetched every hour."""
        succeeded = await self._fetch()
        self._task = asyncio.get_running_loop().create_task(self._keep_fresh(succeeded))
        return succeeded

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def verify(self, algorithm: str, key_id: str, signed: bytes, signature: bytes) -> None:
        found = self._keys.get(key_id)
        if found is None:
            self._ask()
            raise LoginRefused("the token's key is none of the issuer's")
        chosen = found.algorithms.get(algorithm)
        if chosen is None:
            raise LoginRefused("the token's key is not for the token's algorithm")
        if not chosen.verify(signed, found.key, signature):
            raise LoginRefused("the token's signature is wrong")

    def _ask(self) -> None:
        """Somebody has a key that we do not know: perhaps it is new."""
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= ASKED_EVERY_S:
            self._asked_at = now
            self._wanted.set()

    async def _keep_fresh(self, succeeded: bool) -> None:
        backoff_s = self._times.backoff_s
        while True:
            if succeeded:
                backoff_s = self._times.backoff_s
                await self._pause(self._times.refresh_s)
            else:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, self._times.backoff_max_s)
            succeeded = await self._fetch()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def _fetch(self) -> bool:
        self._wanted.clear()
        try:
            document = await asyncio.get_running_loop().run_in_executor(
                None, self._read, self.address
            )
            keys = keys_of(document)
        except (OSError, ValueError) as error:
            logger.error(
                "keys of the issuer could not be read address=%s keys=%d error=%s",
                self.address,
                len(self._keys),
                printable_name(str(error)),
            )
            return False
        if keys.keys() != self._keys.keys():
            logger.info("keys of the issuer are read address=%s keys=%d", self.address, len(keys))
        self._keys = keys
        return True
