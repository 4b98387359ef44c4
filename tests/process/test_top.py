"""`ottla top` on a terminal, beside a real cluster: what it shows and how soon, and how it leaves the terminal behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.cli.errors import UNREACHABLE, USAGE
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.secure import secure_cluster
from support.terminal import Screen, TerminalProgram

SHOWN_S_MAX = 1.0
ESC, ENTER, CTRL_C, CTRL_L, CTRL_Z = "\x1b", "\r", "\x03", "\x0c", "\x1a"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("top")) as cluster:
        cluster.create_topic("orders", 3)
        yield cluster


def top_of(cluster: ProcessCluster, *words: str, rows: int = 24) -> TerminalProgram:
    return TerminalProgram(OTTLA, "top", *words, "-b", cluster.bootstrap, columns=120, rows=rows)


def printed(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [OTTLA, "top", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def wait_events(program: TerminalProgram) -> None:
    """Until the event log is read, from which news come at once. A cluster makes it some seconds after its start."""
    program.press("5")

    def is_read() -> bool:
        program.press(CTRL_L)  # draws again
        return "leader_start" in program.text

    wait_until(is_read, 30, "entries of the event log", every=0.2)


# What it shows


def test_a_killed_leader_is_shown_within_a_second_and_explained_behind_a_few_keys(
    watched: ProcessCluster,
) -> None:
    with top_of(watched, "--interval", "60") as program:  # what is wrong does not wait for that
        program.wait_for("3 of 3 brokers")
        wait_events(program)
        leader = watched.leader("orders", 0)
        program.press("2")
        program.wait_for("orders-0")
        program.wait_still(2.5)
        watched.kill(leader)
        killed = time.monotonic()
        line = program.wait_for(f"Broker {leader} is down.")
        row = program.wait(
            lambda s: next((x for x in s.lines if "orders-0" in x and f"−{leader}" in x), ""),
            10,
            "the partition without it",
        )
        shown_s = time.monotonic() - killed
        assert shown_s < SHOWN_S_MAX, shown_s
        assert "controller" in line
        assert row.split()[1] != str(leader), "another broker leads"
        program.wait_for("2 of 3 brokers")
        program.press(ENTER)  # the first partition is one that lacks a replica
        program.wait(
            lambda s: any(f"broker {leader}  " in x and "does not answer" in x for x in s.lines),
            10,
            "its replicas as bars",
        )
        program.press(ENTER)
        program.wait_for("What to do:", 20)
        program.press(ESC)
        program.wait(lambda s: "What to do:" not in program.text, 5, "the partition again")
        watched.start(leader)
        program.wait_for("3 of 3 brokers", 30)
        program.wait_for("Nothing is wrong.", 30)
        program.press("q")
        assert program.wait_end() == 0
        program.assert_terminal_as_before()


def test_a_cluster_that_goes_away_is_missed_and_found_again(watched: ProcessCluster) -> None:
    with top_of(watched, "--interval", "0.3") as program:
        program.wait_for("3 of 3 brokers")
        for node in list(watched.nodes):
            watched.kill(node)
        program.wait(lambda s: s.lines[1].startswith(" ✗"), 20, "that nobody answers")
        watched.mend()
        program.wait_for("3 of 3 brokers", 30)
        program.wait_for("Nothing is wrong.", 30)
        program.press("q")
        assert program.wait_end() == 0


def test_it_fits_a_terminal_that_grows_and_shrinks(watched: ProcessCluster) -> None:
    with top_of(watched, "--interval", "60") as program:
        program.wait_for("3 of 3 brokers")
        for columns, rows in ((60, 12), (200, 50), (100, 30)):
            program.resize(columns, rows)
            program.wait(lambda s: "? help" in s.lines[-1], 5, "the last line")
            program.wait(lambda s: "of 3 brokers" in s.lines[0], 5, "the first line")


# How it ends


@pytest.mark.parametrize("by", ["q", CTRL_C, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before_however_it_ends(
    watched: ProcessCluster, by: str | signal.Signals
) -> None:
    with top_of(watched) as program:
        program.wait_for("3 of 3 brokers")
        assert program.attributes != program.attributes_before
        if isinstance(by, str):
            program.press(by)
            assert program.wait_end() == 0
        else:
            program.send(by)
            assert program.wait_end() == -by
        program.assert_terminal_as_before()


def test_it_ends_when_its_window_is_closed(watched: ProcessCluster) -> None:
    with top_of(watched) as program:
        program.wait_for("3 of 3 brokers")
        program.hang_up()
        assert program.wait_end() == -signal.SIGHUP


def test_it_ends_also_on_a_terminal_that_takes_nothing(watched: ProcessCluster) -> None:
    with top_of(watched, rows=100) as program:
        program.wait_for("3 of 3 brokers")
        program.take_nothing()
        for _ in range(300):  # pictures of many kilobytes
            program.press("?\x0c2\x0c")
            time.sleep(0.005)
        program.send(signal.SIGTERM)
        assert program.wait_end() == -signal.SIGTERM
        program.take_all()
        assert program.attributes == program.attributes_before


def says_stopped(times: int, screen: Screen) -> bool:
    return sum("Stopped" in line for line in screen.lines) == times


def test_ctrl_z_gives_the_terminal_back_until_it_is_wanted_again(watched: ProcessCluster) -> None:
    """From a shell, as people do it: a program that has none above it is not stopped by the system."""
    with TerminalProgram("sh", "-i", env={"PS1": "ready> ", "ENV": ""}) as shell:
        shell.wait_for("ready>")
        shell.press(f"{OTTLA} top -b {watched.bootstrap}\r")
        shell.wait_for("3 of 3 brokers")
        for times in (1, 2):
            shell.press(CTRL_Z)
            shell.wait(partial(says_stopped, times), 10, "that it stopped")
            assert not shell.screen.modes[1049] and shell.screen.modes[25]
            shell.press("fg\r")
            shell.wait(lambda s: s.modes[1049] and "3 of 3 brokers" in s.lines[0], 10, "it again")
        shell.press("q")
        shell.wait(lambda s: not s.modes[1049] and s.modes[25], 10, "its end")
        shell.press("exit\r")
        assert shell.wait_end() == 0


# Elsewhere than on a terminal


def test_elsewhere_it_prints_one_screen_and_ends(watched: ProcessCluster) -> None:
    found = printed("partitions", "-b", watched.bootstrap)
    assert (found.returncode, found.stderr) == (0, "")
    assert "3 of 3 brokers" in found.stdout
    rows = [line.split() for line in found.stdout.splitlines() if line.split()[:1] == ["orders-0"]]
    assert [row[3] for row in rows] == ["1,2,3"], found.stdout
    assert "\x1b" not in found.stdout


def test_it_prints_also_where_not_all_characters_can_be_written(watched: ProcessCluster) -> None:
    words = (OTTLA, "top", "--once", "-b", watched.bootstrap)
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    found = subprocess.run(words, capture_output=True, env=env, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    assert b"3 of 3 brokers" in found.stdout


def test_programs_get_everything_as_json(watched: ProcessCluster) -> None:
    found = json.loads(printed("--format", "json", "-b", watched.bootstrap).stdout)
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
    assert {(each["topic"], each["partition"]) for each in found["partitions"]} >= {("orders", 2)}
    assert (found["cluster"]["answers"], found["problems"]) == (True, [])


def test_once_prints_one_screen_on_a_terminal_too(watched: ProcessCluster) -> None:
    with top_of(watched, "--once") as program:
        assert program.wait_end(30) == 0
        program.wait_for("Nothing is wrong.")
        assert not program.screen.modes[1049]


def test_no_color_means_none(watched: ProcessCluster) -> None:
    words = (OTTLA, "top", "-b", watched.bootstrap)
    with TerminalProgram(*words, env={"NO_COLOR": "1"}) as program:
        program.wait_for("Nothing is wrong.")
        assert program.screen.colours <= {"0", "1", "2", "7"}
    with TerminalProgram(*words) as program:
        program.wait_for("Nothing is wrong.")
        assert [code for code in program.screen.colours if "38;5" in code]


# What goes wrong at the start


def test_a_cluster_that_is_not_there_is_an_error_on_a_terminal_that_was_not_touched() -> None:
    with TerminalProgram(OTTLA, "top", "-b", "127.0.0.1:1") as program:
        assert program.wait_end(30) == UNREACHABLE
        program.wait_for("127.0.0.1:1")
        program.assert_terminal_as_before()
        assert "ottla top" not in program.text.split("\n")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("disks",), "no screen disks; there are: brokers, partitions, groups, topics, events, wrong"),
        (("--interval", "0"), "--interval"),
        (("--nonsense",), "--nonsense"),
    ],
)  # fmt: skip
def test_wrong_words_are_told_apart(words: tuple[str, ...], said: str) -> None:
    found = printed(*words)
    assert found.returncode == USAGE
    assert said in found.stderr


# A secure cluster


def test_a_secure_cluster_is_shown_to_those_who_may_see_it(tmp_path: Path) -> None:
    with secure_cluster(tmp_path / "secure", nodes=1) as cluster:
        # The admin of the cluster in this directory.
        with TerminalProgram(OTTLA, "top", "--dir", cluster.directory) as program:
            program.wait_for("1 of 1 brokers", 20)
            program.press("q")
            assert program.wait_end() == 0
        file = str(cluster.file("java.properties"))
        found = printed("-b", cluster.bootstrap, "--command-config", file)
        assert "1 of 1 brokers" in found.stdout, found
        # Without a login it says which way is right.
        found = printed("-b", cluster.bootstrap)
        assert found.returncode == UNREACHABLE
        assert "--command-config" in found.stderr
        cluster.told("users", "add", "alice")
        found = printed("topics", "-b", cluster.bootstrap, "--command-config", str(cluster.file("java.properties", "alice")))  # fmt: skip
        assert "There are no topics." in found.stdout, "alice may see none"
