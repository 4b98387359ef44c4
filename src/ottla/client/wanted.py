"""What a listener wants of its clients. It is asked when a plain client got no answer, so that the error can say why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from struct import Struct
from typing import Final

from ottla.client.connections import Address

PATIENCE_S: Final = 2.0
_TLS_ALERT: Final = 0x15
_HELLO: Final = Struct(">ihhih")
"""Size, SaslHandshake (17), version 1, correlation id, no client id."""
_NO_MECHANISM: Final = b"?"


def missing_security(addresses: Sequence[Address], settings: Mapping[str, str]) -> str | None:
    """What to tell a client with these settings that got no answer; None if security seems not to be the reason."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    for address in addresses:
        where = f"the broker at {address[0]}:{address[1]}"
        if protocol == "SSL" and wants_sasl(address, tls=True):
            return f"{where} wants a login after TLS: security.protocol=SASL_SSL, not SSL, and a sasl.jaas.config"
        if protocol == "SASL_PLAINTEXT" and speaks_tls(address):
            return f"{where} speaks TLS: security.protocol=SASL_SSL, not SASL_PLAINTEXT, and an ssl.truststore.location"
        if protocol != "PLAINTEXT":
            continue
        what = "TLS" if speaks_tls(address) else "SASL" if wants_sasl(address) else None
        if what is not None:
            return (
                f"{where} speaks {what}; give --command-config FILE with security.protocol and what goes with it (a secure"
                " cluster of ottla has such files in DIR/clients)"
            )
    return None


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def speaks_tls(address: Address) -> bool:
    """Whether something answers a TLS handshake there. Whether its certificate is good does not matter here."""
    try:
        with (
            socket.create_connection(address, PATIENCE_S) as plain,
            _any_certificate().wrap_socket(plain, server_hostname=address[0]),
        ):
            return True
    except ssl.SSLError as error:
        # An alert is an answer in TLS, too: it did not like what we offered.
        return bool(error.reason) and "ALERT" in str(error.reason)
    except OSError:
        return False


def wants_sasl(address: Address, *, tls: bool = False) -> bool:
    """Whether a listener there, with or without TLS, expects a login: it names its mechanisms to who asks for one that it cannot have."""
    body = len(_NO_MECHANISM).to_bytes(2, "big") + _NO_MECHANISM
    try:
        with ExitStack() as opened:
            connection = opened.enter_context(socket.create_connection(address, PATIENCE_S))
            if tls:
                context = _any_certificate()
                connection = opened.enter_context(
                    context.wrap_socket(connection, server_hostname=address[0])
                )
            connection.sendall(_HELLO.pack(_HELLO.size - 4 + len(body), 17, 1, 0, -1) + body)
            answer = connection.recv(10)
    except OSError:
        return False
    return answer[8:10] == b"\0\x21"  # 33, UNSUPPORTED_SASL_MECHANISM
