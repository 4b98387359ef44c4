"""Bytecode in PySpark's archives: what is imported is the same, and is not compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from zipfile import ZipFile

import pytest

from ottla.spark import archive

MODULES = {
    "some/__init__.py": "from some.thing import answer\n",
    "some/thing.py": "answer = 42\nwhere = (lambda: 0).__code__.co_filename\n",
    "some/other.py": "this is no Python\n",
    "some/tests/test_it.py": "assert False\n",
    "some/data.json": "{}",
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "lib.zip"
    with ZipFile(path, "w") as file:
        for name, text in MODULES.items():
            file.writestr(name, text)
    path.chmod(0o644)
    return path


def imported(path: Path, code: str) -> str:
    words = [sys.executable, "-v", "-c", f"import some.thing; print({code})"]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def test_what_is_imported_is_bytecode_that_says_the_same(made: Path) -> None:
    assert imported(made, "some.thing.__file__").endswith("thing.py")
    assert not archive.is_compiled(made)
    archive.compile_archive(made)
    assert archive.is_compiled(made)
    assert imported(made, "some.thing.__file__").endswith("thing.pyc")
    assert imported(made, "some.answer") == "42"
    assert imported(made, "some.thing.where") == f"{made}/some/thing.py"


def test_everything_else_stays_as_it_was(made: Path) -> None:
    archive.compile_archive(made)
    with ZipFile(made) as file:
        names = file.namelist()
        assert {name: file.read(name).decode() for name in MODULES} == MODULES
    assert set(names) - set(MODULES) == {"some/__init__.pyc", "some/thing.pyc"}
    assert made.stat().st_mode & 0o777 == 0o644
    assert list(made.parent.iterdir()) == [made]


def test_bytecode_of_another_python_is_replaced(made: Path) -> None:
    with ZipFile(made, "a") as file:
        file.writestr("some/__init__.pyc", b"\0" * 16)
        file.writestr("some/thing.pyc", b"\0" * 16)
    assert not archive.is_compiled(made)
    archive.compile_archive(made)
    with ZipFile(made) as file:
        assert len(file.namelist()) == len(set(file.namelist()))
        assert file.read("some/thing.pyc").startswith(MAGIC_NUMBER)


def test_a_session_that_runs_keeps_its_archive(made: Path) -> None:
    """Others may have the same file, too: an installer that links from its cache."""
    other = made.with_name("cached.zip")
    os.link(made, other)
    before = other.read_bytes()
    archive.compile_archive(made)
    assert other.read_bytes() == before


def test_where_it_fails_nothing_is_left(made: Path) -> None:
    made.write_bytes(b"no archive")
    with pytest.raises(Exception, match="not a zip file"):
        archive.compile_archive(made)
    assert list(made.parent.iterdir()) == [made]
