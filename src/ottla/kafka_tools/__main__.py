"""`python -m ottla.kafka_tools kafka-topics …`: what the launchers of `ottla tools link` run."""

from __future__ import annotations

import sys

from ottla.kafka_tools.names import MODULES, run, tool_of


def main() -> int:
    name = tool_of(sys.argv[1]) if len(sys.argv) > 1 else None
    if name is None:
        print(f"usage: python -m ottla.kafka_tools TOOL …; one of {', '.join(MODULES)}")
        return 1
    return run(name, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
