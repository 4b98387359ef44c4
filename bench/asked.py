"""What ottla asks of itself: the ratios to Apache Kafka and to Spark's own connector that a full run must show (`scripts/bench --asked`)."""

from __future__ import annotations

from typing import NamedTuple


class Asked(NamedTuple):
    case: str
    figure: str
    ratio: float
    at_least: bool = False

    def is_reached(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:g} ×"


ASKED = (
    Asked("start", "ready", 0.12),
    Asked("cold", "throughput", 4, at_least=True),
    Asked("produce-1k", "throughput", 2, at_least=True),
    Asked("produce-1k", "broker CPU", 0.25),
    Asked("produce-1k", "PSS per broker", 0.12),
    Asked("produce-100b", "throughput", 1.3, at_least=True),
    Asked("unbatched", "rate", 1, at_least=True),
    Asked("consume", "broker CPU", 0.35),
    Asked("ack-250", "p50", 0.5),
    Asked("ack-250", "p99", 0.5),
    Asked("end-to-end", "p50", 0.4),
    Asked("failover-leader", "without an acknowledgement", 0.03),
    Asked("idle-1000", "idle CPU", 0.5),
    Asked("restarts-1000", "all created", 1),
    Asked("restarts-1000", "election of all", 1),
    Asked("spark-read-1k", "throughput", 1.5, at_least=True),
    Asked("spark-read-1k", "Spark's CPU", 1),
    Asked("spark-read-100b", "throughput", 2.2, at_least=True),
    Asked("spark-read-100b", "Spark's CPU", 1),
    Asked("spark-write", "throughput", 1.2, at_least=True),
    Asked("spark-latency", "p50", 1),
    Asked("spark-first-query", "first result", 1),
)

ASKED_WITH_ACLS = (Asked("produce-1k", "throughput", 0.97, at_least=True),)
"""Of ottla with an authorizer and 10,000 ACLs, against ottla without (`scripts/bench produce-1k --acls 10000`)."""

CASES_ASKED = frozenset(each.case for each in ASKED)


def asked_of(case: str, figure: str, among: tuple[Asked, ...] = ASKED) -> Asked | None:
    return next((each for each in among if (each.case, each.figure) == (case, figure)), None)
