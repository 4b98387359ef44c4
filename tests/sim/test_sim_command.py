"""`ottla sim`: exit codes, the hash as the last line, the command that repeats a failure, the fewest faults."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ottla.cli import sim
from ottla.cli.commands import app
from ottla.cli.errors import USAGE, Failure
from ottla.sim.mutations import MUTATIONS
from ottla.sim.run import scenario, seeds
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from support.interrupts import take_sigint

OTTLA = Path(sys.executable).with_name("ottla")


def ottla_sim(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), "sim", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def outcome(
    seed: int = 7,
    verdict: Verdict = Verdict.PASSED,
    problem: str = "",
    struck: Iterable[int] = (),
) -> RunOutcome:
    return RunOutcome(seed, verdict, problem, "c0ffee", 10, 1.0, struck=sorted(struck))


def test_a_seed_ends_with_its_hash_which_is_the_same_in_every_process() -> None:
    runs = [ottla_sim("--seed", "1", "--trouble", "0.5", PYTHONHASHSEED=h) for h in ("1", "2")]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout + runs[0].stderr
    lines = runs[0].stdout.splitlines()
    assert lines[0].startswith("seed 1: ")
    assert len(lines[-1]) == 32
    assert any(line.startswith("speed: ") for line in lines)
    assert _without_speed(runs[0].stdout) == _without_speed(runs[1].stdout)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_there(pid: int) -> bool:
    """A zombie is not: whoever inherits it collects it when it likes."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_workers_end_with_whoever_wants_their_results() -> None:
    words = ["--seeds", "0..1000", "--jobs", "2", "--trouble", "0.5"]
    command = [sys.executable, "-m", "ottla.sim", *words]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    assert any(b" PASSED " in line for line in parent.stdout), "a seed has been run"
    workers = children_of(parent.pid)
    assert len(workers) >= 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while any(map(is_there, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_there, workers))


def _without_speed(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("speed: ")]


def test_many_seeds_are_a_line_each_and_the_hash_does_not_depend_on_the_processes() -> None:
    runs = [ottla_sim("--seeds", "1..3", "--trouble", "0.5", "--jobs", jobs) for jobs in ("1", "2")]
    told = [run.stdout.splitlines() for run in runs]
    assert [line.split()[:2] for line in told[0][1:3]] == [["1", "PASSED"], ["2", "PASSED"]]
    assert told[0][1:3] == told[1][1:3]
    assert told[0][-1] == told[1][-1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "one of --seed, --seeds and --minimize is wanted"),
        (("--seed", "1", "--seeds", "0..9"), "one of --seed, --seeds and --minimize is wanted"),
        (("--seeds", "9"), "A..B with A < B is wanted"),
        (("--seeds", "9..9"), "A..B with A < B is wanted"),
        (("--seed", "1", "--faults", "x"), "numbers are wanted"),
        (("--seed", "-1"), "greater than or equal to 0"),
        (("--seeds", "0..9", "--faults", "1"), "--faults goes with --seed only"),
        (("--minimize", "1", "--trace", "trace"), "--trace goes with --seed only"),
        (("--seed", "1", "--profile", "tug"), "--profile goes with --seeds only"),
        (("--seeds", "0..9", "--profile", "tgu"), "--profile tgu: it is none of broad, groups"),
        (("--seeds", "0..9", "--with-fault", "x"), "--with-fault x: it is none of kill"),
        (("--seed", "1", "--results", "file"), "--results goes with --seeds only"),
        (("--seed", "1", "--require-coverage"), "--require-coverage goes with --seeds only"),
        (("--seeds", "0..9", "--summary", "file"), "--summary goes with --results only"),
        (
            ("--seeds", "0..9", "--results", "/nowhere/file"),
            "--results /nowhere/file: No such file",
        ),
        (("--results", "/nowhere/file", "--summary", "file"), "/nowhere/file: No such file"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(words: Sequence[str], why: str) -> None:
    run = ottla_sim(*words)
    assert (run.returncode, run.stdout) == (2, "")
    assert why in run.stderr


@pytest.mark.parametrize("verdict", [Verdict.CRASH, Verdict.SAFETY, Verdict.LIVENESS])
def test_each_way_to_fail_has_an_exit_code_and_the_seed_its_command(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        scenario, "run_seed", lambda seed, **_: outcome(seed, verdict, "D3 node 1: lost")
    )
    assert sim._one(7, None, None, None) == verdict
    told = capsys.readouterr().out.splitlines()
    assert told[-5:] == [
        f"verdict: {verdict.name}",
        "D3 node 1: lost",
        "again: ottla sim --seed 7",
        "smaller: ottla sim --minimize 7",
        "c0ffee",
    ]
    assert sim._one(7, 5.0, frozenset({3, 1}), None) == verdict
    assert "again: ottla sim --seed 7 --trouble 5 --faults 1,3" in capsys.readouterr().out
    assert {int(each) for each in Verdict} == {0, 10, 20, 30}


def test_a_fault_that_a_seed_does_not_have_is_told_before_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenario, "run_seed", lambda seed, **_: outcome(seed, struck=[3]))
    assert sim._one(7, None, frozenset({3, 99}), None) == USAGE
    told = capsys.readouterr().out.splitlines()
    (missing,) = [line for line in told if "seed 7 has no fault 99" in line]
    assert told.index(missing) < told.index("verdict: PASSED")
    assert told[-1] == "c0ffee"
    assert sim._one(7, None, frozenset({3}), None) == Verdict.PASSED


