"""Which cluster a command talks to, and as whom: what is named, what the environment says, what lies in a directory.

Without the command-line library, so that a command can be there at once (`top`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.errors import UNREACHABLE, USAGE, Failure

if TYPE_CHECKING:
    from ottla.client import BlockingClient, Client
    from ottla.local.cluster import LocalCluster


def directory_of(given: Path | None) -> Path:
    from ottla.local.cluster import default_directory

    return (given or default_directory()).absolute()


class Target(NamedTuple):
    """A cluster as a client reaches it."""

    addresses: Sequence[tuple[str, int]]
    """Of the named brokers, or of the running nodes of the cluster in the directory."""
    settings: Mapping[str, str]
    """Of Kafka's clients: from --command-config, or of the admin of a secure cluster on this machine."""
    file: Path | None
    """Where the settings are from."""


def addresses(
    bootstrap: str | None, directory: Path | None, command_config: Path | None = None
) -> Sequence[tuple[str, int]]:
    return target(bootstrap, directory, command_config).addresses


def client_settings(
    bootstrap: str | None, directory: Path | None, command_config: Path | None
) -> Mapping[str, str]:
    return target(bootstrap, directory, command_config).settings


def config_file(
    bootstrap: str | None, directory: Path | None, command_config: Path | None
) -> Path | None:
    """The file of these settings. An option wins over the environment, and that over the cluster's directory."""
    from ottla.local.client_files import admin_file

    if command_config is not None:
        return command_config
    if directory is None and (named := os.environ.get("OTTLA_CONFIG")):
        return Path(named)
    if bootstrap or (directory is None and os.environ.get("OTTLA_BOOTSTRAP")):
        return None
    file = admin_file(directory_of(directory))
    return file if file.exists() else None


def target(bootstrap: str | None, directory: Path | None, command_config: Path | None) -> Target:
    from ottla.client.command_config import read_command_config
    from ottla.config import ConfigError, split_address
    from ottla.local.client_files import admin_file
    from ottla.local.cluster import LocalCluster

    file = config_file(bootstrap, directory, command_config)
    if file is not None and file.suffix == ".json":
        raise _other_library(file)
    try:
        settings = {} if file is None else read_command_config(str(file))
    except ConfigError as error:
        raise Failure(f"--command-config: {error}", USAGE) from None
    if "ssl.ca.location" in settings:
        raise _other_library(file)
    text = bootstrap or (os.environ.get("OTTLA_BOOTSTRAP") if directory is None else None)
    if text is None and directory is None and file != admin_file(directory_of(None)):
        text = settings.get("bootstrap.servers")
    if text is None:
        cluster = LocalCluster.load(directory_of(directory))
        text = ",".join(node.address for node in cluster.running or cluster.nodes.values())
    try:
        reached = [split_address(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise Failure(f"--bootstrap: {error}", USAGE) from None
    return Target(reached, settings, file)


def _other_library(file: Path | None) -> Failure:
    return Failure(
        f"--command-config: {file}: these are settings of another client library; use java.properties"
        " (in a directory of DIR/clients it lies beside this file)",
        USAGE,
    )


def local_cluster(bootstrap: str | None, directory: Path | None) -> LocalCluster | None:
    """The cluster of the directory, unless brokers are named."""
    from ottla.local.cluster import LocalCluster

    named = bootstrap or (directory is None and os.environ.get("OTTLA_BOOTSTRAP"))
    return None if named else LocalCluster.load(directory_of(directory))


@contextmanager
def client_to(
    bootstrap: str | None, directory: Path | None, command_config: Path | None, timeout_s: float
) -> Iterator[BlockingClient]:
    """A client of the named cluster. If it speaks to a listener in the wrong way, the error says which way is right."""
    from ottla.client.command_config import client_from

    reached = target(bootstrap, directory, command_config)
    with _bad_settings_named(reached):
        made = client_from(reached.addresses, reached.settings, timeout_s=timeout_s)
    with made as blocking, advice_on_security(reached):
        yield blocking


def client_maker(reached: Target, *, client_id: str, timeout_s: float) -> Callable[[], Client]:
    """What makes clients on the loop that runs then, each with connections of its own."""
    import asyncio

    from ottla.client.client import Client
    from ottla.client.command_config import network_from
    from ottla.runtime.sockets import RealNetwork

    with _bad_settings_named(reached):
        network = network_from(reached.settings) or RealNetwork

    def connect() -> Client:
        made = network(asyncio.get_running_loop())
        return Client(made, reached.addresses, client_id=client_id, timeout_s=timeout_s)

    return connect


@contextmanager
def _bad_settings_named(reached: Target) -> Iterator[None]:
    """An error in the settings names their file."""
    try:
        yield
    except Exception as error:
        from ottla.client.security import SecuritySettingError

        if not isinstance(error, SecuritySettingError):
            raise
        raise Failure(f"--command-config: {reached.file}: {error}", USAGE) from None


@contextmanager
def advice_on_security(reached: Target) -> Iterator[None]:
    """Who speaks to a listener in the wrong way, and so gets no answer, learns which way is right."""
    from ottla.client import Unreachable
    from ottla.client.connections import LoginWanted, SecurityRefused

    try:
        yield
    except (Unreachable, ConnectionError, TimeoutError) as error:
        if isinstance(error, SecurityRefused) and not isinstance(error, LoginWanted):
            raise
        from ottla.client.wanted import missing_security

        wanted = missing_security(reached.addresses, reached.settings)
        if wanted is not None:
            raise Failure(wanted, UNREACHABLE) from None
        raise
