"""The events of a simulation, as a hash and, on request, as lines.

Two runs of one seed must agree in every line. A line holds virtual time, a label and plain values. It never holds a
`repr` with an address, which differs between processes. Other lines explain the events: the state of a replica, a
decision of the controller. These are not part of the hash.
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
        """Entries not yet hashed: hashing many at once is much cheaper."""
        self.lines: list[str] | None = [] if keep_lines else None

    def end(self) -> None:
        """Ignore later events: they are not part of the run."""
        self._ended = True

    def __call__(self, label: str, *values: int | str) -> None:
        if self._ended:
            return
        now = self._now_ns()
        self._entries.append((now, label, values))
        if len(self._entries) >= HASHED_AT_ONCE:
            self._hash_entries()
        if self.lines is not None:
            self._keep(" ".join((label, *map(str, values))))

    def quote(self, who: str, what: str) -> None:
        """An event that is part of the hash, written as a line like those of `tell`."""
        if not self._ended:
            self._entries.append((self._now_ns(), who, (what,)))
            self.tell(f"{who}: {what}")

    def tell(self, what: str) -> None:
        """A line that is not part of the hash, because it follows from events that are."""
        if self.lines is not None and not self._ended:
            self._keep(what)

    def _keep(self, line: str) -> None:
        assert self.lines is not None
        self.lines.append(f"{self._now_ns() / 1e9:.6f} {line}")

    def _hash_entries(self) -> None:
        """The `repr` of integers, strings, and tuples of them is the same in every process."""
        self._hash.update("".join(map(repr, self._entries)).encode())
        self._entries.clear()

    def digest(self) -> str:
        self._hash_entries()
        return self._hash.hexdigest()


def first_difference(one: list[str], other: list[str]) -> str | None:
    """The first difference of two traces, as a sentence. None if they are equal."""
    for number, (a, b) in enumerate(zip_longest(one, other, fillvalue="(ends)")):
        if a != b:
            return f"line {number + 1}: {a!r} against {b!r}"
    return None
