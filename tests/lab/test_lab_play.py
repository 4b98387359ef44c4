"""`ottla lab play`: keys, drawing, a real pseudo-terminal, and what is printed elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.lab.play import KEYS, TimelinePlayer, columns_of, keys_in
from ottla.lab.results import LogEntry, ReplicaMoment, Step, Timeline
from support.interrupts import take_sigint

OTTLA = Path(sys.executable).with_name("ottla")
PATIENCE_S = 60.0

LOG = [LogEntry(0, 0, "m0"), LogEntry(1, 0, "m1", is_lost=True)]
STEP = Step(
    1.0,
    "It truncates.",
    ["1 truncates its log from 2 to 1"],
    [
        ReplicaMoment(1, "follower", 1, LOG, 1, 1, changed=True),
        ReplicaMoment(2, "down", -1, [LogEntry(0, 0, "m0")], None, 1),
    ],
)


def player(steps: int = 3) -> TimelinePlayer:
    return TimelinePlayer(Timeline("t", "d", [STEP] * steps, "nothing"))


@pytest.mark.parametrize(
    ("keys", "position"),
    [
        ("n", 1),
        (" n", 2),
        ("nnnnn", 2),
        ("\x1b[C\x1bOC", 2),
        ("nnp", 1),
        ("nn\x1b[D\x1b[D\x1b[D", 0),
        ("Gb", 1),
        ("\x1b[F", 2),
        ("\x1b[4~\x1b[1~", 0),
        ("G\x1b[Hn", 1),
        ("nng", 0),
        ("xyz\x1b[A", 0),
    ],
)
def test_keys_go_forwards_and_backwards_within_the_timeline(keys: str, position: int) -> None:
    shown = player()
    pressed, rest = keys_in(keys)
    for key in pressed:
        shown.press(key)
    assert (shown.position, rest, shown.is_over) == (position, "", False)


def test_q_ends_it() -> None:
    shown = player()
    shown.press("q")
    assert shown.is_over


@pytest.mark.parametrize("key", [each for each in KEYS if len(each) > 1])
def test_a_sequence_that_arrives_in_pieces_is_one_key(key: str) -> None:
    for cut in range(1, len(key)):
        assert keys_in("n" + key[:cut]) == (["n"], key[:cut])
    assert keys_in(key) == ([key], "")


def test_a_column_has_a_cell_for_each_offset_and_marks_hw_and_leo() -> None:
    follower, down = columns_of(STEP)
    assert [(cell.entry, cell.marks) for cell in follower.cells] == [
        (LOG[0], ""),
        (LOG[1], "HW LEO"),
    ]
    assert [cell.marks for cell in down.cells] == ["", "LEO"]


def ottla_play(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(OTTLA), "lab", "play", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_P44_without_a_terminal_all_steps_are_printed() -> None:
    done = ottla_play("loss", "--design", "hw-truncation")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    numbers = [int(each) for each in re.findall(r"^step (\d+) of", done.stdout, re.MULTILINE)]
    assert numbers == list(range(1, numbers[-1] + 1))
    assert re.search(r"m1 epoch 0 lost +HW LEO", done.stdout)
    assert "In the end: m1 is lost, though acknowledged" in done.stdout


def test_one_step_can_be_printed_alone() -> None:
    done = ottla_play("loss", "--step", "2")
    assert re.findall(r"^step (\d+) of", done.stdout, re.MULTILINE) == ["2"]
    assert done.stdout.startswith("leader-epochs: ")


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "name a scenario; there are: divergence, fast-failover, loss, promotion"),
        (("lost",), 3, "no scenario lost; there are: divergence, fast-failover, loss, promotion"),
        (
            ("loss", "--design", "hw"),
            3,
            "no truncation design hw; there are: leader-epochs, hw-truncation, kip101-first",
        ),
        (("loss", "--step", "99"), 2, "--step 99: there are steps 1 to 10"),
    ],
)
def test_a_wrong_name_says_what_there_is(words: tuple[str, ...], code: int, why: str) -> None:
    done = ottla_play(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert why in done.stderr


class Terminal:
    """A pseudo-terminal with a process on it. `text` is all that it wrote, without colours and positions."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            [str(OTTLA), "lab", "play", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
            preexec_fn=take_sigint,
        )
        self.raw = ""

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    def press(self, keys: str) -> None:
        self.raw = ""
        os.write(self._ours, keys.encode())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            readable, _, _ = select.select([self._ours], [], [], PATIENCE_S)
            assert readable, f"not within {PATIENCE_S:.0f} s: {what}; but: {self.text}"
            self.raw += os.read(self._ours, 65536).decode()

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.text and "q: quit" in self.text, text)

    @property
    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._theirs))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


def test_P44_on_a_terminal_keys_step_through_the_scenario() -> None:
    terminal = Terminal("loss", "--design", "hw-truncation")
    try:
        terminal.shows("step 1 of 10")
        terminal.press("n")
        terminal.shows("step 2 of 10")
        terminal.press("\x1b[C \x1b[C ")
        terminal.shows("step 6 of 10")
        assert "1 truncates its log from 2 to 1" in terminal.text
        assert re.search(r"m1 epoch 0 lost +HW LEO", terminal.text)
        assert "\x1b[" in terminal.raw
        terminal.press("\x1b[D")
        terminal.shows("step 5 of 10")
        terminal.press("G")
        terminal.shows("In the end: m1 is lost")
        terminal.press("g")
        terminal.shows("step 1 of 10")
        terminal.press("q")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert terminal.settings == terminal.before
    finally:
        terminal.close()


def test_an_interrupt_leaves_the_terminal_as_it_was() -> None:
    terminal = Terminal("loss")
    try:
        terminal.shows("step 1 of 10")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(PATIENCE_S) == 130
        assert terminal.settings == terminal.before
    finally:
        terminal.close()
