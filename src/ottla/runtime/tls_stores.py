"""Key stores and trust stores: PEM or PKCS12, from files or texts, checked before they are used."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime.seams import TlsRefused
from ottla.runtime.tls_options import HiddenText, KeyStore, TlsOptions, TrustStore

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

STORE_BYTES_MAX = 1024 * 1024
"""All authorities that browsers know take a quarter of it."""
JKS_MAGIC = b"\xfe\xed\xfe\xed"
_CERTIFICATES = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL
)
_KEY = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
)
_FileState = tuple[int, int, int]


class CertificateNames(NamedTuple):
    """What a certificate says of its owner."""

    subject: bytes
    """DER."""
    dns: frozenset[str]
    addresses: frozenset[str]

    def fits(self, host: str) -> bool:
        """Whether a client that asked for this host would be content."""
        try:
            return str(ipaddress.ip_address(host)) in self.addresses
        except ValueError:
            host = host.lower().rstrip(".")
            parent = host.partition(".")[2]
            return host in self.dns or (bool(parent) and f"*.{parent}" in self.dns)

    def __str__(self) -> str:
        return ", ".join(sorted(self.dns | self.addresses)) or "no host"


class LoadedStores:
    """What the stores of a listener contain now."""

    def __init__(
        self,
        pem: bytes | None,
        key_password: str | None,
        certificate: bytes | None,
        names: CertificateNames | None,
        anchors: tuple[bytes, ...],
        files: dict[str, _FileState | None],
    ) -> None:
        self.pem = pem
        """The key and its certificate chain, as OpenSSL reads them."""
        self.key_password = key_password
        self.certificate = certificate
        self.names = names
        self.anchors = anchors
        """DER of each certificate authority."""
        self._files = files

    def __repr__(self) -> str:
        return f"<stores of {self.names}>"

    def have_changed(self) -> bool:
        return any(_state(path) != state for path, state in self._files.items())

    def seen_now(self) -> None:
        self._files = {path: _state(path) for path in self._files}

    def check_successor_of(self, before: LoadedStores, options: TlsOptions) -> None:
        if (self.pem is None) != (before.pem is None):
            raise TlsRefused("a key store can neither appear nor vanish while the node runs")
        if bool(self.anchors) != bool(before.anchors):
            raise TlsRefused("a trust store can neither appear nor vanish while the node runs")
        if self.names is None or before.names is None:
            return
        if self.names.subject != before.names.subject and not options.allow_dn_changes:
            raise TlsRefused(
                "the new certificate has another name (DN) than the old one; ssl.allow.dn.changes=true allows it"
            )
        lost = (before.names.dns | before.names.addresses) - (self.names.dns | self.names.addresses)
        if lost and not options.allow_san_changes:
            raise TlsRefused(
                f"the new certificate no longer names {', '.join(sorted(lost))}; ssl.allow.san.changes=true allows it"
            )


def load_stores(options: TlsOptions) -> LoadedStores:
    """TlsRefused says which store is wrong, and why."""
    files: dict[str, _FileState | None] = {}
    pem = password = certificate = names = None
    if options.key_store is not None:
        store = options.key_store
        where = f"key store {store.location or '(text)'} of listener {options.listener}"
        with refusing(where):
            pem, password = _key_store(store, where, files)
            certificate, names = _check_key_store(pem, password, where)
    anchors: tuple[bytes, ...] = ()
    if options.trust_store is not None:
        trust = options.trust_store
        where = f"trust store {trust.location or '(text)'} of listener {options.listener}"
        with refusing(where):
            anchors = _trust_store(trust, where, files)
    return LoadedStores(pem, password, certificate, names, anchors, files)


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """Whatever is wrong with a store refuses the store. `cryptography` and OpenSSL have many kinds of exceptions for what strange
    certificates contain, and none of them may end more than this."""
    try:
        yield
    except TlsRefused:
        raise
    except Exception as error:
        raise TlsRefused(f"{where}: cannot be used: {_one_line(error)}") from error


@contextmanager
def readable_path(data: bytes) -> Iterator[str]:
    """A path under which OpenSSL reads this, though it is in no file: nobody else can open it, and nothing is left."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("store", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:  # mode 0600, and gone at the end
        file.write(data)
        file.flush()
        yield file.name


def _state(path: str) -> _FileState | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: str, where: str, files: dict[str, _FileState | None]) -> bytes:
    files[path] = _state(path)
    try:
        data = _contents(path, where)
    except OSError as error:
        raise TlsRefused(f"{where}: {error.strerror}") from None
    if data.startswith(JKS_MAGIC):
        raise TlsRefused(
            f"{where}: is a JKS file; convert it: keytool -importkeystore -srckeystore {path}"
            " -destkeystore STORE.p12 -deststoretype PKCS12, and set the type PKCS12"
        )
    return data


