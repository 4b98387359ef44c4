"""How a tool finds its cluster: `--bootstrap-server` and `--command-config`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client import BlockingClient, Client
from ottla.client.admin import Admin
from ottla.config.sources import read_properties
from ottla.config.values import ConfigError, split_address
from ottla.kafka_tools.options import ToolError

T = TypeVar("T")

API_TIMEOUT_MS = "default.api.timeout.ms"
SECURITY_PROTOCOL = "security.protocol"
PLAINTEXT = "PLAINTEXT"
BOOTSTRAP_HELP = "Please provide valid host:port like host1:9091,host2:9092"


class ToolSession(NamedTuple):
    client: Client
    admin: Admin


def properties(path: str | None) -> dict[str, str]:
    """What a tool takes from the file of --command-config. ToolError if it cannot be read."""
    if path is None:
        return {}
    try:
        return {entry.name: entry.value for entry in read_properties(path)}
    except ConfigError as error:
        raise ToolError(str(error)) from None


def with_cluster(
    bootstrap: str,
    settings: Mapping[str, str],
    client_id: str,
    work: Callable[[ToolSession], Coroutine[Any, Any, T]],
    timeout_ms: int = 60_000,
) -> T:
    """Connect, do the work, and close."""
    with _client(bootstrap, settings, client_id, timeout_ms) as blocking:
        return blocking.run(work(ToolSession(blocking.client, Admin(blocking.client))))


def _client(
    bootstrap: str, settings: Mapping[str, str], client_id: str, timeout_ms: int
) -> BlockingClient:
    known = addresses(bootstrap)
    if settings.get(SECURITY_PROTOCOL, PLAINTEXT).upper() != PLAINTEXT:
        # Imported here: few clusters need TLS or SASL, and it takes time.
        from ottla.spark.command_config import client_of, kafka_options
        from ottla.spark.errors import OptionError

        try:
            return client_of(kafka_options(bootstrap, settings))
        except OptionError as error:
            raise ToolError(str(error)) from None
    return BlockingClient(
        known,
        client_id=settings.get("client.id", client_id),
        timeout_s=int(settings.get(API_TIMEOUT_MS, timeout_ms)) / 1000,
    )


def addresses(bootstrap: str) -> Sequence[tuple[str, int]]:
    try:
        found = [split_address(part.strip()) for part in bootstrap.split(",") if part.strip()]
    except ValueError as error:
        raise ToolError(f"{error}. {BOOTSTRAP_HELP}") from None
    if not found:
        raise ToolError(BOOTSTRAP_HELP)
    return found
