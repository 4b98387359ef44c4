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
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for the cluster.", min=0.1)
]


@contextmanager
def connect(
    bootstrap: str | None,
    directory: Path | None,
    timeout_s: float,
    *,
    topic: str | None = None,
    by_controller: bool = False,
) -> Iterator[BlockingClient]:
    """A client for a command. If `topic` does not exist, the error names a similar one. `by_controller`: the active
    controller must do it, so that without an answer the outcome is unknown."""
    from ottla.client import BlockingClient
    from ottla.wire.errors import ErrorCode, KafkaError

    with BlockingClient(addresses(bootstrap, directory), timeout_s=timeout_s) as blocking:
        try:
            yield blocking
        except KafkaError as error:
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
            if topic is not None and error.code in unknown:
                _require_topic(blocking, topic)
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


def addresses(bootstrap: str | None, directory: Path | None) -> Sequence[tuple[str, int]]:
    """The addresses of the named brokers, or of the running nodes of the cluster in the directory."""
    from ottla.cli.local import directory_of
    from ottla.config import split_address
    from ottla.local.cluster import LocalCluster

    text = bootstrap or (os.environ.get("OTTLA_BOOTSTRAP") if directory is None else None)
    if text is None:
        cluster = LocalCluster.load(directory_of(directory))
        text = ",".join(node.address for node in cluster.running or cluster.nodes.values())
    try:
        return [split_address(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise Failure(f"--bootstrap: {error}", USAGE) from None
