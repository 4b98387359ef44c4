"""The event loop: how late it is, and how much of the time it has nothing to do.

A timer measures its own lateness: whatever holds up the loop holds up the timer too. Each tick also folds what the
connections noted about requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.metrics.families import NO_LABELS, Family, Labels, MetricKind, Sample, gauge
from ottla.metrics.histogram import QUANTILES, Histogram, quantile
from ottla.runtime import Clock
from ottla.runtime.process import thread_cpu_s

FLUSH_QUANTILES = [(Labels(quantile=label), share) for label, share in QUANTILES.items()]
TICK_S = 0.1
WINDOW_S = 15.0
"""The time over which idleness is measured."""


class LoopMetrics:
    def __init__(self, clock: Clock, requests: RequestMetrics, flush_times: deque[float]) -> None:
        self._clock = clock
        self._requests = requests
        self._flush_times = flush_times
        self._lateness = Histogram()
        self._flushes = Histogram()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._minute_at = 0.0
        self._readings: deque[tuple[float, float]] = deque(maxlen=round(WINDOW_S / TICK_S))
        """(time, processor time of the loop's thread) at each of the last ticks."""

    def start(self) -> None:
        now = self._clock.monotonic()
        self._minute_at = now + 60
        self._wait_for_tick(now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait_for_tick(self, now: float) -> None:
        self._due_at = now + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._lateness.observe(max(0.0, now - self._due_at))
        self._readings.append((now, thread_cpu_s()))
        if now >= self._minute_at:
            self._minute_at = now + 60
            self._requests.minute_passed()
        while self._flush_times:
            self._flushes.observe(self._flush_times.popleft())
        self._wait_for_tick(now)
        self._fold()

    def _fold(self) -> None:
        if self._requests.fold():
            asyncio.get_running_loop().call_soon(self._fold)

    @property
    def idle_share(self) -> float:
        if len(self._readings) < 2:
            return 1.0
        (began, cpu_then), (ended, cpu_now) = self._readings[0], self._readings[-1]
        return max(0.0, min(1.0, 1.0 - (cpu_now - cpu_then) / (ended - began)))

    def collect(self) -> Iterator[Family]:
        yield Family(
            "ottla_event_loop_lateness_seconds",
            MetricKind.HISTOGRAM,
            f"How late a timer of the event loop is, looked at every {TICK_S} s: a stall delays all requests.",
            self._lateness.samples(NO_LABELS),
        )
        yield Family(
            "ottla_flush_seconds",
            MetricKind.HISTOGRAM,
            "Seconds that the disk took to flush a file (fsync), logs and metadata.",
            self._flushes.samples(NO_LABELS),
        )
        flushes = self._flushes
        yield Family(
            "kafka_log_logflushstats_logflushrateandtimems",
            MetricKind.SUMMARY,
            "The same in milliseconds: quantiles since the start.",
            [
                *(
                    Sample(labels, quantile(flushes.bounds, flushes.counts, share) * 1000)
                    for labels, share in FLUSH_QUANTILES
                ),
                Sample(NO_LABELS, flushes.sum * 1000, "_sum"),
                Sample(NO_LABELS, flushes.count, "_count"),
            ],
        )
        idle = self.idle_share
        about = f"Share of the last {WINDOW_S:g} s in which the event loop had nothing to do."
        yield gauge("kafka_network_socketserver_networkprocessoravgidle_percent", about, idle)
        name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
        yield gauge(name, f"{about} (One loop does both.)", idle)
