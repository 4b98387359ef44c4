"""`ottla settings`, and settings as words of a command line."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, print_table


def parse_configs(words: list[str] | None) -> dict[str, str]:
    configs = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name or not word.isprintable():
            raise Failure(f"--config {word!r}: is not NAME=VALUE", USAGE)
        configs[name.strip()] = value.strip()
    return configs


def settings(
    part: Annotated[
        str, typer.Argument(metavar="[PART]", help="Only those with this in their name.")
    ] = "",
    format: FormatOption = Format.table,
) -> None:
    """Every setting of a node, with its default and what it means.

    Their names are Kafka's; those that begin with ottla are our own. They go into a properties file
    (ottla node --config), into the environment (KAFKA_NODE_ID is node.id), or after ottla up -c.
    """
    from ottla.config.node_settings import TABLE, Settings

    defaults = Settings.defaults()
    rows = [(row.name, defaults[row.name], row.doc) for row in TABLE if part in row.name]
    if not rows:
        raise Failure(f"no setting with {part} in its name (ottla settings lists all)", NOT_FOUND)
    if format is Format.json:
        print_json([dict(zip(("name", "default", "doc"), row, strict=True)) for row in rows])
    else:
        print_table(("setting", "default", "meaning"), rows)
