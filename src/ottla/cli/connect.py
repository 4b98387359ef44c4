"""How commands find the cluster that they talk to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import USAGE, Failure

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


def connect(bootstrap: str | None, directory: Path | None, timeout_s: float) -> BlockingClient:
    from ottla.client import BlockingClient

    return BlockingClient(addresses(bootstrap, directory), timeout_s=timeout_s)


def addresses(bootstrap: str | None, directory: Path | None) -> Sequence[tuple[str, int]]:
    """Of the named brokers, or of the running nodes of the cluster in the directory."""
    from ottla.cli.cluster import LocalCluster
    from ottla.cli.local import directory_of
    from ottla.config import split_address

    text = bootstrap or (os.environ.get("OTTLA_BOOTSTRAP") if directory is None else None)
    if text is None:
        cluster = LocalCluster.load(directory_of(directory))
        text = ",".join(node.address for node in cluster.running or cluster.nodes.values())
    try:
        return [split_address(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise Failure(f"--bootstrap: {error}", USAGE) from None
