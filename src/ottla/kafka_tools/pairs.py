"""Settings of a console tool: `name=value` words, and files of them."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kafka_tools.options import OptionParser, Parsed
from ottla.kafka_tools.session import properties


def pairs(words: Iterable[str]) -> dict[str, str]:
    """A word without `=` has an empty value."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def renamed(options: Parsed, parser: OptionParser, old: str, new: str, warning: str) -> str:
    """Which of two names of an option to read. The old one still works, and is warned of."""
    if options.has(old) and options.has(new):
        parser.usage(f"Options --{old} and --{new} cannot be specified together.")
    if options.has(old):
        print(
            f"{warning} --{old} is deprecated and will be removed in a future version. Use --{new} instead."
        )
        return old
    return new


def settings_of(options: Parsed, file: str, words: str) -> dict[str, str]:
    """Those of the words win."""
    return properties(options.value(file)) | pairs(options.values(words))