def test_a_trace_that_cannot_be_written_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "run_seed", None)
    with pytest.raises(Failure, match="No such file or directory") as failure:
        sim._one(7, None, None, tmp_path / "nowhere" / "trace")
    assert failure.value.code == USAGE


def test_a_run_without_faults_is_replayed_by_the_words_that_are_printed() -> None:
    command = sim.replay_command(7, None, [])
    assert shlex.split(command) == ["ottla", "sim", "--seed", "7", "--faults", ""]
    assert sim._numbers(shlex.split(command)[-1]) == frozenset()
    with pytest.MonkeyPatch.context() as patch:
        given: list[object] = []

        def ran(*arguments: object) -> int:
            given.extend(arguments)
            return 0

        patch.setattr(sim, "_fix_hashes", lambda: None)
        patch.setattr(sim, "_one", ran)
        patch.setattr(logging, "disable", lambda: None)
        result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert given == [7, None, frozenset(), None]


def test_how_long_a_run_is_troubled_changes_nothing_else() -> None:
    for seed in range(40):
        asked, drawn = RunOptions.draw(seed, 5.0), RunOptions.draw(seed)
        assert asked.trouble_s == 5.0
        assert replace(asked, trouble_s=drawn.trouble_s) == drawn


def test_what_has_no_limit_is_shown_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    options = RunOptions.draw(7)
    options.settings["log.flush.scheduler.interval.ms"] = str(2**63 - 1)
    sim._print_options(options)
    assert "log.flush.scheduler.interval.ms=none" in capsys.readouterr().out


