"""What is asked of TLS on a listener, or of a connection to one: data only, so that a node without TLS imports nothing more.

`runtime.tls` makes it real. The simulator can make its own of the same options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class HiddenText(Protocol):
    """A text that is not shown: `security.secrets.Secret`."""

    def reveal(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class KeyStore:
    """A private key and its certificate chain, in a file, or as PEM texts."""

    kind: Literal["PEM", "PKCS12"]
    location: str | None = None
    store_password: HiddenText | None = None
    """Of a PKCS12 file."""
    key: HiddenText | None = None
    certificate_chain: HiddenText | None = None
    key_password: HiddenText | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TrustStore:
    """The certificate authorities that are believed, in a file, or as PEM text."""

    kind: Literal["PEM", "PKCS12"]
    location: str | None = None
    store_password: HiddenText | None = None
    certificates: HiddenText | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TlsOptions:
    listener: str
    """Its name, for logs and errors."""
    key_store: KeyStore | None
    trust_store: TrustStore | None
    client_auth: Literal["none", "requested", "required"] = "none"
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names, for TLS 1.2; empty: all that are good."""
    check_host: bool = True
    """Whether a server's certificate must name the host that was asked for."""
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    handshake_timeout_s: float = 10.0
    handshakes_max: int = 1_000
    """Connections of a listener whose handshake is not over. Of more, the oldest is closed."""
    trust_removed_grace_ms: int = 0
    """How long connections live on whose certificate authority is no longer believed."""
