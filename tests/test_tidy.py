"""Style as a test: which package may import which, what the deterministic cores may not touch, dead files.

The plan of the house is in `tests/support/house.py`. A new arrow there is a decision.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.kafka_tools.names import MODULES
from ottla.local.node_log import template
from support.house import (
    ARROWS,
    ROOT,
    imported_modules,
    imports,
    modules,
    package_of,
    room_of,
)

RUNTIME_IMPLEMENTATIONS = {
    "ottla.runtime.files",
    "ottla.runtime.frame_memory",
    "ottla.runtime.real",
    "ottla.runtime.socket_connection",
    "ottla.runtime.sockets",
}

# What decides must not see the machine: the simulator could not replay it.
CORES = (
    "log",
    "replica",
    "raft",
    "metadata",
    "controller",
    "coordinators",
    "metrics",
    "security",
    "balance",
    "console.model",
    "console.top",
)
BANNED_MODULES = {
    "asyncio",
    "concurrent",
    "glob",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
BANNED_CALLS_IN_CORES = {"open", "print", "input", "id"}

# Outside the seams, the command line and Spark's processes nobody reads a clock or draws a number by himself.
SEAMS = ("runtime", "local", "cli", "kafka_tools", "testing", "spark")
SEAM_MODULES = {
    "ottla.sim.engine.borrowed_time",  # gives third-party code the simulator's time and chance
    "ottla.sim.mutate",  # a command around simulations, which says how many real seconds they took
    "ottla.sim.run.scenario",  # which says how much processor time a run took, beside what happened in it
}
BANNED_ATTRIBUTES = {
    ("time", None),
    ("random", None),  # random.Random as a type is fine, see below
    ("uuid", "uuid1"),
    ("uuid", "uuid4"),
    ("os", "urandom"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}


# What something other than an import starts.
ENTRY_POINTS = {
    "ottla.cli.main",  # the command ottla (pyproject.toml)
    "ottla.testing.plugin",  # loaded by pytest (pyproject.toml)
    *(f"ottla.kafka_tools.{name}" for name in MODULES.values()),  # `names` imports one by its name
    "ottla.kafka_tools.__main__",  # python -m ottla.kafka_tools, which the launchers run
    "ottla.sim.mutate",  # a command of its own: python -m ottla.sim.mutate
    "ottla.sim.scripts.script",  # plays the golden scripts, which are in tests/scripts
}


def place(module: str, line: int) -> str:
    return f"{modules()[module][0].relative_to(ROOT)}:{line}"


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(sorted(set(faults))), pytrace=False)


def test_rooms_import_only_along_the_arrows() -> None:
    faults = []
    for module in modules():
        room = room_of(module)
        if not room:
            continue
        assert room in ARROWS or _is_bare_package(module), (
            f"{module} is in no room of the plan: add {room} to tests/support/house.py"
        )
        for line, name in imported_modules(module):
            target = room_of(name)
            if target == room or not target:
                continue
            if target == "events" or (target == "runtime" and name not in RUNTIME_IMPLEMENTATIONS):
                continue  # the protocols of the seams, and events, are for everybody
            if target not in ARROWS[room]:
                faults.append(f"{place(module, line)}: {room} may not import {name}")
    report(faults)


def _is_bare_package(module: str) -> bool:
    """The `__init__` of a package that has rooms, and imports nothing itself."""
    path, _ = modules()[module]
    return path.name == "__init__.py" and not list(imported_modules(module))


def test_every_room_of_the_plan_is_lived_in() -> None:
    rooms = {room_of(module) for module in modules()}
    report([f"{room}: nobody lives there" for room in ARROWS if room not in rooms])


def test_no_two_rooms_depend_on_each_other() -> None:
    """Also not by way of others: bytes sink through the house, and never rise again."""
    order: list[str] = []

    def visit(room: str, path: tuple[str, ...]) -> None:
        assert room not in path, "a circle: " + " -> ".join((*path, room))
        if room not in order:
            for below in sorted(ARROWS[room]):
                visit(below, (*path, room))
            order.append(room)

    for room in ARROWS:
        visit(room, ())


def test_cores_do_not_see_the_machine() -> None:
    faults = []
    for module, (_, tree) in modules().items():
        if package_of(module) not in CORES and room_of(module) not in CORES:
            continue
        for line, name in imports(tree):
            if name.split(".")[0] in BANNED_MODULES:
                faults.append(f"{place(module, line)}: a core may not import {name}")
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in BANNED_CALLS_IN_CORES
            ):
                faults.append(f"{place(module, node.lineno)}: a core may not call {node.func.id}()")
    report(faults)


def test_time_and_chance_come_through_the_seams() -> None:
    faults = []
    for module, (_, tree) in modules().items():
        if package_of(module) in SEAMS or module in SEAM_MODULES:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner, name = node.value.id, node.attr
                if (owner, name) == ("random", "Random"):
                    continue
                if (owner, name) in BANNED_ATTRIBUTES or (
                    (owner, None) in BANNED_ATTRIBUTES and _is_module(tree, owner)
                ):
                    faults.append(
                        f"{place(module, node.lineno)}: {owner}.{name} goes past the seams"
                    )
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    taken = (node.module or "", alias.name)
                    whole = (taken[0], None) in BANNED_ATTRIBUTES and taken != ("random", "Random")
                    if taken in BANNED_ATTRIBUTES or whole:
                        faults.append(
                            f"{place(module, node.lineno)}: {'.'.join(taken)} goes past the seams"
                        )
    report(faults)


def _is_module(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Import) and any(alias.name == name for alias in node.names)
        for node in ast.walk(tree)
    )


def test_every_module_says_why_it_exists() -> None:
    report(
        [
            f"{path.relative_to(ROOT)}: has no docstring"
            for path, tree in modules().values()
            if tree.body and ast.get_docstring(tree) is None
        ]
    )


def test_every_module_is_used() -> None:
    """By another module, or as an entry point. A module that only tests use is dead."""
    used = set(ENTRY_POINTS)
    for user, (_, tree) in modules().items():
        used.update(name for _, name in imports(tree) if name != user)
        used.update(name for name in _started(tree) if name != user)
    used.update(name.rpartition(".")[0] for name in list(used))
    dead = [name for name in modules() if name not in used and not _is_entry(name)]
    report([f"{modules()[name][0].relative_to(ROOT)}: nobody imports it" for name in dead])
    report([f"ENTRY_POINTS: there is no {name}" for name in ENTRY_POINTS if name not in modules()])


def _started(tree: ast.AST) -> Iterator[str]:
    """Modules that are run as processes of their own: `[sys.executable, "-m", "ottla.testing.warden"]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List):
            words = [each.value for each in node.elts if isinstance(each, ast.Constant)]
            yield from (str(name) for flag, name in pairwise(words) if flag == "-m")


def _is_entry(name: str) -> bool:
    path, _ = modules()[name]
    # Designs and experiments of the lab are found in their packages, by name.
    is_found = name.startswith(("ottla.lab.designs.", "ottla.lab.experiments."))
    return is_found or path.name in ("__init__.py", "__main__.py")


def test_nothing_is_left_half_done() -> None:
    faults = []
    for module, (path, tree) in modules().items():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if any(word in line for word in ("TODO", "FIXME", "XXX", "NotImplementedError")):
                faults.append(f"{place(module, number)}: {line.strip()}")
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ExceptHandler)
                and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
                and all(isinstance(statement, ast.Pass) for statement in node.body)
            ):
                faults.append(f"{place(module, node.lineno)}: swallows an exception")
    report(faults)


def test_every_test_can_fail() -> None:
    """It asserts something, by itself or through a function of ours that does."""
    functions = [
        (path, node)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    asserting = {"raises", "fail"} | {node.name for _, node in functions if _has_assert(node)}
    while more := {
        node.name
        for _, node in functions
        if node.name not in asserting and not asserting.isdisjoint(_named(node))
    }:
        asserting |= more
    report(
        [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} asserts nothing"
            for path, node in functions
            if node.name.startswith("test_") and node.name not in asserting
        ]
    )


def _has_assert(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(function))


def _named(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_no_file_is_left_out_of_the_check_of_types() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    unchecked = [each["module"] for each in settings if each.get("ignore_errors")]
    assert not unchecked, f"fix the types instead: {unchecked}"


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports test files by their bare name."""
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        assert path.name not in seen, f"{path} and {seen[path.name]} have the same name"
        seen[path.name] = path


def test_no_two_public_classes_have_one_name() -> None:
    """Whoever reads a name need not ask which of them is meant."""
    places: dict[str, list[str]] = {}
    for module, (_, tree) in modules().items():
        for node in tree.body if isinstance(tree, ast.Module) else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place(module, node.lineno))
    report([f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1])


def test_log_lines_are_a_fixed_text_and_then_key_and_value() -> None:
    """People look for the text, programs take the fields: `ottla.local.node_log` takes a line apart by its format."""
    faults = []
    for module, (_, tree) in modules().items():
        if package_of(module) == "spark":
            continue  # it logs in the processes of others
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LOG_METHODS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "logger")
            ):
                values = node.args[1:] if node.func.attr == "log" else node.args
                text = values[0] if values else None
                format = text.value if isinstance(text, ast.Constant) else None
                if isinstance(format, str) and (template(format) is None or "%r" in format):
                    faults.append(f"{place(module, node.lineno)}: {format}")
    report(faults)


def test_log_lines_have_as_many_values_as_places() -> None:
    """logging reports a mismatch to stderr at run time, and the line that an operator needs is lost."""
    faults = []
    for module, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LOG_METHODS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "logger"
            ):
                continue
            values = node.args[1:] if node.func.attr == "log" else node.args
            text = values[0] if values else None
            if not (isinstance(text, ast.Constant) and isinstance(text.value, str)):
                continue
            # Only keys of partitions are spread: a topic and a number.
            given = sum(2 if isinstance(value, ast.Starred) else 1 for value in values[1:])
            places = len(re.findall(r"%(?!%)[-+ #0-9.]*[a-zA-Z]", text.value.replace("%%", "")))
            if places != given:
                faults.append(f"{place(module, node.lineno)}: {places} places, {given} values")
    report(faults)
