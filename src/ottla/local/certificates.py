"""Certificates of a secure cluster on this machine: who signs, for whom, for how long, and how a new CA takes over.

There are two CAs, so that a client's certificate is never good for a node: `nodes` signs what nodes show to each other and to
clients, `clients` signs what clients show. Keys are on the curve P-256. A node's certificate names its addresses, and its id
as a URI, so that node 2 cannot say that it is node 3.

A new CA takes over in three steps, each a call of `roll`, and nothing is distrusted before all have its successor:
both are trusted; the new one signs; the old one is forgotten.

Only commands import this module: `cryptography` takes time and memory that a node does not have to spend.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.local.private_files import private_directory, write_private
from ottla.security.node_claims import NODE_URI

NODES: Final = "nodes"
CLIENTS: Final = "clients"
CA_DAYS: Final = 3650
NODE_DAYS: Final = 30
CLIENT_DAYS: Final = 90
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_EARLIER: Final = datetime.timedelta(minutes=5)
"""Another machine's clock may be behind."""


class Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_authority(name: str, now: datetime.datetime) -> Authority:
    """Its name has a number of its own: of two CAs with one name, some software tries only the first."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} {secrets.token_hex(4)}")
    public = key.public_key()
    certificate = (
        _begun(subject, subject, public, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue_node(
    authority: Authority, node: int, hosts: Iterable[str], now: datetime.datetime
) -> bytes:
    """Certificate and key, as PEM."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"{NODE_URI}{node}")]
    names += [_host(each) for each in dict.fromkeys((*HOSTS, *hosts))]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issue(authority, node_name(node), usages, NODE_DAYS, now, names)


def issue_client(authority: Authority, user: str, now: datetime.datetime) -> bytes:
    """Certificate and key, as PEM."""
    return _issue(authority, user, [ExtendedKeyUsageOID.CLIENT_AUTH], CLIENT_DAYS, now, [])


def node_name(node: int) -> str:
    """The common name of a node's certificate."""
    return f"node-{node}"


def node_principal(node: int) -> str:
    """As Kafka names who shows it."""
    return f"User:CN={node_name(node)}"


def _issue(
    authority: Authority,
    name: str,
    usages: Sequence[x509.ObjectIdentifier],
    days: int,
    now: datetime.datetime,
    names: Sequence[x509.GeneralName],
) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    made = (
        _begun(_name(name), issuer, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(signer, critical=False)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = made.sign(authority.key, hashes.SHA256())
    return _pem(certificate) + _key_pem(key)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class RollStep(StrEnum):
    """What `roll` did."""

    TRUSTED = "trusted"
    """The new CA exists, and both are trusted. The old one still signs."""
    SIGNS = "signs"
    """The new CA signs. The old one is still trusted."""
    FORGOTTEN = "forgotten"
    """The old CA is trusted no longer."""


class AuthorityFiles:
    """One CA in a directory: NAME-ca.key, NAME-ca.crt, what is to be trusted (NAME-trust.crt), and its successor or
    predecessor while one takes over from the other."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._directory = directory

    def _file(self, end: str) -> Path:
        return self._directory / f"{self.name}-{end}"

    @property
    def trust(self) -> Path:
        """The certificates of all CAs whose signatures count."""
        return self._file("trust.crt")

    def make(self, cluster: str, now: datetime.datetime) -> Authority:
        private_directory(self._directory)
        made = new_authority(f"ottla {self.name} CA {cluster}", now)
        self._write("ca", made)
        write_private(self.trust, _pem(made.certificate))
        return made

    def load(self, which: str = "ca") -> Authority:
        key = serialization.load_pem_private_key(self._file(f"{which}.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), "we made it"
        return Authority(read_certificates(self._file(f"{which}.crt"))[0], key)

    @property
    def latest_step(self) -> RollStep | None:
        """What `roll` did last, while two CAs are trusted; None if there is one."""
        if self._file("ca-old.crt").exists():
            return RollStep.SIGNS
        return RollStep.TRUSTED if self._file("ca-next.key").exists() else None

    def roll(self, cluster: str, now: datetime.datetime) -> RollStep:
        """The next step of a new CA's way."""
        old = self._file("ca-old.crt")
        if old.exists():
            old.unlink()
            step = RollStep.FORGOTTEN
        elif self._file("ca-next.key").exists():
            write_private(old, self._file("ca.crt").read_bytes())
            for end in ("key", "crt"):
                self._file(f"ca-next.{end}").replace(self._file(f"ca.{end}"))
            step = RollStep.SIGNS
        else:
            self._write("ca-next", new_authority(f"ottla {self.name} CA {cluster}", now))
            step = RollStep.TRUSTED
        trusted = [self._file(f"{which}.crt") for which in ("ca", "ca-next", "ca-old")]
        write_private(self.trust, b"".join(each.read_bytes() for each in trusted if each.exists()))
        return step

    def _write(self, which: str, authority: Authority) -> None:
        write_private(self._file(f"{which}.crt"), _pem(authority.certificate))
        write_private(self._file(f"{which}.key"), _key_pem(authority.key))


def read_certificates(path: Path) -> list[x509.Certificate]:
    """ValueError if there is none."""
    return x509.load_pem_x509_certificates(path.read_bytes())