@pytest.mark.parametrize("is_terminal", [False, True])
def test_of_many_seeds_the_first_failure_decides_and_all_are_listed(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal sees a bar, and the failures above it."""
    found = {
        5: outcome(5, Verdict.LIVENESS, "node 2 never came back"),
        6: outcome(6, Verdict.SAFETY, "D3 node 1: [lost]"),
    }

    def outcomes(runs: Sequence[RunOptions], jobs: int) -> Iterator[RunOutcome]:
        return (found.get(options.seed, outcome(options.seed)) for options in runs)

    monkeypatch.setattr(seeds, "outcomes", outcomes)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert sim._many(range(4, 8), None, 1) == Verdict.LIVENESS
    told = capsys.readouterr().out
    assert told.count("again: ottla sim --seed 5") == 1
    assert told.count("smaller: ottla sim --minimize 5") == 1
    assert "--minimize 6" not in told
    assert "on 1 process\n" in told
    assert "D3 node 1: [lost]" in told
    assert "2 failed" in told
    assert told.splitlines()[-3:-1] == [
        "LIVENESS: ottla sim --seed 5",
        "SAFETY: ottla sim --seed 6",
    ]
    assert ("4/4" in told) is is_terminal
    assert ("7 PASSED" in told) is not is_terminal


def test_seeds_are_chosen_by_what_they_are_likely_to_meet_until_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[RunOptions] = []

    def outcomes(runs: Sequence[RunOptions], jobs: int) -> Iterator[RunOutcome]:
        for options in runs:
            ran.append(options)
            yield outcome(options.seed, Verdict.SAFETY if len(ran) == 3 else Verdict.PASSED, "D3")

    monkeypatch.setattr(seeds, "outcomes", outcomes)
    code = sim._many(range(200), None, 1, ["tug"], stop_at_first=True)
    assert code == Verdict.SAFETY
    assert [options.profile for options in ran] == ["tug"] * 3
    assert "stopped at the first failure after 3 of " in capsys.readouterr().out
    with pytest.raises(Failure, match="none of the seeds 1 to 1 has groups"):
        sim._many(range(1, 2), None, 1, ["groups"])


@pytest.mark.parametrize("command", ["ottla sim", "python -m ottla.sim"])
def test_many_seeds_that_are_interrupted_end_with_what_is_known(command: str) -> None:
    words = ["--seeds", "0..1000", "--jobs", "2", "--trouble", "0.5"]
    program = [str(OTTLA), "sim"] if command == "ottla sim" else [sys.executable, "-m", "ottla.sim"]
    run = subprocess.Popen(
        [*program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=take_sigint,
    )
    assert run.stdout is not None
    for line in run.stdout:
        if re.match(r"\d+ PASSED", line):
            break
    os.killpg(run.pid, signal.SIGINT)
    told, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert re.search(r"[1-9]\d*( of 1000)? seeds in \d+ s", told)


def test_the_trace_of_a_seed_tells_each_event_and_where_replicas_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.disable()
    file = tmp_path / "trace"
    sim._one(1, 0.5, None, file)
    logging.disable(logging.NOTSET)
    lines = file.read_text().splitlines()
    assert any(" start n1 " in line for line in lines)
    state = r"node \d: \w+-\d leader epoch \d+ start \d+ HW \d+ LEO \d+ ISR \[\d.*\]$"
    assert any(re.search(state, line) for line in lines)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_a_seed_that_passes_cannot_be_minimized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run", lambda options: outcome(options.seed))
    with pytest.raises(Failure, match="seed 7 passes") as failure:
        sim._minimize(7, None)
    assert failure.value.code == USAGE


def test_whoever_loses_patience_has_the_smallest_run_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def minimize(options: RunOptions, first: RunOutcome, tell: Any, jobs: int) -> None:
        tell(1, first)
        tell(2, outcome(7, Verdict.SAFETY, "D3 node 1", [2]))
        raise KeyboardInterrupt

    first = outcome(7, Verdict.SAFETY, "D3 node 1", range(9))
    monkeypatch.setattr(seeds, "run", lambda options: first)
    monkeypatch.setattr(seeds, "minimize", minimize)
    assert sim._minimize(7, None) == 130
    told = capsys.readouterr().out
    assert re.search(r"1 tried, \d.\d s each: still 9 faults\n", told)
    assert re.search(
        r"2 tried, \d.\d s each: 1 faults? (is|are) enough: ottla sim --seed 7 --faults 2\n", told
    )
    assert told.splitlines()[-2:] == ["again: ottla sim --seed 7 --faults 2", "c0ffee"]


def test_a_seed_that_fails_without_faults_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seeds, "run", lambda options: outcome(7, Verdict.CRASH, "died"))
    assert sim._minimize(7, None) == Verdict.CRASH
    told = capsys.readouterr().out
    assert "no fault is needed: it fails by itself" in told
    assert "again: ottla sim --seed 7 --faults ''\n" in told


@pytest.mark.parametrize("range_", ["5..2", "9..9", "9", "a..b"])
def test_a_range_without_seeds_is_refused(range_: str) -> None:
    with pytest.raises(Failure, match=r"A\.\.B with A < B is wanted"):
        sim._range(range_)


def test_coverage_that_is_required_and_missing_is_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seeds, "outcomes", lambda runs, jobs: (outcome(1) for _ in runs))
    assert sim._many(range(1, 2), None, 1, require_coverage=True) == sim.NOT_COVERED == 40
    told = capsys.readouterr().out
    assert "never happened in these seeds: " in told and "0 no leader" in told
    monkeypatch.setattr(seeds, "missing", lambda *_: [])
    assert sim._many(range(1, 2), None, 1, require_coverage=True) == Verdict.PASSED
    monkeypatch.undo()
    crash = outcome(1, Verdict.CRASH, "died")
    monkeypatch.setattr(seeds, "outcomes", lambda runs, jobs: (crash for _ in runs))
    assert sim._many(range(1, 2), None, 1, require_coverage=True) == Verdict.CRASH


@settings(deadline=None)  # how busy the machine is proves nothing
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_the_fewest_faults_are_exactly_those_that_are_needed(
    needed: set[int], others: set[int]
) -> None:
    def fails_if_all_needed_strike(options: RunOptions) -> RunOutcome:
        struck = options.faults.only
        assert struck is not None
        if needed <= struck:
            return outcome(7, Verdict.SAFETY, "D3 node 1", struck)
        # Another failure is not the one that is looked for.
        return outcome(7, Verdict.SAFETY, "D4 node 1", struck)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "run", fails_if_all_needed_strike)
        first = outcome(7, Verdict.SAFETY, "D3 node 2", needed | others)
        found = seeds.minimize(RunOptions.draw(7), first)
    assert set(found.outcome.struck) == needed
    assert found.runs <= 400


@pytest.fixture
def hw_truncation() -> Iterator[None]:
    """Followers that truncate to their high watermark lose committed records (S1)."""
    with MUTATIONS["truncates_to_its_high_watermark"].applied():
        yield


@pytest.mark.usefixtures("hw_truncation")
def test_a_broken_cluster_fails_with_fewer_faults_and_each_replay_is_the_same() -> None:
    logging.disable()
    for seed in range(50):
        options = RunOptions.draw(seed, 5.0)
        first = seeds.run(options)
        if first.verdict is Verdict.SAFETY and 2 <= len(first.struck) <= 6:
            break
    else:
        pytest.fail("no seed failed")
    smallest = seeds.minimize(options, first).outcome
    assert seeds.symptom(smallest) == seeds.symptom(first)
    assert len(smallest.struck) < len(first.struck)
    again = seeds.run(sim._options(seed, 5.0, frozenset(smallest.struck)))
    logging.disable(logging.NOTSET)
    assert (again.digest, again.problem) == (smallest.digest, smallest.problem)
    whole = seeds.run(sim._options(seed, 5.0, frozenset(first.struck)))
    assert whole.digest == first.digest


def test_every_kind_of_fault_is_named_with_what_it_does() -> None:
    from ottla.sim.faults.registry import FAULTS

    done = CliRunner().invoke(app, ["sim", "--list-faults"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(FAULTS)
    assert all(kind.does in line for line, kind in zip(lines, FAULTS.values(), strict=True))
