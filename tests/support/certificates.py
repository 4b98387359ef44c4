"""Certificates for tests of TLS, made once for each process."""

from __future__ import annotations

import ssl
from dataclasses import replace
from functools import cache
from typing import Any

import trustme

from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.security.secrets import Secret

HOSTS = ("127.0.0.1", "localhost")


class Certified:
    """Authorities by name, and options of listeners that use them."""

    def __init__(self) -> None:
        self.authorities: dict[str, trustme.CA] = {}

    def authority(self, name: str) -> trustme.CA:
        if name not in self.authorities:
            self.authorities[name] = trustme.CA(organization_name=name)
        return self.authorities[name]

    def leaf(
        self, name: str, *hosts: str, common_name: str = "node", **more: Any
    ) -> trustme.LeafCert:
        return self.authority(name).issue_cert(
            *(hosts or HOSTS),
            common_name=common_name,
            organization_name="test",
            organization_unit_name="tests",
            **more,
        )

    def key_store(self, leaf: trustme.LeafCert) -> KeyStore:
        chain = b"".join(each.bytes() for each in leaf.cert_chain_pems).decode()
        return KeyStore(
            "PEM",
            key=Secret(leaf.private_key_pem.bytes().decode()),
            certificate_chain=Secret(chain),
        )

    def trust_store(self, *names: str) -> TrustStore:
        every = b"".join(self.authority(name).cert_pem.bytes() for name in names)
        return TrustStore("PEM", certificates=Secret(every.decode()))

    def options(self, name: str, **changes: Any) -> TlsOptions:
        """Of a listener whose nodes have certificates of this authority, and believe in it."""
        return replace(
            TlsOptions(
                "TEST",
                self.key_store(self.leaf(name)),
                self.trust_store(name),
                client_auth="required",
            ),
            **changes,
        )


def of_unknown_version(certificate: bytes) -> bytes:
    """A certificate in PEM with a version that `cryptography` refuses, and not with a ValueError."""
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    third = bytes.fromhex("a003020102")
    assert der.count(third) == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(third, third[:-1] + b"\x09")).encode()


@cache
def certified() -> Certified:
    return Certified()
