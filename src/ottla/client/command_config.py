"""A client from the file of a --command-config: the properties of Kafka's own clients.

A file, not arguments: it holds passwords, and every user may read the arguments of a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ottla.client.blocking import BlockingClient
from ottla.client.connections import Address
from ottla.config.sources import read_properties
from ottla.runtime.seams import Network


def read_command_config(path: str) -> dict[str, str]:
    """ConfigError if the file cannot be read."""
    return {entry.name: entry.value for entry in read_properties(path)}


def is_secured(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", "PLAINTEXT").strip().upper() != "PLAINTEXT"


def client_from(
    bootstrap: Sequence[Address],
    settings: Mapping[str, str],
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
) -> BlockingClient:
    """SecuritySettingError if a setting cannot be followed."""
    network = network_from(settings)
    return BlockingClient(bootstrap, client_id=client_id, timeout_s=timeout_s, network=network)


def network_from(
    settings: Mapping[str, str],
) -> Callable[[asyncio.AbstractEventLoop], Network] | None:
    """How such a client connects; None: by plain TCP. SecuritySettingError if a setting cannot be followed."""
    if not is_secured(settings):
        return None
    # Imported here: few clusters need TLS or SASL, and it takes time.
    from ottla.client.secured import network_of
    from ottla.client.security import Security

    return network_of(Security.of(settings))
