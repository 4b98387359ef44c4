"""Which unit tests run which line of the product, so that a mutant meets only those that can notice it.

Measured once for a tree, by coverage.py, which names the test function for each line. Lines that run at import belong to
no test: a mutant there meets all tests of the modules that run anything of its file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from mutants.operators import Mutant

CONFIG = """\
[run]
source = {source}
dynamic_context = test_function
data_file = {data}
core = ctrace
"""


def measure(root: Path, cache: Path) -> dict[str, dict[int, list[str]]]:
    """By path below src and line: the tests, as pytest names them. Kept in `cache` for the next call."""
    kept = cache / "reach.json"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        config = cache / "coverage.ini"
        config.write_text(
            CONFIG.format(source=root / "src" / "ottla", data=cache / "coverage.data")
        )
        coverage = [sys.executable, "-m", "coverage", "run", f"--rcfile={config}"]
        subprocess.run(
            [
                *coverage,
                "-m",
                "pytest",
                "-q",
                "-m",
                "not slow",
                "-p",
                "no:cacheprovider",
                "tests/unit",
            ],
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"},
            check=True,
            stdout=sys.stderr,
        )
        kept.write_text(json.dumps(_read(root, cache / "coverage.data")))
    found = json.loads(kept.read_text())
    return {path: {int(n): tests for n, tests in lines.items()} for path, lines in found.items()}


def _read(root: Path, data_file: Path) -> dict[str, dict[int, list[str]]]:
    from coverage import CoverageData

    data = CoverageData(str(data_file))
    data.read()
    files = _test_files(root)
    found: dict[str, dict[int, list[str]]] = {}
    for measured in data.measured_files():
        path = Path(measured).relative_to(root / "src").as_posix()
        found[path] = {
            line: sorted({name for context in contexts for name in _node_id(context, files)})
            for line, contexts in data.contexts_by_lineno(measured).items()
        }
    return found


def _test_files(root: Path) -> dict[str, str]:
    """By the name of the module, as pytest imports it."""
    return {
        path.stem: path.relative_to(root).as_posix()
        for path in (root / "tests" / "unit").rglob("test_*.py")
    }


def _node_id(context: str, files: dict[str, str]) -> Iterable[str]:
    module, _, function = context.rpartition(".")
    file = files.get(module.rpartition(".")[2])
    return [f"{file}::{function}"] if file is not None and function.startswith("test_") else []


def tests_for(mutant: Mutant, reach: dict[str, dict[int, list[str]]]) -> list[str]:
    """Those that run one of its lines. Of a line that runs at import: the files of tests that run anything of its module."""
    lines = reach.get(mutant.path, {})
    here = range(mutant.line, mutant.end_line + 1)
    tests = {test for line in here for test in lines.get(line, ())}
    if tests:
        return sorted(tests)
    if any(line in lines for line in here):
        return sorted({test.partition("::")[0] for each in lines.values() for test in each})
    return []
