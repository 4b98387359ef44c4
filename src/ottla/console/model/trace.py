"""A trace of the simulator (`ottla sim --seed N --trace FILE`) as steps of one partition, to be drawn as live replicas are.

A line of a trace tells what a replica is after something happened to it. What its log holds is followed from line to line: a
leader writes in its own epoch, a follower copies what its leader has, a log that became shorter was truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

STEPS_MAX = 20_000
"""Of one partition; later ones are left out, and that is said."""
PARTS_MAX = 500_000
"""Replicas and spans of all its steps: each step tells all of them."""
REPLICAS_MAX = 64
"""What a trace tells of others is not followed."""
SPANS_MAX = 64
"""The newest of a replica."""

# A trace is a file from anywhere: its numbers have no more digits than offsets have.
_NUMBER = r"(\d{1,18})"
_IDS = r"\[([\d, ]{0,1000})\]"
_LINE = re.compile(r"(\d{1,9}\.\d{1,9}) (.*)")
_REPLICA = re.compile(
    rf"node {_NUMBER}: (\S+)-{_NUMBER} (leader|follower|offline) epoch {_NUMBER}"
    rf" start {_NUMBER} HW {_NUMBER} LEO {_NUMBER} ISR {_IDS}"
)
_DECISION = re.compile(
    rf"controller: (\S+)-{_NUMBER} leader (-?\d{{1,18}}) epoch {_NUMBER}/\d+ ISR {_IDS}"
)
_ENDS = re.compile(rf"(?:kill|power loss) n{_NUMBER} ")
_NEMESIS = re.compile(r"nemesis: (.*)")
_CLUSTER_METADATA = "__cluster_metadata"


class EpochSpan(NamedTuple):
    """Records [begin, end) that the leader of this epoch wrote."""

    epoch: int
    begin: int
    end: int


class TracedReplica(NamedTuple):
    broker: int
    role: str
    """leader, follower or down."""
    epoch: int
    start: int
    end: int
    high_watermark: int
    spans: tuple[EpochSpan, ...]


class TraceStep(NamedTuple):
    at_s: float
    """Since the trace began."""
    what: str
    broker: int | None
    """Whose replica changed."""
    lost: tuple[int, int] | None
    """Offsets that were cut off here and had been committed: below the high watermark that this replica knew."""
    isr: tuple[int, ...]
    replicas: tuple[TracedReplica, ...]


class TracedPartition(NamedTuple):
    name: str
    steps: tuple[TraceStep, ...]
    left_out: int


def partitions_in(lines: Iterable[str]) -> dict[str, int]:
    """The partitions that a trace tells of, and how many lines are about each."""
    found: dict[str, int] = {}
    for line in lines:
        match = _LINE.match(line)
        told = match and (_REPLICA.match(match[2]) or _DECISION.match(match[2]))
        if told:
            groups = told.groups()
            name = f"{groups[1]}-{groups[2]}" if told.re is _REPLICA else f"{groups[0]}-{groups[1]}"
            if not name.startswith(_CLUSTER_METADATA):
                found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def steps_of(lines: Iterable[str], partition: str) -> TracedPartition:
    """What happened to one partition, in order; also what the nemesis did meanwhile."""
    follower = _Follower(partition)
    steps: list[TraceStep] = []
    parts = left_out = 0
    for step in follower.follow(lines):
        parts += sum(1 + len(each.spans) for each in step.replicas)
        if len(steps) < STEPS_MAX and parts <= PARTS_MAX:
            steps.append(step)
        else:
            left_out += 1
    return TracedPartition(partition, tuple(steps), left_out)


class _Follower:
    def __init__(self, partition: str) -> None:
        self._topic, _, self._number = partition.rpartition("-")
        self._replicas: dict[int, TracedReplica] = {}
        self._isr: tuple[int, ...] = ()
        self._leader: int | None = None
        self._began: float | None = None

    def follow(self, lines: Iterable[str]) -> Iterator[TraceStep]:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            at_s = float(match[1])
            if self._began is None:
                self._began = at_s
            step = self._step(round(at_s - self._began, 6), match[2])
            if step is not None:
                yield step

    def _step(self, at_s: float, told: str) -> TraceStep | None:
        if found := _REPLICA.match(told):
            is_followed = len(self._replicas) < REPLICAS_MAX or int(found[1]) in self._replicas
            if (found[2], found[3]) == (self._topic, self._number) and is_followed:
                return self._replica_told(at_s, found)
        elif found := _DECISION.match(told):
            if (found[1], found[2]) == (self._topic, self._number):
                self._isr = _ids(found[5])
                leader = int(found[3])
                self._leader = None if leader < 0 else leader
                who = "nobody leads" if leader < 0 else f"broker {leader} leads"
                isr = ", ".join(map(str, self._isr)) or "empty"
                return self._made(
                    at_s, f"The controller decides: {who}, epoch {found[4]}, ISR {isr}."
                )
        elif found := _ENDS.match(told):
            id = int(found[1])
            if id in self._replicas:
                self._replicas[id] = self._replicas[id]._replace(role="down")
                return self._made(at_s, f"Broker {id} ends.", id)
        elif (found := _NEMESIS.match(told)) and self._replicas:
            return self._made(at_s, f"The nemesis {found[1]}.")
        return None

    def _replica_told(self, at_s: float, found: re.Match[str]) -> TraceStep:
        id, role, epoch = int(found[1]), found[4], int(found[5])
        start, watermark, end = int(found[6]), int(found[7]), int(found[8])
        before = self._replicas.get(id)
        old_end = 0 if before is None else before.end
        spans = _cut(() if before is None else before.spans, start, end)
        if end > old_end:
            spans = self._grown(id, role, epoch, spans, max(old_end, start), end)
        shown = "down" if role == "offline" else role
        self._replicas[id] = TracedReplica(
            id, shown, epoch, start, end, watermark, spans[-SPANS_MAX:]
        )
        lost = None
        if before is not None and end < before.end and before.high_watermark > end:
            lost = (end, min(before.high_watermark, before.end))
        return self._made(at_s, self._words(id, before), id, lost)

    def _grown(
        self, id: int, role: str, epoch: int, spans: tuple[EpochSpan, ...], begin: int, end: int
    ) -> tuple[EpochSpan, ...]:
        """What came: written in its own epoch, or copied from the leader."""
        leader = None if self._leader is None else self._replicas.get(self._leader)
        if role == "leader" or leader is None or leader.broker == id:
            return _joined((*spans, EpochSpan(epoch, begin, end)))
        copied = tuple(
            EpochSpan(each.epoch, max(each.begin, begin), min(each.end, end))
            for each in leader.spans
            if each.end > begin and each.begin < end
        )
        reached = max((each.end for each in copied), default=begin)
        rest = (EpochSpan(epoch, reached, end),) if reached < end else ()
        return _joined((*spans, *copied, *rest))

    def _words(self, id: int, before: TracedReplica | None) -> str:
        now = self._replicas[id]
        if before is None or before.role == "down":
            return f"Broker {id} has the log up to {now.end}, as {now.role} in epoch {now.epoch}."
        if now.role != before.role or now.epoch != before.epoch:
            return f"Broker {id} is {now.role} in epoch {now.epoch}, with the log up to {now.end}."
        if now.end < before.end:
            return f"Broker {id} truncates its log from {before.end} to {now.end}."
        if now.end > before.end:
            verb = "writes" if now.role == "leader" else "copies"
            return f"Broker {id} {verb} up to {now.end}."
        if now.high_watermark != before.high_watermark:
            return f"Broker {id} knows the high watermark {now.high_watermark}."
        if now.start != before.start:
            return f"The log of broker {id} begins at {now.start} now."
        return f"Broker {id} is {now.role} in epoch {now.epoch}."

    def _made(
        self,
        at_s: float,
        what: str,
        broker: int | None = None,
        lost: tuple[int, int] | None = None,
    ) -> TraceStep:
        replicas = tuple(self._replicas[id] for id in sorted(self._replicas))
        return TraceStep(at_s, what, broker, lost, self._isr, replicas)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each.strip())


def _cut(spans: Iterable[EpochSpan], start: int, end: int) -> tuple[EpochSpan, ...]:
    cut = (EpochSpan(e, max(begin, start), min(stop, end)) for e, begin, stop in spans)
    return tuple(each for each in cut if each.begin < each.end)


def _joined(spans: Iterable[EpochSpan]) -> tuple[EpochSpan, ...]:
    joined: list[EpochSpan] = []
    for span in spans:
        if joined and joined[-1].epoch == span.epoch and joined[-1].end == span.begin:
            joined[-1] = joined[-1]._replace(end=span.end)
        elif span.begin < span.end:
            joined.append(span)
    return tuple(joined)
