"""What happened in a simulation, as a hash and, when asked for, as lines.

Two runs of one seed must agree in every line. A line holds virtual time, a word and plain values: never a
`repr` with an address, which differs between processes. Between them is told what it meant: where a replica stands
now, what the controller decided, what the nemesis did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import zip_longest

HASHED_AT_ONCE = 4096


class Trace:
    def __init__(self, now_ns: Callable[[], int], *, keep_lines: bool = False) -> None:
        self._now_ns = now_ns
        self._hash = hashlib.blake2b(digest_size=16)
        self._ended = False
        self._entries: list[tuple[int, str, tuple[int | str, ...]]] = []
        """Not yet hashed: many at once cost far less."""
        self.lines: list[str] | None = [] if keep_lines else None

    def end(self) -> None:
        """What follows is no longer part of the run."""
        self._ended = True

    def __call__(self, word: str, *values: int | str) -> None:
        if self._ended:
            return
        now = self._now_ns()
        self._entries.append((now, word, values))
        if len(self._entries) >= HASHED_AT_ONCE:
            self._hash_entries()
        if self.lines is not None:
            self._keep(" ".join((word, *map(str, values))))

    def quote(self, who: str, what: str) -> None:
        """An event like any other, written down as what is told is."""
        if not self._ended:
            self._entries.append((self._now_ns(), who, (what,)))
            self.tell(f"{who}: {what}")

    def tell(self, what: str) -> None:
        """Not part of the hash: it follows from what is."""
        if self.lines is not None and not self._ended:
            self._keep(what)

    def _keep(self, line: str) -> None:
        assert self.lines is not None
        self.lines.append(f"{self._now_ns() / 1e9:.6f} {line}")

    def _hash_entries(self) -> None:
        """Of integers and strings, and of tuples of them, the `repr` is the same in every process."""
        self._hash.update("".join(map(repr, self._entries)).encode())
        self._entries.clear()

    def digest(self) -> str:
        self._hash_entries()
        return self._hash.hexdigest()


def first_difference(one: list[str], other: list[str]) -> str | None:
    """Where two traces part, as a sentence; None when they are equal."""
    for number, (a, b) in enumerate(zip_longest(one, other, fillvalue="(ends)")):
        if a != b:
            return f"line {number + 1}: {a!r} against {b!r}"
    return None
