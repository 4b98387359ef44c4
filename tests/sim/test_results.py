"""What long runs leave behind: a line a seed, and the table of them all in the documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.sim.run.results import BEGIN, END, Results, line_of, write_summary
from ottla.sim.run.seeds import Tally


def outcome(seed: int, verdict: Verdict = Verdict.PASSED, problem: str = "") -> RunOutcome:
    return RunOutcome(
        seed,
        verdict,
        problem,
        "c0ffee",
        events=1000,
        virtual_s=60.0,
        cpu_s=1.5,
        acknowledged=7,
        losses=1,
        faults={"kill": 2},
        marks={"truncation": 3},
    )


def test_a_line_tells_all_about_a_seed() -> None:
    line = line_of(outcome(7, Verdict.SAFETY, "D3 node 1: lost"))
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "seed": 7,
        "verdict": "SAFETY",
        "virtual_s": 60.0,
        "cpu_s": 1.5,
        "events": 1000,
        "acknowledged": 7,
        "faults": {"kill": 2},
        "rare": {"truncation": 3},
        "losses": 1,
        "transactions": 0,
        "excused": 0,
        "hash": "c0ffee",
        "problem": "D3 node 1: lost",
    }


def test_the_table_adds_up_the_last_line_of_each_seed() -> None:
    lines = [
        line_of(outcome(2, Verdict.LIVENESS, "stuck")),
        line_of(outcome(1)),
        line_of(outcome(2)),
        line_of(outcome(3, Verdict.SAFETY, "D3")),
    ]
    table = Results.read(lines).table()
    assert "**3 seeds: 2 PASSED, 1 SAFETY.** Failed: 3." in table
    assert "| virtual time : CPU time | 40 |" in table
    assert "| kill | 6 | 3 |" in table
    assert "| pause | 0 | 0 |" in table
    assert "| truncation | 9 | 3 |" in table


def test_the_table_is_put_between_the_marks_of_a_document(tmp_path: Path) -> None:
    results, document = tmp_path / "results", tmp_path / "document"
    results.write_text(line_of(outcome(1)))
    document.write_text(f"before\n{BEGIN}\nof yesterday\n{END}\nafter\n")
    for _ in range(2):
        write_summary(results, document)
        text = document.read_text()
        assert text.startswith(f"before\n{BEGIN}\n**1 seeds: 1 PASSED.**")
        assert text.endswith(f"|\n{END}\nafter\n") and "yesterday" not in text
    document.write_text("nothing here")
    with pytest.raises(ValueError, match="has no lines"):
        write_summary(results, document)


def test_progress_says_how_far_how_fast_and_how_long() -> None:
    tally = Tally()
    for seed in range(10):
        tally.add(outcome(seed))
    assert tally.progress(100, 20.0) == (
        "10 of 100 seeds in 20 s, 0 failed; 0.2 virtual hours, "
        "40 virtual seconds per CPU second (15.0 s of CPU time); 3 min left"
    )


def test_seeds_are_appended_as_they_end(tmp_path: Path) -> None:
    results, document = tmp_path / "results", tmp_path / "document"
    document.write_text(f"{BEGIN}\n{END}\n")
    command = [sys.executable, "-m", "ottla.sim", "--trouble", "0.5", "--results", str(results)]
    for words in (["--seeds", "1..3", "--jobs", "2"], ["--seeds", "3..4"]):
        ran = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [json.loads(line)["seed"] for line in results.read_text().splitlines()] == [1, 2, 3]
    summed = subprocess.run([*command, "--summary", str(document)], check=False)
    assert summed.returncode == 0 and "**3 seeds: 3 PASSED.**" in document.read_text()
