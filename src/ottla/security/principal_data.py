"""A principal as bytes, as brokers send it to controllers: Kafka's DefaultPrincipalData behind its version.

A broker that forwards a client's request names the client in the Envelope. Apache Kafka's nodes write and read the same bytes.
"""

from __future__ import annotations

from ottla.security.principals import Principal, TokenPrincipal
from ottla.wire.record_codec import (
    BOOL,
    STRING,
    CoordinatorValue,
    MalformedRecord,
    message,
    read_value,
    wire,
    write_value,
)


@message
class DefaultPrincipalData(CoordinatorValue):
    """Version 0, which is flexible. It has a version in front like the values of coordinators' records."""

    type: str = wire(STRING)
    name: str = wire(STRING)
    token_authenticated: bool = wire(BOOL)


def principal_to_bytes(principal: Principal) -> bytes:
    return write_value(
        DefaultPrincipalData(
            type=principal.type,
            name=principal.name,
            token_authenticated=principal.is_by_token,
        )
    )


def principal_from_bytes(raw: bytes) -> Principal:
    """ValueError if these bytes are no principal, or one of a version that we do not know."""
    try:
        data = read_value(DefaultPrincipalData, raw)
    except MalformedRecord as error:
        raise ValueError(f"no principal: {error}") from error
    kind = TokenPrincipal if data.token_authenticated else Principal
    return kind(data.type, data.name)
