"""Requests: how many of each API, and how long each of their phases took.

    queue    from the read that brought the request until its turn: others of the same read were handled first
    local    in the handler, until it answered or returned without an answer
    remote   until the answer: replication, a long poll, the coordinator
    send     until the system had taken the answer: earlier answers, and a client that reads slowly

Connections note four times for each request, in a list. It is folded into histograms here, a limited number at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.metrics.families import Family, Labels, MetricKind, Sample
from ottla.metrics.histogram import QUANTILES, SECONDS, Histogram, quantile
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey

CALLS_MAX = 5
"""Budget, counted by test_counted_work: calls that metrics add to an acks=all request, with the fetches of its two
followers."""
FOLDED_AT_ONCE_MAX = 500
"""Flushes with their answers: about a millisecond."""
PHASES = ("queue", "local", "remote", "send", "total")
KAFKA_PHASES = {
    "total": "totaltimems",
    "queue": "requestqueuetimems",
    "local": "localtimems",
    "remote": "remotetimems",
    "send": "responsesendtimems",
}
WINDOW_MINUTES = 5
"""Quantiles are of the last minutes, as Kafka's are."""


class Phases:
    """The histograms of one kind of request."""

    __slots__ = ("_seen", "histograms", "kafka_labels", "labels", "quantile_labels")

    def __init__(self, name: str) -> None:
        self.histograms = tuple(Histogram() for _ in PHASES)
        self.labels = tuple(Labels(api=name, phase=phase) for phase in PHASES)
        self.kafka_labels = Labels(request=name)
        self.quantile_labels = tuple(self.kafka_labels.also(quantile=label) for label in QUANTILES)
        self._seen: deque[tuple[list[int], ...]] = deque(maxlen=WINDOW_MINUTES)
        """The counts at the end of each of the last minutes."""

    @property
    def count(self) -> int:
        return self.histograms[-1].count

    def minute_passed(self) -> None:
        self._seen.append(tuple(list(each.counts) for each in self.histograms))

    def recent(self, phase: int) -> Sequence[int]:
        """The counts of the last minutes."""
        counts = self.histograms[phase].counts
        if len(self._seen) < WINDOW_MINUTES:
            return list(counts)
        return [now - then for now, then in zip(counts, self._seen[0][phase], strict=True)]


class RequestMetrics:
    def __init__(self) -> None:
        self.times: list[tuple[float, list[Any]]] = []
        """What the connections note: (when the system had taken the answers, the `Timing` of each)."""
        self._kinds: dict[tuple[int, bool], Phases] = {}
        self._by_name: dict[str, Phases] = {}

    def _of(self, name: str) -> Phases:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Phases(name)
        return found

    def fold(self) -> bool:
        """Some of what was noted. Whether there is more. Without a call for a request: every request is folded."""
        times, kinds = self.times, self._kinds
        some = times[:FOLDED_AT_ONCE_MAX]
        del times[
            :FOLDED_AT_ONCE_MAX
        ]  # first: what cannot be folded must not stay, and be tried for ever
        for sent_at, marks in some:
            for key, by_follower, received, started, returned, answered in marks:
                try:
                    kind = kinds[key, by_follower]
                except KeyError:
                    kind = kinds[key, by_follower] = self._of(_name(key, by_follower))
                queue, local, remote, send, total = kind.histograms
                waited_from = returned or answered
                for histogram, seconds in (
                    (queue, started - received),
                    (local, waited_from - started),
                    (remote, answered - waited_from),
                    (send, sent_at - answered),
                    (total, sent_at - received),
                ):
                    index = 0
                    for bound in SECONDS:  # nearly all are within the first few
                        if seconds <= bound:
                            break
                        index += 1
                    histogram.counts[index] += 1
                    histogram.sum += seconds
        return bool(times)

    def minute_passed(self) -> None:
        for kind in self._by_name.values():
            kind.minute_passed()

    def collect(self) -> Iterator[Family | None]:
        while self.fold():
            yield None
        kinds = list(self._by_name.values())
        yield Family(
            "ottla_request_seconds",
            MetricKind.HISTOGRAM,
            "Seconds that requests spent in each phase (queue, local, remote, send, total), by API.",
            (
                sample
                for kind in kinds
                for labels, histogram in zip(kind.labels, kind.histograms, strict=True)
                for sample in histogram.samples(labels)
            ),
        )
        yield Family(
            "kafka_network_requestmetrics_requests_total",
            MetricKind.COUNTER,
            "Answered requests.",
            (Sample(kind.kafka_labels, kind.count) for kind in kinds),
        )
        for index, phase in enumerate(PHASES):
            yield Family(
                f"kafka_network_requestmetrics_{KAFKA_PHASES[phase]}",
                MetricKind.SUMMARY,
                f"Milliseconds, {phase}: quantiles of the last {WINDOW_MINUTES} minutes.",
                (sample for kind in kinds for sample in _summary(kind, index)),
            )


def _summary(kind: Phases, phase: int) -> Iterator[Sample]:
    recent = kind.recent(phase)
    histogram = kind.histograms[phase]
    for share, labels in zip(QUANTILES.values(), kind.quantile_labels, strict=True):
        yield Sample(labels, quantile(SECONDS, recent, share) * 1000)
    yield Sample(kind.kafka_labels, histogram.sum * 1000, "_sum")
    yield Sample(kind.kafka_labels, histogram.count, "_count")


def _name(key: int, by_follower: bool) -> str:
    """Kafka's name; a fetch has one for each of those who fetch."""
    if key == ApiKey.FETCH:
        return "FetchFollower" if by_follower else "FetchConsumer"
    return PRIVATE_APIS[key] if key in PRIVATE_APIS else APIS[ApiKey(key)].name