def _contents(path: str, where: str) -> bytes:
    """Whoever may change settings names the path, and a node reads it while everything else waits: so it must not be a pipe, which
    never opens, nor a device, which never ends."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TlsRefused(f"{where}: is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(STORE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > STORE_BYTES_MAX:
        raise TlsRefused(f"{where}: has more than {STORE_BYTES_MAX} bytes")
    return data


def _text(secret: HiddenText | None) -> str | None:
    return None if secret is None else secret.reveal()


def _key_store(
    store: KeyStore, where: str, files: dict[str, _FileState | None]
) -> tuple[bytes, str | None]:
    password = _text(store.key_password)
    if store.kind == "PKCS12":
        assert store.location is not None
        return _from_pkcs12(_read(store.location, where, files), store, where), None
    if store.location is not None:
        data = _read(store.location, where, files)
    else:
        assert store.key is not None and store.certificate_chain is not None
        data = f"{store.key.reveal()}\n{store.certificate_chain.reveal()}".encode()
    key, certificates = _KEY.search(data), _CERTIFICATES.findall(data)
    if key is None or not certificates:
        missing = "private key" if key is None else "certificate"
        hint = "; is it PKCS12? Then set the type PKCS12" if data[:1] == b"\x30" else ""
        raise TlsRefused(f"{where}: contains no {missing} in PEM{hint}")
    return b"\n".join((key[0], *certificates)) + b"\n", password


def _from_pkcs12(data: bytes, store: KeyStore, where: str) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    secret = _text(store.store_password)
    try:
        found = pkcs12.load_pkcs12(data, None if secret is None else secret.encode())
    except ValueError as error:
        raise TlsRefused(f"{where}: cannot be read as PKCS12: {_one_line(error)}") from None
    if found.key is None or found.cert is None:
        raise TlsRefused(f"{where}: contains no private key with its certificate")
    encoding = serialization.Encoding.PEM
    key = found.key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = [found.cert, *found.additional_certs]
    return key + b"".join(each.certificate.public_bytes(encoding) for each in chain)


def _check_key_store(
    pem: bytes, password: str | None, where: str
) -> tuple[bytes, CertificateNames]:
    with readable_path(pem) as path:
        try:
            # An empty password where none is given: OpenSSL would ask for it at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, password=password or "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsRefused(f"{where}: the key does not fit the certificate") from None
            hint = " (is ssl.key.password right?)" if b"ENCRYPTED" in pem else ""
            raise TlsRefused(f"{where}: cannot be used{hint}: {_one_line(error)}") from None
    own = _parse(_CERTIFICATES.findall(pem)[0], where)
    _check_times(own, where)
    from cryptography.hazmat.primitives.serialization import Encoding

    return own.public_bytes(Encoding.DER), _names(own)


def _trust_store(
    store: TrustStore, where: str, files: dict[str, _FileState | None]
) -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives.serialization import Encoding

    if store.kind == "PKCS12":
        from cryptography.hazmat.primitives.serialization import pkcs12

        assert store.location is not None
        secret = _text(store.store_password)
        data = _read(store.location, where, files)
        try:
            found = pkcs12.load_pkcs12(data, None if secret is None else secret.encode())
        except ValueError as error:
            raise TlsRefused(f"{where}: cannot be read as PKCS12: {_one_line(error)}") from None
        every = [each.certificate for each in found.additional_certs]
        every += [found.cert.certificate] if found.cert is not None else []
    else:
        data = (
            _read(store.location, where, files)
            if store.location is not None
            else (_text(store.certificates) or "").encode()
        )
        every = [_parse(each, where) for each in _CERTIFICATES.findall(data)]
    if not every:
        raise TlsRefused(f"{where}: contains no certificate")
    return tuple(dict.fromkeys(each.public_bytes(Encoding.DER) for each in every))


def _parse(pem: bytes, where: str) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(pem.replace(b"TRUSTED ", b""))
    except ValueError as error:
        raise TlsRefused(f"{where}: a certificate cannot be read: {_one_line(error)}") from None


def _check_times(certificate: Certificate, where: str) -> None:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise TlsRefused(f"{where}: the certificate expired on {certificate.not_valid_after_utc}")
    if now < certificate.not_valid_before_utc:
        raise TlsRefused(
            f"{where}: the certificate is valid only from {certificate.not_valid_before_utc}"
        )


def _names(certificate: Certificate) -> CertificateNames:
    from cryptography import x509

    dns: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        dns = frozenset(name.lower() for name in found.get_values_for_type(x509.DNSName))
        addresses = frozenset(str(each) for each in found.get_values_for_type(x509.IPAddress))
    return CertificateNames(certificate.subject.public_bytes(), dns, addresses)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
