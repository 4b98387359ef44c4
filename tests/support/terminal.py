"""A program in a terminal: what it shows there, keys, another size, and how it leaves the terminal behind.

The terminal understands what full-screen programs of ours write; anything else is an error, so that nothing is overlooked.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from unicodedata import east_asian_width

WAIT_S = 0.05
_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([a-zA-Z])")
_BEGINNING = re.compile(r"\x1b(\[\??[0-9;]*)?$")

Cell = tuple[str, str]
"""A character, and the codes of how it looks; no character in the second half of a wide one."""
BLANK: Cell = (" ", "")


class Screen:
    """The cells of a terminal as what was written to it made them."""

    def __init__(self, columns: int, rows: int) -> None:
        self.colours: set[str] = set()
        """The codes that were used for colours and the like."""
        self.modes = {25: True, 7: True, 1049: False}
        """The cursor is seen, long lines go on, the other screen is shown."""
        self._rest = self._look = ""
        self._row = self._column = 0
        self._before: tuple[list[list[Cell]], int, int] | None = None
        """While the other screen is shown: what is shown again then."""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._cells = [[BLANK] * columns for _ in range(rows)]

    @property
    def lines(self) -> list[str]:
        return ["".join(char for char, _ in row).rstrip() for row in self._cells]

    @property
    def cells(self) -> Sequence[Sequence[Cell]]:
        return self._cells

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
            elif found := _SEQUENCE.match(text, at):
                self._obey(*found.groups())
                at = found.end()
            elif _BEGINNING.fullmatch(text, at):
                self._rest = text[at:]
                return
            else:
                raise AssertionError(f"the terminal does not know {text[at : at + 20]!r}")

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._row += 1
            if self._row == self.rows:
                self._cells = [*self._cells[1:], [BLANK] * self.columns]
                self._row -= 1
        elif char == "\a":
            return
        elif self._row < self.rows and self._column < self.columns:
            row, width = self._cells[self._row], 2 if east_asian_width(char) in "WF" else 1
            row[self._column : self._column + width] = [
                (char, self._look),
                *[("", self._look)] * (width - 1),
            ]
            self._column += width

    def _obey(self, private: str, numbers: str, letter: str) -> None:
        if letter == "H":
            row, _, column = numbers.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif letter == "K" and not numbers:
            if self._row < self.rows:
                rest = self.columns - self._column
                self._cells[self._row][self._column :] = [BLANK] * rest
        elif letter == "J" and numbers == "2":
            self.resize(self.columns, self.rows)
        elif letter == "m":
            self.colours.add(numbers)
            self._look = "" if numbers in ("", "0") else numbers
        elif private and letter in "hl":
            self.modes[int(numbers)] = letter == "h"
            if numbers == "1049":
                self._switch(to_other=letter == "h")
        else:
            raise AssertionError(f"the terminal does not know CSI {private}{numbers}{letter}")

    def _switch(self, *, to_other: bool) -> None:
        if to_other and self._before is None:
            self._before = self._cells, self._row, self._column
            self.resize(self.columns, self.rows)
        elif not to_other and self._before is not None:
            cells, self._row, self._column = self._before
            self._before = None
            self.resize(self.columns, self.rows)
            for row, before in zip(self._cells, cells, strict=False):
                row[: len(before)] = before[: len(row)]


class TerminalProgram:
    """`with TerminalProgram(OTTLA, "top") as program:`"""

    def __init__(
        self,
        *command: str | os.PathLike[str],
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = Screen(columns, rows)
        self._fd, terminal = pty.openpty()
        self._terminal = terminal
        """Kept open, so that what was left behind can be looked at."""
        self._set_size()
        self.attributes_before: Sequence[Any] = termios.tcgetattr(terminal)
        self._changed = threading.Condition()
        self._is_reading = threading.Event()
        self._is_reading.set()
        self._reads = threading.Lock()
        self.error: BaseException | None = None
        self.began = self._written_at = time.monotonic()
        environment = {
            k: v
            for k, v in os.environ.items()
            if k not in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES")
        }
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**environment, "TERM": "xterm-256color", **(env or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        while self._fd >= 0:
            if not self._is_reading.wait(WAIT_S):
                continue
            with self._reads:
                try:
                    if not select.select([self._fd], [], [], WAIT_S)[0]:
                        continue
                    data = os.read(self._fd, 65536)
                except (OSError, ValueError):  # it was closed
                    return
            with self._changed:
                self._written_at = time.monotonic()
                try:
                    self.screen.feed(decoder.decode(data))
                except Exception as error:
                    self.error = error
                self._changed.notify_all()

    # What people do

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        with self._changed:
            self.screen.resize(columns, rows)
        self._set_size()

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self.screen.rows, self.screen.columns, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)

    def take_nothing(self) -> None:
        """As after Ctrl-S, or at the end of a slow line."""
        self._is_reading.clear()

    def take_all(self) -> None:
        self._is_reading.set()

    def hang_up(self) -> None:
        """The window is closed."""
        with self._reads:
            os.close(self._fd)
            self._fd = -1

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    # What is seen

    @property
    def text(self) -> str:
        return "\n".join(self.screen.lines)

    def wait(self, condition: Callable[[Screen], Any], timeout: float, what: str) -> Any:
        """The first true value of the condition, looked at whenever something was written."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                if self.error is not None:
                    raise self.error
                value = condition(self.screen)
                if value:
                    return value
                left = deadline - time.monotonic()
                assert left > 0, f"not within {timeout} s: {what}\n{self.text}"
                self._changed.wait(left)

    def wait_for(self, words: str, timeout: float = 10) -> str:
        """The first line with these words."""
        found: str = self.wait(
            lambda screen: next((line for line in screen.lines if words in line), ""),
            timeout,
            words,
        )
        return found

    def wait_still(self, seconds: float, timeout: float = 20) -> None:
        """Until nothing was written for so long."""
        deadline = time.monotonic() + timeout
        while (left := self._written_at + seconds - time.monotonic()) > 0:
            assert time.monotonic() < deadline, f"it goes on writing\n{self.text}"
            time.sleep(left)

    def wait_end(self, timeout: float = 10) -> int:
        return self._process.wait(timeout)

    @property
    def attributes(self) -> Sequence[Any]:
        return termios.tcgetattr(self._terminal)

    def assert_terminal_as_before(self) -> None:
        self.wait(
            lambda s: not s.modes[1049] and s.modes[25] and s.modes[7], 5, "the terminal given back"
        )
        assert self.attributes == self.attributes_before

    # With

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._is_reading.set()
        os.close(self._terminal)
        if self._fd >= 0:
            self.hang_up()
