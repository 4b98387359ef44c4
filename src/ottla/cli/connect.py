"""How commands find the cluster that they talk to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import NOT_FOUND, UNREACHABLE, USAGE, Failure

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.local.cluster import LocalCluster

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT,…",
        help="Any broker of any Kafka cluster. [default: $OTTLA_BOOTSTRAP, else the cluster of --dir]",
        show_default=False,
    ),
]
DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="The directory of a cluster on this machine. [default: as for ottla up]",
        show_default=False,
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties of Kafka's clients, for TLS and SASL, as Kafka's own tools take them."
        " [default: the admin's of a secure cluster in --dir, else $OTTLA_CONFIG]",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for the cluster.", min=0.1)
]


@contextmanager
def connect(
    bootstrap: str | None,
    directory: Path | None,
    timeout_s: float,
    command_config: Path | None = None,
    *,
    topic: str | None = None,
    by_controller: bool = False,
) -> Iterator[BlockingClient]:
    """A client for a command. If `topic` does not exist, the error names a similar one. `by_controller`: the active
    controller must do it, so that without an answer the outcome is unknown."""
    from ottla.wire.errors import ErrorCode, KafkaError

    with client_to(bootstrap, directory, command_config, timeout_s) as blocking:
        try:
            yield blocking
        except KafkaError as error:
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
            if topic is not None and error.code in unknown:
                _require_topic(blocking, topic)
            if error.code is ErrorCode.SECURITY_DISABLED:
                raise Failure(
                    "this cluster is open: it has no authorizer, so rights mean nothing (ottla up --secure makes a secure"
                    " one; docs/SECURITY.md says how to close one in place)"
                ) from None
            if by_controller and error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise _no_controller() from None
            raise
        except TimeoutError:
            if by_controller:
                raise _no_controller() from None
            raise


def _no_controller() -> Failure:
    return Failure(
        "no active controller answered in time (--timeout); the request may still be carried out"
        " (ottla status shows who runs)",
        UNREACHABLE,
    )


def _require_topic(blocking: BlockingClient, topic: str) -> None:
    from ottla.config.names import nearest

    names = [each.name for each in blocking.run(blocking.client.metadata()).topics]
    if topic not in names:
        raise Failure(f"no topic {topic}{nearest(topic, names)} (ottla topics list)", NOT_FOUND)


def addresses(
    bootstrap: str | None, directory: Path | None, command_config: Path | None = None
) -> Sequence[tuple[str, int]]:
    """The addresses of the named brokers, or of the running nodes of the cluster in the directory."""
    return _target(bootstrap, directory, command_config)[0]


def client_settings(
    bootstrap: str | None, directory: Path | None, command_config: Path | None
) -> dict[str, str]:
    """Of Kafka's clients: from --command-config, or of the admin of a secure cluster on this machine."""
    return _target(bootstrap, directory, command_config)[1]


def config_file(
    bootstrap: str | None, directory: Path | None, command_config: Path | None
) -> Path | None:
    """The file of these settings. An option wins over the environment, and that over the cluster's directory."""
    from ottla.cli.local import directory_of
    from ottla.local.client_files import admin_file

    if command_config is not None:
        return command_config
    if directory is None and (named := os.environ.get("OTTLA_CONFIG")):
        return Path(named)
    if bootstrap or (directory is None and os.environ.get("OTTLA_BOOTSTRAP")):
        return None
    file = admin_file(directory_of(directory))
    return file if file.exists() else None


def _target(
    bootstrap: str | None, directory: Path | None, command_config: Path | None
) -> tuple[Sequence[tuple[str, int]], dict[str, str]]:
    from ottla.cli.local import directory_of
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
        return [split_address(part) for part in text.split(",") if part.strip()], settings
    except ValueError as error:
        raise Failure(f"--bootstrap: {error}", USAGE) from None


def _other_library(file: Path | None) -> Failure:
    return Failure(
        f"--command-config: {file}: these are settings of another client library; use java.properties"
        " (in a directory of DIR/clients it lies beside this file)",
        USAGE,
    )


def local_cluster(bootstrap: str | None, directory: Path | None) -> LocalCluster | None:
    """The cluster of the directory, unless brokers are named."""
    from ottla.cli.local import directory_of
    from ottla.local.cluster import LocalCluster

    named = bootstrap or (directory is None and os.environ.get("OTTLA_BOOTSTRAP"))
    return None if named else LocalCluster.load(directory_of(directory))


@contextmanager
def client_to(
    bootstrap: str | None, directory: Path | None, command_config: Path | None, timeout_s: float
) -> Iterator[BlockingClient]:
    """A client of the named cluster. If it speaks to a listener in the wrong way, the error says which way is right."""
    from ottla.client import Unreachable
    from ottla.client.command_config import client_from
    from ottla.client.connections import LoginWanted, SecurityRefused

    reached, settings = _target(bootstrap, directory, command_config)
    try:
        made = client_from(reached, settings, timeout_s=timeout_s)
    except Exception as error:
        from ottla.client.security import SecuritySettingError

        if not isinstance(error, SecuritySettingError):
            raise
        file = config_file(bootstrap, directory, command_config)
        raise Failure(f"--command-config: {file}: {error}", USAGE) from None
    with made as blocking:
        try:
            yield blocking
        except (Unreachable, ConnectionError, TimeoutError) as error:
            if isinstance(error, SecurityRefused) and not isinstance(error, LoginWanted):
                raise
            from ottla.client.wanted import missing_security

            wanted = missing_security(reached, settings)
            if wanted is not None:
                raise Failure(wanted, UNREACHABLE) from None
            raise
