"""`ottla tools`: Kafka's names for the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.errors import CONFLICT, NOT_FOUND, Failure

app = typer.Typer(
    help="Kafka's command-line tools under Kafka's names.\n\n"
    "ottla kafka-topics …, ottla kafka-configs … always work, with Kafka's options and output.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Where the launchers are.")]


@app.command("list")
def names() -> None:
    """List the tools."""
    from ottla.kafka_tools.names import MODULES

    for name in sorted(MODULES):
        print(name)


@app.command()
def link(
    directory: Directory,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace other files, and come before another Kafka's tools."),
    ] = False,
) -> None:
    """Write launchers (kafka-topics, kafka-topics.sh, …) into a directory.

    A file that is not such a launcher is not replaced. A directory that the PATH searches before another Kafka's tools is
    refused.
    """
    import os

    from ottla.kafka_tools import launchers

    path = launchers.path_of(os.environ.get("PATH"))
    objections = [] if force else launchers.objections(directory, path)
    if objections:
        more = f" (and {len(objections) - 1} more)" if len(objections) > 1 else ""
        raise Failure(f"{objections[0]}{more}; --force does it all the same", CONFLICT)
    written = launchers.write(directory)
    print(f"{len(written)} launchers in {directory}")
    other = launchers.elsewhere(directory, path)
    if str(directory.absolute()) not in path:
        before = "" if other is None else f", before or after {other.parent}, which has other ones"
        print(f"{directory} is not on the PATH: add it{before}")


@app.command()
def unlink(directory: Directory) -> None:
    """Remove the launchers that `link` wrote."""
    from ottla.kafka_tools import launchers

    removed = launchers.remove(directory)
    if not removed:
        raise Failure(f"{directory} has no launchers of ottla", NOT_FOUND)
    print(f"{len(removed)} launchers removed from {directory}")
