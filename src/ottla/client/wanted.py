"""What a listener wants of its clients. It is asked when a plain client got no answer, so that the error can say why."""

from __future__ import annotations

import socket
import ssl
from struct import Struct
from typing import Final

from ottla.client.connections import Address

PATIENCE_S: Final = 2.0
_TLS_ALERT: Final = 0x15
_HELLO: Final = Struct(">ihhih")
"""Size, SaslHandshake (17), version 1, correlation id, no client id."""
_NO_MECHANISM: Final = b"?"


def speaks_tls(address: Address) -> bool:
    """Whether something answers a TLS handshake there. Whether its certificate is good does not matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=address[0]),
        ):
            return True
    except ssl.SSLError as error:
        # An alert is an answer in TLS, too: it did not like what we offered.
        return bool(error.reason) and "ALERT" in str(error.reason)
    except OSError:
        return False


def wants_sasl(address: Address) -> bool:
    """Whether a listener without TLS there expects a login: it names its mechanisms to who asks for one that it cannot have."""
    body = len(_NO_MECHANISM).to_bytes(2, "big") + _NO_MECHANISM
    try:
        with socket.create_connection(address, PATIENCE_S) as plain:
            plain.sendall(_HELLO.pack(_HELLO.size - 4 + len(body), 17, 1, 0, -1) + body)
            answer = plain.recv(10)
    except OSError:
        return False
    return answer[8:10] == b"\0\x21"  # 33, UNSUPPORTED_SASL_MECHANISM
