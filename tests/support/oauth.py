"""An OAuth issuer for tests: keys, their JWKS, and the tokens that it signs or that somebody forges."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER = "https://issuer.example"
AUDIENCE = "kafka"


def private_key(algorithm: str) -> Any:
    if algorithm.startswith("ES"):
        curve = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        return ec.generate_private_key(curve[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def public_jwk(private: Any, key_id: str, **more: object) -> dict[str, Any]:
    algorithm = "ES256" if isinstance(private, ec.EllipticCurvePrivateKey) else "RS256"
    if isinstance(private, ed25519.Ed25519PrivateKey):
        algorithm = "EdDSA"
    jwk = jwt.get_algorithm_by_name(algorithm).to_jwk(private.public_key(), as_dict=True)
    return {**jwk, "kid": key_id, "use": "sig"} | more


def jwks(*keys: object) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(user: str = "alice", lifetime_s: float = 60, **others: object) -> dict[str, Any]:
    """`others` that are None are left out."""
    now = int(time.time())
    said = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": user,
        "iat": now - 1,
        "exp": now + lifetime_s,
    } | others
    return {name: value for name, value in said.items() if value is not None}


class Issuer:
    def __init__(self, algorithm: str = "ES256", key_id: str = "k1") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self.private = private_key(algorithm)

    def jwks(self) -> bytes:
        return jwks(public_jwk(self.private, self.key_id))

    def token(self, said: dict[str, Any], **header: object) -> str:
        head = {"kid": self.key_id} | header
        return jwt.encode(said, self.private, self.algorithm, headers=head)


def handmade(header: dict[str, Any], said: dict[str, Any], signature: bytes = b"") -> str:
    """A token that no library would make."""
    parts = json.dumps(header).encode(), json.dumps(said).encode(), signature
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
