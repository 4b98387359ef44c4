"""Every fault of a file of settings at once. A node stops at the first; whoever writes a file wants to see all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config.names import HARMLESS, refuse_unknown
from ottla.config.node_settings import NAMES, TABLE, Settings
from ottla.config.security_settings import PREFIX
from ottla.config.sources import Entry, read_lines, repeated
from ottla.config.traps import topic_traps
from ottla.config.values import ConfigError


class CheckedFile(NamedTuple):
    wrong: list[str]
    """Why a node would not start; one line each, with the place in the file."""
    notes: list[str]
    """What is allowed, and does nothing or is often regretted."""


def check_file(path: str) -> CheckedFile:
    try:
        entries = read_lines(path)
    except ConfigError as error:
        return CheckedFile([str(error)], [])
    wrong = [*repeated(entries), *(fault for each in entries if (fault := _fault(each)))]
    notes = [
        f"{each.where}: {each.name}: has no effect here"
        for each in entries
        if each.name in HARMLESS
    ]
    if not wrong:
        # Each is right; what they say together is checked as a node does it.
        values = {each.name: each.value for each in entries}
        try:
            notes += _regretted(path, Settings.of(values, path), frozenset(values))
        except ConfigError as error:
            wrong.append(str(error))
    return CheckedFile(wrong, notes)


def faults_of(values: Mapping[str, str], source: str) -> list[str]:
    """What a node would not take of these settings, each for itself."""
    entries = (Entry(name, value, source) for name, value in values.items())
    return [fault for each in entries if (fault := _fault(each))]


def _fault(entry: Entry) -> str | None:
    try:
        if entry.name.startswith(PREFIX) and entry.marked:
            return None  # which listeners there are is known when all settings are
        if entry.name not in NAMES and entry.name not in HARMLESS:
            refuse_unknown(entry, NAMES)
        for row in TABLE:
            if entry.name in row.names:
                row.kind.parse(entry.value)
    except ConfigError as error:
        return str(error)
    except ValueError as error:
        return f"{entry.where}: {entry.name}: {error}"
    return None


def _regretted(path: str, settings: Settings, own: frozenset[str]) -> list[str]:
    """What topics would have that set nothing themselves. How many brokers there are is unknown; as many as replicas."""
    factor = settings.default_replication_factor
    traps = topic_traps(factor, settings.topic_defaults(), factor, own=own)
    return [f"{path}: new topics have {trap.what}: {trap.why}" for trap in traps]
