"""A family is a metric's name with its samples; labels tell the samples of one family apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class MetricKind(Enum):
    COUNTER = "counter"
    """It only grows, until the node restarts. The name ends with `_total`."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Samples with the suffixes `_bucket` (with a label `le`), `_sum` and `_count`."""
    SUMMARY = "summary"
    """Samples with a label `quantile`, and the suffixes `_sum` and `_count`."""


class Labels:
    """Names and values, with the text that stands for them. Whoever has many samples with the same labels makes these
    once: the text is most of the work of writing a sample."""

    __slots__ = ("pairs", "text")

    def __init__(self, given: Mapping[str, str] | None = None, /, **named: str) -> None:
        pairs = {**given, **named} if given else named
        assert all(LABEL_NAME.fullmatch(name) for name in pairs), f"not names of labels: {pairs}"
        self.pairs = pairs
        inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs.items())
        self.text = f"{{{inner}}}" if inner else ""

    def __repr__(self) -> str:
        return f"Labels({self.text})"

    def also(self, /, **more: str) -> Labels:
        return Labels(self.pairs, **more)


NO_LABELS = Labels()


class Sample(NamedTuple):
    labels: Labels
    value: float
    suffix: str = ""
    """What follows the family's name, in histograms and summaries."""


class Family:
    """One metric. `samples` is gone through once, when the family is written: it may be a generator, and a node with
    many partitions then never holds all of them."""

    __slots__ = ("help", "kind", "name", "samples")

    def __init__(self, name: str, kind: MetricKind, help: str, samples: Iterable[Sample]) -> None:
        assert NAME.fullmatch(name), f"not the name of a metric: {name}"
        assert name.endswith("_total") == (kind is MetricKind.COUNTER), f"{name} is a {kind.value}"
        assert help and "\n" not in help, f"{name}: its help is one line"
        self.name = name
        self.kind = kind
        self.help = help
        self.samples = samples


def gauge(name: str, help: str, value: float, labels: Labels = NO_LABELS) -> Family:
    """A gauge with one sample."""
    return Family(name, MetricKind.GAUGE, help, (Sample(labels, value),))


def counter(name: str, help: str, value: float, labels: Labels = NO_LABELS) -> Family:
    """A counter with one sample."""
    return Family(name, MetricKind.COUNTER, help, (Sample(labels, value),))


Collector: TypeAlias = Callable[[], Iterable[Family | None]]
"""Called once for each scrape, on the event loop. What it returns is gone through in slices, and the node goes on
between them: a generator copies a dict before it goes through it. One that counts for long yields None now and then, so
that the node has its turn."""
