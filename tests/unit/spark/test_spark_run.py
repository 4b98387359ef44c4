"""`ottla spark run` without Spark: what it would start, and what it says before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli import spark
from ottla.cli.errors import USAGE, Failure

FEW = f"spark.sql.shuffle.partitions={spark.FEW_PARTITIONS}"


class Run:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[str] = []
        """What Spark's programme was told, and its environment."""
        self.printed = ""

    def __call__(self, *words: str) -> None:
        chosen = ["--bootstrap", "127.0.0.1:1", "--directory", str(self.directory)]
        done = CliRunner().invoke(spark.app, ["run", "orders", *chosen, *words])
        if done.exception is not None:
            raise done.exception
        self.printed = done.output
        self.told = (self.directory / "told").read_text().splitlines()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A programme stands for Spark's that only notes what it was told."""
    directory = tmp_path / "results"
    programme = tmp_path / "spark-submit"
    programme.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "$SPARK_SUBMIT_OPTS" >{directory}/told\n')
    programme.chmod(0o755)
    monkeypatch.setattr(spark, "_programme", lambda name: str(programme))
    monkeypatch.setattr(spark, "_java", lambda: spark.Diagnosis(True, "Java", "17"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return Run(directory)


def test_on_one_machine_there_are_few_pieces_of_state(run: Run) -> None:
    run("--master", "local[3]")
    assert FEW in run.told
    run("--master", "spark://host:7077")
    assert FEW not in run.told


def test_a_setting_of_the_users_wins(run: Run) -> None:
    run("--conf", "spark.sql.shuffle.partitions=9")
    assert run.told.index(FEW) < run.told.index("spark.sql.shuffle.partitions=9"), (
        "the last one counts"
    )


def test_the_terminal_is_quiet_unless_spark_was_told_how_to_log(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    assert run.told[-1] == f'-Dlog4j2.configurationFile="{spark.LOGGING}"'
    assert "rootLogger.level = error" in spark.LOGGING.read_text()
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    run()
    assert run.told[-1] == ""


def test_a_run_ends_with_where_its_files_are(run: Run) -> None:
    run()
    assert run.printed == f"orders is done; its files are in {run.directory}\n"


@pytest.mark.parametrize(
    "master", ["lokal", "local[x]", "local[0]", "host:7077", "sc://host:15002"]
)
def test_a_master_that_is_none_is_refused_before_spark_starts(run: Run, master: str) -> None:
    with pytest.raises(Failure, match="is none of") as refused:
        run("--master", master)
    assert refused.value.code == USAGE


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "k8s://host", "yarn"]
)
def test_a_master_that_spark_knows_is_taken(run: Run, master: str) -> None:
    run("--master", master)
    assert run.told[:2] == ["--master", master]


def test_a_declarative_pipeline_runs_here_or_on_a_connect_server(run: Run) -> None:
    pytest.importorskip("yaml", reason="needs PySpark: scripts/setup --spark")
    with pytest.raises(Failure, match="sc://host:port"):
        run("--declarative", "--master", "yarn")
    run("--declarative", "--master", "sc://host:15002")
    assert run.told[-3:-1] == ["--remote", "sc://host:15002"]
