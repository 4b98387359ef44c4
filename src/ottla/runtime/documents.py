"""A document that the operator names by its address: fetched whole, by https or from a file.

Everything blocks: call it in a thread. The module is imported only where such an address is configured, since it takes
TLS and HTTP with it.
"""

from __future__ import annotations

import ssl
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 10.0


class _NoRedirects(HTTPRedirectHandler):
    """Only the operator says where a document lies."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None  # urllib then raises HTTPError, an OSError


def read_document(address: str) -> bytes:
    """OSError says why it cannot be had. The server must show a certificate that this machine trusts."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            found = file.read(DOCUMENT_BYTES_MAX + 1)
    else:
        assert parts.scheme == "https", "the settings take no other"
        https = HTTPSHandler(context=ssl.create_default_context())
        try:
            with build_opener(https, _NoRedirects).open(address, timeout=TIMEOUT_S) as response:
                found = response.read(DOCUMENT_BYTES_MAX + 1)
        except HTTPException as error:
            raise OSError(f"not HTTP: {error!r}") from error
    if len(found) > DOCUMENT_BYTES_MAX:
        raise OSError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return bytes(found)
