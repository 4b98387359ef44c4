"""The options by which commands name a cluster, and a client for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import NOT_FOUND, UNREACHABLE, Failure
from ottla.cli.reaching import (
    addresses,
    client_settings,
    client_to,
    config_file,
    local_cluster,
)

if TYPE_CHECKING:
    from ottla.client import BlockingClient

__all__ = [
    "BootstrapOption",
    "CommandConfigOption",
    "DirOption",
    "TimeoutOption",
    "addresses",
    "client_settings",
    "client_to",
    "config_file",
    "connect",
    "local_cluster",
]

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
            # Some commands are patient with a cluster that does not answer for a while, but not with a wrong address.
            blocking.run(blocking.client.connections.to_any())
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
