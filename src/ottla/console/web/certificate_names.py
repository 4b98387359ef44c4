"""The names that a certificate is for: a console that has it is reached under them."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509


def names_in(path: Path) -> tuple[str, ...]:
    """Of the first certificate of a PEM file. ValueError if there is none, OSError if it cannot be read."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(extension.value.get_values_for_type(x509.DNSName))
