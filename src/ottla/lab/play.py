"""A timeline to step through: which step is shown, what the keys do, and what is in each column.

It knows no terminal: `ottla.cli.lab_play` reads the keys and draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.lab.results import LogEntry, ReplicaMoment, Step, Timeline

ESCAPE = "\x1b"


class LogCell(NamedTuple):
    """What a replica has at one offset."""

    entry: LogEntry | None
    marks: str
    """`HW` at the first offset that is not committed, `LEO` at the next offset that will be written."""


class ReplicaColumn(NamedTuple):
    moment: ReplicaMoment
    cells: list[LogCell]
    """One for each offset, from 0 to the highest end of all replicas."""


def columns_of(step: Step) -> list[ReplicaColumn]:
    ends = [replica.log_end for replica in step.replicas]
    ends += [entry.offset for replica in step.replicas for entry in replica.log]
    return [
        ReplicaColumn(replica, [_cell(replica, offset) for offset in range(max(ends) + 1)])
        for replica in step.replicas
    ]


def _cell(replica: ReplicaMoment, offset: int) -> LogCell:
    entry = next((each for each in replica.log if each.offset == offset), None)
    marks = ("HW", replica.high_watermark), ("LEO", replica.log_end)
    return LogCell(entry, " ".join(name for name, at in marks if at == offset))


class TimelinePlayer:
    """Shows one step at a time. `press` takes a key; an unknown key does nothing."""

    def __init__(self, timeline: Timeline) -> None:
        assert timeline.steps, timeline.title
        self.timeline = timeline
        self.position = 0
        self.is_over = False

    @property
    def step(self) -> Step:
        return self.timeline.steps[self.position]

    @property
    def last(self) -> int:
        return len(self.timeline.steps) - 1

    def press(self, key: str) -> None:
        if key in KEYS:
            KEYS[key](self)

    def forwards(self) -> None:
        self.position = min(self.position + 1, self.last)

    def backwards(self) -> None:
        self.position = max(self.position - 1, 0)

    def to_first(self) -> None:
        self.position = 0

    def to_last(self) -> None:
        self.position = self.last

    def quit(self) -> None:
        self.is_over = True


KEYS: dict[str, Callable[[TimelinePlayer], None]] = {
    **dict.fromkeys(("\x1b[C", "\x1bOC", " ", "n"), TimelinePlayer.forwards),
    **dict.fromkeys(("\x1b[D", "\x1bOD", "b", "p"), TimelinePlayer.backwards),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "g"), TimelinePlayer.to_first),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "G"), TimelinePlayer.to_last),
    "q": TimelinePlayer.quit,
}
"""What a terminal sends for a key (the arrows, Home and End are sequences), and what it does."""
KEYS_IN_WORDS = "right, space, n: next   left, b, p: back   g, G: first, last   q: quit"


def keys_in(received: str) -> tuple[list[str], str]:
    """The keys in what a terminal sent, and the beginning of a sequence that is not complete yet."""
    keys: list[str] = []
    while received:
        key = next((each for each in KEYS if received.startswith(each)), received[0])
        if key == ESCAPE and any(each.startswith(received) for each in KEYS):
            break
        keys.append(key)
        received = received[len(key) :]
    return keys, received
