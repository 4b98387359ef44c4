"""How a tool finds its cluster: `--bootstrap-server` and `--command-config`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client import BlockingClient, Client
from ottla.client.admin import Admin
from ottla.client.command_config import client_from, is_secured, read_command_config
from ottla.client.connections import SecurityRefused, Unreachable
from ottla.config.values import ConfigError, split_address
from ottla.kafka_tools.options import ToolError

T = TypeVar("T")

API_TIMEOUT_MS = "default.api.timeout.ms"
BOOTSTRAP_HELP = "Please provide valid host:port like host1:9091,host2:9092"


class ToolSession(NamedTuple):
    client: Client
    admin: Admin


def properties(path: str | None) -> dict[str, str]:
    """What a tool takes from the file of --command-config. ToolError if it cannot be read."""
    if path is None:
        return {}
    try:
        return read_command_config(path)
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
        try:
            return blocking.run(work(ToolSession(blocking.client, Admin(blocking.client))))
        except SecurityRefused:
            raise
        except (Unreachable, ConnectionError, TimeoutError):
            # Imported here: TLS takes time to import, and is asked for only after a failure.
            from ottla.client.wanted import missing_security

            wanted = missing_security(addresses(bootstrap), settings)
            if wanted is not None:
                raise ToolError(wanted) from None
            raise


def _client(
    bootstrap: str, settings: Mapping[str, str], client_id: str, timeout_ms: int
) -> BlockingClient:
    known = addresses(bootstrap)
    client_id = settings.get("client.id", client_id)
    timeout_s = int(settings.get(API_TIMEOUT_MS, timeout_ms)) / 1000
    if not is_secured(settings):
        return BlockingClient(known, client_id=client_id, timeout_s=timeout_s)
    # Imported here: few clusters need TLS or SASL, and it takes time.
    from ottla.client.security import SecuritySettingError

    try:
        return client_from(known, settings, client_id=client_id, timeout_s=timeout_s)
    except SecuritySettingError as error:
        raise ToolError(str(error)) from None


def addresses(bootstrap: str) -> Sequence[tuple[str, int]]:
    try:
        found = [split_address(part.strip()) for part in bootstrap.split(",") if part.strip()]
    except ValueError as error:
        raise ToolError(f"{error}. {BOOTSTRAP_HELP}") from None
    if not found:
        raise ToolError(BOOTSTRAP_HELP)
    return found
