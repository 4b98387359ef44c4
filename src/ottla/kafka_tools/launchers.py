"""Kafka's names as commands: small launchers in a directory that the user chooses.

A launcher never takes the place of another program unless the user insists: neither a file in that directory, nor a tool
of a real Kafka that the PATH finds later.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ottla.kafka_tools.names import MODULES

MARK = "# Written by: ottla tools link"


def file_names() -> list[str]:
    """Every tool with and without `.sh`: Kafka's own archive has one, many packages of it have the other."""
    return [name + ending for name in sorted(MODULES) for ending in ("", ".sh")]


def objections(directory: Path, path: Sequence[str]) -> list[str]:
    """Why launchers in this directory would take the place of something else, with this PATH."""
    foreign = [
        f"{file} exists and is not a launcher of ottla"
        for name in file_names()
        if _is_foreign(file := directory / name)
    ]
    where = [Path(each).absolute() for each in path if each]
    if directory.absolute() not in where:
        return foreign
    later = where[where.index(directory.absolute()) + 1 :]
    return foreign + [
        f"{name} in {directory} would come before {each / name} on the PATH"
        for name in file_names()
        for each in later
        if _is_foreign(each / name)
    ]


def elsewhere(directory: Path, path: Sequence[str]) -> Path | None:
    """A tool of another Kafka that the PATH finds now, if any."""
    for each in filter(None, path):
        for name in file_names():
            file = Path(each).absolute() / name
            if file.parent != directory.absolute() and _is_foreign(file):
                return file
    return None


def write(directory: Path) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name in file_names():
        file = directory / name
        tool = name.removesuffix(".sh")
        command = f'exec {shlex.quote(sys.executable)} -m ottla.kafka_tools {tool} "$@"'
        file.unlink(missing_ok=True)  # perhaps a link: what it points to stays
        file.write_text(f"#!/bin/sh\n{MARK}\n{command}\n")
        file.chmod(0o755)
        written.append(file)
    return written


def remove(directory: Path) -> list[Path]:
    """Only what `write` wrote."""
    ours = [file for name in file_names() if _is_ours(file := directory / name)]
    for file in ours:
        file.unlink()
    return ours


def path_of(environment: str | None) -> list[str]:
    return (environment or "").split(os.pathsep)


def _is_ours(file: Path) -> bool:
    try:
        return MARK in _first_lines(file)
    except (OSError, UnicodeDecodeError):
        return False


def _first_lines(file: Path) -> Iterable[str]:
    with file.open(encoding="utf-8") as lines:
        return [line.rstrip("\n") for line, _ in zip(lines, range(2), strict=False)]


def _is_foreign(file: Path) -> bool:
    return os.path.lexists(file) and not _is_ours(file)
