"""The plan of the house: which room may import which, and what the sources import in fact.

A package is one room, unless it has sub-packages: then each of those is a room, and so is each module beside them.
`tests/test_tidy.py` holds the sources to this table; `scripts/draw-house` draws docs/ARCHITECTURE.md's plan from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"

_RECORDS = {"wire"}
_LOG = {"records", "wire"}
_BROKER = {"config", "log", "losses", "metadata", "records", "replica", "security", "wire"}
_COORDINATORS = {"coordinators.groups", "coordinators.shard", "coordinators.transactions"}
_WHOLE_BROKER = {
    "broker.apis",
    "broker.cluster",
    "broker.coordination",
    "broker.node",
    "broker.observability",
    "broker.replication",
    "broker.server",
}
_PRODUCT = _BROKER | _COORDINATORS | _WHOLE_BROKER | {"controller", "event_log", "raft"}

_SIM = {"sim.clients", "sim.cluster", "sim.engine", "sim.faults", "sim.oracle", "sim.scripts"}

_LAB = _PRODUCT | _SIM | {"broker.design", "runtime"}

ARROWS: dict[str, set[str]] = {
    "wire": set(),
    "events": {"wire"},
    "runtime": {"events"},
    "config": {"patterns", "security"},
    "metrics": set(),
    "patterns": set(),
    "security": {"wire"},
    "telemetry": {"config", "metrics", "records", "security", "wire"},
    "records": _RECORDS,
    "losses": _LOG,
    "log": _LOG | {"losses"},
    "replica": _LOG | {"log"},
    "raft": _LOG | {"log", "metadata"},
    "metadata": {"wire"},
    "controller": {"config", "metadata", "security", "wire"},
    "coordinators.shard": {"events", "wire"},
    "coordinators.timers": {"wire"},
    "coordinators.groups": {
        "patterns",
        "coordinators.shard",
        "coordinators.timers",
        "events",
        "records",
        "wire",
    },
    "coordinators.transactions": {
        "coordinators.shard",
        "coordinators.timers",
        "events",
        "records",
        "wire",
    },
    "broker.server": {"config", "metadata", "security", "wire"},
    "broker.cluster": _BROKER | {"balance", "broker.server", "controller", "raft"},
    "broker.replication": _BROKER | {"balance", "broker.cluster", "broker.server"},
    "broker.coordination": _BROKER
    | _COORDINATORS
    | {"broker.cluster", "broker.replication", "broker.server"},
    "broker.apis": _BROKER
    | _COORDINATORS
    | {"broker.cluster", "broker.coordination", "broker.replication", "broker.server", "raft"}
    | {"metrics", "patterns", "telemetry"},
    "event_log": {"events", "records", "wire"},
    "broker.design": {"broker.cluster", "broker.replication", "config", "controller", "replica"},
    "broker.observability": _BROKER
    | _COORDINATORS
    | (_WHOLE_BROKER - {"broker.node", "broker.observability"})
    | {"controller", "event_log", "metrics", "raft", "runtime"},
    "broker.node": _BROKER | (_WHOLE_BROKER - {"broker.node"}) | {"broker.design", "raft"},
    "balance": set(),
    "client": {"balance", "config", "losses", "records", "runtime", "security", "wire"},
    # Kafka's tools decode every file that a node writes, and no tool imports what it does not need.
    "kafka_tools": {
        "client",
        "config",
        "controller",
        "coordinators.groups",
        "coordinators.transactions",
        "log",
        "metadata",
        "raft",
        "records",
        "runtime",
        "security",
        "wire",
    },
    # Its checkers look into every part of a broker.
    "sim": {"sim.engine"},
    "sim.engine": {"runtime"},
    "sim.cluster": {"broker.node", "config", "raft", "sim.engine"},
    "sim.oracle": _PRODUCT | {"sim.cluster", "sim.engine"},
    "sim.clients": {
        "balance",
        "client",
        "coordinators.groups",
        "log",
        "metadata",
        "raft",
        "records",
        "security",
        "sim.cluster",
        "sim.engine",
        "sim.oracle",
        "wire",
    },
    "sim.faults": _PRODUCT | {"sim.clients", "sim.cluster", "sim.engine", "sim.oracle"},
    "sim.scripts": _PRODUCT | {"sim.clients", "sim.cluster", "sim.engine", "sim.oracle"},
    "sim.run": _PRODUCT
    | {"client", "sim.clients", "sim.cluster", "sim.engine", "sim.faults", "sim.oracle"},
    "sim.mutations": _PRODUCT | {"balance", "client", "sim.cluster", "sim.engine", "sim.run"},
    "sim.mutate": {"sim.mutations", "sim.run"},
    "sim.__main__": {"cli"},
    # The lab exchanges parts of a node, and looks at all of it; nothing of the product knows the lab.
    "lab.design": set(),
    "lab.results": set(),
    "lab.experiment": {"lab.results"},
    "lab.wire_counts": {"runtime", "sim.engine", "wire"},
    "lab.harness": _LAB | {"lab.wire_counts"},
    "lab.broker_link": {"broker.cluster", "broker.server", "config", "runtime", "wire"},
    "lab.open_loop": _SIM | {"lab.harness", "records", "wire"},
    "lab.zookeeper": _SIM | {"lab.wire_counts", "runtime"},
    "lab.commit": _LAB | {"lab.harness"},
    "lab.propagation": _LAB | {"lab.design", "lab.harness", "lab.wire_counts", "lab.zookeeper"},
    "lab.truncation": _LAB | {"lab.design", "lab.experiment", "lab.harness", "lab.results"},
    "lab.designs": _LAB
    | {"lab.broker_link", "lab.commit", "lab.design", "lab.harness", "lab.wire_counts"}
    | {"lab.propagation", "lab.zookeeper"},
    "lab.experiments": _LAB
    | {"lab.commit", "lab.design", "lab.designs", "lab.experiment", "lab.harness", "lab.results"}
    | {"lab.open_loop", "lab.propagation", "lab.truncation", "lab.wire_counts", "lab.zookeeper"},
    "lab.play": {"lab.results"},
    "lab.runner": {"lab.experiment", "lab.results", "sim.run"},
    "lab.report": {"lab.design", "lab.experiment", "lab.results", "lab.runner"},
    "local": {
        "broker.cluster",
        "broker.node",
        "broker.observability",
        "config",
        "controller",
        "log",
        "metadata",
        "raft",
        "runtime",
        "security",
        "wire",
    },
    "spark.errors": {"client", "wire"},
    "spark.columns": set(),
    "spark.kafka_names": set(),
    "spark.options": {"spark.errors", "spark.kafka_names", "wire"},
    "spark.archive": set(),
    "spark.reach": set(),
    "spark.command_config": {"client", "config", "spark.connect", "spark.options"},
    "spark.connect": {"client", "config", "runtime", "spark.errors", "spark.options", "wire"},
    "spark.read": {
        "event_log",
        "client",
        "records",
        "spark.columns",
        "spark.connect",
        "spark.errors",
        "spark.options",
        "wire",
    },
    "spark.write": {"client", "records", "spark.connect", "spark.errors", "spark.options", "wire"},
    "spark.source": {"spark.columns", "spark.errors", "spark.options", "spark.read", "spark.write"},
    "diagnosis": {
        "client",
        "config",
        "coordinators.groups",
        "coordinators.shard",
        "event_log",
        "local",
        "losses",
        "metadata",
        "raft",
        "records",
        "runtime",
        "security",
        "wire",
    },
    "doctor": {"config", "diagnosis", "local", "losses", "wire"},
    # A display needs the first two; neither knows of HTTP.
    "console.model": {"client", "diagnosis", "event_log"},
    "console.watch": {"balance", "client", "console.model", "event_log", "losses", "wire"},
    # Pure: the terminal is in `cli`.
    "console.top": {"console.model", "console.watch", "diagnosis", "event_log", "wire"},
    "console.web": {
        "balance",
        "client",
        "config",
        "console.model",
        "console.watch",
        "diagnosis",
        "event_log",
        "lab.design",
        "lab.truncation",
        "records",
        "runtime",
        "security",
        "wire",
    },
    "cli": _PRODUCT
    | {"console.top", "console.watch", "console.web"}
    | {
        "balance",
        "client",
        "diagnosis",
        "doctor",
        "event_log",
        "kafka_tools",
        "local",
        "patterns",
        "runtime",
        "sim.faults",
        "sim.run",
    }
    | {"lab.design", "lab.experiment", "lab.results", "lab.runner", "lab.report"}
    | {"lab.play", "lab.truncation"}
    | {"spark.archive", "spark.command_config", "spark.connect", "spark.errors"}
    | {"spark.options", "spark.reach", "spark.read"},
    "testing": {"client", "local", "security"},
}


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of src by dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (path, ast.parse(path.read_text(), str(path)))
    return found


@cache
def _packages_with_rooms() -> frozenset[str]:
    return frozenset(name.split(".")[1] for name in modules() if name.count(".") == 3)


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def room_of(module: str) -> str:
    """`ottla.broker.apis.fetch` is in `broker.apis`, `ottla.log.log` in `log`."""
    parts = module.split(".")[1:]
    has_rooms = bool(parts) and parts[0] in _packages_with_rooms()
    return ".".join(parts[: 2 if has_rooms else 1])


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported, with `from a import b` given as a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            assert node.module is not None
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def imported_modules(module: str) -> Iterator[tuple[int, str]]:
    """(line, module of ottla) of what a module imports; a package only where something of its own is taken."""
    for node in ast.walk(modules()[module][1]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules():
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in modules() else node.module
