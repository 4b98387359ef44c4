"""A command line as Kafka's tools read it (their library is JOptSimple).

Options are long words. A value follows, or stands behind `=`, and may begin with a dash. An option may be repeated. The
beginning of a name is enough if only one option begins so. Wrong use is exit code 1, as is --help.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn


class ToolError(Exception):
    """The tool says this on standard error and exits with 1."""


class UsageError(ToolError):
    """The same, and the options after it."""


class Option(NamedTuple):
    name: str
    help: str
    value: str | None = None
    """What the value is; None: the option takes none."""
    default: str | None = None
    optional: bool = False
    """The value may be left out."""
    short: str | None = None


class Parsed:
    """What was given. `order` has the options as they came."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.order: list[tuple[str, str | None]] = []
        self._defaults = {option.name: option.default for option in options}

    def has(self, name: str) -> bool:
        assert name in self._defaults, name
        return any(given == name for given, _ in self.order)

    def values(self, name: str) -> list[str]:
        found = [value for given, value in self.order if given == name and value is not None]
        default = self._defaults[name]
        return found or ([] if default is None else [default])

    def value(self, name: str) -> str | None:
        """KeyError if the option is none of the tool's."""
        values = self.values(name)
        if len(values) > 1:
            raise ToolError(
                f"Found multiple arguments for option {name}, but you asked for only one"
            )
        return values[0] if values else None

    def text(self, name: str) -> str:
        """Of an option that is required, or has a default."""
        value = self.value(name)
        assert value is not None, name
        return value

    def number(self, name: str) -> int | None:
        value = self.value(name)
        return None if value is None else number_of(name, value)


def number_of(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ToolError(f"Cannot parse argument '{text}' of option {name}") from None


HELP = Option("help", "Print usage information.")
VERSION = Option("version", "Display Kafka version.")
BOOTSTRAP = Option("bootstrap-server", "REQUIRED: The servers to connect to.", "host:port,...")
COMMAND_CONFIG = Option(
    "command-config", "Property file containing configs to be passed to Admin Client.", "file"
)
KAFKA_VERSION = "4.3.1"
"""The version of Kafka whose tools these follow."""


class OptionParser:
    def __init__(self, about: str, options: Iterable[Option]) -> None:
        self._about = about
        self._options = [HELP, VERSION, *options]
        self._names = {option.name: option for option in self._options}
        self._shorts = {option.short: option for option in self._options if option.short}

    def parse(self, words: Sequence[str]) -> Parsed:
        """ToolError for what cannot be read. Prints help or the version, and exits, where that is asked for."""
        parsed = Parsed(self._options)
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                continue  # Kafka's tools ignore words that are no options
            option, value = self._option(word)
            if option.value is not None and value is None:
                if rest and not (option.optional and rest[0].startswith("-")):
                    value = rest.pop(0)
                elif not option.optional:
                    raise ToolError(f"Option {option.name} requires an argument")
            parsed.order.append((option.name, value))
        if not words or parsed.has("help"):
            self.usage(self._about)
        if parsed.has("version"):
            print(KAFKA_VERSION)
            raise SystemExit(0)
        return parsed

    def _option(self, word: str) -> tuple[Option, str | None]:
        name, equals, value = word.partition("=")
        given = value if equals else None
        if not word.startswith("--"):
            short = self._shorts.get(name[1:])
            if short is not None:
                return short, given
        stem = name.lstrip("-")
        if stem in self._names:
            return self._names[stem], given
        found = [option for key, option in self._names.items() if stem and key.startswith(stem)]
        if len(found) != 1:
            raise ToolError(f"{stem} is not a recognized option")
        return found[0], given

    def require(self, parsed: Parsed, *names: str) -> None:
        for name in names:
            if not parsed.has(name):
                self.usage(f'Missing required argument "[{name}]"')

    def forbid(self, parsed: Parsed, used: str, *others: str) -> None:
        """With `used`, none of the others."""
        if parsed.has(used):
            for other in others:
                if parsed.has(other):
                    self.usage(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def usage(self, message: str) -> NoReturn:
        print(message, file=sys.stderr)
        rows = []
        for option in self._options:
            value = f" <{option.value}>" if option.value is not None else ""
            rows.append((f"--{option.name}{value}", option.help))
        width = min(max(len(left) for left, _ in rows), 38)
        print(f"{'Option':<{width}}  Description", file=sys.stderr)
        print(f"{'------':<{width}}  -----------", file=sys.stderr)
        for left, right in rows:
            print(f"{left:<{width}}  {right}", file=sys.stderr)
        raise SystemExit(1)
