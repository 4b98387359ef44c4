"""Style as a test: which package may import which, what the deterministic cores may not touch, dead files.

The table below is the house plan of docs/ARCHITECTURE.md. A new arrow is a decision: draw it there too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

ARROWS: dict[str, set[str]] = {
    "wire": set(),
    "runtime": set(),
    "config": set(),
    "records": {"wire"},
    "log": {"records", "wire"},
    "replica": {"log", "records", "wire"},
    "metadata": {"log", "records", "wire"},
    "controller": {"metadata", "wire", "config"},
    "coordinators": {"records", "wire"},
    "client": {"wire", "records", "runtime"},
    "broker": {
        "wire",
        "records",
        "log",
        "replica",
        "metadata",
        "controller",
        "coordinators",
        "config",
    },
    # Its checkers look into every part of a broker.
    "sim": {
        "broker",
        "controller",
        "coordinators",
        "replica",
        "metadata",
        "log",
        "records",
        "wire",
        "config",
        "runtime",
    },
    "cli": {
        "wire",
        "records",
        "log",
        "replica",
        "metadata",
        "controller",
        "coordinators",
        "broker",
        "client",
        "config",
        "runtime",
        "sim",
        "spark",
    },
    "testing": {"cli", "client"},
    "spark": {"client", "config", "records", "wire"},
}

RUNTIME_IMPLEMENTATIONS = {"ottla.runtime.files", "ottla.runtime.real", "ottla.runtime.sockets"}

# What decides must not see the machine: the simulator could not replay it.
CORES = ("log", "replica", "metadata", "controller", "coordinators")
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
BANNED_CALLS_IN_CORES = {"open", "print", "input", "id"}

# Outside the seams, the command line and Spark's processes nobody reads a clock or draws a number by himself.
SEAMS = ("runtime", "cli", "testing", "spark")
SEAM_MODULES = {
    "ottla.sim.borrowed_time",  # gives third-party code the simulator's time and chance
    "ottla.sim.mutate",  # a command around simulations, which says how many real seconds they took
    "ottla.sim.__main__",  # likewise
    "ottla.sim.scenario",  # which says how much processor time a run took, beside what happened in it
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


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of src by dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (path, ast.parse(path.read_text(), str(path)))
    return found


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


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


def place(module: str, line: int) -> str:
    return f"{modules()[module][0].relative_to(ROOT)}:{line}"


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(sorted(set(faults))), pytrace=False)


def test_packages_import_only_along_the_arrows() -> None:
    faults = []
    for module, (_, tree) in modules().items():
        package = package_of(module)
        if not package:
            continue
        assert package in ARROWS, f"{package} is not in the house plan: add it there and here"
        for line, name in imports(tree):
            target = package_of(name)
            if not name.startswith("ottla.") or target == package or target not in ARROWS:
                continue
            if target == "runtime" and name not in RUNTIME_IMPLEMENTATIONS:
                continue  # the protocols are for everybody
            if target not in ARROWS[package]:
                faults.append(f"{place(module, line)}: {package} may not import {name}")
    report(faults)


def test_cores_do_not_see_the_machine() -> None:
    faults = []
    for module, (_, tree) in modules().items():
        if package_of(module) not in CORES:
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
    """By another module, by a test, or as an entry point."""
    used = {
        "ottla",
        "ottla.cli.main",
        "ottla.cli.node",
        "ottla.testing.plugin",
        "ottla.testing.warden",
    }
    trees = [(name, tree) for name, (_, tree) in modules().items()]
    for path in (ROOT / "tests").rglob("*.py"):
        trees.append(("", ast.parse(path.read_text(), str(path))))
    for user, tree in trees:
        used.update(name for _, name in imports(tree) if name != user)
    used.update(name.rpartition(".")[0] for name in list(used))
    dead = [name for name in modules() if name not in used and not _is_entry(name)]
    report([f"{modules()[name][0].relative_to(ROOT)}: nobody imports it" for name in dead])


def _is_entry(name: str) -> bool:
    path, _ = modules()[name]
    return path.name in ("__init__.py", "__main__.py")


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


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports test files by their bare name."""
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        assert path.name not in seen, f"{path} and {seen[path.name]} have the same name"
        seen[path.name] = path
