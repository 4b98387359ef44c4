"""What a broker carries, over the last minute, hour and day.

Each broker remembers its own counters as they were (`LoadHistory`), and sends what follows from them with every heartbeat.
So the active controller knows the loads of all brokers (`ClusterLoads`), and a new one knows them all after the next
heartbeats: nothing is lost when the controller changes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from math import exp
from typing import NamedTuple

MINUTE, HOUR, DAY = "minute", "hour", "day"
WINDOWS = {MINUTE: (60.0, 10.0), HOUR: (3600.0, 60.0), DAY: (86400.0, 900.0)}
"""Seconds, and how often counters are remembered for it."""
PARTITION_MEMORY_S = 1800.0
"""What a partition did this long ago counts for a third."""
LOAD_TEXT_MAX = 2000
"""Of what one broker says: some thirty numbers. What is longer is not one of ours."""


class LoadCounters(NamedTuple):
    """Since the start of the process, but for the bytes on disk."""

    at: float
    """Seconds of any clock that never goes back."""
    bytes_in: int
    """Written as leader."""
    bytes_out: int
    """Sent to consumers."""
    copied_in: int
    """From leaders."""
    copied_out: int
    """To followers."""
    requests: int
    """Partitions in produce requests and in fetches."""
    cpu_s: float
    disk_bytes: int


class LoadRates(NamedTuple):
    """Per second, over one window."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    copied_in: float = 0.0
    copied_out: float = 0.0
    requests: float = 0.0
    cpu: float = 0.0
    """Of one processor: 1 is all of it."""
    disk_growth: float = 0.0

    @property
    def leader_bytes(self) -> float:
        return self.bytes_in + self.bytes_out


class LoadHistory:
    def __init__(self) -> None:
        self._kept: dict[str, deque[LoadCounters]] = {window: deque() for window in WINDOWS}

    def add(self, now: LoadCounters) -> None:
        for window, (seconds, step) in WINDOWS.items():
            kept = self._kept[window]
            if not kept or now.at - kept[-1].at >= step:
                kept.append(now)
            while len(kept) > 2 and kept[1].at <= now.at - seconds:
                kept.popleft()

    def seconds(self, now: LoadCounters) -> float:
        """Of what is known: the longest window, or less after a start."""
        return max((now.at - kept[0].at for kept in self._kept.values() if kept), default=0.0)

    def rates(self, now: LoadCounters) -> dict[str, LoadRates]:
        """By window. A history that is shorter than a window gives what is known."""
        return {window: _between(kept, now) for window, kept in self._kept.items()}


def _between(kept: deque[LoadCounters], now: LoadCounters) -> LoadRates:
    if not kept or now.at <= kept[0].at:
        return LoadRates()
    then = kept[0]
    seconds = now.at - then.at
    return LoadRates(*((new - old) / seconds for new, old in zip(now[1:], then[1:], strict=True)))


class BrokerLoad(NamedTuple):
    leaders: int
    replicas: int
    disk_bytes: int
    """Of all logs."""
    disk_size: int
    disk_free: int
    rates: Mapping[str, LoadRates]

    def as_json(self) -> dict[str, object]:
        """With names, for programs."""
        return {
            **{name: getattr(self, name) for name in self._fields[:-1]},
            **{window: rates._asdict() for window, rates in self.rates.items()},
        }

    def as_text(self) -> str:
        """Short, for heartbeats."""
        rates = [[round(each, 3) for each in self.rates[window]] for window in WINDOWS]
        return json.dumps([*self[:-1], rates], separators=(",", ":"))


def read_load(text: str) -> BrokerLoad | None:
    """None if it is not one of ours: a heartbeat does not fail for it."""
    try:
        leaders, replicas, disk_bytes, disk_size, disk_free, rates = json.loads(text)
        found = {
            window: LoadRates(*map(float, each))
            for window, each in zip(WINDOWS, rates, strict=True)
        }
        return BrokerLoad(
            int(leaders), int(replicas), int(disk_bytes), int(disk_size), int(disk_free), found
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


class ClusterLoads:
    """What the active controller knows of all brokers."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[float, str]] = {}

    def heard(self, broker: int, text: str, now: float) -> None:
        """Kept as it came: nobody may ever ask."""
        if 0 < len(text) <= LOAD_TEXT_MAX:
            self._texts[broker] = now, text

    def clear(self) -> None:
        self._texts.clear()

    def of(self, brokers: Iterable[int]) -> dict[int, BrokerLoad]:
        """Of these, as far as they have said it."""
        found = {}
        for broker in sorted(brokers):
            if broker in self._texts and (load := read_load(self._texts[broker][1])) is not None:
                found[broker] = load
        return found

    def as_text(self, brokers: Iterable[int], now: float) -> str:
        """[[broker, seconds since it said so, its text], …]"""
        rows = [
            [broker, round(now - self._texts[broker][0], 3), self._texts[broker][1]]
            for broker in sorted(brokers)
            if broker in self._texts
        ]
        return json.dumps(rows, separators=(",", ":"))


def read_loads(text: str) -> dict[int, BrokerLoad]:
    found = {}
    for broker, _, load_text in json.loads(text):
        if (load := read_load(load_text)) is not None:
            found[int(broker)] = load
    return found


def summed(loads: Iterable[BrokerLoad]) -> BrokerLoad:
    """Of a rack, or of a cluster. Brokers that share a disk count it each."""
    several = list(loads)
    rates = {
        window: LoadRates(
            *(sum(each) for each in zip(*(load.rates[window] for load in several), strict=True))
        )
        for window in WINDOWS
    }
    return BrokerLoad(
        sum(each.leaders for each in several),
        sum(each.replicas for each in several),
        sum(each.disk_bytes for each in several),
        sum(each.disk_size for each in several),
        sum(each.disk_free for each in several),
        rates,
    )


class PartitionTraffic:
    """Bytes per second in and out of one led partition: an average in which the past fades."""

    __slots__ = ("_at", "_weight", "bytes_in", "bytes_out", "rate_in", "rate_out")

    def __init__(self, at: float, bytes_in: int, bytes_out: int) -> None:
        self._at = at
        self.bytes_in, self.bytes_out = bytes_in, bytes_out
        """Counters, as they were last."""
        self._weight = 0.0
        self.rate_in = self.rate_out = 0.0

    def add(self, at: float, bytes_in: int, bytes_out: int) -> None:
        """What the counters are now. A partition that was idle need not be told so."""
        seconds = at - self._at
        if seconds <= 0:
            return
        keep = exp(-seconds / PARTITION_MEMORY_S)
        weight = self._weight * keep + (1 - keep)
        part = (1 - keep) / weight
        self.rate_in += ((bytes_in - self.bytes_in) / seconds - self.rate_in) * part
        self.rate_out += ((bytes_out - self.bytes_out) / seconds - self.rate_out) * part
        self._at, self._weight = at, weight
        self.bytes_in, self.bytes_out = bytes_in, bytes_out
