"""`ottla settings`, and settings as words of a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.errors import NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, count_of, print_json, print_table


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


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A properties file of a node.")],
    format: FormatOption = Format.table,
) -> None:
    """Check a node's settings without starting it.

    Every line is checked, not only the first wrong one: names (with the nearest right one), values, settings
    that have no effect here, and settings that are right alone and wrong together. The exit code is 2 if the
    node would not start.
    """
    from ottla.config.checking import check_file

    report = check_file(str(file))
    if format is Format.json:
        print_json({"file": str(file), "wrong": report.wrong, "notes": report.notes})
    else:
        for line in (*report.wrong, *report.notes):
            print(line)
        if not report.wrong:
            print(f"{file}: a node would start with these settings")
    if report.wrong:
        raise Failure(f"{file}: {count_of(len(report.wrong), 'wrong setting')}", USAGE)
