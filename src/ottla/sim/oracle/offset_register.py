"""A committed offset as a register (C4): a read sees the newest commit that is complete, or one that is in progress.

Every commit carries a name as its metadata, so a read shows which commit it saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

NO_OFFSET = -1
ABORTED = "its transaction was aborted"


@dataclass(eq=False, slots=True)
class OffsetCommit:
    """An offset that a client asked to commit."""

    name: str
    offset: int
    begun: float
    ended: float = inf
    """When it is known to have happened."""
    replaced: float = inf
    """When another commit is known to have replaced it."""
    replaced_by: str = ""
    """The name of the first commit that is known to have replaced it."""
    replaced_below: float = inf
    """Where the log of offsets ended when that was known: the other commit is below, if it is known to be written."""
    refused: str = ""
    """Why it will never take effect; empty if it may."""


class OffsetRegister:
    """The committed offset of one group for one partition."""

    def __init__(self) -> None:
        first = OffsetCommit("", NO_OFFSET, -inf, ended=-inf)
        self._commits = {first.name: first}
        self._current = [first]
        """The commits that a read may return."""
        self._replaced: list[OffsetCommit] = []
        """Commits that were replaced, by a commit whose place in the log is not known yet."""
        self._lost_at = -inf
        """When commits were last lost."""

    def begin(self, name: str, offset: int, now: float) -> OffsetCommit:
        assert name not in self._commits
        commit = self._commits[name] = OffsetCommit(name, offset, now)
        self._current.append(commit)
        return commit

    def refuse(self, commit: OffsetCommit, why: str) -> None:
        commit.refused = why
        if commit in self._current:
            self._current.remove(commit)

    def done(self, commit: OffsetCommit, now: float, below: float = inf) -> None:
        """It was acknowledged. `below`: the end of the log that has it."""
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, commit.begun, now, below)

    def read(
        self, name: str, offset: int, begun: float, now: float, below: float = inf
    ) -> str | None:
        """What is wrong with this read; None if nothing is."""
        commit = self._commits.get(name)
        if commit is None or commit.offset != offset:
            return f"{offset} ({name!r}) was read, but no client committed it"
        if commit.refused:
            return f"{offset} ({name!r}) was read, but its commit was refused: {commit.refused}"
        if begun > commit.replaced:
            newest = max(self._current, key=lambda each: each.begun)
            return (
                f"{offset} ({name!r}, committed at {commit.begun:.6f}) was read at {begun:.6f}, but "
                f"{commit.replaced_by!r} had replaced it by {commit.replaced:.6f}; the newest commit is "
                f"{newest.offset} ({newest.name!r})"
            )
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, begun, now, below)
        return None

    def lost(self, now: float, first: float) -> None:
        """What was written at `first` or above may be lost: what it replaced may be current again."""
        self._lost_at = now
        for commit in self._commits.values():
            stays = commit in self._current or commit.refused not in ("", ABORTED)
            if commit.replaced_below > first and not stays:
                commit.replaced, commit.replaced_by, commit.refused = inf, "", ""
                self._current.append(commit)
        self._replaced.clear()

    def _replaced_by(self, commit: OffsetCommit, since: float, now: float, below: float) -> None:
        """`commit` was current at some time between `since` and `now`: commits that were complete before are replaced.
        A commit that may be lost replaces none: a coordinator that does not know of the loss may still return it."""
        if commit.begun < self._lost_at:
            return
        for other in self._current[:]:
            if other is not commit and other.ended <= since:
                if now < other.replaced:
                    other.replaced, other.replaced_by = now, commit.name
                self._current.remove(other)
                self._replaced.append(other)
        if below < inf:
            for other in self._replaced[:]:
                if other.ended <= since:
                    other.replaced_below = below
                    self._replaced.remove(other)
