"""Terminals: keys one at a time, and a picture that takes all of it."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Keyboard:
    """Standard input as a terminal. Between `begin` and `end` it gives each key at once and does not show it; Ctrl-C and Ctrl-Z
    are signals as before."""

    def __init__(self) -> None:
        import termios  # not on every system, and few commands need it

        self.fd = sys.stdin.fileno()
        self._termios = termios
        self._before: list[Any] = termios.tcgetattr(self.fd)

    def begin(self) -> None:
        import tty

        tty.setcbreak(self.fd, self._termios.TCSANOW)

    def end(self) -> None:
        with suppress(self._termios.error):  # the terminal is gone
            self._termios.tcsetattr(self.fd, self._termios.TCSANOW, self._before)


@contextmanager
def one_key_at_a_time() -> Iterator[None]:
    keyboard = Keyboard()
    keyboard.begin()
    try:
        yield
    finally:
        keyboard.end()


class PictureTerminal:
    """Standard output as a terminal for pictures. Who writes asks first whether it takes anything: one that was stopped by
    Ctrl-S, or is at the end of a slow line, does not, and who wrote all the same would wait for it and do nothing else."""

    def __init__(self) -> None:
        self._fd = sys.stdout.fileno()
        self._encoding = sys.stdout.encoding or "utf-8"

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        with suppress(OSError):
            found = os.get_terminal_size(self._fd)
            if found.columns and found.lines:
                return found.columns, found.lines
        return 80, 24

    def takes(self, patience_s: float = 0.0) -> bool:
        return bool(select.select([], [self._fd], [], patience_s)[1])

    def write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            data = data[os.write(self._fd, data) :]
