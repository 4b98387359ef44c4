"""What happened in a simulation, as a hash and, when asked for, as lines.

Two runs of one seed must agree in every line. A line holds virtual time, a word and plain values: never a
`repr`, whose addresses differ between processes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest


class Trace:
    def __init__(self, now_ns: Callable[[], int], *, keep_lines: bool = False) -> None:
        self._now_ns = now_ns
        self._hash = hashlib.blake2b(digest_size=16)
        self._ended = False
        self.counts: Counter[str] = Counter()
        """How often each word was said: whether the faults that a run was to meet were met."""
        self.lines: list[str] | None = [] if keep_lines else None

    def end(self) -> None:
        """What follows is no longer part of the run."""
        self._ended = True

    def __call__(self, word: str, *values: int | str) -> None:
        if self._ended:
            return
        self.counts[word] += 1
        line = " ".join((str(self._now_ns()), word, *map(str, values)))
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self.lines is not None:
            self.lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()


def first_difference(one: list[str], other: list[str]) -> str | None:
    """Where two traces part, as a sentence; None when they are equal."""
    for number, (a, b) in enumerate(zip_longest(one, other, fillvalue="(ends)")):
        if a != b:
            return f"line {number + 1}: {a!r} against {b!r}"
    return None
