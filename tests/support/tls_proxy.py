"""A proxy that speaks TLS with browsers and plain HTTP with the console behind it, byte for byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TlsProxy:
    def __init__(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        plain = socket.create_server(("127.0.0.1", 0))
        self.origin = f"https://localhost:{plain.getsockname()[1]}"
        self.target = ("127.0.0.1", 0)
        self.listening = context.wrap_socket(plain, server_side=True)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self.listening.accept()
            except ssl.SSLError:
                continue
            except OSError:
                return
            console = socket.create_connection(self.target)
            for one, other in ((browser, console), (console, browser)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_proxy(certificate: Path) -> Iterator[TlsProxy]:
    """Its `target` is set later: a console is told the origin when it starts."""
    proxy = TlsProxy(certificate)
    try:
        yield proxy
    finally:
        proxy.listening.close()
