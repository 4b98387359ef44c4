"""The command lines of those tools of Kafka that have sub-commands. Wrong use is exit code 1, help is 0."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class SubcommandParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(1)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """--bootstrap-server or --bootstrap-controller, and --command-config."""
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--bootstrap-server", metavar="HOST:PORT,…")
    to.add_argument("--bootstrap-controller", metavar="HOST:PORT,…")
    parser.add_argument("--command-config", metavar="FILE")
