"""TLS and SASL for Spark: `client.security` under the names of Spark's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.client import BlockingClient
from ottla.client.secured import network_of
from ottla.client.security import Security, SecuritySettingError
from ottla.spark.errors import OptionError
from ottla.spark.options import KAFKA, Options

if TYPE_CHECKING:
    from ottla.spark.connect.connection import ConnectionOptions

AnyClient = TypeVar("AnyClient", bound=BlockingClient)


def security_of(options: Options) -> Security:
    """OptionError if the options cannot be followed."""
    named = {name: options.text(name) for name in options.names() if name.startswith(KAFKA)}
    given = {name.removeprefix(KAFKA): text for name, text in named.items() if text is not None}
    try:
        return Security.of(given)
    except SecuritySettingError as error:
        raise OptionError(KAFKA + error.name, error.why) from None


def client_for(
    kind: type[AnyClient], options: ConnectionOptions, *, patient: bool = False
) -> AnyClient:
    """A client that talks to brokers as the options say. A `patient` one waits if nobody answers."""
    return kind(
        options.bootstrap,
        client_id=options.client_id,
        timeout_s=options.request_timeout_s,
        patient=patient,
        network=network_of(options.security),
    )
