"""`ottla spark warm`: what it compiles, and what it says."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner

from ottla.cli import spark
from ottla.cli.errors import Failure
from ottla.spark import archive
from ottla.spark.read import native


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lib = tmp_path / "python" / "lib"
    lib.mkdir(parents=True)
    with ZipFile(lib / "pyspark.zip", "w") as file:
        file.writestr("pyspark/__init__.py", "")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(native, "compile_now", lambda: True)
    return tmp_path


def said() -> str:
    done = CliRunner().invoke(spark.app, ["warm"])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_it_compiles_once(home: Path) -> None:
    assert said() == "pyspark.zip: bytecode added\ndecoder: compiled\n"
    assert said() == "pyspark.zip: has its bytecode\ndecoder: compiled\n"


def test_the_doctor_knows_whether_it_was_done(home: Path) -> None:
    assert spark._bytecode().todo is not None
    said()
    assert spark._bytecode().todo is None


def test_who_may_not_is_told_who_may(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(archive, "compile_archive", refused)
    with pytest.raises(Failure, match=r"pyspark.zip: Permission denied; run this as the user who"):
        said()


def test_without_pyspark_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "archives", list)
    with pytest.raises(Failure, match="PySpark is not installed"):
        said()
